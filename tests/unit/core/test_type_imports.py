"""Type checkers see what packages import on first use: their block lists exactly these names."""

from __future__ import annotations

import ast
import importlib
import importlib.util

from pathlib import Path

import pytest

from rl4co.core.lazy import declared_names

ROOT = Path(__file__).parents[3]
LAZY = sorted(
    ".".join(path.relative_to(ROOT).parent.parts)
    for path in (ROOT / "rl4co").rglob("__init__.py")
    if "__getattr__, __dir__ = lazy_attributes(" in path.read_text()
)


def init_file(package: str) -> Path:
    return ROOT / package.replace(".", "/") / "__init__.py"


def typed_names(package: str) -> set[str]:
    """Names that are imported below `if TYPE_CHECKING:`, also through other such packages."""
    names: set[str] = set()
    for node in ast.parse(init_file(package).read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if not isinstance(line, ast.ImportFrom):
                    assert isinstance(line, ast.Pass)
                elif line.names[0].name == "*":
                    names |= {*declared_names(init_file(line.module)), *typed_names(line.module)}
                else:
                    names |= {alias.asname or alias.name for alias in line.names}
    return names


def test_lazy_packages_are_found():
    assert {"rl4co.envs", "rl4co.envs.routing", "rl4co.models", "rl4co.utils"} <= set(LAZY)


@pytest.mark.parametrize("package", LAZY)
def test_the_block_lists_what_is_imported_on_first_use(package: str):
    """Run `make format` if this fails after a new problem or method."""
    module = importlib.import_module(package)
    exported = getattr(module, "__all__", ())  # may import what it lists
    here = {name for name in vars(module) if name in exported}
    assert typed_names(package) | here == set(dir(module))


def test_the_tool_completes_a_block(tmp_path: Path):
    """Sub-packages with `__all__`, sorted; what is out of date is replaced, the rest is kept."""
    spec = importlib.util.spec_from_file_location("type_imports", ROOT / "tools/type_imports.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for name, text in {"b": "__all__ = ['B']", "a": "__all__ = ['A']", "_c": ""}.items():
        (tmp_path / "things" / name).mkdir(parents=True)
        (tmp_path / "things" / name / "__init__.py").write_text(text)
    lines = tool.star_imports("things", tmp_path)
    assert lines == ["    from things.a import *\n", "    from things.b import *\n"]
    old = "x = 1\nif TYPE_CHECKING:\n    from things.gone import *\n\ny = 2\n"
    new = "x = 1\nif TYPE_CHECKING:\n" + "".join(lines) + "\ny = 2\n"
    assert tool.rewrite(old, lines) == tool.rewrite(new, lines) == new
    empty = "x = 1\nif TYPE_CHECKING:\n    pass\n\ny = 2\n"
    assert tool.rewrite(new, []) == tool.rewrite(empty, []) == empty
