"""Local searches against hand cases, brute force and neighbourhoods enumerated independently."""

from __future__ import annotations

import itertools
import subprocess
import sys

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch

from rl4co.core.errors import ConfigError, InvalidInstanceError, InvalidSolutionError
from rl4co.core.ops import batchify
from rl4co.decoding.ant_colony import AntColony, ColonyConfig
from rl4co.decoding.rollout import random_policy, rollout
from rl4co.envs import get_env
from rl4co.envs.base import State
from rl4co.envs.routing.cvrp.local_search import improve_routes
from rl4co.envs.routing.tsp.local_search import improve_tour
from rl4co.models.zoo.deepaco import DeepACOPolicy

two_opt, or_opt = (partial(improve_tour, moves=[kind]) for kind in ("two_opt", "or_opt"))
SEARCHES = [two_opt, or_opt, improve_tour]
Route = list[int]


def make_distances(seed: int, batch: int, size: int, symmetric: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if not symmetric:
        return rng.random((batch, size, size))
    points = rng.random((batch, size, 2))
    return np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)


def make_tours(seed: int, batch: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed + 1)
    return np.stack([rng.permutation(size) for _ in range(batch)])


def tour_length(d: np.ndarray, tour: np.ndarray) -> float:
    return float(sum(d[tour[i - 1], tour[i]] for i in range(len(tour))))


# ------------------------------------------------------------------------------------------ tours


def reversals(tour: Route) -> Iterator[Route]:
    """All tours with one segment of the cycle walked backwards."""
    for shift in range(len(tour)):
        turned = tour[shift:] + tour[:shift]
        for k in range(2, len(tour) + 1):
            yield turned[:k][::-1] + turned[k:]


def insertions(tour: Route) -> Iterator[Route]:
    """All tours with one to three consecutive nodes moved elsewhere, reversed or not."""
    for shift in range(len(tour)):
        turned = tour[shift:] + tour[:shift]
        for k in range(1, min(3, len(tour) - 2) + 1):
            segment, rest = turned[:k], turned[k:]
            for gap in range(1, len(rest)):
                yield rest[:gap] + segment + rest[gap:]
                yield rest[:gap] + segment[::-1] + rest[gap:]


def test_two_opt_uncrosses_a_square() -> None:
    """0-2-1-3 uses both diagonals of the unit square (2 + 2√2); the rim has length 4."""
    d = np.array([[0, 1, 2**0.5, 1], [1, 0, 1, 2**0.5], [2**0.5, 1, 0, 1], [1, 2**0.5, 1, 0]])
    assert two_opt(d[None], np.array([[0, 2, 1, 3]])).tolist() == [[0, 1, 2, 3]]


def test_or_opt_moves_a_node_between_its_neighbors() -> None:
    """Points on a line at 0..4: visiting 3 too early costs 12; the way out and back costs 8."""
    d = np.abs(np.arange(5.0)[:, None] - np.arange(5.0))
    start = np.array([[0, 3, 1, 2, 4]])
    assert tour_length(d, start[0]) == 12
    assert tour_length(d, or_opt(d[None], start)[0]) == 8


def test_two_opt_reverses_a_one_way_ring() -> None:
    """Arcs i → i+1 cost 1 and all others 10: against the ring costs 40, with it 4."""
    d = np.full((4, 4), 10.0)
    d[np.arange(4), (np.arange(4) + 1) % 4] = 1.0
    assert two_opt(d[None], np.array([[0, 3, 2, 1]])).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("search", "neighborhoods"),
    [(two_opt, [reversals]), (or_opt, [insertions]), (improve_tour, [reversals, insertions])],
)
def test_result_is_a_local_optimum(
    search: Callable[..., np.ndarray],
    neighborhoods: list[Callable[[Route], Iterator[Route]]],
    symmetric: bool,
) -> None:
    """No neighbour of the result is shorter, for every size from one node on."""
    for size in (1, 2, 3, 4, 5, 6, 7, 10, 13):
        d = make_distances(size, 6, size, symmetric)
        result = search(d, make_tours(size, 6, size))
        for b in range(6):
            length = tour_length(d[b], result[b])
            for neighborhood in neighborhoods:
                for other in neighborhood(result[b].tolist()):
                    assert tour_length(d[b], np.array(other)) >= length - 1e-5


@pytest.mark.parametrize("symmetric", [True, False])
def test_tiny_tours_are_usually_optimal(symmetric: bool) -> None:
    """Never below the optimum of all permutations, and on it in most cases."""
    d = make_distances(0, 40, 7, symmetric)
    result = improve_tour(d, make_tours(0, 40, 7))
    hits = 0
    for b in range(40):
        best = min(
            tour_length(d[b], np.array([0, *rest])) for rest in itertools.permutations(range(1, 7))
        )
        length = tour_length(d[b], result[b])
        assert length >= best - 1e-9
        hits += length <= best + 1e-6
    assert hits >= (38 if symmetric else 25)


@pytest.mark.parametrize("num_neighbors", [None, 1, 5])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("search", SEARCHES)
def test_tours_stay_valid_and_never_get_longer(
    search: Callable[..., np.ndarray], symmetric: bool, num_neighbors: int | None
) -> None:
    """Permutations, first node in place, input untouched, for float32 as well."""
    d = make_distances(3, 12, 30, symmetric).astype(np.float32)
    tours = make_tours(3, 12, 30)
    before_d, before_tours = d.copy(), tours.copy()
    result = search(d, tours, num_neighbors=num_neighbors)
    assert result.dtype == np.int64
    assert (np.sort(result, axis=1) == np.arange(30)).all()
    assert (result[:, 0] == tours[:, 0]).all()
    for b in range(12):
        assert tour_length(d[b], result[b]) < tour_length(d[b], tours[b])
        again = search(d[b : b + 1], result[b : b + 1], num_neighbors=num_neighbors)
        assert tour_length(d[b], again[0]) <= tour_length(d[b], result[b]) + 1e-6
    np.testing.assert_array_equal(d, before_d)
    np.testing.assert_array_equal(tours, before_tours)


@pytest.mark.parametrize("search", SEARCHES)
def test_neighbor_lists_are_nearly_as_good(search: Callable[..., np.ndarray]) -> None:
    """Ten nearest neighbours lose a few percent at most."""
    d, tours = make_distances(4, 10, 60), make_tours(4, 10, 60)
    everything, near = search(d, tours), search(d, tours, num_neighbors=10)
    lengths = [sum(map(tour_length, d, result)) for result in (everything, near)]
    assert lengths[1] < 1.05 * lengths[0]


@pytest.mark.parametrize("search", SEARCHES)
def test_rows_do_not_depend_on_the_batch(search: Callable[..., np.ndarray]) -> None:
    """Batch of one, threads and several tours per matrix give the same rows."""
    mixed = np.concatenate([make_distances(5, 3, 12, False), make_distances(5, 3, 12)])
    tours = make_tours(5, 12, 12)  # two tours per matrix: row s * 6 + b
    result = search(mixed, tours)
    np.testing.assert_array_equal(search(mixed, tours, threads=3), result)
    for row in range(12):
        alone = search(mixed[row % 6][None], tours[row : row + 1])
        np.testing.assert_array_equal(alone[0], result[row])


def test_max_iterations_counts_moves() -> None:
    """No move, one move, and the whole search."""
    d, tours = make_distances(6, 5, 15), make_tours(6, 5, 15)
    np.testing.assert_array_equal(two_opt(d, tours, max_iterations=0), tours)
    once = two_opt(d, tours, max_iterations=1)
    for b in range(5):
        first = tours[b, 0]
        canonical = [np.roll(t, -t.index(first)).tolist() for t in reversals(tours[b].tolist())]
        assert once[b].tolist() in canonical
        assert tour_length(d[b], once[b]) < tour_length(d[b], tours[b])


@pytest.mark.parametrize("scale", [1e-4, 1e6])
def test_tolerance_follows_the_scale(scale: float) -> None:
    """Millimetres and kilometres give the same tours."""
    d, tours = make_distances(7, 5, 20), make_tours(7, 5, 20)
    np.testing.assert_array_equal(improve_tour(d * scale, tours), improve_tour(d, tours))


def test_diagonal_is_not_read() -> None:
    """An infinite diagonal, as some policies use it, changes nothing."""
    for symmetric in (True, False):
        d, tours = make_distances(8, 4, 12, symmetric), make_tours(8, 4, 12)
        blocked = d + np.diag(np.full(12, np.inf))
        for neighbors in (None, 4):
            expected = improve_tour(d, tours, num_neighbors=neighbors)
            result = improve_tour(blocked, tours, num_neighbors=neighbors)
            np.testing.assert_array_equal(result, expected)


def test_forbidden_arcs_are_avoided() -> None:
    """Arcs of length 1e9 in the first tour do not blind the search to small gains."""
    d, tours = make_distances(9, 4, 15), make_tours(9, 4, 15)
    d[:, 3, 7] = d[:, 7, 3] = 1e9
    tours = np.stack([np.r_[3, 7, [u for u in t if u not in (3, 7)]] for t in tours])
    result = improve_tour(d, tours)
    for b in range(4):
        assert tour_length(d[b], result[b]) < 8


def test_bad_tours_raise() -> None:
    """Wrong shapes, repeated nodes and NaN raise typed errors that name the instance."""
    d, tours = make_distances(10, 3, 6), make_tours(10, 3, 6)
    with pytest.raises(ConfigError, match=r"\[B, N, N\]"):
        two_opt(d[0], tours)
    with pytest.raises(ConfigError, match="tours of shape"):
        two_opt(d, tours[:, :5])
    with pytest.raises(ConfigError, match="tours of shape"):
        two_opt(d[:2], tours)
    with pytest.raises(ConfigError, match="num_neighbors"):
        two_opt(d, tours, num_neighbors=0)
    with pytest.raises(ConfigError, match="threads"):
        two_opt(d, tours, threads=0)
    with pytest.raises(ConfigError, match="max_iterations"):
        two_opt(d, tours, max_iterations=-1)
    repeated = tours.copy()
    repeated[1, 0] = repeated[1, 1]
    with pytest.raises(InvalidSolutionError) as error:
        two_opt(d, repeated)
    assert error.value.instances == [1]
    d[2, 0, 1] = np.nan
    with pytest.raises(InvalidInstanceError, match="2"):
        two_opt(d, tours)


def test_numba_is_imported_on_first_use() -> None:
    """Importing the searches stays light."""
    code = (
        "import sys, rl4co.envs.routing.tsp.local_search, rl4co.envs.routing.cvrp.local_search;"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ----------------------------------------------------------------------------------------- routes


def split(actions: np.ndarray) -> list[Route]:
    """Routes of an action sequence, empty ones dropped."""
    routes: list[Route] = [[]]
    for node in actions.tolist():
        if node == 0:
            routes.append([])
        else:
            routes[-1].append(node)
    return [route for route in routes if route]


def plan_cost(d: np.ndarray, routes: list[Route]) -> float:
    return float(
        sum(d[u, v] for route in routes for u, v in itertools.pairwise([0, *route, 0]) if route)
    )


def make_routing(
    seed: int, batch: int, customers: int, symmetric: bool, capacity: float = 20.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random instances, and solutions that fill vehicles in random order."""
    rng = np.random.default_rng(seed)
    d = make_distances(seed, batch, customers + 1, symmetric)
    demand = rng.integers(1, 10, (batch, customers + 1)).astype(float)
    demand[:, 0] = 0
    actions = np.zeros((batch, 2 * customers + 3), dtype=np.int64)
    for b in range(batch):
        load, t = 0.0, 0
        for node in 1 + rng.permutation(customers):
            if load + demand[b, node] > capacity:
                load, t = 0.0, t + 1
            actions[b, t] = node
            load, t = load + demand[b, node], t + 1
    return d, demand, np.full(batch, capacity), actions


def plan_neighbors(routes: list[Route]) -> Iterator[list[Route]]:
    """Plans reached by 2-opt, exchanges of up to three customers, and 2-opt*."""
    for r, route in enumerate(routes):
        others = routes[:r] + routes[r + 1 :]
        for i, j in itertools.combinations(range(len(route) + 1), 2):
            segment, rest = route[i:j], route[:i] + route[j:]
            yield [*others, route[:i] + segment[::-1] + route[j:]]
            if len(segment) > 3:
                continue
            for turned in (segment, segment[::-1]):
                for gap in range(len(rest) + 1):
                    yield [*others, rest[:gap] + turned + rest[gap:]]
                for s, other in enumerate(others):
                    for gap in range(len(other) + 1):
                        longer = other[:gap] + turned + other[gap:]
                        yield [*others[:s], *others[s + 1 :], rest, longer]
    for one, two in itertools.combinations(routes, 2):
        others = [route for route in routes if route is not one and route is not two]
        for i, j in itertools.product(range(len(one) + 1), range(len(two) + 1)):
            yield [*others, one[:i] + two[j:], two[:j] + one[i:]]
            yield [*others, one[:i] + two[:j][::-1], one[i:][::-1] + two[j:]]
            for a, b in itertools.product(range(1, 4), range(1, 4)):
                x, y = one[i : i + a], two[j : j + b]
                for p, q in itertools.product((x, x[::-1]), (y, y[::-1])):
                    yield [*others, one[:i] + q + one[i + a :], two[:j] + p + two[j + b :]]


def test_routes_are_untangled_by_hand() -> None:
    """Customers at ±1, ±2 on a line, two per vehicle: both sides in one trip cost 4 + 4, not 12."""
    x = np.array([0.0, 1.0, 2.0, -1.0, -2.0])
    d = np.abs(x[:, None] - x)
    mixed = np.array([[1, 4, 0, 3, 2]])
    assert plan_cost(d, split(mixed[0])) == 12
    result = improve_routes(d[None], np.array([[0, 1, 1, 1, 1]]), np.array([2]), mixed)
    assert plan_cost(d, split(result[0])) == 8
    assert sorted(map(sorted, split(result[0]))) == [[1, 2], [3, 4]]


def test_routes_merge_only_if_capacity_allows() -> None:
    """Two customers behind each other: one trip of 4 with capacity 2, trips of 2 + 4 with 1."""
    x = np.array([0.0, 1.0, 2.0])
    d = np.abs(x[:, None] - x)[None]
    demand, actions = np.array([[0.0, 1.0, 1.0]]), np.array([[1, 0, 2]])
    merged = improve_routes(d, demand, np.array([2.0]), actions)
    # The depot visit at the end is what ends an episode with a single route.
    assert merged.tolist() in ([[1, 2, 0]], [[2, 1, 0]])
    apart = improve_routes(d, demand, np.array([1.0]), actions)
    assert apart.tolist() == [[1, 0, 2]]


@pytest.mark.parametrize("symmetric", [True, False])
def test_routes_are_local_optima(symmetric: bool) -> None:
    """No feasible neighbour is shorter."""
    d, demand, capacity, actions = make_routing(11, 8, 11, symmetric)
    result = improve_routes(d, demand, capacity, actions)
    for b in range(8):
        routes = split(result[b])
        cost = plan_cost(d[b], routes)
        for other in plan_neighbors(routes):
            assert sum(map(len, other)) == 11
            if all(demand[b, route].sum() <= capacity[b] for route in other):
                assert plan_cost(d[b], other) >= cost - 1e-5


@pytest.mark.parametrize("symmetric", [True, False])
def test_tiny_routes_are_usually_optimal(symmetric: bool) -> None:
    """Never below the optimum over all orders and all cuts, and on it in most cases."""
    d, demand, capacity, actions = make_routing(12, 30, 5, symmetric, capacity=15.0)
    result = improve_routes(d, demand, capacity, actions)
    hits = 0
    for b in range(30):
        best = np.inf
        for order in itertools.permutations(range(1, 6)):
            for cuts in itertools.product([False, True], repeat=4):
                routes: list[Route] = [[order[0]]]
                for node, cut in zip(order[1:], cuts, strict=True):
                    routes.append([node]) if cut else routes[-1].append(node)
                if all(demand[b, route].sum() <= capacity[b] for route in routes):
                    best = min(best, plan_cost(d[b], routes))
        cost = plan_cost(d[b], split(result[b]))
        hits += cost <= best + 1e-6
        # Without the triangle inequality a detour by the depot can pay; no route is ever added.
        assert cost >= best - 1e-9
    assert hits >= (25 if symmetric else 12)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_routes_stay_valid_and_never_get_longer(symmetric: bool, dtype: type) -> None:
    """Customers once, capacity kept, no empty or additional routes, input untouched."""
    d, demand, capacity, actions = make_routing(13, 10, 40, symmetric)
    d, before = d.astype(dtype), actions.copy()
    result = improve_routes(d, demand, capacity, actions)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(actions, before)
    longest = 0
    for b in range(10):
        routes, start = split(result[b]), split(actions[b])
        assert sorted(itertools.chain(*routes)) == list(range(1, 41))
        assert all(demand[b, route].sum() <= capacity[b] for route in routes)
        assert len(routes) <= len(start)
        assert plan_cost(d[b], routes) < plan_cost(d[b], start)
        clean = list(itertools.chain(*[[*route, 0] for route in routes]))[:-1]
        assert result[b].tolist() == clean + [0] * (result.shape[1] - len(clean))
        longest = max(longest, len(clean))
    assert result.shape[1] == longest


def test_route_rows_do_not_depend_on_the_batch() -> None:
    """Batch of one and threads give the same routes up to padding."""
    d, demand, capacity, actions = make_routing(14, 6, 15, True)
    result = improve_routes(d, demand, capacity, actions)
    threaded = improve_routes(d, demand, capacity, actions, threads=4)
    np.testing.assert_array_equal(threaded, result)
    for b in range(6):
        one = slice(b, b + 1)
        alone = improve_routes(d[one], demand[one], capacity[one], actions[one])
        assert split(alone[0]) == split(result[b])


def test_empty_routes_in_the_input_disappear() -> None:
    """Depots in front, doubled and at the end are padding; an optimal plan keeps its order."""
    x = np.array([0.0, 1.0, 2.0, -1.0])
    d, demand = np.abs(x[:, None] - x)[None], np.array([[0.0, 1.0, 1.0, 1.0]])
    actions = np.array([[0, 1, 2, 0, 0, 0, 3, 0, 0]])
    assert improve_routes(d, demand, np.array([2.0]), actions, 0).tolist() == [[1, 2, 0, 3]]


def test_exactly_full_vehicles_are_accepted() -> None:
    """Ten float32 tenths sum to more than 1 in float64; the tolerance covers it, 0 does not."""
    d = make_distances(15, 1, 11)
    demand = np.full((1, 11), 0.1, dtype=np.float32)
    demand[0, 0] = 0
    assert demand.astype(float).sum() > 1
    actions = np.arange(1, 11)[None]
    result = improve_routes(d, demand, np.array([1.0]), actions)
    assert len(split(result[0])) == 1
    assert plan_cost(d[0], split(result[0])) < plan_cost(d[0], split(actions[0]))
    with pytest.raises(InvalidSolutionError, match="capacity"):
        improve_routes(d, demand, np.array([1.0]), actions, capacity_tolerance=0.0)


def test_max_iterations_bounds_the_route_search() -> None:
    """More moves never hurt, and none leaves the routes as they were."""
    d, demand, capacity, actions = make_routing(16, 4, 20, True)
    costs = []
    for budget in (0, 1, 5, 1000):
        result = improve_routes(d, demand, capacity, actions, max_iterations=budget)
        costs.append([plan_cost(d[b], split(result[b])) for b in range(4)])
        if budget == 0:
            assert [split(row) for row in result] == [split(row) for row in actions]
    assert (np.diff(np.array(costs), axis=0) < 0).all()


def test_bad_routes_raise() -> None:
    """Missing and repeated customers, overload, wrong shapes and infinite arcs raise."""
    d, demand, capacity, actions = make_routing(17, 3, 6, True)
    with pytest.raises(ConfigError, match="distances of shape"):
        improve_routes(d[:2], demand, capacity, actions)
    with pytest.raises(ConfigError, match="capacity of shape"):
        improve_routes(d, demand, capacity[:, None], actions)
    with pytest.raises(ConfigError, match="actions of shape"):
        improve_routes(d, demand, capacity, actions[0])
    with pytest.raises(ConfigError, match="max_iterations"):
        improve_routes(d, demand, capacity, actions, max_iterations=-1)
    for wrong in (0, -1, 7, actions[2, 1]):
        broken = actions.copy()
        broken[2, 0] = wrong
        with pytest.raises(InvalidSolutionError, match="exactly once") as error:
            improve_routes(d, demand, capacity, broken)
        assert error.value.instances == [2]
    with pytest.raises(InvalidSolutionError, match="exactly once"):
        improve_routes(d, demand, capacity, actions[:, :3])
    demand[1, actions[1, 0]] = 21
    with pytest.raises(InvalidSolutionError, match="capacity") as error:
        improve_routes(d, demand, capacity, actions)
    assert error.value.instances == [1]
    d[0, 1, 2] = np.inf
    with pytest.raises(InvalidInstanceError, match="0"):
        improve_routes(d, demand, capacity, actions)


# -------------------------------------------------------------------------------- rows of the hook


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_every_caller_gives_the_hook_one_state_per_solution(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ants, DeepACO and callers with several solutions per instance, also for custom searches."""
    env = get_env(problem, generator_params={"num_loc": 8})
    seen = []

    def record(self: object, state: State, actions: torch.Tensor, **_: object) -> torch.Tensor:
        seen.append((state["locs"].clone(), len(actions)))
        return actions

    monkeypatch.setattr(type(env), "_local_search", record)
    td = env.reset(batch_size=3)
    AntColony(env, td, config=ColonyConfig(n_ants=4)).run(1)
    policy = DeepACOPolicy(env_name=problem, embed_dim=16, num_layers_graph_encoder=1)
    policy(td, env, phase="test", n_ants=4, n_iterations=1)
    tour = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8 if problem == "cvrp" else 0]] * 6)
    env.local_search(td, tour)
    assert [rows for _, rows in seen] == [12, 12, 6]
    for locs, rows in seen:
        assert torch.equal(locs, td["locs"].repeat(rows // 3, 1, 1))


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_copies_of_instances_are_searched_like_the_instances(problem: str, matrix: bool) -> None:
    """Rows of solutions belong to their instances, whichever of them are alike."""
    env = get_env(problem, generator_params={"num_loc": 12})
    td = env.reset(batch_size=3)
    td["locs"][2] = td["locs"][0]  # coordinates alone do not tell instances apart
    if problem == "cvrp":
        td["vehicle_capacity"][2] += 0.5
    if matrix:
        td["cost_matrix"] = torch.cdist(td["locs"], td["locs"])
    _, _, actions = rollout(env, batchify(td, 4), random_policy)
    together = env.local_search(td, actions)
    for row, solution in enumerate(actions):
        alone = env.local_search(td[row % 3][None], solution[None])[0]
        width = min(len(alone), together.shape[1])
        assert together[row, :width].tolist() == alone[:width].tolist()
