"""Attention, normalisation and encoder blocks against plain computations, head by head."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.models.nn.attention import (
    MultiHeadAttention,
    PointerAttention,
    check_heads,
    scaled_dot_product_attention_simple,
    split_heads,
)
from rl4co.models.nn.norm import make_normalization
from rl4co.models.nn.transformer import GraphAttentionNetwork

DIM, HEADS = 12, 3


def plain_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """One query at a time: `q [Q, d], k [N, d], v [N, d], mask [Q, N]` → `[Q, d]`."""
    out = []
    for row in range(len(q)):
        nodes = [n for n in range(len(k)) if mask is None or bool(mask[row, n])]
        scores = [math.exp(float(q[row] @ k[n]) / math.sqrt(q.shape[-1])) for n in nodes]
        out.append(sum(s / sum(scores) * v[n] for s, n in zip(scores, nodes, strict=True)))
    return torch.stack(out)


def head(x: Tensor, h: int) -> Tensor:
    """Channels of head h: contiguous blocks of D / H."""
    size = DIM // HEADS
    return x[..., h * size : (h + 1) * size]


@pytest.fixture
def mask(rng) -> Tensor:
    """`[B, N, N]`, True = attend; every node may attend to itself."""
    return (torch.rand(2, 5, 5, generator=rng) < 0.5) | torch.eye(5, dtype=torch.bool)


# ---------------------------------------------------------------- scaled dot product


@pytest.mark.parametrize("masked", [False, True])
def test_simple_attention_is_the_formula(masked, mask, rng):
    """Against loops over queries and nodes."""
    q, k, v = torch.randn(3, 2, HEADS, 5, 4, generator=rng)
    given = mask.unsqueeze(1) if masked else None  # [B, 1, N, N]
    out = scaled_dot_product_attention_simple(q, k, v, attn_mask=given)
    for b in range(2):
        for h in range(HEADS):
            expected = plain_attention(q[b, h], k[b, h], v[b, h], mask[b] if masked else None)
            torch.testing.assert_close(out[b, h], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["none", "boolean", "additive"])
@pytest.mark.parametrize("num_nodes", [5, 70])
def test_simple_attention_is_torchs_attention(kind, num_nodes, rng):
    """For boolean and additive masks."""
    q, k, v = torch.randn(3, 2, HEADS, num_nodes, 4, generator=rng)
    given = {
        "none": None,
        "boolean": torch.rand(2, 1, num_nodes, num_nodes, generator=rng) < 0.7,
        "additive": torch.randn(2, 1, num_nodes, num_nodes, generator=rng),
    }[kind]
    if kind == "boolean":
        given[..., 0] = True
    ours = scaled_dot_product_attention_simple(q, k, v, attn_mask=given)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=given)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("axes", [(), (2,), (2, 3, 4)])
def test_simple_attention_takes_any_number_of_axes(axes, rng):
    q, k, v = (torch.randn(*axes, n, 4, generator=rng) for n in (5, 7, 7))
    ours = scaled_dot_product_attention_simple(q, k, v)
    theirs = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------- multi-head attention


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention(bias, masked, mask, rng):
    """Projection rows are queries, keys, values in this order; heads are contiguous channels."""
    layer = MultiHeadAttention(DIM, HEADS, bias=bias)
    x = torch.randn(2, 5, DIM, generator=rng)
    out = layer(x, mask if masked else None)
    weight, offset = layer.Wqkv.weight, layer.Wqkv.bias
    for b in range(2):
        parts = []
        for i in range(3):
            rows = slice(i * DIM, (i + 1) * DIM)
            parts.append(x[b] @ weight[rows].t() + (offset[rows] if bias else 0.0))
        q, k, v = parts
        allowed = mask[b] if masked else None
        heads = [plain_attention(head(q, h), head(k, h), head(v, h), allowed) for h in range(HEADS)]
        expected = torch.cat(heads, -1) @ layer.out_proj.weight.t()
        expected = expected + (layer.out_proj.bias if bias else 0.0)
        torch.testing.assert_close(out[b], expected, atol=1e-5, rtol=1e-5)


def batched_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """All heads at once by standard operations, in double precision."""
    q, k, v = q.double(), k.double(), v.double()
    scores = torch.einsum("bhqd,bhnd->bhqn", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), -math.inf)
    return torch.einsum("bhqn,bhnd->bhqd", scores.softmax(-1), v)


# Which kernel is fastest depends on the size and on gradients; the numbers must not. The sizes
# below are from next to nothing to more than four million scores.
@pytest.mark.numerical
@pytest.mark.parametrize(("batch", "num_nodes"), [(2, 3), (4, 40), (1, 150), (3, 130), (4, 600)])
@pytest.mark.parametrize("masked", [None, "pairs", "nodes"])
@pytest.mark.parametrize("head_dim", [8, 16])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_every_size_takes_a_correct_road(batch, num_nodes, masked, head_dim, grad, rng):
    """Values, and gradients of input and weights, against double precision."""
    layer = MultiHeadAttention(HEADS * head_dim, HEADS)
    x = torch.randn(batch, num_nodes, HEADS * head_dim, generator=rng, requires_grad=grad)
    allowed = None
    if masked == "pairs":
        allowed = torch.rand(batch, num_nodes, num_nodes, generator=rng) < 0.5
        allowed |= torch.eye(num_nodes, dtype=torch.bool)
    elif masked == "nodes":
        allowed = torch.rand(batch, 1, num_nodes, generator=rng) < 0.5
        allowed[..., 0] = True
    with torch.set_grad_enabled(grad):
        out = layer(x, allowed)
        qkv = F.linear(x.double(), layer.Wqkv.weight.double(), layer.Wqkv.bias.double())
        q, k, v = qkv.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # [B, H, N, d] each
        heads = batched_attention(q, k, v, allowed).transpose(1, 2).flatten(2)  # [B, N, D]
        expected = F.linear(heads, layer.out_proj.weight.double(), layer.out_proj.bias.double())
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    if not grad:
        return
    weight = torch.randn(out.shape, generator=rng)
    learning = (x, *layer.parameters())
    ours = torch.autograd.grad((weight * out).mean(), learning)
    theirs = torch.autograd.grad((weight * expected).mean(), learning)
    for mine, reference in zip(ours, theirs, strict=True):
        # Entries are sums over nodes and instances, with rounding errors of the largest of them.
        rounding = max(1e-6, 1e-4 * float(reference.abs().max()))
        torch.testing.assert_close(mine, reference, atol=rounding, rtol=1e-3)


@pytest.mark.numerical
@pytest.mark.parametrize(("batch", "queries"), [(2, 3), (4, 60), (40, 60)])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_glimpses_of_every_size(batch, queries, grad, rng):
    """The same for the glimpse of a decoder: many queries, each with its own mask."""
    num_nodes = 40
    pointer = PointerAttention(DIM, HEADS)
    query, key, value = (
        torch.randn(batch, n, DIM, generator=rng, requires_grad=grad)
        for n in (queries, num_nodes, num_nodes)
    )
    allowed = torch.rand(batch, queries, num_nodes, generator=rng) < 0.3
    allowed[..., 0] |= ~allowed.any(-1)
    before = allowed.clone()
    with torch.set_grad_enabled(grad):
        q, k, v = (split_heads(part, HEADS) for part in (query, key, value))
        out = pointer.glimpse(query, k, v, allowed)
        heads = batched_attention(q, k, v, allowed)
        expected = heads.transpose(1, 2).flatten(2)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(allowed, before)
    if grad:
        weight = torch.randn(out.shape, generator=rng)
        ours = torch.autograd.grad((weight * out).sum(), (query, key, value))
        theirs = torch.autograd.grad((weight * expected).sum(), (query, key, value))
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_custom_attention_function_is_used(mask, rng):
    """It gets the mask with an axis for the heads, and its result is what is projected."""
    seen = []

    def first_value(q, k, v, attn_mask=None):
        seen.append((q.shape, attn_mask))
        return v

    layer = MultiHeadAttention(DIM, HEADS, sdpa_fn=first_value)
    x = torch.randn(2, 5, DIM, generator=rng)
    out = layer(x, mask)
    assert seen[0][0] == (2, HEADS, 5, DIM // HEADS)
    assert torch.equal(seen[0][1], mask.unsqueeze(1))
    values = F.linear(x, layer.Wqkv.weight[2 * DIM :], layer.Wqkv.bias[2 * DIM :])
    torch.testing.assert_close(out, layer.out_proj(values))


@pytest.mark.parametrize(("dim", "heads"), [(12, 5), (12, 0), (12, -3), (4, 8)])
def test_heads_must_divide_the_embedding(dim, heads):
    for build in (check_heads, MultiHeadAttention, PointerAttention):
        with pytest.raises(ConfigError, match=f"{heads} heads for {dim}"):
            build(dim, heads)


@torch.no_grad()
@pytest.mark.parametrize("mask_inner", [True, False])
def test_glimpse(mask_inner, rng):
    """Several queries per instance, each with its own mask (or none)."""
    pointer = PointerAttention(DIM, HEADS, mask_inner=mask_inner)
    query, key, value = (torch.randn(2, n, DIM, generator=rng) for n in (4, 5, 5))
    allowed = torch.rand(2, 4, 5, generator=rng) < 0.6
    allowed[..., 1] = True
    out = pointer.glimpse(query, split_heads(key, HEADS), split_heads(value, HEADS), allowed)
    for b in range(2):
        for h in range(HEADS):
            expected = plain_attention(
                head(query[b], h),
                head(key[b], h),
                head(value[b], h),
                allowed[b] if mask_inner else None,
            )
            torch.testing.assert_close(head(out[b], h), expected, atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------- normalisation


def normalised(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-5) over some axes, by hand."""
    mean = x.mean(dims, keepdim=True)
    variance = ((x - mean) ** 2).mean(dims, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


@pytest.mark.parametrize(("name", "dims"), [("batch", (0, 1)), ("instance", (1,)), ("layer", (2,))])
def test_normalisation_axes(name, dims, rng):
    """`[B, N, D]`: batch over B and N, instance over N, layer over D; then scale and shift."""
    layer = make_normalization(name, DIM)
    x = 3 * torch.randn(4, 5, DIM, generator=rng) + 1
    scale, shift = torch.randn(2, DIM, generator=rng)
    with torch.no_grad():
        layer.weight.copy_(scale)
        layer.bias.copy_(shift)
    torch.testing.assert_close(layer(x), normalised(x, dims) * scale + shift, atol=1e-4, rtol=1e-4)


def test_batch_normalisation_in_evaluation_uses_running_statistics(rng):
    """After one training batch: momentum 0.1, unbiased variance; then no look at the batch."""
    layer = make_normalization("batch", DIM)
    seen = 2 * torch.randn(4, 5, DIM, generator=rng) + 1
    layer(seen)
    layer.eval()
    flat = seen.flatten(0, 1)
    mean, variance = 0.1 * flat.mean(0), 0.9 + 0.1 * flat.var(0)
    x = torch.randn(1, 5, DIM, generator=rng)
    torch.testing.assert_close(layer(x), (x - mean) / (variance + 1e-5).sqrt())


@pytest.mark.parametrize("name", ["instance", "layer", "none", None])
def test_other_normalisations_ignore_the_mode(name, rng):
    layer = make_normalization(name, DIM)
    x = torch.randn(4, 5, DIM, generator=rng)
    training = layer(x)
    layer.eval()
    torch.testing.assert_close(layer(x), training)
    torch.testing.assert_close(layer(x[:1]), training[:1])
    if name in ("none", None):
        assert torch.equal(training, x)


def test_unknown_normalisation():
    with pytest.raises(UnknownNameError, match="did you mean 'batch'"):
        make_normalization("bacth", DIM)


# ---------------------------------------------------------------- encoder


@torch.no_grad()
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("normalization", ["layer", None])
def test_encoder_blocks(masked, normalization, mask, rng):
    """Post-norm: Norm(h + MHA(h)), then Norm(h + W2 relu(W1 h + b1) + b2), in every block."""
    net = GraphAttentionNetwork(
        DIM, HEADS, num_layers=2, feedforward_hidden=7, normalization=normalization
    )
    x = torch.randn(2, 5, DIM, generator=rng)
    given = mask if masked else None
    out = net(x, given)

    def norm(h: Tensor) -> Tensor:
        return normalised(h, (2,)) if normalization else h

    h = x
    for layer in net.layers:
        h = norm(h + layer.attention(h, given))
        wide = h @ layer.feedforward.expand.weight.t() + layer.feedforward.expand.bias
        narrow = wide.clamp_min(0) @ layer.feedforward.contract.weight.t()
        h = norm(h + narrow + layer.feedforward.contract.bias)
    torch.testing.assert_close(out, h, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("normalization", ["instance", "batch"])
def test_encoder_can_be_recomputed_in_the_backward_pass(normalization, rng):
    """Torch's checkpoints, which save memory, let every operation look at its inputs once."""
    net = GraphAttentionNetwork(16, 2, num_layers=1, normalization=normalization)
    x = torch.randn(90, 10, 16, generator=rng, requires_grad=True)
    upper = torch.randn(90, 10, 16, generator=rng)
    (expected,) = torch.autograd.grad(net(x), x, upper)
    (found,) = torch.autograd.grad(checkpoint(net, x, use_reentrant=False), x, upper)
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_encoder_does_not_write_into_its_input(rng):
    net = GraphAttentionNetwork(DIM, HEADS, num_layers=1, normalization="instance")
    x = torch.randn(2, 5, DIM, generator=rng)
    before, version = x.clone(), x._version
    net(x)
    assert torch.equal(x, before)
    assert x._version == version


@torch.no_grad()
@pytest.mark.parametrize("normalization", ["instance", "layer", "batch", None])
def test_encoder_is_equivariant(normalization, rng):
    """Renumbering the nodes renumbers the embeddings, nothing else."""
    net = GraphAttentionNetwork(DIM, HEADS, num_layers=2, normalization=normalization).eval()
    x = torch.randn(2, 6, DIM, generator=rng)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(net(x[:, order]), net(x)[:, order], atol=1e-5, rtol=1e-5)


def test_number_of_layers():
    assert len(GraphAttentionNetwork(DIM, HEADS, num_layers=4).layers) == 4
    x = torch.randn(1, 3, DIM)
    assert torch.equal(GraphAttentionNetwork(DIM, HEADS, num_layers=0)(x), x)
    with pytest.raises(ConfigError, match="got -1"):
        GraphAttentionNetwork(DIM, HEADS, num_layers=-1)


def test_attention_bias_switch():
    """Without biases in the attention projections, as in the original code."""

    def biases(net: nn.Module) -> int:
        return sum("attention" in n and n.endswith("bias") for n, _ in net.named_parameters())

    assert biases(GraphAttentionNetwork(DIM, HEADS, 1, normalization=None)) == 2
    assert biases(GraphAttentionNetwork(DIM, HEADS, 1, normalization=None, bias=False)) == 0


@pytest.mark.parametrize(
    "function", [None, scaled_dot_product_attention_simple], ids=["own", "plain"]
)
def test_a_node_that_may_attend_to_none_gets_zeros(function):
    """... and finite gradients, on every route; without a bias zeros stay zeros."""
    attend = MultiHeadAttention(8, 2, bias=False, sdpa_fn=function)
    x = torch.randn(2, 4, 8, requires_grad=True)
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[1, 2] = False
    out = attend(x, mask)
    assert torch.equal(out[1, 2], torch.zeros(8))
    assert bool((out[0] != 0).any())
    out.sum().backward()
    assert bool(x.grad.isfinite().all())
