"""Plots of routing problems: the artists carry the right data."""

from __future__ import annotations

import itertools
import pickle
import pkgutil
import re

from typing import Any

import numpy as np
import pytest
import torch

from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tensordict import TensorDict

from rl4co.core.errors import ConfigError
from rl4co.decoding.rollout import random_policy, rollout
from rl4co.envs import routing
from rl4co.envs.improvement import is_improvement
from rl4co.envs.rendering import (
    ACCENT,
    INK,
    ROUTE_COLORS,
    classical_mds,
    route_colors,
    split_routes,
)
from rl4co.envs.routing.cvrp.render import render as render_cvrp
from rl4co.envs.routing.tsp.render import render as render_tsp
from rl4co.envs.testing import make_sized_env

SQUARE = torch.tensor([[0.0, 0.0], [1000.0, 0.0], [1000.0, 1000.0], [0.0, 1000.0]])


def line_data(figure: Figure, faint: bool = False) -> list[list[list[float]]]:
    """Coordinates of the solid or dashed lines."""
    lines = figure.axes[0].get_lines()
    return [np.asarray(line.get_xydata()).tolist() for line in lines if line.is_dashed() == faint]


def scatters(figure: Figure, size: int) -> Any:
    """The only collection with that many nodes that are not arrow heads."""
    found = [c for c in node_collections(figure) if len(np.asarray(c.get_offsets())) == size]
    assert len(found) == 1
    return found[0]


def node_collections(figure: Figure) -> list[Any]:
    # Arrow heads are the only collections with one path per item.
    return [c for c in figure.axes[0].collections if c.get_zorder() != 3]


def arrow_heads(figure: Figure) -> list[tuple[np.ndarray, np.ndarray]]:
    """Place and direction (from the middle of the barbs to the tip) of all arrow heads."""
    heads = []
    for collection in figure.axes[0].collections:
        if collection.get_zorder() == 3:
            for path, place in zip(
                collection.get_paths(), np.asarray(collection.get_offsets()), strict=True
            ):
                tip, left, _, right = np.asarray(path.vertices)[:4]
                heads.append((place, tip - (left + right) / 2))
    return heads


def colors_of(collection: Any) -> list[str]:
    return [to_hex(color) for color in collection.get_facecolors()]


# -------------------------------------------------------------------------------------------- TSP


def test_tsp_draws_the_closed_tour() -> None:
    """One line through the nodes in tour order and back; the title has the length."""
    tour = torch.tensor([2, 1, 0, 3])
    figure = render_tsp({"locs": SQUARE}, tour)
    assert line_data(figure) == [SQUARE[[2, 1, 0, 3, 2]].tolist()]
    assert figure.axes[0].get_title() == "4 nodes · cost 4000.0"
    nodes = scatters(figure, 4)
    offsets = np.asarray(nodes.get_offsets()).tolist()
    colors = dict(zip(map(tuple, offsets), colors_of(nodes), strict=True))
    # The first node of the tour stands out.
    assert colors.pop((1000.0, 1000.0)) == ACCENT
    assert set(colors.values()) == {INK}
    written = {text.get_text(): tuple(text.get_position()) for text in figure.axes[0].texts}
    assert written == {str(i): tuple(SQUARE[i].tolist()) for i in range(4)}


def test_tsp_arrows_point_along_the_tour() -> None:
    """Arrow heads sit in the middle of legs and point to the next node."""
    tour = [0, 1, 2, 3]
    heads = arrow_heads(render_tsp({"locs": SQUARE}, torch.tensor(tour)))
    middles = {tuple(((SQUARE[u] + SQUARE[v]) / 2).tolist()): (u, v)
               for u, v in itertools.pairwise([*tour, 0])}  # fmt: skip
    assert {tuple(place.tolist()) for place, _ in heads} == set(middles)
    for place, direction in heads:
        u, v = middles[tuple(place.tolist())]
        leg = (SQUARE[v] - SQUARE[u]).numpy()
        np.testing.assert_allclose(
            direction / np.linalg.norm(direction), leg / np.linalg.norm(leg), atol=1e-9
        )


def test_tsp_arrows_stay_few() -> None:
    """A large tour gets at most a dozen, and short legs none."""
    angles = torch.arange(400) / 400 * 2 * torch.pi
    circle = torch.stack([angles.cos(), angles.sin()], -1)
    assert arrow_heads(render_tsp({"locs": circle}, torch.arange(400))) == []
    star = torch.arange(400) * 151 % 400
    assert 1 <= len(arrow_heads(render_tsp({"locs": circle}, star))) <= 12


def test_tsp_without_actions_draws_nodes_only() -> None:
    """No line, no arrow, no accent."""
    for actions in (None, torch.zeros(0, dtype=torch.int64)):
        figure = render_tsp({"locs": SQUARE}, actions)
        assert figure.axes[0].get_lines()[:] == []
        assert arrow_heads(figure) == []
        assert set(colors_of(scatters(figure, 4))) == {INK}
        assert figure.axes[0].get_title() == "4 nodes"


def test_tsp_partial_tour_stays_open() -> None:
    """Three of four nodes: a path of two legs."""
    figure = render_tsp({"locs": SQUARE}, torch.tensor([0, 1, 2]))
    assert line_data(figure) == [SQUARE[[0, 1, 2]].tolist()]
    assert figure.axes[0].get_title() == "4 nodes · 3 visited · cost 2000.0"


def test_axes_have_equal_scales_and_hold_all_nodes() -> None:
    """Nothing assumes the unit square, also where the path does not reach."""
    locs = torch.tensor([[-500.0, 20.0], [300.0, 40.0], [900.0, -60.0]])
    ax = render_tsp({"locs": locs}, torch.tensor([0, 1])).axes[0]
    assert ax.get_aspect() == 1.0
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert left < -500 < 900 < right
    assert bottom < -60 < 40 < top


def test_large_instances_have_no_numbers() -> None:
    """Unless asked for."""
    locs = torch.rand(31, 2, generator=torch.Generator().manual_seed(0))
    assert len(render_tsp({"locs": locs}).axes[0].texts) == 0
    assert len(render_tsp({"locs": locs}, numbers=True).axes[0].texts) == 31
    assert len(render_tsp({"locs": locs[:30]}, numbers=False).axes[0].texts) == 0


def test_tsp_single_node() -> None:
    """The smallest instance draws."""
    figure: Any = render_tsp({"locs": torch.tensor([[3.0, 4.0]])}, torch.tensor([0]))
    assert figure.axes[0].get_title() == "1 node · cost 0.000"
    assert figure._repr_png_()


def test_matrix_instance_is_laid_out_by_mds() -> None:
    """Distances of the plot are those of a Euclidean matrix; the cost is the matrix's."""
    generator = torch.Generator().manual_seed(1)
    locs = torch.rand(8, 2, generator=generator, dtype=torch.float64)
    matrix = torch.cdist(locs, locs)
    tour = torch.randperm(8, generator=generator)
    figure = render_tsp({"cost_matrix": matrix}, tour)
    (drawn,) = line_data(figure)
    points = torch.tensor(drawn, dtype=torch.float64)
    walk = torch.cat([tour, tour[:1]])
    torch.testing.assert_close(
        torch.cdist(points, points), matrix[walk][:, walk], atol=1e-6, rtol=0
    )
    length = matrix[walk[:-1], walk[1:]].sum()
    assert figure.axes[0].get_title() == f"8 nodes · cost {length:.3f}"
    assert any("multidimensional scaling" in text.get_text() for text in figure.axes[0].texts)


def test_asymmetric_matrix_cost_follows_the_direction() -> None:
    """A one-way ring costs 3 one way and 30 the other; given coordinates are the places."""
    matrix = torch.tensor([[0.0, 1.0, 10.0], [10.0, 0.0, 1.0], [1.0, 10.0, 0.0]])
    state = {"cost_matrix": matrix, "locs": SQUARE[:3]}
    for tour, cost in (([0, 1, 2], "3.000"), ([0, 2, 1], "30.000")):
        figure = render_tsp(state, torch.tensor(tour))
        assert figure.axes[0].get_title().endswith(f"cost {cost}")
        assert line_data(figure) == [SQUARE[[*tour, 0]].tolist()]
        assert not any("scaling" in text.get_text() for text in figure.axes[0].texts)


def test_mds_places_tiny_and_infinite_matrices() -> None:
    """One to three nodes, and a forbidden arc, give definite and finite coordinates."""
    assert classical_mds(np.zeros((1, 1))).shape == (1, 2)
    pair = classical_mds(np.array([[0.0, 3.0], [3.0, 0.0]]))
    assert np.linalg.norm(pair[0] - pair[1]) == pytest.approx(3.0)
    # The sign of an axis is free; the point farthest out is put on the positive side.
    points = classical_mds(np.abs(np.array([0.0, 1.0, 5.0])[:, None] - np.array([0.0, 1.0, 5.0])))
    np.testing.assert_allclose(points[:, 0], [-2.0, -1.0, 3.0], atol=1e-9)
    blocked = np.array([[np.inf, 1, np.inf], [1, np.inf, 2], [4, 2, np.inf]])
    assert np.isfinite(classical_mds(blocked)).all()


def test_given_axes_are_used_and_their_figure_returned() -> None:
    """Works in sub-figures; no pyplot figure is left behind."""
    from matplotlib import pyplot as plt

    before = plt.get_fignums()
    figure = Figure()
    grid = figure.add_gridspec(1, 2)
    left, right = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    ax = right.add_subplot()
    assert render_tsp({"locs": SQUARE}, torch.arange(4), ax=ax, title="mine") is figure
    assert len(ax.get_lines()) == 1
    assert ax.get_title() == "mine"
    assert left.axes == []
    render_tsp({"locs": SQUARE}, torch.arange(4))
    assert plt.get_fignums() == before


def test_figure_shows_in_notebooks_and_can_be_pickled() -> None:
    """IPython asks for PNG bytes; a copy in another process still answers."""
    figure: Any = render_tsp({"locs": SQUARE}, torch.arange(4))
    for shown in (figure, pickle.loads(pickle.dumps(figure))):
        assert shown._repr_png_().startswith(b"\x89PNG")


def test_batched_input_is_rejected() -> None:
    """A batch, or an instance without places, is an error with a remedy."""
    with pytest.raises(ConfigError, match="index the batch"):
        render_tsp({"locs": SQUARE[None]})
    with pytest.raises(ConfigError, match="index the batch"):
        render_tsp({"locs": SQUARE}, torch.arange(4)[None])
    with pytest.raises(ConfigError, match="index the batch"):
        render_tsp({"cost_matrix": torch.zeros(1, 3, 3)})
    with pytest.raises(ConfigError, match="locs or cost_matrix"):
        render_tsp({})


# ------------------------------------------------------------------------------------------- CVRP


def cvrp_state() -> dict[str, torch.Tensor]:
    """Depot in the middle, four customers around it, capacity 30."""
    return {
        "locs": torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [-3.0, 0.0], [0.0, -5.0]]),
        "demand": torch.tensor([0.0, 12.0, 16.0, 9.0, 3.0]) / 30,
        "capacity": torch.tensor([30.0]),
    }


def legend_labels(figure: Figure) -> list[str] | None:
    legend = figure.axes[0].get_legend()
    return None if legend is None else [text.get_text() for text in legend.get_texts()]


def test_cvrp_draws_routes_and_depot_legs() -> None:
    """Solid lines between customers, dashed legs to the depot, loads in original units.

    Route 0-1-2-0 is the 3-4-5 triangle (12), 0-3-0 costs 6, 0-4-0 costs 10; together 28.
    """
    state = cvrp_state()
    locs = state["locs"]
    figure = render_cvrp(state, torch.tensor([1, 2, 0, 3, 0, 4, 0, 0]))
    assert line_data(figure) == [locs[[1, 2]].tolist(), locs[[3]].tolist(), locs[[4]].tolist()]
    legs = [[0, 1], [2, 0], [0, 3], [3, 0], [0, 4], [4, 0]]
    assert line_data(figure, faint=True) == [locs[leg].tolist() for leg in legs]
    assert figure.axes[0].get_title() == "4 customers · 3 routes · cost 28.000"
    assert legend_labels(figure) == [
        "route 1: 28/30",
        "route 2: 9/30",
        "route 3: 3/30",
        "depot",
    ]
    (head,) = arrow_heads(figure)
    assert head[0].tolist() == [3.0, 2.0]
    np.testing.assert_allclose(head[1] / np.linalg.norm(head[1]), [0.0, 1.0], atol=1e-9)


def test_cvrp_colors_customers_by_route_and_sizes_them_by_demand() -> None:
    """Unserved customers keep the neutral colour."""
    state = cvrp_state()
    figure = render_cvrp(state, torch.tensor([1, 2, 0, 4]))
    nodes = scatters(figure, 4)
    assert colors_of(nodes) == [ROUTE_COLORS[0], ROUTE_COLORS[0], INK, ROUTE_COLORS[1]]
    solid = [line.get_color() for line in figure.axes[0].get_lines() if not line.is_dashed()]
    assert solid == list(ROUTE_COLORS[:2])
    order = np.argsort(nodes.get_sizes()).tolist()
    assert order == np.argsort(state["demand"][1:].numpy()).tolist()


def test_cvrp_depot_is_one_square() -> None:
    """The depot has its own marker at its own place."""
    figure = render_cvrp(cvrp_state())
    depot = scatters(figure, 1)
    assert np.asarray(depot.get_offsets()).tolist() == [[0.0, 0.0]]
    corners = depot.get_paths()[0].vertices
    assert len(np.unique(corners.round(6), axis=0)) == 4


def test_cvrp_without_actions_draws_nodes_only() -> None:
    """No line, no legend, no cost."""
    figure = render_cvrp(cvrp_state())
    assert figure.axes[0].get_lines()[:] == []
    assert legend_labels(figure) is None
    assert figure.axes[0].get_title() == "4 customers"
    assert set(colors_of(scatters(figure, 4))) == {INK}


def test_cvrp_loads_follow_the_units() -> None:
    """Demands in other units are scaled; without a capacity the plain sum is shown."""
    state = cvrp_state()
    actions = torch.tensor([1, 2, 0, 3, 0, 4])
    raw = state | {"demand": state["demand"] * 60, "vehicle_capacity": torch.tensor([60.0])}
    assert legend_labels(render_cvrp(raw, actions)) == legend_labels(render_cvrp(state, actions))
    del state["capacity"]
    labels = legend_labels(render_cvrp(state, actions))
    assert labels is not None
    assert labels[0] == "route 1: 0.933"


def test_cvrp_legend_only_where_it_helps() -> None:
    """Not for many routes, not on somebody's axes; an argument decides otherwise."""
    locs = torch.rand(25, 2, generator=torch.Generator().manual_seed(2))
    state = {"locs": locs, "demand": torch.ones(25), "capacity": torch.ones(1)}
    actions = torch.stack([torch.arange(1, 25), torch.zeros(24, dtype=torch.int64)], -1).flatten()
    many = render_cvrp(state, actions)
    assert legend_labels(many) is None
    assert legend_labels(render_cvrp(state, actions, legend=True)) is not None
    assert legend_labels(render_cvrp(state, actions[:6], legend=False)) is None
    assert legend_labels(render_cvrp(state, actions[:6], ax=Figure().add_subplot())) is None


def test_cvrp_matrix_instance() -> None:
    """Places by scaling, cost by the matrix: 0-1-2-0 costs 1 + 2 + 4."""
    matrix = torch.tensor([[0.0, 1.0, 9.0], [9.0, 0.0, 2.0], [4.0, 9.0, 0.0]])
    state = {"cost_matrix": matrix, "demand": torch.tensor([0.0, 0.5, 0.5])}
    title = render_cvrp(state, torch.tensor([1, 2])).axes[0].get_title()
    assert title == "2 customers · 1 route · cost 7.000"


def test_cvrp_renders_a_tensordict() -> None:
    """A TensorDict is a mapping as good as a dict, and missing keys are fine."""
    td = TensorDict(cvrp_state(), batch_size=[])
    figure = render_cvrp(td, torch.tensor([1, 2, 0, 3, 0, 4]))
    assert figure.axes[0].get_title().endswith("cost 28.000")


# ---------------------------------------------------------------------------------------- helpers


def test_split_routes_drops_padding() -> None:
    """Depots in front, doubled and trailing make no routes."""
    routes = split_routes(np.array([0, 4, 2, 0, 0, 1, 0, 3, 0, 0]))
    assert [route.tolist() for route in routes] == [[4, 2], [1], [3]]
    assert split_routes(np.zeros(3, dtype=int)) == []


def test_route_colors_are_distinct_and_repeat() -> None:
    """18 different colours, then the same again."""
    colors = route_colors(40)
    assert len(set(colors[:18])) == 18
    assert colors[18:36] == colors[:18]
    assert all(re.fullmatch("#[0-9a-f]{6}", color) for color in colors)


ROUTING = [module.name for module in pkgutil.iter_modules(routing.__path__) if module.ispkg]


@pytest.mark.parametrize("name", ROUTING)
@pytest.mark.parametrize("stretch", [(1.0, 1.0), (1000.0, 150.0)], ids=["square", "wide"])
def test_nothing_lies_outside_of_the_figure(name: str, stretch: tuple[float, float]):
    """Titles, tick labels and legends included, whatever their size and that of the map."""
    env = make_sized_env(name, 10, seed=3, check_solution=False)
    td = env.reset(batch_size=1)
    if is_improvement(env):
        actions = env.random_action(dict(td.items()), env.rng)  # one move
    else:
        _, _, actions = rollout(env, td, random_policy)
    if "locs" in td.keys():
        td["locs"] = td["locs"] * torch.tensor(stretch)
    figure = env.render(td, actions)
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    box = figure.get_tightbbox()  # of all artists, in inches
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= width
    assert box.y1 <= height
