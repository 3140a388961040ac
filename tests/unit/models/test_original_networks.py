"""Converted weights of POMO, MTPOMO, MVMoE and MatNet against the original networks in plain torch.

The original networks are written down once more below, in a few lines each, and filled with random
weights under the original names.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from rl4co.core.errors import FileFormatError, UnknownNameError, UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.decoding.rollout import random_policy
from rl4co.envs import get_env
from rl4co.models import load_pretrained
from rl4co.models.zoo import matnet, mtpomo, mvmoe, pomo

D, HEADS, HIDDEN, LAYERS, EXPERTS, MIX = 16, 4, 24, 2, 4, 16
#: Names of normalization and feed-forward layers in most of the codes.
NAMES = ("add_n_normalization_", "feed_forward")


class Original:
    """Random weights by original name, drawn when a layer is first used."""

    def __init__(self, seed: int = 0) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        self.rng = torch.Generator().manual_seed(seed)

    def draw(self, name: str, *shape: int) -> torch.Tensor:
        if name not in self.weights:
            self.weights[name] = torch.randn(shape, generator=self.rng) / math.sqrt(shape[-1])
        return self.weights[name]

    def linear(self, name: str, x, size: int, bias: bool = True):
        weight = self.draw(f"{name}.weight", size, x.shape[-1])
        return F.linear(x, weight, self.draw(f"{name}.bias", size) if bias else None)

    def norm(self, name: str, x):
        weight, bias = (self.draw(f"{name}.{kind}", D) for kind in ("weight", "bias"))
        return F.instance_norm(x.mT, weight=weight, bias=bias).mT

    def heads(self, name: str, x):
        return self.linear(name, x, D, bias=False).unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def mixture(self, name: str, x, expert):
        """Two of four experts for each token, without noise."""
        self.draw(f"{name}.w_noise", D, EXPERTS)
        best = (x @ self.draw(f"{name}.w_gate", D, EXPERTS)).topk(2, -1)
        gates = torch.zeros(*x.shape[:-1], EXPERTS).scatter(
            -1, best.indices, best.values.softmax(-1)
        )
        results = torch.stack([expert(f"{name}.experts.{e}", x) for e in range(EXPERTS)], -1)
        return (results * gates.unsqueeze(-2)).sum(-1)

    def feedforward(self, name: str, x, parts=("W1", "W2")):
        hidden = self.linear(f"{name}.{parts[0]}", x, HIDDEN).relu()
        return self.linear(f"{name}.{parts[1]}", hidden, D)

    def mix(self, name: str, scores, entries):
        first = self.draw(f"{name}.mix1_weight", HEADS, 2, MIX)
        bias = self.draw(f"{name}.mix1_bias", HEADS, MIX)
        pairs = torch.stack([scores, entries.unsqueeze(1).expand_as(scores)], -1)  # [B, H, R, C, 2]
        hidden = (pairs @ first.unsqueeze(1) + bias[:, None, None]).relu()
        last = self.draw(f"{name}.mix2_weight", HEADS, MIX, 1).unsqueeze(1)
        offset = self.draw(f"{name}.mix2_bias", HEADS, 1)
        return (hidden @ last).squeeze(-1) + offset.unsqueeze(-1)

    def block(self, name: str, x, other, entries=None, names=NAMES):
        q, k, v = (self.heads(f"{name}.W{part}", x if part == "q" else other) for part in "qkv")
        scores = q @ k.mT / math.sqrt(D // HEADS)
        if entries is not None:
            scores = self.mix(f"{name}.mixed_score_MHA", scores, entries)
        out = self.linear(f"{name}.multi_head_combine", merge(scores.softmax(-1) @ v), D)
        x = self.norm(f"{name}.{names[0]}1.norm", x + out)
        if names[1] == "experts":
            expert = lambda part, rows: self.feedforward(part, rows, ("fc1", "fc2"))  # noqa: E731
            out = self.mixture(f"{name}.feedForward", x, expert)
        else:
            out = self.feedforward(f"{name}.{names[1]}", x)
        return self.norm(f"{name}.{names[0]}2.norm", x + out)

    def point(self, name: str, query, nodes, mask, experts: bool = False):
        """Clipped logits `[B, N]` of a query with heads `[B, H, 1, d]`."""
        k, v = self.heads(f"{name}.Wk", nodes), self.heads(f"{name}.Wv", nodes)
        scores = query @ k.mT / math.sqrt(D // HEADS)
        scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
        glimpse = merge(scores.softmax(-1) @ v)
        combine = f"{name}.multi_head_combine"
        expert = lambda part, rows: self.linear(part, rows, D)  # noqa: E731
        out = self.mixture(combine, glimpse, expert) if experts else expert(combine, glimpse)
        return (out @ nodes.mT).squeeze(1) / math.sqrt(D)


def merge(heads):
    return heads.transpose(1, 2).flatten(2)


def pick(nodes, index):
    return nodes[torch.arange(len(nodes)), index.flatten()].unsqueeze(1)  # [B, 1, D]


def compare(policy, env, td, expected, steps: int = 5, first=None) -> None:
    """Logits of the policy and of the original network along a random episode."""
    hidden, _ = policy.encoder(td)
    cache = policy.decoder.prepare(hidden, td)
    for step in range(steps):
        if step > 0 or first is None:
            state = {key: value.unsqueeze(1) for key, value in td.items()}
            found = policy.decoder(state, cache)[:, 0]
            torch.testing.assert_close(found, expected(td), atol=2e-5, rtol=1e-4)
            td = env.step(random_policy(td))["next"]
        else:
            td = env.step(td.set("action", first))["next"]


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def reset(env, size: int = 3):
    return env.reset(env.generator(size, rng=derive_generator("networks")))


def pomo_encoder(net: Original, x, names=NAMES):
    for index in range(LAYERS):
        x = net.block(f"encoder.layers.{index}", x, x, names=names)
    return x


def test_pomo_for_tours(tmp_path):
    env = get_env("tsp", generator_params={"num_loc": 7})
    td, net = reset(env), Original()
    names = ("addAndNormalization", "feedForward")
    nodes = pomo_encoder(net, net.linear("encoder.embedding", td["locs"], D), names)

    def expected(td):
        roles = (("first", "first_node"), ("last", "current_node"))
        query = sum(net.heads(f"decoder.Wq_{name}", pick(nodes, td[key])) for name, key in roles)
        return net.point("decoder", query, nodes, td["action_mask"])

    first = torch.arange(3)
    expected(env.step(td.clone().set("action", first))["next"])  # draws the weights
    torch.save({"model_state_dict": net.weights, "epoch": 3}, tmp_path / "checkpoint.pt")
    policy = pomo.load_original_weights(tmp_path / "checkpoint.pt", "tsp", num_heads=HEADS)
    compare(policy, env, td, expected, first=first)
    again = load_pretrained(policy.save_pretrained(tmp_path))
    compare(again, env, reset(env), expected, first=first)


def vehicle_network(net: Original, td, customers, context, experts: bool = False):
    names = ("addAndNormalization", "experts") if experts else NAMES
    depot = net.linear("encoder.embedding_depot", td["locs"][:, :1], D)
    customers = net.linear("encoder.embedding_node", customers, D)
    nodes = pomo_encoder(net, torch.cat([depot, customers], 1), names)

    def expected(td):
        query = torch.cat([pick(nodes, td["current_node"]), context(td).unsqueeze(1)], -1)
        query = net.heads("decoder.Wq_last", query)
        return net.point("decoder", query, nodes, td["action_mask"], experts)

    expected(td)
    return expected


def test_pomo_for_routes():
    env = get_env("cvrp", generator_params={"num_loc": 7})
    td, net = reset(env), Original()
    customers = torch.cat([td["locs"][:, 1:], td["demand"][:, 1:, None]], -1)
    expected = vehicle_network(net, td, customers, lambda td: 1 - td["used_capacity"])
    policy = pomo.load_original_weights(net.weights, "cvrp", num_heads=HEADS)
    compare(policy, env, td, expected)


@pytest.mark.parametrize("module", [mtpomo, mvmoe])
def test_mtvrp(module):
    """Open routes with time windows: every feature of the context that both codes have."""
    env = get_env("mtvrp", generator_params={"num_loc": 7, "variant_preset": "ovrptw"})
    td, net, experts = reset(env), Original(), module is mvmoe
    demand = td["demand_linehaul"] / td["vehicle_capacity"]
    windows = td["time_windows"][:, 1:]
    customers = torch.cat([td["locs"][:, 1:], demand[:, 1:, None], windows], -1)

    def context(td):
        load = 1 - td["used_capacity_linehaul"] / td["vehicle_capacity"]
        length = torch.zeros_like(load) if not experts else td["current_route_length"]
        return torch.cat([load, td["current_time"], length, td["open_route"].float()], -1)

    expected = vehicle_network(net, td, customers, context, experts)
    policy = module.load_original_weights(
        net.weights, num_heads=HEADS, remaining_length=not experts
    )
    compare(policy, env, td, expected)


def test_hierarchical_gates_are_rejected():
    with pytest.raises(UnsupportedError, match="hierarchical"):
        mvmoe.load_original_weights({"decoder.dense_or_moe.weight": torch.ones(2, D)})


def matnet_encoder(net: Original, prefix: str, columns, matrix):
    rows = torch.zeros(*matrix.shape[:2], D)
    for index in range(LAYERS):
        layer = f"{prefix}encoder.layers.{index}"
        rows, columns = (
            net.block(f"{layer}.row_encoding_block", rows, columns, matrix),
            net.block(f"{layer}.col_encoding_block", columns, rows, matrix.mT),
        )
    return rows, columns


def test_matnet_for_tours():
    env = get_env("atsp", generator_params={"num_loc": 6})
    td, net = reset(env), Original()
    probe = matnet.MatNetPolicy(embed_dim=D, num_heads=HEADS, num_encoder_layers=1)
    start = F.one_hot(probe.encoder.init_embedding.places(td["cost_matrix"]), D).float()
    rows, columns = matnet_encoder(net, "", start, td["cost_matrix"])

    def expected(td):
        roles = ((1, "first_node"), (0, "current_node"))
        query = sum(net.heads(f"decoder.Wq_{role}", pick(rows, td[key])) for role, key in roles)
        return net.point("decoder", query, columns, td["action_mask"])

    first = torch.arange(3)
    expected(env.step(td.clone().set("action", first))["next"])
    policy = matnet.load_original_weights(net.weights, "atsp", num_heads=HEADS)
    compare(policy, env, td, expected, first=first)


def test_matnet_for_flow_shops():
    """Processing times enter the original as they are."""
    env = get_env("ffsp", generator_params={"num_stage": 2, "num_machine": 3, "num_job": 5})
    td, net = reset(env), Original()
    td["run_time"][:, 0, 0] = longest = int(td["run_time"].max())
    probe = matnet.MultiStageFFSPPolicy(2, embed_dim=D, num_heads=HEADS, num_encoder_layers=1)
    encoded = []
    for stage, times in enumerate(td["run_time"].float().chunk(2, -1)):
        places = probe.encoder.stages[stage].init_embedding.places(times / longest)
        start = F.one_hot(places, D).float()
        prefix = f"stage_models.{stage}."
        jobs, machines = matnet_encoder(net, prefix, start, times)
        wait = net.draw(f"{prefix}decoder.encoded_NO_JOB", 1, 1, D)
        for unused in (1, 2):
            net.heads(f"{prefix}decoder.Wq_{unused}", machines)
        encoded.append((torch.cat([jobs, wait.expand(len(jobs), 1, D)], 1), machines))

    def expected(td):
        logits = []
        for stage, (nodes, machines) in enumerate(encoded):
            query = net.heads(
                f"stage_models.{stage}.decoder.Wq_3", pick(machines, td["machine_idx"] % 3)
            )
            name = f"stage_models.{stage}.decoder"
            logits.append(net.point(name, query, nodes, td["action_mask"]))
        return torch.stack(logits, 1)[torch.arange(len(td)), td["stage_idx"].flatten()]

    expected(td)
    policy = matnet.load_original_weights(net.weights, "ffsp", HEADS, max_time=longest)
    compare(policy, env, td, expected, steps=8)


def test_foreign_weights_are_rejected():
    for load in (
        lambda weights: pomo.load_original_weights(weights, "tsp"),
        lambda weights: matnet.load_original_weights(weights, "atsp"),
        lambda weights: mtpomo.load_original_weights(weights),
    ):
        with pytest.raises(FileFormatError, match="original"):
            load({"layer.weight": torch.ones(2, 2)})
        with pytest.raises(FileFormatError, match="original"):
            load({"layer.weight": 3})
    for module in (pomo, matnet):
        with pytest.raises(UnknownNameError, match="original"):
            module.load_original_weights({}, "op")
