"""SHPP: open paths between fixed ends, exhaustive oracles, local search and plots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import UnsupportedError
from rl4co.envs import SHPPEnv
from rl4co.models import AttentionModelPolicy
from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from tests.unit.envs.routing_oracle import allowed_solutions, euclidean


def random_instance(size: int, seed: int, given_by: str = "locs") -> tuple[TensorDict, np.ndarray]:
    """An instance without batch axis and its costs `[N, N]`."""
    rng = np.random.default_rng(seed)
    if given_by == "locs":
        points = rng.random((size, 2))
        costs = euclidean(points)
    else:
        points = costs = rng.integers(1, 1000, (size, size)).astype(float)
    tensors = {given_by: torch.as_tensor(points, dtype=torch.float32)}
    return TensorDict(tensors, batch_size=[]), costs


def path_cost(costs: np.ndarray, path: list[int] | tuple[int, ...]) -> float:
    return float(sum(costs[a, b] for a, b in itertools.pairwise(path)))


def all_paths(size: int) -> list[tuple[int, ...]]:
    """Every order of the nodes between the first and the last."""
    if size == 1:
        return [(0,)]
    return [(0, *order, size - 1) for order in itertools.permutations(range(1, size - 1))]


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("given_by", ["locs", "cost_matrix"])
def test_mask_allows_exactly_the_paths_between_the_ends(size: int, given_by: str):
    """Each path once, each with the cost of NumPy."""
    instance, costs = random_instance(size, size, given_by)
    env = SHPPEnv()
    expected = {path: -path_cost(costs, path) for path in all_paths(size)}
    assert allowed_solutions(env, instance) == pytest.approx(expected, rel=1e-5, abs=1e-6)


# ---------------------------------------------------------------- stepping


def test_state_follows_the_path():
    """The start, then what lies between, and the end when nothing else is left."""
    instance, _ = random_instance(4, seed=0)
    env = SHPPEnv()
    td = env.reset(instance.expand(2))
    assert td["last_node"].tolist() == [3, 3]
    script = [
        ([0, 0], [[False, True, True, False]] * 2),
        ([1, 2], [[False, False, True, False], [False, True, False, False]]),
        ([2, 1], [[False, False, False, True]] * 2),
        ([3, 3], [[False, False, False, True]] * 2),  # done, stays at the end
    ]
    assert td["action_mask"].tolist() == [[True, False, False, False]] * 2
    for step, (nodes, allowed) in enumerate(script):
        td = env.step(td.set("action", torch.tensor(nodes)))["next"]
        assert td["action_mask"].tolist() == allowed
        assert td["current_node"].tolist() == nodes
        assert td["first_node"].tolist() == [0, 0]
        assert td["done"].flatten().tolist() == [step == 3] * 2


def test_starts_are_second_nodes():
    """Every path begins at node 0, so solutions differ from their second node on."""
    env = SHPPEnv(generator_params={"num_loc": 5})
    td = env.reset(batch_size=2)
    assert env.get_num_starts(td) == 3
    assert env.select_start_nodes(td, 3).tolist() == [1, 1, 2, 2, 3, 3]
    policy = AttentionModelPolicy(env_name="shpp", embed_dim=16, num_heads=2).eval()
    out = policy(td, env, decode_type="multistart_greedy")
    assert out["actions"][:, 0].tolist() == [0] * 6
    assert out["actions"][:, 1].tolist() == [1, 1, 2, 2, 3, 3]
    again = policy(td, env, decode_type="multistart_greedy", actions=out["actions"])
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"])
    one = SHPPEnv(generator_params={"num_loc": 1})
    with pytest.raises(UnsupportedError, match="one node"):
        one.get_num_starts(one.reset(batch_size=2))


@pytest.mark.parametrize("given_by", ["locs", "cost_matrix"])
def test_local_search_keeps_the_ends(given_by: str):
    """Never worse, mostly optimal for six nodes, and still a path from the first to the last."""
    pytest.importorskip("numba")
    env, optimal = SHPPEnv(), 0
    for seed in range(10):
        instance, costs = random_instance(6, seed, given_by)
        td = env.reset(instance.unsqueeze(0))
        before = torch.tensor([[0, *np.random.default_rng(seed).permutation(4) + 1, 5]])
        after = env.local_search(td, before)
        reward = env.get_reward(td, after, check_solution=True)
        assert reward >= env.get_reward(td, before) - 1e-6
        best = min(path_cost(costs, path) for path in all_paths(6))
        optimal += -reward.item() == pytest.approx(best, rel=1e-5)
    assert optimal >= 7


def test_plot_shows_an_open_path():
    """A line that does not come back, and two marked ends."""
    locs = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    env = SHPPEnv()
    td = env.reset(TensorDict({"locs": locs}, batch_size=[]))
    figure = env.render(td, torch.tensor([0, 1, 2, 3]))
    ax = figure.axes[0]
    assert ax.get_title() == "4 nodes · cost 3.000"
    assert np.asarray(ax.get_lines()[0].get_xydata()).tolist() == locs.tolist()
    ends = {c.get_label(): np.asarray(c.get_offsets()).tolist() for c in ax.collections}
    assert ends["start"] == [[0.0, 0.0]]
    assert ends["end"] == [[0.0, 1.0]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["start", "end"]


@pytest.mark.parametrize("size", [1, 2, 40])
def test_plot_of_any_size(size: int):
    env = SHPPEnv()
    td = env.reset(random_instance(size, 0)[0])
    path = torch.arange(size)
    assert env.render(td).axes[0].get_title() == f"{size} node{'s' * (size > 1)}"
    assert "visited" not in env.render(td, path).axes[0].get_title()
    if size > 2:
        assert f"{size - 1} visited" in env.render(td, path[:-1]).axes[0].get_title()


# ---------------------------------------------------------------- embeddings


@torch.no_grad()
def test_embeddings_mark_both_ends():
    """Nodes at the same place differ only if one of them is an end."""
    init = make_embeddings("shpp", EmbeddingConfig(8)).init
    out = init({"locs": torch.full((1, 5, 2), 0.5)})[0]
    assert torch.equal(out[1], out[2])
    assert torch.equal(out[1], out[3])
    torch.testing.assert_close(out[0] - out[1], init.marks[0])
    torch.testing.assert_close(out[4] - out[1], init.marks[1])
    alone = init({"locs": torch.full((1, 1, 2), 0.5)})[0, 0]
    torch.testing.assert_close(alone - out[1], init.marks.sum(0))
