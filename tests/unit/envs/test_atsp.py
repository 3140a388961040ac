"""ATSP: matrices with the triangle inequality, exhaustive oracles, and embeddings of a matrix."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tensordict import TensorDict
from torch.distributions import Beta

from rl4co.envs import ATSPEnv, ATSPGenerator
from rl4co.envs.routing.atsp.generator import cheapest_paths
from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from tests.unit.envs.routing_oracle import allowed_solutions


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrices(batch: int, size: int, seed: int = 0, **params) -> torch.Tensor:
    return ATSPGenerator(num_loc=size, **params)(batch, seeded(seed))["cost_matrix"]


def as_instances(costs: torch.Tensor) -> TensorDict:
    return TensorDict({"cost_matrix": costs}, batch_size=costs.shape[:-2])


def tour_cost(matrix: np.ndarray, tour: list[int] | tuple[int, ...]) -> float:
    return float(sum(matrix[a, b] for a, b in itertools.pairwise([*tour, tour[0]])))


# ---------------------------------------------------------------- generator


def shortest_path(costs: np.ndarray, start: int, goal: int) -> float:
    """The best of all simple paths between two nodes."""
    others = [node for node in range(len(costs)) if node not in (start, goal)]
    return min(
        sum(costs[a, b] for a, b in itertools.pairwise([start, *stops, goal]))
        for length in range(len(others) + 1)
        for stops in itertools.permutations(others, length)
    )


@pytest.mark.parametrize("size", [2, 3, 6])
def test_costs_are_those_of_cheapest_paths(size: int):
    """Against all simple paths, one by one."""
    plain = matrices(3, size, tmat_class=False)
    closed = cheapest_paths(plain).double().numpy()
    for costs, found in zip(plain.double().numpy(), closed, strict=True):
        for a, b in itertools.permutations(range(size), 2):
            assert found[a, b] == pytest.approx(shortest_path(costs, a, b), rel=1e-6)


@pytest.mark.parametrize("size", [3, 10, 40])
def test_triangle_inequality(size: int):
    """No detour is a short cut; without `tmat_class` most matrices have one."""

    def worst_gain(costs: torch.Tensor) -> torch.Tensor:
        detours = costs.unsqueeze(-1) + costs.unsqueeze(-3)  # [B, i, k, j]
        return (costs - detours.amin(-2)).amax((-2, -1))

    assert worst_gain(matrices(8, size)).max() < 1e-6
    assert (worst_gain(matrices(8, size, tmat_class=False)) > 1e-3).sum() >= 4


def test_defaults_are_those_of_the_paper():
    """Ten nodes, arcs uniform on [0, 1] and independent of their reverse, zeros on the diagonal."""
    generator = ATSPGenerator()
    assert generator(5)["cost_matrix"].shape == (5, 10, 10)
    plain = matrices(400, 10, tmat_class=False)
    inside = ~torch.eye(10, dtype=torch.bool)
    assert (plain[:, ~inside] == 0).all()
    arcs = plain[:, inside]
    quantiles = torch.quantile(arcs.flatten(), torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
    torch.testing.assert_close(quantiles, torch.linspace(0, 1, 5), atol=0.01, rtol=0)
    reverse = plain.mT[:, inside]
    assert abs(float(torch.corrcoef(torch.stack([arcs.flatten(), reverse.flatten()]))[0, 1])) < 0.03
    # The closure is far from symmetric, too.
    closed = matrices(50, 10)
    assert ((closed - closed.mT).abs()[:, inside] > 1e-3).float().mean() > 0.9


def test_range_and_distributions():
    """What is drawn on the unit interval is stretched to [min_dist, max_dist]."""
    inside = ~torch.eye(6, dtype=torch.bool)
    unit, stretched = (
        matrices(50, 6, tmat_class=False, **bounds)[:, inside]
        for bounds in ({}, {"min_dist": 2.0, "max_dist": 6.0})
    )
    torch.testing.assert_close(stretched, 2.0 + 4.0 * unit)
    beta = {"dist_distribution": "beta", "dist_alpha": 2.0, "dist_beta": 6.0, "max_dist": 10.0}
    assert float(matrices(200, 6, tmat_class=False, **beta)[:, inside].mean()) == pytest.approx(
        2.5, abs=0.1
    )
    own = matrices(200, 6, tmat_class=False, dist_sampler=Beta(6.0, 2.0))[:, inside]
    assert float(own.mean()) == pytest.approx(0.75, abs=0.02)


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_mask_allows_exactly_the_permutations(size: int):
    """Each tour once, each with the reward of NumPy; the best one is the best of all."""
    instances = as_instances(matrices(1, size, seed=size))
    matrix = instances["cost_matrix"][0].double().numpy()
    expected = {tour: -tour_cost(matrix, tour) for tour in itertools.permutations(range(size))}
    allowed = allowed_solutions(ATSPEnv(), instances[0])
    assert allowed == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_local_search_respects_directions():
    """Never worse, often better, and judged by the asymmetric costs."""
    pytest.importorskip("numba")
    env = ATSPEnv()
    td = env.reset(as_instances(matrices(16, 12)))
    tours = torch.stack([torch.randperm(12, generator=seeded(b)) for b in range(16)])
    before = env.get_reward(td, tours)
    improved = env.local_search(td, tours)
    assert torch.equal(improved, env.local_search(td, tours, rng=0))  # a published argument
    after = env.get_reward(td, improved)
    assert (after >= before - 1e-6).all()
    assert after.mean() > 0.7 * before.mean()


# ---------------------------------------------------------------- plots


def test_plot_shows_tour_and_matrix():
    """Rows and columns in the order of the tour, so that its legs lie beside the diagonal."""
    env = ATSPEnv()
    td = env.reset(as_instances(matrices(1, 5)))
    tour = torch.tensor([[3, 1, 4, 0, 2]])
    left, right = env.render(td, tour).axes[:2]
    cost = tour_cost(td["cost_matrix"][0].numpy(), tour[0].tolist())
    assert left.get_title() == f"5 nodes · cost {cost:.3f}"
    shown = right.images[0].get_array()
    order = tour[0].tolist()
    expected = td["cost_matrix"][0].numpy()[np.ix_(order, order)]
    inside = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(np.asarray(shown)[inside], expected[inside], rtol=1e-6)
    frames = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in right.patches}
    assert frames == {(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)}
    assert [label.get_text() for label in right.get_yticklabels()] == [str(n) for n in order]


@pytest.mark.parametrize("actions", [None, torch.tensor([2]), torch.tensor([2, 0])])
def test_plot_without_a_complete_tour(actions):
    env = ATSPEnv()
    td = env.reset(as_instances(matrices(1, 4)))[0]
    right = env.render(td, actions).axes[1]
    assert len(right.patches) == (0 if actions is None else len(actions) - 1)


# ---------------------------------------------------------------- embeddings


def init_embedding(dim: int = 32):
    return make_embeddings("atsp", EmbeddingConfig(dim)).init.eval()


@torch.no_grad()
def test_embedding_does_not_depend_on_the_numbering():
    """Relabelled nodes have relabelled embeddings."""
    costs, order = matrices(2, 9), torch.randperm(9, generator=seeded())
    init = init_embedding()
    relabelled = costs[:, order][:, :, order]
    torch.testing.assert_close(
        init({"cost_matrix": relabelled}), init({"cost_matrix": costs})[:, order],
        atol=1e-5, rtol=1e-5,
    )  # fmt: skip


@torch.no_grad()
def test_embedding_does_not_depend_on_units_or_diagonal():
    """Minutes or seconds; what is written on the diagonal is never read."""
    costs, init = matrices(2, 7), init_embedding()
    expected = init({"cost_matrix": costs})
    torch.testing.assert_close(init({"cost_matrix": 60.0 * costs}), expected, atol=1e-5, rtol=1e-5)
    marked = costs + 9.0 * torch.eye(7)
    torch.testing.assert_close(init({"cost_matrix": marked}), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_embedding_knows_directions():
    """The transposed matrix is another instance."""
    costs, init = matrices(2, 7), init_embedding()
    assert not torch.allclose(
        init({"cost_matrix": costs.mT}), init({"cost_matrix": costs}), atol=1e-3
    )


@torch.no_grad()
def test_costs_can_be_read_off_the_features():
    """Codes around i times the code of j: large where going from i to j is cheap."""
    costs, init = matrices(8, 20), init_embedding(128)
    codes = init._codes(costs)
    near, _ = init._neighbourhoods(torch.stack([costs, costs.mT], 1) / costs.mean())
    for direction, actual in ((1, costs), (4, costs.mT)):  # the middle reach of each
        score = near[:, direction] @ codes @ codes.mT  # [B, N, N]
        score = score.masked_fill(torch.eye(20, dtype=torch.bool), -torch.inf)
        nearest = actual.masked_fill(torch.eye(20, dtype=torch.bool), torch.inf).argmin(-1)
        assert (score.argmax(-1) == nearest).float().mean() > 0.8


@torch.no_grad()
@pytest.mark.parametrize("size", [1, 2, 150])
def test_embedding_of_any_size(size: int):
    """More nodes than features, or one alone, or costs that are all the same."""
    init = init_embedding(16)
    for costs in (matrices(2, size), torch.zeros(2, size, size), torch.ones(2, size, size)):
        out = init({"cost_matrix": costs})
        assert out.shape == (2, size, 16)
        assert out.isfinite().all()
