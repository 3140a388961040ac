"""`Mirror`: whether the rules that a compiled loop repeats are still those that run.

A loop that makes whole solutions repeats the mask and the transition of its problem. It names the
functions that it mirrors and carries a fingerprint of their sources: where another source runs (an
edited file, a patched method, a subclass), the loop steps aside with one warning. So it does,
without one, where a state was changed after `reset`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import warnings

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Mirror:
    """What a compiled loop repeats.

    Attributes:
        problem: Name of the environment that it is written for.
        methods: Methods of the environment that it repeats.
        fresh: State keys → their value right after `reset`.
        fingerprint: Of the sources of all that is repeated, see :meth:`digest`.
    """

    problem: str
    methods: tuple[str, ...]
    fresh: Mapping[str, int]
    fingerprint: str

    def applies(self, env: Any, state: Mapping[str, Tensor]) -> bool:
        """Whether the loop does what the environment does from this state on."""
        return self.holds(env) and self.is_fresh(env, state)

    def holds(self, env: Any) -> bool:
        """Whether the rules of an environment are those of the loop.

        A warning says if somebody changed them; problems of another name have rules of their own.
        A class that replaces `step` as a whole replaces all of them.
        """
        if self.digest(env) == self.fingerprint and env.steps_by_hooks:
            return True
        if env.name == self.problem:
            _warn_once(type(env).__name__, self.problem)
        return False

    def is_fresh(self, env: Any, state: Mapping[str, Tensor]) -> bool:
        """Whether a state with any batch axes is as `reset` gave it."""
        if any(bool((state[key] != value).any()) for key, value in self.fresh.items()):
            return False
        return torch.equal(state["action_mask"], env._action_mask(state))

    def digest(self, env: Any) -> str:
        """Of the sources of all functions that are repeated, as they are in this environment."""
        functions = [part for method in self.methods for part in _definitions(env, method)]
        return _digest(*(getattr(function, "__func__", function) for function in functions))


def _definitions(env: Any, method: str) -> list[Any]:
    """A method in the object and in all its classes, as each may call the next one."""
    owners = [env, *type(env).__mro__]
    return [vars(owner)[method] for owner in owners if method in vars(owner)]


@functools.cache
def _warn_once(kind: str, problem: str) -> None:
    warnings.warn(
        f"the rules of {kind} are not those that the compiled loops of {problem!r} were written "
        "for, so solutions are made step by step, which is slower and does what your rules say",
        stacklevel=2,
    )


@functools.cache
def _digest(*functions: Callable[..., Any]) -> str:
    return hashlib.sha256("\n".join(map(_source, functions)).encode()).hexdigest()[:16]


def _source(function: Callable[..., Any]) -> str:
    """The source of a function without comments, blank lines and indentation."""
    try:
        lines = [line.strip() for line in inspect.getsource(function).splitlines()]
    except (OSError, TypeError):  # written in a console, or not in Python
        return f"no source: {function!r}"
    return "\n".join(line for line in lines if line and not line.startswith("#"))
