"""DeepACO: REINFORCE for ants whose solutions are improved by local search (Ye et al., 2023).

Paper: https://arxiv.org/abs/2309.14032. Original code: henry-yeh/DeepACO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.ops import batchify, flatten_starts, unbatchify
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.hooks import defines_hook
from rl4co.models.policies.nonautoregressive import EdgeWeights
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.zoo.deepaco.policy import DeepACOPolicy

#: Environments with an edge embedding.
SUPPORTED = ("cvrp", "cvrpmvc", "op", "pctsp", "spctsp", "tsp")


@MODELS.register("deepaco")
class DeepACO(REINFORCE):
    """REINFORCE with the mean of an instance's ants as baseline.

    With local search, the advantage is a mixture of that after the search and that before it:

    $$A_a = W (R^{ls}_a - \\bar R^{ls}) + (1 - W) (R_a - \\bar R)$$

    Validation and test run a colony; `reward` is that of its best solutions, `mean_reward` that of
    the first ants before any search.

    Args:
        policy: Policy (default: :class:`DeepACOPolicy`).
        policy_kwargs: Arguments of the default policy.
        baseline: Must be "shared".
        train_with_local_search: Whether training looks at solutions after local search; None: if
            the problem has one.
        ls_reward_aug_W: Weight W of the reward after the search.
        guided_rounds: Perturbations guided by the weights in training (0: a plain search).
        local_search_kwargs: Options of `env.local_search` in training.
        kwargs: Further arguments, and those not listed here: see :class:`REINFORCE`.
    """

    losses = ("reinforce",)
    #: Local search, pheromone and sub-solvers run on the CPU.
    searches_on_host = True
    supported_envs = SUPPORTED
    support_reason = "its network needs an edge embedding of the problem"
    default_metrics = {
        "train": ("loss", "reward", "bl_val", "improved_reward"),
        "val": ("reward", "mean_reward"),
        "test": ("reward", "mean_reward"),
    }

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline: str = "shared",
        train_with_local_search: bool | None = None,
        ls_reward_aug_W: float = 0.95,
        guided_rounds: int = 0,
        local_search_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if baseline != "shared":
            raise ConfigError(
                f"expected baseline 'shared' for DeepACO, got {baseline!r}: ants of an instance "
                "are compared with each other"
            )
        if not 0.0 <= ls_reward_aug_W <= 1.0:
            raise ConfigError(f"expected ls_reward_aug_W in [0, 1], got {ls_reward_aug_W}")
        policy = self.default_policy(DeepACOPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, baseline, **kwargs)
        self.searches = resolve_search(env, train_with_local_search)
        self.ls_reward_aug_W = ls_reward_aug_W
        self.guided_rounds = guided_rounds
        self.local_search_kwargs = dict(local_search_kwargs or {})

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Training: a loss from the ants of one iteration. Otherwise: a search."""
        td = self.env.reset(batch)
        rng = self.action_rng(phase, batch_idx)
        out = self._train(td, batch, rng) if phase == "train" else self._search(td, phase, rng)
        return self.log_metrics(out, phase, dataloader_idx, batch_size=td.batch_size[0])

    def _train(
        self, td: TensorDictBase, batch: TensorDictBase, rng: torch.Generator
    ) -> dict[str, Any]:
        policy: Any = self.policy
        hidden: EdgeWeights = policy.edge_weights(td)
        actions = policy.sample(td, self.env, policy.n_ants["train"], hidden, rng)  # [B, A, T]
        log_likelihood = policy.log_likelihood(td, self.env, actions, hidden)  # [B, A]
        reward = ant_rewards(self.env, td, actions)
        out: dict[str, Any] = {"reward": reward, "log_likelihood": log_likelihood}
        target = reward
        if self.searches:
            improved = policy.improve(
                td, self.env, actions, hidden, self.guided_rounds, **self.local_search_kwargs
            )
            out["improved_reward"] = ant_rewards(self.env, td, improved)
            weight = self.ls_reward_aug_W
            target = weight * out["improved_reward"] + (1.0 - weight) * reward
        return self.calculate_loss(td, batch, out, target, log_likelihood)

    def _search(self, td: TensorDictBase, phase: str, rng: torch.Generator) -> dict[str, Any]:
        result = self.policy.search(td, self.env, phase, rng=rng)  # type: ignore[operator]
        return {"reward": result.reward, "mean_reward": result.mean_reward[:, 0]}


def resolve_search(env: RL4COEnvBase, wanted: bool | None) -> bool:
    """Whether to use local search: as wanted, or if the problem has one."""
    return defines_hook(env, "_local_search") if wanted is None else wanted


def ant_rewards(env: RL4COEnvBase, td: TensorDictBase, actions: Tensor) -> Tensor:
    """Rewards `[B, A]` of solutions `[B, A, T]`."""
    ants = actions.shape[1]
    rows = env.get_reward(batchify(td, ants), flatten_starts(actions), check_solution=False)
    return unbatchify(rows, ants)
