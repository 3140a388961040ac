"""FlashAttention's package as an attention function, with a stand-in for the package."""

from __future__ import annotations

import sys
import types

import pytest
import torch
import torch.nn.functional as F

from torch import Tensor

from rl4co.core.errors import MissingDependencyError, UnsupportedError
from rl4co.envs import get_env
from rl4co.models import AttentionModelPolicy
from rl4co.models.nn.flash_attention import scaled_dot_product_attention_flash_attn as flash

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the queries that a package with the interface of flash-attn was given."""
    seen: list[tuple[int, ...]] = []

    def flash_attn_func(
        q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, causal: bool = False
    ) -> Tensor:
        seen.append(tuple(q.shape))
        by_head = (x.transpose(1, 2).float() for x in (q, k, v))
        out = F.scaled_dot_product_attention(*by_head, dropout_p=dropout_p, is_causal=causal)
        return out.transpose(1, 2).to(q.dtype)

    package = types.ModuleType("flash_attn")
    package.flash_attn_func = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    return seen


@pytest.mark.parametrize("causal", [False, True])
def test_heads_change_places_with_positions(calls: list[tuple[int, ...]], causal: bool):
    """The result is that of torch, in torch's layout."""
    q, k, v = torch.randn(3, 2, 4, 7, 8, dtype=torch.bfloat16)
    expected = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    out = flash(q, k, v, is_causal=causal)
    assert calls == [(2, 7, 4, 8)]
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, atol=2e-2, rtol=2e-2)


def test_an_encoder_with_flash_attention(calls: list[tuple[int, ...]]):
    """`sdpa_fn_encoder` takes it; the decoder, which masks, keeps torch's."""
    env = get_env("tsp", generator_params={"num_loc": 6})
    policy = AttentionModelPolicy(env_name="tsp", sdpa_fn_encoder=flash, **TINY)
    td = env.reset(batch_size=3)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        out = policy(td, env, decode_type="greedy")
    assert calls == [(3, 6, 2, 8)]
    env.check_solution_validity(td, out["actions"])


def test_masks_raise(calls: list[tuple[int, ...]]):
    x = torch.zeros(1, 1, 2, 4, dtype=torch.float16)
    with pytest.raises(UnsupportedError, match=r"without a mask.*sdpa_fn_encoder"):
        flash(x, x, x, attn_mask=torch.ones(1, 1, 2, 2, dtype=torch.bool))
    assert not calls


def test_full_precision_raises(calls: list[tuple[int, ...]]):
    x = torch.zeros(1, 1, 2, 4)
    with pytest.raises(UnsupportedError, match=r"float32.*16-mixed"):
        flash(x, x, x)
    assert not calls


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    x = torch.zeros(1, 1, 2, 4, dtype=torch.float16)
    with pytest.raises(MissingDependencyError, match="pip install 'flash-attn'"):
        flash(x, x, x)
