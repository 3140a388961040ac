"""`rl4co train`: trains a model."""

from __future__ import annotations

import sys

import typer

from rl4co.cli._frame import app


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def train(context: typer.Context) -> None:
    """Train a model: [bold]rl4co train experiment=quick[/bold] (all arguments go to Hydra)."""
    import rl4co.tasks.train as task

    # Distributed training starts the program again by its first argument, without the subcommand.
    # It would start `python -m rl4co.cli` again as that module, which needs the subcommand.
    sys.argv = [task.__file__, *context.args]
    main = sys.modules["__main__"]
    if main.__spec__ is not None and main.__spec__.name == f"{__package__}.__main__":
        main.__spec__ = None
    task.main()
