"""Compare the speed and memory of this package with the published one, on this machine.

Both run in the same session, in turns, one repetition each, never at the same time.

    python -m benchmarks.compare                             # everything (about an hour)
    python -m benchmarks.compare --cases am_train greedy --sizes 20 50
    python -m benchmarks.compare --quick                     # does it run? small, not stored
    python -m benchmarks.compare --render                    # rewrite README.md from results/
"""

from __future__ import annotations

import argparse
import os
import sys

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import report
from benchmarks.cases import MEMORY, NEW, PUBLISHED, TITLES, Case, plan
from benchmarks.flops import combined_rate, encoder_gemm_shapes
from benchmarks.published import PublishedVenvError, ensure_published, venv_path
from benchmarks.runner import (
    Contender,
    ContenderError,
    Outcome,
    Run,
    Schedule,
    WorkerProcess,
    alternate,
    import_run,
    peak_memory_run,
)

SQUARE = 2048
ON_DEMAND = ("import_time", *MEMORY)  # a fresh process for every repetition
Contenders = dict[str, Contender]
OnSample = Callable[[str, int], None]


def available_gb() -> float:
    """Memory that can be taken without swapping; 0 where the system does not say."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) / 2**20
    return 0.0


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line of the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--cases", nargs="+", choices=list(TITLES), default=list(TITLES), metavar="CASE")
    add("--problems", nargs="+", metavar="PROBLEM", help="default: those of each case")
    add("--sizes", nargs="+", type=int, help="customers (default: 20 50 100, or the case's own)")
    add("--repeats", type=int, default=7, help="repetitions of each contender")
    add("--budget", type=float, default=180.0, help="seconds per row; at least 3 repetitions")
    add("--quick", action="store_true", help="size 20, small batches, 2 repetitions, not stored")
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--python", type=Path, default=Path(sys.executable), help="interpreter with this package")
    add("--venv", help="virtual environment with the published package, see published.py")
    add("--setup", default="auto", metavar="MODULE:FUNCTION", help="hook for the new package")
    add("--setup-published", default="none", metavar="MODULE:FUNCTION")
    add("--replay-chunk", type=int, default=16, help="second peak-memory row (0: without)")
    add("--memory-gb", type=float, default=0.8 * available_gb(), help="limit per process, 0: none")
    add("--results", type=Path, help=f"folder for the JSON files (default: {report.RESULTS.name}/)")
    add("--render", action="store_true", help="only rewrite README.md from the stored results")
    return parser.parse_args(argv)


def command_line(arguments: argparse.Namespace, case: str) -> str:
    """The command to repeat one case of a run, without the paths of this machine."""
    parts = ["python -m benchmarks.compare", "--cases", case]
    if arguments.problems:
        parts += ["--problems", *arguments.problems]
    if arguments.sizes:
        parts += ["--sizes", *map(str, arguments.sizes)]
    parts += ["--repeats", str(arguments.repeats), "--threads", str(arguments.threads)]
    if arguments.setup != "auto":
        parts += ["--setup", arguments.setup]
    return " ".join(parts + (["--quick"] if arguments.quick else []))


def make_contenders(arguments: argparse.Namespace) -> Contenders:
    """Both sides, published first; builds the published environment if need be."""
    published = ensure_published(venv_path(arguments.venv))
    common: dict[str, Any] = {"threads": arguments.threads, "memory_gb": arguments.memory_gb}
    new = arguments.python.expanduser().absolute()
    return {
        PUBLISHED: Contender(PUBLISHED, published, hook=arguments.setup_published, **common),
        NEW: Contender(NEW, new, hook=arguments.setup, **common),
    }


def contender_facts(contenders: Contenders, console: Console) -> dict[str, Any]:
    """Versions and hooks of both sides; says so if they are the same package."""
    facts: dict[str, dict[str, Any]] = {}
    for name, contender in contenders.items():
        try:
            with WorkerProcess(contender) as worker:
                facts[name] = worker.request("hello")
        except ContenderError as error:  # its rows will say so
            console.print(f"[red]{name} does not start: {error}")
            facts[name] = {}
    old, new = facts[PUBLISHED], facts[NEW]
    if old and new and old["package_folder"] == new["package_folder"]:
        console.print("[yellow]both contenders import the same rl4co: the ratios mean nothing")
    if old and new and old["torch"] != new["torch"]:
        console.print(f"[yellow]torch differs: published {old['torch']}, new {new['torch']}")
    return {
        "torch": (new or old).get("torch", "unknown"),
        "python": (new or old).get("python", "unknown"),
        "versions": {name: fact.get("rl4co", "unknown") for name, fact in facts.items()},
        "hooks": {name: fact.get("hook", "unknown") for name, fact in facts.items()},
    }


def measure_gemm(worker: WorkerProcess, case: Case) -> dict[str, float]:
    """Rates of matrix products in GFLOP/s: large square ones, and the encoder's own shapes."""
    shapes = encoder_gemm_shapes(case.problem, case.size, case.batch)
    rates = worker.request("gemm", shapes=[[SQUARE] * 3, *shapes])["gflops"]
    return {"square": rates[0], "encoder": combined_rate(shapes, rates[1:])}


def run_on_demand(
    case: Case, contenders: Contenders, schedule: Schedule, on_sample: OnSample
) -> dict[str, Outcome]:
    """Cases whose repetitions are processes of their own."""
    runs: dict[str, Run] = {}
    for name, contender in contenders.items():
        if case.name == "import_time":
            runs[name] = partial(import_run, contender, case.label)
        else:
            runs[name] = partial(peak_memory_run, contender, case.spec(name))
    if case.name in MEMORY:
        schedule = Schedule(min(schedule.repeats, 3), warmup=0, budget=schedule.budget, least=1)
    return alternate(runs, schedule, on_sample)


def run_in_workers(
    case: Case, contenders: Contenders, schedule: Schedule, on_sample: OnSample
) -> tuple[dict[str, Outcome], dict[str, float]]:
    """Cases with one living worker per contender; both are new for every case."""
    gemm: dict[str, float] = {}
    with ExitStack() as stack:
        workers: dict[str, WorkerProcess] = {}
        failed: dict[str, Outcome] = {}
        for name, contender in contenders.items():
            worker = stack.enter_context(WorkerProcess(contender))
            try:
                worker.request("setup", spec=case.spec(name))
                workers[name] = worker
            except ContenderError as error:
                failed[name] = Outcome(error=str(error))
        runs: dict[str, Run] = {name: worker.run for name, worker in workers.items()}
        outcomes = alternate(runs, schedule, on_sample)
        if case.name == "am_train" and NEW in workers and outcomes[NEW].error is None:
            gemm = measure_gemm(workers[NEW], case)
    return {**outcomes, **failed}, gemm


def run_case(
    case: Case, contenders: Contenders, schedule: Schedule, on_sample: OnSample
) -> report.Row:
    """Measure one row."""
    gemm: dict[str, float] = {}
    if case.name in ON_DEMAND:
        outcomes = run_on_demand(case, contenders, schedule, on_sample)
    else:
        outcomes, gemm = run_in_workers(case, contenders, schedule, on_sample)
    cells = {}
    for name, outcome in outcomes.items():
        if outcome.error is not None:  # an error text must not carry a path of this machine
            folder = str(contenders[name].python.parent.parent)
            outcome.error = outcome.error.replace(folder, "<venv>")
        cells[name] = outcome.as_dict()
    metric = "peak_mib" if case.name in MEMORY else "seconds"
    return {"case": case.as_dict(), "metric": metric, "contenders": cells, "gemm": gemm}


def terminal_table(title: str, columns: list[str]) -> Table:
    """Empty table with the columns of the Markdown one."""
    table = Table(title=title, caption="median (min..max)")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def run_all(
    cases: list[Case], contenders: Contenders, schedule: Schedule, console: Console
) -> list[report.Row]:
    """Measure all rows of one table, shown live."""
    table, rows = terminal_table(TITLES[cases[0].name], report.COLUMNS), []
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )
    task = progress.add_task("", total=len(cases))
    with Live(Group(table, progress), console=console, refresh_per_second=2):
        for case in cases:

            def show(name: str, number: int, case: Case = case) -> None:
                kind = "warm-up" if number < 0 else f"repetition {number + 1}"
                progress.update(task, description=f"{case.name} {case.label}: {name}, {kind}")

            row = run_case(case, contenders, schedule, show)
            table.add_row(*report.row_cells(row))
            rows.append(row)
            progress.advance(task)
    return rows


def main(argv: list[str] | None = None) -> None:
    """Run the comparison, store the results, rewrite the README."""
    arguments = parse_arguments(argv)
    console = Console()
    folder = arguments.results or report.RESULTS
    if arguments.render:
        report.update_readme("compare", report.render_comparison(folder))
        return
    if arguments.quick:
        arguments.repeats = 2
    try:
        contenders = make_contenders(arguments)
        meta = report.machine_facts("", arguments.threads)
        meta |= {"quick": arguments.quick, **contender_facts(contenders, console)}
    except PublishedVenvError as error:
        raise SystemExit(f"error: {error}") from error
    cases = plan(
        arguments.cases,
        arguments.problems,
        arguments.sizes,
        arguments.replay_chunk,
        arguments.quick,
    )
    schedule = Schedule(arguments.repeats, budget=arguments.budget)
    for name, group in groupby(cases, key=lambda case: case.name):
        rows = run_all(list(group), contenders, schedule, console)
        facts = {**meta, "command": command_line(arguments, name)}
        result = {"case": name, "meta": facts, "rows": rows}
        if roofline := report.roofline_rows(result):
            table = terminal_table("against the matrix products alone", report.ROOFLINE_COLUMNS)
            for cells in roofline:
                table.add_row(*cells)
            console.print(table)
        if not arguments.quick or arguments.results:
            report.write_json(folder / f"{name}.json", result)
    if not arguments.quick and folder == report.RESULTS:
        report.update_readme("compare", report.render_comparison(folder))


if __name__ == "__main__":
    main()
