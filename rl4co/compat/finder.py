"""Import of published paths: a finder that reads :mod:`rl4co.compat.table`.

The table decides between three cases:

* a module that has no file here: an empty module that looks its names up in their new modules;
* a module that has a file here, but not all of the published names: the missing ones are added;
* a module or name without a counterpart: `NoCounterpartError` (an `ImportError`) with the reason.

Objects keep the `__module__` of their new module: pickles refer to where the code is, and pickles
that refer to a published path load.
"""

from __future__ import annotations

import functools
import importlib
import sys

from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from rl4co.compat.table import GONE, MISSING, MOVED
from rl4co.core.errors import RL4COError


class NoCounterpartError(RL4COError, ImportError):
    """A module or name of the published package that has no counterpart here.

    Args:
        name: Dotted name of what was imported.
        reason: Why it is not there, and what to use.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"expected {name}, got no counterpart of it: {reason}", name=name)


@functools.cache
def homes(module: str) -> dict[str, tuple[str, str]]:
    """Names of a published module: name → (module, name there)."""
    table = {}
    for home, names in MOVED.get(module, {}).items():
        for entry in names.split():
            name, _, renamed = entry.partition("=")
            table[name] = (home, renamed or name)
    return table


@functools.cache
def _modules() -> frozenset[str]:
    """All modules in the table, and the packages that contain them."""
    return frozenset(
        ".".join(parts[:length])
        for parts in (name.split(".") for name in (*MOVED, *MISSING, *GONE))
        for length in range(2, len(parts) + 1)
    )


@functools.cache
def _is_parent(module: str) -> bool:
    """Whether the table has modules below a module."""
    return any(name.startswith(f"{module}.") for name in _modules())


def reason(name: str) -> str | None:
    """Why a published module or name has no counterpart; None if it has one, or is unknown."""
    module, _, attribute = name.rpartition(".")
    for names, why in MISSING.get(module, {}).items():
        if attribute in names.split():
            return why
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
    return next((GONE[prefix] for prefix in prefixes if prefix in GONE), None)


def where(name: str) -> str:
    """The dotted path at which a published name (`"rl4co.models.nn.ops.Normalization"`) lives now.

    Names that have not moved are returned unchanged.

    Raises:
        NoCounterpartError: It has no counterpart; the message says what to use.
    """
    module, _, attribute = name.rpartition(".")
    if attribute in homes(module):
        return ".".join(homes(module)[attribute])
    why = reason(name)
    if why is not None:
        raise NoCounterpartError(name, why)
    return name


class _Names:
    """`__getattr__` of a module: names of the table, then the `__getattr__` of its file."""

    def __init__(self, module: str, fallback: Callable[[str], Any] | None = None) -> None:
        self.module, self.fallback = module, fallback

    def __call__(self, name: str) -> Any:
        table = homes(self.module)
        if name in table:
            home, renamed = table[name]
            return getattr(importlib.import_module(home), renamed)
        why = reason(f"{self.module}.{name}")
        if why is not None:
            raise NoCounterpartError(f"{self.module}.{name}", why)
        if self.fallback is not None:
            return self.fallback(name)
        raise AttributeError(f"module {self.module!r} has no attribute {name!r}")


class _Facade(Loader):
    """Loads a module that has no file: its names are those of the table."""

    def create_module(self, spec: ModuleSpec) -> None:
        """The default module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fills the module, or raises `NoCounterpartError` with the reason."""
        name = module.__name__
        why = reason(name)
        if why is not None:
            raise NoCounterpartError(name, why)
        module.__doc__ = "Published import path; see rl4co.compat.table."
        names = sorted(homes(name))
        module.__dict__.update(__getattr__=_Names(name), __dir__=lambda: names, __all__=names)


class _Completed(SourceFileLoader):
    """Loads a file and adds the published names that it does not have."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the file; the table supplies the names that it does not define."""
        super().exec_module(module)
        fallback = module.__dict__.get("__getattr__")
        module.__dict__["__getattr__"] = _Names(module.__name__, fallback)
        if _is_parent(module.__name__):
            # A file here, but a published folder: without a path, nothing below it can be imported.
            module.__dict__.setdefault("__path__", [])


class PublishedPaths(MetaPathFinder):
    """Finds modules of this package as Python does, and those of the table."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module in the table; None for all others."""
        if fullname not in _modules():
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None:
            return ModuleSpec(fullname, _Facade(), is_package=_is_parent(fullname))
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Completed(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Puts the finder in front of Python's finders; a second call changes nothing."""
    if not any(isinstance(finder, PublishedPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, PublishedPaths())
