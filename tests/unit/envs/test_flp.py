"""Facility location against independent NumPy code and brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, InvalidSolutionError
from rl4co.envs import FLPEnv
from rl4co.envs.graph import FLPGenerator
from rl4co.envs.graph.flp.local_search import swap_facilities
from rl4co.kernels import disabled


def cost_of(matrix: np.ndarray, chosen) -> float:
    """Every customer goes to its nearest facility."""
    return sum(min(matrix[i][j] for i in chosen) for j in range(len(matrix)))


def mixed_batch(*numbers: int, size: int = 7, seed: int = 0) -> TensorDict:
    rng = torch.Generator().manual_seed(seed)
    locs = torch.rand(len(numbers), size, 2, generator=rng)
    instance = {"locs": locs, "to_choose": torch.tensor(numbers)}
    return TensorDict(instance, batch_size=[len(numbers)])


def test_generator_has_the_published_keys():
    """Shapes, types and values, for an integer and for several axes."""
    generator = FLPGenerator()
    assert (generator.num_loc, generator.to_choose) == (100, 10)
    td = generator(3)
    shapes = {key: (tuple(td[key].shape), td[key].dtype) for key in td.keys()}
    assert shapes == {
        "locs": ((3, 100, 2), torch.float32),
        "orig_distances": ((3, 100, 100), torch.float32),
        "distances": ((3, 100), torch.float32),
        "chosen": ((3, 100), torch.bool),
        "to_choose": ((3,), torch.int64),
    }
    torch.testing.assert_close(td["orig_distances"], torch.cdist(td["locs"], td["locs"]),
                               atol=1e-3, rtol=1e-3)  # fmt: skip
    assert torch.allclose(td["distances"], torch.tensor(2.0).sqrt())
    assert FLPGenerator(num_loc=5)((2, 3)).batch_size == (2, 3)
    assert FLPGenerator(num_loc=5).to_choose == 3


def test_published_matrix_replaces_coordinates():
    env = FLPEnv()
    matrix = torch.rand(2, 4, 4, dtype=torch.float64)
    plain = {"to_choose": torch.tensor([2, 1])}
    actions = torch.tensor([[0, 3], [1, 1]])
    rewards = [
        env.get_reward(env.reset(TensorDict({**plain, key: matrix}, batch_size=[2])), actions)
        for key in ("cost_matrix", "orig_distances")
    ]
    assert torch.equal(*rewards)
    assert float(rewards[0][0]) == pytest.approx(-cost_of(matrix[0].numpy(), [0, 3]))
    assert float(rewards[0][1]) == pytest.approx(-float(matrix[1, 1].sum()))


def test_local_search_compiled_and_plain_agree():
    rng = np.random.default_rng(0)
    costs, chosen = rng.random((3, 9, 9)), np.stack([rng.permutation(9)[:4] for _ in range(6)])
    counts = np.array([4, 2, 3])
    fast = swap_facilities(costs, chosen, counts)
    with disabled():
        assert np.array_equal(swap_facilities(costs, chosen, counts), fast)
    assert np.array_equal(swap_facilities(costs, chosen, counts, threads=2), fast)
    assert np.array_equal(swap_facilities(costs, chosen, counts, max_iterations=0)[0], chosen[0])


def test_local_search_rejects_invalid_selections():
    costs = np.zeros((1, 3, 3))
    with pytest.raises(InvalidSolutionError, match="chosen twice"):
        swap_facilities(costs, np.array([[1, 1]]), np.array([2]))
    with pytest.raises(ConfigError, match="finite costs"):
        swap_facilities(np.full((1, 3, 3), np.nan), np.array([[0]]), np.array([1]))


@pytest.mark.parametrize("given", ["locs", "cost_matrix", "orig_distances"])
def test_figures(given: str):
    """With facilities or without, from coordinates or a matrix; customers have the right colour."""
    env = FLPEnv()
    instance = mixed_batch(2)
    if given != "locs":
        matrix = torch.rand(1, 7, 7)
        instance = TensorDict({given: matrix, "to_choose": torch.tensor([2])}, batch_size=[1])
    td = env.reset(instance)
    figure = env.render(td, torch.tensor([[1, 4]]))
    (ways,) = (c for c in figure.axes[0].collections if "LineCollection" in type(c).__name__)
    assert len(ways.get_segments()) == 7
    assert "2 facilities" in figure.axes[0].get_title()
    assert env.render(td).axes[0].get_title() == "7 locations"
