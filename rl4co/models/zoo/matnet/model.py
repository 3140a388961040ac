"""MatNet trained as POMO (Kwon et al., 2021)."""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase
from torch import nn

from rl4co.core.ops import unbatchify
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.zoo.matnet.multistage import MultiStageFFSPPolicy
from rl4co.models.zoo.matnet.policy import MatNetPolicy
from rl4co.models.zoo.pomo import POMO


@MODELS.register("matnet")
class MatNet(POMO):
    """POMO with the networks of MatNet.

    In the flexible flow shop the solutions of an instance differ by the order in which machines
    are asked, not by a forced first action; `num_starts` is the number of orders (default: all,
    24 for 4 machines).

    Args:
        policy: Policy (default: :class:`MatNetPolicy`, or :class:`MultiStageFFSPPolicy` where
            machines can be reordered).
        policy_kwargs: Arguments of the default policy.
        num_augment: A matrix has no symmetries to augment by, so 1 unless the policy reads
            coordinates.
        kwargs: Further arguments, and those not listed here: see :class:`POMO`.
    """

    supported_envs = ("atsp", "ffsp")
    support_reason = "its encoder reads a matrix of costs or processing times"

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        num_augment: int | None = 1,
        **kwargs: Any,
    ) -> None:
        defaults = {"stage_cnt": env.num_stage} if hasattr(env, "order_machines") else {}
        policy_cls = MultiStageFFSPPolicy if defaults else MatNetPolicy
        policy = self.default_policy(policy_cls, env, policy, policy_kwargs, **defaults)
        super().__init__(env, policy, num_augment=num_augment, **kwargs)

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Solves a batch from all starts, or in all orders of machines."""
        if not isinstance(self.policy, MultiStageFFSPPolicy):
            return super().shared_step(batch, batch_idx, phase, dataloader_idx)
        td = self.env.reset(batch)
        per_stage = td["run_time"].shape[-1] // td["schedule"].shape[-2]
        num_orders = self.num_starts or math.factorial(per_stage)
        out = self.policy(
            td,
            self.env,
            phase=phase,
            decode_type="sampling" if phase == "train" else "greedy",
            num_samples=num_orders,
            machine_orders=True,
            rng=self.action_rng(phase, batch_idx),
        )
        reward = unbatchify(out["reward"], (1, num_orders))[:, 0]  # [B, S]
        if phase == "train":
            log_likelihood = unbatchify(out["log_likelihood"], (1, num_orders))[:, 0]
            self.calculate_loss(td, batch, out, reward, log_likelihood)
        out["max_reward"] = out["max_aug_reward"] = reward.amax(-1)  # [B]
        return self.log_metrics(out, phase, dataloader_idx, batch_size=batch.batch_size[0])
