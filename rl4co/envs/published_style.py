"""Environments written for the published package: they run as they are, step by step.

The published style overrides `_reset`, `_step`, `_get_reward` and others, on TensorDicts with one
batch axis. A class that does so gets, when it is made (:func:`adapt`), the hooks that the library
calls as adapters, which call its methods. What cannot be adapted is refused then, with the name of
the hook to write. :class:`PublishedNames` is what such methods find behind `super()`.

| published | what the library calls |
|---|---|
| `_reset(td, batch_size)` | `initial_state` |
| `_step(td)` | `advance` |
| `get_action_mask(td)` | `_action_mask` |
| `_get_reward(td, actions)` | `_objective` |
| `check_solution_validity(td, actions)`, `get_reward(td, actions)` | the same, with any batch |
| `get_num_starts(td)`, `select_start_nodes(td, num_starts)` | `_count_starts`, `_start_actions` |
| `_make_spec(generator)` | `_make_specs` |
"""

from __future__ import annotations

import functools
import inspect

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import InvalidSolutionError, UnsupportedError
from rl4co.envs.generator import Generator
from rl4co.envs.published_hooks import (
    ADAPTERS,
    DEFAULTS,
    HOOKS,
    RENEWED,
    STARTS,
    LateGenerator,
    batch_of,
    final_state,
    hook_behind,
    one_per_solution,
    to_rows,
    with_done_axis,
)
from rl4co.envs.torchrl_mode import TorchRLMode


class RefusedByAssertionError(InvalidSolutionError, AssertionError):
    """A solution that a published `check_solution_validity` refused by an `assert`."""


class PublishedNames(TorchRLMode):
    """The published methods of an environment in terms of its hooks.

    They are there to be called by `super()` in a class of the published style, so they use the
    hooks of the classes above it (:func:`hook_behind`), and directly.
    """

    #: Published methods that the class or one of its bases overrides.
    published_overrides: Collection[str] = ()
    #: Shape of the `done` that a published `_step` gave last, and finds in the state: `[B]`?
    _done_without_axis: bool = False

    def _reset(  # type: ignore[override]
        self, td: TensorDictBase | None = None, batch_size: Any = None, **kwargs: Any
    ) -> TensorDict:
        if self.follows_torchrl:
            return super()._reset(td, **kwargs)
        if td is None or td.is_empty():
            td = self.generate(self.batch_size if batch_size is None else batch_size)
        state = hook_behind(self, "initial_state")(td)
        return TensorDict(state, batch_size=td.batch_size, device=self.device)

    def _step(self, td: TensorDictBase) -> TensorDictBase:
        if self.follows_torchrl:
            return super()._step(td)
        state = hook_behind(self, "advance")(with_done_axis(td), td["action"])
        return td.update({**state, "done": state["done"].squeeze(-1)})  # [*B], as published

    def _get_reward(self, td: TensorDictBase, actions: Tensor) -> Tensor:
        return hook_behind(self, "_objective")(dict(td.items()), actions)

    def _make_spec(self, generator: Generator | None = None) -> None:
        hook_behind(self, "_make_specs")()

    @property
    def scores_final_states(self) -> bool:
        """Whether solutions are judged by the state in which they end, too."""
        judges = ("_get_reward", "get_reward", "check_solution_validity")
        return any(name in self.published_overrides for name in judges)

    @property
    def declares_specs(self) -> bool:
        """Whether specs are the author's words rather than made from states."""
        return "_make_spec" in self.published_overrides

    @property
    def steps_in_published_style(self) -> bool:
        """Whether `_reset` or `_step` are published ones, which have no bounds."""
        return not {"_reset", "_step"}.isdisjoint(self.published_overrides)

    @property
    def follows_torchrl(self) -> bool:
        """Whether TorchRL resets and steps; published methods do so themselves in its mode."""
        return self._torchrl_mode and not self.steps_in_published_style


# ---------------------------------------------------------------- public methods, for any batch


class _OnRows:
    """A public method of the published style, called with rows whatever the caller's batch is.

    Args:
        method: What the author wrote; a function or a static method.
        call: (environment, bound method, state, further arguments) → result.
    """

    def __init__(self, method: Any, call: Callable[..., Any]) -> None:
        self.method, self.call = method, call
        self.__doc__ = method.__doc__

    def __get__(self, env: Any, owner: type) -> Any:
        bound = self.method.__get__(env, owner) if hasattr(self.method, "__get__") else self.method
        return bound if env is None else functools.partial(self.call, env, bound)


def _rows_of(td: TensorDictBase | Mapping[str, Tensor]) -> tuple[TensorDictBase, torch.Size]:
    """A state as rows, and its batch axes; what has one batch axis is passed on as it is."""
    if isinstance(td, TensorDictBase):
        batch = td.batch_size
        return (td, batch) if len(batch) == 1 else (to_rows(dict(td.items()), batch), batch)
    return to_rows(td, batch_of(td)), batch_of(td)


def _call_mask(env: Any, method: Callable[..., Tensor], td: Any) -> Tensor:
    rows, batch = _rows_of(td)
    mask = method(rows)
    return mask if rows is td else mask.reshape((*batch, mask.shape[-1]))


def _call_starts(env: Any, method: Callable[..., Any], td: Any, *args: Any, **kwargs: Any) -> Any:
    return method(_rows_of(td)[0], *args, **kwargs)


def _call_reward(
    env: Any, method: Callable[..., Tensor], td: Any, actions: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    batch = actions.shape[:-1]
    state = final_state(env, dict(td.items()), actions)
    rows = to_rows(state, batch)
    reward = method(rows, actions.reshape(len(rows), -1), *args, **kwargs)
    return one_per_solution(env, "get_reward", reward, batch)


def _call_check(env: Any, method: Callable[..., None], td: Any, actions: Tensor) -> None:
    """Calls a check that asserts, and asks it about single solutions if it does not pass."""
    state = final_state(env, dict(td.items()), actions)
    rows = to_rows(state, actions.shape[:-1])
    actions = actions.reshape(len(rows), -1)  # [rows, T]
    try:
        method(rows, actions)
    except AssertionError as refusal:
        if isinstance(refusal, InvalidSolutionError):
            raise
        blamed = [
            row
            for row in range(len(rows))
            if _asserts(method, rows[row : row + 1], actions[row : row + 1])
        ]
        constraint = str(refusal) or "the assertions of check_solution_validity"
        everyone = list(range(len(rows)))
        raise RefusedByAssertionError(constraint, blamed or everyone, len(rows)) from refusal


def _asserts(method: Callable[..., None], td: TensorDictBase, actions: Tensor) -> bool:
    try:
        method(td, actions)
    except AssertionError:
        return True
    return False


_PUBLIC: dict[str, Callable[..., Any]] = {
    "get_action_mask": _call_mask,
    "get_num_starts": _call_starts,
    "select_start_nodes": _call_starts,
    "get_reward": _call_reward,
    "check_solution_validity": _call_check,
}


# ---------------------------------------------------------------- making a class

#: Hooks that are written here for what a published method does.
_WRITTEN_FOR = {
    "_reset": ("_init_state",),
    "_step": ("_transition",),
    "get_action_mask": ("_action_mask",),
    "_get_reward": ("_objective",),
    "check_solution_validity": ("_violations",),
    "get_num_starts": ("_count_starts",),
    "select_start_nodes": ("_start_actions",),
}
#: Published methods that environments which improve solutions have other hooks for.
_NOT_FOR_IMPROVEMENT = ("_reset", "_step", "_get_reward", "get_action_mask", "_make_spec", "step")
#: Keyword arguments of published methods, behind `td`.
_ARGUMENTS: dict[str, dict[str, None]] = {"_reset": {"batch_size": None}, "_step": {}}


def adapt(cls: type) -> None:
    """Gives a class that overrides published methods the hooks that call them.

    Args:
        cls: An environment, right after it is made. One that writes hooks only stays as it is.
    """
    base: Any = next(each for each in cls.__mro__ if "adapts_published_style" in vars(each))
    family = cls.__mro__[: cls.__mro__.index(base)]  # the class and its bases below `base`
    published = dict.fromkeys((*HOOKS, *_PUBLIC, "step"))
    names = [name for name in published if _where(family, name) is not None]
    if not names:
        return
    _refuse_misfits(cls, base, family, names)
    if not base.adapts_published_style:
        return
    for name, call in _PUBLIC.items():
        method = vars(cls).get(name)
        if method is not None and not isinstance(method, _OnRows):
            setattr(cls, name, _OnRows(method, call))
    steps = [name for name in ("_reset", "_step") if name in names]
    hooks = [RENEWED[name] for name in steps if not _comes_before(family, RENEWED[name][0], name)]
    if steps:
        hooks += [(hook, call) for hook, call in DEFAULTS.items() if _where(family, hook) is None]
        hooks.append(HOOKS["_make_spec"])
    hooks += [
        HOOKS[name]
        for name in names
        # Starts are asked for by their published names, where hooks may answer in their turn.
        if name in HOOKS and (name not in STARTS or _where(family, HOOKS[name][0]) is None)
    ]
    for hook, call in hooks:
        setattr(cls, hook, call)
    for name, default in {"instance_shapes": {}, "generator_cls": LateGenerator}.items():
        if not hasattr(cls, name):
            setattr(cls, name, default)
    cls.published_overrides = frozenset(names)  # type: ignore[attr-defined]


def _where(family: Sequence[type], name: str) -> int | None:
    """Which class of a family is the first to define a name, adapters aside."""
    for index, cls in enumerate(family):
        if name in vars(cls) and vars(cls)[name] not in ADAPTERS:
            return index
    return None


def _comes_before(family: Sequence[type], hook: str, name: str) -> bool:
    """Whether a hook is written where a published method is, or below it."""
    hook_at, name_at = _where(family, hook), _where(family, name)
    return hook_at is not None and name_at is not None and hook_at <= name_at


def _refuse_misfits(cls: type, base: Any, family: Sequence[type], names: Sequence[str]) -> None:
    """Raises for overrides that would have no effect, with the hooks to write instead."""
    if not base.adapts_published_style:
        without_effect = [name for name in names if name in _NOT_FOR_IMPROVEMENT]
        if without_effect:
            raise UnsupportedError(
                f"expected the hooks of an improvement environment in {cls.__name__}, got the "
                f"published {', '.join(without_effect)}; write _move, _is_allowed and random_action"
            )
    if "step" in names:
        raise UnsupportedError(
            f"expected {cls.__name__} to leave `step` alone, which the decode loop does not call, "
            "got an override; write `_transition`, or `_step` in the published style"
        )
    for name in names:
        for hook in (*_WRITTEN_FOR.get(name, ()), *HOOKS.get(name, ())[:1]):
            if _comes_before(family, hook, name):
                raise UnsupportedError(
                    f"expected either {hook} or the published {name} in {cls.__name__}, got both; "
                    f"write {hook} alone"
                )
    for name, arguments in _ARGUMENTS.items():
        if name in names:
            _refuse_arguments(cls, name, arguments)


def _refuse_arguments(cls: type, name: str, arguments: Mapping[str, None]) -> None:
    """Raises unless a published method takes what it is called with."""
    method = getattr(cls, name)
    owner = () if isinstance(inspect.getattr_static(cls, name), staticmethod) else (None,)
    try:
        inspect.signature(method).bind(*owner, None, **arguments)
    except TypeError as error:
        call = ", ".join(("td", *arguments))
        raise UnsupportedError(
            f"expected {name}({call}) in {cls.__name__}, as published, got "
            f"{name}{inspect.signature(method)} ({error}); write {_WRITTEN_FOR[name][0]} instead"
        ) from None
