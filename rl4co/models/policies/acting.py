"""Policies that act step by step: one action in each state, with its probability and value."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import gather_nodes, step_entropy
from rl4co.decoding.logits import sample_actions
from rl4co.envs.base import RL4COEnvBase


class ActsByJudging:
    """`act` of a stepwise policy, from what it thinks of all actions of a state.

    See :class:`~rl4co.models.rl.stepwise_ppo.StepwisePolicy`.
    """

    def judge(self, td: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[B, A]` of all actions, and values `[B]` of states."""
        raise NotImplementedError

    def act(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        phase: str = "train",
        rng: torch.Generator | None = None,
    ) -> TensorDictBase:
        """Samples an action in each state; in validation and test, takes the likeliest."""
        log_probs, value = self.judge(td)
        action = sample_actions(log_probs, rng) if phase == "train" else log_probs.argmax(-1)
        chosen = gather_nodes(log_probs, action)
        return td.copy().update({"action": action, "logprobs": chosen, "value": value})

    def judge_action(self, td: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability of `td["action"]`, value of the state, entropy: `[B]` each."""
        log_probs, value = self.judge(td)
        return gather_nodes(log_probs, td["action"]), value, step_entropy(log_probs)
