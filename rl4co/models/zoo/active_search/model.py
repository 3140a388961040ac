"""Active search: all weights of the policy are trained on one instance (Bello et al., 2017).

Paper: https://arxiv.org/abs/1611.09940.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.registry import MODELS
from rl4co.data.dataset import TensorDictDataset
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.instance_copies import InstanceCopies
from rl4co.models.rl.instance_search import Candidates, InstanceSearch
from rl4co.models.rl.losses import reinforce_loss
from rl4co.models.rl.optimizers import OptimizerLike
from rl4co.models.rl.saved_policies import read_policy
from rl4co.models.rl.transductive import TransductiveModel
from rl4co.models.zoo.am import AttentionModelPolicy


class PolicySearch(InstanceSearch):
    """REINFORCE on the copies of one instance, with the mean of a copy's solutions as baseline.

    Args:
        policy: Copy of the policy, which learns.
        copies: The instance and its copies.
    """

    def __init__(self, policy: nn.Module, copies: InstanceCopies) -> None:
        self.adapted, self.copies = policy, copies

    def sample(self, incumbent: Tensor | None, rng: torch.Generator) -> Candidates:
        """Solutions of the policy as it is now; the incumbent is not looked at."""
        solutions = self.copies.solve(self.adapted, rng=rng)
        advantage = solutions.rewards - solutions.rewards.mean(-1, keepdim=True)  # [1, K, S]
        loss = reinforce_loss(
            advantage.to(solutions.log_likelihood.dtype), solutions.log_likelihood
        )
        return Candidates(solutions.actions.flatten(1, 2), solutions.rewards.flatten(1), loss)


@MODELS.register("active_search")
class ActiveSearch(TransductiveModel):
    """Trains all parameters of a policy on each instance by itself.

    $$\\nabla L = -\\frac{1}{KS} \\sum_{k, s} \\Big(R(a^{k,s}) - \\frac{1}{S} \\sum_{s'} R(a^{k,s'})
      \\Big) \\nabla \\log \\pi(a^{k,s} | x^k)$$

    for K symmetric copies $x^k$ of the instance with S solutions each.

    Args:
        policy: Pretrained policy, or its checkpoint or folder; not changed. Default: an Attention
            Model without training.
        dataset: Instances to search, see :class:`TransductiveModel`.
        batch_size: Instances of a training step; they are searched one after the other.
        augment_size: Copies of an instance under symmetries (default: 8 where there are any).
        augment_dihedral: Symmetries of the square, or random rotations and reflections.
        max_runtime: Seconds for each instance; None: no limit.
        save_path: File for the incumbents, renewed as the search goes; an existing one is
            continued.
        optimizer_kwargs: Its arguments (default: those of the EAS paper's active search).
        policy_kwargs: Arguments of the default policy.
        kwargs: Further arguments, and those not listed here: see :class:`TransductiveModel`.
    """

    search_size = 1

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | str | Path | None = None,
        dataset: TensorDictDataset | TensorDictBase | str | Path | None = None,
        batch_size: int = 1,
        max_iters: int = 200,
        augment_size: int | None = None,
        augment_dihedral: bool = True,
        num_parallel_runs: int = 1,
        max_runtime: float | None = 86_400,
        save_path: str | Path | None = None,
        optimizer: OptimizerLike = "Adam",
        optimizer_kwargs: Mapping[str, Any] | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            env,
            self.default_policy(AttentionModelPolicy, env, read_policy(policy), policy_kwargs),
            dataset=dataset,
            batch_size=batch_size,
            max_iters=max_iters,
            max_runtime=max_runtime,
            save_path=save_path,
            augment_size=augment_size,
            augment_dihedral=augment_dihedral,
            num_parallel_runs=num_parallel_runs,
            optimizer=optimizer,
            optimizer_kwargs=optimizer_kwargs or {"lr": 2.6e-4, "weight_decay": 1e-6},
            **kwargs,
        )

    def start_search(self, td: TensorDictBase) -> PolicySearch:
        """The search on one reset instance."""
        return PolicySearch(self.fresh_policy(), self.copies(td))
