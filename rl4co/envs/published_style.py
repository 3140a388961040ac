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
import math

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, InvalidSolutionError, UnsupportedError
from rl4co.core.ops import unbatchify
from rl4co.envs.arguments import refuse_masked
from rl4co.envs.generator import Generator
from rl4co.envs.hooks import State
from rl4co.envs.instances import InstanceSchema
from rl4co.envs.torchrl_mode import TorchRLMode

#: Most steps of an environment that does not say, per action of its mask, and at least.
_STEPS_PER_ACTION, _STEPS_AT_LEAST = 100, 10_000


class RefusedByAssertionError(InvalidSolutionError, AssertionError):
    """A solution that a published `check_solution_validity` refused by an `assert`."""


class LateGenerator(Generator):
    """Stands in until the constructor of a published class sets `self.generator`."""

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        raise ConfigError(
            "expected a generator of instances, got none; set self.generator in the constructor of "
            "the environment"
        )


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
        state = hook_behind(self, "advance")(dict(td.items()), td["action"])
        return td.update({**state, "done": state["done"].squeeze(-1)})  # [*B], as published

    def _get_reward(self, td: TensorDictBase, actions: Tensor) -> Tensor:
        return hook_behind(self, "_objective")(dict(td.items()), actions)

    def _make_spec(self, generator: Generator | None = None) -> None:
        hook_behind(self, "_make_specs")()

    @property
    def scores_final_states(self) -> bool:
        """Whether rewards are computed from the state in which a solution ends."""
        return "_get_reward" in self.published_overrides

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


def hook_behind(env: Any, name: str) -> Callable[..., Any]:
    """A hook; where it calls a published method, the one that it stands before."""
    if getattr(type(env), name, None) not in _BRIDGES:
        return getattr(env, name)
    hooks = (vars(cls)[name] for cls in type(env).__mro__ if name in vars(cls))
    return functools.partial(next(hook for hook in hooks if hook not in _BRIDGES), env)


# ---------------------------------------------------------------- rows: states with one batch axis


def to_rows(state: Mapping[str, Any], batch: torch.Size) -> TensorDict:
    """A copy of a state as published methods know it: `[*B, ...]` → TensorDict of `[rows]`.

    A copy, because they may write into what they are given.
    """
    rows = math.prod(batch)
    values = {
        key: value.reshape((rows, *value.shape[len(batch) :])) for key, value in state.items()
    }
    device = next((value.device for value in values.values()), None)
    return TensorDict(values, batch_size=[rows], device=device).clone()


def _from_rows(rows: TensorDictBase, batch: torch.Size) -> State:
    """What a published method returned, with the batch axes of the caller."""
    return {key: value.reshape((*batch, *value.shape[1:])) for key, value in rows.items()}


def _batch_of(state: Mapping[str, Tensor]) -> torch.Size:
    return state["done"].shape[:-1]


def _as_column(value: Tensor, batch: torch.Size) -> Tensor:
    """`[*B]` or `[*B, 1]` → `[*B, 1]`."""
    return value.unsqueeze(-1) if value.shape == batch else value


def _complete(env: Any, state: State, batch: torch.Size) -> State:
    """The state with what the library relies on: masks and `done` are booleans, rewards floats."""
    done = _as_column(state["done"], batch).bool().flatten(len(batch))
    state["done"] = state["terminated"] = done.all(-1, keepdim=True)  # [*B, 1]
    reward = _as_column(state.get("reward", torch.zeros_like(done)), batch)
    state["reward"] = reward.float().flatten(len(batch)).sum(-1, keepdim=True)
    state["action_mask"] = env._action_mask(state).bool()
    return state


# ---------------------------------------------------------------- hooks that call published methods


def _initial_state(env: Any, td: TensorDictBase) -> State:
    """`initial_state` by `_reset`; keys of the instance that it does not return stay."""
    instance, batch = dict(td.to(env.device).items()), td.batch_size
    rows = to_rows(instance, batch)
    found = env._reset(rows, batch_size=rows.batch_size)
    done = found.get("done", None)
    env._done_without_axis = done is not None and done.dim() == 1
    state = {**instance, **_from_rows(found, batch)}
    blank = torch.zeros(*batch, 1, dtype=torch.bool, device=env.device)
    state = {"i": blank.long(), "done": blank, **state}
    return _complete(env, state, batch)


def _advance(env: Any, state: State, action: Tensor) -> State:
    """`advance` by `_step`; keys that it does not return stay."""
    if env.check_action:
        refuse_masked(env.name, state, action)
    rows = to_rows({**state, "action": action}, action.shape)
    if env._done_without_axis:
        rows["done"] = rows["done"].squeeze(-1)
    count = rows["i"].clone()
    found = env._step(rows)
    env._done_without_axis = found["done"].dim() == 1
    new_state = {**state, **_from_rows(found, action.shape), "action": action}
    if torch.equal(new_state["i"].flatten(), count.flatten()):  # the author does not count steps
        new_state["i"] = state["i"] + 1
    return _complete(env, new_state, action.shape)


def _mask(env: Any, state: State) -> Tensor:
    """`_action_mask` by `get_action_mask`."""
    return env.get_action_mask(state)


def _mask_of_state(env: Any, state: State) -> Tensor:
    """`_action_mask` of a class that writes the mask in `_reset` and `_step`."""
    if "action_mask" not in state:
        raise ConfigError(
            f"expected action_mask in what _reset of {type(env).__name__} returns, got "
            f"{sorted(state)}; add it, or write get_action_mask"
        )
    return state["action_mask"]


def _no_violations(env: Any, state: State, actions: Tensor) -> dict[str, Tensor]:
    raise UnsupportedError(
        f"expected a check_solution_validity in {type(env).__name__}, got none; write it, or do "
        "without by check_solution=False"
    )


def _objective(env: Any, state: State, actions: Tensor) -> Tensor:
    """`_objective` by `_get_reward`, which is given the state at the end, as published."""
    batch = actions.shape[:-1]
    state = _final_state(env, state, actions)
    reward = env._get_reward(to_rows(state, batch), actions.reshape(-1, actions.shape[-1]))
    return _one_per_solution(env, "_get_reward", reward, batch)


def _one_per_solution(env: Any, method: str, reward: Tensor, batch: torch.Size) -> Tensor:
    if not isinstance(reward, Tensor) or reward.numel() != math.prod(batch):
        got = list(reward.shape) if isinstance(reward, Tensor) else type(reward).__name__
        raise ConfigError(
            f"expected one reward for each of {math.prod(batch)} solutions from {method} of "
            f"{type(env).__name__}, got {got}; sum over the steps"
        )
    return reward.reshape(batch)


def _final_state(env: Any, state: State, actions: Tensor) -> State:
    """The state in which solutions end; that of unfinished ones is found by their actions."""
    if bool(state["done"].all()):
        return state
    num_actions = state["action_mask"].shape[-1]
    outside = ((actions < 0) | (actions >= num_actions)).any(-1).flatten()  # [rows]
    if bool(outside.any()):
        where = outside.nonzero().flatten().tolist()
        raise InvalidSolutionError("every action exists", where, len(outside))
    for action in actions.unbind(-1):
        state = env.advance(state, action)
    return state


def _count_starts(env: Any, state: State) -> int:
    return env.get_num_starts(state)


def _start_actions(env: Any, state: State, num_starts: int) -> Tensor:
    starts = env.select_start_nodes(state, num_starts)  # [S * rows]
    return unbatchify(starts, num_starts).reshape(*_batch_of(state), num_starts)  # [*B, S]


def _offered(state: Mapping[str, Tensor]) -> Tensor:
    """First actions that the mask allows, the depot aside where there is one: `[*B, N]`."""
    mask = state["action_mask"]
    if "depot" not in state:
        return mask
    nodes = torch.arange(mask.shape[-1], device=mask.device)
    return mask & (nodes > 0)


def _count_allowed_starts(env: Any, state: State) -> int:
    return int(_offered(state).sum(-1).amax())


def _allowed_starts(env: Any, state: State, num_starts: int) -> Tensor:
    """The first S that are allowed `[*B, S]`, again in turn where there are fewer."""
    offered = _offered(state)
    order = offered.long().argsort(stable=True, dim=-1, descending=True)  # allowed ones first
    turns = torch.arange(num_starts, device=offered.device)
    return order.gather(-1, turns % offered.sum(-1, keepdim=True).clamp_min(1))  # [*B, S]


def _most_starts(env: Any, state: State) -> int:
    """From shapes alone: the next batch may have more starts than this one."""
    return state["action_mask"].shape[-1]


def _step_bounds(env: Any, state: State) -> tuple[int, int]:
    """Nothing is known of a published `_step` but that it ends some time."""
    return 1, max(_STEPS_AT_LEAST, _STEPS_PER_ACTION * state["action_mask"].shape[-1])


def _make_specs(env: Any) -> None:
    """Specs by `_make_spec`, or of a state; none before there is a generator."""
    if isinstance(env.generator, LateGenerator):
        env.schema = InstanceSchema(env.name, env.instance_shapes, {}, {}, (), {})
        return
    hook_behind(env, "_make_specs")()
    if env.declares_specs:
        env._make_spec(env.generator)


def _spec_state(env: Any, instance: TensorDictBase) -> TensorDict:
    """A state without room for a solution, the length of which nobody knows."""
    state = env.initial_state(instance)
    del state["reward"]
    return TensorDict(state, batch_size=instance.batch_size, device=env.device)


#: Published name → hook of the library and its adapter.
_HOOKS: dict[str, tuple[str, Callable[..., Any]]] = {
    "_reset": ("initial_state", _initial_state),
    "_step": ("advance", _advance),
    "get_action_mask": ("_action_mask", _mask),
    "_get_reward": ("_objective", _objective),
    "get_num_starts": ("_count_starts", _count_starts),
    "select_start_nodes": ("_start_actions", _start_actions),
    "_make_spec": ("_make_specs", _make_specs),
}
_STARTS = ("get_num_starts", "select_start_nodes")
#: What a class with a published `_reset` or `_step` gets where nothing else is written.
_DEFAULTS: dict[str, Callable[..., Any]] = {
    "_action_mask": _mask_of_state,
    "_violations": _no_violations,
    "_count_starts": _count_allowed_starts,
    "_most_starts": _most_starts,
    "_start_actions": _allowed_starts,
}
#: What describes another `_reset` or `_step`, and so has to be written for this one.
_RENEWED: dict[str, tuple[str, Callable[..., Any]]] = {
    "_step": ("step_bounds", _step_bounds),
    "_reset": ("_spec_state", _spec_state),
}
#: Functions that call published methods, and all that are given to a class.
_BRIDGES = frozenset(call for _, call in _HOOKS.values())
_ADAPTERS = _BRIDGES.union(_DEFAULTS.values(), (call for _, call in _RENEWED.values()))
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
#: Keyword arguments of published methods, behind `td`.
_ARGUMENTS: dict[str, dict[str, None]] = {"_reset": {"batch_size": None}, "_step": {}}


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
    return to_rows(td, _batch_of(td)), _batch_of(td)


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
    state = _final_state(env, dict(td.items()), actions)
    reward = method(to_rows(state, batch), actions.flatten(0, -2), *args, **kwargs)
    return _one_per_solution(env, "get_reward", reward, batch)


def _call_check(env: Any, method: Callable[..., None], td: Any, actions: Tensor) -> None:
    """Calls a check that asserts, and asks it about single solutions if it does not pass."""
    state = _final_state(env, dict(td.items()), actions)
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


def adapt(cls: type) -> None:
    """Gives a class that overrides published methods the hooks that call them.

    Args:
        cls: An environment, right after it is made. One that writes hooks only stays as it is.
    """
    base = next(each for each in cls.__mro__ if "adapts_published_style" in vars(each))
    family = cls.__mro__[: cls.__mro__.index(base)]  # the class and its bases below `base`
    names = [name for name in (*_HOOKS, *_PUBLIC, "step") if _where(family, name) is not None]
    if not names:
        return
    _refuse_misfits(cls, base, family, names)
    for name, call in _PUBLIC.items():
        method = vars(cls).get(name)
        if method is not None and not isinstance(method, _OnRows):
            setattr(cls, name, _OnRows(method, call))
    steps = [name for name in ("_reset", "_step") if name in names]
    hooks = [_RENEWED[name] for name in steps if not _comes_before(family, _RENEWED[name][0], name)]
    if steps:
        hooks += [(hook, call) for hook, call in _DEFAULTS.items() if _where(family, hook) is None]
        hooks.append(_HOOKS["_make_spec"])
    hooks += [
        _HOOKS[name]
        for name in names
        # Starts are asked for by their published names, where hooks may answer in their turn.
        if name in _HOOKS and (name not in _STARTS or _where(family, _HOOKS[name][0]) is None)
    ]
    if ("_count_starts", _count_starts) in hooks:
        hooks.append(("_most_starts", _count_starts))
    for hook, call in hooks:
        setattr(cls, hook, call)
    for name, default in {"instance_shapes": {}, "generator_cls": LateGenerator}.items():
        if not hasattr(cls, name):
            setattr(cls, name, default)
    cls.published_overrides = frozenset(names)  # type: ignore[attr-defined]


def _where(family: Sequence[type], name: str) -> int | None:
    """Which class of a family is the first to define a name, adapters aside."""
    for index, cls in enumerate(family):
        if name in vars(cls) and vars(cls)[name] not in _ADAPTERS:
            return index
    return None


def _comes_before(family: Sequence[type], hook: str, name: str) -> bool:
    """Whether a hook is written where a published method is, or below it."""
    hook_at, name_at = _where(family, hook), _where(family, name)
    return hook_at is not None and name_at is not None and hook_at <= name_at


def _refuse_misfits(cls: type, base: Any, family: Sequence[type], names: Sequence[str]) -> None:
    """Raises for overrides that would have no effect, with the hooks to write instead."""
    if not base.adapts_published_style:
        steps = [name for name in names if name in ("_reset", "_step", "_get_reward", "step")]
        if steps:
            raise UnsupportedError(
                f"expected the hooks of an improvement environment in {cls.__name__}, got the "
                f"published {', '.join(steps)}; write _move, _is_allowed and random_action"
            )
    if "step" in names:
        raise UnsupportedError(
            f"expected {cls.__name__} to leave `step` alone, which the decode loop does not call, "
            "got an override; write `_transition`, or `_step` in the published style"
        )
    for name in names:
        for hook in (*_WRITTEN_FOR.get(name, ()), *_HOOKS.get(name, ())[:1]):
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
