"""MatNet: mixed scores against a plain network, the sides of a matrix, learning."""

from __future__ import annotations

import contextlib
import copy
import math

import pytest
import torch

from torch import Tensor

from rl4co import kernels
from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.envs import ATSPEnv, TSPEnv
from rl4co.kernels import score_mixing
from rl4co.models import MatNet, MatNetEncoder, MatNetPolicy
from rl4co.models.nn.mixed_attention import MixedScoreAttention, mix_scores
from rl4co.models.zoo.matnet.encoder import MatrixInitEmbedding
from tests.learning import cost_ratio, train_steps

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 2}


def plain_attention(
    layer: MixedScoreAttention, x: Tensor, other: Tensor, entries: Tensor, mask: Tensor | None
) -> Tensor:
    """The same in loops over instances, heads, rows and columns."""
    batch, rows, dim = x.shape
    head_dim = dim // layer.num_heads
    q, kv = layer.Wq(x), layer.Wkv(other)
    k, v = kv[..., :dim], kv[..., dim:]
    out = []
    for b in range(batch):
        for r in range(rows):
            heads = []
            if mask is not None and not mask[b, r].any():
                out.append(torch.zeros(dim).double())
                continue
            for h in range(layer.num_heads):
                part = slice(h * head_dim, (h + 1) * head_dim)
                scores = []
                for c in range(other.shape[1]):
                    dot = (q[b, r, part] * k[b, c, part]).sum() / math.sqrt(head_dim)
                    hidden = (
                        layer.mix_first[:, 0, h, 0, 0] * dot
                        + layer.mix_first[:, 1, h, 0, 0] * entries[b, r, c]
                        + layer.mix_bias[:, h, 0, 0]
                    ).relu()
                    score = (hidden * layer.mix_second[:, h, 0, 0]).sum()
                    blocked = mask is not None and not bool(mask[b, r, c])
                    scores.append(score.new_tensor(-torch.inf) if blocked else score)
                weights = torch.stack(scores).softmax(0)
                heads.append((weights.unsqueeze(-1) * v[b, :, part]).sum(0))
            out.append(torch.cat(heads))
    return layer.out_proj(torch.stack(out).view(batch, rows, dim))


@pytest.mark.parametrize("unit", [1.0, 0.25, 0.001])
def test_columns_of_matrices_with_few_digits_have_shuffled_places(unit):
    """Different ones in different instances, the same for each instance alone."""
    embedding = MatrixInitEmbedding(32)
    rng = torch.Generator().manual_seed(0)
    matrix = torch.randint(1, 100, (200, 6, 6), generator=rng) * unit
    places = embedding.places(matrix)
    assert all(len(set(row.tolist())) == 6 for row in places)
    assert places.unique().numel() == 32
    assert len({tuple(row.tolist()) for row in places}) > 190
    ascending = (places.diff(dim=-1) % 32 == 1).all(-1)
    assert int(ascending.sum()) < 5
    alone = torch.cat([embedding.places(matrix[b : b + 1]) for b in range(50)])
    assert torch.equal(alone, places[:50])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (4, 3)])
def test_mixed_attention_is_the_plain_one(rows, columns, masked):
    """Values and all gradients, with more columns than rows and with fewer."""
    layer = MixedScoreAttention(8, 2, mixer_hidden_dim=5).double()
    twin = copy.deepcopy(layer)
    rng = torch.Generator().manual_seed(0)
    x, other = (torch.randn(6, n, 8, generator=rng).double() for n in (rows, columns))
    entries = torch.rand(6, rows, columns, generator=rng).double()
    mask = None
    if masked:
        mask = torch.rand(6, rows, columns, generator=rng) > 0.4
        mask[0, 1] = False  # a row that may look at nothing
    inputs = [(x.clone().requires_grad_(), other.clone().requires_grad_()) for _ in range(2)]
    ours = layer(*inputs[0], entries, mask)
    theirs = plain_attention(twin, *inputs[1], entries, mask)
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn(ours.shape, generator=rng).double()
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    for a, b in zip(inputs[0], inputs[1], strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for (name, a), b in zip(layer.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_mixing_is_that_of_tensors(monkeypatch, threads):
    """Values and gradients, however many threads share the instances."""
    monkeypatch.setattr(score_mixing, "ONE_THREAD", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rng = torch.Generator().manual_seed(0)
    found = []
    for switch in (contextlib.nullcontext, kernels.disabled):
        rng.manual_seed(0)
        scores, entries = torch.randn(5, 3, 4, 6, generator=rng), torch.rand(5, 4, 6, generator=rng)
        mixer, weight = torch.randn(3, 7, 4, generator=rng), torch.randn(5, 3, 4, 6, generator=rng)
        scores.requires_grad_(), mixer.requires_grad_()
        with switch():
            mixed = mix_scores(scores, entries, mixer)
            (mixed * weight).sum().backward()
        found.append((mixed.detach(), scores.grad, mixer.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_columns_get_different_places():
    """All places different, the same in any batch, shuffled from instance to instance."""
    embedding = MatrixInitEmbedding(16)
    matrix = torch.rand(50, 7, 9)
    rows, columns, same = embedding({"cost_matrix": matrix})
    assert same is matrix
    assert rows.shape == (50, 7, 16)
    assert not rows.any()
    assert torch.equal(columns.sum(-1), torch.ones(50, 9))
    assert bool((columns.sum(1) <= 1).all())
    places = columns.argmax(-1)  # [B, C]
    assert len({tuple(row) for row in places.tolist()}) == 50
    assert len(places.unique()) == 16
    alone = embedding({"cost_matrix": matrix[20:21]})[1]
    assert torch.equal(alone[0], columns[20])


def test_equal_columns_get_different_places_too():
    """An integer matrix gives no digits to shuffle by."""
    columns = MatrixInitEmbedding(8)({"cost_matrix": torch.ones(2, 3, 8)})[1]
    assert torch.equal(columns.sum(1), torch.ones(2, 8))


def test_too_many_columns_raise():
    with pytest.raises(ConfigError, match="larger embed_dim"):
        MatrixInitEmbedding(4)({"cost_matrix": torch.rand(1, 5, 5)})


@pytest.mark.parametrize("self_attention", [False, True])
def test_encoder_takes_matrices_that_are_not_square(self_attention):
    encoder = MatNetEncoder(16, 2, 2, feedforward_hidden=16, self_attention=self_attention)
    (rows, columns), _ = encoder({"cost_matrix": torch.rand(3, 4, 6)})
    assert rows.shape == (3, 4, 16)
    assert columns.shape == (3, 6, 16)


def test_encoder_ignores_what_is_no_neighbour():
    """With zeros masked, a column that has only zeros for a row changes nothing for it."""
    encoder = MatNetEncoder(
        16, 2, 1, normalization=None, feedforward_hidden=16, mask_non_neighbors=True
    ).eval()
    matrix = torch.rand(1, 3, 4) + 0.1
    matrix[0, 0, 3] = 0.0
    rows, columns, _ = encoder.init_embedding({"cost_matrix": matrix})
    layer, mask = encoder.layers[0], matrix != 0
    changed = columns.clone()
    changed[:, 3] += 1.0
    before, _ = layer(rows, columns, matrix, mask)
    after, _ = layer(rows, changed, matrix, mask)
    torch.testing.assert_close(after[:, 0], before[:, 0])
    assert not torch.allclose(after[:, 1], before[:, 1])


def test_directions_matter():
    """The transposed instance is another instance."""
    policy = MatNetPolicy(**TINY).eval()
    env = ATSPEnv(generator_params={"num_loc": 6})
    td = env.reset(batch_size=2)
    there = policy(td, env, decode_type="greedy")
    turned = env.reset(td.select("cost_matrix").apply(lambda x: x.mT.contiguous()))
    back = policy(turned, env, decode_type="greedy")
    assert not torch.allclose(there["log_likelihood"], back["log_likelihood"])


def test_unsupported_environment_names_the_supported_ones():
    with pytest.raises(UnsupportedError, match="atsp"):
        MatNet(TSPEnv(generator_params={"num_loc": 5}))


@pytest.mark.learning
def test_learns(require):
    env = ATSPEnv(generator_params={"num_loc": 6})
    model = MatNet(env, policy_kwargs={**TINY, "embed_dim": 32, "num_heads": 4}, seed=1)
    ratio = cost_ratio(
        model, lambda: train_steps(model, 70, 32, 2e-3), decode_type="multistart_sampling"
    )
    require("cost after / before", ratio, below=0.95)
