"""The plan of a policy call: what is decoded, how, and what is returned; all of it validated."""

from __future__ import annotations

import dataclasses

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase, State


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What a policy call returns.

    Attributes:
        reward: Rewards of the solutions.
        actions: Their actions.
        entropy: Their entropy, summed over steps.
        hidden: The encoder's result.
        init_embeds: The init embeddings.
        summed: Log-likelihoods are summed over steps.
    """

    reward: bool = True
    actions: bool = True
    entropy: bool = False
    hidden: bool = False
    init_embeds: bool = False
    summed: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one call of a policy does.

    Attributes:
        env: The environment.
        td: The instances' state in the precision of the network, batch `[B]`.
        state: The same as a plain mapping.
        exact: The same state as it was passed, for rewards.
        strategy: How solutions are decoded.
        starts: First actions `[B, S, K]` that are forced, or None.
        num_solutions: Solutions S per instance.
        num_steps: Exact number of steps, or None.
        max_steps: Limit of the steps, or None for the environment's bound.
        replay_keys: State keys with which the log-probabilities of all steps are computed at once,
            after the rollout; None: they are computed step by step.
        outputs: What is returned.
    """

    env: RL4COEnvBase
    td: TensorDictBase
    state: State
    exact: State
    strategy: DecodingStrategy
    starts: Tensor | None
    num_solutions: int
    num_steps: int | None
    max_steps: int | None
    replay_keys: tuple[str, ...] | None
    outputs: Outputs

    @property
    def recorded_keys(self) -> tuple[str, ...]:
        """State keys to record during the rollout for the replay."""
        if self.replay_keys is None:
            return ()
        fewest, most = self.env.step_bounds(self.exact)
        # Finished solutions need no replay, where lengths may differ.
        ending = ("done",) if self.num_steps is None and fewest < most else ()
        return tuple(dict.fromkeys((*self.replay_keys, "action_mask", *ending)))


def require_one_batch_axis(td: TensorDictBase) -> None:
    """Raises unless a state is a batch of instances."""
    if len(td.batch_size) != 1:
        raise ConfigError(
            f"expected a state with one batch axis, got batch {list(td.batch_size)}; "
            "flatten the batch, or unsqueeze(0) a single instance"
        )


def limit_steps(
    env: RL4COEnvBase, state: State, max_steps: int | None, multistart: bool, calc_reward: bool
) -> int | None:
    """Limit of the steps of a call; None for the environment's bound.

    Raises for what cannot work on partially built solutions: a start, or the reward of the
    remaining actions. A state right after `reset` has no `action`, so it costs no look at the
    device.
    """
    if "action" not in state or not bool(state["i"].any()):
        return max_steps
    if bool(state["done"].all()):
        raise ConfigError(
            f"expected {env.name} instances with something left to decide, got finished ones only"
        )
    if multistart:
        raise ConfigError(
            f"expected a {env.name} state right after reset for multi-start, got one in which "
            "steps were taken; starts are first actions, so use greedy, sampling or beam_search"
        )
    if calc_reward:
        raise ConfigError(
            f"expected calc_reward=False for partially built {env.name} solutions, got True; the "
            "returned actions are the remaining ones, and only a whole solution has a reward: "
            "env.get_reward(td, torch.cat([earlier_actions, out['actions']], -1))"
        )
    left = env.steps_left(state)[1]
    return left if max_steps is None else min(left, max_steps)
