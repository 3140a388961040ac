"""Learning to Dispatch, trained by complete solutions (REINFORCE) or by single steps (PPO)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.errors import ConfigError
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baselines import REINFORCEBaseline
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.rl.stepwise_ppo import StepwisePPO
from rl4co.models.zoo.l2d.policy import L2DPolicy, L2DPolicy4PPO

_SHOPS = ("jssp", "fjsp")
_REASON = "its encoders read the operations and machines of a job shop"


@MODELS.register("l2d")
class L2DModel(REINFORCE):
    """Policies for job shops with REINFORCE: the reward is that of the complete schedule.

    Args:
        env: JSSP or FJSP.
        policy: Policy (default: :class:`L2DPolicy`).
        baseline: Baseline or its name.
        policy_kwargs: Arguments of the default policy.
        num_samples: Schedules of each instance in training; the baseline "shared" needs several.
        kwargs: Further arguments, and those not listed here: see :class:`REINFORCE`.
    """

    supported_envs = _SHOPS
    support_reason = _REASON

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        baseline: REINFORCEBaseline | str = "rollout",
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline_kwargs: Mapping[str, Any] | None = None,
        num_samples: int = 1,
        **kwargs: Any,
    ) -> None:
        least = 2 if baseline == "shared" else 1
        if num_samples < least:
            raise ConfigError(f"expected num_samples of at least {least}, got {num_samples}")
        policy = self.default_policy(L2DPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, baseline, baseline_kwargs, **kwargs)
        self.num_samples = num_samples

    def decoding_options(self, phase: str) -> dict[str, Any]:
        """In training, each instance is solved several times if that is asked for."""
        several = phase == "train" and self.num_samples > 1
        return {"num_samples": self.num_samples} if several else {}


class L2DPPOModel(StepwisePPO):
    """Policies for job shops with stepwise PPO and dense rewards (Zhang et al., 2020).

    Args:
        env: JSSP or FJSP with `stepwise_reward=True`.
        policy: Policy (default: :class:`L2DPolicy4PPO`).
        policy_kwargs: Arguments of the default policy.
        kwargs: See :class:`StepwisePPO`.
    """

    supported_envs = _SHOPS
    support_reason = _REASON

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(L2DPolicy4PPO, env, policy, policy_kwargs)
        super().__init__(env, policy, **kwargs)
