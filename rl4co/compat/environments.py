"""Environments written for the published package run unchanged, step by step.

The published style overrides `_reset`, `_step`, `_get_reward` and others, on TensorDicts with one
batch axis. When such a class is created, :func:`adapt` adds the hooks that the library calls; they
call its methods. A class that cannot be adapted raises an error then, with the name of the hook to
write. :class:`PublishedNames` has the methods that `super()` finds.

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
from typing import TYPE_CHECKING, Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from typing_extensions import override

from rl4co.compat.environment_hooks import (
    ADAPTERS,
    DEFAULTS,
    HOOKS,
    REPLACED,
    STARTS,
    LateGenerator,
    batch_of,
    final_state,
    hook_behind,
    one_per_solution,
    to_rows,
    with_done_axis,
)
from rl4co.core.errors import InvalidSolutionError, UnsupportedError
from rl4co.core.ops import flatten_starts
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.generator import Generator
from rl4co.envs.improvement import ImprovementEnvBase, is_improvement

if TYPE_CHECKING:
    _Base = RL4COEnvBase
else:  # a plain class, which can be inserted in front of any environment
    _Base = object


class FailedAssertionError(InvalidSolutionError, AssertionError):
    """A solution that fails an `assert` of a published `check_solution_validity`."""


class PublishedNames(_Base):
    """The published methods of an environment in terms of its hooks.

    :func:`adapt` inserts this class between a class in the published style and its environment, so
    that `super()` in its methods finds them. They use the hooks of the classes above it
    (:func:`hook_behind`).
    """

    #: Published methods that the class or one of its bases overrides.
    published_overrides: Collection[str] = ()
    #: Shape of the `done` that a published `_step` last returned, and reads: `[B]`?
    _done_without_axis: bool = False

    @property
    @override
    def scores_final_states(self) -> bool:  # type: ignore[override]
        names = ("_get_reward", "get_reward", "check_solution_validity")
        return any(name in self.published_overrides for name in names)

    @property
    @override
    def steps_by_hooks(self) -> bool:  # type: ignore[override]
        return {"_reset", "_step"}.isdisjoint(self.published_overrides)

    @property
    def _follows_torchrl(self) -> bool:
        """Whether TorchRL resets and steps; published methods do so themselves in its mode."""
        return self._torchrl_mode and self.steps_by_hooks

    @override
    def reset(self, td: Any = None, batch_size: Any = None, **kwargs: Any) -> TensorDict:
        if self._follows_torchrl or not self._torchrl_mode:
            return super().reset(td, batch_size, **kwargs)
        return self._reset_by_hooks(td, batch_size)

    @override
    def step(self, td: TensorDictBase) -> Any:
        if self._follows_torchrl or not self._torchrl_mode:
            return super().step(td)
        return td.copy().set("next", self._step_by_hooks(td))

    @override
    def _reset(  # type: ignore[override]
        self, td: TensorDictBase | None = None, batch_size: Any = None, **kwargs: Any
    ) -> TensorDict:
        if self._follows_torchrl:
            return super()._reset(td, **kwargs)
        if td is None or td.is_empty():
            td = self.generate(self.batch_size if batch_size is None else batch_size)
        state = hook_behind(self, "initial_state")(td)
        return TensorDict(state, batch_size=td.batch_size, device=self.device)

    @override
    def _step(self, td: TensorDictBase) -> TensorDictBase:
        if self._follows_torchrl:
            return super()._step(td)
        state = hook_behind(self, "advance")(with_done_axis(td), td["action"])
        return td.update({**state, "done": state["done"].squeeze(-1)})  # [*B], as published

    def _get_reward(self, td: TensorDictBase, actions: Tensor) -> Tensor:
        return hook_behind(self, "_objective")(dict(td.items()), actions)

    def _make_spec(self, generator: Generator | None = None) -> None:
        hook_behind(self, "_make_specs")()

    @override
    def get_action_mask(self, td: Mapping[str, Tensor] | TensorDictBase) -> Tensor:
        state = with_done_axis(td) if isinstance(td, TensorDictBase) else dict(td)
        return hook_behind(self, "_action_mask")(state)

    @override
    def get_num_starts(self, td: TensorDictBase) -> int:
        return hook_behind(self, "_count_starts")(dict(td.items()))

    @override
    def select_start_nodes(self, td: TensorDictBase, num_starts: int) -> Tensor:
        state = dict(td.items())
        self._check_num_starts(state, num_starts)
        starts = hook_behind(self, "_start_actions")(state, num_starts)  # [*B, S]
        return flatten_starts(starts, td.batch_dims)


# ---------------------------------------------------------------- public methods, for any batch


class _OnRows:
    """A public method of the published style, called with one batch axis for any batch.

    Args:
        method: The method of the class; a function or a static method.
        call: (environment, bound method, state, further arguments) → result.
    """

    def __init__(self, method: Any, call: Callable[..., Any]) -> None:
        self.method, self.call = method, call
        self.__doc__ = method.__doc__

    def __get__(self, env: Any, owner: type) -> Any:
        bound = self.method.__get__(env, owner) if hasattr(self.method, "__get__") else self.method
        return bound if env is None else functools.partial(self.call, env, bound)


def _rows_of(td: TensorDictBase | Mapping[str, Tensor]) -> tuple[TensorDictBase, torch.Size]:
    """A state as rows, and its batch axes; a state with one batch axis is returned as it is."""
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
    """Calls a check that asserts; if it fails, again for every solution, to name the wrong ones."""
    state = final_state(env, dict(td.items()), actions)
    rows = to_rows(state, actions.shape[:-1])
    actions = actions.reshape(len(rows), -1)  # [rows, T]
    try:
        method(rows, actions)
    except AssertionError as failure:
        if isinstance(failure, InvalidSolutionError):
            raise
        failed = [
            row
            for row in range(len(rows))
            if _asserts(method, rows[row : row + 1], actions[row : row + 1])
        ]
        constraint = str(failure) or "the assertions of check_solution_validity"
        every_row = list(range(len(rows)))
        raise FailedAssertionError(constraint, failed or every_row, len(rows)) from failure


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


# ---------------------------------------------------------------- adapting a class

#: Published method → hooks of the library in its place.
_HOOKS_INSTEAD_OF = {
    "_reset": ("_init_state",),
    "_step": ("_transition",),
    "get_action_mask": ("_action_mask",),
    "_get_reward": ("_objective",),
    "check_solution_validity": ("_violations",),
    "get_num_starts": ("_count_starts",),
    "select_start_nodes": ("_start_actions",),
}
#: Published methods that have no effect in improvement environments.
_NOT_FOR_IMPROVEMENT = ("_reset", "_step", "_get_reward", "get_action_mask", "_make_spec", "step")
#: Keyword arguments of published methods after `td`.
_ARGUMENTS: dict[str, dict[str, None]] = {"_reset": {"batch_size": None}, "_step": {}}


def adapt(cls: type) -> type:
    """Adds hooks that call the published methods which a class of environments overrides.

    Args:
        cls: An environment, right after it is created. One that defines hooks only is not changed.
    """
    improves = is_improvement(cls)
    base = ImprovementEnvBase if improves else RL4COEnvBase
    # The class and its bases below `base`.
    family = [each for each in cls.__mro__[: cls.__mro__.index(base)] if each is not PublishedNames]
    published = dict.fromkeys((*HOOKS, *_PUBLIC, "step"))
    names = [name for name in published if _where(family, name) is not None]
    if not names:
        return cls
    _reject_misfits(cls, family, names, improves)
    if improves:
        return cls
    _insert_published_names(cls)
    for name, call in _PUBLIC.items():
        method = vars(cls).get(name)
        if method is not None and not isinstance(method, _OnRows):
            setattr(cls, name, _OnRows(method, call))
    steps = [name for name in ("_reset", "_step") if name in names]
    hooks = [REPLACED[name] for name in steps if not _comes_before(family, REPLACED[name][0], name)]
    if steps:
        hooks += [(hook, call) for hook, call in DEFAULTS.items() if _where(family, hook) is None]
        hooks.append(HOOKS["_make_spec"])
    hooks += [
        HOOKS[name]
        for name in names
        # A hook for starts takes precedence over their published names.
        if name in HOOKS and (name not in STARTS or _where(family, HOOKS[name][0]) is None)
    ]
    for hook, call in hooks:
        setattr(cls, hook, call)
    for name, default in {"instance_shapes": {}, "generator_cls": LateGenerator}.items():
        if not hasattr(cls, name):
            setattr(cls, name, default)
    cls.published_overrides = frozenset(names)  # type: ignore[attr-defined]
    return cls


def _insert_published_names(cls: type) -> None:
    """Makes :class:`PublishedNames` a base of a class, in front of its environment."""
    if issubclass(cls, PublishedNames):
        return
    place = next(i for i, base in enumerate(cls.__bases__) if issubclass(base, RL4COEnvBase))
    cls.__bases__ = (*cls.__bases__[:place], PublishedNames, *cls.__bases__[place:])


def _where(family: Sequence[type], name: str) -> int | None:
    """Index of the first class of a family that defines a name itself, not by :func:`adapt`."""
    for index, cls in enumerate(family):
        if name in vars(cls) and vars(cls)[name] not in ADAPTERS:
            return index
    return None


def _comes_before(family: Sequence[type], hook: str, name: str) -> bool:
    """Whether a hook is defined in the same class as a published method, or in a subclass."""
    hook_at, name_at = _where(family, hook), _where(family, name)
    return hook_at is not None and name_at is not None and hook_at <= name_at


def _reject_misfits(
    cls: type, family: Sequence[type], names: Sequence[str], improves: bool
) -> None:
    """Raises for overrides that would have no effect, with the hooks to write instead."""
    if improves:
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
        for hook in (*_HOOKS_INSTEAD_OF.get(name, ()), *HOOKS.get(name, ())[:1]):
            if _comes_before(family, hook, name):
                raise UnsupportedError(
                    f"expected either {hook} or the published {name} in {cls.__name__}, got both; "
                    f"write {hook} alone"
                )
    for name, arguments in _ARGUMENTS.items():
        if name in names:
            _check_arguments(cls, name, arguments)


def _check_arguments(cls: type, name: str, arguments: Mapping[str, None]) -> None:
    """Raises unless a published method accepts the arguments it is called with."""
    method = getattr(cls, name)
    owner = () if isinstance(inspect.getattr_static(cls, name), staticmethod) else (None,)
    try:
        inspect.signature(method).bind(*owner, None, **arguments)
    except TypeError as error:
        call, hook = ", ".join(("td", *arguments)), _HOOKS_INSTEAD_OF[name][0]
        raise UnsupportedError(
            f"expected {name}({call}) in {cls.__name__}, as published, got "
            f"{name}{inspect.signature(method)} ({error}); write {hook} instead"
        ) from None
