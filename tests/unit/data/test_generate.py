"""Data sets on disk: layout, seeds, and that the environments' own generators make them."""

from __future__ import annotations

import os

from pathlib import Path

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


def test_default_datasets(tmp_path: Path):
    """Validation with seed 4321 and test with seed 1234, in the documented layout."""
    files = generate_default_datasets(tmp_path, ["tsp", "cvrp"], dataset_size=6, graph_sizes=[5, 8])
    assert [str(path.relative_to(tmp_path).as_posix()) for path in files] == [
        "tsp/tsp5_val_seed4321.npz",
        "tsp/tsp8_val_seed4321.npz",
        "cvrp/cvrp5_val_seed4321.npz",
        "cvrp/cvrp8_val_seed4321.npz",
        "tsp/tsp5_test_seed1234.npz",
        "tsp/tsp8_test_seed1234.npz",
        "cvrp/cvrp5_test_seed1234.npz",
        "cvrp/cvrp8_test_seed1234.npz",
    ]
    val, test = load_npz_to_tensordict(files[1]), load_npz_to_tensordict(files[5])
    assert val["locs"].shape == test["locs"].shape == (6, 8, 2)
    generator = get_env("tsp", generator_params={"num_loc": 8}).generator
    assert torch.equal(val["locs"], generator(6, rng=seeded(4321))["locs"])
    assert torch.equal(test["locs"], generator(6, rng=seeded(1234))["locs"])


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
    """Refused by default, then nothing at all is written; kept or replaced on request."""
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
    """One per problem and size, suffix optional; a wrong number of them is refused."""
    names = [tmp_path / "a", str(tmp_path / "b.npz")]
    files = generate_dataset(names, problem="tsp", dataset_size=2, graph_sizes=[4, 5])
    assert files == [tmp_path / "a.npz", tmp_path / "b.npz"]
    assert load_npz_to_tensordict(files[1])["locs"].shape == (2, 5, 2)
    single = generate_dataset(tmp_path / "c.npz", problem="tsp", dataset_size=2, graph_sizes=4)
    assert single == [tmp_path / "c.npz"]
    with pytest.raises(ConfigError, match="expected 2 distinct file names"):
        generate_dataset(tmp_path / "d", problem="tsp", dataset_size=2, graph_sizes=[4, 5])
