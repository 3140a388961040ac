"""Simulation-guided beam search: beams are judged by the solutions that they lead to.

Paper: Choo et al., 2022, https://arxiv.org/abs/2207.06190.
"""

from __future__ import annotations

import dataclasses

from typing import ClassVar

import torch
import torch.nn.functional as F

from torch import Tensor
from typing_extensions import override

from rl4co.core.errors import ConfigError
from rl4co.core.registry import DECODING
from rl4co.decoding.beam import follow_parents
from rl4co.decoding.rollout import DecodingTask, EndOfEpisode, Rollout, decode, expand_solutions
from rl4co.decoding.strategies import DecodingStrategy, Greedy
from rl4co.envs.base import State


@DECODING.register("sgbs")
@dataclasses.dataclass(frozen=True)
class SimulationGuidedBeamSearch(DecodingStrategy):
    """Extends each beam by its likeliest actions, finishes all greedily and keeps the best.

    In every step each of the `beam_width` partial solutions of an instance is extended by its
    `expansion` most likely actions. A greedy rollout completes each of these, and those with the
    best rewards are the next beams. The result is the best solution that any rollout came across,
    one per instance, so it is never worse than the greedy one.

    Args:
        beam_width: Partial solutions $\\beta$ that are kept.
        expansion: Actions $\\gamma$ by which each of them is extended.
    """

    beam_width: int = 10
    expansion: int = 10

    fixed_choice: ClassVar[str | None] = "simulation-guided beam search"
    can_replay = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_width < 1 or self.expansion < 1:
            raise ConfigError(
                "expected beam_width and expansion of at least 1, got "
                f"{self.beam_width} and {self.expansion}"
            )
        if self.num_samples > 1 or self.num_starts is not None or self.multistart:
            raise ConfigError(
                "expected beam_width and expansion alone for simulation-guided beam search, got "
                f"num_samples={self.num_samples}, num_starts={self.num_starts}, "
                f"multistart={self.multistart}"
            )

    def run(self, task: DecodingTask) -> Rollout:
        """Searches all instances together."""
        return _Search(self, task).run()


@dataclasses.dataclass(frozen=True)
class _Simulation(DecodingTask):
    """The rest of partial solutions.

    Attributes:
        bounds: Fewest and most steps to their ends.
    """

    bounds: tuple[int, int] = (0, 0)

    @override
    def step_range(self) -> tuple[int, int]:
        return self.bounds


@dataclasses.dataclass(frozen=True)
class _Solutions:
    """One complete solution of each instance.

    Attributes:
        reward: `[B, 1]`.
        actions: `[B, 1, T]`.
        log_probs: `[B, 1, T]`.
        state: Final state, axes `[B, 1]`.
    """

    reward: Tensor
    actions: Tensor
    log_probs: Tensor
    state: State

    def improved_by(self, other: _Solutions) -> _Solutions:
        """The better of two solutions of each instance; on ties, the one of this object."""
        better = other.reward > self.reward  # [B, 1]
        length = max(self.actions.shape[-1], other.actions.shape[-1])
        ours, theirs = self.padded(length), other.padded(length)

        def choose(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(better.view(*better.shape, *(1,) * (new.dim() - 2)), new, old)

        return _Solutions(
            choose(theirs.reward, ours.reward),
            choose(theirs.actions, ours.actions),
            choose(theirs.log_probs, ours.log_probs),
            {key: choose(value, ours.state[key]) for key, value in theirs.state.items()},
        )

    def padded(self, length: int) -> _Solutions:
        """The same solutions with a number of steps, by waiting at the end."""
        missing = length - self.actions.shape[-1]
        # A finished solution has an action that changes nothing.
        wait = self.state["action_mask"].int().argmax(-1, keepdim=True)  # [B, 1, 1]
        actions = torch.cat([self.actions, wait.expand(-1, -1, missing)], -1)
        return dataclasses.replace(
            self, actions=actions, log_probs=F.pad(self.log_probs, (0, missing))
        )


class _Search:
    """One search.

    Args:
        strategy: Its settings.
        task: What is decoded; its initial state has axes `[B, 1]`.
    """

    def __init__(self, strategy: SimulationGuidedBeamSearch, task: DecodingTask) -> None:
        if task.with_entropy:
            raise ConfigError("expected return_entropy=False for decode type 'sgbs', got True")
        self.strategy, self.task = strategy, task
        self.simulate = Greedy(**strategy.filters, top_k=strategy.top_k, top_p=strategy.top_p)
        self.best: _Solutions | None = None

    def run(self) -> Rollout:
        """The best solution `[B, 1, T]` of each instance."""
        task, strategy = self.task, self.strategy
        state = task.state
        done = state["done"]  # [B, 1, 1]
        actions = torch.empty(*done.shape[:2], 0, dtype=torch.int64, device=done.device)
        log_probs = torch.empty(*done.shape[:2], 0, device=done.device)
        self._remember(actions, log_probs, state, torch.ones_like(done[..., 0]))
        step, end = 0, EndOfEpisode(task)
        while not end.is_reached(step, state):
            children, actions, log_probs, possible = self._expand(state, actions, log_probs)
            reward = self._remember(actions, log_probs, children, possible)  # [B, W * gamma]
            width = min(strategy.beam_width, reward.shape[1])
            # A stable order, so that an instance does not depend on its batch.
            keep = reward.argsort(dim=1, descending=True, stable=True)[:, :width]
            state = {key: follow_parents(value, keep) for key, value in children.items()}
            actions, log_probs = follow_parents(actions, keep), follow_parents(log_probs, keep)
            step += 1
        assert self.best is not None
        return Rollout(self.best.actions, self.best.log_probs, state=self.best.state)

    def _expand(
        self, state: State, actions: Tensor, log_probs: Tensor
    ) -> tuple[State, Tensor, Tensor, Tensor]:
        """All children of the beams `[B, W]`: `[B, W * gamma]`, and which of them are possible."""
        logits = self.strategy.filter(self.task.logits(state), state["action_mask"])
        scores = logits.log_softmax(-1)  # [B, W, N]
        # Sorted as by argmax: the first of equal ones comes first.
        order = scores.argsort(dim=-1, descending=True, stable=True)
        action = order[..., : self.strategy.expansion]  # [B, W, gamma]
        chosen = scores.gather(-1, action)
        # Finished solutions only wait: they have one child.
        first = torch.arange(action.shape[-1], device=action.device) == 0
        possible = (chosen > -torch.inf) & (~state["done"] | first)
        action = torch.where(possible, action, action[..., :1])  # the simulation must be allowed
        parent = torch.arange(action.shape[1], device=action.device)
        parent = parent.repeat_interleave(action.shape[2]).expand(len(action), -1)
        children = {key: follow_parents(value, parent) for key, value in state.items()}
        action, chosen, possible = action.flatten(1), chosen.flatten(1), possible.flatten(1)
        children = self.task.advance(children, action)
        actions = torch.cat([follow_parents(actions, parent), action.unsqueeze(-1)], -1)
        log_probs = torch.cat([follow_parents(log_probs, parent), chosen.unsqueeze(-1)], -1)
        return children, actions, log_probs, possible

    def _remember(
        self, actions: Tensor, log_probs: Tensor, state: State, possible: Tensor
    ) -> Tensor:
        """Completes partial solutions greedily and keeps the best; returns their rewards `[B, S]`.

        Args:
            actions: Actions so far `[B, S, t]`.
            log_probs: Their log-probabilities `[B, S, t]`.
            state: State after them.
            possible: Which of them count `[B, S]`.
        """
        task = self.task
        end = self._complete(state, actions.shape[-1])
        if end is not None and end.log_probs is not None:
            actions = torch.cat([actions, end.actions], -1)
            log_probs = torch.cat([log_probs, end.log_probs], -1)
            state = end.state
        scored = state
        if not task.env.scores_final_states:
            start = {key: value[:, 0] for key, value in task.state.items()}
            scored = expand_solutions(start, actions.shape[1])
        reward = task.env.get_reward(scored, actions, check_solution=False)
        reward = reward.masked_fill(~possible, -torch.inf)  # [B, S]
        index = reward.argmax(1, keepdim=True)  # [B, 1]
        score = reward.gather(1, index)
        state = {key: follow_parents(value, index) for key, value in state.items()}
        best_now = _Solutions(
            score, follow_parents(actions, index), follow_parents(log_probs, index), state
        )
        self.best = best_now if self.best is None else self.best.improved_by(best_now)
        return reward

    def _complete(self, state: State, num_taken: int) -> Rollout | None:
        """Greedy rollouts from partial solutions to their ends; None if nothing is left to do."""
        task = self.task
        if task.num_steps is not None:
            fewest = most = task.num_steps - num_taken
        else:
            fewest, most = task.env.steps_left(state)
        if most <= 0 or (task.num_steps is None and bool(state["done"].all())):
            return None
        simulation = _Simulation(
            task.env, state, task.logits, task.memorise, task.memory_keys,
            num_steps=task.num_steps and most, bounds=(fewest, most),
        )  # fmt: skip
        return decode(simulation, self.simulate)
