"""PolyNet: many strategies in one network, of which the best is reinforced (Hottung et al., 2025).

Paper: https://arxiv.org/abs/2402.14048.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.ops import gather_by_index, unbatchify
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.precision import match_precision
from rl4co.models.rl.best_of import best_rewards, default_augmentation
from rl4co.models.rl.losses import best_of_advantage, reinforce_loss
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.rl.saved_policies import load_policy
from rl4co.models.zoo.matnet import MatNet
from rl4co.models.zoo.polynet.decoder import STRATEGY
from rl4co.models.zoo.polynet.policy import PolyNetPolicy


@MODELS.register("polynet")
class PolyNet(REINFORCE):
    """REINFORCE on the best of k solutions, one by each strategy (the loss of Poppy).

    $$L = -\\frac{1}{B} \\sum_b \\Big(\\max_k R_{bk} - \\frac{1}{K} \\sum_k R_{bk}\\Big)
      \\log \\pi(a_{b k^*} | x_b, v_{k^*})$$

    The k solutions are decoded without gradients; then the likelihood of the best alone is
    computed with gradients, all steps at once.

    Validation and test draw `val_num_solutions` solutions of each instance under each augmentation;
    the metrics are `reward` (mean), `max_reward` (best of the original instance, or the mean over
    augmentations where the original is not the first of them) and `max_aug_reward` (best of all).

    Args:
        policy: Policy with strategies (default: :class:`PolyNetPolicy` for the environment).
        k: Number of strategies, that of the policy if you pass one.
        val_num_solutions: Solutions per instance and augmentation at validation and test.
        encoder_type: "AM", or "MatNet" for problems that are defined by a matrix.
        base_model_checkpoint_path: Checkpoint, policy folder or name of a pretrained Attention
            Model or POMO to start from: its settings and weights are taken over.
        policy_kwargs: Arguments of the default policy.
        baseline: Only "shared", the mean of the k solutions.
        num_augment: Augmentations at validation and test (1 = none). Default: 8, and none for
            problems that have no coordinates to augment.
        augment_fn: "dihedral8", "symmetric" or a function.
        first_aug_identity: Whether the first augmentation is the instance itself.
        feats: Coordinate keys to augment (default: all present).
        kwargs: Further arguments, and those not listed here: see :class:`REINFORCE`.
    """

    losses = ("reinforce",)
    default_metrics = {
        "train": ("loss", "reward", "max_reward", "bl_val"),
        "val": ("reward", "max_reward", "max_aug_reward"),
        "test": ("reward", "max_reward", "max_aug_reward"),
    }

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        k: int = 128,
        val_num_solutions: int = 800,
        encoder_type: str = "AM",
        base_model_checkpoint_path: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline: str = "shared",
        num_augment: int | None = None,
        augment_fn: Any = "dihedral8",
        first_aug_identity: bool = True,
        feats: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if baseline != "shared":
            raise ConfigError(f"expected baseline 'shared' for PolyNet, got {baseline!r}")
        check_at_least(1, k=k, val_num_solutions=val_num_solutions, num_augment=num_augment)
        settings: dict[str, Any] = {"k": k, "encoder_type": encoder_type, **(policy_kwargs or {})}
        if base_model_checkpoint_path is not None:
            if policy is not None:
                raise ConfigError("expected policy or base_model_checkpoint_path, got both")
            base = _load_policy(base_model_checkpoint_path, env.name)
            policy = PolyNetPolicy.from_base(base, **settings)
            # What is saved must not ask for the file of the base again when it is loaded.
            taken = {**policy._init_arguments}
            self._init_arguments |= {"base_model_checkpoint_path": None, "policy_kwargs": taken}
        else:
            if policy is None and encoder_type == "MatNet" and not MatNet.supports(env.name):
                raise UnsupportedError(
                    f"expected a problem defined by a matrix for encoder_type='MatNet', got "
                    f"{env.name!r}; use encoder_type='AM'"
                )
            policy = self.default_policy(PolyNetPolicy, env, policy, policy_kwargs, **settings)
        _check_strategies(policy, k, val_num_solutions)
        super().__init__(env, policy, baseline, **kwargs)
        self.k, self.val_num_solutions = k, val_num_solutions
        self.augment = default_augmentation(env, num_augment, augment_fn, first_aug_identity, feats)

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Many solutions of each instance; in training also the loss of the best."""
        td = self.env.reset(batch)
        rng = self.action_rng(phase, batch_idx)
        out = self._learn(td, rng) if phase == "train" else self._search(td, phase, rng)
        return self.log_metrics(out, phase, dataloader_idx, batch_size=batch.batch_size[0])

    def _learn(self, td: TensorDictBase, rng: torch.Generator) -> dict[str, Any]:
        """Loss of the best of k solutions."""
        encoder: nn.Module = self.policy.get_submodule("encoder")
        hidden, _ = encoder(match_precision(td, self.policy))
        with torch.no_grad():
            solutions = self.policy(
                td, self.env, phase="train", num_samples=self.k, hidden=hidden, rng=rng
            )
        reward = unbatchify(solutions["reward"], self.k)  # [B, K]
        advantage, best = best_of_advantage(reward)  # [B], [B]
        actions = gather_by_index(unbatchify(solutions["actions"], self.k), best)  # [B, T]
        best_solution = self.policy(
            td.copy().update({STRATEGY: best}),
            self.env,
            phase="train",
            actions=actions,
            calc_reward=False,
            hidden=hidden,
        )
        loss = reinforce_loss(self.advantage_scaler(advantage), best_solution["log_likelihood"])
        return {
            "loss": loss,
            "reward": reward,
            "max_reward": reward.amax(1),
            "bl_val": reward.mean(1),
        }

    def _search(self, td: TensorDictBase, phase: str, rng: torch.Generator) -> dict[str, Any]:
        """The best of many solutions under each augmentation."""
        size = td.batch_size[0]
        # One augmentation after the other: so many solutions fill the memory as it is.
        copies = [td] if self.augment is None else self.augment(td).split(size)
        rewards: list[Tensor] = []
        for each in copies:
            out = self.policy(
                each,
                self.env,
                phase=phase,
                num_samples=self.val_num_solutions,
                return_actions=False,
                rng=rng,
            )
            rewards.append(unbatchify(out["reward"], self.val_num_solutions))  # [B, S]
        reward = torch.stack(rewards, 1)  # [B, A, S]
        return {"reward": reward, **best_rewards(reward, self.augment)}


def _check_strategies(policy: nn.Module, k: int, val_num_solutions: int) -> None:
    """Raises unless the policy has k strategies, and enough of them to decode greedily."""
    strategies = getattr(policy, "k", None)
    if strategies is None:
        raise UnsupportedError(
            f"expected a PolyNetPolicy for PolyNet, got {type(policy).__name__}, which has no "
            "strategies; PolyNetPolicy.from_base(policy) adds them"
        )
    if strategies != k:
        raise ConfigError(f"expected k={strategies}, as the policy has it, got {k}; pass the same")
    for phase in ("val", "test"):
        decode_type = getattr(policy, f"{phase}_decode_type", None)
        if decode_type == "greedy" and val_num_solutions > k:
            raise ConfigError(
                f"expected val_num_solutions of at most k={k} with {phase}_decode_type='greedy', "
                f"got {val_num_solutions}; each strategy has one greedy solution"
            )


def _load_policy(path: str | Path, env_name: str) -> nn.Module:
    """The policy of a pretrained model, policy folder or checkpoint; raises for other problems."""
    policy: nn.Module = load_policy(path)[0]
    if getattr(policy, "env_name", env_name) != env_name:
        raise ConfigError(
            f"expected a base model for {env_name}, got one for {policy.env_name} in {path}"
        )
    return policy
