"""`rl4co reproduce`: the tables and figures of the paper, at any budget."""

from __future__ import annotations

import os
import tempfile

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl4co.cli._frame import (
    DebugFlag,
    JsonFlag,
    app,
    reports_errors,
    show,
    stderr,
    warnings_in_lines,
)
from rl4co.cli._outcomes import SOME_FAILED
from rl4co.core.errors import ConfigError

if TYPE_CHECKING:
    from rl4co.tasks.reproduce.report import Page
    from rl4co.tasks.reproduce.run import Lane
    from rl4co.tasks.reproduce.table import Cell, Family

ALL = "all"


@app.command()
@reports_errors
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Family of tables, YAML file, or 'all'; none: list them.")
    ] = None,
    profile: Annotated[str, typer.Option(help="smoke (seconds), cpu, or paper.")] = "cpu",
    budget: Annotated[
        float | None, typer.Option(help="Minutes of the slowest training; default: the profile's.")
    ] = None,
    equal: Annotated[
        str | None, typer.Option(help="What trainings share: steps, samples or minutes.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Trainings of each method.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=OPTION,...", help="Part of the cells, e.g. method=POMO,AM."),
    ] = None,
    data: Annotated[str, typer.Option(help="Folder with public instances.")] = "data",
    out: Annotated[Path, typer.Option(help="Folder of models and results.")] = Path("reproduce"),
    plan: Annotated[bool, typer.Option("--plan", help="Show the work and stop.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Only render what is stored.")] = False,
    claim: Annotated[str | None, typer.Option(help="Judge claims that contain this text.")] = None,
    calibrate: Annotated[
        int | None, typer.Option(min=2, help="Measure the costs of steps in so many steps.")
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Folder of another run to add; may be repeated.")
    ] = None,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Part of the work.")] = "1/1",
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    launcher: Annotated[
        str | None, typer.Option(help="joblib, submitit_local or submitit_slurm.")
    ] = None,
    shards: Annotated[int, typer.Option(min=1, help="Parts of a run with --launcher.")] = 1,
    launcher_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Setting of the launcher, e.g. timeout_min=60."),
    ] = None,
    procs: Annotated[int, typer.Option(min=1, help="Instances that solvers solve at once.")] = 1,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Repeat what failed in an earlier run.")
    ] = False,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Reproduce tables and figures of the paper: [bold]rl4co reproduce jssp --budget 5[/bold].

    Policies are trained once and kept; results are stored batch by batch. Run the same command
    again to go on after an interruption. The exit code is 1 if anything failed.
    """
    from rl4co.tasks.reproduce.run import Shard
    from rl4co.tasks.reproduce.run import merge as merge_folders
    from rl4co.tasks.reproduce.table import expand, family_names, load_family

    if name is None:
        _overview()
        return
    part = Shard.parse(shard)
    names = [each for each in family_names() if each != "models"] if name == ALL else [name]
    chosen = _selection(only)
    families = [load_family(each, profile, {"data": data}) for each in names]
    tables = [(each, expand(each, budget, equal, seeds, chosen)) for each in families]
    failed = False
    if merge:
        for conflict in merge_folders(out, merge):
            failed = True
            stderr().print(conflict, style="red", markup=False, highlight=False)
    elif plan or calibrate:
        _plan(tables, part, out, calibrate)
        return
    elif not report:
        arguments = _arguments(name, profile, budget, equal, seeds, only, data, out, procs,
                               retry_errors)  # fmt: skip
        if launcher is not None:
            from rl4co.tasks.reproduce.launch import launch

            arguments += ["--jobs", str(jobs)]
            failed = not launch(launcher, shards, arguments, launcher_option or [], out)
        elif jobs > 1:
            from rl4co.tasks.reproduce.run import run_jobs

            failed = not run_jobs(arguments, part.split(jobs))
        else:
            failed = _run(tables, part, out, procs, retry_errors)
    if part.count > 1:
        stderr().print(f"shard {part} is done; --report shows all shards in {out}")
    else:
        _report(tables, out, claim, json_output)
    if failed:
        raise typer.Exit(SOME_FAILED)


def _selection(only: list[str] | None) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for text in only or ():
        axis, equals, options = text.partition("=")
        if not equals or not options:
            raise ConfigError(f"expected --only AXIS=OPTION,..., got {text!r}")
        chosen.setdefault(axis, []).extend(options.split(","))
    return chosen


def _arguments(
    name: str, profile: str, budget: float | None, equal: str | None, seeds: int | None,
    only: list[str] | None, data: str, out: Path, procs: int, retry_errors: bool,
) -> list[str]:  # fmt: skip
    """The command line of a shard."""
    options = {"profile": profile, "budget": budget, "equal": equal, "seeds": seeds, "data": data,
               "out": out, "procs": procs}  # fmt: skip
    words = [name]
    for key, value in options.items():
        words += [] if value is None else [f"--{key}", str(value)]
    for text in only or ():
        words += ["--only", text]
    return [*words, "--retry-errors"] if retry_errors else words


def _overview() -> None:
    from rl4co.tasks.reproduce.table import PROFILES, family_names, load_family

    rows = []
    for name in family_names():
        family = load_family(name, "cpu")
        rows.append((name, family.title, str(len(family.claims)),
                     f"{family.variables.get('budget', '')}"))  # fmt: skip
    show(
        "Tables and figures of the paper", ("name", "title", "claims", "minutes per training"), rows
    )
    stderr().print(f"rl4co reproduce NAME --plan; profiles: {', '.join(PROFILES)}", highlight=False)


def _run(
    tables: list[tuple[Family, list[Cell]]], part: Any, out: Path, procs: int, retry_errors: bool
) -> bool:
    """Runs the shard; whether anything failed."""
    from rl4co.tasks.reproduce.run import deal, make_lanes, run_lanes

    console = stderr()
    lanes = deal(make_lanes(cell for _, cells in tables for cell in cells), part)
    with warnings_in_lines():
        failures = run_lanes(
            lanes, out, part, procs, retry_errors,
            report=lambda text: console.print(text, markup=False, highlight=False),
        )  # fmt: skip
    return bool(failures)


def _plan(tables: list[tuple[Family, list[Cell]]], part: Any, out: Path, steps: int | None) -> None:
    """The lanes of the shard with their estimated minutes, or the measured costs of steps."""
    from rl4co.tasks.benchmark.recipes import folder_of, is_trained
    from rl4co.tasks.reproduce.run import calibrate, deal, make_lanes

    lanes = deal(make_lanes(cell for _, cells in tables for cell in cells), part)
    if steps is not None:
        with tempfile.TemporaryDirectory() as folder:
            for name, cost in calibrate(lanes, Path(folder), steps):
                print(f"{name}: {cost:.3g} seconds per step")
        return

    def row(lane: Lane) -> tuple[str, ...]:
        counts = [recipe.steps for recipe in lane.recipes if recipe.steps is not None]
        done = sum(is_trained(recipe, out) for recipe in lane.recipes)
        models = " ".join(folder_of(recipe, out).name for recipe in lane.recipes)
        trained = f"{done}/{len(lane.recipes)}" if lane.recipes else ""
        return (lane.name, str(max(counts, default="")), trained, str(len(lane.pairs)),
                f"{lane.minutes:.1f}", models)  # fmt: skip

    columns = ("lane", "steps", "trained", "cells", "minutes", "models")
    show("Plan", columns, [row(lane) for lane in lanes])
    hours = sum(lane.minutes for lane in lanes) / 60
    cells = sum(len(each) for _, each in tables)
    stderr().print(f"{cells} cells in {len(lanes)} lanes, about {hours:.1f} core-hours of training "
                   f"and solving ({os.cpu_count()} cores here)", highlight=False)  # fmt: skip


def _report(
    tables: list[tuple[Family, list[Cell]]], out: Path, claim: str | None, json_output: bool
) -> None:
    """Writes the pages, and prints tables and verdicts."""
    from rl4co.tasks.reproduce.report import make_page, write_page
    from rl4co.tasks.reproduce.run import read_results

    for family, cells in tables:
        if not family.axes:
            continue
        page = make_page(read_results(family, cells, out), claim)
        files = write_page(page, out / family.name)
        if json_output:
            print((out / family.name / "report.json").read_text(encoding="utf-8"))
        else:
            _print(page, files)


def _print(page: Page, files: list[Path]) -> None:
    from rl4co.tasks.reproduce.pivot import rich_table
    from rl4co.tasks.reproduce.report import evidence

    for pivot in page.pivots:
        columns, rows = rich_table(pivot)
        show(f"{page.results.family.title}: {pivot.name}", tuple(columns), map(tuple, rows))
    claims = [(each.text, each.verdict, evidence(each), each.note) for each in page.verdicts]
    show("Claims", ("claim", "verdict", "difference", "note"), claims)
    console = stderr()
    for note in page.results.notes:
        console.print(note, style="yellow", markup=False, highlight=False)
    total = len(page.results.measured)
    console.print(f"{page.results.done} of {total} cells; {files[0].parent}", highlight=False)
