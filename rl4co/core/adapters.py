"""Adapters: the one point per kind of object where code in another style enters the library.

The library itself works with one form of each object (environment, decoder, strategy, ...). Where
a user's class or object enters (when the class is created, or in a constructor), :func:`adapt`
passes it to the adapter that is registered for its kind. `rl4co.compat` registers adapters for code
in the style of the published RL4CO package; nothing else knows that style.
"""

from __future__ import annotations

import importlib

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
C = TypeVar("C", bound=type)

_ADAPTERS: dict[str, str] = {}


def register_adapter(kind: str, location: str) -> None:
    """Registers the adapter of a kind of object.

    Args:
        kind: What it adapts, e.g. "environment".
        location: "module:function"; imported when the first object of this kind enters.
    """
    _ADAPTERS[kind] = location


def adapt(kind: str, entry: T) -> T:
    """The object in the form that the library works with; most are returned as they are.

    Args:
        kind: See :func:`register_adapter`.
        entry: A class or an object. Classes of the library itself need no adapter.
    """
    if entry is None or kind not in _ADAPTERS or _is_native(entry):
        return entry
    adapter: Callable[[T], T] = _load(_ADAPTERS[kind])
    return adapter(entry)


def extended(kind: str) -> Callable[[C], C]:
    """Class decorator: code in another style finds its methods in a base class of the library.

    Args:
        kind: The function that adds them is registered as "base: KIND".
    """

    def extend(cls: C) -> C:
        location = _ADAPTERS.get(f"base: {kind}")
        return cls if location is None else _load(location)(cls)

    return extend


def hint(kind: str, name: str) -> str:
    """What to write instead of a name that another style uses; "" if nothing is known.

    Args:
        kind: What is named, e.g. "decoding setting"; its table is registered as "hint: KIND".
        name: The name.
    """
    location = _ADAPTERS.get(f"hint: {kind}")
    if location is None:
        return ""
    hints: Mapping[str, str] = _load(location)
    return hints.get(name, "")


def _load(location: str) -> Any:
    module, _, name = location.partition(":")
    return getattr(importlib.import_module(module), name)


def _is_native(entry: object) -> bool:
    """Whether a class is defined in the library, outside of `rl4co.compat`."""
    cls = entry if isinstance(entry, type) else type(entry)
    package, *folders = cls.__module__.split(".")
    return package == "rl4co" and folders[:1] != ["compat"]
