"""GFACS: ants trained by trajectory balance (Kim et al., 2025).

Paper: https://arxiv.org/abs/2403.07041. Original code: ai4co/gfacs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.nonautoregressive import EdgeWeights
from rl4co.models.rl.base import RL4COLitModule
from rl4co.models.zoo.deepaco import SUPPORTED, ant_rewards, resolve_search
from rl4co.models.zoo.gfacs.balance import (
    log_backward_of_routes,
    log_backward_of_tours,
    ramp,
    trajectory_balance_loss,
)
from rl4co.models.zoo.gfacs.policy import GFACSPolicy


@MODELS.register("gfacs")
class GFACS(RL4COLitModule):
    """Trajectory balance for the solutions of the ants, and for what local search makes of them.

    $$L = (\\log Z + \\log P_F(a) - \\log P_B(a) + \\beta A_w(a))^2 +
      (\\log Z_{ls} + \\log P_F(a^{ls}) - \\log P_B(a^{ls}) + \\beta A(a^{ls}))^2$$

    with costs relative to their mean over the ants of an instance, $A$, and the mixture
    $A_w(a) = w A(a^{ls}) + (1 - w) A(a)$ that lets the cost after the search shape that before it.
    $\\beta$ and $w$ rise over the epochs.

    Args:
        policy: Policy (default: :class:`GFACSPolicy`).
        policy_kwargs: Arguments of the default policy.
        train_with_local_search: Whether to use local search in training; None: if the problem has
            one.
        guided_rounds: Perturbations guided by the weights in training (0: a plain search).
        local_search_kwargs: Options of `env.local_search` in training.
        beta_min: Inverse temperature in the first epoch.
        beta_max: Inverse temperature at the end.
        alpha_min: Weight w in the first epoch.
        alpha_max: Weight w at the end.
        epochs: Length of the schedules (default: that of the training).
        kwargs: Further arguments, and those not listed here: see :class:`RL4COLitModule`.
    """

    #: Local search, pheromone and sub-solvers run on the CPU.
    searches_on_host = True
    supported_envs = SUPPORTED
    support_reason = "its network needs an edge embedding of the problem"
    default_metrics = {
        "train": ("loss", "reward", "improved_reward", "on_policy_loss", "off_policy_loss"),
        "val": ("reward", "mean_reward"),
        "test": ("reward", "mean_reward"),
    }

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        train_with_local_search: bool | None = None,
        guided_rounds: int = 0,
        local_search_kwargs: Mapping[str, Any] | None = None,
        beta_min: float = 200.0,
        beta_max: float = 1000.0,
        alpha_min: float = 0.5,
        alpha_max: float = 0.99,
        epochs: int | None = None,
        **kwargs: Any,
    ) -> None:
        if not 0.0 <= alpha_min <= alpha_max <= 1.0 or not 0.0 < beta_min <= beta_max:
            raise ConfigError(
                "expected 0 <= alpha_min <= alpha_max <= 1 and 0 < beta_min <= beta_max, got "
                f"{alpha_min}, {alpha_max} and {beta_min}, {beta_max}"
            )
        policy = self.default_policy(GFACSPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, **kwargs)
        self.searches = resolve_search(env, train_with_local_search)
        self.guided_rounds = guided_rounds
        self.local_search_kwargs = dict(local_search_kwargs or {})
        self.beta, self.alpha, self.epochs = (beta_min, beta_max), (alpha_min, alpha_max), epochs

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Training: a loss from the ants of one iteration. Otherwise: a search."""
        td = self.env.reset(batch)
        rng = self.action_rng(phase, batch_idx)
        if phase == "train":
            out = self._train(td, rng)
        else:
            result = self.policy.search(td, self.env, phase, rng=rng)  # type: ignore[operator]
            out = {"reward": result.reward, "mean_reward": result.mean_reward[:, 0]}
        return self.log_metrics(out, phase, dataloader_idx, batch_size=td.batch_size[0])

    def schedule(self) -> tuple[float, float]:
        """$\\beta$ and w in this epoch."""
        trainer = getattr(self, "_trainer", None)
        length = self.epochs or (trainer.max_epochs if trainer is not None else None) or 1
        epoch = self.current_epoch + 1
        return ramp(*self.beta, epoch, length, logarithmic=True), ramp(*self.alpha, epoch, length)

    def _train(self, td: TensorDictBase, rng: torch.Generator) -> dict[str, Any]:
        policy: Any = self.policy
        beta, alpha = self.schedule()
        hidden: EdgeWeights = policy.edge_weights(td)
        log_z = policy.log_z(hidden)  # [B, 2]
        actions = policy.sample(td, self.env, policy.n_ants["train"], hidden, rng)  # [B, A, T]
        reward = ant_rewards(self.env, td, actions)
        energy = _energy(reward)
        out: dict[str, Any] = {"reward": reward}
        if self.searches:
            improved = policy.improve(
                td, self.env, actions, hidden, self.guided_rounds, **self.local_search_kwargs
            )
            out["improved_reward"] = ant_rewards(self.env, td, improved)
            after = _energy(out["improved_reward"])
            energy = alpha * after + (1.0 - alpha) * energy
            out["off_policy_loss"] = self._balance(td, improved, hidden, log_z[:, 1], after, beta)
        out["on_policy_loss"] = self._balance(td, actions, hidden, log_z[:, 0], energy, beta)
        out["loss"] = out["on_policy_loss"] + out.get("off_policy_loss", 0.0)
        return out

    def _balance(
        self,
        td: TensorDictBase,
        actions: Tensor,
        hidden: EdgeWeights,
        log_z: Tensor,
        energy: Tensor,
        beta: float,
    ) -> Tensor:
        """The loss of solutions `[B, A, T]`."""
        policy: Any = self.policy
        log_forward = policy.log_likelihood(td, self.env, actions, hidden)
        backward = log_backward_of_routes if hidden.graph.has_hub else log_backward_of_tours
        return trajectory_balance_loss(log_z, log_forward, backward(actions), energy, beta)


def _energy(reward: Tensor) -> Tensor:
    """Costs relative to the mean of their instance: `[B, A]` → `[B, A]`."""
    return reward.mean(1, keepdim=True) - reward
