"""Self-labelling: a policy learns from the best of its own solutions (Corsini et al., 2024).

Paper: https://arxiv.org/abs/2401.11849. Original code: AndreaCorsini1/SelfLabelingJobShop.
"""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.ops import gather_by_index, unbatchify
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.base import RL4COLitModule
from rl4co.models.rl.losses import self_labeling_loss


class SelfLabeling(RL4COLitModule):
    """Samples several solutions of each instance and makes the best one more likely.

    $$L = -\\frac{1}{|B| T} \\sum_b \\log \\pi(a^{b,*} | x_b), \\qquad
      a^{b,*} = \\arg\\max_{k \\le \\beta} R(a^{b,k})$$

    There is no baseline, no critic and no reward scale. Solutions are sampled without gradients;
    then the likelihood of the best alone is computed with gradients.

    Args:
        env: Environment.
        policy: Any constructive policy.
        num_samples: Solutions $\\beta$ of each instance.
        kwargs: See :class:`RL4COLitModule`.
    """

    default_metrics = {"train": ("loss", "reward", "max_reward")}

    def __init__(
        self, env: RL4COEnvBase, policy: nn.Module, num_samples: int = 256, **kwargs: Any
    ) -> None:
        if num_samples < 2:
            raise ConfigError(f"expected num_samples of at least 2, got {num_samples}")
        super().__init__(env, policy, **kwargs)
        self.num_samples = num_samples

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Solves a batch; in training many times, and with the loss of the best solutions."""
        td = self.env.reset(batch)
        rng = self.action_rng(phase, batch_idx)
        if phase == "train":
            out = self._learn(td, rng)
        else:
            out = self.policy(td, self.env, phase=phase, rng=rng)
        return self.log_metrics(out, phase, dataloader_idx, batch_size=td.batch_size[0])

    def _learn(self, td: TensorDictBase, rng: torch.Generator) -> dict[str, Tensor]:
        """Loss of the best of the sampled solutions."""
        with torch.no_grad():
            sampled = self.policy(
                td, self.env, phase="train", num_samples=self.num_samples, log_probs=False, rng=rng
            )
        reward = unbatchify(sampled["reward"], self.num_samples)  # [B, K]
        solutions = unbatchify(sampled["actions"], self.num_samples)  # [B, K, T]
        best = gather_by_index(solutions, reward.argmax(1))  # [B, T]
        label = self.policy(td, self.env, phase="train", actions=best, calc_reward=False)
        loss = self_labeling_loss(label["log_likelihood"], best.shape[-1])
        if "auxiliary_loss" in label:  # balance of experts, where there are any
            loss = loss + label["auxiliary_loss"]
        return {"loss": loss, "reward": reward, "max_reward": reward.amax(1)}
