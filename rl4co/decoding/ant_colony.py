"""Ant colony optimization: solutions sampled by pheromone and heuristic, with local search.

Uses weights of a network or, by default, inverse distances, on all problems whose solutions are
sequences of nodes. Ants of all instances run in one batch; pheromone is stored for candidate edges
only.

Papers: Dorigo and Gambardella (1997); Stützle and Hoos (2000), MAX-MIN; Ye et al. (2023), DeepACO,
https://arxiv.org/abs/2309.14032; Kim et al. (2025), GFACS, https://arxiv.org/abs/2403.07041.
"""

from __future__ import annotations

import dataclasses
import math
import time

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch

from tensordict import TensorDictBase
from torch import Tensor
from torch.nn.functional import pad

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.graphs import CandidateGraph, nearest_graph
from rl4co.core.neighbors import MAX_DENSE_NODES
from rl4co.core.ops import batchify, flatten_starts, unbatchify
from rl4co.core.rng import derive_generator
from rl4co.decoding.edges import Rule, check_graph, check_rule, sample_by_edges
from rl4co.decoding.pheromone import deposit
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.hooks import defines_hook

#: Which ants deposit pheromone: all, the best, the best within bounds, or all with the mean quality
#: subtracted and a constant total.
Variant = Literal["ant_system", "elitist", "max_min", "balanced"]

#: Smallest pheromone of an edge, so that every edge stays possible.
MIN_PHEROMONE = 1e-10
#: Smallest length of an edge: coinciding points have finite weights.
MIN_LENGTH = 1e-6


@dataclasses.dataclass(frozen=True)
class ColonyConfig:
    """Settings of a colony.

    Args:
        n_ants: Ants per instance and iteration.
        alpha: Power of the pheromone.
        beta: Power of the heuristic.
        decay: Share of the pheromone kept from one iteration to the next.
        variant: Which ants deposit pheromone, see :data:`Variant`.
        symmetric: Whether an edge means both directions.
        use_local_search: Whether the problem's local search improves solutions; None: if the
            problem has one.
        n_improved: Ants per instance whose solutions are improved, the best ones (None: all).
        guided_rounds: Perturbations guided by the heuristic, each followed by a search (0: none).
        local_search_kwargs: Further options of `env.local_search`.
        rule: If no candidate is allowed: the "nearest" node, or a random one ("uniform").
    """

    n_ants: int = 20
    alpha: float = 1.0
    beta: float = 1.0
    decay: float = 0.9
    variant: Variant = "ant_system"
    symmetric: bool = True
    use_local_search: bool | None = None
    n_improved: int | None = None
    guided_rounds: int = 0
    local_search_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rule: Rule = "nearest"

    def __post_init__(self) -> None:
        if type(self.n_ants) is not int or self.n_ants < 1:
            raise ConfigError(f"expected at least 1 ant, an integer, got {self.n_ants!r}")
        if not math.isfinite(self.alpha) or not math.isfinite(self.beta):
            raise ConfigError(
                f"expected finite powers alpha and beta, got {self.alpha} and {self.beta}"
            )
        if not 0.0 < self.decay <= 1.0:
            raise ConfigError(f"expected a decay in (0, 1], got {self.decay}")
        if self.variant not in get_args(Variant):
            raise UnknownNameError("variant of ant colonies", self.variant, get_args(Variant))
        if self.n_improved is not None and not 1 <= self.n_improved <= self.n_ants:
            raise ConfigError(
                f"expected 1 to {self.n_ants} ants to improve, or None, got {self.n_improved}"
            )
        if type(self.guided_rounds) is not int or self.guided_rounds < 0:
            raise ConfigError(
                f"expected guided_rounds of at least 0, an integer, got {self.guided_rounds!r}"
            )
        if self.guided_rounds and self.use_local_search is False:
            raise ConfigError(
                f"expected guided_rounds=0 without local search, got {self.guided_rounds}"
            )
        check_rule(self.rule)


@dataclasses.dataclass(frozen=True)
class ColonyResult:
    """Best solutions and progress of a colony.

    Attributes:
        actions: Best solutions `[B, T]`.
        reward: Their rewards `[B]`.
        curve: Best rewards after each iteration `[B, iterations]`.
        mean_reward: Mean rewards of the ants before any search, per iteration `[B, iterations]`.
        seconds: Time after each iteration.
    """

    actions: Tensor
    reward: Tensor
    curve: Tensor
    mean_reward: Tensor
    seconds: list[float]


class AntColony:
    """A colony on a batch of instances.

        colony = AntColony(env, env.reset(instances), config=ColonyConfig(n_ants=50))
        result = colony.run(10)

    Args:
        env: Environment.
        td: State after reset, batch `[B]`, with coordinates.
        graph: Candidate edges (default: the nearest neighbours, a tenth of all nodes).
        heuristic: Weights of the candidate edges `[B, E]`, not negative (default: one over their
            length).
        config: Settings.
        seed: Seed of the ants, or a random stream.
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        td: TensorDictBase,
        graph: CandidateGraph | None = None,
        heuristic: Tensor | None = None,
        config: ColonyConfig | None = None,
        seed: int | torch.Generator = 0,
    ) -> None:
        if (graph is None) != (heuristic is None):
            raise ConfigError("expected a graph and its heuristic, or neither, got one of them")
        self.env, self.td, self.config = env, td, config or ColonyConfig()
        if graph is None or heuristic is None:
            graph, heuristic = inverse_distances(td)
        check_graph(graph, td["action_mask"])
        self.graph, self.heuristic = graph, _check_heuristic(graph, heuristic)
        self.pheromone = torch.ones_like(self.heuristic)  # [B, E]
        self.rng = seed if isinstance(seed, torch.Generator) else derive_generator(seed, "ants")
        self.actions: Tensor | None = None  # best solutions [B, T]
        self.reward = torch.full(td.batch_size, -torch.inf)
        has_search = defines_hook(env, "_local_search")
        use_search = self.config.use_local_search
        self.searches = has_search if use_search is None else use_search
        self._guide = self._make_guide() if self.config.guided_rounds else None

    def run(self, iterations: int, max_runtime: float | None = None) -> ColonyResult:
        """Runs more iterations and returns the best solutions so far.

        Args:
            iterations: Number of iterations.
            max_runtime: Seconds after which no further iteration starts; the first one always runs.
        """
        if iterations < 1:
            raise ConfigError(f"expected at least 1 iteration, got {iterations}")
        start, seconds = time.perf_counter(), list[float]()
        curve, means = list[Tensor](), list[Tensor]()
        for _ in range(iterations):
            means.append(self.step())
            curve.append(self.reward)
            seconds.append(time.perf_counter() - start)
            if max_runtime is not None and seconds[-1] > max_runtime:
                break
        assert self.actions is not None
        return ColonyResult(
            self.actions, self.reward, torch.stack(curve, -1), torch.stack(means, -1), seconds
        )

    @torch.no_grad()
    def step(self) -> Tensor:
        """Runs one iteration; returns the mean reward of its ants before any search, `[B]`."""
        config = self.config
        weights = self.pheromone**config.alpha * self.heuristic**config.beta
        state = dict(self.td.items())
        actions = sample_by_edges(
            self.env, state, self.graph, weights, config.n_ants, self.rng, config.rule
        )  # [B, A, T]
        reward = self._rewards(actions)  # [B, A]
        mean = reward.mean(1)
        if self.searches:
            actions, reward = self._improve(actions, reward)
        self._remember(actions, reward)
        self._update_pheromone(actions, reward)
        return mean

    # ---------------------------------------------------------------- internals

    def _rewards(self, actions: Tensor) -> Tensor:
        """Rewards `[B, A]` of solutions `[B, A, T]`."""
        ants = actions.shape[1]
        rows = self.env.get_reward(
            batchify(self.td, ants), flatten_starts(actions), check_solution=False
        )
        return unbatchify(rows, ants)

    def _improve(self, actions: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
        """Applies local search to all solutions, or to the best of each instance."""
        count = self.config.n_improved
        if count is not None:
            best = reward.topk(count, 1).indices  # [B, A']
            actions = actions.gather(1, best.unsqueeze(-1).expand(-1, -1, actions.shape[-1]))
        options = dict(self.config.local_search_kwargs)
        if self._guide is not None:
            options |= {"heatmap": self._guide, "rounds": self.config.guided_rounds}
        count = actions.shape[1]
        rows = batchify(self.td, count)
        improved = self.env.local_search(rows, flatten_starts(actions), **options)
        improved = unbatchify(improved, count)  # [B, A', T']
        return improved, self._rewards(improved)

    def _make_guide(self) -> Any:
        """The heuristic of all pairs, as an array `[B, N, N]`."""
        reason = None
        if not self.searches:
            reason = f"{self.env.name}, which has no local search"
        elif self.graph.num_nodes > MAX_DENSE_NODES:
            reason = f"{self.graph.num_nodes} nodes, above {MAX_DENSE_NODES}"
        if reason:
            raise UnsupportedError(
                f"expected guided_rounds=0 for {reason}, got {self.config.guided_rounds}"
            )
        return self.graph.dense(self.heuristic).cpu().numpy()

    def _remember(self, actions: Tensor, reward: Tensor) -> None:
        """Keeps the best solutions so far."""
        best, index = reward.max(1)  # [B]
        candidates = actions.gather(
            1, index.view(-1, 1, 1).expand(-1, 1, actions.shape[-1])
        ).squeeze(1)
        if self.actions is None:
            self.actions, self.reward = candidates, best
            return
        width = max(candidates.shape[1], self.actions.shape[1])
        # Only solutions with a hub differ in length; shorter ones wait there.
        old, new = (pad(x, (0, width - x.shape[1])) for x in (self.actions, candidates))
        better = best > self.reward
        self.actions = torch.where(better.unsqueeze(-1), new, old)
        self.reward = torch.where(better, best, self.reward)

    def _quality(self, reward: Tensor) -> Tensor:
        """Pheromone that solutions deposit: prizes, or one over their costs."""
        if self.env.maximizes:
            return reward.clamp_min(0.0) / self.graph.num_nodes
        return 1.0 / (-reward).clamp_min(MIN_LENGTH)

    def _update_pheromone(self, actions: Tensor, reward: Tensor) -> None:
        config = self.config
        quality = self._quality(reward)  # [B, A]
        if config.variant in ("elitist", "max_min"):
            assert self.actions is not None
            actions, quality = self.actions.unsqueeze(1), self._quality(self.reward).unsqueeze(1)
        if config.variant == "balanced":
            ants = quality.shape[1]
            size = self.graph.num_nodes
            share = (1.0 - config.decay) * size * size / (2 * ants * self._legs(actions))  # [B, 1]
            quality = (quality - quality.mean(1, keepdim=True) + share).clamp_min(MIN_PHEROMONE)
        pheromone = deposit(
            self.graph, self.pheromone * config.decay, actions, quality, config.symmetric
        )
        if config.variant == "max_min":
            highest = self._quality(self.reward) / max(1.0 - config.decay, MIN_PHEROMONE)  # [B]
            lowest = highest / (2 * self.graph.num_nodes)
            pheromone = torch.clamp(pheromone, lowest.unsqueeze(1), highest.unsqueeze(1))
        self.pheromone = pheromone.clamp_min(MIN_PHEROMONE)

    def _legs(self, actions: Tensor) -> Tensor:
        """Legs of the longest solution of each instance, `[B, 1]`; without waiting at the hub."""
        if not self.graph.has_hub:
            return actions.new_full((len(actions), 1), self.graph.num_nodes)
        step = torch.arange(1, actions.shape[-1] + 1, device=actions.device)
        last = (step * (actions != 0)).amax(-1)  # [B, A]
        return last.amax(1, keepdim=True) + 1  # and back to the hub


def inverse_distances(
    td: TensorDictBase, degree: int | None = None
) -> tuple[CandidateGraph, Tensor]:
    """Nearest neighbours and one over the lengths of the edges to them, `[B, E]`.

    Args:
        td: State with coordinates; problems with demands, prizes or penalties have a depot.
        degree: Neighbours per node (default: a tenth of all nodes, at least ten).
    """
    locs = td["locs"]
    has_hub = any(key in td.keys() for key in ("demand", "prize", "penalty"))
    num_others = locs.shape[1] - 1 - has_hub
    count = min(max(locs.shape[1] // 10, 10), num_others) if degree is None else degree
    graph, lengths = nearest_graph(locs, max(count, 0), has_hub)
    return graph, 1.0 / lengths.clamp_min(MIN_LENGTH)


def _check_heuristic(graph: CandidateGraph, heuristic: Tensor) -> Tensor:
    expected = (len(graph.targets), graph.num_edges)
    if tuple(heuristic.shape) != expected:
        raise ConfigError(
            f"expected a heuristic of shape [B, E] = {list(expected)}, got {list(heuristic.shape)}"
        )
    if not bool(((heuristic >= 0) & heuristic.isfinite()).all()):
        raise ConfigError("expected finite weights of at least 0 as heuristic, got others")
    return heuristic.detach()
