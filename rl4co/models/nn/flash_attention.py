"""FlashAttention by the package flash-attn, as an attention function for encoders.

Paper: Dao, 2024, https://arxiv.org/abs/2307.08691. The package needs a CUDA device and half
precision, and knows no masks. PyTorch's `scaled_dot_product_attention`, the default, picks a
FlashAttention kernel by itself where it can; this is for those who want the package's.

    AttentionModelPolicy(sdpa_fn_encoder=scaled_dot_product_attention_flash_attn)
"""

from __future__ import annotations

import importlib

import torch

from torch import Tensor

from rl4co.core.errors import MissingDependencyError, UnsupportedError

#: What the package computes with.
DTYPES = (torch.float16, torch.bfloat16)


def scaled_dot_product_attention_flash_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """Attention without a mask by the package `flash-attn`.

    $$\\mathrm{softmax}(q k^\\top / \\sqrt{d}) v$$

    Args:
        q: `[B, H, Q, d]`, float16 or bfloat16.
        k: `[B, H, N, d]`.
        v: `[B, H, N, d]`.
        attn_mask: Must be None.
        dropout_p: Share of the weights that is dropped.
        is_causal: Whether a query attends to no later key.

    Returns:
        `[B, H, Q, d]`
    """
    if attn_mask is not None:
        raise UnsupportedError(
            "expected attention without a mask for flash-attn, got one; use it as sdpa_fn_encoder, "
            "and torch's scaled_dot_product_attention where there are masks"
        )
    try:
        package = importlib.import_module("flash_attn")
    except ImportError:
        raise MissingDependencyError("flash-attn") from None
    if q.dtype not in DTYPES:
        raise UnsupportedError(
            f"expected float16 or bfloat16 for flash-attn, got {q.dtype}; train with "
            'precision="16-mixed" or "bf16-mixed", or convert the policy'
        )
    # The package has the heads after the positions: [B, Q, H, d].
    heads = (x.transpose(1, 2) for x in (q, k, v))
    out: Tensor = package.flash_attn_func(*heads, dropout_p=dropout_p, causal=is_causal)
    return out.transpose(1, 2)
