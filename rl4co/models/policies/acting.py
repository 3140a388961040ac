"""Policies that act step by step: one action in each state, with its probability and value."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import gather_nodes, step_entropy
from rl4co.decoding.logits import sample_actions
from rl4co.envs.base import RL4COEnvBase


class StepwiseActor:
    """`act` of a stepwise policy, from the probabilities of all actions and the value of a state.

    See :class:`~rl4co.models.rl.stepwise_ppo.StepwisePolicy`.
    """

    def evaluate_state(self, td: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[B, A]` of all actions, and values `[B]` of states."""
        raise NotImplementedError

    def act(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        phase: str = "train",
        rng: torch.Generator | None = None,
    ) -> TensorDictBase:
        """Samples an action in each state; in validation and test, chooses the likeliest."""
        log_probs, value = self.evaluate_state(td)
        action = sample_actions(log_probs, rng) if phase == "train" else log_probs.argmax(-1)
        log_prob = gather_nodes(log_probs, action)
        return td.copy().update({"action": action, "logprobs": log_prob, "value": value})

    def evaluate_action(self, td: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability of `td["action"]`, value of the state, entropy: `[B]` each."""
        log_probs, value = self.evaluate_state(td)
        return gather_nodes(log_probs, td["action"]), value, step_entropy(log_probs)
