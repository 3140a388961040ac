"""p-median files of the OR-Library: read, rejected where they are damaged, solved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.core.errors import FileFormatError, InvalidSolutionError, UnsupportedError
from rl4co.data.formats import BenchmarkMedian, find_instances, read_instance, write_solution
from rl4co.envs import FLPEnv

# A path 1 - 2 - 3 - 4 and a long way from 1 to 4; the edge 1 - 2 is listed twice.
SMALL = """ 4 5 2
 1 2 30
 2 3 4
 3 4 5
 1 4 50
 2 1 3
"""


def read(folder: Path, text: str, name: str = "pmed99.txt") -> BenchmarkMedian:
    path = folder / name
    path.write_text(text)
    instance = read_instance(path)
    assert isinstance(instance, BenchmarkMedian)
    return instance


def test_costs_are_shortest_ways(tmp_path: Path):
    """Of an edge that comes twice, the last line counts."""
    instance = read(tmp_path, SMALL)
    expected = [[0, 3, 7, 12], [3, 0, 4, 9], [7, 4, 0, 5], [12, 9, 5, 0]]
    assert instance.costs.tolist() == expected
    assert (instance.name, instance.problem, instance.num_facilities) == ("pmed99", "flp", 2)
    assert instance.objective((1, 3)) == 3 + 4
    assert instance.best_known is None
    assert find_instances(tmp_path) == [tmp_path / "pmed99.txt"]


def test_optimum_comes_from_the_table_beside(tmp_path: Path):
    (tmp_path / "pmedopt.csv").write_text("instance,n,p,optimum\npmed99,4,2,7\n")
    instance = read(tmp_path, SMALL)
    assert instance.best_known == 7
    assert instance.gap(14) == 1.0


def test_environment_counts_the_same(tmp_path: Path):
    instance = read(tmp_path, SMALL)
    env = FLPEnv()
    td = env.reset(instance.to_tensordict(normalize=False))
    assert td["cost_matrix"].dtype == torch.float64
    actions = instance.to_actions((1, 3))
    assert float(env.get_reward(td, actions)) == -instance.objective((1, 3))
    assert instance.from_actions(torch.tensor([[3, 1]])) == (1, 3)
    small = instance.to_tensordict(normalize=True)["cost_matrix"]
    assert (float(small.max()), small.dtype) == (1.0, torch.float32)


def test_solutions_are_written_and_read(tmp_path: Path):
    instance = read(tmp_path, SMALL)
    file = tmp_path / "out.json"
    write_solution(file, instance, (1, 3))
    assert '"facilities": [2, 4]' in file.read_text()  # as in the file of the instance
    assert instance.read_solution(file) == (1, 3)
    assert instance.lines((1, 3)) == ["Facilities: 2 4"]
    file.write_text('{"facilities": [2, 2]}')
    with pytest.raises(FileFormatError, match="no vertex has two facilities"):
        instance.read_solution(file)
    file.write_text('{"facilities": [2, 4.5]}')
    with pytest.raises(FileFormatError, match="a list of vertices"):
        instance.read_solution(file)
    for wrong in ((1,), (1, 1), (1, 4)):
        with pytest.raises(InvalidSolutionError):
            instance.check(wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL.replace(" 2 1 3\n", ""), r"expected 5 edges that connect 4 vertices, got 4"),
        (" 4 5 2\n", "expected 5 edges that connect 4 vertices, got 0"),
        (SMALL.replace(" 2 1 3", " 2 1"), "line 6: expected two vertices"),
        (SMALL.replace(" 2 1 3", " 2 5 3"), "line 6: expected two vertices from 1 to 4"),
        (SMALL.replace(" 2 1 3", " 2 1 -3"), "line 6: .*not negative"),
        (SMALL.replace("4 5 2", "4 5 6"), "line 1: .*facilities"),
        # A header alone must not allocate anything.
        (SMALL.replace("4 5 2", "1000000000 5 2"), "5 edges that connect 1000000000 vertices"),
        (SMALL.replace(" 3 4 5\n 1 4 50", " 3 2 5\n 1 3 50"), "connected graph"),
    ],
)
def test_damaged_files_are_rejected(tmp_path: Path, text: str, message: str):
    with pytest.raises(FileFormatError, match=message):
        read(tmp_path, text)


def test_what_makes_no_sense_is_rejected(tmp_path: Path):
    instance = read(tmp_path, SMALL)
    with pytest.raises(UnsupportedError, match="rounding"):
        read_instance(tmp_path / "pmed99.txt", rounding="nearest")
    with pytest.raises(UnsupportedError, match="an instance of tsp"):
        instance.as_problem("tsp")


def test_all_published_files(shared_dir: Path):
    """Sizes and optima of the table; the matrices are metrics."""
    folder = shared_dir / "data" / "graph" / "pmed"
    if not folder.is_dir():
        pytest.skip("no p-median problems in the shared folder")
    instance = read_instance(folder / "pmed6.txt")
    assert isinstance(instance, BenchmarkMedian)
    assert (instance.size, instance.num_facilities, instance.best_known) == (200, 5, 7824)
    costs = instance.costs
    assert np.array_equal(costs, costs.T)
    assert (costs[:, :, None] + costs[None, :, :20] >= costs[:, None, :20]).all()
    assert len([f for f in find_instances(folder) if f.suffix == ".txt"]) == 40
