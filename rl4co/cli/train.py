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
    sys.argv = [task.__file__, *context.args]
    task.main()
