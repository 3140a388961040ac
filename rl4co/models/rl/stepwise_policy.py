"""Any constructive policy as one that acts step by step, for :class:`StepwisePPO`.

The Attention Model and its relatives encode an instance once and decode many steps. Here each step
is independent: the instance is encoded, one action is chosen, and a critic estimates what the
remaining steps will earn.
"""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import gather_points
from rl4co.decoding.logits import process_logits
from rl4co.decoding.rollout import expand_solutions
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.acting import StepwiseActor
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.policies.modules import ConstructiveDecoder
from rl4co.models.policies.precision import match_precision
from rl4co.models.rl.critic import embed_dim_of


class StepwiseConstructivePolicy(StepwiseActor, nn.Module):
    """A constructive policy with a critic of partial solutions.

    $$V(s_t) = \\mathrm{MLP}\\Big[\\frac{1}{N} \\sum_n h_n, \\;
      \\frac{1}{N} \\sum_{n \\text{ allowed}} h_n, \\; h_{\\mathrm{cur}}\\Big]$$

    The second entry tells which actions are left, the third the current node.

    Args:
        policy: Policy whose encoder returns node embeddings `[B, N, D]`, one per action, and whose
            decoder looks at the state alone. Its weights are trained.
        critic: `[B, 3 D]` → `[B, 1]` (default: two layers).
    """

    def __init__(self, policy: ConstructivePolicy, critic: nn.Module | None = None) -> None:
        super().__init__()
        decoder = getattr(policy, "decoder", None)
        if not isinstance(decoder, ConstructiveDecoder) or (
            type(decoder).start_memory is not ConstructiveDecoder.start_memory
        ):
            raise UnsupportedError(
                "expected a constructive policy without memory, whose steps are independent, "
                f"got {type(policy).__name__}; write methods act and evaluate, see StepwisePolicy"
            )
        dim = embed_dim_of(policy)
        self.policy = policy
        self.critic = critic or nn.Sequential(nn.Linear(3 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, td: TensorDictBase, env: RL4COEnvBase, **options: Any) -> dict[str, Any]:
        """Complete solutions by the decode loop; arguments are those of the policy."""
        out: dict[str, Any] = self.policy(td, env, **options)
        return out

    def evaluate_state(self, td: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[B, N]` of all actions, and values `[B]` of states."""
        policy = self.policy
        state = dict(match_precision(td, self).items())
        single = expand_solutions(state, 1)  # [B, 1, ...]
        hidden, _ = policy.encoder(state)
        cache = policy.decoder.prepare(hidden, state)
        logits = policy.decoder(single, cache).squeeze(1)  # [B, N]
        log_probs = process_logits(
            logits,
            state["action_mask"],
            temperature=policy.temperature,
            tanh_clipping=policy.tanh_clipping,
            mask_logits=policy.mask_logits,
        )
        return log_probs, self.critic(self._summary(hidden, state)).squeeze(-1)

    def _summary(self, hidden: Any, state: dict[str, Tensor]) -> Tensor:
        """Input of the critic, `[B, 3 D]`."""
        mask = state["action_mask"]
        if not isinstance(hidden, Tensor) or hidden.shape[:2] != mask.shape:
            raise UnsupportedError(
                f"expected one embedding for each of {mask.shape[-1]} actions from the encoder, "
                f"got {type(self.policy.encoder).__name__}'s output of another kind; write methods "
                "act and evaluate, see StepwisePolicy"
            )
        left = (hidden * mask.unsqueeze(-1)).mean(1)  # [B, D]
        place = state["current_node"].view(-1, 1) if "current_node" in state else None
        current = torch.zeros_like(left) if place is None else gather_points(hidden, place)[:, 0]
        return torch.cat([hidden.mean(1), left, current], -1)

    def evaluate(self, td: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability of `td["action"]`, value of the state, entropy: `[B]` each."""
        return self.evaluate_action(td)
