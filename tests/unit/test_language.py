"""One vocabulary: words and phrases that the project's texts and names do not use.

`CLEAN` lists the files that follow the rules; a folder is added when it does. Add exceptions to the
patterns, not to the texts: "road network" is a technical term, "the slow road" is a metaphor.
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

#: Files and folders that are checked; the list grows until it is the whole repository.
CLEAN = [
    "benchmarks/quick.py",
    "docs/benchmark.md",
    "docs/eda.md",
    "docs/gymnasium.md",
    "docs/training.md",
    "rl4co/cli/__init__.py",
    "rl4co/cli/_frame.py",
    "rl4co/cli/_interrupts.py",
    "rl4co/cli/_options.py",
    "rl4co/cli/benchmark.py",
    "rl4co/cli/collect.py",
    "rl4co/cli/eval.py",
    "rl4co/cli/list.py",
    "rl4co/cli/train.py",
    "rl4co/configs",
    "rl4co/data",
    "rl4co/decoding/ant_colony.py",
    "rl4co/decoding/edges.py",
    "rl4co/decoding/moves.py",
    "rl4co/decoding/pheromone.py",
    "rl4co/envs/base.py",
    "rl4co/envs/contract",
    "rl4co/envs/eda",
    "rl4co/envs/graph",
    "rl4co/envs/gymnasium.py",
    "rl4co/envs/hooks.py",
    "rl4co/envs/improvement.py",
    "rl4co/envs/instances.py",
    "rl4co/envs/routing/_exchange.py",
    "rl4co/envs/routing/_generator.py",
    "rl4co/envs/routing/_map.py",
    "rl4co/envs/routing/_parts.py",
    "rl4co/envs/routing/atsp",
    "rl4co/envs/routing/cvrp/ants.py",
    "rl4co/envs/routing/cvrp/cases.py",
    "rl4co/envs/routing/cvrp/env.py",
    "rl4co/envs/routing/cvrp/generator.py",
    "rl4co/envs/routing/cvrp/render.py",
    "rl4co/envs/routing/cvrpmvc",
    "rl4co/envs/routing/cvrptw",
    "rl4co/envs/routing/mdcpdp",
    "rl4co/envs/routing/mtsp",
    "rl4co/envs/routing/mtvrp",
    "rl4co/envs/routing/op",
    "rl4co/envs/routing/pctsp",
    "rl4co/envs/routing/pdp",
    "rl4co/envs/routing/pdp_ruin_repair",
    "rl4co/envs/routing/sdvrp",
    "rl4co/envs/routing/shpp",
    "rl4co/envs/routing/spctsp",
    "rl4co/envs/routing/svrp",
    "rl4co/envs/routing/tsp/ants.py",
    "rl4co/envs/routing/tsp/cases.py",
    "rl4co/envs/routing/tsp/env.py",
    "rl4co/envs/routing/tsp/generator.py",
    "rl4co/envs/routing/tsp/render.py",
    "rl4co/envs/routing/tsp_dense",
    "rl4co/envs/routing/tsp_kopt",
    "rl4co/envs/scheduling",
    "rl4co/solvers/formulations",
    "rl4co/tasks/benchmark",
    "rl4co/tasks/catalogue.py",
    "rl4co/tasks/collect.py",
    "rl4co/tasks/eval.py",
    "rl4co/tasks/evaluate.py",
    "rl4co/tasks/evaluators.py",
    "rl4co/tasks/improve.py",
    "rl4co/tasks/instantiate.py",
    "rl4co/tasks/load.py",
    "rl4co/tasks/methods.py",
    "rl4co/tasks/metrics.py",
    "rl4co/tasks/search.py",
    "rl4co/tasks/tables.py",
    "rl4co/tasks/train.py",
    "rl4co/training",
    "tests/configs",
    "tests/unit/tasks/test_collect.py",
    "tests/unit/tasks/test_evaluate.py",
    "tests/unit/tasks/test_methods.py",
    "tests/unit/training",
]
SUFFIXES = {".py", ".md", ".yaml"}


def files(names: list[str]) -> Iterator[Path]:
    for name in names:
        place = REPOSITORY / name
        assert place.exists(), f"{name} is no longer there; correct the list CLEAN"
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (file for file in found if file.suffix in SUFFIXES)


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
