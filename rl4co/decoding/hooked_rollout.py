"""Runs strategies in the published form (:mod:`rl4co.decoding.step_hooks`) from start to end.

Such a strategy sees a TensorDict with rows `s * B + b` and may do with it what it likes: repeat,
reorder or leave out rows between steps. So every step goes through the environment's `step`, with
gradients where these are wanted, and nothing is compiled or replayed.
"""

from __future__ import annotations

import copy

from typing import Any

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import flatten_starts, gather_nodes, step_entropy, unbatchify
from rl4co.decoding.rollout import (
    LogitsFn,
    MemoryFn,
    Rollout,
    advance,
    all_finished,
    expand_solutions,
    require_finished,
    step_range,
)
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase, State


def decode_by_hooks(
    env: RL4COEnvBase,
    state: State,
    logits_fn: LogitsFn,
    strategy: DecodingStrategy,
    *,
    starts: Tensor | None = None,
    memory: tuple[str, ...] = (),
    memorise: MemoryFn | None = None,
    with_entropy: bool = False,
    num_steps: int | None = None,
    max_steps: int | None = None,
) -> Rollout:
    """Constructs solutions by `pre_decoder_hook`, `step` and `post_decoder_hook`.

    Args:
        env: The environment.
        state: Fresh state with axes `[B, S]`, the same for all solutions but for the memory.
        logits_fn: State with axes `[B, S]` → logits `[B, S, N]`.
        strategy: The strategy; a copy of it is run, with buffers of its own.
        starts: First actions `[B, S, K]` of which the last is the start, where there is one.
        memory: Keys of the state that belong to the policy's memory.
        memorise: State after an action → keys to change in it.
        with_entropy: Compute the entropy of each step.
        num_steps: Exact number of steps; skips all looks at `done`.
        max_steps: Stop with an error after this many steps (default: the environment's bound).
    """
    batch = len(state["done"])
    first = {key: value[:, 0] for key, value in state.items() if key not in memory}  # [B, ...]
    run = _copy_to_run(strategy)
    run.store_all_logp = with_entropy
    if starts is not None:
        chosen = flatten_starts(starts[..., -1])  # [S * B], by the policy's caller or environment
        run.select_start_nodes_fn = lambda td, env, num_starts: chosen
    td: TensorDictBase = TensorDict(first, batch_size=[batch])
    td, env, run.num_starts = run.pre_decoder_hook(td, env)
    if memory:
        td.update(_remembered(env, state, run.actions, td.batch_size[0] // batch, memory, memorise))

    fewest, most = step_range(env, first, num_steps, max_steps)
    while len(run.actions) < most:
        if len(run.actions) >= fewest and fewest < most and all_finished(env, dict(td.items())):
            break
        logits = flatten_starts(logits_fn(_by_instance(td, batch)))  # [R, N]
        td = run.step(logits, td["action_mask"], td)
        td = env.step(td)["next"]
        if memorise is not None and memory:
            changed = memorise(_by_instance(td, batch))
            td.update({key: flatten_starts(value) for key, value in changed.items()})
    if num_steps is None:
        require_finished(env, dict(td.items()), most)
    logprobs, actions, td, _ = run.post_decoder_hook(td, env)
    return _as_rollout(logprobs, actions, _by_instance(td, batch), with_entropy)


def _copy_to_run(strategy: DecodingStrategy) -> Any:
    """A strategy that can be run without a trace: with buffers and collections of its own."""
    run = copy.copy(strategy)
    collections = {k: v for k, v in vars(run).items() if isinstance(v, list | dict | set)}
    vars(run).update({key: copy.copy(value) for key, value in collections.items()})
    vars(run).update(actions=[], logprobs=[])
    return run


def _by_instance(td: TensorDictBase, batch: int) -> State:
    """Rows by instance: `[S * B, ...]` → `[B, S, ...]`."""
    rows = td.batch_size[0]
    if rows % batch:
        raise ConfigError(
            f"expected as many rows for each of {batch} instances from the hooks of a decoding "
            f"strategy, got {rows} rows; keep row s * {batch} + b for solution s of instance b"
        )
    return {key: unbatchify(value, rows // batch) for key, value in td.items()}


def _remembered(
    env: RL4COEnvBase,
    state: State,
    actions: list[Tensor],
    width: int,
    memory: tuple[str, ...],
    memorise: MemoryFn | None,
) -> State:
    """What the policy remembers `[S * B, ...]` of the actions that the first hook has taken."""
    if state["done"].shape[1] != width:  # the hook made other rows than the settings say
        state = expand_solutions({key: value[:, 0] for key, value in state.items()}, width)
    for action in actions:
        state = advance(env, state, unbatchify(action, width), memorise)
    return {key: flatten_starts(state[key]) for key in memory}


def _as_rollout(logprobs: Tensor, actions: Tensor, state: State, with_entropy: bool) -> Rollout:
    """From rows `[R, T]` (or `[R, T, N]`) to axes `[B, S, T]`."""
    width = state["done"].shape[1]
    entropy = None
    if logprobs.dim() == 3:
        entropy = unbatchify(step_entropy(logprobs), width) if with_entropy else None
        logprobs = gather_nodes(logprobs, actions)
    return Rollout(
        actions=unbatchify(actions, width),
        log_probs=unbatchify(logprobs, width),
        entropy=entropy,
        state=state,
    )
