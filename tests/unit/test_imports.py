"""The architecture as a test: who may import whom, what an import may load, what a file may say.

The rules are the two tables below. Imports are read from the syntax tree of every module, so one
inside a function counts as well; only `if TYPE_CHECKING:` is exempt, because it never runs.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import json
import re
import shutil
import subprocess
import sys

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "rl4co"


@dataclass(frozen=True)
class Layer:
    """What the modules of one layer may import from the package, besides each other.

    Args:
        may: Names of other layers.
        facade: Whether the layer only re-exports names under published import paths.
    """

    may: tuple[str, ...] = ()
    facade: bool = False


_NETWORKS = ("models.nn", "models.embeddings", "models.policies")
_MODELS = (*_NETWORKS, "models.rl", "models.zoo")
_BELOW_MODELS = ("core", "kernels", "data", "envs", "decoding", "pretrained")
_BELOW_RL = (*_BELOW_MODELS, "data.generate", *_NETWORKS)
_BELOW_TASKS = (*_BELOW_RL, "solvers", "models.rl", "models.zoo", "models", "training")

# Layer (a dotted prefix inside the package; the longest one that fits counts) → its arrows.
LAYERS: dict[str, Layer] = {
    "": Layer(may=("core", "compat")),  # rl4co/__init__.py itself
    "core": Layer(),
    "kernels": Layer(may=("core",)),
    "data": Layer(may=("core",)),
    "data.generate": Layer(may=("core", "data", "data.recipes", "envs")),
    "data.recipes": Layer(may=("core", "envs")),
    "envs": Layer(may=("core", "kernels", "data")),
    # Heuristics roll out, too.
    "solvers": Layer(may=("core", "kernels", "data", "envs", "decoding")),
    # Solvers do not depend on the analysis of infeasible instances.
    "solvers._feasibility": Layer(may=("core", "solvers")),
    "decoding": Layer(may=("core", "kernels", "envs")),
    # Where trained models are; reading one is the matter of policies.
    "pretrained": Layer(may=("core", "data")),
    "models": Layer(may=("core", *_MODELS)),  # rl4co/models/__init__.py itself
    "models.nn": Layer(may=("core", "kernels")),
    "models.nn.env_embeddings": Layer(may=("core", "models.embeddings"), facade=True),
    "models.embeddings": Layer(may=("core", "kernels", "models.nn")),
    "models.policies": Layer(may=(*_BELOW_MODELS, "models.nn", "models.embeddings")),
    "models.rl": Layer(may=_BELOW_RL),
    "models.zoo": Layer(may=(*_BELOW_RL, "models.rl")),
    "models.original_weights": Layer(may=(*_BELOW_RL, "models.zoo")),
    # A solver with networks: registered from its own folder, loaded only when asked for.
    "models.zoo.glop.solver": Layer(may=(*_BELOW_RL, "models.rl", "models.zoo", "solvers")),
    "training": Layer(may=(*_BELOW_RL, "models.rl", "models.zoo")),
    "tasks": Layer(may=(*_BELOW_TASKS, "solvers._feasibility")),
    # The playground; only its command imports it.
    "serve": Layer(may=(*_BELOW_TASKS, "tasks")),
    "cli": Layer(may=(*_BELOW_TASKS, "tasks", "serve")),
    # `import rl4co` loads the table of import paths and the finder; the rest loads on first use.
    "compat": Layer(may=(*_BELOW_TASKS, "tasks")),
    "utils": Layer(may=(*_BELOW_TASKS, "tasks"), facade=True),
}

# Third-party package → the only layers that may import it.
RESERVED: dict[str, tuple[str, ...]] = {
    "hydra": ("tasks", "cli"),
    "omegaconf": ("tasks", "cli", "compat"),
    "lightning": ("models.rl", "training", "compat"),
    "pytorch_lightning": (),  # one name for Lightning everywhere
    # New releases rename things: specs for environments, buffers for stepwise methods, no more.
    "torchrl": ("envs", "models.rl"),
    # What is compiled has one room and one switch.
    "numba": ("kernels",),
    "llvmlite": ("kernels",),
}

# Layer → what it must not import.
BANNED: dict[str, tuple[str, ...]] = {
    "envs": ("torch.nn",),  # environments know no networks
    "models.nn": ("tensordict",),  # tensors in, tensors out
    # `rl4co.core.console` makes control characters in texts visible.
    "tasks": ("rich.console",),
    "cli": ("rich.console",),
}

# Loaded by `import rl4co`, these would make `rl4co --help` slow.
HEAVY = ("torch", "tensordict", "torchrl", "lightning", "hydra", "numpy", "matplotlib", "numba")

# What is wrong with it → how it looks. Classes of one letter keep it from matching here.
FORBIDDEN_TEXT = {
    "a path of one machine": r"(?<![\w.~$}])/(?:roo[t]|hom[e]|User[s]|op[t]|wor[k]|tm[p])/\w",
    "a path of one Windows machine": r"\b[A-Z]:\\Users",
    "the host of a package registry": r"pypi\.org|python[h]osted|download\.pytorch\.org|npmjs\.",
    "a word about where the work was done": (
        r"\bC[E]O\b|DEVELOPERS\.md|pitfalls\.md|shared/\w+\.md|"
        r"(?i:\bsub-?agent|\bcoding (?:agent|session))"
    ),
}


# ---------------------------------------------------------------- reading imports


@dataclass(frozen=True)
class Import:
    """One imported module and where that happens."""

    target: str
    line: int


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of the package: dotted name → file."""
    found = {}
    for path in sorted((REPOSITORY / PACKAGE).rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def tree_of(module: str) -> ast.Module:
    """Syntax tree of a module of the package."""
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def is_type_checking(node: ast.AST) -> bool:
    """Whether a node is `if TYPE_CHECKING:` (or `if typing.TYPE_CHECKING:`)."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def executed_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, without the bodies that only type checkers read."""
    yield node
    children = node.orelse if is_type_checking(node) else ast.iter_child_nodes(node)
    for child in children:
        yield from executed_nodes(child)


def imports_of(tree: ast.Module, module: str, is_package: bool) -> list[Import]:
    """All modules that `module` imports, relative names resolved.

    `from a import b` may import the module `a.b` or the name `b` of `a`: both `a` and `a.b` are
    reported, and the rules look at prefixes.
    """
    found = []
    for node in executed_nodes(tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")
                drop = node.level - is_package
                anchor = package[: len(package) - drop]
                base = ".".join([*anchor, *base.split(".")] if base else anchor)
            found += [Import(f"{base}.{alias.name}", node.lineno) for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.nn":
            # `import torch` makes `torch.nn` available without naming it.
            found.append(Import("torch.nn", node.lineno))
    return found


def package_imports(module: str) -> list[Import]:
    """Imports of a module of this package."""
    return imports_of(tree_of(module), module, modules()[module].name == "__init__.py")


def layer_of(name: str) -> str:
    """The layer of a dotted name inside the package, by its longest prefix in the table."""
    inner = name.split(".")[1:]
    for length in range(len(inner), -1, -1):
        if (prefix := ".".join(inner[:length])) in LAYERS:
            return prefix
    raise AssertionError("the empty prefix is in the table")


def within(name: str, prefix: str) -> bool:
    """Whether a dotted name is `prefix` or below it."""
    return name == prefix or name.startswith(prefix + ".")


def place(module: str, line: int) -> str:
    """`file:line` for messages."""
    return f"{modules()[module].relative_to(REPOSITORY).as_posix()}:{line}"


# ---------------------------------------------------------------- the reader itself


def test_reader_sees_every_kind_of_import():
    """Imports at any depth are found and relative ones resolved; type-only ones are not."""
    source = """
import torch.nn.functional as F
from torch import nn
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import lightning
def function():
    from ..core import ops
    return torch.nn.Linear
"""
    found = {entry.target for entry in imports_of(ast.parse(source), "rl4co.envs.base", False)}
    assert found == {
        "torch.nn.functional",
        "torch.nn",
        "typing.TYPE_CHECKING",
        "rl4co.core.ops",
    }
    relative = ast.parse("from . import base")
    assert imports_of(relative, "rl4co.envs", True) == [Import("rl4co.envs.base", 1)]
    assert imports_of(relative, "rl4co.envs.checks", False) == [Import("rl4co.envs.base", 1)]


def test_layer_is_the_longest_prefix():
    """A name below a listed folder belongs to it; the root file has its own layer."""
    assert layer_of("rl4co") == ""
    assert layer_of("rl4co.core.ops.batchify") == "core"
    assert layer_of("rl4co.models.nn.attention") == "models.nn"
    assert layer_of("rl4co.models.nn.env_embeddings") == "models.nn.env_embeddings"
    assert layer_of("rl4co.models.POMO") == "models"


# ---------------------------------------------------------------- the rules


def test_arrows_form_no_cycle():
    """The table is an order: facades aside, no layer can reach itself."""
    graph = {name: layer.may for name, layer in LAYERS.items() if not layer.facade}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_module_has_a_layer_of_its_own():
    """A new top-level folder must be put in the table; nothing hides behind the root's entry."""
    strays = [name for name in modules() if name != PACKAGE and layer_of(name) == ""]
    assert not strays, f"expected a row of LAYERS for each, got none for {strays}"
    facade_only = [
        name for name in modules() if layer_of(name) == "models" and name != f"{PACKAGE}.models"
    ]
    assert not facade_only, f"expected a row of LAYERS for each, got none for {facade_only}"


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_follow_the_arrows(layer: str):
    """A module imports from its own layer and those that the table allows, wherever it does so.

    The version of the package, which is a plain text, is there for all.
    """
    allowed = {layer, *LAYERS[layer].may}
    wrong = [
        f"{place(module, entry.line)} imports {entry.target}"
        for module in modules()
        if layer_of(module) == layer
        for entry in package_imports(module)
        if within(entry.target, PACKAGE)
        and layer_of(entry.target) not in allowed
        and entry.target != f"{PACKAGE}.__version__"
    ]
    assert not wrong, f"expected imports of {sorted(allowed)} only, got:\n" + "\n".join(wrong)


@pytest.mark.parametrize("library", RESERVED)
def test_reserved_libraries_stay_in_their_layers(library: str):
    """Hydra is for tasks and command line, Lightning for algorithms and training, ..."""
    wrong = [
        f"{place(module, entry.line)} imports {entry.target}"
        for module in modules()
        if layer_of(module) not in RESERVED[library]
        for entry in package_imports(module)
        if within(entry.target, library)
    ]
    assert not wrong, f"expected {library} in {RESERVED[library]} only, got:\n" + "\n".join(wrong)


@pytest.mark.parametrize("layer", BANNED)
def test_banned_imports(layer: str):
    """Environments know no networks; network blocks no TensorDict; there is one console."""
    wrong = [
        f"{place(module, entry.line)} uses {entry.target}"
        for module in modules()
        if layer_of(module) == layer
        for entry in package_imports(module)
        if any(within(entry.target, banned) for banned in BANNED[layer])
    ]
    assert not wrong, f"expected no {BANNED[layer]} in {layer}, got:\n" + "\n".join(wrong)


def test_methods_use_each_other_only_through_their_package():
    """`rl4co.models.zoo.am` may be imported by another method, `rl4co.models.zoo.am.policy` not."""
    zoo = f"{PACKAGE}.models.zoo"
    wrong = []
    for module in modules():
        if not within(module, zoo) or module == zoo:
            continue
        own = ".".join(module.split(".")[:4])
        for entry in package_imports(module):
            if within(entry.target, zoo) and not within(entry.target, own):
                internal = ".".join(entry.target.split(".")[:5])
                if internal in modules():
                    wrong.append(f"{place(module, entry.line)} imports {entry.target}")
    assert not wrong, "expected no internals of other methods, got:\n" + "\n".join(wrong)


def is_reexport(node: ast.stmt) -> bool:
    """Whether a statement belongs in a module without logic of its own."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)  # the docstring
    if is_type_checking(node):
        return all(is_reexport(inner) for inner in node.body)
    if isinstance(node, ast.FunctionDef):
        return node.name in ("__getattr__", "__dir__")  # names imported on first use
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [name.id for name in ast.walk(ast.Tuple(targets)) if isinstance(name, ast.Name)]
        # `__all__ = [...]`, `__getattr__, __dir__ = lazy_attributes(...)`, `_TABLE = {...}`
        return bool(names) and all(name.startswith("_") for name in names)
    return False


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from rl4co.core.ops import batchify", True),
        ("'''Purpose.'''", True),
        ("__all__ = ['batchify']", True),
        ("__getattr__, __dir__ = lazy_attributes(__name__)", True),
        ("def __getattr__(name): ...", True),
        ("def batchify(x): return x", False),
        ("class Trainer: ...", False),
        ("log = get_logger()", False),
        ("print('loaded')", False),
    ],
)
def test_reexport_is_recognised(source: str, expected: bool):
    """Imports, docstring, `__all__` and lazy lookup pass; anything that does something does not."""
    assert is_reexport(ast.parse(source).body[0]) is expected


def test_facades_only_reexport():
    """`utils/` and other published paths hold no code."""
    wrong = [
        place(module, node.lineno)
        for module in modules()
        if LAYERS[layer_of(module)].facade
        for node in tree_of(module).body
        if not is_reexport(node)
    ]
    assert not wrong, "expected re-exports only, got code at:\n" + "\n".join(wrong)


# ---------------------------------------------------------------- what an import loads


def loaded_by(statement: str, after: str = "pass") -> set[str]:
    """Top-level modules that a statement adds to a fresh process in which `after` was run."""
    script = (
        "import json, sys\n"
        f"{after}\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted({n.split('.')[0] for n in set(sys.modules) - before})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize("statement", ["import rl4co", "import rl4co.cli"])
def test_package_and_command_line_load_nothing_heavy(statement: str):
    """`rl4co --help` and `rl4co list` answer at once."""
    assert loaded_by(statement).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "statement",
    ["from rl4co.envs import TSPEnv", "import rl4co.utils.ops", "import rl4co.data"],
)
def test_environments_load_little_more_than_torchrl(statement: str):
    """Nothing of training, configuration, plotting or solvers comes with an environment."""
    heavy = {"lightning", "hydra", "omegaconf", "matplotlib", "numba", "scipy", "rich"}
    solvers = {"pyvrp", "ortools", "elkai", "vrplib", "tsplib95", "torch_geometric"}
    loaded = loaded_by(statement, after="import torchrl.data, torchrl.envs")
    assert loaded.isdisjoint(heavy | solvers)


# ---------------------------------------------------------------- what a file says


@functools.cache
def repository_texts() -> dict[str, str]:
    """All text files that are, or are about to be, under version control."""
    if shutil.which("git") is None or not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    texts = {}
    for name in filter(None, listing.stdout.split("\0")):
        path = REPOSITORY / name
        if path.is_file():
            try:
                texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # an image or an archive
    return texts


@pytest.mark.parametrize("fault", FORBIDDEN_TEXT)
def test_files_speak_of_the_project_alone(fault: str):
    """No path of somebody's machine, registry host or workplace word in any tracked file."""
    pattern = re.compile(FORBIDDEN_TEXT[fault])
    wrong = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}"
        for name, text in repository_texts().items()
        for match in pattern.finditer(text)
    ]
    assert not wrong, f"expected no file with {fault}, got:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("a path of one machine", " /".join(["see", "home/someone/data"])),
        ("a path of one Windows machine", "C:" + r"\Users\someone"),
        ("the host of a package registry", "https://" + "pypi" + ".org/simple"),
        ("a word about where the work was done", "the " + "CE" + "O said"),
    ],
)
def test_forbidden_text_is_recognised(fault: str, text: str):
    """Each pattern finds an example of what it is for."""
    assert re.search(FORBIDDEN_TEXT[fault], text)
