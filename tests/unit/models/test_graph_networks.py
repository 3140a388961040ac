"""Networks on graphs: against dense formulas, graph by graph, and as encoders of policies."""

from __future__ import annotations

import builtins
import copy

import pytest
import torch

from torch import nn

from rl4co.core.errors import (
    ConfigError,
    MissingDependencyError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.envs import FLPEnv, MCPEnv
from rl4co.kernels import disabled
from rl4co.models import (
    AttentionModelPolicy,
    GNNAttentionModelPolicy,
    GNNEncoder,
    load_pretrained,
)
from rl4co.models.embeddings.flp import FLPNeighbors
from rl4co.models.nn.graph import GCN, NETWORKS, Neighbors, get_graph_network

DIM = 8
OPTIONS = {"embed_dim": DIM, "num_encoder_layers": 2, "num_heads": 2, "feedforward_hidden": 16}
PAIRS = [("flp", "mlp"), ("flp", "gcn"), ("flp", "gat"), ("mcp", "mlp"), ("mcp", "sage"),
         ("mcp", "gen")]  # fmt: skip
SIZES = {
    "flp": {"num_loc": 9, "to_choose": 3},
    "mcp": {"num_items": 14, "num_sets": 9, "min_size": 1, "max_size": 5, "n_sets_to_choose": 3},
}


def needs_geometric(network: str) -> None:
    if network in ("gat", "sage", "gen"):
        pytest.importorskip("torch_geometric")


def make_env(name: str):
    return {"flp": FLPEnv, "mcp": MCPEnv}[name](generator_params=SIZES[name])


def make(name: str, network: str):
    """Environment, policy in evaluation mode and four states."""
    needs_geometric(network)
    env = make_env(name)
    torch.manual_seed(0)
    policy = GNNAttentionModelPolicy(env_name=name, network=network, **OPTIONS).eval()
    return env, policy, env.reset(env.generator(4, rng=torch.Generator().manual_seed(1)))


def random_graph(batch: int = 2, size: int = 5, degree: int = 2) -> tuple[torch.Tensor, Neighbors]:
    rng = torch.Generator().manual_seed(2)
    h = torch.randn(batch, size, DIM, dtype=torch.float64, generator=rng)
    order = torch.rand(batch, size, size, generator=rng).argsort(-1)
    others = order[order != torch.arange(size).view(1, -1, 1)].view(batch, size, size - 1)
    length = torch.rand(batch, size, degree, 1, dtype=torch.float64, generator=rng)
    return h, Neighbors(others[..., :degree], length)


# ---------------------------------------------------------------- layers against formulas


def test_gcn_is_its_formula():
    """Node by node: neighbours in either direction and itself, divided by roots of degrees."""
    h, graph = random_graph()
    network = GCN(DIM, 1, None, num_heads=2).double()
    out = network(h, graph)
    layer = network.layers[0]
    for b in range(2):
        near = [set(row.tolist()) for row in graph.nodes[b]]
        linked = [{j for j in range(5) if j in near[i] or i in near[j]} | {i} for i in range(5)]
        for i in range(5):
            mean = sum(h[b, j] / (len(linked[i]) * len(linked[j])) ** 0.5 for j in linked[i])
            torch.testing.assert_close(out[b, i], h[b, i] + layer(mean).relu())


def test_gcn_is_that_of_pytorch_geometric():
    layers = pytest.importorskip("torch_geometric.nn")
    h, graph = random_graph()
    network = GCN(DIM, 1, None, num_heads=2).double()
    conv = layers.GCNConv(DIM, DIM).double()
    with torch.no_grad():
        conv.lin.weight.copy_(network.layers[0].weight)
        conv.bias.copy_(network.layers[0].bias)
    edges, _ = graph.edges()
    both = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    expected = h + conv(h.flatten(0, 1), both).view_as(h).relu()
    torch.testing.assert_close(network(h, graph), expected)


def test_gat_is_its_formula():
    """GATv2: softmax over neighbours (and itself) of a LeakyReLU of both ends and the length."""
    pytest.importorskip("torch_geometric")
    h, graph = random_graph(batch=1)
    network = get_graph_network("gat")(DIM, 1, None, num_heads=1).double()
    conv = network.layers[0]
    left, right = conv.lin_l(h[0]), conv.lin_r(h[0])
    out = network(h, graph)
    for i in range(5):
        nodes = [*graph.nodes[0, i].tolist(), i]
        lengths = [*graph.features[0, i].unbind(0)]
        lengths.append(sum(lengths) / len(lengths))  # a loop has the mean of those that come in
        scores = torch.stack([
            (conv.att[0, 0] * torch.nn.functional.leaky_relu(
                left[j] + right[i] + conv.lin_edge(e), 0.2)).sum()
            for j, e in zip(nodes, lengths, strict=True)
        ])  # fmt: skip
        expected = (scores.softmax(0).unsqueeze(-1) * left[nodes]).sum(0) + conv.bias
        torch.testing.assert_close(out[0, i], h[0, i] + expected.relu())


def test_sage_is_its_formula():
    """Means over neighbours, there and back."""
    pytest.importorskip("torch_geometric")
    rng = torch.Generator().manual_seed(3)
    h = torch.randn(2, 3, DIM, dtype=torch.float64, generator=rng)
    # Three sets of five items; -1 is padding.
    nodes = torch.tensor([[[0, 1], [1, -1], [3, 4]], [[2, -1], [-1, 0], [2, 3]]])
    graph = Neighbors(nodes, others=torch.rand(2, 5, 1, dtype=torch.float64, generator=rng))
    network = get_graph_network("sage")(DIM, 1, None, num_heads=2).double()
    out = network(h, graph)
    there, back = network.layers_there[0], network.layers[0]
    for b in range(2):
        items = network.embed_others(graph.others[b])
        owners = [[s for s in range(3) if t in nodes[b, s]] for t in range(5)]
        new = []
        for t in range(5):
            mean = h[b, owners[t]].mean(0) if owners[t] else torch.zeros_like(h[b, 0])
            new.append(items[t] + (there.lin_l(mean) + there.lin_r(items[t])).relu())
        for s in range(3):
            own = [t for t in nodes[b, s].tolist() if t >= 0]
            mean = torch.stack([new[t] for t in own]).mean(0)
            expected = h[b, s] + (back.lin_l(mean) + back.lin_r(h[b, s])).relu()
            torch.testing.assert_close(out[b, s], expected)


def test_nearest_locations():
    """Of a line, with distances as shares of the largest; one location has none."""
    line = torch.tensor([0.0, 1.0, 3.0, 7.0])
    matrix = (line.unsqueeze(-1) - line).abs().unsqueeze(0)
    graph = FLPNeighbors(2)({"orig_distances": matrix})
    assert graph.nodes.sort(-1).values.tolist() == [[[1, 2], [0, 2], [0, 1], [1, 2]]]
    assert graph.features[0, 0, :, 0].tolist() == pytest.approx([1 / 7, 3 / 7])
    alone = FLPNeighbors(2)({"orig_distances": torch.zeros(1, 1, 1)})
    assert alone.nodes.tolist() == [[[-1]]]


# ---------------------------------------------------------------- encoders and policies


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_every_graph_gets_its_messages(name: str, network: str):
    """An instance is embedded the same alone and at any place in a batch."""
    _, policy, td = make(name, network)
    whole, _ = policy.encoder(td)
    for b in range(4):
        alone, _ = policy.encoder(td[b : b + 1])
        torch.testing.assert_close(alone[0], whole[b], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_messages_travel(name: str, network: str):
    """Embeddings depend on neighbours, except with an MLP."""
    _, policy, td = make(name, network)
    init = policy.encoder.init_embedding(td)
    graph = policy.encoder.graph(td)
    changed = init.clone()
    changed[:, 0] += 1.0
    plain, other = (policy.encoder.net(h, graph) for h in (init, changed))
    moved = ((plain - other).abs().amax(-1) > 1e-6)[:, 1:].any(-1)
    assert moved.tolist() == [network != "mlp"] * 4


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_saving_and_loading(name: str, network: str, tmp_path):
    env, policy, td = make(name, network)
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    with torch.no_grad():
        outs = [p(td, env, decode_type="greedy") for p in (policy, loaded)]
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    assert torch.equal(outs[0]["log_likelihood"], outs[1]["log_likelihood"])


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_mixed_numbers_to_choose(name: str, network: str):
    """The likelihood of an instance does not depend on how long its batch mates take."""
    env, policy, _ = make(name, network)
    instances = env.generator(3, rng=torch.Generator().manual_seed(4))
    if name == "flp":
        instances["to_choose"] = torch.tensor([1, 3, 9])
    else:
        instances["n_sets_to_choose"] = torch.tensor([[1.0], [3.0], [9.0]])
    td = env.reset(instances)
    out = policy(td, env, decode_type="greedy")
    for b, count in enumerate([1, 3, 9]):
        alone = policy(td[b : b + 1], env, decode_type="greedy")
        assert alone["actions"].shape == (1, count)
        torch.testing.assert_close(out["log_likelihood"][b], alone["log_likelihood"][0])
        torch.testing.assert_close(out["reward"][b], alone["reward"][0])


def test_context_tells_how_many_are_left():
    """The same locations with another number to choose give other first probabilities."""
    env, policy, _ = make("flp", "mlp")
    instance = env.generator(1, rng=torch.Generator().manual_seed(5))
    states = [
        env.reset(copy.deepcopy(instance).set("to_choose", torch.tensor([k]))) for k in (2, 5)
    ]
    after = [env.step(td.set("action", torch.tensor([0])))["next"] for td in states]
    logits = [
        policy.decoder(
            {key: value.unsqueeze(1) for key, value in state.items()},
            policy.decoder.prepare(policy.encoder(td)[0], dict(td.items())),
        )
        for td, state in zip(states, after, strict=True)
    ]
    assert not torch.allclose(*logits)


class RowMeans(nn.Module):
    """Embeds a location by its mean cost, so without coordinates."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, DIM)

    def forward(self, state):
        return self.embed(state["orig_distances"].mean(-1, keepdim=True))


@pytest.mark.parametrize("has_coordinates", [True, False])
def test_gains_are_those_of_the_matrix(has_coordinates: bool):
    """Coordinates beside a matrix have no effect, and a custom embedding can do without them."""
    env = make_env("flp")
    rng = torch.Generator().manual_seed(6)
    instances = env.generator(4, rng=rng).select("locs", "to_choose")
    instances["cost_matrix"] = torch.rand(4, 9, 9, generator=rng)
    td = env.reset(instances if has_coordinates else instances.exclude("locs"))
    encoder = GNNEncoder("flp", "gcn", embed_dim=DIM, num_layers=1, init_embedding=RowMeans())
    policy = AttentionModelPolicy(encoder, env_name="flp", embed_dim=DIM, num_heads=2)
    out = policy(td, env, phase="train", decode_type="sampling")
    out["log_likelihood"].sum().backward()
    state = env.step(td.set("action", torch.tensor([0, 3, 1, 2])))["next"]
    gains = policy.decoder.dynamic_embedding.gains({k: v.unsqueeze(1) for k, v in state.items()})
    torch.testing.assert_close(gains.squeeze(1), env.action_gains(dict(state.items())))


def test_networks_that_do_not_fit_raise():
    with pytest.raises(UnsupportedError, match=r"graph of 'mcp' among mlp, sage, gen, got 'gcn'"):
        GNNEncoder("mcp", "gcn", embed_dim=DIM)
    with pytest.raises(UnsupportedError, match="among mlp, gcn, gat"):
        GNNEncoder("flp", "sage", embed_dim=DIM)
    with pytest.raises(UnsupportedError, match="AttentionModelPolicy"):
        GNNEncoder("tsp", "gcn", embed_dim=DIM)
    with pytest.raises(UnknownNameError, match="did you mean 'sage'"):
        GNNEncoder("flp", "sge", embed_dim=DIM)
    with pytest.raises(ConfigError, match="num_layers"):
        GNNEncoder("flp", "mlp", embed_dim=DIM, num_layers=0)


@pytest.mark.parametrize("network", ["gat", "sage", "gen"])
def test_missing_package_is_named(network: str, monkeypatch):
    real = builtins.__import__

    def fail(name, *args, **kwargs):
        if name.startswith("torch_geometric"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(MissingDependencyError, match=r"pip install 'rl4co\[graph\]'"):
        NETWORKS[network](DIM, num_heads=2)


@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_query_with_and_without_products_made_beforehand(name: str):
    """The same as the projection of what is uncovered, chosen and left; a hook is heard."""
    env, policy, td = make(name, "mlp")
    context, hidden = policy.decoder.context_embedding, policy.encoder(td)[0]
    state = env.step(td.set("action", torch.tensor([0, 3, 1, 2])))["next"]
    asked = {key: value.unsqueeze(1) for key, value in state.items()}
    quick = context(context.prepare(hidden), asked)
    with disabled():
        plain = context(context.prepare(hidden), asked)
    torch.testing.assert_close(quick, plain, atol=1e-5, rtol=1e-5)
    context.project_context.register_forward_hook(lambda module, given, out: 0 * out)
    assert not context(context.prepare(hidden), asked).any()
