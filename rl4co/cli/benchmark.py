"""`rl4co benchmark`: methods × instances → a table and plots."""

from __future__ import annotations

import json

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl4co.cli._frame import DebugFlag, JsonFlag, app, reports_errors, show, stderr
from rl4co.cli._interrupts import exit_code
from rl4co.cli._options import (
    AllowClasses,
    Imports,
)
from rl4co.core.errors import ConfigError
from rl4co.core.imports import import_modules, search_working_folder

if TYPE_CHECKING:
    from rl4co.tasks.benchmark import BenchmarkSpec, Report

#: Exit code if a method failed on an instance.
SOME_FAILED = 1


@app.command()
@reports_errors
def benchmark(
    instances: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, patterns, DATA.npz:env=NAME, or ENV:NODES:size=N:seed=N."
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", "-m", help="SOLVER[:TIME][:KEY=VALUE], or MODEL[:DECODING] (rl4co models)."
        ),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option(help="YAML or JSON file with methods and instances.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; default: benchmark/NAME.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Title.")] = None,
    best_known: Annotated[Path | None, typer.Option(help="CSV table of best-known values.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Method to compare with where there is no best-known value.")
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            help="Seconds per instance of solvers without a limit, and of primal integrals."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Most files of each set.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Runs of methods that have a seed, with 1, 2, ...; shows the spread."),
    ] = None,
    procs: Annotated[int, typer.Option(help="Instances that solvers solve at once.")] = 1,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Repeat what failed in an earlier run.")
    ] = False,
    plots: Annotated[bool, typer.Option(help="Whether to draw plots.")] = True,
    imports: Imports = None,
    allow_class: AllowClasses = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Compare solvers and models: [bold]rl4co benchmark A/*.vrp -m pyvrp:1s -m insertion[/bold].

    Results are stored one by one: run the same command again to go on after an interruption.

    The exit code is 1 if anything failed.
    """
    import_modules(imports)
    changes = {"name": name, "reference": reference, "time_limit": time_limit, "seeds": seeds}
    chosen = _specification(spec, instances, method, best_known, limit, changes)
    from rl4co.tasks.benchmark import draw_plots, run_benchmark, write_report

    folder = out or Path("benchmark") / chosen.name
    try:
        report = run_benchmark(
            chosen,
            folder,
            num_procs=procs,
            retry_errors=retry_errors,
            allow_classes=search_working_folder(allow_class),
            progress=False if json_output else None,
        )
    except KeyboardInterrupt as interrupt:
        stderr().print(f"interrupted; the same command goes on with what is in {folder}")
        raise typer.Exit(exit_code(interrupt)) from None
    files = write_report(report, folder)
    files += draw_plots(report, folder) if plots else []
    if json_output:
        from rl4co.tasks.benchmark.report import as_records

        print(json.dumps({**as_records(report), "files": [str(file) for file in files]}))
    else:
        _print(report, files)
    if report.errors:
        raise typer.Exit(SOME_FAILED)


def _specification(
    file: Path | None,
    instances: list[str] | None,
    methods: list[str] | None,
    best_known: Path | None,
    limit: int | None,
    changes: dict[str, Any],
) -> BenchmarkSpec:
    """The specification, from a file or from arguments."""
    from rl4co.tasks.benchmark.parse import load_spec, parse_spec

    settings = {key: value for key, value in changes.items() if value is not None}
    if file is not None:
        if instances or methods or best_known or limit or settings:
            raise ConfigError(
                "expected --spec alone, got instances or settings as well; write them in the file"
            )
        return load_spec(file)
    if not instances or not methods:
        raise ConfigError(
            "expected instances and at least one --method, or --spec FILE; "
            "for example: rl4co benchmark tsp:20:size=10 -m insertion -m lkh"
        )
    sources = _sources(instances, best_known, limit)
    return parse_spec({"methods": methods, "instances": sources, **settings})


def _sources(texts: list[str], best_known: Path | None, limit: int | None) -> list[Any]:
    """Sets of instances; files of one folder, as a shell lists them, are one set."""
    folders: dict[str, list[str]] = {}
    others: list[Any] = []
    settings: dict[str, Any] = {} if best_known is None else {"best_known": str(best_known)}
    settings |= {} if limit is None else {"limit": limit}
    for text in texts:
        path = Path(text)
        is_pattern = bool(set(text) & set("*?[")) and ":" not in text
        if path.is_dir() or is_pattern:
            others.append({"files": text, **settings})
        elif path.is_file() and path.suffix != ".npz":
            folders.setdefault(path.absolute().parent.name, []).append(text)
        else:
            others.append(text)
    return [{"name": n, "files": f, **settings} for n, f in folders.items()] + others


def _print(report: Report, files: list[Path]) -> None:
    """A table for each set, failures, and the folder of the files."""
    from rl4co.tasks.benchmark.files import legend, remarks, table

    columns, cells = table(report)
    for name in dict.fromkeys(row[0] for row in cells):
        rows = [row for row in cells if row[0] == name]
        # The first and last cell, set and reference, are the same in all lines of a set.
        title = f"{report.name}: {name} (reference: {rows[0][-1]})"
        show(title, tuple(columns[1:-1]), [tuple(row[1:-1]) for row in rows])
    console = stderr()
    for text in remarks(report):
        console.print(text, style="yellow", markup=False, highlight=False)
    console.print(legend(report), markup=False, highlight=False)
    names = ", ".join(file.name for file in files)
    console.print(f"{files[0].parent}: {names}", markup=False, highlight=False)
