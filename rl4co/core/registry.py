"""Registries: find a component by the name of its folder, import only the one asked for.

A component registers itself where it is defined:

    @ENVS.register("cvrp")
    class CVRPEnv(RL4COEnvBase): ...

The key must equal the name of the folder (or file) that holds it, which is how the registry finds
it without a central list. Third-party packages contribute through entry points of the same group
names (`rl4co.envs`, `rl4co.embeddings`, `rl4co.models`, `rl4co.formulations` ...).
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys

from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from rl4co.core.errors import RegistryError, UnknownNameError

T = TypeVar("T")
D = TypeVar("D")

#: How a custom name becomes known.
IMPORT_FIRST = "for a custom one, import its module first (on the command line: --import MODULE)"


def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of a group in all installed packages."""
    return _entry_points(group, tuple(sys.path))


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    """Searched for once for each `sys.path`: the search reads every installed package."""
    return tuple(metadata.entry_points(group=group))


class Registry(Mapping[str, T], Generic[T]):
    """Name → component, discovered by folder name.

    Args:
        kind: What the entries are, for messages.
        packages: Packages whose sub-modules are the candidates.
        group: Entry-point group for third-party components.
        hosts: Packages whose sub-packages may hold a component, of their own name, in a module
            called `module`. For components that need more than the packages above may import.
        module: See `hosts`.
    """

    #: Packages of all registries: one may be among the modules of another.
    _homes: ClassVar[set[str]] = set()

    def __init__(
        self,
        kind: str,
        packages: tuple[str, ...],
        group: str,
        hosts: tuple[str, ...] = (),
        module: str = "",
    ) -> None:
        self.kind, self.packages, self.group = kind, packages, group
        self.hosts, self.module = hosts, module
        self._homes.update(packages)
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[D], D]:
        """Decorator that files an object under `name`."""

        def add(entry: D) -> D:
            existing = self._entries.get(name)
            # The same definition may be executed twice (module reload); another one may not.
            if existing is not None and _identity(existing) != _identity(entry):
                raise RegistryError(
                    f"expected one {self.kind} named {name!r}, got {existing!r} and {entry!r}; "
                    "rename one of them"
                )
            self._entries[name] = entry  # type: ignore[assignment]
            return entry

        return add

    def names(self) -> list[str]:
        """All names, sorted; imports neither the components nor the packages that hold them."""
        return sorted({*self._entries, *self._modules(), *self._plugins()})

    def hosted_names(self) -> list[str]:
        """Names of the components in :attr:`hosts`, which are loaded only when asked for."""
        return sorted(self._hosted())

    def get(self, name: str, default: Any = None) -> Any:
        """The component called `name`, or `default` if there is none (as `dict.get`)."""
        if name not in self:
            return default
        return self[name]

    def location(self, name: str) -> str:
        """Dotted module path (or entry-point value) in which `name` is defined."""
        if name in (modules := self._modules()):
            return modules[name][0]
        if name in (plugins := self._plugins()):
            return plugins[name].value
        if name in self._entries:
            return self._entries[name].__module__
        raise UnknownNameError(self.kind, name, self.names(), remedy=IMPORT_FIRST)

    def source(self, name: str) -> Path | None:
        """File that defines `name`, modules without importing it; None for plug-ins."""
        modules = self._modules().get(name)
        return modules[1] if modules else None

    def plugins(self) -> list[T]:
        """The components that third-party packages contribute, which are loaded."""
        return [self[name] for name in sorted(self._plugins().keys() - self._modules().keys())]

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            self._load(name)
        entry = self._entries[name]
        _await_definition(entry)
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._modules() or name in self._plugins()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _load(self, name: str) -> None:
        if name in (modules := self._modules()):
            module, _ = modules[name]
            importlib.import_module(module)
            if name not in self._entries:
                raise RegistryError(
                    f"expected {module} to register the {self.kind} {name!r}, got nothing; "
                    "the registered name must equal the module's name"
                )
        elif name in (plugins := self._plugins()):
            entry = plugins[name].load()
            self._entries.setdefault(name, entry)
        else:
            raise UnknownNameError(self.kind, name, self.names(), remedy=IMPORT_FIRST)

    def _modules(self) -> dict[str, tuple[str, Path]]:
        """Name → dotted module and file, read from the folders of the packages."""
        modules = {}
        for package in self.packages:
            spec = find_spec(package)  # imports the parents of a package, not the package itself
            for folder in (spec.submodule_search_locations or ()) if spec else ():
                for module in pkgutil.iter_modules([folder]):
                    hidden = module.name.startswith("_")
                    if not hidden and f"{package}.{module.name}" not in self._homes:
                        path = Path(folder) / module.name
                        file = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
                        modules[module.name] = (f"{package}.{module.name}", file)
        return {**self._hosted(), **modules}

    def _hosted(self) -> dict[str, tuple[str, Path]]:
        """The same for components that sub-packages of :attr:`hosts` hold."""
        modules = {}
        for host in self.hosts:
            spec = find_spec(host)
            for folder in (spec.submodule_search_locations or ()) if spec else ():
                for file in Path(folder).glob(f"*/{self.module}.py"):
                    name = file.parent.name
                    modules[name] = (f"{host}.{name}.{self.module}", file)
        return modules

    def _plugins(self) -> dict[str, Any]:
        return {point.name: point for point in entry_points(group=self.group)}


def _await_definition(entry: Any) -> None:
    """Waits while another thread is still executing the module of a component.

    A component registers itself before the rest of its module is there, on which it may depend.
    """
    module = getattr(entry, "__module__", None)
    if module in sys.modules:
        importlib.import_module(module)


def _identity(entry: Any) -> tuple[str, str]:
    return entry.__module__, entry.__qualname__


#: Folders of environments: those in `rl4co/envs` with a problem, `AREA/PROBLEM/env.py`.
_AREAS = sorted(
    {path.parts[-3] for path in (Path(__file__).parents[1] / "envs").glob("*/*/env.py")}
)

ENVS: Registry[Any] = Registry(
    "environment", tuple(f"rl4co.envs.{a}" for a in _AREAS), "rl4co.envs"
)
EMBEDDINGS: Registry[Any] = Registry("embedding", ("rl4co.models.embeddings",), "rl4co.embeddings")
MODELS: Registry[Any] = Registry("model", ("rl4co.models.zoo",), "rl4co.models")
SOLVERS: Registry[Any] = Registry(
    "solver", ("rl4co.solvers",), "rl4co.solvers", hosts=("rl4co.models.zoo",), module="solver"
)
LAYOUTS: Registry[Any] = Registry("file layout", ("rl4co.data.layouts",), "rl4co.layouts")
FORMULATIONS: Registry[Any] = Registry(
    "formulation", ("rl4co.solvers.formulations",), "rl4co.formulations"
)
#: Searches and third-party decoding strategies; the basic ones are a table in `strategies.py`.
DECODING: Registry[Any] = Registry("decode type", ("rl4co.decoding.searches",), "rl4co.decoding")
