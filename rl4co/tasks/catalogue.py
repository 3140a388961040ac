"""All names of the library with a line about each, for `rl4co list`.

Names and descriptions are read from the source files, so that a list imports nothing heavy.
"""

from __future__ import annotations

import ast
import functools
import re
import runpy

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rl4co.core.registry import DECODING, EMBEDDINGS, ENVS, MODELS, SOLVERS, Registry
from rl4co.pretrained import pretrained_models
from rl4co.tasks.methods import method_names

CONFIG_DIR = Path(__file__).resolve().parent.parent / "configs"


def _registered(registry: Registry[Any]) -> dict[str, str]:
    """Names of a registry with the first line of their module, or where a plug-in comes from."""
    return {
        name: registry.location(name)
        if (file := registry.source(name)) is None
        else _first_line(ast.get_docstring(_tree(file)))
        for name in registry.names()
    }


def _table(module: str, variable: str) -> dict[str, str]:
    """Keys of a literal table of classes in a module's source, with the classes' descriptions."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, f"no module {module}"
    body = _tree(Path(spec.origin)).body
    texts = {
        node.name: _first_line(ast.get_docstring(node))
        for node in body
        if isinstance(node, ast.ClassDef)
    }
    for node in body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == variable:
            assert isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
            return {
                ast.literal_eval(key): _described(value, texts)
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key is not None
            }
    raise AssertionError(f"no table {variable} in {module}")


def _described(entry: ast.expr, texts: Mapping[str, str]) -> str:
    """Description of a table's entry: `Class`, or `(Class, {setting: value})`."""
    cls, preset = entry.elts if isinstance(entry, ast.Tuple) else (entry, None)
    settings = ast.literal_eval(preset) if preset is not None else {}
    return " ".join([texts.get(ast.unparse(cls), ""), *(f"({name})" for name in settings)])


def _experiments() -> dict[str, str]:
    folder = CONFIG_DIR / "experiment"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): _first_comment(path)
        for path in folder.rglob("*.yaml")
    }


def _kernels() -> dict[str, str]:
    """Compiled parts, and whether they are built; read without importing torch."""
    folder = Path(__file__).resolve().parent.parent / "kernels"
    built = runpy.run_path(str(folder / "build.py"))["library_path"]().exists()
    how = "built" if built else "not built: python -m rl4co.kernels.build"
    return {"pointer": f"Fused pointer attention on a CPU ({how})"}


def _pretrained() -> dict[str, str]:
    """Pretrained models, as their cards describe them."""
    return {
        name: f"{source.card().get('policy', 'policy')} for {source.problem}, from {source.origin}"
        for name, source in pretrained_models().items()
    }


def _first_comment(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ").strip()
    return ""


def _first_line(text: str | None) -> str:
    """First line of a docstring, without its markup and formulas."""
    line = (text or "").partition("\n")[0]
    return re.sub(r":\w+:|`|:? ?\$[^$]*\$", "", line)


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


#: Kind of name → function that returns names and descriptions, for `rl4co list`.
CATALOGUE: dict[str, Callable[[], dict[str, str]]] = {
    "envs": functools.partial(_registered, ENVS),
    "models": functools.partial(_registered, MODELS),
    "pretrained": _pretrained,
    "experiments": _experiments,
    "baselines": functools.partial(_table, "rl4co.models.rl.baselines", "BASELINES"),
    "decoding": lambda: {
        **_table("rl4co.decoding.strategies", "_STRATEGIES"),
        **_registered(DECODING),
    },
    "methods": lambda: {**method_names(), **_registered(DECODING)},
    "solvers": functools.partial(_registered, SOLVERS),
    "embeddings": functools.partial(_registered, EMBEDDINGS),
    "kernels": _kernels,
}
