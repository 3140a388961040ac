"""Objects that record the arguments they were built with, and plain descriptions of them.

Environments, generators, policies and algorithms derive from :class:`RecordsArguments`. A file that
describes one of them (a checkpoint, a `config.json`) then holds names, numbers and strings only:
reading it runs no code, and rebuilding the object is an ordinary call of its constructor. An
argument that a constructor does not know raises an error with the nearest name.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from rl4co.core.errors import UnknownArgumentError


class ChecksArguments:
    """Rejects unknown keyword arguments of its constructor, see :func:`check_constructor`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Creates the object if its constructor knows the arguments."""
        check_constructor(cls, kwargs)
        return _create(super().__new__, cls, args, kwargs)


class RecordsArguments:
    """Records the arguments of its constructor under `_init_arguments`, by name.

    Unknown ones are rejected, see :func:`check_constructor`. Both happen before the constructor
    runs, so subclasses need not call anything. Copies (`copy`, `pickle`) restore the record with
    the other attributes.
    """

    _init_arguments: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Creates the object with its record."""
        check_constructor(cls, kwargs)
        self = _create(super().__new__, cls, args, kwargs)
        object.__setattr__(self, "_init_arguments", bind_arguments(cls, args, kwargs))
        return self


def _create(new: Any, cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return new(cls) if new is object.__new__ else new(cls, *args, **kwargs)


def check_constructor(cls: type, names: Mapping[str, Any]) -> None:
    """Raises :class:`UnknownArgumentError` for a keyword argument that no constructor accepts.

    A constructor that passes its `**kwargs` to `super().__init__` accepts what the next class
    accepts. What becomes of `**kwargs` otherwise is unknown, so any name may be right. A class can
    add to the message by a class method `hint_for_argument(name, value)`.

    Args:
        cls: Class of the object that is built.
        names: Keyword arguments of the call.
    """
    unknown, valid = dict(names), set[str]()
    for owner in cls.__mro__ if unknown else ():
        init: Any = vars(owner).get("__init__")
        if init is None or init is object.__init__:
            continue
        parameters = inspect.signature(init).parameters
        accepted = _keywords(init)
        valid |= {name for name in accepted if not name.startswith("_")}
        unknown = {name: value for name, value in unknown.items() if name not in accepted}
        if not unknown:
            return
        extra = next((n for n, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
        if extra is None:
            name, value = next(iter(unknown.items()))
            hint = getattr(cls, "hint_for_argument", lambda name, value: "")(name, value)
            raise UnknownArgumentError(f"argument of {cls.__name__}", name, valid, hint)
        removed = _removed_before_super(init, extra)
        if removed is None:
            return
        unknown = {name: value for name, value in unknown.items() if name not in removed}


@functools.cache
def _removed_before_super(init: Callable[..., Any], extra: str) -> frozenset[str] | None:
    """Names that a constructor reads from its `**kwargs` before `super().__init__(**kwargs)`.

    None if it uses them in another way, does not pass them on, or has no source.

    Args:
        init: The constructor.
        extra: Name of its `**kwargs`.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(init)))
    except (OSError, TypeError, SyntaxError):
        return None
    uses = sum(isinstance(node, ast.Name) and node.id == extra for node in ast.walk(tree))
    passed_on, read = 0, set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name("super")), attr="__init__")
            ):
                merged = [keyword.value for keyword in node.keywords if keyword.arg is None]
                passed_on += sum(_merges(value, extra) for value in merged)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(name), attr="pop" | "get" | "setdefault"),
                args=[ast.Constant(str(key)), *_],
            ) if name == extra:
                uses -= 1
                read.add(key)
            case ast.Call(func=ast.Attribute(value=ast.Name(name), attr="keys")) if name == extra:
                uses -= 1
    return frozenset(read) if passed_on and uses == passed_on else None


def _merges(value: ast.expr, extra: str) -> bool:
    """Whether `**value` passes on all of `extra`: `**extra` or `**{..., **extra, ...}`."""
    values = [value]
    if isinstance(value, ast.Dict):
        values = [item for key, item in zip(value.keys, value.values, strict=True) if key is None]
    return any(isinstance(each, ast.Name) and each.id == extra for each in values)


def constructor_keywords(cls: type) -> set[str]:
    """Names of the keyword arguments of the constructors of a class and its bases."""
    inits = (vars(owner).get("__init__") for owner in cls.__mro__)
    return {name for init in inits if inspect.isfunction(init) for name in _keywords(init)}


def reject_unknown_arguments(function: Callable[..., Any], name: str, names: Iterable[str]) -> None:
    """Raises :class:`UnknownArgumentError` for a keyword argument that a function does not accept.

    Args:
        function: What is about to be called; one with `**kwargs` accepts any.
        name: What to call it in the message.
        names: Names of the keyword arguments.
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some functions written in C have no signature
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for argument in names:
        if argument not in parameters:
            valid = {each for each in parameters if not each.startswith("_")}
            raise UnknownArgumentError(f"argument of {name}", argument, valid)


def _keywords(function: Callable[..., Any]) -> set[str]:
    """Names of the keyword arguments of a function."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.items()
    return {name for name, parameter in parameters if parameter.kind in kinds and name != "self"}


def bind_arguments(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor call by name.

    `*args` of a constructor belong to that of the next class, as in
    `super().__init__(*args, **kwargs)`. A call that does not fit has no names: the constructor
    itself raises its error.
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
