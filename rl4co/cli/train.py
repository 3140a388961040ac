"""`rl4co train`: trains a model."""

from __future__ import annotations

import sys

from pathlib import Path
from typing import Annotated

import typer

from rl4co.cli._frame import app
from rl4co.cli._options import Imports

Resume = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder of an interrupted run to continue."),
]


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def train(context: typer.Context, resume: Resume = None, imports: Imports = None) -> None:
    """Train a model: [bold]rl4co train experiment=quick[/bold] (other arguments go to Hydra)."""
    import rl4co.tasks.train as task

    modules = [f"extras.imports=[{','.join(imports)}]"] if imports else []
    # Distributed training starts the program again by its first argument, without the subcommand.
    # It would start `python -m rl4co.cli` again as that module, which needs the subcommand.
    sys.argv = [task.__file__, *modules, *context.args]
    main = sys.modules["__main__"]
    if main.__spec__ is not None and main.__spec__.name == f"{__package__}.__main__":
        main.__spec__ = None
    task.main(resume)
