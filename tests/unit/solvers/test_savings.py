"""Savings on neighbour lists: hand cases, validity, quality against other heuristics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.envs import get_env
from rl4co.envs.routing.cvrp import savings as module
from rl4co.envs.routing.cvrp.savings import savings_routes


def test_pairs_are_joined_by_their_savings() -> None:
    """Savings 2, 4 and 2 along a line of three: the far pair first, then the vehicle is full."""
    line = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    assert savings_routes(line, np.array([0, 1, 1, 1]), 2).tolist() == [1, 0, 2, 3]
    assert savings_routes(line, np.array([0, 1, 1, 1]), 3).tolist() == [1, 2, 3]


@pytest.mark.parametrize("size", [2, 3, 30, 400])
def test_near_neighbours_are_enough(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists give valid routes that are hardly longer than those of all pairs; a matrix agrees."""
    rng = np.random.default_rng(size)
    points, demand = rng.random((size, 2)), rng.integers(1, 10, size).astype(float)
    demand[0] = 0
    matrix = np.linalg.norm(points[:, None] - points[None], axis=-1)

    def cost(visits: np.ndarray) -> float:
        assert np.array_equal(np.sort(visits[visits > 0]), np.arange(1, size))
        for route in np.split(visits, np.flatnonzero(visits == 0)):
            assert demand[route].sum() <= 40
        nodes = np.concatenate([[0], visits, [0]])
        return float(matrix[nodes[1:], nodes[:-1]].sum())

    complete = cost(savings_routes(points, demand, 40.0))
    assert cost(savings_routes(points, demand, 40.0, matrix)) == pytest.approx(complete)
    monkeypatch.setattr(module, "MAX_ALL_PAIRS", 0 if size > 2 else 10)
    assert cost(savings_routes(points, demand, 40.0, num_neighbors=20)) <= 1.05 * complete


@pytest.mark.parametrize("problem", ["cvrp", "tsp"])
def test_solver(problem: str) -> None:
    """Valid solutions, far below nearest neighbour."""
    env = get_env(problem, generator_params={"num_loc": 100})
    instances = env.generator(4, rng=torch.Generator().manual_seed(0))
    actions, costs = env.solve(instances, solver="savings")
    env.check_solution_validity(env.reset(instances), actions)
    assert costs.mean() < 0.95 * env.solve(instances, solver="nearest_neighbor")[1].mean()


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="num_neighbors"):
        savings_routes(np.zeros((3, 2)), np.zeros(3), 1.0, num_neighbors=0)
    env = get_env("cvrptw")
    with pytest.raises(UnsupportedError, match="cvrptw"):
        env.solve(env.generator(1), solver="savings")
