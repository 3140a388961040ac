"""Large instances: thousands of nodes without anything of the size nodes x nodes."""

from __future__ import annotations

import tracemalloc

from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.core.errors import UnsupportedError
from rl4co.data.formats import read_instance
from rl4co.envs import get_env
from rl4co.models.embeddings import EmbeddingConfig
from rl4co.models.policies.nonautoregressive import make_edge_embedding
from rl4co.solvers._geometry import geometries

#: A matrix of 6,000 x 6,000 float32 takes 144 MB.
SIZE, LIMIT = 6_000, 100e6
SOLVERS = {
    "ils": {"max_iterations": 200},
    "insertion": {},
    "sweep": {},
    "random_insertion": {},
    "glop": {"subprob_solver": "search"},
}


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_large_instances_in_bounded_memory(problem: str, solver: str):
    """Reset, solution, check and reward; NumPy and Python are watched, torch gets no matrix."""
    env = get_env(problem, generator_params={"num_loc": SIZE}, seed=0)
    instances = env.generate(1)
    tracemalloc.start()
    try:
        actions, costs = env.solve(instances, solver=solver, max_runtime=20.0, **SOLVERS[solver])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LIMIT
    td = env.reset(instances)
    torch.testing.assert_close(-env.get_reward(td, actions), costs)
    # Random points: tours are a little longer than 0.7124 sqrt(N), insertion some 15 to 25 %.
    if problem == "tsp":
        assert 0.71 < float(costs) / SIZE**0.5 < 0.95


@pytest.mark.parametrize("solver", ["lkh", "pyvrp", "ortools"])
def test_solvers_with_a_matrix_reject_large_instances_and_name_others(solver: str):
    problem = "tsp" if solver == "lkh" else "cvrp"
    env = get_env(problem, generator_params={"num_loc": SIZE}, seed=0)
    with pytest.raises(UnsupportedError, match=r"5,000 nodes.*ils"):
        env.solve(env.generate(1), solver=solver)


def test_files_of_large_instances_come_without_a_matrix(tmp_path: Path):
    rows = np.random.default_rng(0).integers(0, 10_000, (SIZE, 2))
    lines = [f"{i} {x} {y}" for i, (x, y) in enumerate(rows, start=1)]
    head = ["TYPE : TSP", f"DIMENSION : {SIZE}", "EDGE_WEIGHT_TYPE : {}", "NODE_COORD_SECTION"]
    text = "\n".join([*head, *lines, "EOF", ""])
    path = tmp_path / "large.tsp"
    path.write_text(text.format("EUC_2D"))
    instance = read_instance(path)
    td = instance.to_tensordict(normalize=False)
    assert set(td.keys()) == {"locs"}
    path.write_text(text.format("GEO"))
    with pytest.raises(UnsupportedError, match="5,000 nodes"):
        read_instance(path).to_tensordict(normalize=False)


def test_a_time_limit_is_kept():
    env = get_env("tsp", generator_params={"num_loc": 2_000}, seed=0)
    instances = env.generate(1)
    env.solve(instances, solver="ils", max_iterations=1)  # compiled code is loaded now
    costs = [env.solve(instances, solver="ils", max_runtime=t)[1] for t in (0.05, 1.5)]
    assert float(costs[1]) < float(costs[0])


def test_candidate_edges_grow_with_the_number_of_nodes_alone():
    """A share of all nodes would make graphs of gigabytes."""
    for problem in ("tsp", "cvrp", "cvrpmvc"):
        embedding = make_edge_embedding(problem, EmbeddingConfig(4))
        assert embedding.degree(35_000) == embedding.degree(10_000) <= 200


def test_asymmetric_matrices_are_rejected_where_they_make_no_sense():
    env = get_env("tsp")
    td = env.reset(env.generator(1))
    td["cost_matrix"] = torch.rand(1, 20, 20)
    with pytest.raises(UnsupportedError, match="symmetric"):
        geometries(env, td, symmetric=True)
    assert geometries(env, td)[0].matrix is not None


@pytest.mark.parametrize("solver", ["glop", "sweep"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_matrices_need_their_coordinates_where_these_are_all_that_counts(problem, solver):
    """Rounded distances are solved by their coordinates, others are rejected."""
    env = get_env(problem, generator_params={"num_loc": 20}, seed=0)
    td = env.reset(env.generate(2))
    td["cost_matrix"] = torch.cdist(td["locs"], td["locs"]).mul(100).round()
    assert bool(env.solve(td, solver=solver)[1].isfinite().all())
    noise = torch.rand_like(td["cost_matrix"])
    td["cost_matrix"] = noise + noise.transpose(1, 2)
    with pytest.raises(UnsupportedError, match="other distances than theirs; use ils"):
        env.solve(td, solver=solver)
    with pytest.raises(UnsupportedError, match="got a matrix only"):
        geometries(env, td.exclude("locs"), planar=True)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_iterated_search_goes_on_from_a_solution(problem: str):
    env = get_env(problem, generator_params={"num_loc": 40}, seed=0)
    instances = env.generate(3)
    start, before = env.solve(instances, solver="random_insertion")
    _, after = env.solve(instances, solver="ils", initial=start, max_iterations=300)
    assert bool((after <= before + 1e-6).all()) and float(after.mean()) < float(before.mean())
