"""What a policy is asked to decode, and what is refused on the way."""

from __future__ import annotations

import dataclasses

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, InvalidActionError, NotFiniteError
from rl4co.core.ops import gather_nodes
from rl4co.decoding.rollout import Rollout
from rl4co.decoding.strategies import DecodingStrategy, Evaluate
from rl4co.envs.base import RL4COEnvBase, State


@dataclasses.dataclass(frozen=True)
class DecodingTask:
    """What is to be decoded, once all questions about it are settled.

    Attributes:
        env: The environment.
        state: State of the instances, batch `[B]`.
        hidden: The encoder's result.
        cache: What the decoder prepared from it.
        solutions: The same state for each solution, axes `[B, S]`.
        strategy: How actions are chosen.
        starts: First actions `[B, S, K]` forced upon the policy, or None.
        with_entropy: Whether the entropy of each step is wanted.
        num_steps: Exact number of steps, or None.
        max_steps: Limit of the steps, or None for the environment's own.
    """

    env: RL4COEnvBase
    state: State
    hidden: Any
    cache: Any
    solutions: State
    strategy: DecodingStrategy
    starts: Tensor | None
    with_entropy: bool
    num_steps: int | None
    max_steps: int | None

    @property
    def num_forced(self) -> int:
        """Leading actions that the policy does not answer for."""
        return 0 if self.starts is None else self.starts.shape[-1]

    @property
    def ending(self) -> tuple[str, ...]:
        """The key by which the replay leaves out finished solutions, where these may differ."""
        fewest, most = self.env.step_bounds(self.solutions)
        return ("done",) if self.num_steps is None and fewest < most else ()


def require_one_batch_axis(td: TensorDictBase) -> None:
    """Raises unless a state is a batch of instances."""
    if len(td.batch_size) != 1:
        raise ConfigError(
            f"expected a state with one batch axis, got batch {list(td.batch_size)}; "
            "flatten the batch, or unsqueeze(0) a single instance"
        )


def smaller_limit(max_steps: int | None, left: int | None) -> int | None:
    """The smaller one of two limits, of which either may be None."""
    limits = [limit for limit in (max_steps, left) if limit is not None]
    return min(limits, default=None)


def count_solutions(strategy: DecodingStrategy, starts: Tensor | None) -> int:
    """Solutions S per instance."""
    if isinstance(strategy, Evaluate):
        return strategy.given().shape[1]
    return strategy.num_samples if starts is None else starts.shape[1]


def refuse_forbidden(env: RL4COEnvBase, rollout: Rollout) -> None:
    """Raises if an action that a compiled loop proposed is not allowed by the environment."""
    allowed = gather_nodes(rollout.trace["action_mask"], rollout.actions[..., rollout.forced :])
    if not bool(allowed.all()):
        raise InvalidActionError(
            f"expected actions that the mask of {env.name} allows from its compiled rollout, got "
            "forbidden ones; set RL4CO_KERNELS=0 to do without, and report this"
        )


def refuse_impossible(log_probs: Tensor) -> None:
    """Raises if a solution has probability zero, which gradients cannot mend."""
    if bool((log_probs == -torch.inf).any()):
        raise NotFiniteError(
            "expected actions of a positive probability, got minus infinity as log-probability; "
            "the mask forbids some of these actions where they are taken"
        )
