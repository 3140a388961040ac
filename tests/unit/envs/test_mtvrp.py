"""MTVRP: exhaustive oracles for every variant, stepping, tolerances, matrices, names and files."""

from __future__ import annotations

import dataclasses
import math

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import InvalidInstanceError, InvalidSolutionError
from rl4co.core.rng import derive_generator
from rl4co.envs import MTVRPEnv, MTVRPGenerator
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.routing.mtvrp.constraints import LOAD_TOLERANCE, TOLERANCE
from rl4co.envs.routing.mtvrp.variants import VARIANTS
from tests.unit.envs.routing_oracle import (
    all_routes,
    allowed_solutions,
    as_actions,
    as_routes,
    count_steps,
    padded,
)

#: The sixteen variants, and those with backhauls once more with mixed ones.
SETTINGS = [
    *(pytest.param(name, 1, id=name) for name in VARIANTS),
    *(pytest.param(name, 2, id=f"{name}-mixed") for name in VARIANTS if "b" in name),
]


# ---------------------------------------------------------------- a plain Python oracle


@dataclasses.dataclass
class Problem:
    """One instance in plain Python, loads in whole units."""

    points: list[list[float]]
    linehaul: list[int]
    backhaul: list[int]
    capacity: int
    mixed: bool
    is_open: bool
    limit: float
    windows: list[list[float]]
    service: list[float]
    speed: float

    @classmethod
    def of(cls, instance: TensorDict) -> Problem:
        """From an instance without batch axis."""
        units = instance["capacity_original"].item() / instance["vehicle_capacity"].item()
        return cls(
            points=instance["locs"].tolist(),
            linehaul=[round(q * units) for q in instance["demand_linehaul"].tolist()],
            backhaul=[round(p * units) for p in instance["demand_backhaul"].tolist()],
            capacity=round(instance["capacity_original"].item()),
            mixed=instance["backhaul_class"].item() == 2,
            is_open=instance["open_route"].item(),
            limit=instance["distance_limit"].item(),
            windows=instance["time_windows"].tolist(),
            service=instance["service_time"].tolist(),
            speed=instance["speed"].item(),
        )

    def cost(self, route: list[int], slack: float = 0.0) -> float | None:
        """Length of a route, None if a vehicle cannot drive it."""
        load, seen_backhaul = sum(self.linehaul[node] for node in route), False
        if load > self.capacity:
            return None
        time = length = 0.0
        here = 0
        for node in route:
            if self.linehaul[node] and seen_backhaul and not self.mixed:
                return None
            seen_backhaul = seen_backhaul or self.backhaul[node] > 0
            load += self.backhaul[node] - self.linehaul[node]
            leg = math.dist(self.points[here], self.points[node])
            time, length = time + leg / self.speed, length + leg
            opens, closes = self.windows[node]
            if load > self.capacity or time > closes + slack:
                return None
            time, here = max(time, opens) + self.service[node], node
        if not self.is_open:
            leg = math.dist(self.points[here], self.points[0])
            time, length = time + leg / self.speed, length + leg
            if time > self.windows[0][1] + slack:
                return None
        return None if length > self.limit + slack else length

    def total(self, actions: list[int], slack: float = 0.0) -> float | None:
        """Cost of a solution, None if it is not one."""
        if sorted(node for node in actions if node) != list(range(1, len(self.points))):
            return None
        costs = [self.cost(route, slack) for route in as_routes(actions)]
        return None if None in costs else sum(costs)


#: All orders of four customers, cut into routes in all ways, feasible or not.
ALL_SOLUTIONS = [as_actions(routes) for routes in all_routes(range(1, 5))]


def tight_instance(variant: str, backhaul_class: int, num_loc: int, seed: int) -> TensorDict:
    """An instance in which every constraint of its variant rules something out."""
    generator = MTVRPGenerator(
        num_loc=num_loc, variant_preset=variant, capacity=9, backhaul_class=backhaul_class,
        backhaul_ratio=0.4, speed=1.25, max_time=3.0,
    )  # fmt: skip
    instance = generator([], rng=torch.Generator().manual_seed(seed))
    if "tw" in variant:  # every other customer is limited by the depot's hours alone
        instance["time_windows"][1::2] = torch.tensor([0.0, math.inf])
    if "l" in variant:
        reach = (instance["locs"][1:] - instance["locs"][0]).norm(dim=-1).max()
        instance["distance_limit"] = reach.reshape(1) * (1.4 if variant[0] == "o" else 2.3)
    return instance


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("variant", "backhaul_class"), SETTINGS)
def test_mask_and_check_agree_with_an_oracle(variant: str, backhaul_class: int, seed: int):
    """The mask allows exactly the feasible solutions, the check rejects exactly the others."""
    instance = tight_instance(variant, backhaul_class, 4, seed)
    problem, env = Problem.of(instance), MTVRPEnv()
    candidates = ALL_SOLUTIONS
    costs = [problem.total(actions) for actions in candidates]
    feasible = {
        actions: -cost for actions, cost in zip(candidates, costs, strict=True) if cost is not None
    }
    assert 0 < len(feasible) < len(candidates)
    assert allowed_solutions(env, instance) == pytest.approx(feasible, rel=1e-5)

    state = env.reset(instance.expand(len(candidates)))
    violations = env._violations(dict(state.items()), padded(candidates))
    rejected = torch.stack(list(violations.values())).any(0)
    assert rejected.tolist() == [cost is None for cost in costs]


@pytest.mark.parametrize(
    "without",
    [
        {"is_open": False},
        {"mixed": True},
        {"limit": math.inf},
        {"windows": [[0.0, math.inf]] * 5, "service": [0.0] * 5},
        {"capacity": 99},
    ],
    ids=["O", "B", "L", "TW", "C"],
)
def test_the_oracle_notices_every_feature(without: dict[str, Any]):
    """None of the constraints above is one that never binds."""
    counts = []
    for seed in range(8):
        problem = Problem.of(tight_instance("ovrpbltw", 1, 4, seed))
        for version in (problem, dataclasses.replace(problem, **without)):
            totals = [version.total(actions) for actions in ALL_SOLUTIONS]
            counts.append(sum(total is not None for total in totals))
    assert counts[::2] != counts[1::2]


@given(
    num_loc=st.integers(min_value=1, max_value=14),
    mixed=st.booleans(),
    speed=st.sampled_from([0.8, 1.0, 2.0]),
    scale=st.booleans(),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_random_rollouts_agree_with_the_oracle(
    num_loc: int, mixed: bool, speed: float, scale: bool, seed: int
):
    """Batches of all variants: every route can be driven, and costs what it should."""
    generator = MTVRPGenerator(
        num_loc=num_loc, backhaul_class=1 + mixed, speed=speed, scale_demand=scale, max_time=6.0
    )
    env, rng = MTVRPEnv(generator), derive_generator(seed)
    episode = record_episode(env, generator(8, rng=rng), rng)
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    for b, actions in enumerate(episode.actions.tolist()):
        cost = Problem.of(episode.instances[b]).total(actions, slack=1e-4)
        assert float(reward[b]) == pytest.approx(-cost, rel=1e-5)


# ---------------------------------------------------------------- stepping


def build(**changes: Any) -> TensorDict:
    """Three customers on the corners of a 3 x 4 rectangle, as a batch of one."""
    inf = math.inf
    values: dict[str, Any] = {
        "locs": [[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
        "demand_linehaul": [0.0, 0.5, 0.25, 0.0],
        "demand_backhaul": [0.0, 0.0, 0.0, 0.75],
        "distance_limit": [inf],
        "time_windows": [[0.0, inf]] * 4,
        "service_time": [0.0] * 4,
        "vehicle_capacity": [1.0],
        "capacity_original": [8.0],
        "open_route": [False],
        "speed": [1.0],
        **changes,
    }
    tensors = {key: torch.tensor(value) for key, value in values.items()}
    return TensorDict(tensors, batch_size=[]).unsqueeze(0)


def test_state_follows_the_route():
    """Time, length, loads and mask on a route, at the depot and after the end."""
    env = MTVRPEnv()
    windows = [[0.0, 40.0], [0.0, 30.0], [9.0, 12.0], [0.0, 30.0]]
    td = env.reset(
        build(
            time_windows=windows, service_time=[0.0, 1.0, 2.0, 3.0], speed=[0.5],
            distance_limit=[13.0],
        )
    )  # fmt: skip
    assert td["action_mask"][0].tolist() == [False, True, True, True]
    # action → time, length, largest load, fetched, allowed nodes, done
    script = [
        # 3 / 0.5 + 1; to 2 at 7 + 8 would be too late.
        (1, 7.0, 3.0, 0.5, 0.0, [True, False, False, True], False),
        # 7 + 5 / 0.5 + 3; the way home makes 12; no linehaul any more.
        (3, 20.0, 8.0, 0.75, 0.75, [True, False, False, False], False),
        (0, 0.0, 0.0, 0.0, 0.0, [False, False, True, False], False),
        # Arrival at 10, within the window.
        (2, 12.0, 5.0, 0.25, 0.0, [True, False, False, False], True),
        (0, 0.0, 0.0, 0.0, 0.0, [True, False, False, False], True),
    ]
    for action, time, length, peak, fetched, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["current_time"].item() == pytest.approx(time)
        assert td["current_route_length"].item() == pytest.approx(length)
        assert td["used_capacity_linehaul"].item() == pytest.approx(peak)
        assert td["used_capacity_backhaul"].item() == pytest.approx(fetched)
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done
        assert td["current_node"].item() == action


def test_waiting_for_a_window_to_open():
    """Service begins when the window opens, however early the vehicle is there."""
    env = MTVRPEnv()
    windows = [[0.0, 40.0], [10.0, 30.0], [0.0, 30.0], [0.0, 30.0]]
    td = env.reset(build(time_windows=windows, service_time=[0.0, 1.5, 0.0, 0.0]))
    td = env.step(td.set("action", torch.tensor([1])))["next"]
    assert td["current_time"].item() == pytest.approx(11.5)


def test_what_was_fetched_stays_on_board():
    """Mixed: 0.1 delivered, 0.5 fetched; then goods of 0.5 at most fit under them all the way."""
    env = MTVRPEnv()
    instance = build(
        locs=[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]],
        demand_linehaul=[0.0, 0.1, 0.0, 0.4, 0.4],
        demand_backhaul=[0.0, 0.0, 0.5, 0.0, 0.0],
        time_windows=[[0.0, math.inf]] * 5,
        service_time=[0.0] * 5,
        backhaul_class=[2.0],
    )
    td = env.reset(instance)
    for action in (1, 2, 3):
        td = env.step(td.set("action", torch.tensor([action])))["next"]
    # 0.9 in all is delivered, but with it 0.5 + 0.4 + 0.4 would have been on board after node 2.
    assert td["action_mask"][0].tolist() == [True, False, False, False, False]
    with pytest.raises(InvalidSolutionError, match="no load exceeds"):
        env.check_solution_validity(td, torch.tensor([[1, 2, 3, 4, 0]]))
    env.check_solution_validity(td, torch.tensor([[1, 3, 4, 2, 0]]))


def test_instances_of_a_batch_have_different_variants():
    """One batch, one partial route, five different masks."""
    env = MTVRPEnv()
    variants = [
        build(),
        build(open_route=[True], distance_limit=[7.0]),
        build(distance_limit=[12.5], backhaul_class=[2.0]),
        build(time_windows=[[0.0, 20.0], [0.0, 9.0], [0.0, 6.9], [0.0, 9.0]]),
        build(vehicle_capacity=[0.75]),
    ]
    for instance in variants:
        instance.setdefault("backhaul_class", torch.ones(1, 1))
    td = env.reset(torch.cat(variants))
    td = env.step(td.set("action", torch.ones(5, dtype=torch.int64)))["next"]
    assert td["action_mask"].tolist() == [
        [True, False, True, True],
        [True, False, True, False],  # 3 + 4 and no way back, but not 3 + 5
        [True, False, True, True],  # 3 + 4 + 5 and 3 + 5 + 4
        [True, False, False, True],  # 7 is too late for node 2
        [True, False, True, True],
    ]
    assert env.get_variant_names(td) == ["VRPB", "OVRPBL", "VRPMBL", "VRPBTW", "VRPB"]


@pytest.mark.parametrize("kind", ["linehaul", "backhaul"])
@given(capacity=st.sampled_from([30, 34, 40, 50]), seed=st.integers(min_value=0, max_value=2**32))
def test_exactly_full_vehicles_are_allowed(kind: str, capacity: int, seed: int):
    """Whole units that add up to the capacity fit, whatever float32 makes of their sum."""
    rng = np.random.default_rng(seed)
    units: list[int] = []
    while sum(units) < capacity:
        units.append(min(int(rng.integers(1, 10)), capacity - sum(units)))
    num_loc = len(units)
    generator = MTVRPGenerator(num_loc=num_loc, variant_preset="cvrp")
    td = generator(1, rng=torch.Generator().manual_seed(0))
    td["demand_linehaul"] = torch.zeros(1, num_loc + 1)
    td[f"demand_{kind}"] = torch.tensor([[0.0, *units]]) / capacity
    env = MTVRPEnv(check_action=True)
    state = env.reset(td)
    route = [*range(1, num_loc + 1), 0]
    for action in route:
        state = env.step(state.set("action", torch.tensor([action])))["next"]
    assert state["done"].all()
    env.check_solution_validity(state, torch.tensor([route]))


@pytest.mark.parametrize(
    ("excess", "allowed", "valid"),
    [(0.8, True, True), (1.5, False, True), (3, False, False)],
)
@pytest.mark.parametrize("limit", ["distance", "customer", "depot", "capacity"])
def test_tolerance(limit: str, excess: float, allowed: bool, valid: bool):
    """The mask's slack is half of the check's; the route is 1, 2, 3, 0."""
    tight = 1.0 / (1.0 + excess * (LOAD_TOLERANCE if limit == "capacity" else TOLERANCE))
    changes: dict[str, dict[str, Any]] = {
        "distance": {"distance_limit": [14.0 * tight]},
        "customer": {"time_windows": [[0.0, 99.0], [0.0, 99.0], [0.0, 99.0], [0.0, 10.0 * tight]]},
        "depot": {"time_windows": [[0.0, 14.0 * tight], *[[0.0, 99.0]] * 3]},
        "capacity": {"demand_linehaul": [0.0, 0.5, 0.25, 0.25], "vehicle_capacity": [tight]},
    }
    env = MTVRPEnv()
    demands = {"demand_backhaul": [0.0] * 4}
    td = env.reset(build(**{**demands, **changes[limit]}))
    state = td
    for action in (1, 2):
        state = env.step(state.set("action", torch.tensor([action])))["next"]
    assert state["action_mask"][0, 3].item() is allowed
    violations = env._violations(dict(td.items()), torch.tensor([[1, 2, 3, 0]]))
    assert bool(torch.stack(list(violations.values())).any()) is not valid


@given(
    num_loc=st.integers(min_value=1, max_value=8),
    is_open=st.booleans(),
    speed=st.sampled_from([0.7, 1.0, 3.0]),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_limits_without_any_slack_leave_a_way(num_loc: int, is_open: bool, speed: float, seed: int):
    """All limits as low as an instance may have them: rollouts end, customer by customer."""
    rng = torch.Generator().manual_seed(seed)
    locs = torch.rand(4, num_loc + 1, 2, generator=rng)
    there = (locs - locs[:, :1]).norm(dim=-1)  # [4, N]
    way = there if is_open else 2 * there
    service = 0.1 * torch.rand(4, num_loc + 1, generator=rng)
    service[:, 0] = 0
    home = (way / speed + service).amax(-1)
    late = there / speed
    late[:, 0] = 0.0 if is_open else home
    demand = torch.rand(4, num_loc + 1, generator=rng)
    demand[:, 0] = 0
    is_backhaul = torch.rand(4, num_loc + 1, generator=rng) < 0.3
    td = TensorDict(
        {
            "locs": locs,
            "demand_linehaul": demand * ~is_backhaul,
            "demand_backhaul": demand * is_backhaul,
            "backhaul_class": torch.randint(1, 3, (4, 1), generator=rng).float(),
            "distance_limit": way.amax(-1, keepdim=True),
            "time_windows": torch.stack([torch.zeros_like(late), late], -1),
            "service_time": service,
            "vehicle_capacity": demand.amax(-1, keepdim=True),
            "capacity_original": torch.ones(4, 1),
            "open_route": torch.full((4, 1), is_open),
            "speed": torch.full((4, 1), speed),
        },
        batch_size=[4],
    )
    env = MTVRPEnv(check_action=True)
    episode = record_episode(env, td, rng)
    assert episode.complete
    env.check_solution_validity(episode.initial, episode.actions)


@pytest.mark.parametrize("num_loc", [1, 2, 3, 10])
def test_step_bounds_are_reached(num_loc: int):
    """Full vehicles need the most steps, one vehicle for all the fewest."""
    env = MTVRPEnv(MTVRPGenerator(num_loc=num_loc, variant_preset="ovrp"))
    for demand, bound in ((1.0 / num_loc, 0), (1.0, 1)):
        td = env.generate(2)
        td["demand_linehaul"] = torch.full((2, num_loc + 1), demand)
        td["demand_linehaul"][:, 0] = 0
        # Customers first: the depot only when nothing else is allowed.
        steps, bounds = count_steps(env, td, last=True)
        assert steps == bounds[bound]


# ---------------------------------------------------------------- instances of other kinds


def test_matrices_of_the_same_distances_change_nothing():
    """Euclidean distances and times as matrices: the same masks, states and rewards."""
    env = MTVRPEnv(MTVRPGenerator(num_loc=9, speed=1.5, sample_backhaul_class=True))
    plain = env.generate(64)
    locs = plain["locs"]
    cost = (locs.unsqueeze(-2) - locs.unsqueeze(-3)).norm(dim=-1)
    with_cost = plain.clone().set("cost_matrix", cost)
    with_both = with_cost.clone().set("duration_matrix", cost / 1.5)
    episodes = [
        record_episode(env, td, derive_generator(5))
        for td in (plain, with_cost, with_both, with_cost.exclude("locs"))
    ]
    for other in episodes[1:]:
        assert torch.equal(other.actions, episodes[0].actions)
        torch.testing.assert_close(
            env.get_reward(other.initial, other.actions, check_solution=True),
            env.get_reward(episodes[0].initial, episodes[0].actions),
        )


def test_one_way_streets_count_in_their_direction():
    """Distance there, distance back and durations come from the right entries of the matrices."""
    env = MTVRPEnv()
    nodes = {"demand_linehaul": [0.0, 0.1, 0.1], "demand_backhaul": [0.0] * 3,
             "service_time": [0.0] * 3, "locs": [[0.0, 0.0]] * 3}  # fmt: skip
    cost = [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]]
    duration = [[0.0, 5.0, 6.0], [1.0, 0.0, 2.0], [1.0, 1.0, 0.0]]
    instance = build(
        **nodes, cost_matrix=cost, duration_matrix=duration, distance_limit=[11.0],
        time_windows=[[0.0, 8.0], [0.0, 7.0], [0.0, 7.0]],
    )  # fmt: skip
    td = env.reset(instance)
    assert td["return_distance"][0].tolist() == [0.0, 10.0, 4.0]
    td = env.step(td.set("action", torch.tensor([1])))["next"]
    assert td["leg_distance"][0].tolist() == [10.0, 0.0, 3.0]
    assert td["current_time"].item() == 5.0
    assert td["action_mask"][0].tolist() == [True, False, True]  # 1 + 3 + 4, at 5 + 2 + 1
    backwards = env.step(env.reset(instance).set("action", torch.tensor([2])))["next"]
    assert backwards["action_mask"][0].tolist() == [True, False, False]  # 2 + 20 + 10


def test_backhaul_class_is_one_unless_given():
    """Instances of the published package do not have the key."""
    env = MTVRPEnv(MTVRPGenerator(num_loc=12, variant_preset="vrpb"))
    td = env.generate(16)
    assert torch.equal(td["backhaul_class"], torch.ones(16, 1))
    episodes = [
        record_episode(env, instances, derive_generator(3))
        for instances in (td, td.exclude("backhaul_class"))
    ]
    assert torch.equal(episodes[0].actions, episodes[1].actions)
    assert torch.equal(episodes[1].initial["backhaul_class"], torch.ones(16, 1))


def test_names_of_variants():
    """By the data: a string for one instance, lists for batches of any shape."""
    generator = MTVRPGenerator(num_loc=30, sample_backhaul_class=True)
    td = generator([5, 7], rng=torch.Generator().manual_seed(2))
    names = MTVRPEnv.get_variant_names(td)
    assert (len(names), {len(row) for row in names}) == (5, {7})
    assert MTVRPEnv.get_variant_names(td[3, 4]) == names[3][4]
    for row, own in zip(td, names, strict=True):
        assert MTVRPEnv.get_variant_names(row) == own
    flags = [flag.flatten().tolist() for flag in MTVRPEnv.check_variants(td)]
    flat = [name for row in names for name in row]
    for name, o, tw, limit, b, kind in zip(flat, *flags, strict=True):
        assert name.startswith("O") is o
        assert ("TW" in name, "L" in name, "B" in name) == (tw, limit, b)
        assert ("MB" in name) is (b and kind == 2)
        assert (name == "CVRP") is not (o or tw or limit or b)


def test_infinity_is_for_limits_only():
    """It says "no limit" there; an infinite opening time or not a number is rejected by name."""
    env = MTVRPEnv(MTVRPGenerator(num_loc=4, variant_preset="cvrp"))
    td = env.generate(3)
    assert td["distance_limit"].isinf().all()
    env.reset(td)
    for key, value, rule in (
        ("time_windows", math.nan, "time_windows is finite"),
        ("time_windows", -math.inf, "time_windows is finite"),
        ("distance_limit", math.nan, "distance_limit is finite"),
        ("service_time", math.inf, "service_time is finite"),
        ("speed", math.inf, "speed is finite"),
    ):
        broken = td.clone()
        broken[key][1].view(-1)[-1] = value
        with pytest.raises(InvalidInstanceError, match=rf"{rule}.*\(instances 1\)"):
            env.reset(broken)
    assert td["distance_limit"].isinf().all()


def test_files(tmp_path: Path):
    """Instances survive a file, infinities included; raw demands are scaled on request."""
    env = MTVRPEnv(MTVRPGenerator(num_loc=6, scale_demand=False))
    td = env.generate(20)
    file = tmp_path / "mtvrp.npz"
    env.generator.save_data(td, file)
    loaded = env.load_data(file)
    assert set(loaded.keys()) == set(td.keys())
    assert all(torch.equal(loaded[key], td[key]) for key in td.keys())
    scaled = env.load_data(file, scale=True)
    torch.testing.assert_close(scaled["demand_linehaul"], td["demand_linehaul"] / 30)
    torch.testing.assert_close(scaled["demand_backhaul"], td["demand_backhaul"] / 30)
    assert torch.equal(scaled["vehicle_capacity"], torch.ones(20, 1))
    actions = [record_episode(env, given, derive_generator(1)).actions for given in (td, scaled)]
    assert torch.equal(*actions)
