"""Packages whose public names are imported on first use.

Importing every environment or model to offer `from rl4co.envs import TSPEnv` would make each
start-up pay for all of them. Instead the names are read, without importing anything, from the
`__all__` of the sub-packages' `__init__.py`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rl4co.core.errors import RegistryError


def declared_names(init_file: Path) -> list[str]:
    """The literal `__all__` of a module's source, without importing the module."""
    for node in ast.parse(init_file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return []


def exported_names(package: str) -> dict[str, str]:
    """Public names of a package's sub-packages: name → dotted module that defines it."""
    modules: dict[str, str] = {}
    for path in importlib.import_module(package).__path__:
        for module in pkgutil.iter_modules([path]):
            if not module.ispkg:
                continue
            for name in declared_names(Path(path) / module.name / "__init__.py"):
                if name in modules:
                    raise RegistryError(
                        f"expected {name!r} in one sub-package of {package}, got "
                        f"{modules[name]} and {package}.{module.name}; rename one of them"
                    )
                modules[name] = f"{package}.{module.name}"
    return modules


def resolve(module: str, name: str) -> Any:
    """The object called `name` in a module, imported now."""
    return getattr(importlib.import_module(module), name)


def lazy_attributes(
    module: str,
    eager: Iterable[str],
    packages: Iterable[str] = (),
    modules: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package that re-exports its sub-packages lazily.

    Args:
        module: The re-exporting package (`__name__`).
        eager: Names that the package defines itself.
        packages: Packages whose sub-packages declare the lazy names in `__all__`.
        modules: Further lazy names with the modules that define them.

    Returns:
        The two functions to assign to `__getattr__` and `__dir__`.
    """
    eager, packages, modules = tuple(eager), tuple(packages), dict(modules or {})
    discovered: dict[str, str] = {}

    def names() -> dict[str, str]:
        if not discovered:
            for package in packages:
                discovered.update(exported_names(package))
        return {**discovered, **modules}

    def getattribute(name: str) -> object:
        if name == "__all__":  # `from package import *` asks for it, and then for each name
            return directory()
        # Other dunder probes (`__path__`, `__wrapped__` ...) are never exported names.
        if not name.startswith("__") and (name in modules or name in names()):
            return resolve(modules.get(name) or names()[name], name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def directory() -> list[str]:
        return sorted({*eager, *names()})

    return getattribute, directory
