"""Custom classes in saved models: named in the file, used only if the caller allows them.

A file may name a class by its module path. Reading the file never imports a module for that: the
classes in question are those of this library and those that the caller lists, as class objects or
as paths (`"my_package.MyEncoder"`).
"""

from __future__ import annotations

import importlib

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from rl4co.core.arguments import NotPlainError, RecordsArguments, plain
from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.envs.generator import Generator

#: Classes that a caller allows a file to use.
AllowedClasses = Iterable[str | type]
#: Key of the class in the description of a part of a model.
CLASS_KEY = "__class__"
#: Packages whose modules a file may name: importing them defines classes and runs nothing else.
_LIBRARY = ("rl4co.models.", "rl4co.envs.")


def class_path(cls: type) -> str:
    """Module path of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def find_allowed(name: str, allowed: AllowedClasses) -> type | None:
    """The allowed class called `name` (a name or a module path), None if there is none.

    Paths are compared by their last part: classes are often imported from another module than the
    one that defines them.
    """
    if isinstance(allowed, str | type):
        raise ConfigError(f"expected a list as allow_classes, got {allowed!r}; write [{allowed!r}]")
    last = name.rpartition(".")[2]
    for entry in allowed:
        if isinstance(entry, type):
            if entry.__name__ == last:
                return entry
        elif entry.rpartition(".")[2] == last:
            return import_class(entry)
    return None


def import_class(path: str) -> type:
    """The class at a module path that the caller gave."""
    module, _, name = path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"expected a module path like 'my_package.MyEncoder' in allow_classes, got {path!r} "
            f"({error})"
        ) from error
    if not isinstance(cls, type):
        raise ConfigError(f"expected a class at {path!r} in allow_classes, got {cls!r}")
    return cls


def describe(value: Any) -> Any:
    """A constructor argument as plain data: a value, or a part by its class and arguments."""
    try:
        return plain(value)
    except NotPlainError:
        if not (isinstance(value, RecordsArguments) and isinstance(value, nn.Module)):
            raise
    arguments = {}
    for name, argument in value._init_arguments.items():
        try:
            arguments[name] = describe(argument)
        except NotPlainError as reason:
            raise NotPlainError(f"{type(value).__name__} with {name}={reason}") from None
    return {CLASS_KEY: class_path(type(value)), "arguments": arguments}


def require_allowed(value: Any, allowed: AllowedClasses, source: object) -> None:
    """Raises if a described argument has a class that is neither the library's nor allowed.

    Args:
        value: From :func:`describe`.
        allowed: Custom classes that may be used.
        source: The file, for messages.
    """
    if not (isinstance(value, Mapping) and CLASS_KEY in value):
        return
    path, arguments = value[CLASS_KEY], value.get("arguments")
    if not isinstance(path, str) or not isinstance(arguments, Mapping):
        raise FileFormatError(f"expected a class and its arguments in {source}, got neither")
    if _find(path, allowed) is None:
        raise not_allowed(path, source)
    for argument in arguments.values():
        require_allowed(argument, allowed, source)


def rebuild(value: Any, allowed: AllowedClasses) -> Any:
    """The constructor argument that :func:`describe` made plain; see :func:`require_allowed`."""
    if not (isinstance(value, Mapping) and CLASS_KEY in value):
        return value
    cls = _find(value[CLASS_KEY], allowed)
    assert cls is not None  # as checked before
    return cls(**{name: rebuild(each, allowed) for name, each in value["arguments"].items()})


def _find(path: str, allowed: AllowedClasses) -> type | None:
    return find_allowed(path, allowed) or library_class(path)


def not_allowed(path: str, source: object) -> ConfigError:
    """The error for a class that the caller has not allowed."""
    return ConfigError(
        f"expected classes of the library in {source}, got {path}; if you trust its code, load "
        f"with allow_classes=[{path!r}] (or the class itself), or --allow-class {path}"
    )


def library_class(path: str) -> type | None:
    """The network or generator of this library at a module path, if it records its arguments."""
    if not path.startswith(_LIBRARY):
        return None
    module, _, name = path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None
    is_part = isinstance(cls, type) and issubclass(cls, RecordsArguments)
    return cls if is_part and issubclass(cls, nn.Module | Generator) else None
