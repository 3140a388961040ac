"""The tutorials run from the first cell to the last, at reduced size, and leave no files."""

from __future__ import annotations

import logging
import re

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl4co.core import registry
from tools.tutorials import SOURCES, Cell, notebook, read_cells, run_tutorial, shorten

TUTORIALS = sorted(SOURCES.glob("*.py"))


@pytest.fixture(autouse=True)
def _unchanged_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a tutorial registers, and the loggers it sets up, are gone after it."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    yield
    for each in vars(registry).values():
        if isinstance(each, registry.Registry):
            for name, entry in list(each._entries.items()):
                if getattr(entry, "__module__", "") == "__main__":
                    del each._entries[name]


@pytest.mark.parametrize("source", TUTORIALS, ids=lambda source: source.stem)
def test_tutorial_runs(source: Path) -> None:
    """Every cell runs, and there is a plot."""
    outputs = [output for _, output in run_tutorial(source, quick=True)]
    assert any(output.figures for output in outputs)


@pytest.mark.parametrize("source", TUTORIALS, ids=lambda source: source.stem)
def test_tutorial_is_short_and_says_where_to_go_next(source: Path) -> None:
    text = source.read_text()
    cells = read_cells(text)
    assert cells[0].text.startswith("# ")
    assert "## Where to go next" in cells[-1].text
    assert len(text.splitlines()) <= 230
    for page in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text):
        target = source.parent / page
        assert target.exists() or target.with_suffix(".py").exists(), page


def test_reduced_sizes_and_notebook_cells() -> None:
    code = "model(\n    size=4_800,  # quick: 2\n)\nsteps = f(5, x=1)  # quick: 1\n"
    code += "kept = 3\n# !rl4co list"
    assert shorten(code) == "model(\n    size=2,\n)\nsteps = 1\nkept = 3\n# !rl4co list"
    cells = read_cells(f"# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\n{code}\n")
    assert cells == [Cell("markdown", "# Title\n\nText"), Cell("code", code)]
    assert notebook(cells)["cells"][1]["source"][-1] == "!rl4co list"
