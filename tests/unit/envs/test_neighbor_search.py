"""Searches on neighbour lists: valid, never worse, the same compiled and not, good enough."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl4co import kernels
from rl4co.core.errors import ConfigError, InvalidInstanceError, InvalidSolutionError
from rl4co.core.neighbors import nearest_neighbors
from rl4co.envs import get_env
from rl4co.envs.routing.cvrp.insertion import cheapest_insertion
from rl4co.envs.routing.cvrp.iterated_search import iterate_routes
from rl4co.envs.routing.cvrp.neighbor_search import improve_fleet
from rl4co.envs.routing.cvrp.sweep import join_routes, order_route, sweep_partition
from rl4co.envs.routing.tsp.guided_search import guide_from_heatmap, guided_search
from rl4co.envs.routing.tsp.insertion import insert_in_order
from rl4co.envs.routing.tsp.iterated_search import iterate_tour
from rl4co.envs.routing.tsp.neighbor_search import improve_tours


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(1)


def length(points: np.ndarray, tour: np.ndarray) -> float:
    return float(np.linalg.norm(points[tour] - points[np.roll(tour, -1)], axis=1).sum())


def route_length(points: np.ndarray, visits: np.ndarray) -> float:
    return length(points, np.append(visits, 0))


def random_routes(demand: np.ndarray, limit: float, random: np.random.Generator) -> np.ndarray:
    visits, load = [], 0.0
    for node in random.permutation(len(demand) - 1) + 1:
        if load + demand[node] > limit:
            visits, load = [*visits, 0], 0.0
        visits.append(node)
        load += demand[node]
    return np.array(visits)


def assert_valid_routes(visits: np.ndarray, demand: np.ndarray, limit: float) -> None:
    assert sorted(node for node in visits if node) == list(range(1, len(demand)))
    load = 0.0
    for node in visits:
        load = 0.0 if node == 0 else load + demand[node]
        assert load <= limit * (1 + 1e-5)


# ---------------------------------------------------------------- neighbours


def test_nearest_neighbors_by_hand():
    line = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [7.0, 0.0]])
    assert nearest_neighbors(line, 2).tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]


def test_duplicates_are_neighbors_of_each_other_but_not_of_themselves():
    found = nearest_neighbors(np.zeros((20, 2)), 5)
    assert found.shape == (20, 5)
    assert not (found == np.arange(20)[:, None]).any()
    assert all(len(set(row)) == 5 for row in found.tolist())


@pytest.mark.parametrize("count", [-1, 4, 100])
def test_impossible_numbers_of_neighbors_raise(count: int):
    with pytest.raises(ConfigError, match="0 to 3 neighbours"):
        nearest_neighbors(np.zeros((4, 2)), count)


# ---------------------------------------------------------------- tours


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 60])
def test_tours_stay_valid_and_never_get_longer(size: int, random: np.random.Generator):
    points = random.random((3, size, 2))
    tours = np.stack([random.permutation(size) for _ in range(6)])
    found = improve_tours(points, tours)
    for row in range(6):
        assert sorted(found[row].tolist()) == list(range(size))
        assert found[row, 0] == tours[row, 0]
        b = row % 3
        assert length(points[b], found[row]) <= length(points[b], tours[row]) + 1e-12
    assert (improve_tours(points, found) == found).all(), "a local optimum stays one"


def test_no_2_opt_move_is_left_on_complete_lists(random: np.random.Generator):
    """Independent check: no reversal of any segment shortens the result."""
    points = random.random((1, 30, 2))
    tour = improve_tours(points, random.permutation(30)[None], num_neighbors=29)[0]
    shortest = length(points[0], tour)
    for i in range(1, 29):
        for j in range(i + 1, 30):
            other = np.concatenate([tour[:i], tour[i : j + 1][::-1], tour[j + 1 :]])
            assert length(points[0], other) >= shortest - 1e-9


def test_duplicate_points_come_to_an_end(random: np.random.Generator):
    """Neighbour lists full of points at distance zero: moves that gain nothing are not made."""
    points = np.repeat(random.random((1, 4, 2)), 10, axis=1)
    start = random.permutation(40)
    tour = improve_tours(points, start[None])[0]
    assert sorted(tour.tolist()) == list(range(40))
    assert length(points[0], tour) < 0.5 * length(points[0], start)


def test_a_matrix_replaces_coordinates(random: np.random.Generator):
    """The same distances, the same tours; others, others."""
    points = random.random((1, 40, 2))
    matrix = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    tour = random.permutation(40)[None]
    by_points, by_matrix = improve_tours(points, tour), improve_tours(points, tour, matrix)
    assert length(points[0], by_matrix[0]) == pytest.approx(length(points[0], by_points[0]))
    metric = np.abs(points[:, :, None] - points[:, None]).sum(-1)
    other = improve_tours(points, tour, metric)[0]
    cost = metric[0][other, np.roll(other, -1)].sum()
    assert cost <= metric[0][tour[0], np.roll(tour[0], -1)].sum()


def test_max_iterations_counts_moves(random: np.random.Generator):
    points, tour = random.random((1, 50, 2)), random.permutation(50)[None]
    costs = [
        length(points[0], improve_tours(points, tour, max_iterations=moves)[0])
        for moves in (0, 1, 2, 1000)
    ]
    assert costs[0] == pytest.approx(length(points[0], tour[0]))
    assert costs[0] > costs[1] > costs[2] > costs[3]


def test_threads_do_not_change_results(random: np.random.Generator):
    points = random.random((2, 50, 2))
    tours = np.stack([random.permutation(50) for _ in range(6)])
    assert (improve_tours(points, tours) == improve_tours(points, tours, threads=3)).all()


def test_bad_input_raises():
    points, tours = np.zeros((1, 4, 2)), np.arange(4)[None]
    with pytest.raises(ConfigError, match="locs of shape"):
        improve_tours(points[0], tours)
    with pytest.raises(ConfigError, match="tours of shape"):
        improve_tours(points, tours[:, :3])
    with pytest.raises(InvalidSolutionError):
        improve_tours(points, np.array([[0, 1, 2, 2]]))
    with pytest.raises(InvalidInstanceError, match="finite"):
        improve_tours(points * np.nan, tours)
    with pytest.raises(ConfigError, match="num_neighbors"):
        improve_tours(points, tours, num_neighbors=0)
    with pytest.raises(ConfigError, match="no end"):
        iterate_tour(points[0], tours[0])


def test_iterated_search_finds_the_best_tour_of_a_circle(random: np.random.Generator):
    """Points on a circle: the best tour goes round it."""
    angle = np.sort(random.random(40)) * 2 * np.pi
    points = np.stack([np.cos(angle), np.sin(angle)], 1)
    tour = iterate_tour(points, random.permutation(40), max_kicks=2000)
    assert length(points, tour) == pytest.approx(length(points, np.arange(40)))


def test_iterated_search_reports_what_it_returns(random: np.random.Generator):
    points, notes = random.random((100, 2)), list[float]()
    start = insert_in_order(points, random.permutation(100))
    tour = iterate_tour(points, start, max_kicks=20_000, on_improvement=notes.append)
    assert notes == sorted(notes, reverse=True)
    assert notes[-1] == pytest.approx(length(points, tour))
    assert length(points, tour) < 0.97 * length(points, improve_tours(points[None], start[None])[0])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_insertion_puts_each_node_at_its_best_place(size: int, random: np.random.Generator):
    """Against a plain list that tries all places."""
    points, order = random.random((size, 2)), random.permutation(size)
    tour = [order[0]]
    for node in order[1:]:
        tries = [[*tour[:i], node, *tour[i:]] for i in range(1, len(tour) + 1)]
        tour = min(tries, key=lambda nodes: length(points, np.array(nodes)))
    found = insert_in_order(points, order)
    assert length(points, found) == pytest.approx(length(points, np.array(tour)))
    assert found[0] == order[0]


# ---------------------------------------------------------------- guidance


def test_guide_prefers_heavy_edges():
    heat = np.array([[[0.0, 0.8, 0.4], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]])
    guide = guide_from_heatmap(heat)[0]
    np.testing.assert_allclose(guide[0], [1e5, 1 / 1.00001, 1 / 0.50001], rtol=1e-4)
    np.testing.assert_allclose(guide[2], 1.0, rtol=1e-4)  # a node that the heatmap knows nothing of


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_bad_heatmaps_raise(bad: float):
    with pytest.raises(ConfigError, match="finite weights"):
        guide_from_heatmap(np.full((1, 3, 3), bad))
    with pytest.raises(ConfigError, match="shape"):
        guide_from_heatmap(np.ones((3, 3)))


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_guidance_is_the_same_for_tours_and_routes(problem: str):
    """A heatmap takes effect, of the right shape only; options that need one raise without."""
    env = get_env(problem, generator_params={"num_loc": 30}, seed=0)
    td = env.reset(env.generate(2))
    actions, size = env.solve(td, solver="random")[0], td["action_mask"].shape[1]
    heatmap = np.random.default_rng(0).random((2, size, size))
    found = env.local_search(td, actions, heatmap=heatmap)
    assert bool((env.get_reward(td, found) >= env.get_reward(td, actions)).all())
    plain = env.local_search(td, actions, heatmap=heatmap, rounds=0)
    assert not env.get_reward(td, found).equal(env.get_reward(td, plain))
    for bad in (heatmap[:1], heatmap[:, :5, :5], heatmap.repeat(2, axis=0)):
        with pytest.raises(ConfigError, match="guide of shape"):
            env.local_search(td, actions, heatmap=bad, rounds=3)
    with pytest.raises(ConfigError, match="at least 0, got -1"):
        env.local_search(td, actions, heatmap=heatmap, rounds=-1)
    with pytest.raises(ConfigError, match="expected a heatmap"):
        env.local_search(td, actions, rounds=3)


def test_guidance_by_the_best_tour_leads_there(random: np.random.Generator):
    """A heatmap that knows a good tour brings others to it, or nearly."""
    points = random.random((1, 60, 2))
    best = iterate_tour(points[0], random.permutation(60), max_kicks=20_000)
    heat = np.zeros((1, 60, 60))
    heat[0, best, np.roll(best, -1)] = heat[0, np.roll(best, -1), best] = 1.0
    tours = np.stack([random.permutation(60) for _ in range(5)])
    plain, guided = (
        improve_tours(points, tours),
        guided_search(points, tours, guide_from_heatmap(heat)),
    )
    target = length(points[0], best)
    costs = [[length(points[0], tour) for tour in found] for found in (plain, guided)]
    assert np.mean(costs[1]) - target < 0.5 * (np.mean(costs[0]) - target)
    assert all(g <= p + 1e-9 for p, g in zip(*costs, strict=True))


@pytest.mark.parametrize(("name", "rounds"), [("deepaco_nls_tsp100", 10), ("gfacs_tsp200", 5)])
def test_original_searches_are_reproduced(name: str, rounds: int, shared_dir: Path):
    """2-opt and guided search of the original codes, tour by tour."""
    path = shared_dir / "reference" / "nonautoregressive" / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"no reference results in {path}")
    data = np.load(path, allow_pickle=False)
    locs, tours = data["locs"][:1], data["tours"].astype(np.int64)
    size = locs.shape[1]
    heat = np.zeros((1, size, size), dtype=np.float32)
    heat[0][tuple(data["edge_index"][0].astype(int))] = data["heu_eval"][0]
    for count, moves, key in (
        (0, None, "two_opt_tours"),
        (rounds, 10_000, "nls_tours"),
        (rounds, size // 4, "nls_train_tours"),
    ):
        guide = guide_from_heatmap(heat)
        found = guided_search(locs, tours, guide, count, 20, moves, exhaustive=True)
        assert (found == data[key]).all()


# ---------------------------------------------------------------- routes


@pytest.mark.parametrize("size", [2, 3, 4, 6, 13, 40])
@pytest.mark.parametrize("swap_star", [True, False])
def test_routes_stay_valid_and_never_get_longer(
    size: int, swap_star: bool, random: np.random.Generator
):
    for _ in range(5):
        points = random.random((1, size, 2))
        demand = np.append(0, random.integers(1, 10, size - 1))[None].astype(float)
        visits = random_routes(demand[0], 15.0, random)
        found = improve_fleet(points, demand, np.array([15.0]), visits[None], swap_star=swap_star)[
            0
        ]
        assert_valid_routes(found, demand[0], 15.0)
        assert route_length(points[0], found) <= route_length(points[0], visits) + 1e-12
        assert (found == 0).sum() <= max((visits == 0).sum(), 1) + len(found) - size


def test_swap_star_helps(random: np.random.Generator):
    points = random.random((4, 100, 2))
    demand = np.pad(random.integers(1, 10, (4, 99)), ((0, 0), (1, 0))).astype(float)
    solutions = [random_routes(row, 30.0, random) for row in demand]
    width = max(map(len, solutions))
    visits = np.stack([np.pad(row, (0, width - len(row))) for row in solutions])
    costs = []
    for swap_star in (False, True):
        found = improve_fleet(points, demand, np.full(4, 30.0), visits, swap_star=swap_star)
        costs.append(np.mean([route_length(p, v) for p, v in zip(points, found, strict=True)]))
    assert costs[1] < costs[0]


def test_routes_by_hand():
    """Two pairs of customers, left and right of the depot: each pair gets a vehicle."""
    line = np.array([[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]]])
    mixed = np.array([[1, 4, 0, 3, 2]])
    found = improve_fleet(line, np.array([[0, 1, 1, 1, 1]]), np.array([2]), mixed)[0]
    assert route_length(line[0], found) == pytest.approx(8.0)


def test_iterated_routes_are_better_and_valid(random: np.random.Generator):
    points = random.random((60, 2))
    demand = np.append(0, random.integers(1, 10, 59)).astype(float)
    visits = random_routes(demand, 40.0, random)
    settled = improve_fleet(points[None], demand[None], np.array([40.0]), visits[None])[0]
    found = iterate_routes(points, demand, 40.0, visits, max_ruins=3000)
    assert_valid_routes(found, demand, 40.0)
    assert route_length(points, found) < route_length(points, settled)


def test_the_first_search_for_routes_can_be_stopped():
    """Routes of a hundred customers take SWAP* long, so the clock is looked at every few moves."""
    rng = np.random.default_rng(0)
    points, demand = rng.random((801, 2)), np.ones(801)
    demand[0] = 0
    visits = np.concatenate([[*range(k, k + 100), 0] for k in range(1, 801, 100)])[:-1]
    costs: list[float] = []

    def stop() -> bool:
        return len(costs) == 2

    settings = {"max_ruins": 0, "on_improvement": costs.append}
    stopped = iterate_routes(points, demand, 100.0, visits, **settings, is_stopped=stop)
    assert sorted(stopped[stopped > 0]) == list(range(1, 801)) and costs[1] < costs[0]
    costs.clear()
    iterate_routes(points, demand, 100.0, visits, **settings)
    assert len(costs) > 50


def test_sweep_fills_vehicles_by_angle():
    """Four customers on a circle, two per vehicle, from the angle -3/4 pi on."""
    points = np.array([[0, 0], [1, 1], [-1, 1], [-1, -1], [1, -1]])
    routes = sweep_partition(points, np.array([0, 1, 1, 1, 1]), 2.0)
    assert [route.tolist() for route in routes] == [[3, 4], [1, 2]]
    later = sweep_partition(points, np.array([0, 1, 1, 1, 1]), 2.0, start=1)
    assert [route.tolist() for route in later] == [[4, 1], [2, 3]]
    assert join_routes(routes).tolist() == [3, 4, 0, 1, 2]
    assert order_route(points, np.array([3, 1, 4])).tolist() in ([3, 4, 1], [1, 4, 3])


def test_cheapest_insertion_against_a_plain_one(random: np.random.Generator):
    """With all neighbours: the same cost as trying every customer at every place."""
    points = random.random((12, 2))
    demand = np.append(0, random.integers(1, 6, 11)).astype(float)
    routes: list[list[int]] = []
    left = set(range(1, 12))

    def closed(route: list[int]) -> float:
        return length(points, np.array([0, *route])) if route else 0.0

    while left:
        tries = [
            (closed([*route[:i], node, *route[i:]]) - closed(route), node, number, i)
            for node in left
            for number, route in enumerate([*routes, []])
            if demand[route].sum() + demand[node] <= 12.0
            for i in range(len(route) + 1)
        ]
        _, node, number, place = min(tries)
        if number == len(routes):
            routes.append([])
        routes[number].insert(place, node)
        left.remove(node)
    found = cheapest_insertion(points, demand, 12.0)
    assert found is not None
    assert_valid_routes(found, demand, 12.0)
    assert route_length(points, found) == pytest.approx(sum(map(closed, routes)))


# ---------------------------------------------------------------- compiled or not


def test_plain_python_gives_the_same(random: np.random.Generator):
    """Kernels switched off, the same functions run uncompiled."""
    points = random.random((1, 14, 2))
    demand = np.append(0, random.integers(1, 9, 13))[None].astype(float)
    tours, heat = random.permutation(14)[None], random.random((1, 14, 14))
    visits = random_routes(demand[0], 20.0, random)

    def everything() -> list[list[int]]:
        return [
            improve_tours(points, tours)[0].tolist(),
            iterate_tour(points[0], tours[0], max_kicks=30).tolist(),
            insert_in_order(points[0], tours[0]).tolist(),
            guided_search(points, tours, guide_from_heatmap(heat))[0].tolist(),
            guided_search(points, tours, guide_from_heatmap(heat), exhaustive=True)[0].tolist(),
            improve_fleet(points, demand, np.array([20.0]), visits[None])[0].tolist(),
            iterate_routes(points[0], demand[0], 20.0, visits, max_ruins=30).tolist(),
            np.asarray(cheapest_insertion(points[0], demand[0], 20.0)).tolist(),
        ]

    compiled = everything()
    with kernels.disabled():
        assert everything() == compiled
