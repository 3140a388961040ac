"""Policies for job shops: Learning to Dispatch (Zhang et al., 2020) and its relatives.

Paper: https://arxiv.org/abs/2010.12367. Original code: zcajiayin/L2D.
"""

from __future__ import annotations

from typing import Any, overload

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.checks import check_positive
from rl4co.core.errors import ConfigError
from rl4co.decoding.logits import process_logits
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.acting import StepwiseActor
from rl4co.models.policies.autoregressive import AutoregressivePolicy
from rl4co.models.policies.precision import match_precision
from rl4co.models.zoo.l2d.actors import make_actor
from rl4co.models.zoo.l2d.decoder import L2DDecoder
from rl4co.models.zoo.l2d.encoder import NoEncoder, make_encoder


class L2DPolicy(AutoregressivePolicy):
    """Encoder of a job shop and scores of its jobs, exchangeable by one argument each.

    Args:
        encoder: "gcn" (Zhang et al., 2020), "hgnn" (Song et al., 2022), "matnet" (Kwon et al.,
            2021) or an encoder; None chooses by `het_emb`.
        decoder: "mlp", "pointer" or a decoder.
        embed_dim: Embedding size D.
        num_encoder_layers: Encoder layers.
        env_name: "jssp" or "fjsp".
        het_emb: Whether machines are embedded, too: "hgnn" rather than "gcn".
        scaling_factor: Unit of time; None: each instance's mean processing time, so that units do
            not matter.
        normalization: "batch", "instance", "layer" or None; padding never counts.
        init_embedding: Replaces the linear map of features in the encoder.
        stepwise_encoding: Whether each state is encoded anew, or the fresh instance once.
        tanh_clipping: Bound of the tanh clipping of logits.
        num_heads: Attention heads of "matnet" and "pointer".
        feedforward_hidden: Width of the encoder's networks (default: 2 D).
        actor_hidden_dim: Width of the decoder "mlp" (default: D).
        self_attention: Whether "matnet" has self-attention beside cross-attention.
        kwargs: See :class:`ConstructivePolicy`.
    """

    def __init__(
        self,
        encoder: nn.Module | str | None = None,
        decoder: L2DDecoder | str | None = None,
        embed_dim: int = 64,
        num_encoder_layers: int = 2,
        env_name: str = "fjsp",
        het_emb: bool = True,
        scaling_factor: float | None = None,
        normalization: str | None = "instance",
        init_embedding: nn.Module | None = None,
        stepwise_encoding: bool = False,
        tanh_clipping: float = 10.0,
        num_heads: int = 8,
        feedforward_hidden: int | None = None,
        actor_hidden_dim: int | None = None,
        self_attention: bool = True,
        **kwargs: Any,
    ) -> None:
        check_positive(scaling_factor=scaling_factor)
        if stepwise_encoding and isinstance(decoder, nn.Module):
            _check_extractor(decoder, encoder)
        if encoder is None:
            encoder = "hgnn" if het_emb else "gcn"
        if isinstance(encoder, str):
            encoder = make_encoder(
                encoder, embed_dim, num_encoder_layers, num_heads, normalization,
                feedforward_hidden, self_attention, scaling_factor, init_embedding,
            )  # fmt: skip
        if decoder is None or isinstance(decoder, str):
            has_machines = getattr(encoder, "has_machines", True)
            decoder = L2DDecoder(
                make_actor(decoder or "mlp", embed_dim, num_heads, actor_hidden_dim, has_machines),
                encoder if stepwise_encoding else None,
                scaling_factor,
            )
        super().__init__(
            encoder=NoEncoder() if stepwise_encoding else encoder,
            decoder=decoder,
            env_name=env_name,
            tanh_clipping=tanh_clipping,
            **kwargs,
        )


class L2DAttnPolicy(L2DPolicy):
    """MatNet and pointer: the paper's best policy for the FJSP.

    Args:
        encoder: See :class:`L2DPolicy`.
        decoder: See :class:`L2DPolicy`.
        num_heads: Attention heads.
        options: Further arguments of :class:`L2DPolicy`.

    Other arguments: see :class:`L2DPolicy`.
    """

    def __init__(
        self,
        encoder: nn.Module | str | None = "matnet",
        decoder: L2DDecoder | str | None = "pointer",
        embed_dim: int = 256,
        num_heads: int = 8,
        num_encoder_layers: int = 4,
        env_name: str = "fjsp",
        **options: Any,
    ) -> None:
        super().__init__(
            encoder=encoder or "matnet",
            decoder=decoder or "pointer",
            embed_dim=embed_dim,
            num_heads=num_heads,
            num_encoder_layers=num_encoder_layers,
            env_name=env_name,
            **options,
        )


class L2DPolicy4PPO(StepwiseActor, L2DPolicy):
    """A policy that encodes each state anew and estimates its value, for stepwise PPO.

    Args:
        encoder: See :class:`L2DPolicy`.
        decoder: See :class:`L2DPolicy`.
        critic: Pooled embeddings `[B, *]` → values `[B, 1]`.
        embed_dim: Embedding size D.
        env_name: "jssp" or "fjsp".
        het_emb: See :class:`L2DPolicy`.
        options: Further arguments of :class:`L2DPolicy`.
    """

    def __init__(
        self,
        encoder: nn.Module | str | None = None,
        decoder: L2DDecoder | str | None = None,
        critic: nn.Module | None = None,
        embed_dim: int = 64,
        env_name: str = "fjsp",
        het_emb: bool = True,
        **options: Any,
    ) -> None:
        if not options.setdefault("stepwise_encoding", True):
            raise ConfigError(
                "expected stepwise_encoding=True for stepwise PPO, got False; use L2DPolicy"
            )
        super().__init__(
            encoder=encoder,
            decoder=decoder,
            embed_dim=embed_dim,
            env_name=env_name,
            het_emb=het_emb,
            **options,
        )
        has_machines = getattr(self.decoder.feature_extractor, "has_machines", True)
        pooled_dim = 2 * embed_dim if has_machines else embed_dim
        self.critic = critic or nn.Sequential(
            nn.Linear(pooled_dim, embed_dim),
            nn.ReLU(),
            nn.Linear(embed_dim, embed_dim),
            nn.ReLU(),
            nn.Linear(embed_dim, 1),
        )

    def evaluate_state(self, td: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[B, A]` of all actions, and values `[B]` of states."""
        state = dict(match_precision(td, self).items())
        assert isinstance(self.decoder, L2DDecoder)
        logits, pooled = self.decoder.score(state)
        log_probs = process_logits(
            logits,
            state["action_mask"],
            temperature=self.temperature,
            tanh_clipping=self.tanh_clipping,
            mask_logits=self.mask_logits,
        )
        return log_probs, self.critic(pooled).squeeze(-1)

    @torch.no_grad()
    def generate(
        self, td: TensorDictBase, env: RL4COEnvBase | str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Solutions without gradients.

        Args:
            td: State after `env.reset`, batch `[B]`.
            env: Environment, its name, or None for the policy's default.
            options: Further arguments of :meth:`forward`.
        """
        return self(td, env, **options)

    @overload
    def evaluate(
        self, td: TensorDictBase, actions: None = None, env: RL4COEnvBase | str | None = None
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    @overload
    def evaluate(
        self,
        td: TensorDictBase,
        actions: Tensor,
        env: RL4COEnvBase | str | None = None,
        **options: Any,
    ) -> dict[str, Any]: ...

    def evaluate(
        self,
        td: TensorDictBase,
        actions: Tensor | None = None,
        env: RL4COEnvBase | str | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor, Tensor] | dict[str, Any]:
        """Evaluates `td["action"]` in single states, or complete solutions `actions`.

        Args:
            td: States `[B]` with `action`; for solutions, states after reset.
            actions: Solutions, see :meth:`ConstructivePolicy.evaluate`.
            env: Environment of the solutions.
            options: Further arguments for solutions.

        Returns:
            Log-probability of the action, value of the state, entropy of the distribution over
            actions, `[B]` each; for solutions, the output of the policy.
        """
        if actions is not None:
            return super().evaluate(td, actions, env, **options)
        return self.evaluate_action(td)


def _check_extractor(decoder: nn.Module, encoder: nn.Module | str | None) -> None:
    """Raises for a decoder that cannot encode states, and an encoder that nothing would call."""
    extractor = getattr(decoder, "feature_extractor", None)
    if extractor is None:
        raise ConfigError(
            "expected a decoder with a feature_extractor for stepwise_encoding=True, got one "
            "without; give it the encoder: L2DDecoder(actor, encoder)"
        )
    if isinstance(encoder, nn.Module) and encoder is not extractor:
        raise ConfigError(
            "expected the decoder's feature_extractor as the only encoder for "
            f"stepwise_encoding=True, got also {type(encoder).__name__}; leave encoder out"
        )
