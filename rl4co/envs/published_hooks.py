"""The hooks of an environment in the published style: adapters that call its methods.

Published methods know TensorDicts with one batch axis (rows), may write into them, and get the
state at the end of a solution. :func:`rl4co.envs.published_style.adapt` gives a class these hooks.
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
from rl4co.envs.arguments import refuse_masked
from rl4co.envs.generator import Generator
from rl4co.envs.hooks import State
from rl4co.envs.instances import InstanceSchema

#: Most steps of an environment that does not say, per action of its mask, and at least.
_STEPS_PER_ACTION, _STEPS_AT_LEAST = 100, 10_000


class LateGenerator(Generator):
    """Stands in until the constructor of a published class sets `self.generator`."""

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        raise ConfigError(
            "expected a generator of instances, got none; set self.generator in the constructor of "
            "the environment"
        )


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


def batch_of(state: Mapping[str, Tensor]) -> torch.Size:
    """Batch axes of a state."""
    return state["done"].shape[:-1]


def with_done_axis(td: TensorDictBase) -> State:
    """A state for hooks of the library, for which `done` has an axis of its own."""
    state = dict(td.items())
    if "done" in state:
        state["done"] = _as_column(state["done"], td.batch_size)
    return state


def _as_column(value: Tensor, batch: torch.Size) -> Tensor:
    """`[*B]` or `[*B, 1]` → `[*B, 1]`."""
    return value.unsqueeze(-1) if value.shape == batch else value


def _complete(env: Any, state: State, batch: torch.Size) -> State:
    """The state with what the library relies on: masks and `done` are booleans, rewards floats."""
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
    kept = {key: value for key, value in state.items() if key != "action_mask"}
    new_state = {**kept, **_from_rows(found, action.shape), "action": action}
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
    return unbatchify(starts, num_starts).reshape(*batch_of(state), num_starts)  # [*B, S]


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
    """From shapes alone, since the next batch may have more; or what the author says."""
    if "get_num_starts" in env.published_overrides:
        return env.get_num_starts(state)
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


def _spec_instance(env: Any) -> TensorDict:
    """An instance of a batch, since not every published generator can do without."""
    return env.generator([1], rng=derive_generator("specs"))[0]


def _spec_state(env: Any, instance: TensorDictBase) -> TensorDict:
    """A state without room for a solution, the length of which nobody knows."""
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
#: What a class with a published `_reset` or `_step` gets where nothing else is written.
DEFAULTS: dict[str, Callable[..., Any]] = {
    "_action_mask": _mask_of_state,
    "_spec_instance": _spec_instance,
    "_violations": _no_violations,
    "_count_starts": _count_allowed_starts,
    "_most_starts": _most_starts,
    "_start_actions": _allowed_starts,
}
#: What describes another `_reset` or `_step`, and so has to be written for this one.
RENEWED: dict[str, tuple[str, Callable[..., Any]]] = {
    "_step": ("step_bounds", _step_bounds),
    "_reset": ("_spec_state", _spec_state),
}
#: Functions that call published methods, and all that are given to a class.
BRIDGES = frozenset(call for _, call in HOOKS.values())
ADAPTERS = BRIDGES.union(DEFAULTS.values(), (call for _, call in RENEWED.values()))


def hook_behind(env: Any, name: str) -> Callable[..., Any]:
    """A hook; where it calls a published method, the one that it stands before."""
    if getattr(type(env), name, None) not in BRIDGES:
        return getattr(env, name)
    hooks = (vars(cls)[name] for cls in type(env).__mro__ if name in vars(cls))
    return functools.partial(next(hook for hook in hooks if hook not in BRIDGES), env)
