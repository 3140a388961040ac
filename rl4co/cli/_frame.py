"""Shared parts of all commands: the application, flags, tables, and the report of errors."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import warnings

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import typer

from rl4co.cli._interrupts import exit_code, sigterm_like_ctrl_c
from rl4co.core.errors import RL4COError
from rl4co.core.text import printable

USAGE_ERROR = 2

F = TypeVar("F", bound=Callable[..., None])

app = typer.Typer(
    name="rl4co",
    help="Reinforcement learning for combinatorial optimization.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, errors included.")]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"rl4co {sys.modules['rl4co'].__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Reinforcement learning for combinatorial optimization."""


def reports_errors(command: F) -> F:
    """Decorator of commands: errors that the user can fix become one line and exit code 2.

    Ctrl-C and SIGTERM become the message "interrupted" and the exit code of the signal.

    The command has the parameters `json_output` and `debug`.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            with sigterm_like_ctrl_c():
                command(*args, **kwargs)
        except (RL4COError, OSError) as error:
            if kwargs.get("debug"):
                raise
            print_error(error, bool(kwargs.get("json_output")))
            raise typer.Exit(USAGE_ERROR) from error
        except KeyboardInterrupt as interrupt:
            stderr().print("interrupted", style="red")
            raise typer.Exit(exit_code(interrupt)) from None

    return wrapped  # type: ignore[return-value]


def print_error(error: Exception, json_output: bool) -> None:
    """One line on stderr, or JSON on stdout."""
    if json_output:
        print(json.dumps({"error": {"type": type(error).__name__, "message": str(error)}}))
    else:
        stderr().print(str(error), style="red", markup=False, highlight=False)


@contextlib.contextmanager
def warnings_in_lines() -> Iterator[None]:
    """Shows warnings about the user's input as one line each, without the place in the code."""

    def print_line(message: Warning | str, *_: object, **__: object) -> None:
        stderr().print(f"warning: {message}", style="yellow", markup=False, highlight=False)

    with warnings.catch_warnings():
        warnings.showwarning = print_line
        yield


def stderr() -> Any:
    """The console for messages that are not the result."""
    from rl4co.core.console import Console

    return Console(stderr=True, soft_wrap=True)


def say(text: str) -> None:
    """Prints a line of the result as plain text, without control characters."""
    print(printable(text).replace("\n", "?"))


def show(title: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    """Prints a table of plain texts (brackets are no markup) and other things that rich prints.

    Where the words of a row do not fit into a line, a row becomes a block with a line per column.
    """
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    from rl4co.core.console import Console

    console = Console()
    cells = [tuple(Text(cell) if isinstance(cell, str) else cell for cell in row) for row in rows]
    # Long words are broken rather than cut off.
    table = Table(*(Column(name, overflow="fold") for name in columns), box=box.SIMPLE_HEAD)
    if _least_width(columns, cells) > console.width:
        table = Table("", Column("", overflow="fold"), box=box.SIMPLE_HEAD, show_header=False)
        for row in cells:
            for name, cell in zip(columns, row, strict=True):
                table.add_row(Text(name), cell)
            table.add_section()
    else:
        for row in cells:
            table.add_row(*row)
    # Not the table's own title, which is broken into lines as wide as the table.
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def _least_width(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> int:
    """Width of a table whose columns are as wide as their longest word."""
    words = [
        max(len(word) for cell in column for word in (*str(cell).split(), ""))
        for column in zip(columns, *rows, strict=True)
    ]
    return sum(words) + 2 * len(words)
