"""Objects that remember the arguments they were built with, and plain descriptions of them.

Environments, generators, policies and algorithms derive from :class:`RecordsArguments`. A file that
describes one of them (a checkpoint, a `config.json`) then holds names, numbers and strings only:
reading it runs no code, and rebuilding the object is an ordinary call of its constructor.
"""

from __future__ import annotations

import inspect

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any


class RecordsArguments:
    """Remembers the arguments of its constructor under `_init_arguments`, by name.

    It is done before the constructor runs, so subclasses need not call anything. Copies (`copy`,
    `pickle`) restore the record with the rest.
    """

    _init_arguments: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Creates the object with its record."""
        create: Any = super().__new__
        self = create(cls) if create is object.__new__ else create(cls, *args, **kwargs)
        object.__setattr__(self, "_init_arguments", bind_arguments(cls, args, kwargs))
        return self


def bind_arguments(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor call by name.

    What a constructor takes as `*args` goes to that of the next class, as in
    `super().__init__(*args, **kwargs)`. A call that does not fit gives no names: the constructor
    itself will refuse it, in its own words.
    """
    named: dict[str, Any] = {}
    for owner in cls.__mro__:
        if "__init__" not in vars(owner):
            continue
        signature = inspect.signature(vars(owner)["__init__"])
        try:
            bound = signature.bind_partial(None, *args, **kwargs).arguments
        except TypeError:
            return {}
        args, kwargs = (), {}
        for position, (name, value) in enumerate(bound.items()):
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args = value
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs = value
            elif position > 0:  # the first one is `self`
                named[name] = value
        if not args:
            break
    return {**named, **kwargs}


class NotPlainError(TypeError):
    """A value that cannot be written as plain data (internal)."""


def plain(value: Any) -> Any:
    """The value as nested dictionaries, lists, strings, numbers, booleans and None.

    Mappings and sequences of any kind (those of a configuration library, say), paths and numbers of
    any kind (those of NumPy) are converted; anything else raises :class:`NotPlainError`.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    # Subclasses, too: string enumerations (whose `str()` is their name) and NumPy's numbers.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise NotPlainError("a mapping with keys that are not strings")
        return {str(key): _plain_item(key, item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(item) for item in value]
    name = f"the class {value.__name__}" if isinstance(value, type) else type(value).__qualname__
    raise NotPlainError(name)


def _plain_item(key: str, value: Any) -> Any:
    """The value of a mapping, with its key in the reason why it is not plain."""
    try:
        return plain(value)
    except NotPlainError as reason:
        raise NotPlainError(f"{{{key}: {reason}}}") from None
