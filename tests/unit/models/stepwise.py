"""A tiny stepwise policy for the TSP with dense rewards, for the tests of StepwisePPO."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.ops import gather_nodes, gather_points, step_entropy
from rl4co.decoding.logits import sample_actions
from rl4co.models.rl.stepwise_ppo import solve_by_acting


class TinyStepwisePolicy(nn.Module):
    """Scores each node from its position relative to the current and the first node.

    Args:
        hidden: Width of the network.
        with_value: Whether `act` gives values, too.
    """

    def __init__(self, hidden: int = 32, with_value: bool = True) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(5, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.critic = nn.Sequential(nn.Linear(5, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.with_value = with_value

    def evaluate_state(self, td: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[B, N]` and values `[B]` of states."""
        locs, mask = td["locs"], td["action_mask"]
        ends = torch.stack([td["current_node"], td["first_node"]], -1)  # [B, 2]
        away = locs.unsqueeze(-2) - gather_points(locs, ends).unsqueeze(-3)  # [B, N, 2, 2]
        begun = (td["i"] > 0).unsqueeze(-1).expand(*mask.shape, 1)  # [B, N, 1]
        features = torch.cat([away.flatten(-2) * begun, begun.float()], -1)  # [B, N, 5]
        logits = self.actor(features).squeeze(-1).masked_fill(~mask, -torch.inf)
        left = mask.float().unsqueeze(-1)
        value = (self.critic(features) * left).sum((-2, -1))  # what is left costs something each
        return logits.log_softmax(-1), value

    def act(self, td: TensorDictBase, env: Any, phase: str = "train", rng: Any = None) -> Any:
        log_probs, value = self.evaluate_state(td)
        greedy = phase != "train"
        action = log_probs.argmax(-1) if greedy else sample_actions(log_probs, rng)
        td.set("action", action).set("logprobs", gather_nodes(log_probs, action))
        return td.set("value", value) if self.with_value else td

    def evaluate(self, td: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        log_probs, value = self.evaluate_state(td)
        return gather_nodes(log_probs, td["action"]), value, step_entropy(log_probs)

    def forward(
        self,
        td: TensorDictBase,
        env: Any,
        phase: str = "val",
        decode_type: str = "greedy",
        rng: torch.Generator | None = None,
    ) -> Any:
        sampled = decode_type == "sampling"
        return solve_by_acting(self, td, env, phase="train" if sampled else phase, rng=rng)
