"""TSP: exhaustive oracles, stepping, and instances given by a matrix."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import InvalidActionError, InvalidInstanceError
from rl4co.envs import TSPEnv
from tests.unit.envs.routing_oracle import allowed_solutions, euclidean


def random_matrices(batch: int, size: int, seed: int = 0) -> np.ndarray:
    """Asymmetric integer costs `[B, N, N]` without a diagonal."""
    costs = np.random.default_rng(seed).integers(1, 1000, (batch, size, size))
    return costs * (1 - np.eye(size, dtype=np.int64))


def as_instances(**arrays: np.ndarray) -> TensorDict:
    """Float32 instances from arrays with one batch axis."""
    tensors = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in arrays.items()}
    return TensorDict(tensors, batch_size=[len(next(iter(tensors.values())))])


def tour_cost(matrix: np.ndarray, tour: list[int] | tuple[int, ...]) -> float:
    return float(sum(matrix[a, b] for a, b in itertools.pairwise([*tour, tour[0]])))


def brute_force(matrix: np.ndarray) -> float:
    """The best of all permutations that begin with node 0."""
    rest = range(1, len(matrix))
    return min(tour_cost(matrix, (0, *order)) for order in itertools.permutations(rest))


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("given_by", ["locs", "cost_matrix"])
def test_mask_allows_exactly_the_permutations(size: int, given_by: str):
    """Stepping through every allowed action reaches each tour once, the best one among them."""
    if given_by == "locs":
        locs = np.random.default_rng(size).random((1, size, 2))
        matrix, instances = euclidean(locs[0]), as_instances(locs=locs)
    else:
        matrices = random_matrices(1, size, seed=size)
        matrix, instances = matrices[0], as_instances(cost_matrix=matrices)
    expected = {tour: -tour_cost(matrix, tour) for tour in itertools.permutations(range(size))}
    allowed = allowed_solutions(TSPEnv(), instances[0])
    assert allowed == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.solvers
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lkh_agrees(seed: int):
    """LKH, brute force and the environment find the same best cost of an asymmetric matrix."""
    elkai = pytest.importorskip("elkai")
    matrices = random_matrices(1, 7, seed)
    tour = elkai.DistanceMatrix(matrices[0].tolist()).solve_tsp(runs=10)[:-1]
    env = TSPEnv()
    td = env.reset(as_instances(cost_matrix=matrices))
    reward = float(env.get_reward(td, torch.tensor([tour])))
    assert -reward == brute_force(matrices[0])


# ---------------------------------------------------------------- stepping


def test_state_follows_the_tour():
    """First node, last node, counter, mask and done after each of three steps."""
    env = TSPEnv()
    td = env.reset(as_instances(locs=np.random.default_rng(0).random((2, 3, 2))))
    assert td["action_mask"].all()
    for step, nodes in enumerate([[2, 0], [0, 1], [1, 2]]):
        td = env.step(td.set("action", torch.tensor(nodes)))["next"]
        assert td["first_node"].tolist() == [2, 0]
        assert td["current_node"].tolist() == nodes
        assert td["i"].flatten().tolist() == [step + 1] * 2
        assert td["done"].flatten().tolist() == [step == 2] * 2
    # Finished: staying at the last node is all that is allowed, and it changes nothing.
    assert td["action_mask"].tolist() == [[False, True, False], [False, False, True]]
    after = env.step(td.set("action", td["current_node"]))["next"]
    for key in ("first_node", "current_node", "done", "action_mask"):
        assert torch.equal(after[key], td[key]), key


# ---------------------------------------------------------------- bad input


def test_masked_action_is_rejected_in_checked_mode():
    """A node visited before, or none of the instance, is rejected with its place in the batch."""
    env = TSPEnv(check_action=True)
    td = env.reset(as_instances(locs=np.random.default_rng(0).random((3, 4, 2))))
    td = env.step(td.set("action", torch.tensor([0, 1, 2])))["next"]
    with pytest.raises(InvalidActionError, match=r"instances 1 of tsp; choose where action_mask"):
        env.step(td.set("action", torch.tensor([1, 1, 1])))
    with pytest.raises(InvalidActionError, match="instances 0, 2 of tsp"):
        env.step(td.set("action", torch.tensor([4, 0, -1])))


def test_bad_instances_are_named():
    """The key, the rule and the instances that break it."""
    locs = np.random.default_rng(0).random((4, 5, 2))
    locs[1, 3, 0] = np.nan
    locs[3, 0, 1] = np.inf
    with pytest.raises(InvalidInstanceError, match=r"locs is finite, got 2 of 4 .* 1, 3\)"):
        TSPEnv().reset(as_instances(locs=locs))
