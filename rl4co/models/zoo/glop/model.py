"""GLOP: REINFORCE for partitions whose tours a sub-solver makes (Ye et al., 2024).

Paper: https://arxiv.org/abs/2312.08224. Original code: henry-yeh/GLOP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import TensorDictBase
from torch import nn

from rl4co.core.errors import ConfigError
from rl4co.core.ops import batchify, flatten_starts, unbatchify
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.zoo.glop.policy import GLOPPolicy
from rl4co.models.zoo.glop.revision import Reviser, check_revisers


@MODELS.register("glop")
class GLOP(REINFORCE):
    """Policy gradient for partitions, with the mean of an instance's partitions as baseline.

    The reward of a partition is that of the solution after all its tours were solved anew.

    Args:
        env: Environment: `cvrpmvc` or `cvrp` (partitions), `pctsp` or `spctsp` (subsets), `tsp`
            (one tour, which the sub-solver improves).
        policy: Policy (default: :class:`GLOPPolicy`).
        policy_kwargs: Arguments of the default policy.
        baseline: Must be "shared".
        revisers: Revisers for the sub-solver "reviser", which is the default if there are some.
        kwargs: See :class:`REINFORCE`.
    """

    losses = ("reinforce",)
    #: Local search, pheromone and sub-solvers run on the CPU.
    searches_on_host = True
    supported_envs = ("cvrp", "cvrpmvc", "pctsp", "spctsp", "tsp")
    support_reason = "its network needs an edge embedding, and its sub-solvers closed tours"
    default_metrics = {"val": ("reward", "mean_reward"), "test": ("reward", "mean_reward")}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline: str = "shared",
        revisers: Sequence[Reviser] = (),
        **kwargs: Any,
    ) -> None:
        if baseline != "shared":
            raise ConfigError(f"expected baseline 'shared' for GLOP, got {baseline!r}")
        check_revisers(revisers)
        if revisers and policy is None:
            policy_kwargs = {"subprob_solver": "reviser", **(policy_kwargs or {})}
        policy = self.default_policy(GLOPPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, baseline, **kwargs)
        if revisers:
            used = getattr(self.policy, "subprob_solver", None)
            if used != "reviser":
                raise ConfigError(
                    f"expected a policy with subprob_solver 'reviser' for revisers, got {used!r}, "
                    "which has no use for them"
                )
            self.policy.revisers = tuple(revisers)  # type: ignore[assignment]

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Draws partitions and solves their tours; in training also computes the loss."""
        td = self.env.reset(batch)
        policy: Any = self.policy
        hidden = policy.edge_weights(td)
        rng, count = self.action_rng(phase, batch_idx), policy.n_samples
        actions = policy.sample(td, self.env, count, hidden, rng)  # [B, S, T]
        solved = flatten_starts(policy.solve_subproblems(td, actions))
        rows = self.env.get_reward(batchify(td, count), solved, check_solution=False)
        reward = unbatchify(rows, count)  # [B, S]
        out: dict[str, Any] = {"reward": reward}
        if phase == "train":
            log_likelihood = policy.log_likelihood(td, self.env, actions, hidden)
            self.calculate_loss(td, batch, out, reward, log_likelihood)
        else:
            out = {"reward": reward.amax(1), "mean_reward": reward.mean(1)}
        return self.log_metrics(out, phase, dataloader_idx, batch_size=td.batch_size[0])
