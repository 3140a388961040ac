"""MTVRP on public instances: best-known solutions are allowed step by step, and changes rejected.

That all of them are valid at their published costs is tested with the readers of files.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rl4co.core.errors import InvalidSolutionError
from rl4co.data.formats import BenchmarkInstance, read_instance
from rl4co.envs import MTVRPEnv


@pytest.fixture
def read(shared_dir: Path):
    """Reads an instance of the shared folder as one of the MTVRP."""

    def read(name: str) -> BenchmarkInstance:
        path = shared_dir / "data" / name
        if not path.is_file():
            pytest.skip(f"no {name} in the shared folder")
        return read_instance(path).as_problem("mtvrp")

    return read


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("cvrplib/A/A-n80-k10.vrp", "CVRP"),
        ("cvrplib/P/P-n16-k8.vrp", "CVRP"),
        ("vrpb/X-n524-50-k125.vrp", "VRPB"),  # Queiroga et al. (2020)
        ("vrpb/X-n573-80-k27.vrp", "VRPB"),
        ("cvrplib/Li/Li_21.vrp", "VRPL"),  # Li et al. (2005)
        ("vrptw/solomon/C101.txt", "VRPTW"),  # Solomon (1987)
        ("vrptw/solomon/R201.txt", "VRPTW"),
    ],
)
def test_best_known_solutions_are_allowed(read, name: str, variant: str):
    """In original units, at the published cost; vehicles may be exactly full, services in time."""
    instance = read(name)
    env = MTVRPEnv(check_action=True)
    td = env.reset(instance.to_tensordict(normalize=False))
    assert env.get_variant_names(td) == [variant]
    actions = instance.to_actions(instance.best_solution)
    cost = -env.get_reward(td, actions, check_solution=True).item()
    assert cost == pytest.approx(instance.best_known, rel=1e-7)
    state = dict(td.items())
    for action in actions.unbind(-1):
        state = env.advance(state, action)
    assert state["done"].all()


def test_a_backhaul_before_a_linehaul_breaks_the_order(read):
    """The check is not blind to the order on a real route; mixed backhauls do not mind."""
    instance = read("vrpb/X-n524-50-k125.vrp")
    linehaul, backhaul = instance.demand, instance.backhaul_demand
    actions = instance.to_actions(instance.best_solution)
    # Neighbours that fit into the vehicle together, so that their order is all that is wrong.
    last = next(
        t
        for t, (node, after) in enumerate(zip(actions[0], actions[0, 1:], strict=False))
        if linehaul[node] > 0 and 0 < backhaul[after] <= instance.capacity - linehaul[node]
    )
    actions[0, [last, last + 1]] = actions[0, [last + 1, last]]
    env, td = MTVRPEnv(), instance.to_tensordict(normalize=False)
    with pytest.raises(InvalidSolutionError, match="linehauls come before backhauls"):
        env.check_solution_validity(env.reset(td), actions)
    mixed = td.set("backhaul_class", torch.full((1, 1), 2.0, dtype=torch.float64))
    env.check_solution_validity(env.reset(mixed), actions)


def test_a_lower_limit_is_exceeded(read):
    """... by the longest of the published routes alone."""
    instance = read("cvrplib/Li/Li_21.vrp")
    routes = instance.best_solution
    longest = max(instance.cost([route]) for route in routes)
    td = instance.to_tensordict(normalize=False)
    env, actions = MTVRPEnv(), instance.to_actions(routes)
    for factor, valid in ((1.0001, True), (0.9999, False)):
        td["distance_limit"] = torch.full_like(td["distance_limit"], longest * factor)
        if valid:
            env.check_solution_validity(env.reset(td), actions)
            continue
        with pytest.raises(InvalidSolutionError, match="longer than the distance limit"):
            env.check_solution_validity(env.reset(td), actions)
