"""Building blocks of networks under their published names and signatures."""

from __future__ import annotations

import itertools
import math

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.models.nn import transformer
from rl4co.models.nn.attention import (
    AttentionFn,
    check_heads,
    find_attention,
    merge_heads,
    split_heads,
)
from rl4co.models.nn.moe import MoEConfig
from rl4co.models.nn.norm import make_normalization

NormName = Literal["Batch", "Layer", "None"]


class SkipConnection(nn.Module):
    """$x + f(x)$."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return x + self.module(x)


class Normalization(nn.Module):
    """Normalisation by name: `[B, N, D]` → `[B, N, D]`.

    Args:
        embed_dim: Embedding size D.
        normalization: "batch", "instance", "layer" or None.
    """

    def __init__(self, embed_dim: int, normalization: str | None = "batch") -> None:
        super().__init__()
        self.normalizer = make_normalization(normalization, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised embeddings."""
        out: Tensor = self.normalizer(x)
        return out


class TransformerFFN(nn.Module):
    """The second half of a transformer block, from the sum on: `[B, N, D]` twice → `[B, N, D]`.

    Args:
        embed_dim: Embedding size D.
        feed_forward_hidden: Width of the feed-forward network.
        normalization: See :class:`Normalization`.
    """

    def __init__(
        self, embed_dim: int, feed_forward_hidden: int, normalization: str | None = "batch"
    ) -> None:
        super().__init__()
        self.norm1 = make_normalization(normalization, embed_dim)
        self.ffn = transformer.FeedForward(embed_dim, feed_forward_hidden)
        self.norm2 = make_normalization(normalization, embed_dim)

    def forward(self, x: Tensor, x_old: Tensor) -> Tensor:
        """$\\hat h = \\mathrm{Norm}(x_{old} + x)$, then $\\mathrm{Norm}(\\hat h + FF(\\hat h))$."""
        h = self.norm1(x_old + x)
        out: Tensor = self.norm2(h + self.ffn(h))
        return out


class PositionalEncoding(nn.Module):
    """Adds sinusoidal encodings of positions (Vaswani et al., 2017), then applies dropout.

    Args:
        embed_dim: Embedding size D.
        dropout: Probability of dropout.
        max_len: Number of positions.

    Shapes:
        `hidden [B, N, D]`, `seq_pos [B, N]` → `[B, N, D]`
    """

    pe: Tensor

    def __init__(self, embed_dim: int, dropout: float = 0.1, max_len: int = 1000) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position, channel = torch.arange(max_len).unsqueeze(1), torch.arange(0, embed_dim, 2)
        angle = position * torch.exp(channel * (-math.log(10_000.0) / embed_dim))  # [max_len, D/2]
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :embed_dim]
        self.register_buffer("pe", table.unsqueeze(0))

    def forward(self, hidden: Tensor, seq_pos: Tensor) -> Tensor:
        """The sum."""
        out: Tensor = self.dropout(hidden + self.pe[0, seq_pos])
        return out


class MLP(nn.Module):
    """Linear layers with activations between them.

    Args:
        input_dim: Size of the input.
        output_dim: Size of the output.
        num_neurons: Sizes of the hidden layers.
        dropout_probs: Dropout behind each hidden layer; None: none.
        hidden_act: Activation of the hidden layers, a class of `torch.nn`.
        out_act: Activation of the output.
        input_norm: "Batch", "Layer" or "None".
        output_norm: "Batch", "Layer" or "None".

    Shapes:
        `[*B, input_dim]` → `[*B, output_dim]`
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        num_neurons: Sequence[int] = (64, 32),
        dropout_probs: Sequence[float] | None = None,
        hidden_act: str = "ReLU",
        out_act: str = "Identity",
        input_norm: NormName = "None",
        output_norm: NormName = "None",
    ) -> None:
        super().__init__()
        dropout = [0.0] * len(num_neurons) if dropout_probs is None else list(dropout_probs)
        if len(dropout) != len(num_neurons):
            raise ConfigError(
                f"expected one of dropout_probs for each of num_neurons={list(num_neurons)}, got "
                f"{dropout}"
            )
        sizes = [input_dim, *num_neurons, output_dim]
        layers: list[nn.Module] = [_norm(input_norm, input_dim)]
        for index, (width_in, width_out) in enumerate(itertools.pairwise(sizes)):
            layers.append(nn.Linear(width_in, width_out))
            if index < len(dropout):
                layers += [getattr(nn, hidden_act)(), nn.Dropout(dropout[index])]
        layers += [getattr(nn, out_act)(), _norm(output_norm, output_dim)]
        self.layers = nn.Sequential(*layers)

    def forward(self, xs: Tensor) -> Tensor:
        """Each row by itself."""
        out: Tensor = self.layers(xs)
        return out


class MultiHeadCrossAttention(nn.Module):
    """Attention from one set of embeddings to another.

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads.
        bias: Whether the projections have biases.
        attention_dropout: Only 0 is supported.
        device: Device of the parameters.
        dtype: Type of the parameters.
        sdpa_fn: Attention function.

    Shapes:
        `q_input [B, M, D]`, `kv_input [B, N, D]`, `cross_attn_mask [B, M, N]` (True = attend)
        → `[B, M, D]`
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = False,
        attention_dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        sdpa_fn: AttentionFn | None = None,
    ) -> None:
        super().__init__()
        check_heads(embed_dim, num_heads)
        if attention_dropout:
            raise ConfigError(f"expected attention_dropout of 0, got {attention_dropout}")
        self.num_heads, self.sdpa_fn = num_heads, find_attention(sdpa_fn)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.Wq = nn.Linear(embed_dim, embed_dim, bias=bias, **place)
        self.Wkv = nn.Linear(embed_dim, 2 * embed_dim, bias=bias, **place)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **place)

    def forward(
        self, q_input: Tensor, kv_input: Tensor, cross_attn_mask: Tensor | None = None
    ) -> Tensor:
        """Embeddings of the first set, from those of the second."""
        query = split_heads(self.Wq(q_input), self.num_heads)  # [B, H, M, d]
        key, value = self.Wkv(kv_input).chunk(2, -1)
        key, value = split_heads(key, self.num_heads), split_heads(value, self.num_heads)
        mask = None if cross_attn_mask is None else cross_attn_mask.unsqueeze(1)
        heads = self.sdpa_fn(query, key, value, attn_mask=mask)
        out: Tensor = self.out_proj(merge_heads(heads))
        return out


class MultiHeadAttentionLayer(transformer.EncoderLayer):
    """One block of the encoder, with the published arguments.

    Args:
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        feedforward_hidden: Width of the feed-forward layer.
        normalization: "batch", "instance", "layer" or None.
        bias: Whether the attention projections have biases.
        sdpa_fn: Attention function.
        moe_kwargs: Experts in place of the feed-forward layer, see
            :class:`~rl4co.models.nn.moe.MoEConfig`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 8,
        feedforward_hidden: int = 512,
        normalization: str | None = "batch",
        bias: bool = True,
        sdpa_fn: AttentionFn | None = None,
        moe_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        moe = None if moe_kwargs is None else MoEConfig(**moe_kwargs)
        super().__init__(
            embed_dim, num_heads, feedforward_hidden, normalization, bias, sdpa_fn, moe
        )


class GraphAttentionNetwork(transformer.GraphAttentionNetwork):
    """The encoder's stack of blocks, with the published order of arguments.

    Args:
        num_heads: Attention heads.
        embed_dim: Embedding size D.
        num_layers: Blocks.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the feed-forward layers.
        sdpa_fn: Attention function.
        moe_kwargs: See :class:`MultiHeadAttentionLayer`.
    """

    def __init__(
        self,
        num_heads: int,
        embed_dim: int,
        num_layers: int,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        sdpa_fn: AttentionFn | None = None,
        moe_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            embed_dim=embed_dim,
            num_heads=num_heads,
            num_layers=num_layers,
            feedforward_hidden=feedforward_hidden,
            normalization=normalization,
            sdpa_fn=sdpa_fn,
            moe=None if moe_kwargs is None else MoEConfig(**moe_kwargs),
        )


def _norm(name: str, size: int) -> nn.Module:
    layers = {"Batch": nn.BatchNorm1d, "Layer": nn.LayerNorm, "None": nn.Identity}
    if name not in layers:
        raise UnknownNameError("normalization of an MLP", name, layers)
    return layers[name](size)
