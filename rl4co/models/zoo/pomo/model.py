"""POMO: policy optimization with multiple optima (Kwon et al., 2020).

Paper: https://arxiv.org/abs/2010.16011. Original code: yd-kwon/POMO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import TensorDictBase
from torch import nn

from rl4co.core.errors import ConfigError
from rl4co.core.ops import unbatchify
from rl4co.core.registry import ENVS, MODELS
from rl4co.decoding.strategies import multistart_type
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.best_of import best_rewards, default_augmentation
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.zoo.am import AttentionModelPolicy

#: Settings of the POMO paper that differ from the Attention Model's.
POLICY_DEFAULTS = {
    "num_encoder_layers": 6,
    "normalization": "instance",
    "use_graph_context": False,
}


@MODELS.register("pomo")
class POMO(REINFORCE):
    """REINFORCE from all starts of an instance at once, with their mean as shared baseline.

    $$b(x) = \\frac{1}{S} \\sum_{s} R(a^s, x)$$

    Validation and test solve each instance greedily from all starts and under all augmentations;
    the metrics are `reward` (mean), `max_reward` (best start of the original instance, or the mean
    over augmentations where the original is not the first of them) and `max_aug_reward` (best start
    of all augmentations).

    Args:
        policy: Policy (default: an Attention Model with POMO's settings).
        policy_kwargs: Arguments of the default policy; they win over POMO's settings.
        baseline: Must be "shared".
        num_augment: Augmentations at validation and test (0, 1: none). Default: 8, and none for
            problems that have no coordinates to augment.
        augment_fn: "dihedral8", "symmetric" or a function.
        first_aug_identity: Whether the first augmentation is the instance itself.
        feats: Coordinate keys to augment (default: all present).
        num_starts: Starts per instance (default: as many as the environment offers).
        kwargs: Further arguments, and those not listed here: see :class:`REINFORCE`.
    """

    default_metrics = {
        "val": ("reward", "max_reward", "max_aug_reward"),
        "test": ("reward", "max_reward", "max_aug_reward"),
    }
    support_reason = "it needs embeddings, and several starts (hook _count_starts)"

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline: str = "shared",
        num_augment: int | None = None,
        augment_fn: Any = "dihedral8",
        first_aug_identity: bool = True,
        feats: Sequence[str] | None = None,
        num_starts: int | None = None,
        **kwargs: Any,
    ) -> None:
        if baseline != "shared":
            raise ConfigError(
                f"expected baseline 'shared' for POMO, got {baseline!r}; use REINFORCE for others"
            )
        if (num_augment is not None and num_augment < 0) or (
            num_starts is not None and num_starts < 1
        ):
            raise ConfigError(
                "expected num_augment >= 0 (0, 1: no augmentation) and num_starts >= 1, or None "
                f"for either, got {num_augment} and {num_starts}"
            )
        policy = self.default_policy(
            AttentionModelPolicy, env, policy, policy_kwargs, **POLICY_DEFAULTS
        )
        super().__init__(env, policy, baseline, **kwargs)
        self.num_starts = num_starts
        self.augment = default_augmentation(env, num_augment, augment_fn, first_aug_identity, feats)

    @classmethod
    def supports(cls, env_name: str) -> bool:
        """Whether the default policy knows the problem, and it offers several starts."""
        if not super().supports(env_name):
            return False
        return ENVS[env_name]._count_starts is not RL4COEnvBase._count_starts

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Solves a batch from all starts; in validation and test under all augmentations."""
        td = self.env.reset(batch)
        num_augment = 1
        if phase != "train" and self.augment is not None:
            num_augment = self.augment.num_augment
            td = self.augment(td)
        num_starts = self.num_starts or self.env.get_num_starts(td)
        default = "sampling" if phase == "train" else "greedy"
        decode_type = getattr(self.policy, f"{phase}_decode_type", default)
        out = self.policy(
            td,
            self.env,
            phase=phase,
            decode_type=multistart_type(decode_type),
            num_starts=num_starts,
            rng=self.action_rng(phase, batch_idx),
        )
        reward = unbatchify(out["reward"], (num_augment, num_starts))  # [B, A, S]
        if phase == "train":
            log_likelihood = unbatchify(out["log_likelihood"], (1, num_starts))  # [B, 1, S]
            self.calculate_loss(td, batch, out, reward[:, 0], log_likelihood[:, 0])  # [B, S]
        out |= best_rewards(reward, self.augment)
        return self.log_metrics(out, phase, dataloader_idx, batch_size=batch.batch_size[0])
