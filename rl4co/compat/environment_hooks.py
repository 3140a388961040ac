"""Hooks of the library for an environment in the published style: they call its methods.

Published methods work on TensorDicts with one batch axis (rows), may write into them, and receive
the state at the end of a solution. :func:`rl4co.compat.environments.adapt` adds these hooks to a
class.
"""

from __future__ import annotations

import functools
import math

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, InvalidSolutionError, UnsupportedError
from rl4co.core.ops import unbatchify
from rl4co.core.rng import derive_generator
from rl4co.envs.arguments import reject_masked
from rl4co.envs.generator import Generator
from rl4co.envs.hooks import ProblemHooks, State
from rl4co.envs.instances import InstanceSchema

#: Safety limit of steps where none is declared: per action of the mask, and at least.
_STEPS_PER_ACTION, _STEPS_AT_LEAST = 100, 10_000


class LateGenerator(Generator):
    """Placeholder until the constructor of a published class sets `self.generator`."""

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        raise ConfigError(
            "expected a generator of instances, got none; set self.generator in the constructor of "
            "the environment"
        )


# ---------------------------------------------------------------- rows: states with one batch axis


def to_rows(state: Mapping[str, Any], batch: torch.Size) -> TensorDict:
    """A copy of a state with one batch axis: `[*B, ...]` → TensorDict of `[rows]`.

    A copy, because published methods may write into their argument.
    """
    rows = math.prod(batch)
    values = {
        key: value.reshape((rows, *value.shape[len(batch) :])) for key, value in state.items()
    }
    device = next((value.device for value in values.values()), None)
    return TensorDict(values, batch_size=[rows], device=device).clone()


def _from_rows(rows: TensorDictBase, batch: torch.Size) -> State:
    """The result of a published method with the batch axes of the caller."""
    return {key: value.reshape((*batch, *value.shape[1:])) for key, value in rows.items()}


def batch_of(state: Mapping[str, Tensor]) -> torch.Size:
    """Batch axes of a state."""
    return state["done"].shape[:-1]


def with_done_axis(td: TensorDictBase) -> State:
    """A state as hooks of the library expect it: `done` is `[*B, 1]`."""
    state = dict(td.items())
    if "done" in state:
        state["done"] = _as_column(state["done"], td.batch_size)
    return state


def _as_column(value: Tensor, batch: torch.Size) -> Tensor:
    """`[*B]` or `[*B, 1]` → `[*B, 1]`."""
    return value.unsqueeze(-1) if value.shape == batch else value


def _complete(env: Any, state: State, batch: torch.Size) -> State:
    """The state with boolean masks, boolean `done [*B, 1]` and float rewards `[*B, 1]`."""
    done = _as_column(state["done"], batch).bool().flatten(len(batch))
    state["done"] = state["terminated"] = done.all(-1, keepdim=True)  # [*B, 1]
    reward = _as_column(state.get("reward", torch.zeros_like(done)), batch)
    state["reward"] = reward.float().flatten(len(batch)).sum(-1, keepdim=True)
    mask = state["action_mask"] if "action_mask" in state else env._action_mask(state)
    return {**state, "action_mask": mask.bool()}


# ---------------------------------------------------------------- hooks that call published methods


def _initial_state(env: Any, td: TensorDictBase) -> State:
    """`initial_state` by `_reset`; keys of the instance that it does not return stay."""
    instance, batch = dict(td.to(env.device).items()), td.batch_size
    rows = to_rows(instance, batch)
    initial = env._reset(rows, batch_size=rows.batch_size)
    done = initial.get("done", None)
    env._done_without_axis = done is not None and done.dim() == 1
    state = {**instance, **_from_rows(initial, batch)}
    blank = torch.zeros(*batch, 1, dtype=torch.bool, device=env.device)
    state = {"i": blank.long(), "done": blank, **state}
    return _complete(env, state, batch)


def _advance(env: Any, state: State, action: Tensor) -> State:
    """`advance` by `_step`; keys that it does not return stay."""
    if env.check_action:
        reject_masked(env.name, state, action)
    rows = to_rows({**state, "action": action}, action.shape)
    if env._done_without_axis:
        rows["done"] = rows["done"].squeeze(-1)
    count = rows["i"].clone()
    stepped = env._step(rows)
    env._done_without_axis = stepped["done"].dim() == 1
    kept = {key: value for key, value in state.items() if key != "action_mask"}
    new_state = {**kept, **_from_rows(stepped, action.shape), "action": action}
    if torch.equal(new_state["i"].flatten(), count.flatten()):  # `_step` does not count steps
        new_state["i"] = state["i"] + 1
    return _complete(env, new_state, action.shape)


def _mask(env: Any, state: State) -> Tensor:
    """`_action_mask` by `get_action_mask`, which finds the mask of its base class in the state."""
    of_base = hook_behind(env, "_action_mask")
    if of_base.func not in (*ADAPTERS, ProblemHooks._action_mask):  # type: ignore[attr-defined]
        state = {**state, "action_mask": of_base(state)}
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
        f"expected a check_solution_validity in {type(env).__name__}, got none; write it, or pass "
        "check_solution=False"
    )


def _objective(env: Any, state: State, actions: Tensor) -> Tensor:
    """`_objective` by `_get_reward`, which receives the state at the end, as published."""
    batch = actions.shape[:-1]
    state = final_state(env, state, actions)
    reward = env._get_reward(to_rows(state, batch), actions.reshape(-1, actions.shape[-1]))
    return one_per_solution(env, "_get_reward", reward, batch)


def one_per_solution(env: Any, method: str, reward: Tensor, batch: torch.Size) -> Tensor:
    """Rewards `[rows]` or `[rows, 1]` of a published method with the batch axes of the caller."""
    if not isinstance(reward, Tensor) or reward.numel() != math.prod(batch):
        got = list(reward.shape) if isinstance(reward, Tensor) else type(reward).__name__
        raise ConfigError(
            f"expected one reward for each of {math.prod(batch)} solutions from {method} of "
            f"{type(env).__name__}, got {got}; sum over the steps"
        )
    return reward.reshape(batch)


def final_state(env: Any, state: State, actions: Tensor) -> State:
    """The state in which solutions end; unfinished ones are completed by their actions."""
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
    return unbatchify(starts, num_starts).reshape(*batch_of(state), num_starts)  # [*B, S]


def _allowed_first_actions(state: Mapping[str, Tensor]) -> Tensor:
    """First actions that the mask allows, without the depot if there is one: `[*B, N]`."""
    mask = state["action_mask"]
    if "depot" not in state:
        return mask
    nodes = torch.arange(mask.shape[-1], device=mask.device)
    return mask & (nodes > 0)


def _count_allowed_starts(env: Any, state: State) -> int:
    return int(_allowed_first_actions(state).sum(-1).amax())


def _allowed_starts(env: Any, state: State, num_starts: int) -> Tensor:
    """The first S allowed actions `[*B, S]`, repeated cyclically if there are fewer."""
    allowed = _allowed_first_actions(state)
    order = allowed.long().argsort(stable=True, dim=-1, descending=True)  # allowed ones first
    starts = torch.arange(num_starts, device=allowed.device)
    return order.gather(-1, starts % allowed.sum(-1, keepdim=True).clamp_min(1))  # [*B, S]


def _most_starts(env: Any, state: State) -> int:
    """From shapes alone, since the next batch may have more; or `get_num_starts` if overridden."""
    if "get_num_starts" in env.published_overrides:
        return env.get_num_starts(state)
    return state["action_mask"].shape[-1]


def _step_bounds(env: Any, state: State) -> tuple[int, int]:
    """A safety limit: a published `_step` does not declare its number of steps."""
    return 1, max(_STEPS_AT_LEAST, _STEPS_PER_ACTION * state["action_mask"].shape[-1])


def _make_specs(env: Any) -> None:
    """Specs by `_make_spec`, or from a state; none before there is a generator."""
    if isinstance(env.generator, LateGenerator):
        env.schema = InstanceSchema(env.name, env.instance_shapes, {}, {}, (), {})
        return
    hook_behind(env, "_make_specs")()
    if "_make_spec" in env.published_overrides:
        env._make_spec(env.generator)


def _spec_instance(env: Any) -> TensorDict:
    """An instance from a batch of one: some published generators need a batch axis."""
    return env.generator([1], rng=derive_generator("specs"))[0]


def _spec_state(env: Any, instance: TensorDictBase) -> TensorDict:
    """A state without a `solution`, whose length is unknown."""
    state = env.initial_state(instance)
    del state["reward"]
    return TensorDict(state, batch_size=instance.batch_size, device=env.device)


#: Published name → hook of the library and its adapter.
HOOKS: dict[str, tuple[str, Callable[..., Any]]] = {
    "_reset": ("initial_state", _initial_state),
    "_step": ("advance", _advance),
    "get_action_mask": ("_action_mask", _mask),
    "_get_reward": ("_objective", _objective),
    "get_num_starts": ("_count_starts", _count_starts),
    "select_start_nodes": ("_start_actions", _start_actions),
    "_make_spec": ("_make_specs", _make_specs),
}
STARTS = ("get_num_starts", "select_start_nodes")
#: Defaults of a class with a published `_reset` or `_step` for hooks that it does not define.
DEFAULTS: dict[str, Callable[..., Any]] = {
    "_action_mask": _mask_of_state,
    "_spec_instance": _spec_instance,
    "_violations": _no_violations,
    "_count_starts": _count_allowed_starts,
    "_most_starts": _most_starts,
    "_start_actions": _allowed_starts,
}
#: Hooks that describe the replaced `_reset` or `_step`, and so are replaced with them.
REPLACED: dict[str, tuple[str, Callable[..., Any]]] = {
    "_step": ("step_bounds", _step_bounds),
    "_reset": ("_spec_state", _spec_state),
}
#: Functions that call published methods, and all functions that `adapt` adds to a class.
BRIDGES = frozenset(call for _, call in HOOKS.values())
ADAPTERS = BRIDGES.union(DEFAULTS.values(), (call for _, call in REPLACED.values()))


def hook_behind(env: Any, name: str) -> Callable[..., Any]:
    """A hook; if it calls a published method, the next definition that does not."""
    if getattr(type(env), name, None) not in BRIDGES:
        return getattr(env, name)
    hooks = (vars(cls)[name] for cls in type(env).__mro__ if name in vars(cls))
    return functools.partial(next(hook for hook in hooks if hook not in BRIDGES), env)
