"""A batch of running episodes, each at its own step: what stepwise interfaces of others wrap.

Policies of the library decode whole batches from beginning to end; agents of other libraries take a
step at a time, are rewarded for it, and begin anew where an episode has ended.
"""

from __future__ import annotations

import dataclasses

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.contract.evidence import configured, random_action
from rl4co.envs.hooks import State
from rl4co.envs.improvement import ImprovementEnvBase

#: Keys of a state that are not for agents to see: results of steps, not what they start from.
_RESULTS = ("done", "terminated", "reward", "action")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a step brought, `[B]` each.

    Attributes:
        reward: Of the step. Where single steps have none, that of the solution when it is complete.
        complete: Whether the episode ends with a complete solution.
        terminated: Whether there is no way on: it is complete, or the action was forbidden.
        truncated: Whether the episode ends although there would be.
        forbidden: Whether the action was one that the mask forbids.
    """

    reward: Tensor
    complete: Tensor
    terminated: Tensor
    truncated: Tensor
    forbidden: Tensor


class Episodes:
    """Episodes of an environment, stepped together.

    A forbidden action changes nothing. Where solutions are constructed it ends the episode with
    `forbidden_reward`; where they are improved it counts as a move.

    Args:
        env: The environment; a copy of it is used.
        count: Number of episodes B.
        max_moves: Moves of an episode, where solutions are improved; otherwise None.
        forbidden_reward: What a forbidden action earns where it ends the episode.
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        count: int,
        max_moves: int | None = None,
        forbidden_reward: float = -10_000.0,
    ) -> None:
        self.env = configured(env, _torchrl_mode=False, check_action=False)
        self.improves = isinstance(env, ImprovementEnvBase)
        if self.improves and (max_moves is None or max_moves < 1):
            raise ConfigError(
                f"expected max_moves of at least 1 for {env.name}, which never terminates, "
                f"got {max_moves}"
            )
        if not self.improves and max_moves is not None:
            raise ConfigError(
                f"expected no max_moves for {env.name}, whose episodes end when a solution is "
                f"complete, got {max_moves}"
            )
        self.count, self.max_moves, self.forbidden_reward = count, max_moves, forbidden_reward
        self.state: State = {}
        self.solution = torch.empty(count, 0, dtype=torch.int64)  # actions so far, 0 behind them
        self.steps = torch.zeros(count, dtype=torch.int64)
        self.ended = torch.ones(count, dtype=torch.bool)

    def start(self, rng: torch.Generator, instances: TensorDictBase | None = None) -> None:
        """Begins all episodes.

        Args:
            rng: Random stream of instances and first solutions.
            instances: Batch `[B]` to solve; None: generated ones.
        """
        self.state = self._fresh(self.count, rng, instances)
        most = 0 if self.improves else self.env.step_bounds(self.state)[1]
        device = self.env.device
        self.solution = torch.zeros(self.count, most, dtype=torch.int64, device=device)
        self.steps = torch.zeros(self.count, dtype=torch.int64, device=device)
        self.ended = torch.zeros(self.count, dtype=torch.bool, device=device)

    def restart(self, which: Tensor, rng: torch.Generator) -> None:
        """Begins the flagged episodes `[B]` anew, with generated instances."""
        rows = which.nonzero().flatten()
        fresh = self._fresh(len(rows), rng, None)
        self.state = {
            key: value.index_copy(0, rows, fresh[key]) for key, value in self.state.items()
        }
        self.solution = self.solution.masked_fill(which.unsqueeze(-1), 0)
        self.steps = self.steps.masked_fill(which, 0)
        self.ended = self.ended & ~which

    def step(self, action: Tensor) -> Outcome:
        """One action `[B]` (or move `[B, A]`) in each episode; nothing where one has ended."""
        running = ~self.ended
        allowed = self._is_allowed(action) & running
        before = {key: value for key, value in self.state.items() if key not in _RESULTS[2:]}
        # Where it is forbidden, an action that exists is taken, and its effect left out.
        after = self.env.advance(before, _where(allowed, action, torch.zeros_like(action)))
        after.pop("action")
        step_reward = after.pop("reward", None)
        self.state = {
            key: value if value is before[key] else _where(allowed, value, before[key])
            for key, value in after.items()
        }
        if not self.improves:
            self._record(action, allowed)
        self.steps = self.steps + running

        finished = self.state["done"].squeeze(-1) & allowed
        forbidden = running & ~allowed
        if step_reward is not None and (self.env.has_dense_reward or self.improves):
            reward = step_reward.squeeze(-1).masked_fill(~allowed, 0.0)
        else:
            reward = self._final_rewards(finished)
        terminated, truncated = finished, torch.zeros_like(finished)
        if self.max_moves is None:
            terminated = finished | forbidden
            reward = reward.masked_fill(forbidden, self.forbidden_reward)
        else:
            truncated = running & (self.steps >= self.max_moves)
        self.ended = self.ended | terminated | truncated
        return Outcome(reward, finished | truncated, terminated, truncated, forbidden)

    def observation(self) -> State:
        """What agents see: the keys of the state `[B, ...]` without results of steps."""
        return {key: value for key, value in self.state.items() if key not in _RESULTS}

    def random_actions(self, rng: torch.Generator) -> Tensor:
        """Allowed actions `[B]` or moves `[B, A]`."""
        if isinstance(self.env, ImprovementEnvBase):
            return self.env.random_action(self.state, rng)
        return random_action(self.state["action_mask"], rng)

    def solutions(self) -> tuple[Tensor, Tensor]:
        """Rewards `[B]` and solutions: actions `[B, T]`, or successors `[B, N]` in the best tours.

        Only complete solutions have a meaningful reward.
        """
        if isinstance(self.env, ImprovementEnvBase):
            return -self.state["cost_bsf"], self.state["rec_best"]
        return self.env._objective(self.state, self.solution), self.solution

    def _fresh(self, count: int, rng: torch.Generator, instances: TensorDictBase | None) -> State:
        if instances is None:
            instances = self.env.generator(count, rng=rng).to(self.env.device)
        elif instances.batch_size != (count,):
            raise ConfigError(
                f"expected {count} instances, one for each episode, got batch "
                f"{list(instances.batch_size)}"
            )
        if isinstance(self.env, ImprovementEnvBase):
            return dict(self.env.reset(instances, rng=rng).items())
        return dict(self.env.reset(instances).items())

    def _is_allowed(self, action: Tensor) -> Tensor:
        if isinstance(self.env, ImprovementEnvBase):
            return self.env.allows(self.state, action)
        mask = self.state["action_mask"]  # [B, N]
        exists = (action >= 0) & (action < mask.shape[-1])
        inside = action.clamp(0, mask.shape[-1] - 1).unsqueeze(-1)  # [B, 1]
        return exists & mask.gather(-1, inside).squeeze(-1)

    def _record(self, action: Tensor, allowed: Tensor) -> None:
        place = self.steps.clamp_max(self.solution.shape[-1] - 1).unsqueeze(-1)  # [B, 1]
        recorded = self.solution.scatter(-1, place, action.unsqueeze(-1))
        self.solution = torch.where(allowed.unsqueeze(-1), recorded, self.solution)

    def _final_rewards(self, finished: Tensor) -> Tensor:
        """Rewards of the solutions that were just completed, 0 elsewhere: `[B]`."""
        reward = torch.zeros(self.count, device=finished.device)
        rows = finished.nonzero().flatten()
        if len(rows):
            state = {key: value[rows] for key, value in self.state.items()}
            reward[rows] = self.env._objective(state, self.solution[rows]).float()
        return reward


def _where(flags: Tensor, value: Tensor, other: Tensor) -> Tensor:
    """Rows of `value` where flagged `[B]`, else of `other`."""
    return torch.where(flags.view(-1, *(1,) * (value.dim() - 1)), value, other)
