"""Whole rollouts of the Attention Model in compiled loops, one solution after the other.

A decoding step does little work: on a CPU most of its time goes into calling operations, or into
fetching the keys of every instance from memory once more. Here an instance is solved to its end
while its keys are in the cache.

A loop repeats the rules of a problem, so it stands in the problem's folder (`compiled.py`) as a
:class:`RolloutKernel` that names the functions it mirrors (:mod:`rl4co.kernels.mirror`). If other
rules run, if a part of the decoder was touched, or if the state was changed after `reset`, there is
no result and the decode loop goes its plain way.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from torch import Tensor

from rl4co.core.registry import ENVS
from rl4co.kernels.compile import CompiledFunction
from rl4co.kernels.decision import Solutions, Weights, make_scratch
from rl4co.kernels.mirror import Mirror
from rl4co.kernels.switch import are_enabled
from rl4co.kernels.threads import run_in_chunks
from rl4co.kernels.untouched import is_untouched

State = dict[str, Tensor]

#: Strategies that the loops decide like, as "module:class": not those of others by the same name.
_STRATEGIES = ("rl4co.decoding.strategies:Greedy", "rl4co.decoding.strategies:Sampling")


@dataclasses.dataclass(frozen=True)
class RolloutKernel:
    """A compiled loop with the rules of one problem.

    Attributes:
        loop: Called with (rules, weights, scratch, solutions, S, start, stop) for rows
            `start`..`stop`.
        rules: (environment, fresh state `[B, ...]`) → tensors that the loop's rules need.
        mirror: What the loop repeats.
    """

    loop: CompiledFunction
    rules: Callable[[Any, State], tuple[Tensor, ...]]
    mirror: Mirror


def roll_out(
    env: Any,
    decoder: Any,
    state: State,
    cache: Any,
    strategy: Any,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """Solutions of all instances, or None where the decode loop has to make them.

    Args:
        env: The environment.
        decoder: The Attention Model's decoder.
        state: State with axes `[B, S]`.
        cache: What the decoder prepared.
        strategy: How actions are chosen.
        starts: First actions `[B, S, K]` forced upon the policy.

    Returns:
        Actions `[B, S, T]` and their log-probabilities `[B, S, T]`. Finished solutions repeat
        action 0.
    """
    kernel = _find_kernel(env.name) if are_enabled() else None
    if kernel is None or not _fits(kernel, env, decoder, cache, strategy):
        return None
    if not kernel.mirror.holds(env) or not _is_fresh(kernel, env, state, starts):
        return None
    batch, num_solutions, num_nodes = state["action_mask"].shape
    rows, most = batch * num_solutions, env.step_bounds(state)[1]
    forced = torch.empty(rows, 0, dtype=torch.int64)
    if starts is not None:
        forced = starts.flatten(0, 1).long()
    # Step by step, the order in which the decode loop draws them.
    chances = most - forced.shape[1] if strategy.draws else 0
    uniform = torch.rand(chances, rows, generator=strategy.rng)
    actions = torch.zeros(rows, most, dtype=torch.int64)
    log_probs = torch.zeros(rows, most)
    steps = torch.zeros(rows, dtype=torch.int64)

    weights = _weights(cache, batch, strategy)
    if not all(np.isfinite(part.sum()) for part in weights):
        return None  # diverged: the decode loop says so
    solutions = Solutions(*map(_array, (forced, uniform, actions, log_probs, steps)))
    # A fresh state is the same for all solutions of an instance.
    instances = {key: value[:, 0] for key, value in state.items()}
    rules = tuple(_array(value) for value in kernel.rules(env, instances))
    width = weights.graph.shape[1]

    def run(part: range) -> None:
        scratch = make_scratch(num_nodes, width)
        kernel.loop(rules, weights, scratch, solutions, num_solutions, part.start, part.stop)

    run_in_chunks(run, rows, torch.get_num_threads())
    if int(steps.min()) < 0:
        return None  # an instance with no way on: the decode loop says which
    shape, longest = (batch, num_solutions), int(steps.max())
    return actions[:, :longest].unflatten(0, shape), log_probs[:, :longest].unflatten(0, shape)


def _weights(cache: Any, batch: int, strategy: Any) -> Weights:
    """The decoder's cache in the layout of the loops."""
    key, context = cache.glimpse_key.detach(), cache.context
    graph = key.new_zeros(batch, key.shape[1] * key.shape[3])
    if cache.graph_context is not None:
        graph = cache.graph_context.squeeze(1)
    scale = torch.tensor([strategy.tanh_clipping / strategy.temperature])
    return Weights(
        _array(key.mT), _array(cache.glimpse_value), _array(cache.folded_key.mT), _array(graph),
        _array(context.rows), _array(context.feature_weight), _array(scale),
    )  # fmt: skip


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


# ---------------------------------------------------------------- where a loop applies


@functools.cache
def _find_kernel(problem: str) -> RolloutKernel | None:
    """The loop in a problem's folder, if there is one."""
    if problem not in ENVS:
        return None
    name = f"{ENVS.location(problem).partition(':')[0]}.compiled"
    try:
        found = find_spec(name)
    except ModuleNotFoundError:  # an environment of others, in a module without a folder
        return None
    kernel: RolloutKernel | None = None if found is None else importlib.import_module(name).ROLLOUT
    return kernel


def _fits(kernel: RolloutKernel, env: Any, decoder: Any, cache: Any, strategy: Any) -> bool:
    """Whether the loop decides as this decoder and this strategy do."""
    if not is_untouched(decoder):
        return False
    pointer, context = decoder.pointer, decoder.context_embedding
    key = cache.glimpse_key
    return (
        key.device.type == "cpu"
        and key.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and cache.folded_key is not None
        and decoder.dynamic_embedding is None
        and pointer.mask_inner
        and pointer.has_default_attention
        and _name(type(context)) == kernel.mirror.context
        and context.project_context.bias is None
        and _name(type(strategy)) in _STRATEGIES
        and strategy.mask_logits
        and strategy.tanh_clipping > 0
        and not strategy.truncates
        and not env.check_action
    )


def _is_fresh(kernel: RolloutKernel, env: Any, state: State, starts: Tensor | None) -> bool:
    """Whether the state is as `reset` gave it, and starts are actions that exist."""
    num_actions = state["action_mask"].shape[-1]
    if starts is not None and not bool(((starts >= 0) & (starts < num_actions)).all()):
        return False
    # Before the first step, all solutions of an instance are in the same state.
    return kernel.mirror.is_fresh(env, {key: value[:, 0] for key, value in state.items()})


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
