"""MTVRP as policies and readers see it: features of the embeddings, and plots."""

from __future__ import annotations

import math

import pytest
import torch

from matplotlib.colors import to_rgba
from matplotlib.markers import MarkerStyle

from rl4co.core.errors import UnsupportedError
from rl4co.envs import MTVRPEnv, MTVRPGenerator
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.rendering import ROUTE_COLORS
from rl4co.models import AttentionModelPolicy
from rl4co.models.embeddings.mtvrp import MTVRPContext, MTVRPInitEmbedding

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


def draw(batch: int = 3, **settings):
    env = MTVRPEnv(MTVRPGenerator(**{"num_loc": 6, **settings}), seed=1)
    return env, env.generate(batch)


# ---------------------------------------------------------------- embeddings


def test_features_of_the_context():
    """Free capacities, time, length, open or not, length left; nothing left of no limit."""
    state = {
        "vehicle_capacity": torch.tensor([[[10.0]], [[1.0]]]),
        "used_capacity_linehaul": torch.tensor([[[2.0]], [[0.25]]]),
        "used_capacity_backhaul": torch.tensor([[[0.0]], [[0.5]]]),
        "current_time": torch.tensor([[[1.5]], [[0.0]]]),
        "current_route_length": torch.tensor([[[1.25]], [[2.0]]]),
        "open_route": torch.tensor([[[True]], [[False]]]),
        "distance_limit": torch.tensor([[[3.0]], [[math.inf]]]),
    }
    features = MTVRPContext(8).features(state)  # [B, Q, 6]
    expected = [[[0.8, 1.0, 1.5, 1.25, 1.0, 1.75]], [[0.75, 0.5, 0.0, 2.0, 0.0, 0.0]]]
    torch.testing.assert_close(features, torch.tensor(expected))


def test_attributes_of_the_customers():
    """Each of the seven numbers has its column; a window without end is one without numbers."""
    env, td = draw(variant_preset="vrpbtw", num_loc=20)
    state = env.reset(td)
    embedding = MTVRPInitEmbedding(7)
    with torch.no_grad():
        embedding.init_embed.weight.copy_(torch.eye(7))
        embedding.init_embed.bias.zero_()
        customers = embedding(state)[:, 1:]
        expected = torch.cat(
            [
                td["locs"],
                td["demand_linehaul"].unsqueeze(-1),
                td["demand_backhaul"].unsqueeze(-1),
                td["time_windows"],
                td["service_time"].unsqueeze(-1),
            ],
            -1,
        )[:, 1:]
        torch.testing.assert_close(customers, expected)
        env, td = draw(variant_preset="cvrp")
        assert not embedding(env.reset(td))[:, 1:, 4:].any()


@torch.no_grad()
def test_units_do_not_matter():
    """The same instances with demands in units or in fractions of a vehicle: the same solutions."""
    env, td = draw(16, num_loc=12, sample_backhaul_class=True)
    policy = AttentionModelPolicy(env_name="mtvrp", **TINY).eval()
    raw = td.clone()
    for key in ("demand_linehaul", "demand_backhaul"):
        raw[key] = td[key] * td["capacity_original"]
    raw["vehicle_capacity"] = td["capacity_original"]
    outs = [policy(env.reset(given), env, phase="test") for given in (td, raw)]
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])


def test_a_matrix_alone_needs_another_embedding():
    env, td = draw()
    locs = td["locs"]
    td["cost_matrix"] = (locs.unsqueeze(-2) - locs.unsqueeze(-3)).norm(dim=-1)
    policy = AttentionModelPolicy(env_name="mtvrp", **TINY)
    with pytest.raises(UnsupportedError, match="mtvrp instances with coordinates"):
        policy(env.reset(td.exclude("locs")), env)


# ---------------------------------------------------------------- plots


def draw_solution(**settings):
    env, td = draw(1, **settings)
    episode = record_episode(env, td, torch.Generator().manual_seed(0))
    reward = env.get_reward(episode.initial, episode.actions)
    return env.render(episode.initial, episode.actions).axes[0], reward.item()


@pytest.mark.parametrize("preset", ["cvrp", "ovrp", "vrpbltw", "ovrpbltw"])
def test_plot(preset: str):
    """The title has variant and cost; closed routes have a faint leg more than open ones."""
    ax, reward = draw_solution(variant_preset=preset, num_loc=12)
    assert ax.get_title().startswith(f"{preset.upper()} · 12 customers · ")
    assert ax.get_title().endswith(f"cost {-reward:.3f}")
    labels = [line.get_label() for line in ax.lines]
    routes = sum(label.startswith("route ") for label in labels)
    assert routes > 0
    faint = sum(line.get_alpha() is not None for line in ax.lines)
    assert faint == (routes if preset[0] == "o" else 2 * routes)
    texts = {text.get_text() for text in ax.get_legend().get_texts()}
    assert ("backhaul" in texts) is ("b" in preset)
    assert ("time window" in texts) is ("tw" in preset)
    assert ("out," in labels[0]) is ("b" in preset)


def test_backhauls_are_triangles():
    """One for each, in the colour of the route that serves it."""
    env, td = draw(1, variant_preset="vrpb", num_loc=14)
    episode = record_episode(env, td, torch.Generator().manual_seed(0))
    ax = env.render(episode.initial, episode.actions).axes[0]
    triangle = len(MarkerStyle("^").get_path().vertices)
    drawn = [
        mark
        for mark in ax.collections
        if len(mark.get_offsets()) and len(mark.get_paths()[0].vertices) == triangle
    ]
    assert sum(len(mark.get_offsets()) for mark in drawn) == (td["demand_backhaul"] > 0).sum()
    actions = episode.actions[0].tolist()
    positions = [actions.index(node) for node in td["demand_backhaul"][0].nonzero().flatten()]
    # The routes are numbered by the visits of the depot before them.
    routes = [sum(node == 0 for node in actions[:position]) for position in positions]
    expected = [to_rgba(ROUTE_COLORS[route]) for route in routes]
    assert [tuple(color) for color in drawn[0].get_facecolors()] == expected


def test_plot_of_an_instance_alone():
    """Also by a matrix alone, without a solution, and without a legend."""
    env, td = draw(2, variant_preset="ovrptw")
    locs = td["locs"]
    td["cost_matrix"] = (locs.unsqueeze(-2) - locs.unsqueeze(-3)).norm(dim=-1)
    ax = env.render(env.reset(td.exclude("locs")), index=1).axes[0]
    assert ax.get_title() == "OVRPTW · 6 customers"
    assert ax.get_legend() is None
    assert not ax.lines
