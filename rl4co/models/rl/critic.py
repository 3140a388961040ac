"""Critic: estimates the reward of an instance from its embedding."""

from __future__ import annotations

import copy
import inspect

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.models.policies.entry import match_precision


class CriticNetwork(nn.Module):
    """Value $V(x) = \\mathrm{MLP}(\\mathrm{mean}_n\\, h_n)$ of an instance.

    Args:
        encoder: Instance → (`hidden [B, N, D]`, init embeddings).
        value_head: `[B, D]` → `[B, 1]` (default: two layers).
        embed_dim: Embedding size D.
        hidden_dim: Width of the default value head.

    Shapes:
        state with batch `[B]` → `[B]`
    """

    def __init__(
        self,
        encoder: nn.Module,
        value_head: nn.Module | None = None,
        embed_dim: int = 128,
        hidden_dim: int = 512,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.value_head = value_head or nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1)
        )

    def forward(self, td: TensorDictBase) -> Tensor:
        """Values `[B]`."""
        hidden, _ = self.encoder(match_precision(td, self))  # [B, N, D]
        return self.value_head(hidden.mean(1)).squeeze(-1)  # [B]


def create_critic_from_actor(policy: nn.Module, **options: object) -> CriticNetwork:
    """A critic with a copy of the policy's encoder (own weights from then on).

    Args:
        policy: Policy with an `encoder` that gives node embeddings.
        options: Further arguments of :class:`CriticNetwork`; `embed_dim` is the policy's unless it
            is given.
    """
    encoder = getattr(policy, "encoder", None)
    if encoder is None:
        raise UnsupportedError(
            "expected a policy with an encoder to build a critic from, got "
            f"{type(policy).__name__}; pass a CriticNetwork"
        )
    arguments = {"embed_dim": _embed_dim(policy), **options}
    return CriticNetwork(copy.deepcopy(encoder), **arguments)  # type: ignore[arg-type]


def _embed_dim(policy: nn.Module) -> int:
    """Embedding size that a policy was built with, or the default of its class."""
    given = getattr(policy, "_init_arguments", {}).get("embed_dim")
    parameter = inspect.signature(type(policy).__init__).parameters.get("embed_dim")
    default = parameter.default if parameter is not None else None
    return next((size for size in (given, default) if isinstance(size, int)), 128)
