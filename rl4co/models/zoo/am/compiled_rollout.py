"""Whole rollouts of the Attention Model in compiled loops, one instance after the other.

With one solution per instance a decoding step does little work. On a CPU most of its time goes into
calling operations (one instance) or into fetching the keys of every instance from memory once more
(many). Here an instance is solved to its end while its keys and values are in the cache.

The loops propose actions and nothing else: states, rewards and checks come from the environment,
gradients from the replay of all steps. Whatever is out of the ordinary is left to the general
decode loop: a problem without a loop, parts of the policy that were replaced or hooked, several
solutions per instance (products over all of them are faster), instances with no way on.
"""

from __future__ import annotations

import functools

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from torch import Tensor, nn

from rl4co.core.kernels import LazyKernel, run_in_chunks
from rl4co.decoding.strategies import DecodingStrategy, Greedy, Sampling
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.embeddings import ContextEmbedding
from rl4co.models.nn.attention import PointerAttention
from rl4co.models.nn.compiled import can_compile
from rl4co.models.nn.recorded_attention import PointerRecord
from rl4co.models.zoo.am import compiled_loops as loops

if TYPE_CHECKING:
    from rl4co.models.zoo.am.decoder import AttentionModelDecoder, DecoderCache


class Problem(NamedTuple):
    """How a problem's instances are solved.

    Attributes:
        context: Context embedding that the loop has built in.
        read: (environment, state) → tensors `[B, 1, ...]` that the loop's rules need.
        loop: The kernel.
    """

    context: type[ContextEmbedding]
    read: Callable[[Any, State], tuple[Tensor, ...]]
    loop: LazyKernel


@functools.cache
def problems() -> dict[type[RL4COEnvBase], Problem]:
    """Environments with a loop; exactly these, because rules of a subclass may differ."""
    from rl4co.envs.routing.cvrp.env import CVRPEnv
    from rl4co.envs.routing.op.env import OPEnv
    from rl4co.envs.routing.pctsp.env import PCTSPEnv
    from rl4co.envs.routing.pdp.env import PDPEnv
    from rl4co.envs.routing.spctsp.env import SPCTSPEnv
    from rl4co.envs.routing.tsp.env import TSPEnv
    from rl4co.models.embeddings.cvrp import CVRPContext
    from rl4co.models.embeddings.op import LENGTH_MARGIN, OPContext
    from rl4co.models.embeddings.pctsp import PCTSPContext
    from rl4co.models.embeddings.pdp import PDPContext
    from rl4co.models.embeddings.tsp import TSPContext

    def read_cvrp(env: CVRPEnv, state: State) -> tuple[Tensor, ...]:
        capacity = state["vehicle_capacity"]
        return state["demand"], capacity, capacity * (1.0 + env.capacity_tolerance)

    def read_op(env: OPEnv, state: State) -> tuple[Tensor, ...]:
        limit, budget = state["length_limit"], state["max_length"] - LENGTH_MARGIN
        none = limit.new_empty(*limit.shape[:2], 0, 0)
        places = (state.get(key, none) for key in ("locs", "cost_matrix"))
        return *places, limit, state["arrival_length"], budget

    def read_pctsp(env: PCTSPEnv, state: State) -> tuple[Tensor, ...]:
        required = state["prize_required"]
        return state["real_prize"], required, required * (1.0 - env.prize_tolerance)

    pctsp = Problem(PCTSPContext, read_pctsp, loops.solve_pctsp)
    return {
        TSPEnv: Problem(TSPContext, lambda _, s: (s["action_mask"],), loops.solve_tsp),
        CVRPEnv: Problem(CVRPContext, read_cvrp, loops.solve_cvrp),
        OPEnv: Problem(OPContext, read_op, loops.solve_op),
        PCTSPEnv: pctsp,
        SPCTSPEnv: pctsp,
        PDPEnv: Problem(
            PDPContext, lambda _, s: (s["available"], s["to_deliver"]), loops.solve_pdp
        ),
    }


def can_roll_out(
    env: RL4COEnvBase, decoder: AttentionModelDecoder, strategy: DecodingStrategy, state: State
) -> bool:
    """Whether a loop decides exactly as the general one would.

    Args:
        env: The environment.
        decoder: The decoder.
        strategy: How actions are chosen.
        state: Fresh state with axes `[B, S]`.
    """
    mask = state["action_mask"]
    if mask.shape[1] != 1 or mask.device.type != "cpu":
        return False
    problem = problems().get(type(env))
    context, pointer = decoder.context_embedding, decoder.pointer
    return (
        problem is not None
        and not env.check_action
        and type(strategy) in (Greedy, Sampling)
        and strategy.only_clips
        and type(context) is problem.context
        and context.project_context.bias is None
        and decoder.dynamic_embedding is None
        and type(pointer) is PointerAttention
        and can_compile(pointer.project_out.weight)
        and pointer.can_record(pointer.project_out.weight)
        and not any(_is_changed(module) for module in (decoder, context, pointer))
    )


def roll_out(
    env: RL4COEnvBase,
    decoder: AttentionModelDecoder,
    cache: DecoderCache,
    strategy: DecodingStrategy,
    state: State,
    *,
    record: bool = False,
) -> tuple[Tensor, Tensor, dict[str, Tensor]] | None:
    """Solutions of all instances; None if one of them has no way on (the general loop says why).

    Args:
        env: The environment.
        decoder: A decoder for which :func:`can_roll_out` holds.
        cache: What it prepared.
        strategy: How actions are chosen.
        state: Fresh state with axes `[B, 1]`.
        record: Whether the pointer's record is kept for the replay.

    Returns:
        Actions `[B, 1, T]`, their log-probabilities `[B, 1, T]` and the record of each step,
        `[B, 1, T, ...]`. Finished solutions repeat action 0.
    """
    batch, _, num_nodes = state["action_mask"].shape
    width, most = cache.folded_key.shape[-1], env.step_bounds(state)[1]
    kept = most if record else 0
    problem, graph = problems()[type(env)], cache.graph_context
    given = [value.squeeze(1) for value in problem.read(env, state)]
    shared = [
        cache.context.table,
        cache.context.feature_weight,
        torch.zeros(batch, 1, width) if graph is None else graph,
        cache.glimpse_key,
        cache.glimpse_value,
        cache.folded_key,
        # Row by row, the order in which the general loop draws them.
        torch.rand(most if strategy.draws else 0, batch, generator=strategy.rng),
    ]
    actions = torch.zeros(batch, most, dtype=torch.int64)
    log_probs = torch.zeros(batch, most)
    heads, logits = torch.zeros(batch, kept, width), torch.zeros(batch, kept, num_nodes)
    steps = torch.zeros(batch, dtype=torch.int64)
    arrays = [
        tuple(tensor.detach().contiguous().numpy() for tensor in tensors)
        for tensors in (given, shared, (actions, log_probs, heads, logits, steps))
    ]
    options = np.float32(strategy.tanh_clipping), decoder.pointer.mask_inner
    run_in_chunks(
        lambda rows: problem.loop(*arrays, options, rows.start, rows.stop),
        batch,
        torch.get_num_threads(),
    )
    fewest, most = (int(count) for count in steps.aminmax())
    if fewest < 0:
        return None
    found = [tensor[:, :most].unsqueeze(1) for tensor in (actions, log_probs, heads, logits)]
    notes = PointerRecord(found[2], found[3], None).as_state() if record else {}
    return found[0], found[1], notes


def _is_changed(module: nn.Module) -> bool:
    """Whether calling the module does something else than its class says."""
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in vars(module)
