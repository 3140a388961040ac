"""CVRPTW: exhaustive oracles, benchmark solutions, matrices, units, generated windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import (
    InvalidSolutionError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.data.formats import read_instance
from rl4co.envs import CVRPTWEnv, CVRPTWGenerator
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.routing.cvrptw.schedule import service_starts
from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from tests.unit.envs.routing_oracle import (
    all_routes,
    allowed_solutions,
    as_actions,
    as_routes,
    euclidean,
    first_violation,
    round_trip,
)

CAPACITY = 10


class Plain:
    """An instance in float64, and what is true of it, told without tensors."""

    def __init__(self, num_loc: int, seed: int, matrices: bool = False) -> None:
        rng = np.random.default_rng(seed)
        points = rng.uniform(0, 30, (num_loc + 1, 2))
        self.costs = euclidean(points)
        self.times, self.matrices = self.costs, {}
        if matrices:  # asymmetric, without triangle inequality, and unlike each other
            self.costs, self.times = rng.uniform(1, 40, (2, num_loc + 1, num_loc + 1))
            np.fill_diagonal(self.costs, 0)
            self.matrices = {"cost_matrix": self.costs, "duration_matrix": self.times}
        self.units = rng.integers(1, 6, num_loc)
        self.service = np.append(0, rng.integers(0, 10, num_loc))
        self.opening = float(rng.integers(0, 20))
        first = self.opening + self.times[0]  # the earliest arrivals
        begin = rng.uniform(0, first + 30)
        end = np.maximum(first, begin) + rng.uniform(0, 25, num_loc + 1)
        back = np.maximum(first, begin) + self.service + self.times[:, 0]
        self.windows = np.stack([begin, end], -1)
        self.windows[0] = self.opening, back[1:].max() + rng.uniform(0, 20)
        self.points = points

    def tensors(self) -> TensorDict:
        fields = {
            "depot": self.points[0],
            "locs": self.points[1:],
            "demand": self.units / CAPACITY,
            "capacity": np.array([CAPACITY]),
            "durations": self.service,
            "time_windows": self.windows,
            **self.matrices,
        }
        tensors = {key: torch.as_tensor(value).float() for key, value in fields.items()}
        return TensorDict(tensors, batch_size=[])

    def cost(self, route: Sequence[int]) -> float:
        return round_trip(self.costs, route)

    def fault(self, route: Sequence[int]) -> str | None:
        """Walks one route and says what is wrong with it."""
        if sum(self.units[node - 1] for node in route) > CAPACITY:
            return "no route exceeds the vehicle capacity"
        now, here = self.opening, 0
        for node in route:
            now = max(now + self.times[here, node], self.windows[node, 0])
            if now > self.windows[node, 1]:
                return "every service begins within the time window"
            now, here = now + self.service[node], node
        if now + self.times[here, 0] > self.windows[0, 1]:
            return "every vehicle returns before the depot closes"
        return None

    def solutions(self) -> Iterator[list[list[int]]]:
        """All orders of all splits into routes that are in order."""
        for routes in all_routes(range(1, len(self.units) + 1)):
            if not any(map(self.fault, routes)):
                yield routes


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("matrices", [False, True], ids=["coordinates", "matrices"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_loc", [1, 2, 4])
def test_mask_allows_what_is_in_time(num_loc: int, seed: int, matrices: bool):
    """Exactly the solutions of the oracle, with their costs."""
    plain = Plain(num_loc, seed, matrices)
    expected = {as_actions(routes): -sum(map(plain.cost, routes)) for routes in plain.solutions()}
    assert allowed_solutions(CVRPTWEnv(), plain.tensors()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("matrices", [False, True], ids=["coordinates", "matrices"])
def test_check_agrees_with_a_walk(matrices: bool):
    """On random splits of random orders, good and bad: the same verdict, for the same reason."""
    env, rng, verdicts = CVRPTWEnv(), np.random.default_rng(0), set()
    for seed in range(12):
        plain = Plain(5, seed, matrices)
        td = env.reset(plain.tensors().unsqueeze(0))
        for _ in range(30):
            order = rng.permutation(5) + 1
            actions = [
                a for node in order for a in ([int(node), 0] if rng.random() < 0.4 else [node])
            ]
            faults = {plain.fault(route) for route in as_routes(actions)} - {None}
            verdict = first_violation(env, td, actions)
            assert verdict in (faults or {None})
            verdicts.add(verdict)
    assert len(verdicts) == 4


def test_service_starts_are_those_of_a_walk():
    """Times of all stops of several routes, in any order of nodes, feasible or not."""
    plain, rng = Plain(8, seed=3), np.random.default_rng(1)
    state = dict(CVRPTWEnv().reset(plain.tensors()).items())
    for _ in range(20):
        stops = rng.integers(0, 9, 25)
        expected, now, here = [], plain.opening, 0
        for node in stops:
            begin = max(now + plain.times[here, node], plain.windows[node, 0])
            expected.append(begin)
            now, here = plain.opening if node == 0 else begin + plain.service[node], node
        times = service_starts(state, torch.from_numpy(stops))
        np.testing.assert_allclose(times.numpy(), expected, rtol=1e-6)


@given(seed=st.integers(0, 2**32), num_loc=st.integers(1, 9), matrices=st.booleans())
def test_never_stuck(seed: int, num_loc: int, matrices: bool):
    """Tight windows, long services and roads without triangle inequality: there is a way on."""
    env, rng = CVRPTWEnv(), derive_generator(seed)
    plain = Plain(num_loc, seed, matrices)
    episode = record_episode(env, plain.tensors().expand(4), rng)
    assert episode.complete
    env.check_solution_validity(episode.initial, episode.actions)


# ---------------------------------------------------------------- benchmark solutions


@pytest.mark.parametrize("name", ["C101", "C204", "R105", "R201"])
def test_best_known_solutions_of_solomon(shared_dir: Path, name: str):
    """In original units: allowed step by step; with two customers exchanged the check objects."""
    file = shared_dir / "data" / "vrptw" / "solomon" / f"{name}.txt"
    if not file.is_file():
        pytest.skip("no VRPTW instances in the shared folder")
    instance = read_instance(file)
    actions = instance.to_actions(instance.best_solution)
    env = CVRPTWEnv(check_action=True)
    initial = state = env.reset(instance.to_tensordict(normalize=False))
    cost = -env.get_reward(state, actions, check_solution=True).item()
    assert cost == pytest.approx(instance.best_known, abs=1e-6)
    for action in actions.unbind(-1):
        state = env.step(state.set("action", action))["next"]
    assert state["done"].all()
    if name == "C101":
        with pytest.raises(InvalidSolutionError, match="begins within the time window"):
            env.check_solution_validity(initial, actions[:, [1, 0, *range(2, actions.shape[1])]])


# ---------------------------------------------------------------- stepping


def test_state_follows_the_timetable():
    """Waiting, service, the next route, and the mask on the way."""
    instance = TensorDict(
        {
            "depot": torch.tensor([0.0, 0.0]),
            "locs": torch.tensor([[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]]),
            "demand": torch.full((3,), 0.2),
            "capacity": torch.tensor([10.0]),
            "durations": torch.tensor([0.0, 1.0, 1.0, 1.0]),
            "time_windows": torch.tensor([[2.0, 40.0], [7.0, 9.0], [0.0, 12.0], [0.0, 9.0]]),
        },
        batch_size=[],
    )
    env = CVRPTWEnv()
    td = env.reset(instance.unsqueeze(0))
    assert td["current_time"].item() == 2.0
    assert td["arrival"][0].tolist() == [2.0, 5.0, 7.0, 6.0]
    assert td["horizon"].item() == 40.0
    script = [
        # At customer 1 from 5, served from 7 to 8; customer 3 is 5 away and closes at 9.
        (1, 8.0, [11.0, 8.0, 12.0, 13.0], [True, False, True, False], False),
        (2, 13.0, [18.0, 17.0, 13.0, 16.0], [True, False, False, False], False),
        (0, 2.0, [2.0, 5.0, 7.0, 6.0], [False, False, False, True], False),
        (3, 7.0, [11.0, 12.0, 10.0, 7.0], [True, False, False, False], True),
        (0, 2.0, [2.0, 5.0, 7.0, 6.0], [True, False, False, False], True),
    ]
    for action, leaves, arrival, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["current_time"].item() == leaves
        assert td["arrival"][0].tolist() == arrival
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done


def test_instances_of_a_batch_have_different_hours():
    """The closing time of one says nothing about the other."""
    td = CVRPTWGenerator(num_loc=2)(2, rng=torch.Generator().manual_seed(0))
    td["locs"] = torch.tensor([[[3.0, 0.0], [3.0, 4.0]]]).expand(2, 2, 2).clone()
    td["depot"] = torch.zeros(2, 2)
    td["time_windows"] = torch.tensor([[[0.0, 11.0]] * 3, [[0.0, 12.0]] * 3])
    env = CVRPTWEnv()
    state = env.step(env.reset(td).set("action", torch.tensor([1, 1])))["next"]
    assert state["action_mask"].tolist() == [[True, False, False], [True, False, True]]
    with pytest.raises(InvalidSolutionError) as caught:
        env.check_solution_validity(env.reset(td), torch.tensor([[1, 2, 0]] * 2))
    assert caught.value.instances == [0]


@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1.0, 1 / 480, 50.0]))
def test_just_in_time_is_in_time(seed: int, scale: float):
    """Windows that end with the arrival in exact arithmetic; a thousandth earlier is too early."""
    rng = np.random.default_rng(seed)
    num_loc = 12
    points = scale * rng.uniform(0, 100, (num_loc + 1, 2))
    legs = np.linalg.norm(np.diff(points, axis=0, append=points[:1]), axis=1)
    service = np.append(0, scale * rng.uniform(0, 20, num_loc))
    arrival = np.cumsum(legs[:-1] + service[:-1])
    closing = arrival[-1] + service[-1] + legs[-1]
    ends = np.append(closing, arrival)
    fields = {
        "depot": points[0], "locs": points[1:], "demand": np.full(num_loc, 1 / num_loc),
        "capacity": np.array([1.0]), "durations": service,
        "time_windows": np.stack([np.zeros(num_loc + 1), ends], -1),
    }  # fmt: skip
    td = TensorDict({k: torch.as_tensor(v).float() for k, v in fields.items()}, [])
    route = [*range(1, num_loc + 1), 0]
    env = CVRPTWEnv(check_action=True)
    state = env.reset(td.unsqueeze(0))
    for action in route:
        state = env.step(state.set("action", torch.tensor([action])))["next"]
    env.check_solution_validity(state, torch.tensor([route]))
    late = td.clone()
    late["time_windows"][num_loc // 2, 1] -= 1e-3 * closing
    late = env.reset(late.unsqueeze(0))
    with pytest.raises(InvalidSolutionError, match="begins within the time window"):
        env.check_solution_validity(late, torch.tensor([route]))


def test_units_make_no_difference():
    """Times and lengths in another unit, demands in original ones: same episodes and features."""
    env = CVRPTWEnv(CVRPTWGenerator(num_loc=9, duration=7.0))
    td = env.generate(6)
    other = td.clone()
    for key in ("locs", "depot", "durations", "time_windows"):
        other[key] = td[key] / 64
    other["demand"] = td["demand"] * td["capacity"]
    other["vehicle_capacity"] = td["capacity"]
    episodes = [record_episode(env, given, derive_generator(1)) for given in (td, other)]
    assert episodes[0].complete
    assert torch.equal(episodes[0].actions, episodes[1].actions)
    rewards = [env.get_reward(episode.initial, episode.actions) for episode in episodes]
    torch.testing.assert_close(rewards[0], rewards[1] * 64)
    embeddings = make_embeddings("cvrptw", EmbeddingConfig(embed_dim=8))
    nodes = [embeddings.init(dict(episode.initial.items())) for episode in episodes]
    torch.testing.assert_close(*nodes)
    queries = []
    for episode in episodes:
        state = {key: value.unsqueeze(1) for key, value in episode.states[4].items()}  # [B, 1]
        queries.append(embeddings.context.features(state))
    torch.testing.assert_close(*queries)
    assert queries[0].shape == (6, 1, 2)
    assert (queries[0][..., 1] > 0).any()


def test_local_search_is_rejected():
    """That of the CVRP would break time windows."""
    env = CVRPTWEnv(CVRPTWGenerator(num_loc=4))
    td = env.reset(batch_size=2)
    with pytest.raises(UnsupportedError, match="time windows"):
        env.local_search(td, torch.tensor([[1, 0, 2, 0, 3, 0, 4]] * 2))


# ---------------------------------------------------------------- plots


def test_timetable_shows_windows_services_and_ways():
    """One row per customer in the order of the visits; lines from the depot to the depot."""
    plain = Plain(4, seed=0)
    routes = next(routes for routes in plain.solutions() if len(routes) == 2)
    env = CVRPTWEnv()
    td = env.reset(plain.tensors().unsqueeze(0))
    figure = env.render(td, torch.tensor([as_actions(routes)]))
    ax = figure.axes[1]
    order = [node for route in routes for node in route]
    assert [label.get_text() for label in ax.get_yticklabels()] == [str(node) for node in order]
    rows = dict(zip(order, ax.get_yticks().tolist(), strict=True))
    bars = {
        (bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_width()) for bar in ax.patches
    }
    for node, row in rows.items():
        begin, end = plain.windows[node]
        assert any(np.allclose(bar, (row, begin, end - begin), atol=1e-3) for bar in bars)
    lines = [np.asarray(line.get_xydata()) for line in ax.get_lines() if len(line.get_xdata()) == 2]
    drives = [line for line in lines if line[0, 1] != line[1, 1] and line[0, 0] != line[1, 0]]
    assert len(drives) == 4 + 2
    assert sum(np.isclose(line[0, 0], plain.opening) for line in drives) == 2
    assert len(env.render(td, torch.tensor([as_actions(routes)]), ax=ax).axes) == 2
    assert len(env.render(td).axes) == 2
    assert len(env.render(td, timetable=False).axes) == 1


# ---------------------------------------------------------------- generator


def test_generated_windows():
    """Integers within reach, a unit long or more; their ends are the extremes of two uniforms."""
    generator = CVRPTWGenerator(num_loc=50)
    td = generator(400, rng=torch.Generator().manual_seed(0))
    assert td["durations"].shape == (400, 51)
    assert td["time_windows"].shape == (400, 51, 2)
    assert td["time_windows"].dtype == torch.float32
    assert (td["time_windows"][:, 0] == torch.tensor([0.0, 480.0])).all()
    assert (td["durations"] == 0).all()
    assert td["locs"].max() > 140
    assert td["depot"].std() > 20  # not one depot for all
    begin, end = td["time_windows"][:, 1:].unbind(-1)
    assert (begin == begin.floor()).all()
    assert (end == end.floor()).all()
    assert (end - begin >= 1).all()
    distance = (td["locs"] - td["depot"].unsqueeze(1)).norm(dim=-1)
    assert (end >= distance).all()
    assert (begin > distance - 1).all()
    assert (end <= 480 - distance).all()
    share = [((x + 0.5 - distance) / (480 - 2 * distance)).mean() for x in (begin, end)]
    assert float(share[0]) == pytest.approx(1 / 3, abs=0.01)
    assert float(share[1]) == pytest.approx(2 / 3, abs=0.01)


def test_generated_instances_are_accepted():
    """Also those whose window would be rounded to a time before the first arrival."""
    env = CVRPTWEnv(CVRPTWGenerator(num_loc=100, max_time=430.0))
    for seed in range(20):
        env.check_instances(env.generator(500, rng=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("scale", [False, True])
def test_scale_and_duration(scale: bool):
    """Scaled instances are the others divided by the closing time; services leave time."""
    settings = {"num_loc": 10, "max_time": 600.0, "duration": 30.0}
    plain = CVRPTWGenerator(**settings)(50, rng=torch.Generator().manual_seed(1))
    td = CVRPTWGenerator(**settings, scale=scale)(50, rng=torch.Generator().manual_seed(1))
    factor = 600.0 if scale else 1.0
    for key in ("locs", "depot", "durations", "time_windows"):
        torch.testing.assert_close(td[key] * factor, plain[key], rtol=1e-5, atol=1e-4)
    assert torch.equal(td["demand"], plain["demand"])
    assert (plain["durations"][:, 1:] == 30).all()
    assert (plain["durations"][:, 0] == 0).all()
    CVRPTWEnv().check_instances(td)


def test_a_customer_at_the_depot_has_a_window():
    """Distance 0, where both ends may be rounded to the same integer."""
    generator = CVRPTWGenerator(
        num_loc=4000, loc_distribution=7.0, depot_distribution=7.0, max_loc=10.0, max_time=30.5
    )
    td = generator(5, rng=torch.Generator().manual_seed(0))
    begin, end = td["time_windows"][:, 1:].unbind(-1)
    assert (end - begin).min() == 1
    assert begin.min() == 0
    assert end.max() == 30
    CVRPTWEnv().check_instances(td)


def test_time_windows_may_be_integers() -> None:
    """Generators of other packages draw whole time windows as int32."""
    env = CVRPTWEnv()
    td = env.generator(2)
    expected = env.reset(td)
    td["time_windows"] = td["time_windows"].int()
    state = env.reset(td)
    for key in ("time_windows", "latest_arrival", "action_mask"):
        torch.testing.assert_close(state[key], expected[key], rtol=0, atol=0)
