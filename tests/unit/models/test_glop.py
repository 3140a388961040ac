"""GLOP: original revisers, revision that never lengthens, partitions that learn, the solver."""

from __future__ import annotations

import subprocess
import sys

from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError
from rl4co.core.registry import SOLVERS
from rl4co.core.rng import derive_generator
from rl4co.envs import get_env
from rl4co.models import GLOP, GLOPPolicy, Reviser, make_reviser_policy, revise_tours
from rl4co.models.embeddings import EmbeddingConfig
from rl4co.models.embeddings.cvrpmvc import CVRPMVCEdgeEmbedding
from rl4co.models.zoo import glop
from rl4co.models.zoo.glop.adapter import Budget, CVRPAdapter, make_tour_solver
from rl4co.models.zoo.glop.revision import normalise_pieces, path_output, reflect_pieces
from tests.learning import paired_t

TINY = {"embed_dim": 16, "num_encoder_layers": 1, "num_heads": 2, "feedforward_hidden": 16}


def length(points: np.ndarray) -> float:
    return float(np.linalg.norm(points - np.roll(points, -1, 0), axis=1).sum())


# ---------------------------------------------------------------- revisers


@pytest.fixture(scope="module")
def reference(shared_dir: Path):
    """Reference arrays and the original reviser."""
    folder = shared_dir / "reference" / "nonautoregressive"
    path = folder / "glop_reviser10_small.npz"
    if not path.is_file():
        pytest.skip(f"no reference results in {path}")
    policy = glop.load_original_weights(folder / "weights" / path.name)
    return np.load(path, allow_pickle=False), policy


@torch.no_grad()
def test_original_reviser(reference):
    """Paths, costs and likelihoods in both directions."""
    data, policy = reference
    pieces = normalise_pieces(torch.from_numpy(data["x"]))
    torch.testing.assert_close(pieces, torch.from_numpy(data["x_transformed"]))
    for backward, paths, side in ((False, "pi_fwd", "fwd"), (True, "pi_bwd_flipped", "bwd")):
        out = path_output(policy, pieces, backward, "greedy")
        assert (out["actions"].numpy() == data[paths]).all()
        np.testing.assert_allclose(-out["reward"], data[f"cost_{side}"], atol=1e-5)
        np.testing.assert_allclose(out["log_likelihood"], data[f"loglik_{side}"], atol=2.5e-5)


@pytest.mark.parametrize(("reflect", "key"), [(True, "rev_out"), (False, "rev_out_noaug")])
def test_original_revision(reference, reflect: bool, key: str):
    """Five iterations on tours of 100 nodes."""
    data, policy = reference
    orders = revise_tours(list(data["rev_in"]), [Reviser(policy, 10, 5)], reflect)
    costs = [length(points[order]) for points, order in zip(data["rev_in"], orders, strict=True)]
    np.testing.assert_allclose(costs, data[f"{key}_cost"], atol=1e-5)


def test_the_destination_is_an_argument(reference, shared_dir: Path):
    """Another context: other paths forwards, since the end is known."""
    data, original = reference
    path = shared_dir / "reference" / "nonautoregressive" / "weights" / "glop_reviser10_small.npz"
    other = glop.load_original_weights(path, destination=True)
    pieces = torch.from_numpy(data["x_transformed"])
    paths = [path_output(p, pieces, False, "greedy")["actions"] for p in (original, other)]
    assert not torch.equal(*paths)


def test_foreign_weights_raise():
    with pytest.raises(FileFormatError, match="GLOP reviser"):
        glop.load_original_weights({"a": torch.zeros(2)})


def test_normalised_pieces_by_hand():
    """Higher than wide: moved, turned and scaled to a width of one."""
    piece = torch.tensor([[[1.0, 2.0], [2.0, 6.0], [1.0, 4.0]]])
    expected = torch.tensor([[[0.0, 0.0], [1.0, 0.25], [0.5, 0.0]]])
    torch.testing.assert_close(normalise_pieces(piece), expected)
    assert reflect_pieces(expected)[:, 1].tolist() == [
        [1.0, 0.25], [0.0, 0.25], [1.0, 0.75], [0.0, 0.75],
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:expected a reviser of at most")
@pytest.mark.parametrize("size", [3, 9, 10, 25, 37])
def test_revision_never_lengthens(size: int):
    """With an untrained reviser; tours shorter than a piece stay as they are."""
    points = [np.random.default_rng(s).random((size, 2)) for s in range(3)]
    policy = make_reviser_policy(**TINY).eval()
    orders = revise_tours(points, [Reviser(policy, 10, 3), Reviser(policy, 5, 2)])
    for tour, order in zip(points, orders, strict=True):
        assert sorted(order.tolist()) == list(range(size))
        assert length(tour[order]) <= length(tour) + 1e-6


def test_a_piece_is_normalised_whatever_its_place():
    """Shifted, turned by 90 degrees and scaled, an instance is the same to a reviser."""
    points = torch.rand(4, 10, 2)
    moved = points.flip(-1) * 7.0 + 3.0
    torch.testing.assert_close(
        normalise_pieces(points), normalise_pieces(moved), atol=1e-5, rtol=1e-4
    )


def test_bad_revisers_raise():
    policy = make_reviser_policy(**TINY)
    with pytest.raises(ConfigError, match=r"expected Reviser\(policy, size, iterations\), got Att"):
        revise_tours([np.zeros((9, 2))], [policy])
    with pytest.raises(ConfigError, match="at least 4 nodes"):
        revise_tours([np.zeros((9, 2))], [Reviser(policy, 3, 1)])
    with pytest.raises(ConfigError, match="1 iteration"):
        revise_tours([np.zeros((9, 2))], [Reviser(policy, 5, 0)])
    with pytest.raises(ConfigError, match="at least 4 nodes"):
        revise_tours([np.zeros((9, 2))], [Reviser(policy, 5.5, 1)])
    with pytest.raises(ConfigError, match="a policy as reviser, got None"):
        revise_tours([np.zeros((9, 2))], [Reviser(None, 5, 1)])
    with pytest.warns(UserWarning, match="at most 9 nodes"):
        revise_tours([np.zeros((9, 2))], [Reviser(policy, 10, 1)])
    with pytest.raises(ConfigError, match="revisers"):
        make_tour_solver("reviser")
    with pytest.raises(UnknownNameError, match="insertion"):
        GLOPPolicy(subprob_solver="insertions")


def test_revision_evaluates_and_leaves_the_mode_as_it_was():
    """Statistics of batches are neither used nor learned: tours do not depend on each other."""
    policy = make_reviser_policy(**TINY, normalization="batch").train()
    before = {name: value.clone() for name, value in policy.named_buffers()}
    tours = list(np.random.default_rng(0).random((3, 20, 2)))
    together = revise_tours(tours, [Reviser(policy, 10, 3)])
    alone = revise_tours(tours[:1], [Reviser(policy, 10, 3)])
    assert np.array_equal(together[0], alone[0]) and policy.training
    assert before and all(value.equal(before[name]) for name, value in policy.named_buffers())


def test_revisers_are_used_or_raise():
    env, reviser = get_env("cvrpmvc"), Reviser(make_reviser_policy(**TINY), 5, 1)
    assert GLOP(env, revisers=[reviser]).policy.subprob_solver == "reviser"
    with pytest.raises(ConfigError, match="got 'insertion'"):
        GLOP(env, policy_kwargs={"subprob_solver": "insertion"}, revisers=[reviser])
    with pytest.raises(ConfigError, match="got 'ils'"):
        get_env("tsp").solve(
            get_env("tsp").generate(1), solver="glop", subprob_solver="ils", revisers=[reviser]
        )


# ---------------------------------------------------------------- partitions


def test_edges_by_angle():
    """Four customers around the depot: each has edges to both of its neighbours, and the depot."""
    env = get_env("cvrpmvc", generator_params={"num_loc": 4})
    td = env.reset(env.generator(1))
    td["locs"] = torch.tensor([[[0.0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]])
    embedding = CVRPMVCEdgeEmbedding(EmbeddingConfig(4, k_sparse=2))
    graph, features, _ = embedding.build_graph(td)
    assert [set(row) for row in graph.targets[0].tolist()] == [
        {3, 4, 0}, {3, 4, 0}, {1, 2, 0}, {1, 2, 0},
    ]  # fmt: skip
    customers = features[0, :12].view(4, 3, 2)
    assert customers[:, :2, 1].abs().max() < 1e-6, "neighbours at right angles"
    assert bool((customers[:, 2, 1] == 1).all())


def test_more_edges_than_customers_raise():
    """Around the depot the same customers would come again."""
    env = get_env("cvrpmvc", generator_params={"num_loc": 4})
    with pytest.raises(ConfigError, match="1 to 3 candidate edges"):
        GLOPPolicy(k_sparse=4, num_layers_graph_encoder=1).heatmap(env.reset(batch_size=1))


def test_subproblems_keep_customers_and_shorten_routes():
    points = np.random.default_rng(0).random((12, 2))
    actions = np.array([3, 1, 5, 0, 2, 4, 0, 0, 6, 7, 8, 9, 10, 11, 0, 0])
    adapter = CVRPAdapter(points)
    solved = adapter.solve(actions, make_tour_solver("ils"))
    before, after = adapter.decompose(actions), adapter.decompose(solved)
    assert [sorted(r.tolist()) for r in before] == [sorted(r.tolist()) for r in after]
    assert all(
        length(points[a]) <= length(points[b]) + 1e-9 for b, a in zip(before, after, strict=True)
    )


def test_insertion_does_not_depend_on_how_customers_were_visited():
    """Customers by angle, as a sweep has them, would make insertion tours some 15 % longer."""
    random = np.random.default_rng(0)
    angle, radius = np.sort(random.random(60) * 0.6), random.random(60) ** 0.5
    points = np.vstack([[[0, 0]], np.c_[radius * np.cos(angle), radius * np.sin(angle)]])
    adapter, by_angle = CVRPAdapter(points), np.arange(1, 61)
    insertion, better = make_tour_solver("insertion"), make_tour_solver("ils")
    solved = adapter.solve(by_angle, insertion)
    assert solved.tolist() == adapter.solve(random.permutation(by_angle), insertion).tolist()
    assert length(points[solved]) < 1.12 * length(points[adapter.solve(by_angle, better)])


@pytest.mark.parametrize("name", ["search", "ils", "lkh", "reviser"])
def test_tours_stay_as_they_are_when_time_is_over(name: str):
    revisers = [Reviser(make_reviser_policy(**TINY).eval(), 8, 2)]
    tours = [np.random.default_rng(0).random((30, 2))] * 2
    solver = make_tour_solver(name, revisers)
    lengths = [length(tours[0][order]) for order in solver(tours, Budget(0.0))]
    assert lengths == pytest.approx([length(tours[0])] * 2)


def test_tours_are_solved_by_a_function_of_tensors():
    """As published: asked once per size, with the depot first; other results raise."""
    asked = []

    def backwards(points):
        asked.append(tuple(points.shape))
        return torch.arange(points.shape[1]).flip(0).expand(points.shape[:2])

    policy = GLOPPolicy(
        "cvrpmvc", embed_dim=8, num_layers_graph_encoder=1, subprob_solver=backwards
    )
    env = get_env("cvrpmvc", generator_params={"num_loc": 5})
    actions = torch.tensor([[[3, 1, 0, 2, 4, 0, 5, 0]]])
    td = env.reset(env.generator(1))
    inserted = policy.solve_subproblems(td, actions, "insertion")[0, 0].tolist()
    solved = policy.solve_subproblems(td, actions)[0, 0].tolist()
    assert solved == [*inserted[1::-1], 0, *inserted[4:2:-1], 0, 5, 0]
    assert asked == [(1, 2, 2), (2, 3, 2)]
    with pytest.raises(ConfigError, match="orders of 3 nodes for each of 1 tours"):
        make_tour_solver(lambda points: points[..., 0])([np.ones((3, 2))], Budget())


@pytest.mark.learning
@pytest.mark.parametrize(("problem", "steps"), [("cvrpmvc", 40), ("pctsp", 120)])
def test_partitions_learn(problem: str, steps: int, require):
    """A few steps of REINFORCE make the mean partition clearly better: paired over instances."""
    torch.manual_seed(0)
    env = get_env(problem, generator_params={"num_loc": 30})
    settings = {"embed_dim": 16, "num_layers_graph_encoder": 4, "n_samples": 12}

    @torch.no_grad()
    def judge(model: GLOP) -> torch.Tensor:
        td = env.reset(env.generator(96, rng=derive_generator("judged")))
        policy = model.policy.eval()
        actions = policy.sample(td, env, 12, policy.edge_weights(td), derive_generator("x"))
        solved = policy.solve_subproblems(td, actions)
        rewards = [env.get_reward(td, solved[:, s], check_solution=True) for s in range(12)]
        return torch.stack(rewards).mean(0)

    before = judge(GLOP(env, policy_kwargs=settings, seed=1))
    torch.manual_seed(0)
    model = GLOP(env, policy_kwargs=settings, seed=1)
    optimizer = torch.optim.AdamW(model.policy.parameters(), lr=3e-3)
    model.train()
    for step in range(steps):
        batch = env.generator(8, rng=derive_generator("learning", step))
        optimizer.zero_grad()
        model.shared_step(batch, step, "train")["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.policy.parameters(), 1.0)
        optimizer.step()
    gain = judge(model) - before
    require("t of the gain", paired_t(gain), above=4.0)


# ---------------------------------------------------------------- the solver


@pytest.mark.parametrize("subprob_solver", ["insertion", "search", "ils", "reviser"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_solver(problem: str, subprob_solver: str):
    """Valid solutions with every sub-solver, with a learned partition and without."""
    env = get_env(problem, generator_params={"num_loc": 30}, seed=0)
    instances = env.generate(2)
    options = {"subprob_solver": subprob_solver, "n_samples": 3}
    if subprob_solver == "reviser":
        options["revisers"] = [Reviser(make_reviser_policy(**TINY), 5, 2)]
    _, costs = env.solve(instances, solver="glop", **options)
    assert bool(costs.isfinite().all())
    if problem == "cvrp":
        policy = GLOPPolicy(embed_dim=8, num_layers_graph_encoder=2).eval()
        actions, _ = env.solve(instances, solver="glop", policy=policy, **options)
        env.check_solution_validity(env.reset(instances), actions)


def test_solver_keeps_its_time_and_raises_for_unusable_options():
    env = get_env("tsp", generator_params={"num_loc": 300}, seed=0)
    instances = env.generate(1)
    insertion = env.solve(instances, solver="glop", subprob_solver="insertion")[1]
    _, costs = env.solve(instances, solver="glop", max_runtime=1e-6)
    assert costs == pytest.approx(insertion), "no time for anything else"
    with pytest.raises(ConfigError, match="no partition policy"):
        env.solve(instances, solver="glop", policy=GLOPPolicy(num_layers_graph_encoder=1))


def test_solver_is_loaded_only_when_asked_for():
    """Names and the default solver do not load it, nor the networks behind it."""
    assert "glop" in SOLVERS.names() and SOLVERS.hosted_names() == ["glop"]
    script = (
        "import sys; from rl4co.envs import get_env; from rl4co.core.registry import SOLVERS;"
        "get_env('cvrp').default_solver(); assert 'glop' in SOLVERS;"
        "assert not any(m.startswith('rl4co.models.zoo.glop') for m in sys.modules), 'loaded'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
