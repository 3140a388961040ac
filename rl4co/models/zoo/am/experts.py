"""Decoder of the Attention Model with a mixture of experts in place of the output projection.

Paper: Zhou et al., 2024 (MVMoE), https://arxiv.org/abs/2405.01029.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.models.nn.moe import MoE, MoEConfig
from rl4co.models.zoo.am.decoder import DecoderCache, ProjectingDecoder


@dataclasses.dataclass
class ExpertsCache(DecoderCache):
    """What is computed once per instance.

    Attributes:
        noise: Noise of the gate `[B, 1, E]`, or None.
        route: Whether an instance uses the experts `[B, 1, 1]`, and the probability of that
            choice `[B, 1, 1]`; None without hierarchical gating: all use them.
    """

    noise: Tensor | None
    route: tuple[Tensor, Tensor] | None


class ExpertsDecoder(ProjectingDecoder):
    """Pointer decoder with experts.

    $$z_t = \\Big(\\sum_e G(g_t)_e W_e g_t\\Big)^\\top K^\\ell / \\sqrt D, \\qquad
      g_t = \\mathrm{MHA}(q_t, K^g, V^g, M_t)$$

    With hierarchical gating (`light_version`) a second gate $G'$ sends each instance, by its mean
    node embedding, either to the experts or to one dense layer $W$:

    $$G'(\\bar h)_1 \\sum_e G(g_t)_e W_e g_t \\quad\\text{or}\\quad G'(\\bar h)_0 W g_t$$

    The noise of $G$ and the choice of $G'$ are drawn once per instance, so that all of its steps,
    and their replay, are routed in the same way. Out of training there is no noise, and $G'$ takes
    the more likely way.

    Args:
        config: Settings of the experts.
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModelDecoder`.
    """

    prepares_by_instance = False  # the noise would be drawn again

    def __init__(self, embed_dim: int, config: MoEConfig, **kwargs: Any) -> None:
        super().__init__(embed_dim, **kwargs)
        if config.routing_method != "input_choice":
            raise ConfigError(
                f"expected routing_method 'input_choice' in a decoder, got "
                f"{config.routing_method!r}: steps to come cannot be chosen from"
            )
        self.experts = MoE(embed_dim, embed_dim, None, config)
        self.choose_way = nn.Linear(embed_dim, 2, bias=False) if config.light_version else None
        if self.choose_way is None:  # the experts are all there is
            self.pointer.project_out = nn.Identity()  # type: ignore[assignment]

    def prepare(  # type: ignore[override]
        self, hidden: Tensor, state: Mapping[str, Tensor]
    ) -> ExpertsCache:
        """Projects the node embeddings `[B, N, D]` and routes the instances."""
        plain = super().prepare(hidden, state)
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return ExpertsCache(
            **{**fields, "folded_key": None},  # there is another projection
            route=self._route(hidden),
            noise=self.experts.gate.draw(hidden, len(hidden), 1),  # [B, 1, E]
        )

    def _route(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        """Hierarchical gating: whether to use the experts, and the probability of the choice."""
        if self.choose_way is None:
            return None
        chances = self.choose_way(hidden.mean(1, keepdim=True)).softmax(-1)  # [B, 1, 2]
        experts = chances[..., 1:]  # [B, 1, 1]
        border = torch.full_like(experts, 0.5)
        if self.training:
            session = self.experts.gate.session
            rng = None if session is None else session.rng
            border = torch.rand(experts.shape, generator=rng, device=hidden.device)
        chosen = experts > border
        return chosen, torch.where(chosen, experts, chances[..., :1])

    def _project_heads(
        self, heads: Tensor, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> Tensor:
        """Heads `[B, Q, D]` after the experts, or after the dense layer."""
        assert isinstance(cache, ExpertsCache)
        mixed = self.experts(heads, cache.noise).to(heads.dtype)
        if cache.route is None:
            return mixed
        to_experts, chance = cache.route
        return torch.where(to_experts, mixed, self.pointer.project_out(heads)) * chance
