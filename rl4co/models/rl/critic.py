"""Critic: estimates the reward of an instance from its embedding."""

from __future__ import annotations

import copy
import inspect

from collections.abc import Callable
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.arguments import ChecksArguments
from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.models.policies.precision import match_precision
from rl4co.models.rl.processes import global_mean


class CriticNetwork(ChecksArguments, nn.Module):
    """Value $V(x) = \\mathrm{MLP}(\\mathrm{mean}_n\\, h_n)$ of an instance.

    Args:
        encoder: Instance → (`hidden [B, N, D]`, init embeddings); with `customized`, anything.
        value_head: `[B, D]` → `[B, 1]` (default: two layers); with `customized`, the encoder's
            output and `hidden` → value.
        embed_dim: Embedding size D.
        hidden_dim: Width of the default value head.
        customized: Whether encoder and value head share a special output: the value is
            `value_head(encoder(x), hidden)`.

    Shapes:
        state with batch `[B]` → `[B]`; with `customized`, as the value head says
    """

    def __init__(
        self,
        encoder: nn.Module,
        value_head: nn.Module | None = None,
        embed_dim: int = 128,
        hidden_dim: int = 512,
        customized: bool = False,
    ) -> None:
        super().__init__()
        if customized and value_head is None:
            raise ConfigError("expected a value_head for a customized critic, got None")
        self.encoder, self.customized = encoder, customized
        self.value_head = value_head or nn.Sequential(
            nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1)
        )

    def forward(self, td: TensorDictBase | Tensor, hidden: Any = None) -> Tensor:
        """Values `[B]`.

        Args:
            td: State after reset, batch `[B]`.
            hidden: Second input of a customized value head.
        """
        if self.customized:
            value: Tensor = self.value_head(self.encoder(td), hidden)
            return value
        assert not isinstance(td, Tensor)
        embeddings, _ = self.encoder(match_precision(td, self))  # [B, N, D]
        return self.value_head(embeddings.mean(1)).squeeze(-1)  # [B]

    @torch.no_grad()
    def center_(self, td: TensorDictBase, reward: Tensor) -> None:
        """Shifts all values so that their mean on a batch is that of the rewards.

        A new value head starts near zero, wherever the rewards are. Until it has come all the way,
        every solution looks worse than expected, and the policy learns to avoid whatever it did.
        The shift is that of the value head's last bias. Heads that do not end in a linear layer
        with a bias, heads whose bias does not learn, and customized critics are left alone.

        Args:
            td: State after reset, batch `[B]`.
            reward: `[B]`, or `[B, S]` with several solutions per instance.
        """
        head = self.value_head
        last = head[-1] if isinstance(head, nn.Sequential) and len(head) else head
        bias = last.bias if isinstance(last, nn.Linear) and not self.customized else None
        if bias is not None and bias.requires_grad:
            bias.add_(global_mean(reward) - global_mean(self(td).to(reward.dtype)))


def create_critic_from_actor(
    policy: nn.Module, backbone: str = "encoder", **options: Any
) -> CriticNetwork:
    """A critic with a copy of the policy's encoder (with separate weights).

    A policy whose encoder returns more than node embeddings makes its critic itself, by a method
    `make_critic(**options)`.

    Args:
        policy: Policy with an encoder that returns node embeddings.
        backbone: Attribute of the policy that is its encoder.
        options: Further arguments of :class:`CriticNetwork`; `embed_dim` is the policy's unless it
            is given.
    """
    make_critic: Callable[..., CriticNetwork] | None = getattr(policy, "make_critic", None)
    if make_critic is not None:
        return make_critic(**options)
    encoder = getattr(policy, backbone, None)
    if not isinstance(encoder, nn.Module):
        raise UnsupportedError(
            f"expected a policy with a network {backbone!r} to build a critic from, got "
            f"{type(policy).__name__}; pass a CriticNetwork"
        )
    return CriticNetwork(copy.deepcopy(encoder), **{"embed_dim": embed_dim_of(policy), **options})


def embed_dim_of(policy: nn.Module) -> int:
    """Embedding size that a policy was built with, or the default of its class."""
    recorded = getattr(policy, "_init_arguments", {}).get("embed_dim")
    parameter = inspect.signature(type(policy).__init__).parameters.get("embed_dim")
    default = parameter.default if parameter is not None else None
    return next((size for size in (recorded, default) if isinstance(size, int)), 128)
