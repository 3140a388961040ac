"""Decoding by weights of edges: sampling, logits of a step, and likelihoods in closed form.

A solution is a sequence of nodes, and a step depends on the weights of edges alone. So the
likelihood of a solution is a sum over its edges, each normalized over the edges that were allowed
at its step; the network is not evaluated step by step.
"""

from __future__ import annotations

import dataclasses
import math

from typing import Literal, get_args

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.graphs import CandidateGraph
from rl4co.core.layouts import node_index, per_solution
from rl4co.core.ops import gather_points, get_distance
from rl4co.decoding.rollout import DecodingTask, expand_solutions, follow
from rl4co.decoding.strategies import Sampling
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.hooks import defines_hook
from rl4co.envs.routing.tsp.ants import ANTS as TOURS

#: Weight added to every allowed action: other edges than candidates are nearly impossible.
EPSILON = 1e-10
#: Smallest log-probability of a step in closed form: the float32 epsilon, as in the original
#: codes; a solution from elsewhere may use edges that are nearly impossible.
LOG_FLOOR = math.log(torch.finfo(torch.float32).eps)
#: Rule if no candidate is allowed: the nearest node, or a random one with equal probabilities.
Rule = Literal["nearest", "uniform"]
#: Logits per unit of length of the rule "nearest": the nearest node is certain.
_SHARPNESS = 1e6


def check_rule(rule: str) -> Rule:
    """Raises unless `rule` is a :data:`Rule`; returns it."""
    if rule not in get_args(Rule):
        raise UnknownNameError("rule without candidates", rule, get_args(Rule))
    return rule  # type: ignore[return-value]


def check_graph(graph: CandidateGraph, mask: Tensor) -> None:
    """Raises unless candidate edges belong to instances with this action mask `[B, N]`."""
    batch, num_nodes = len(graph.targets), graph.num_nodes
    if tuple(mask.shape) != (batch, num_nodes):
        raise ConfigError(
            f"expected candidate edges of {mask.shape[0]} instances with {mask.shape[1]} nodes, "
            f"got those of {batch} with {num_nodes}"
        )


@dataclasses.dataclass(frozen=True)
class EdgeLogits:
    """Logits of all actions, by the weights of the edges from the current node.

    Before the first step of a problem without a depot all nodes have the same logit. Edges that are
    not candidates have weight :data:`EPSILON`; if no candidate is allowed, the rule decides.

    Attributes:
        log_weights: $\\log(w_{ij} + \\epsilon)$ of all pairs, `[B, N, N]`.
        is_candidate: `[B, N, N]`.
        locs: Coordinates `[B, N, 2]`, for the rule "nearest".
        has_hub: Whether solutions begin at a depot.
        rule: See :data:`Rule`.
    """

    log_weights: Tensor
    is_candidate: Tensor
    locs: Tensor
    has_hub: bool
    rule: Rule = "nearest"

    @classmethod
    def of(
        cls, graph: CandidateGraph, weights: Tensor, locs: Tensor, rule: Rule = "nearest"
    ) -> EdgeLogits:
        """Logits of weights `[B, E]`; up to 5,000 nodes."""
        log_weights = graph.dense((weights + EPSILON).log(), math.log(EPSILON))
        is_candidate = graph.dense(torch.ones_like(weights)) > 0
        return cls(log_weights, is_candidate, locs, graph.has_hub, check_rule(rule))

    def __call__(self, state: State) -> Tensor:
        """Logits `[B, Q, N]` of a state with axes `[B, Q]`."""
        node, mask = node_index(state, "current_node"), state["action_mask"]
        instance = torch.arange(len(node), device=node.device).unsqueeze(1)  # [B, 1]
        logits = self.log_weights[instance, node]  # [B, Q, N]
        if self.rule == "nearest":
            allowed = self.is_candidate[instance, node] & mask
            here = gather_points(self.locs, node).unsqueeze(2)  # [B, Q, 1, 2]
            away = get_distance(self.locs.unsqueeze(1), here)  # [B, Q, N]
            none_allowed = ~allowed.any(-1, keepdim=True)
            logits = torch.where(none_allowed, -_SHARPNESS * away, logits)
        if self.has_hub:
            return logits
        return torch.where(per_solution(state, "i") == 0, torch.zeros_like(logits), logits)


def sample_by_edges(
    env: RL4COEnvBase,
    state: State,
    graph: CandidateGraph,
    weights: Tensor,
    num_solutions: int,
    rng: torch.Generator | None = None,
    rule: Rule = "nearest",
) -> Tensor:
    """Samples solutions edge by edge, without gradients.

    Args:
        env: Environment.
        state: Fresh state, batch `[B]`, with coordinates.
        graph: Candidate edges.
        weights: Their weights `[B, E]`, not negative.
        num_solutions: Solutions A per instance.
        rng: Random stream (None: torch's global one).
        rule: See :data:`Rule`.

    Returns:
        Actions `[B, A, T]`.
    """
    if num_solutions < 1:
        raise ConfigError(f"expected at least 1 ant or sample per instance, got {num_solutions}")
    check_rule(rule)
    check_graph(graph, state["action_mask"])
    weights = weights.detach()
    device = weights.device
    if device.type == "cpu":
        steps = env.step_bounds(state)[1] + 1
        generator = rng if rng is None or rng.device.type == "cpu" else None
        shape = (len(weights), num_solutions, steps)
        # Drawn only if the problem has a compiled sampler.
        if defines_hook(env, "_sample_by_edges"):
            draws = torch.rand(shape, generator=generator)
            actions = env._sample_by_edges(state, graph, weights, draws, rule)
            if actions is not None:
                return actions
    with torch.no_grad():
        logits = EdgeLogits.of(graph, weights, state["locs"], rule)
        solutions = expand_solutions(state, num_solutions)
        return (
            Sampling(rng=rng)
            .run(DecodingTask(env, solutions, logits, with_log_probs=False))
            .actions
        )


def tour_log_likelihood(
    graph: CandidateGraph, weights: Tensor, tours: Tensor, rule: Rule = "nearest"
) -> Tensor:
    """Log-likelihood of tours that visit every node once, all steps at once.

    At step t, the allowed candidates of the current node are those with a later position:
    $$\\log p_t = \\log(w_{u_t u_{t+1}} + \\epsilon) -
      \\log\\Big(\\sum_{v \\in N(u_t),\\, pos(v) > t} w_{u_t v} + (N - 1 - t) \\epsilon\\Big)$$
    The first node is uniform, $\\log p_0 = -\\log N$. By the rule "nearest", a step without a
    candidate does not count, since it does not depend on the network.

    Args:
        graph: Candidate edges, without a hub.
        weights: `[B, E]`; gradients flow to them.
        tours: `[B, A, N]`.
        rule: See :data:`Rule`.

    Returns:
        `[B, A]`.
    """
    if graph.has_hub:
        raise ConfigError("expected a graph without a depot, got one with; use walk_log_likelihood")
    size = tours.shape[-1]
    steps = torch.arange(size, device=tours.device)
    position = torch.empty_like(tours).scatter_(2, tours, steps.expand_as(tours))  # [B, A, N]
    here, there = tours[..., :-1], tours[..., 1:]  # [B, A, N - 1]
    targets = _rows(graph.targets, here)  # [B, A, N - 1, K]
    later = position.gather(2, targets.flatten(2)).view_as(targets) > steps[:-1].unsqueeze(-1)
    chosen, left = targets == there.unsqueeze(-1), size - 1 - steps[:-1]
    terms = _edge_terms(_rows(graph.regular(weights), here), later, chosen, left, rule)
    return terms.sum(-1) - math.log(size)


def edge_log_likelihood(
    env: RL4COEnvBase,
    state: State,
    graph: CandidateGraph,
    weights: Tensor,
    actions: Tensor,
    rule: Rule = "nearest",
) -> Tensor:
    """Log-likelihood `[B, A]` of solutions `[B, A, T]`, by the fastest method.

    Arguments are those of :func:`walk_log_likelihood`.
    """
    if not graph.has_hub and TOURS.applies(env, state):
        return tour_log_likelihood(graph, weights, actions, rule)
    return walk_log_likelihood(env, state, graph, weights, actions, rule)


def walk_log_likelihood(
    env: RL4COEnvBase,
    state: State,
    graph: CandidateGraph,
    weights: Tensor,
    actions: Tensor,
    rule: Rule = "nearest",
) -> Tensor:
    """Log-likelihood of solutions, all steps at once, in any environment.

    The environment is stepped once, without the network, to record the action masks.

    Args:
        env: Environment.
        state: Fresh state, batch `[B]`.
        graph: Candidate edges.
        weights: `[B, E]`; gradients flow to them.
        actions: `[B, A, T]`.
        rule: See :data:`Rule`.

    Returns:
        `[B, A]`.
    """
    solutions = expand_solutions(state, actions.shape[1])
    with torch.no_grad():
        trace = follow(env, solutions, actions, ("action_mask", "current_node", "i")).trace
    mask, here = trace["action_mask"], node_index(trace, "current_node")  # [B, A, T, N], [B, A, T]
    rows = (here - int(graph.has_hub)).clamp_min(0)
    targets = _rows(graph.targets, rows)  # [B, A, T, K]
    allowed = mask.gather(3, targets)
    chosen = targets == actions.unsqueeze(-1)
    count = mask.sum(-1)  # [B, A, T]
    terms = _edge_terms(_rows(graph.regular(weights), rows), allowed, chosen, count, rule)
    if not graph.has_hub:
        first = per_solution(trace, "i").squeeze(-1) == 0  # uniform
        return torch.where(first, -count.to(terms.dtype).log(), terms).sum(-1)
    return torch.where(here == 0, _hub_terms(graph, weights, mask, actions, count), terms).sum(-1)


def _hub_terms(
    graph: CandidateGraph, weights: Tensor, mask: Tensor, actions: Tensor, count: Tensor
) -> Tensor:
    """Log-probabilities `[B, A, T]` of the actions if they were taken at the hub."""
    hub = graph.hub(weights)  # [B, N - 1]
    # One instance at a time: masks as floats need four times the memory.
    totals = [rows[..., 1:].to(hub.dtype) @ row for rows, row in zip(mask, hub, strict=True)]
    total = torch.stack(totals)  # [B, A, T]
    index = (actions - 1).clamp_min(0)
    weight = hub.gather(1, index.flatten(1)).view_as(count) * (actions > 0)
    return ((weight + EPSILON).log() - (total + EPSILON * count).log()).clamp_min(LOG_FLOOR)


def _rows(values: Tensor, nodes: Tensor) -> Tensor:
    """Rows of nodes: `[B, R, K], [B, A, T]` → `[B, A, T, K]`."""
    offset = torch.arange(len(values), device=values.device).view(-1, 1, 1) * values.shape[1]
    return torch.nn.functional.embedding(nodes + offset, values.flatten(0, 1))


def _edge_terms(
    weights: Tensor, allowed: Tensor, chosen: Tensor, count: Tensor, rule: Rule
) -> Tensor:
    """Log-probabilities `[B, A, T]` of chosen edges among the K of each step.

    Args:
        weights: `[B, A, T, K]`.
        allowed: Candidates that the mask allowed, `[B, A, T, K]`.
        chosen: The candidate that was chosen, if it was one, `[B, A, T, K]`.
        count: Allowed actions of each step.
        rule: See :data:`Rule`.
    """
    zero = weights.new_zeros(())
    total = torch.where(allowed, weights, zero).sum(-1) + EPSILON * count
    terms = (torch.where(chosen, weights, zero).sum(-1) + EPSILON).log() - total.log()
    terms = terms.clamp_min(LOG_FLOOR)
    return terms if rule == "uniform" else torch.where(allowed.any(-1), terms, zero)
