"""`@compiled`: a function that numba compiles when it is first called.

With kernels switched off the same function runs as it is written, uncompiled: slow but equal.
Compiled code is kept on disk under a key of all the sources that it was made from, so a change in
any of them is never missed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import threading

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, overload

from rl4co.core.errors import ConfigError, MissingDependencyError
from rl4co.kernels.switch import are_enabled

#: Sums may be taken in any order, as vector instructions need it; infinities and NaN are respected.
FAST_SUMS = frozenset({"reassoc", "contract", "nsz"})

_FOLDER = Path(__file__).resolve().parent
#: Guards numba's setting of a cache folder, which is global.
_LOCK = threading.RLock()


class CompiledFunction:
    """A function and its compiled version; made by :func:`compiled`.

    `_numba_type_` is the attribute by which numba recognises what a global name is while it
    compiles a caller; answering it here makes compiled functions call each other.

    Args:
        function: What is compiled.
        fast_sums: Whether sums may be taken in any order.
        inline: Whether the function is copied into its callers.
    """

    def __init__(
        self, function: Callable[..., Any], fast_sums: bool = False, inline: bool = False
    ) -> None:
        self.function, self.fast_sums, self.inline = function, fast_sums, inline
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Runs the compiled function, or the plain one with kernels switched off."""
        return (self.dispatcher if are_enabled() else self.function)(*arguments)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher."""
        try:
            import numba
        except ImportError as error:
            raise MissingDependencyError("numba") from error
        # NumPy's rules for divisions by zero: infinities and NaN, no exceptions.
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        if self.fast_sums:
            options["fastmath"] = set(FAST_SUMS)
        if self.inline:
            return numba.njit(forceinline=True, **options)(self.function)
        settings: Any = numba.config
        for folder in _cache_folders(self.fingerprint()):
            with _LOCK:
                before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    return numba.njit(cache=True, **options)(self.function)
                except (OSError, RuntimeError):  # not writable
                    continue
                finally:
                    settings.CACHE_DIR = before
        return numba.njit(**options)(self.function)

    @property
    def _numba_type_(self) -> Any:
        if self.fast_sums and not self.inline:
            raise ConfigError(
                f"expected inline=True of {self.function.__name__}, which has fast_sums and is "
                "called by compiled code, got inline=False: freshly compiled it may be merged with "
                "its caller, and its sums taken in another order than when it is loaded from disk"
            )
        return self.dispatcher._numba_type_

    def fingerprint(self) -> str:
        """Key of everything that the compiled code depends on: sources, and numbers by name."""
        digest = hashlib.sha256(Path(__file__).read_bytes())
        for part in sorted(set(self._dependencies(set()))):
            digest.update(part.encode())
        return digest.hexdigest()[:16]

    def _dependencies(self, seen: set[int]) -> Iterator[str]:
        """Files and constants that this function and those that it calls are made from."""
        seen.add(id(self))
        yield Path(inspect.getfile(self.function)).read_text(encoding="utf-8")
        for name in self.function.__code__.co_names:
            value = self.function.__globals__.get(name)
            if isinstance(value, CompiledFunction):
                if id(value) not in seen:
                    yield from value._dependencies(seen)
            elif isinstance(value, int | float):
                yield f"{name}={value!r}"


def _cache_folders(key: str) -> Iterator[Path]:
    """Where compiled code may be kept: beside the sources, else in the user's folder."""
    yield _FOLDER / "__pycache__" / key
    yield Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "rl4co" / key


@overload
def compiled(function: Callable[..., Any]) -> CompiledFunction: ...
@overload
def compiled(
    *, fast_sums: bool = ..., inline: bool = ...
) -> Callable[[Callable[..., Any]], CompiledFunction]: ...
def compiled(
    function: Callable[..., Any] | None = None, *, fast_sums: bool = False, inline: bool = False
) -> Any:
    """Decorator: numba compiles the function when it is first called.

    The function must be valid both compiled and as plain Python on NumPy arrays, because the latter
    runs where kernels are switched off. It accepts no keyword arguments.

    Args:
        function: The function, if the decorator is used without arguments.
        fast_sums: Whether sums may be taken in any order, which vector instructions need.
        inline: Whether the function is copied into its callers. Needed with `fast_sums` if other
            compiled functions call it: otherwise the order of its sums, and so the last bits, can
            differ between the process that compiles and those that find the code on disk.

    Example:
        >>> @compiled
        ... def total(values):
        ...     result = 0.0
        ...     for value in values:
        ...         result += value
        ...     return result
    """
    if function is None:
        return functools.partial(CompiledFunction, fast_sums=fast_sums, inline=inline)
    return CompiledFunction(function, fast_sums, inline)
