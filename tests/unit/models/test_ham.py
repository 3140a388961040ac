"""Heterogeneous Attention Model: attention term by term in loops, roles, partners, learning."""

from __future__ import annotations

import math

import pytest
import torch

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.envs import MDCPDPEnv, PDPEnv, TSPEnv
from rl4co.models import (
    HeterogeneousAttentionModel,
    HeterogeneousAttentionModelPolicy,
    load_pretrained,
)
from rl4co.models.zoo.ham.attention import HeterogeneousAttention
from tests.learning import cost_ratio, train_steps

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 2}
DIM, HEADS = 8, 2


@pytest.fixture
def attention() -> HeterogeneousAttention:
    torch.manual_seed(0)
    return HeterogeneousAttention(DIM, HEADS).double()


def nodes(num_nodes: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, num_nodes, DIM, generator=torch.Generator().manual_seed(1)).double()


def by_loops(layer: HeterogeneousAttention, x: torch.Tensor, depots: int) -> torch.Tensor:
    """The sum of terms of the paper for one instance `[N, D]`, head by head and node by node."""
    num_nodes, width = len(x), DIM // HEADS
    half = (num_nodes - depots) // 2
    pickups = range(depots, depots + half)
    deliveries = range(depots + half, num_nodes)
    qkv = layer.Wqkv(x)
    heads = torch.zeros(num_nodes, DIM, dtype=x.dtype)
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        q, k, v = (piece[:, part] for piece in qkv.split(DIM, -1))
        for i in range(num_nodes):
            terms = [(q[i], j) for j in range(num_nodes)]  # (query, node asked)
            if i in pickups:
                partner, weights = i + half, layer.ask_as_pickup
            elif i in deliveries:
                partner, weights = i - half, layer.ask_as_delivery
            if i >= depots:
                own, to_pickups, to_deliveries = (
                    piece[part] for piece in weights(x[i]).split(DIM, -1)
                )
                terms += [(own, partner)]
                terms += [(to_pickups, j) for j in pickups]
                terms += [(to_deliveries, j) for j in deliveries]
            scores = [math.exp(float(query @ k[j]) / math.sqrt(width)) for query, j in terms]
            heads[i, part] = sum(
                score / sum(scores) * v[j] for score, (_, j) in zip(scores, terms, strict=True)
            )
    return layer.out_proj(heads)


@torch.no_grad()
@pytest.mark.parametrize("depots", [1, 2])
@pytest.mark.parametrize("orders", [1, 3])
def test_attention_is_the_sum_of_its_terms(attention, depots, orders):
    x = nodes(depots + 2 * orders)
    expected = torch.stack([by_loops(attention, instance, depots) for instance in x])
    torch.testing.assert_close(attention(x, depots), expected)


@torch.no_grad()
def test_orders_have_no_order_but_pairs(attention):
    """Orders may be listed in any order; deliveries that are exchanged alone belong elsewhere."""
    x = nodes(1 + 2 * 3)
    out = attention(x)
    both = [0, 2, 3, 1, 5, 6, 4]
    torch.testing.assert_close(attention(x[:, both]), out[:, both])
    alone = [0, 1, 2, 3, 5, 6, 4]
    assert (attention(x[:, alone]) - out[:, alone]).abs().max() > 1e-3


@torch.no_grad()
def test_depots_ask_nothing_more(attention):
    """The depot's row does not depend on the weights of the roles, all others do."""
    x = nodes(5)
    before = attention(x)
    for layer in (attention.ask_as_pickup, attention.ask_as_delivery):
        layer.weight.mul_(3.0)
    moved = (attention(x) - before).abs().amax((0, 2))
    assert moved[0] == 0
    assert bool((moved[1:] > 1e-4).all())


def test_gradients_reach_every_question(attention):
    attention(nodes(7)).square().sum().backward()
    for name in ("ask_as_pickup", "ask_as_delivery"):
        grad = getattr(attention, name).weight.grad
        assert all(bool(piece.any()) for piece in grad.split(DIM)), name


def test_odd_customers_raise(attention):
    with pytest.raises(ConfigError, match="as many pickups as deliveries, got 3 customers"):
        attention(nodes(4))


# ---------------------------------------------------------------- policy and model


@pytest.mark.parametrize("env_cls", [PDPEnv, MDCPDPEnv])
@torch.no_grad()
def test_encoder_is_its_blocks(env_cls):
    """... told how many depots there are by the embedding of the problem."""
    env = env_cls(generator_params={"num_loc": 6}, seed=3)
    policy = HeterogeneousAttentionModelPolicy(env_name=env.name, **TINY).eval()
    td = env.reset(batch_size=2)
    hidden, init = policy.encoder(td)
    assert hidden.shape == init.shape == (2, td["locs"].shape[1], 16)
    depots = policy.encoder.init_embedding.num_depots(td)
    assert depots == td["locs"].shape[1] - 6
    for layer in policy.encoder.net:
        expected = layer.norm_attention(init + layer.attention(init, depots))
        init = layer.norm_feedforward(expected + layer.feedforward(expected))
    torch.testing.assert_close(hidden, init)


@torch.no_grad()
def test_batch_mates_and_a_batch_of_one():
    env = PDPEnv(generator_params={"num_loc": 8}, seed=3)
    policy = HeterogeneousAttentionModelPolicy(env_name="pdp", **TINY).eval()
    td = env.reset(batch_size=4)
    whole = policy(td, env, phase="test")
    for b in range(4):
        alone = policy(td[b : b + 1], env, phase="test")
        torch.testing.assert_close(alone["log_likelihood"][0], whole["log_likelihood"][b])


def test_only_pickups_and_deliveries():
    with pytest.raises(UnsupportedError, match=r"mdcpdp, pdp for Heterogeneous.*got 'tsp'"):
        HeterogeneousAttentionModel(TSPEnv())


@torch.no_grad()
def test_saving_and_loading(tmp_path):
    env = PDPEnv(generator_params={"num_loc": 6})
    policy = HeterogeneousAttentionModel(env, policy_kwargs=TINY).policy.eval()
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    td = env.reset(batch_size=3)
    assert isinstance(loaded, HeterogeneousAttentionModelPolicy)
    expected, out = policy(td, env, phase="test"), loaded(td, env, phase="test")
    assert torch.equal(out["actions"], expected["actions"])
    assert torch.equal(out["log_likelihood"], expected["log_likelihood"])


@pytest.mark.learning
def test_training_improves(require):
    torch.manual_seed(0)
    env = PDPEnv(generator_params={"num_loc": 8})
    settings = {**TINY, "embed_dim": 32, "num_heads": 4}
    model = HeterogeneousAttentionModel(env, policy_kwargs=settings, baseline="mean", seed=2)
    ratio = cost_ratio(model, lambda: train_steps(model, 60, 128, 1e-3))
    require("cost after / before", ratio, below=0.92)
