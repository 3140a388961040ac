"""MTVRP on public instances: best-known solutions are valid and cost what is published."""

from __future__ import annotations

import itertools
import math

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import InvalidSolutionError
from rl4co.envs import MTVRPEnv

SOLOMON = ("C101", "C204", "R105", "R201")


def read_sections(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Header and tables (without the column of node numbers) of a file in the format of VRPLIB."""
    header: dict[str, str] = {}
    tables: dict[str, list[list[float]]] = {}
    section = ""
    for line in path.read_text().splitlines():
        word, _, rest = line.strip().partition(":")
        if word.endswith("_SECTION"):
            section = word
            tables[section] = []
        elif rest:
            header[word.strip()] = rest.strip()
        elif section and word not in ("", "EOF"):
            tables[section].append([float(number) for number in word.split()[1:]])
    return header, {key: np.array(rows) for key, rows in tables.items()}


def read_solution(path: Path) -> tuple[list[int], float | None]:
    """Actions and cost of a file with lines `Route #1: ...`; 0 stands between the routes."""
    actions: list[int] = []
    cost = None
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name.startswith("Route"):
            actions += [*map(int, rest.split()), 0]
        elif line.startswith("Cost"):
            cost = float(line.replace(":", " ").split()[1])
    return actions, cost


def build(points: np.ndarray, capacity: float, **changes: Any) -> TensorDict:
    """A batch of one instance in its original units; without features, apart from the changes."""
    nodes = len(points)
    values = {
        "locs": points,
        "demand_linehaul": np.zeros(nodes),
        "demand_backhaul": np.zeros(nodes),
        "distance_limit": [math.inf],
        "time_windows": np.array([[0.0, math.inf]] * nodes),
        "service_time": np.zeros(nodes),
        "vehicle_capacity": [capacity],
        "capacity_original": [capacity],
        "speed": [1.0],
        **changes,
    }
    tensors = {
        key: torch.tensor(np.array(value), dtype=torch.float32) for key, value in values.items()
    }
    tensors["open_route"] = torch.zeros(1, dtype=torch.bool)
    return TensorDict(tensors, batch_size=[]).unsqueeze(0)


def distances(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def assert_best(
    instances: TensorDict, solutions: list[list[int]], costs: list[float], rel: float = 1e-6
) -> None:
    """The solutions are allowed step by step, valid, and have these costs."""
    longest = max(map(len, solutions))
    actions = torch.tensor([own + [0] * (longest - len(own)) for own in solutions])
    env = MTVRPEnv(check_action=True)
    td = env.reset(instances)
    reward = env.get_reward(td, actions, check_solution=True)
    np.testing.assert_allclose(-reward.numpy(), costs, rtol=rel)
    state = dict(td.items())
    for action in actions.unbind(-1):
        state = env.advance(state, action)
    assert state["done"].all()


@pytest.fixture
def data(shared_dir: Path) -> Path:
    return shared_dir / "data"


def require(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"no {path.name} in the shared folder")
    return path


def vrpb(path: Path) -> TensorDict:
    header, tables = read_sections(path)
    points = tables["NODE_COORD_SECTION"]
    return build(
        points,
        float(header["CAPACITY"]),
        demand_linehaul=tables["DEMAND_SECTION"][:, 0],
        demand_backhaul=tables["BACKHAUL_SECTION"][:, 0],
        cost_matrix=np.floor(distances(points) + 0.5),
    )


@pytest.mark.parametrize("size", ["n524", "n536", "n548", "n561", "n573"])
def test_backhauls(data: Path, size: str):
    """VRPB of Queiroga et al. (2020), distances rounded to integers."""
    files = sorted(require(data / "vrpb").glob(f"X-{size}-*.vrp"))
    assert files
    instances = torch.cat([vrpb(file) for file in files])
    assert set(MTVRPEnv.get_variant_names(instances)) == {"VRPB"}
    solutions, costs = zip(
        *[read_solution(file.with_suffix(".sol")) for file in files], strict=True
    )
    assert_best(instances, list(solutions), list(costs))


def test_a_backhaul_before_a_linehaul_breaks_the_order(data: Path):
    """The check is not blind to the order on a real route; mixed backhauls do not mind."""
    file = require(data / "vrpb" / "X-n524-50-k125.vrp")
    actions, _ = read_solution(file.with_suffix(".sol"))
    env, instance = MTVRPEnv(), vrpb(file)
    linehaul, backhaul = (instance[f"demand_{kind}"][0] for kind in ("linehaul", "backhaul"))
    # Neighbours that fit into the vehicle together, so that their order is all that is wrong.
    last = next(
        t
        for t, (node, after) in enumerate(itertools.pairwise(actions))
        if linehaul[node] > 0 and 0 < backhaul[after] <= 125 - linehaul[node]
    )
    actions[last], actions[last + 1] = actions[last + 1], actions[last]
    with pytest.raises(InvalidSolutionError, match="linehauls come before backhauls"):
        env.check_solution_validity(env.reset(instance), torch.tensor([actions]))
    mixed = instance.set("backhaul_class", torch.full((1, 1), 2.0))
    env.check_solution_validity(env.reset(mixed), torch.tensor([actions]))


@pytest.mark.parametrize("number", [21, 26, 32])
def test_distance_limits(data: Path, number: int):
    """VRPL of Li et al. (2005), up to 1200 customers, real distances; a lower limit is rejected."""
    file = require(data / "cvrplib" / "Li" / f"Li_{number}.vrp")
    header, tables = read_sections(file)
    points, limit = tables["NODE_COORD_SECTION"], float(header["DISTANCE"])
    actions, cost = read_solution(file.with_suffix(".sol"))
    assert cost is not None
    settings = {"demand_linehaul": tables["DEMAND_SECTION"][:, 0]}
    instance = build(points, float(header["CAPACITY"]), distance_limit=[limit], **settings)
    assert MTVRPEnv.get_variant_names(instance) == ["VRPL"]
    assert_best(instance, [actions], [cost])
    nodes = [0, *actions]
    routes = np.split(np.array(nodes), np.flatnonzero(np.array(nodes) == 0))
    legs = distances(points)
    longest = max(legs[[*r], [*r[1:], 0]].sum() for r in routes if len(r) > 1)
    lower = instance.set("distance_limit", torch.tensor([[longest * 0.9999]]))
    env = MTVRPEnv()
    with pytest.raises(InvalidSolutionError, match="longer than the distance limit"):
        env.check_solution_validity(env.reset(lower), torch.tensor([actions]))


def solomon(path: Path, **changes: Any) -> tuple[np.ndarray, TensorDict]:
    lines = path.read_text().splitlines()
    table = np.array([line.split() for line in lines[9:] if line.strip()], dtype=np.float64)
    points = table[:, 1:3]
    settings = {
        "demand_linehaul": table[:, 3], "time_windows": table[:, 4:6], "service_time": table[:, 6],
    }  # fmt: skip
    return points, build(points, float(lines[4].split()[1]), **settings, **changes)


@pytest.mark.parametrize("name", SOLOMON)
def test_time_windows(data: Path, name: str):
    """VRPTW of Solomon (1987): both conventions, truncated and real distances."""
    folder = require(data / "vrptw")
    rows = [line.split(",") for line in (folder / "bks.csv").read_text().splitlines()]
    best = next(row for row in rows if row[:2] == ["solomon", name])
    points, real = solomon(folder / "solomon" / f"{name}.txt")
    truncated = np.floor(10 * distances(points) + 1e-9) / 10
    _, rounded = solomon(folder / "solomon" / f"{name}.txt", cost_matrix=truncated)
    assert MTVRPEnv.get_variant_names(real) == ["VRPTW"]
    actions, _ = read_solution(folder / "solomon" / f"{name}.sol")
    assert_best(rounded, [actions], [float(best[4])])
    hierarchical = folder / "solomon_sintef_sol" / f"{name.lower()}.txt"
    if hierarchical.is_file():
        actions, _ = read_solution(hierarchical)
        assert_best(real, [actions], [float(best[7])], rel=1e-5)


@pytest.mark.parametrize("name", ["A-n32-k5", "A-n80-k10", "P-n16-k8"])
def test_capacities(data: Path, name: str):
    """CVRP of Augerat (1995), distances rounded to integers."""
    file = require(data / "cvrplib" / name[0] / f"{name}.vrp")
    header, tables = read_sections(file)
    points = tables["NODE_COORD_SECTION"]
    actions, cost = read_solution(file.with_suffix(".sol"))
    assert cost is not None
    settings = {
        "demand_linehaul": tables["DEMAND_SECTION"][:, 0],
        "cost_matrix": np.floor(distances(points) + 0.5),
    }
    assert_best(build(points, float(header["CAPACITY"]), **settings), [actions], [cost])
