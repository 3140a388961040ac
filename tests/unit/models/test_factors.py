"""Layers on embeddings by their factors, against the same layers on the embeddings."""

from __future__ import annotations

import copy

import pytest
import torch

from torch import Tensor, nn

from rl4co.core.registry import EMBEDDINGS
from rl4co.envs.testing import generate_env_data
from rl4co.models import AttentionModelPolicy
from rl4co.models.embeddings import EmbeddingConfig, LinearInitEmbedding, make_embeddings
from rl4co.models.nn import dense
from rl4co.models.nn.factors import apply_layer
from rl4co.models.nn.transformer import GraphAttentionNetwork

DIM = 8
BATCH = dense._FEW // 6 + 1  # with six nodes: just enough rows


def linear_problems() -> list[str]:
    """Problems whose init embedding has factors."""
    config = EmbeddingConfig(DIM)
    inits = {name: make_embeddings(name, config).init for name in EMBEDDINGS.names()}
    return [name for name, init in inits.items() if isinstance(init, LinearInitEmbedding)]


def gradients(out: Tensor, *modules: nn.Module) -> list[Tensor]:
    """Of a sum with different weights for all entries."""
    parameters = [weight for module in modules for weight in module.parameters()]
    total = (out * torch.linspace(-1.0, 1.0, out.numel()).view_as(out)).sum()
    return list(torch.autograd.grad(total, parameters))


def test_problems_with_factors():
    assert {"tsp", "cvrp", "op", "pctsp", "pdp", "mdcpdp", "smtwtp"} <= set(linear_problems())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", linear_problems())
def test_layer_by_factors(name, bias):
    env, instances = generate_env_data(name, 6, BATCH)
    state = env.reset(instances)
    init = make_embeddings(name, EmbeddingConfig(DIM, linear_bias=bias)).init
    layer = nn.Linear(DIM, 5, bias=bias)
    h = init(state)
    factors = init.factors(state, h)
    assert factors is not None
    torch.testing.assert_close(factors.features @ factors.weight.t(), h)
    ours, plain = apply_layer(h, factors, layer), layer(h)
    torch.testing.assert_close(ours, plain)
    expected = gradients(plain, init, layer)
    torch.testing.assert_close(gradients(ours, init, layer), expected, atol=1e-3, rtol=1e-4)


def test_first_layer_uses_factors(monkeypatch):
    """A policy gives the same with and without, and all gradients, too."""
    env, instances = generate_env_data("cvrp", 6, BATCH)
    policy, state = AttentionModelPolicy(env_name="cvrp"), env.reset(instances)
    found = []
    for known in (True, False):
        twin = copy.deepcopy(policy).train()
        if not known:
            monkeypatch.setattr(LinearInitEmbedding, "factors", lambda *_: None)
        h, _ = twin.encoder(state)
        names = [node.name() for node in walk(h.grad_fn)]
        assert names.count("_LinearBackward") == 3 * 2 + 1  # customers' embedding, Q/K/V, output
        assert ("AddrBackward0" in names) == known
        found.append([h.detach(), *gradients(h, twin.encoder)])
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-3)


def walk(root) -> list:
    """All nodes of a graph of operations."""
    seen, left = {root}, [root]
    while left:
        for node, _ in left.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                left.append(node)
    return list(seen)


def test_no_factors_where_they_might_be_wrong(rng):
    """Few rows, layers and embeddings that were changed: the plain product is taken."""
    env, instances = generate_env_data("tsp", 6, BATCH)
    state, init = env.reset(instances), make_embeddings("tsp", EmbeddingConfig(DIM)).init
    h = init(state)
    assert init.factors(state, h[:1]) is None

    handle = init.register_forward_hook(lambda *_: None)
    assert init.factors(state, h) is None
    handle.remove()
    handle = init.init_embed.register_forward_hook(lambda *_: None)
    assert init.factors(state, h) is None
    handle.remove()

    class Shifted(type(init)):
        def forward(self, state):
            return super().forward(state) + 1.0

    assert Shifted(DIM).factors(state, h) is None

    factors, layer = init.factors(state, h), nn.Linear(DIM, 5)
    layer.register_forward_hook(lambda module, given, out: 2 * out)
    torch.testing.assert_close(apply_layer(h, factors, layer), layer(h))


@pytest.mark.parametrize("part", ["net", "layer", "attention"])
def test_hooks_that_replace_the_input_are_respected(part):
    """Factors of the old input are of no use for the new one."""
    env, instances = generate_env_data("tsp", 6, BATCH)
    policy, state = AttentionModelPolicy(env_name="tsp").eval(), env.reset(instances)
    net = policy.encoder.net
    module = {"net": net, "layer": net.layers[0], "attention": net.layers[0].attention}[part]
    module.register_forward_pre_hook(lambda _, given: (2.0 * given[0], *given[1:]))
    found = policy.encoder(state)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinearInitEmbedding, "factors", lambda *_: None)
        expected = policy.encoder(state)[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_network_with_a_forward_of_its_own():
    """A subclass that takes nodes and mask only is called with these."""

    class Own(GraphAttentionNetwork):
        def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
            return super().forward(h, mask) + 1.0

    env, instances = generate_env_data("tsp", 6, BATCH)
    policy = AttentionModelPolicy(env_name="tsp", encoder_network=Own())
    assert policy.encoder(env.reset(instances))[0].shape == (BATCH, 6, 128)


def test_replaced_attention_gets_what_it_always_got():
    """An attention or a layer of one's own takes nodes and mask, and nothing else."""
    env, instances = generate_env_data("tsp", 6, BATCH)
    policy, state = AttentionModelPolicy(env_name="tsp"), env.reset(instances)
    calls = []

    class Own(nn.Module):
        def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
            calls.append(mask)
            return h

    policy.encoder.net.layers[0].attention = Own()
    policy.encoder.net.layers[1] = Own()
    assert policy.encoder(state)[0].shape == (BATCH, 6, 128)
    policy.encoder.net.layers[0] = Own()
    policy.encoder(state)
    assert calls == [None] * 4
