"""Sym-NCO: symmetries of problems and solutions as baselines (Kim et al., 2022).

Paper: https://arxiv.org/abs/2205.13209. Original code: alstn12088/Sym-NCO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.ops import unbatchify
from rl4co.core.registry import ENVS, MODELS
from rl4co.core.rng import derive_generator
from rl4co.data.augment import StateAugmentation, has_coordinates
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.losses import invariance_loss, reinforce_loss, shared_advantage
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.zoo.symnco.policy import SymNCOPolicy


@MODELS.register("symnco")
class SymNCO(REINFORCE):
    """REINFORCE with baselines shared by the symmetric copies and the starts of an instance.

    $$L = L_{\\mathrm{ps}} + \\beta L_{\\mathrm{ss}} + \\alpha L_{\\mathrm{inv}}$$

    $L_{\\mathrm{ps}}$ compares a solution with those of all A copies and S starts of its instance,
    $L_{\\mathrm{ss}}$ with those of the S starts of its copy, and $L_{\\mathrm{inv}}$ asks for
    embeddings that do not depend on the copy. Without starts (S = 1) there is no
    $L_{\\mathrm{ss}}$; without copies (A = 1) it is all there is.

    Validation and test solve each instance under all augmentations (from all starts, if there are
    any); the metrics are `reward` (mean), `max_reward` (best start of the original instance) and
    `max_aug_reward` (best of all).

    Args:
        env: Environment; its instances must have coordinates.
        policy: Policy (default: :class:`SymNCOPolicy` for the environment). Its output must have
            `proj_embeddings` unless `alpha` is 0.
        policy_kwargs: Arguments of the default policy.
        baseline: Only "symnco", the baselines above.
        num_augment: Copies A of each instance, the first being the instance itself.
        augment_fn: "symmetric", "dihedral8" or a function.
        feats: Coordinate keys to augment (default: all present).
        alpha: Weight of the invariance loss.
        beta: Weight of the solution symmetricity loss.
        num_starts: Starts S of each copy; 0 or 1: none is forced; None: as many as the environment
            offers.
        kwargs: See :class:`REINFORCE`.
    """

    losses = ("reinforce",)
    default_metrics = {
        "train": ("loss", "reward", "loss_ps", "loss_ss", "loss_inv"),
        "val": ("reward", "max_reward", "max_aug_reward"),
        "test": ("reward", "max_reward", "max_aug_reward"),
    }
    support_reason = "its symmetries are those of coordinates in the plane"

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline: str = "symnco",
        num_augment: int = 4,
        augment_fn: Any = "symmetric",
        feats: Sequence[str] | None = None,
        alpha: float = 0.2,
        beta: float = 1.0,
        num_starts: int | None = 0,
        **kwargs: Any,
    ) -> None:
        if baseline != "symnco":
            raise ConfigError(
                f"expected baseline 'symnco' for SymNCO, got {baseline!r}; use REINFORCE for others"
            )
        check_at_least(1, num_augment=num_augment)
        check_at_least(0, num_starts=num_starts)
        if num_augment == 1 and num_starts in (0, 1):
            raise ConfigError(
                f"expected several copies or starts per instance to compare, got num_augment=1 "
                f"and num_starts={num_starts}; raise one of them"
            )
        if num_augment > 1 and feats is None and not has_coordinates(env.instance_shapes):
            raise UnsupportedError(
                f"expected an environment with coordinates for SymNCO, got {env.name!r}, whose "
                "instances have none to rotate; use POMO, or name its coordinates in feats"
            )
        policy = self.default_policy(SymNCOPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, "no", **kwargs)
        self.num_augment, self.num_starts = num_augment, num_starts
        self.augment_settings = {"augment_fn": augment_fn, "feats": feats}
        self._augmentation()  # rejects bad settings before the first step
        if num_augment > 1:
            env.check_augmentation(augment_fn)
        self.alpha, self.beta = alpha, beta

    @classmethod
    def supports(cls, env_name: str) -> bool:
        """Whether the default policy knows the problem, and it has coordinates."""
        return super().supports(env_name) and has_coordinates(ENVS[env_name].instance_shapes)

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Solves all copies of a batch from all starts; in training also computes the loss."""
        td = self.env.reset(batch)
        if self.num_augment > 1:
            td = self._augmentation(phase, batch_idx)(td)  # [A * B]
        num_starts = self.env.get_num_starts(td) if self.num_starts is None else self.num_starts
        out = self.policy(
            td,
            self.env,
            phase=phase,
            # More than one start asks for multi-start decoding, whatever the decode type.
            num_starts=num_starts if num_starts > 1 else None,
            rng=self.action_rng(phase, batch_idx),
        )
        axes = (self.num_augment, max(num_starts, 1))
        reward = unbatchify(out["reward"], axes)  # [B, A, S]
        if phase == "train":
            self._add_loss(out, reward, unbatchify(out["log_likelihood"], axes))
        best = reward.amax(-1)  # [B, A]
        out["max_reward"] = best[:, 0]  # [B]
        out["max_aug_reward"] = best.amax(-1)  # [B]
        return self.log_metrics(out, phase, dataloader_idx, batch_size=batch.batch_size[0])

    def _add_loss(self, out: dict[str, Any], reward: Tensor, log_likelihood: Tensor) -> None:
        """Adds `loss` and its terms to the policy's output; `reward` is `[B, A, S]`."""
        num_augment, num_starts = reward.shape[1:]
        none = reward.new_zeros(())
        loss_ps = loss_ss = loss_inv = none
        if num_augment > 1:
            advantage = self.advantage_scaler(shared_advantage(reward, (1, 2)))
            loss_ps = reinforce_loss(advantage, log_likelihood)
        if num_starts > 1:
            advantage = self.advantage_scaler(shared_advantage(reward, 2))
            loss_ss = reinforce_loss(advantage, log_likelihood)
        if num_augment > 1 and self.alpha:
            loss_inv = invariance_loss(unbatchify(out["proj_embeddings"], num_augment))
        loss = loss_ps + self.beta * loss_ss + self.alpha * loss_inv
        out.update(
            loss=loss + out.get("auxiliary_loss", 0.0),  # balance of experts, where there are any
            loss_ps=loss_ps,
            loss_ss=loss_ss,
            loss_inv=loss_inv,
        )

    def _augmentation(self, phase: str = "train", batch_idx: int = 0) -> StateAugmentation:
        """The augmentation with a separate random stream for each batch.

        Validation and test see the same copies in every epoch, so that epochs can be compared.
        """
        epoch = self.current_epoch if phase == "train" else 0
        key = (self.run_seed, "augmentation", phase, epoch, batch_idx, self.global_rank)
        rng = derive_generator(*key)
        return StateAugmentation(num_augment=self.num_augment, rng=rng, **self.augment_settings)
