"""Objects that remember the arguments they were built with, and plain descriptions of them.

Environments, generators, policies and algorithms derive from :class:`RecordsArguments`. A file that
describes one of them (a checkpoint, a `config.json`) then holds names, numbers and strings only:
reading it runs no code, and rebuilding the object is an ordinary call of its constructor. An
argument that such an object does not know is refused with the nearest name.
"""

from __future__ import annotations

import functools
import inspect

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from rl4co.core.errors import UnknownArgumentError


class NamesArguments:
    """Refuses unknown keyword arguments of its constructor with the known ones and the nearest.

    A constructor that passes `**kwargs` on leaves the refusal to whom it passes them to, and adds
    its own arguments to the known ones.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", _naming_arguments(cls.__init__))  # noqa: B010

    @classmethod
    def hint_for_argument(cls, name: str, value: Any) -> str:
        """What to write instead of an unknown argument, beyond the nearest name; "" by default."""
        return ""


def refuse_unknown_arguments(function: Callable[..., Any], name: str, given: Iterable[str]) -> None:
    """Raises :class:`UnknownArgumentError` for a keyword argument that a function does not take.

    Args:
        function: What is about to be called; one with `**kwargs` takes any.
        name: What to call it in the message.
        given: Names of the keyword arguments.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C have no signature
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = {parameter.name for parameter in parameters}
    for argument in given:
        if argument not in names:
            raise UnknownArgumentError(f"argument of {name}", argument, _keywords(function))


def _keywords(function: Callable[..., Any]) -> set[str]:
    """Public names among the keyword arguments of a function."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.items()
    names = {name for name, parameter in parameters if parameter.kind in kinds}
    return {name for name in names if name != "self" and not name.startswith("_")}


def _naming_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that refuses unknown keyword arguments as :class:`NamesArguments` says."""

    @functools.wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            refuse_unknown_arguments(init, type(self).__name__, kwargs)
            init(self, *args, **kwargs)
        except UnknownArgumentError as error:
            name = str(error.name)
            if name not in kwargs:  # an argument of a part
                raise
            known = {*error.known, *_keywords(init)}
            owner = f"argument of {type(self).__name__}"
            hint = self.hint_for_argument(name, kwargs[name])
            raise UnknownArgumentError(owner, name, known, hint) from None

    return wrapper


class RecordsArguments(NamesArguments):
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
