"""`rl4co collect`: the runs of a sweep as one table and a plot."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Annotated

import typer

from rl4co.cli._frame import DebugFlag, JsonFlag, app, reports_errors, show, stderr


@app.command()
@reports_errors
def collect(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep, or of several runs.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="Metric to show, such as val/reward; the first one is plotted. Default: rewards.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write to; default: FOLDER.")
    ] = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Collect the runs of a sweep: [bold]rl4co collect logs/train/multiruns/DATE[/bold].

    Writes runs.md, runs.csv and runs.png, and prints the table.
    """
    from rl4co.tasks.collect import collect_runs, format_cell, table_of_runs, write_collection

    runs = collect_runs(folder)
    records = table_of_runs(runs, metric)
    files = write_collection(runs, out or folder, metric)
    if json_output:
        print(json.dumps({"runs": records, "files": [str(file) for file in files]}))
        return
    rows = [tuple(format_cell(value) for value in record.values()) for record in records]
    show(str(folder), tuple(records[0]), rows)
    names = ", ".join(file.name for file in files)
    stderr().print(f"{files[0].parent}: {names}", markup=False, highlight=False)
