"""Runs the tutorials and renders them to Markdown and notebooks.

    python tools/tutorials.py --out build/tutorials docs/tutorials/01_quick_start.py
    python tools/tutorials.py --quick                   # all of them, at reduced size

A tutorial is a Python file in jupytext's percent format: `# %% [markdown]` begins a cell of text,
`# %%` one of code, and a line `# !rl4co ...` in a cell of code is a command of the shell. In
`--quick` runs and in tests a value with the comment `# quick: ...` is replaced by that of the
comment: `epochs = 10  # quick: 1`.

mkdocs loads this file as a hook, which adds the rendered pages to the site.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import io
import json
import os
import re
import shlex
import sys
import tempfile
import time

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs" / "tutorials"
RENDERED = ROOT / "build" / "tutorials"
QUICK = re.compile(r"^([^=\n]*= ?).*?(,?)  # quick: (.*)$", re.MULTILINE)
COMMAND = re.compile(r"^# !(.*)$", re.MULTILINE)
#: Progress bars and model summaries of trainings, which are for the screen.
SCREEN = re.compile(
    r"^┏(?:.*\n)*?Total FLOPs.*\n"
    r"|^(?:Epoch \d+/\S*|Validation|Testing) .*[━╺].*\n?(?: {20,}.*\n?)*",
    re.MULTILINE,
)
#: Characters in a line of printed tables.
WIDTH = "92"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        kind: "markdown" or "code".
        text: Markdown or Python.
    """

    kind: str
    text: str


@dataclasses.dataclass
class Output:
    """What a cell of code prints and draws."""

    text: str = ""
    figures: list[Any] = dataclasses.field(default_factory=list)


def read_cells(source: str) -> list[Cell]:
    """The cells of a file in the percent format."""
    cells = []
    for part in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        header, _, body = part.partition("\n")
        if header.strip() == "[markdown]":
            cells.append(Cell("markdown", re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip()))
        elif body.strip():
            cells.append(Cell("code", body.strip()))
    return cells


def shorten(code: str) -> str:
    """The code with the values of its comments `# quick: ...`."""
    return QUICK.sub(r"\1\3\2", code)


def run_command(line: str, namespace: dict[str, Any]) -> None:
    """`rl4co ...` inside this process; `{name}` stands for a variable, as in notebooks."""
    from rl4co.cli import app

    program, *arguments = shlex.split(line.format(**namespace))
    if program != "rl4co":
        raise ValueError(f"expected a command of rl4co, got {line!r}; use Python in its place")
    before = sys.argv
    try:
        code = app(arguments, prog_name="rl4co", standalone_mode=False)
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = before
    if code:
        raise RuntimeError(f"expected '{line}' to succeed, got exit code {code}")


def run_cell(code: str, namespace: dict[str, Any]) -> Output:
    """Runs a cell as a notebook does: the value of its last expression is shown."""
    import matplotlib.pyplot as plt

    from matplotlib.figure import Figure

    output, printed, value = Output(), io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        for line in COMMAND.findall(code):
            run_command(line, namespace)
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<tutorial>", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<tutorial>", "eval"), namespace)
        if code.endswith(";"):
            value = None
        if value is not None and not isinstance(value, Figure):
            print(repr(value))
    text = SCREEN.sub("", printed.getvalue())
    output.text = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    output.figures = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    if isinstance(value, Figure):
        output.figures.append(value)
    return output


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """An empty working directory; raises if the tutorial leaves files in it.

    Environment variables are as before afterwards.
    """
    before, variables = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["COLUMNS"] = WIDTH
        try:
            yield Path(folder)
            if left := sorted(os.listdir(folder)):
                raise RuntimeError(f"expected no files to be left, got {left}; remove them")
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(variables)


def run_tutorial(source: Path, quick: bool) -> Iterator[tuple[Cell, Output]]:
    """Runs the cells of a tutorial one after the other.

    Args:
        source: The file.
        quick: Whether to reduce sizes.

    Yields:
        Each cell with its output.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with workplace():
        for cell in read_cells(source.read_text()):
            output = Output()
            if cell.kind == "code":
                code = shorten(cell.text) if quick else cell.text
                output = run_cell(code, namespace)
            yield cell, output


def render(source: Path, out: Path, quick: bool) -> None:
    """Writes `NAME.md`, its plots `NAME-1.png`, ... and the notebook `NAME.ipynb`."""
    out.mkdir(parents=True, exist_ok=True)
    name, parts, cells = source.stem, [], []
    heading, plots = "", 0
    for cell, output in run_tutorial(source, quick):
        cells.append(cell)
        if cell.kind == "markdown":
            parts.append(cell.text)
            heading = (re.findall(r"^#+ (.*)$", cell.text, re.MULTILINE) or [heading])[-1]
            continue
        visible = re.sub(r"  # quick: .*$", "", cell.text, flags=re.MULTILINE)
        commands = COMMAND.findall(visible)
        parts.append(fence("bash", "\n".join(commands)) if commands else fence("python", visible))
        if output.text:
            parts.append(fence("text", output.text))
        for figure in output.figures:
            plots += 1
            figure.savefig(out / f"{name}-{plots}.png", dpi=110, bbox_inches="tight")
            parts.append(f"![{heading}]({name}-{plots}.png)")
    note = f"[Notebook]({name}.ipynb) of this page."
    (out / f"{name}.md").write_text("\n\n".join([*parts, note, ""]))
    (out / f"{name}.ipynb").write_text(json.dumps(notebook(cells), indent=1))


def fence(language: str, text: str) -> str:
    """A block of code or output."""
    return f"```{language}\n{text}\n```"


def notebook(cells: Sequence[Cell]) -> dict[str, Any]:
    """A Jupyter notebook of the cells, without outputs."""
    entries = []
    for number, cell in enumerate(cells):
        text = COMMAND.sub(r"!\1", cell.text) if cell.kind == "code" else cell.text
        entry: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}}
        if cell.kind == "code":
            entry |= {"execution_count": None, "outputs": []}
        entries.append({**entry, "source": text.splitlines(keepends=True)})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": entries, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def on_files(files: Any, config: Any) -> Any:
    """Hook of mkdocs: adds the rendered tutorials to the pages of the site."""
    from mkdocs.exceptions import PluginError
    from mkdocs.structure.files import File

    missing = [
        path.stem for path in SOURCES.glob("*.py") if not (RENDERED / f"{path.stem}.md").is_file()
    ]
    if missing:
        raise PluginError(f"expected rendered tutorials, got none of {missing}; run make docs")
    for path in SOURCES.glob("*.py"):
        files.remove(files.get_file_from_path(f"tutorials/{path.name}"))
        for rendered in sorted(RENDERED.glob(f"{path.stem}*")):
            name = f"tutorials/{rendered.name}"
            files.append(File.generated(config, name, abs_src_path=str(rendered)))
    return files


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path, help="files; default: all tutorials")
    parser.add_argument("--out", type=Path, default=RENDERED, help="folder of the pages")
    parser.add_argument("--quick", action="store_true", help="reduced sizes, as in the tests")
    args = parser.parse_args()
    os.environ["MPLBACKEND"] = "Agg"
    for source in args.sources or sorted(SOURCES.glob("*.py")):
        start = time.process_time()
        render(source.resolve(), args.out.resolve(), args.quick)
        print(f"{source.stem}: {time.process_time() - start:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
