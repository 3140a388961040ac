"""Data sets on disk: layout, seeds, and that the environments' own generators make them."""

from __future__ import annotations

import os
import re

from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.data import (
    generate_dataset,
    generate_default_datasets,
    generate_env_data,
    load_npz_to_tensordict,
)
from rl4co.envs import get_env


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_instances_come_from_the_environment(problem: str):
    """The same numbers as its generator gives for the same seed."""
    expected = get_env(problem, generator_params={"num_loc": 7}).generator(5, rng=seeded(3))
    got = generate_env_data(problem, 5, 7, seed=3)
    assert got.batch_size == (5,)
    assert set(got.keys()) == set(expected.keys())
    assert all(torch.equal(got[key], expected[key]) for key in expected.keys())


def test_generator_params_are_passed_on():
    """Also without a size of their own."""
    params = {"num_loc": 3, "loc_distribution": "corner"}
    assert (generate_env_data("tsp", 2, generator_params=params)["locs"] == 0).all()
    assert generate_env_data("tsp", 2, generator_params=params)["locs"].shape == (2, 3, 2)


def test_seed_leaves_the_global_generator_alone():
    """Without a seed it is the source of randomness."""
    before = torch.get_rng_state()
    generate_env_data("cvrp", 2, 4, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    generate_env_data("cvrp", 2, 4)
    assert not torch.equal(torch.get_rng_state(), before)


def kool_recipe(problem: str, size: int, seed: int, num: int) -> dict[str, np.ndarray]:
    """The arrays of a set of the paper, drawn one after the other as in the code of Kool et al."""
    np.random.seed(seed)
    uniform, integers = np.random.uniform, np.random.randint
    if problem == "tsp":
        return {"locs": uniform(size=(num, size, 2))}
    if problem == "atsp":
        costs = uniform(size=(num, size, size))
        for node in range(size):
            costs[:, node, node] = 0
        for node in range(size):
            costs = np.minimum(costs, costs[:, :, node : node + 1] + costs[:, node : node + 1, :])
        return {"cost_matrix": costs}
    depot, locs = uniform(size=(num, 2)), uniform(size=(num, size, 2))
    arrays = {"depot": depot, "locs": locs}
    if problem == "vrp":
        demand = integers(1, 10, size=(num, size))
        return {**arrays, "demand": demand, "capacity": np.full(num, {20: 30.0, 50: 40.0}[size])}
    limit = np.full(num, {20: 2.0, 50: 3.0}[size])
    if problem == "op_const":
        return {**arrays, "prize": np.ones((num, size)), "max_length": limit}
    if problem == "op_unif":
        prize = (1 + integers(0, 100, size=(num, size))) / 100.0
        return {**arrays, "prize": prize, "max_length": limit}
    if problem == "op_dist":
        way = np.linalg.norm(depot[:, None] - locs, axis=-1)
        prize = (1 + (way / way.max(-1, keepdims=True) * 99).astype(int)) / 100.0
        return {**arrays, "prize": prize, "max_length": limit}
    if problem == "pctsp":
        penalty = uniform(size=(num, size)) * (limit[0] * 3 / float(size))
        expected = uniform(size=(num, size)) * 4 / float(size)
        stochastic = uniform(size=(num, size)) * expected * 2
        prizes = {"deterministic_prize": expected, "stochastic_prize": stochastic}
        return {**arrays, "penalty": penalty, **prizes}
    return arrays  # pdp


def test_default_datasets_are_those_of_the_paper(tmp_path: Path):
    """Bit for bit the NumPy sets of Kool et al., under their names; environments read them."""
    files = generate_default_datasets(tmp_path, dataset_size=6, graph_sizes=[20, 50])
    kinds = ["tsp", "vrp", "pctsp", "op_const", "op_unif", "op_dist", "pdp", "atsp"]
    assert [path.relative_to(tmp_path).as_posix() for path in files] == [
        f"{kind.split('_')[0]}/{kind}{size}_{phase}.npz"
        for phase in ("val_seed4321", "test_seed1234")
        for kind in kinds
        for size in (20, 50)
    ]
    for path in files:
        kind, size, seed = re.match(r"(\D+)(\d+)_\w+_seed(\d+)", path.stem).groups()
        expected = kool_recipe(kind, int(size), int(seed), 6)
        with np.load(path) as found:
            assert set(found) == set(expected), path
            for key, array in expected.items():
                assert found[key].dtype == np.float32
                assert np.array_equal(found[key], array.astype(np.float32)), (path.name, key)
        name = {"vrp": "cvrp"}.get(path.parent.name, path.parent.name)
        env = get_env(name)
        td = env.reset(env.load_data(path))
        assert td["action_mask"].any(-1).all()


def test_default_datasets_of_chip_design(tmp_path: Path):
    """The 100 boards of mDPP on request; `rl4co.data.generate_data` draws the same."""
    (board,) = generate_default_datasets(tmp_path, (), generate_eda=True)
    assert board.relative_to(tmp_path).as_posix() == "mdpp/mdpp10_test_seed1234.npz"
    np.random.seed(1234)
    first, ports = np.random.randint(0, 100, (100, 1)), np.random.randint(2, 6, (100, 1))
    chosen = [np.random.choice(100, ports[row], replace=False) for row in range(100)]
    td = load_npz_to_tensordict(board)
    assert td["probe"].sum(-1).tolist() == ports[:, 0].tolist()
    assert all(td["probe"][row, chosen[row]].all() for row in range(100))
    assert not td["action_mask"][torch.arange(100), first[:, 0]].any()
    env = get_env("mdpp")
    assert env.reset(env.load_data(board)).batch_size == (100,)


def test_no_other_set_is_called_that_of_the_paper(tmp_path: Path):
    """Problems and sizes without a recipe are rejected, and nothing is written."""
    with pytest.raises(UnknownNameError, match=r"no set of the paper 'mtsp'"):
        generate_default_datasets(tmp_path, ["tsp", "mtsp"], dataset_size=2)
    with pytest.raises(ConfigError, match=r"a capacity in the recipe .* got 7; .*generate_dataset"):
        generate_default_datasets(tmp_path, "vrp", dataset_size=2, graph_sizes=7)
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_environment_accepts_its_file(problem: str, tmp_path: Path):
    """What is written can be loaded and reset by the environment."""
    (path,) = generate_dataset(
        data_dir=tmp_path, problem=problem, dataset_size=4, graph_sizes=6, seed=0
    )
    env = get_env(problem)
    state = env.reset(env.load_data(path))
    assert state.batch_size == (4,)


def test_existing_files_are_kept(tmp_path: Path):
    """Rejected by default, then nothing at all is written; kept or replaced on request."""
    options = {"data_dir": tmp_path, "problem": "tsp", "dataset_size": 2}
    (first,) = generate_dataset(**options, graph_sizes=5, seed=1)
    content = first.read_bytes()
    with pytest.raises(FileExistsError, match=r"tsp5_test_seed1\.npz.*overwrite=True"):
        generate_dataset(**options, graph_sizes=[5, 6], seed=1)
    assert os.listdir(first.parent) == [first.name]
    first.write_bytes(b"mine")
    assert generate_dataset(**options, graph_sizes=[5, 6], seed=1, exist_ok=True)[0] == first
    assert first.read_bytes() == b"mine"
    assert len(os.listdir(first.parent)) == 2
    generate_dataset(**options, graph_sizes=[5, 6], seed=1, overwrite=True)
    assert first.read_bytes() == content


def test_unknown_problem_writes_nothing(tmp_path: Path):
    """Even if other problems of the list exist."""
    with pytest.raises(UnknownNameError, match="did you mean 'cvrp'"):
        generate_dataset(data_dir=tmp_path, problem=["tsp", "cvpr"], dataset_size=2, graph_sizes=5)
    assert os.listdir(tmp_path) == []
    with pytest.raises(UnknownNameError):
        generate_env_data("cvpr", 2, 5)


def test_file_names_can_be_given(tmp_path: Path):
    """One per problem and size, suffix optional; a wrong number of them is rejected."""
    names = [tmp_path / "a", str(tmp_path / "b.npz")]
    files = generate_dataset(names, problem="tsp", dataset_size=2, graph_sizes=[4, 5])
    assert files == [tmp_path / "a.npz", tmp_path / "b.npz"]
    assert load_npz_to_tensordict(files[1])["locs"].shape == (2, 5, 2)
    single = generate_dataset(tmp_path / "c.npz", problem="tsp", dataset_size=2, graph_sizes=4)
    assert single == [tmp_path / "c.npz"]
    with pytest.raises(ConfigError, match="expected 2 distinct file names"):
        generate_dataset(tmp_path / "d", problem="tsp", dataset_size=2, graph_sizes=[4, 5])
