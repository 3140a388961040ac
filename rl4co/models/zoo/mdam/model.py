"""MDAM: the Multi-Decoder Attention Model with REINFORCE (Xin et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baselines import REINFORCEBaseline
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.zoo.mdam.policy import MDAMPolicy


@MODELS.register("mdam")
class MDAM(REINFORCE):
    """Several decoders, each trained by REINFORCE, kept apart by the divergence of their choices.

    $$L = -\\frac1{BP} \\sum_{b, p} (R(a^{b,p}) - b(x^b)) \\log \\pi_p(a^{b,p} | x^b)
      - \\lambda \\frac1{P (P - 1)} \\sum_{i \\ne j} \\mathrm{KL}(\\pi_i \\| \\pi_j)$$

    with the divergence taken at the first step. The rollout baseline is the best path's greedy
    reward.

    Args:
        policy: Policy (default: :class:`MDAMPolicy`).
        baseline: Baseline or its name.
        policy_kwargs: Arguments of the default policy.
        kl_weight: Weight $\\lambda$ of the divergence.
        kwargs: Further arguments, and those not listed here: see :class:`REINFORCE`.
    """

    losses = ("reinforce",)
    default_metrics = {"train": ("loss", "reward", "bl_val", "divergence", "max_reward")}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        baseline: REINFORCEBaseline | str = "rollout",
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline_kwargs: Mapping[str, Any] | None = None,
        kl_weight: float = 0.01,
        **kwargs: Any,
    ) -> None:
        check_at_least(0, kl_weight=kl_weight)
        policy = self.default_policy(MDAMPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, baseline, baseline_kwargs, **kwargs)
        self.kl_weight = kl_weight

    def calculate_loss(
        self,
        td: TensorDictBase,
        batch: TensorDictBase,
        policy_out: dict[str, Any],
        reward: Tensor | None = None,
        log_likelihood: Tensor | None = None,
    ) -> dict[str, Any]:
        """See :meth:`REINFORCE.calculate_loss`; the divergence is the auxiliary loss."""
        policy_out["auxiliary_loss"] = -self.kl_weight * policy_out["divergence"].mean()
        policy_out["max_reward"] = policy_out["reward"].view(-1, td.batch_size[0]).amax(0)  # [B]
        return super().calculate_loss(td, batch, policy_out, reward, log_likelihood)
