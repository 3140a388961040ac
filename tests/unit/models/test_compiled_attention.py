"""Attention in compiled loops against the formula in double precision."""

from __future__ import annotations

import math

import pytest
import torch

from torch import Tensor

from rl4co.models.nn import compiled_attention as module
from rl4co.models.nn.attention import MultiHeadAttention
from rl4co.models.nn.compiled_attention import (
    can_attend,
    can_glimpse,
    compiled_attention,
    compiled_glimpse,
    glimpse_gradients,
)


def formula(qkv: Tensor, num_heads: int, mask: Tensor | None) -> Tensor:
    """Attention `[B, N, 3 * D]` → `[B, N, D]`, written down."""
    split = qkv.unflatten(-1, (3, num_heads, -1))  # [B, N, 3, H, d]
    q, k, v = (part.transpose(1, 2) for part in split.unbind(2))  # [B, H, N, d]
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def make(batch: int, nodes: int, heads: int, dim: int, rng: torch.Generator) -> Tensor:
    return torch.randn(batch, nodes, 3 * heads * dim, generator=rng)


# Heads of one to four vectors; nodes around the multiples of a vector and of a tile.
@pytest.mark.parametrize(("heads", "dim"), [(2, 8), (8, 16), (1, 24), (2, 32)])
@pytest.mark.parametrize("nodes", [1, 2, 7, 8, 9, 16, 17, 24, 33, 51])
@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients_are_those_of_the_formula(nodes, heads, dim, masked, rng):
    qkv = make(3, nodes, heads, dim, rng)
    upper = torch.randn(3, nodes, heads * dim, generator=rng)
    mask = None
    if masked:
        mask = torch.rand(3, 1, nodes, generator=rng) < 0.6
        mask[:, :, nodes // 2] = True
    assert can_attend(qkv, heads, mask)
    found = []
    for function, x in ((compiled_attention, qkv), (formula, qkv.double())):
        x = x.clone().requires_grad_()
        out = function(x, heads, mask)
        (gradient,) = torch.autograd.grad(out, x, upper.to(x.dtype))
        found.append((out.detach().double(), gradient.double()))
    torch.testing.assert_close(*found, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("factor", [0.0, 1e-3, 30.0, 1e4])
def test_scores_of_any_size(factor, rng):
    """Weights that are all alike, weights that vanish, and exponents far below the smallest."""
    qkv = make(2, 11, 2, 8, rng)
    qkv[..., :32] *= factor  # queries and keys, so scores grow by the square
    exact = formula(qkv.double(), 2, None)
    torch.testing.assert_close(compiled_attention(qkv, 2).double(), exact, atol=1e-5, rtol=1e-4)


def test_what_is_not_a_number_is_not_hidden(rng):
    qkv = make(2, 9, 2, 8, rng)
    qkv[1, 4, 3] = math.nan  # a query of the first head
    out = compiled_attention(qkv, 2)
    assert out[1, 4, :8].isnan().all()
    assert not out[0].isnan().any()
    qkv[1, 4, 16] = math.nan  # a key of the first head: every query sees it
    assert compiled_attention(qkv, 2)[1, :, :8].isnan().all()


def test_threads_and_batch_mates_change_nothing(rng, monkeypatch):
    qkv = make(5, 13, 2, 16, rng)
    monkeypatch.setattr(module, "_FEW", 0)
    together = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        x = qkv.clone().requires_grad_()
        out = compiled_attention(x, 2)
        out.square().sum().backward()
        together.append((out.detach(), x.grad))
    for pair in together[1:]:
        torch.testing.assert_close(pair, together[0], atol=0, rtol=0)
    alone = torch.cat([compiled_attention(x.unsqueeze(0), 2) for x in qkv])
    assert torch.equal(together[0][0], alone)


def test_input_of_any_layout_is_left_alone(rng):
    qkv = torch.randn(48, 10, 4, generator=rng).permute(2, 1, 0)  # [4, 10, 48], not contiguous
    before = qkv.clone()
    assert torch.equal(compiled_attention(qkv, 2), compiled_attention(qkv.contiguous(), 2))
    assert torch.equal(qkv, before)


def test_one_mask_for_all_instances(rng):
    qkv, mask = make(3, 6, 2, 8, rng), torch.tensor([[[True, False, True, True, False, True]]])
    expanded = compiled_attention(qkv, 2, mask.expand(3, 1, 6))
    assert torch.equal(compiled_attention(qkv, 2, mask), expanded)


def test_who_is_sent_elsewhere():
    qkv = torch.rand(2, 5, 48)
    assert can_attend(qkv, 2, None)
    assert can_attend(qkv, 2, torch.ones(2, 1, 5, dtype=torch.bool))
    assert not can_attend(qkv, 2, torch.ones(2, 5, 5, dtype=torch.bool)), "pairs of nodes"
    assert not can_attend(qkv, 4, None), "heads of half a vector"
    assert not can_attend(qkv.double(), 2, None)
    assert not can_attend(qkv.to("meta"), 2, None)
    assert not can_attend(qkv[:, :0], 2, None)
    assert not can_attend(torch.rand(1, module._MOST_NODES + 1, 48), 2, None)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_attend(qkv, 2, None)


def test_layers_take_this_road(rng, monkeypatch):
    """With and without gradients, with and without padding."""
    from rl4co.models.nn import attention

    calls = []

    def spy(*arguments):
        calls.append(arguments)
        return compiled_attention(*arguments)

    monkeypatch.setattr(attention, "compiled_attention", spy)
    layer, x = MultiHeadAttention(32, 2), torch.randn(90, 10, 32, generator=rng)
    real = torch.ones(90, 1, 10, dtype=torch.bool)
    torch.testing.assert_close(layer(x), layer(x, real))
    with torch.no_grad():
        layer(x)
    assert len(calls) == 3
    layer(x[:2])  # next to nothing to do
    assert len(calls) == 3


# ---------------------------------------------------------------- glimpses


def glimpse_formula(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Heads, written down in double precision."""
    scores = q.double() @ k.double().mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v.double()


def make_glimpse(batch: int, heads: int, queries: int, nodes: int, dim: int, rng: torch.Generator):
    q = torch.randn(batch, queries, heads, dim, generator=rng).transpose(1, 2)
    k, v = torch.randn(2, batch, heads, nodes, dim, generator=rng)
    mask = torch.rand(batch, 1, queries, nodes, generator=rng) < 0.5
    mask[..., nodes // 2] = True
    return q, k, v, mask


@pytest.mark.parametrize(("heads", "dim"), [(2, 8), (8, 16), (1, 24)])
@pytest.mark.parametrize("nodes", [1, 7, 8, 21, 33])
@pytest.mark.parametrize("queries", [5, 8, 20, 127, 128, 129, 300])
def test_glimpses_are_those_of_the_formula(queries, nodes, heads, dim, rng):
    """Also of more queries than a block has."""
    q, k, v, mask = make_glimpse(2, heads, queries, nodes, dim, rng)
    logit_key = torch.randn(2, nodes, heads * dim, generator=rng)
    for allowed in (mask, None, mask[:1], mask[:, :, :1]):
        assert can_glimpse(q, k, allowed)
        found, logits = compiled_glimpse(q, k, v, allowed, logit_key)
        exact = glimpse_formula(q, k, v, allowed)
        points = exact.transpose(1, 2).flatten(2) @ logit_key.double().mT
        torch.testing.assert_close(logits.double(), points, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.double(), exact, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize(("heads", "dim"), [(2, 8), (8, 16), (1, 24)])
@pytest.mark.parametrize("nodes", [1, 7, 8, 21, 33])
@pytest.mark.parametrize("queries", [5, 8, 20, 127, 128, 129, 300])
def test_gradients_of_glimpses_are_those_of_the_formula(queries, nodes, heads, dim, rng):
    q, k, v, mask = make_glimpse(2, heads, queries, nodes, dim, rng)
    grad = torch.randn(2, queries, heads, dim, generator=rng).transpose(1, 2)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    for allowed in (mask, None, mask[:1]):
        result, _ = compiled_glimpse(q, k, v, allowed)
        found = glimpse_gradients(grad, q, k, v, allowed, result)
        out = glimpse_formula(*exact, allowed)
        expected = torch.autograd.grad(out, exact, grad.double())
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_gradients_of_glimpses_stand_large_scores(size, rng):
    q, k, v, mask = make_glimpse(2, 2, 9, 11, 8, rng)
    heads, _ = compiled_glimpse(q * size, k, v, mask)
    found = glimpse_gradients(torch.ones_like(heads), q * size, k, v, mask, heads)
    assert all(bool(gradient.isfinite().all()) for gradient in found)


def test_forbidden_nodes_have_no_weight_at_all(rng):
    q, k, v, mask = make_glimpse(2, 2, 9, 11, 8, rng)
    mask[..., 3] = False
    v[:, :, 3] = 1e30
    heads, _ = compiled_glimpse(q, k, v, mask)
    torch.testing.assert_close(heads, compiled_glimpse(q, k, v.clamp_max(1e3), mask)[0])


def test_threads_change_no_glimpse(rng, monkeypatch):
    q, k, v, mask = make_glimpse(3, 2, 300, 9, 8, rng)
    monkeypatch.setattr(module, "_FEW", 0)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        heads, logits = compiled_glimpse(q, k, v, mask)
        found.append((heads, logits, *glimpse_gradients(heads + 1, q, k, v, mask, heads)))
    torch.testing.assert_close(found[1], found[0], atol=0, rtol=0)
    torch.testing.assert_close(found[2], found[0], atol=0, rtol=0)


def test_glimpses_that_are_sent_elsewhere(rng):
    q, k, _, mask = make_glimpse(2, 2, 9, 11, 8, rng)
    assert can_glimpse(q, k, mask)
    assert not can_glimpse(q[:, :, :1], k, mask[:, :, :1]), "one query, seven empty places"
    assert not can_glimpse(q, k, mask.float())
    assert not can_glimpse(q.double(), k.double(), mask)
    assert not can_glimpse(q[..., :4], k[..., :4], mask)
