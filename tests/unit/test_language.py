"""One vocabulary: words and phrases that the project's texts and names do not use.

`CLEAN` lists the folders that are checked. Add exceptions to the patterns, not to the texts:
"road network" is a technical term, "the slow road" is a metaphor.
"""

from __future__ import annotations

import ast
import importlib
import re

from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

#: Pattern (case is ignored) → what to write instead.
BANNED = {
    r"of (one's|your|his|her) own\b": "custom",
    r"\bone's own\b": "custom",
    r"\b(at|through) the (front )?door\b": "raises ...",
    r"\bis refused\b|\bare refused\b|\brefuses\b|\brefused\b|\brefusals?\b|\brefuse\b":
        "reject, raise",
    r"\b(plain|fast|slow|main|readable|other|same|published) road\b":
        "reference implementation, fast path",
    r"\bstrangers?\b": "untrusted, other",
    r"\bpromises? (kept|of)\b|\bkeeps? (its|their) promise": "guarantee",
    r"\bwith(out)? chance\b": "stochastic, deterministic",
    r"\bby turns\b": "alternating",
    r"\bis looked (for|up)\b|\bare looked (for|up)\b": "searches for, looks up",
    r"\bhas its effect\b|\bhave their effect\b": "takes effect",
    r"\bstands? in for\b": "replaces",
    r"\b(pictures?)\b": "plot, figure, rendering",
    r"\bdefault: chosen\.": "Default: chosen automatically.",
    r"\bends in order\b|\bin good order\b": "cleanly",
    r"\bnobody\b": "no process, no one",
    r"\b(price|prices|priced|pricing) (a|the|of) (solution|route|tour)": "evaluate, cost",
    r"\bcrew\b": "WorkerPool",
    r"\bin (its|their) words\b|\bin the words of\b": "the message of",
    r"\bits own affair\b": "not our concern",
    r"\b(he|she) (has|is|was|can|may|must|wants|asks|does|did|says)\b": "they",
}  # fmt: skip

#: Files and folders that are checked.
CLEAN = [
    "benchmarks",
    "configs",
    "docs",
    "examples",
    "rl4co",
    "tests",
    "tools",
    "CONTRIBUTING.md",
    "README.md",
]
#: Files in these folders that are not checked: this one, which has the rules.
EXEMPT = {"tests/unit/test_language.py"}
SUFFIXES = {".py", ".md", ".yaml"}


def files(names: list[str]) -> Iterator[Path]:
    for name in names:
        place = REPOSITORY / name
        assert place.exists(), f"{name} is no longer there; correct the list CLEAN"
        tree = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in tree:
            path = file.relative_to(REPOSITORY)
            is_hidden = any(part.startswith(".") for part in path.parts)
            if file.suffix in SUFFIXES and not is_hidden and str(path) not in EXEMPT:
                yield file


def violations(text: str) -> Iterator[str]:
    """Lines with a banned phrase; underscores separate words, so names are checked, too."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.replace("_", " ")
        for pattern, instead in BANNED.items():
            if match := re.search(pattern, words, re.IGNORECASE):
                yield f"{number}: {match[0]!r}; write: {instead}"


@pytest.mark.parametrize("name", CLEAN)
def test_words(name: str):
    """No banned word or phrase in texts and names."""
    found = [
        f"{file.relative_to(REPOSITORY)}:{each}"
        for file in files([name])
        for each in violations(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_banned"),
    [
        ("A strategy of one's own", True),
        ("def test_bad_names_are_refused():", True),
        ("The fast road of the loop", True),
        ("A road network with its own distances", False),
        ("Solvers with chance run once per seed", True),
        ("by chance", False),
    ],
)
def test_patterns(text: str, is_banned: bool):
    """The table finds what it should, and technical terms stay."""
    assert bool(list(violations(text))) is is_banned


GLOSSARY = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
#: Identifiers and dotted names in the glossary.
NAMES = sorted(set(re.findall(r"`((?:rl4co\.)[\w.]+|[A-Za-z_]\w{2,})(?:\(\))?`", GLOSSARY)))


def defined_names() -> set[str]:
    """Names of all functions, classes, arguments, variables and keys in the package."""
    names: set[str] = set()
    for file in (REPOSITORY / "rl4co").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
                names.add(str(node.value))
    return names


def test_names_of_the_glossary_exist():
    """Modules can be imported; classes, functions, arguments and keys are defined."""
    assert NAMES, "the glossary mentions no names"
    defined = defined_names()
    missing = [name for name in NAMES if not name.startswith("rl4co.") and name not in defined]
    for name in NAMES:
        if name.startswith("rl4co."):
            parent, _, last = name.rpartition(".")
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                if not hasattr(importlib.import_module(parent), last):
                    missing.append(name)
    assert not missing
