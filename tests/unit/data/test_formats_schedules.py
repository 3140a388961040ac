"""Job shops as instances of benchmarks: recognised, read with bounds, their schedules judged."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl4co.core.errors import (
    ConfigError,
    FileFormatError,
    InvalidSolutionError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.data.formats import (
    BenchmarkShop,
    find_instances,
    read_best_known,
    read_instance,
    read_instances,
    write_solution,
)
from rl4co.data.formats.schedules import Slot
from rl4co.data.formats.shop import ShopInstance
from rl4co.envs import get_env
from tests.unit.instance_texts import FJS, JSP, TSP, VRP

TAILLARD = """\
Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound :
 2 3 840612802 398197754 13 11
Times
 5 3 4
 2 6 1
Machines
 3 1 2
 2 3 1
"""
#: The first lines have three, nine and nine numbers, as in the format of Li and Lim.
LIKE_LILIM = "2 3 1.5\n2 1 1 4 2 2 5 3 6\n2 1 2 3 2 1 4 3 2\n"

TWO = BenchmarkShop.of(ShopInstance("two", 3, (({2: 5}, {0: 3}, {1: 4}), ({1: 2}, {2: 6}, {0: 1}))))
#: Its best schedule: the first job never waits, which takes 12.
BEST = (((2, 0), (0, 5), (1, 8)), ((1, 0), (2, 5), (0, 11)))
FLEXIBLE = BenchmarkShop.of(
    ShopInstance("flexible", 3, (({0: 4, 2: 5}, {1: 7}), ({0: 1, 1: 2, 2: 3},)))
)


def written(folder: Path, text: str, name: str = "file.txt") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return path


# ---------------------------------------------------------------- recognising


@pytest.mark.parametrize(
    ("text", "problem", "sizes"),
    [
        (JSP, "jssp", (2, 3, 6)),
        ("# a remark\n\n" + JSP, "jssp", (2, 3, 6)),
        (JSP.replace("\n1 2", " 1 2"), "jssp", (2, 3, 6)),
        (TAILLARD, "jssp", (2, 3, 6)),
        (TAILLARD.split("\n", 1)[1], "jssp", (2, 3, 6)),
        (FJS, "fjsp", (2, 3, 3)),
        (FJS.replace("2 3 2", "2 3"), "fjsp", (2, 3, 3)),
        (LIKE_LILIM, "fjsp", (2, 3, 4)),
        ("2 2\n2 1 1 5 1 2 4\n1 1 2 3\n", "jssp", (2, 2, 3)),  # FJS without a choice
        ("1 2\n1 1 2 4\n", "jssp", (1, 2, 2)),  # could be either
    ],
)
@pytest.mark.parametrize("name", ["file", "file.txt", "file.vrp"])
def test_recognised_by_content(tmp_path: Path, text: str, problem: str, sizes: Any, name: str):
    """Whatever the file is called; a choice of machines makes the problem flexible."""
    shop = read_instance(written(tmp_path, text, name))
    assert isinstance(shop, BenchmarkShop)
    assert (shop.name, shop.problem) == ("file", problem)
    assert (shop.shop.num_jobs, shop.shop.num_machines, shop.size) == sizes


def test_the_suffix_decides_if_numbers_do_not(tmp_path: Path):
    """One job with two operations of one machine each, or with one operation."""
    assert read_instance(written(tmp_path, "1 2\n1 1 2 4\n", "a.jsp")).size == 2
    assert read_instance(written(tmp_path, "1 2\n1 1 2 4\n", "a.fjs")).size == 1


@pytest.mark.parametrize(
    "text",
    [
        "10 1\n0 0 0\n9 9 0\n1 1 5\n",  # orienteering
        "2 10 1\n0 0 0 0 0 100 0 0 0\n1 0 3 4 0 50 1 0 2\n2 4 3 -4 0 90 1 1 0\n",  # Li and Lim
        VRP,
        TSP,
    ],
)
def test_routing_problems_are_no_job_shops(tmp_path: Path, text: str):
    """Though some of them are nothing but numbers."""
    assert not isinstance(read_instance(written(tmp_path, text)), BenchmarkShop)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JSP[:-4], "line 3, job 1, operation 2: expected machine, got the end of the file"),
        (JSP.replace("2 6", "2 six"), "line 3: expected numbers, got 'six'"),
        (FJS[:-4], "line 3, job 1, operation 0: expected machine, got the end of the file"),
        (TAILLARD[:-6], "Machines, job 1, operation 0: expected machine, got the end"),
        (JSP + "4 4\n", "line 4: expected the end of the file after 2 jobs, got 4"),
        ("1 2\n0 0 1 0\n", "expected a job that takes time"),
        ("2 3\nsome words\n", "JSPLIB, Taillard or FJS .* of a job shop"),
        ("5 5 5 5\n5 5 5 5\n", "JSPLIB, Taillard or FJS .* of a job shop"),
    ],
)
def test_damaged_files(tmp_path: Path, text: str, message: str):
    """File, place, what was expected and what is there."""
    with pytest.raises(FileFormatError, match=message) as caught:
        read_instance(written(tmp_path, text, "wrong"))
    assert "wrong" in str(caught.value) and "; " in str(caught.value)


def test_several_instances_in_one_file(tmp_path: Path):
    """All of them, or a word on what to do; a table knows them by their names."""
    other = TAILLARD.replace("13 11", "30 20").replace("5 3 4", "9 9 9")
    path = written(tmp_path, TAILLARD + other, "tai.txt")
    with pytest.raises(FileFormatError, match=r"one instance, got 2 \(tai_1 to tai_2\); `rl4co be"):
        read_instance(path)
    shops = read_instances(path)
    assert [(shop.name, shop.best_known, shop.lower_bound) for shop in shops] == [
        ("tai_1", 13, 11), ("tai_2", 30, 20),
    ]  # fmt: skip
    table = written(tmp_path, "instance,lb,ub\ntai_1,12,12\ntai_2,,28\n", "bks.csv")
    shops = read_instances(path, best_known=table)
    assert [(shop.best_known, shop.lower_bound) for shop in shops] == [(12, 12), (28, 20)]
    with pytest.raises(ConfigError, match=r"best-known.*2 instances.*12"):
        read_instances(path, best_known=12)


def test_arrays(tmp_path: Path):
    """The test sets of L2D."""
    array = np.array([[[[5, 3, 4], [2, 6, 1]], [[3, 1, 2], [2, 3, 1]]]] * 2, dtype=np.int32)
    np.save(tmp_path / "set.npy", array)
    shops = read_instances(tmp_path / "set.npy")
    assert [shop.name for shop in shops] == ["set_0", "set_1"]
    assert shops[1].objective(BEST) == 12


def test_folders(tmp_path: Path):
    """Files without a suffix are looked into; hidden ones and other texts are left out."""
    written(tmp_path, JSP, "two")
    written(tmp_path, FJS, "a/flexible.txt")
    written(tmp_path, FJS[:5], "a/damaged.fjs")
    written(tmp_path, TAILLARD, "a/b.tai")
    written(tmp_path, "Some words\n", "LICENSE")
    written(tmp_path, "1 2 3\n4 5 6\n", "numbers")
    written(tmp_path, JSP, ".hidden/two")
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    written(tmp_path, json.dumps({"schedule": []}), "two.json")
    names = [path.relative_to(tmp_path).as_posix() for path in find_instances(tmp_path)]
    assert names == ["a/b.tai", "a/damaged.fjs", "a/flexible.txt", "two"]


# ---------------------------------------------------------------- best-known values


@pytest.mark.parametrize(
    ("text", "column", "known"),
    [
        ("instance,lb_2014,ub_2014,lb_2026,ub_2026\ntwo,1,20,11,12\n", None, (11, 12)),
        ("instance,lb_2014,ub_2014,lb_2026,ub_2026\ntwo,1,20,11,12\n", "ub_2014", (1, 20)),
        ("name,lb,ub\nTWO,,12\n", None, (None, 12)),
        ("name,ub\ntwo,12\n", None, (None, 12)),
        ("file,optimum,lb,ub\nsets/two,13,11,12\n", None, (None, 13)),
    ],
)
def test_tables(tmp_path: Path, text: str, column: str | None, known: tuple[Any, Any]):
    """The latest bounds, unless a column is named or there is one of best-known values."""
    table = written(tmp_path, text, "bks.csv")
    shop = read_instance(written(tmp_path, JSP, "two"), best_known=table, column=column)
    assert (shop.lower_bound, shop.best_known) == known
    assert read_best_known(table, shop, column) == known[1]


def test_paths_in_tables(tmp_path: Path):
    """Files of the same name in different folders; elsewhere, the name alone does not tell."""
    table = written(tmp_path, "path,lb,ub\nedata/la.txt,1,2\nrdata/la.txt,3,4\n", "bks.csv")
    for folder, best in (("edata", 2), ("rdata", 4)):
        path = written(tmp_path, FJS, f"hurink/{folder}/la.txt")
        assert read_instance(path, best_known=table).best_known == best
    with pytest.raises(FileFormatError, match=r"one line for la, got 2 \(edata/la.txt, rdata"):
        read_instance(written(tmp_path, FJS, "la.txt"), best_known=table)
    with pytest.warns(UserWarning, match="a line for other, got none"):
        other = read_instance(written(tmp_path, FJS, "other.txt"), best_known=table)
    assert other.best_known is None


def test_what_is_given_comes_before_what_the_file_says(tmp_path: Path):
    """A value, a solution, the header of a file in Taillard's format."""
    path = written(tmp_path, TAILLARD, "two.txt")
    shop = read_instance(path)
    assert (shop.best_known, shop.lower_bound, shop.gap(26)) == (13, 11, 1.0)
    solution = write_solution(tmp_path / "best.json", shop, BEST)
    assert read_instance(path, solution=solution).best_known == 12
    assert read_instance(path, solution=solution, best_known=10).best_known == 10
    with pytest.raises(ConfigError, match="got none for two"):
        TWO.gap(12)
    with pytest.raises(UnsupportedError, match="no rounding for two"):
        read_instance(path, rounding="exact")


# ---------------------------------------------------------------- schedules


def test_values_and_words():
    """Ends follow from starts; jobs and machines count from 0."""
    TWO.check(BEST)
    assert TWO.objective(BEST) == 12
    assert TWO.lines(BEST) == ["Job 0: m2 0-5, m0 5-8, m1 8-12", "Job 1: m1 0-2, m2 5-11, m0 11-12"]
    record = TWO.record(BEST)
    assert record["schedule"][1][1] == {"machine": 2, "start": 5, "end": 11}
    del record["schedule"]
    assert record == {"jobs": 2, "machines": 3, "operations": 6, "makespan": 12}
    assert repr(TWO) == "BenchmarkShop('two', problem='jssp', 2 jobs, 3 machines, 6 operations)"


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (BEST[:1], "every operation is scheduled once (1 of 2 jobs)"),
        ((BEST[0][:2], BEST[1]), "every operation is scheduled once (job 0: 2 of 3 operations)"),
        ((((1, 0), (0, 5), (1, 8)), BEST[1]), "job 0, operation 0: machine 1, not 2"),
        ((((2, -1), (0, 5), (1, 8)), BEST[1]), "no operation starts before time 0"),
        (
            (((2, 0), (0, 4), (1, 8)), BEST[1]),
            "has ended (job 0, operation 1: a start at 4, before 5)",
        ),
        ((BEST[0], ((1, 0), (2, 4), (0, 11))), "machine 2: job 1, operation 1 at 4, while job 0"),
    ],
)
def test_violations(schedule: Any, message: str):
    """Each rule is named, with job and operation; the environment rejects the same schedules."""
    with pytest.raises(InvalidSolutionError) as caught:
        TWO.check(schedule)
    assert message in str(caught.value)
    with pytest.raises(InvalidSolutionError):
        TWO.to_actions(schedule)


def test_environments_and_schedules_agree():
    """Random solutions: there and back, with the environment's makespan; also as an FJSP."""
    for shop in (TWO, TWO.as_problem("fjsp"), FLEXIBLE):
        env = get_env(shop.problem)
        td = shop.to_tensordict(normalize=False)
        assert td["proc_times"].dtype == torch.float64
        assert shop.to_tensordict(normalize=True)["proc_times"].dtype == torch.float32
        for seed in range(5):
            actions, costs = env.solve(td, solver="random", seed=seed)
            schedule = shop.from_actions(actions)
            shop.check(schedule)
            assert shop.objective(schedule) == float(costs)
            assert shop.from_actions(shop.to_actions(schedule)) == schedule
            assert shop.from_actions(actions[0].tolist()) == schedule
    # The second operation of job 1 waits for machine 2, though it could run before job 0.
    assert TWO.from_actions(TWO.to_actions(BEST)) == BEST


def test_late_starts_are_moved_to_the_left():
    """The order is what actions hold."""
    late = tuple(tuple(Slot(machine, start + 7) for machine, start in job) for job in BEST)
    assert TWO.objective(late) == 19
    assert TWO.from_actions(TWO.to_actions(late)) == BEST


def test_wrong_actions():
    """Incomplete ones, several, and those for another problem."""
    with pytest.raises(InvalidSolutionError, match="scheduled exactly once"):
        TWO.from_actions([1, 1, 2])
    with pytest.raises(ConfigError, match="actions of one solution"):
        TWO.from_actions(torch.zeros(2, 6, dtype=torch.int64))
    with pytest.raises(UnsupportedError, match=r"instance of jssp, got one of fjsp \(flexible\)"):
        FLEXIBLE.as_problem("jssp")


def test_operations_that_take_no_time():
    """The environment leaves them out; they start when the one before ends, on a busy machine."""
    shop = BenchmarkShop.of(
        ShopInstance("none", 2, (({0: 0}, {1: 3}, {0: 0}, {0: 2}), ({1: 0}, {0: 4})))
    )
    assert shop.to_tensordict(normalize=True)["proc_times"].shape == (1, 2, 3)
    schedule = (((0, 0), (1, 0), (0, 3), (0, 4)), ((1, 0), (0, 0)))
    shop.check(schedule)
    assert shop.objective(schedule) == 6
    assert shop.from_actions(shop.to_actions(schedule)) == schedule


# ---------------------------------------------------------------- files of schedules


@pytest.mark.parametrize("shop", [TWO, FLEXIBLE])
def test_what_is_written_is_read(tmp_path: Path, shop: BenchmarkShop):
    """The same schedule; other suffixes are rejected, and so are schedules that are not valid."""
    env = get_env(shop.problem)
    actions, costs = env.solve(shop.to_tensordict(normalize=False), solver="dispatching")
    schedule = shop.from_actions(actions)
    path = write_solution(tmp_path / "new" / "a.json", shop, schedule)
    assert shop.read_solution(path) == schedule
    data = json.loads(path.read_text())
    assert data["makespan"] == float(costs) and data["problem"] == shop.problem
    with pytest.raises(UnknownNameError, match=r"suffix of a solution of .* known: \.json"):
        write_solution(tmp_path / "a.sol", shop, schedule)
    with pytest.raises(InvalidSolutionError):
        write_solution(tmp_path / "b.json", shop, schedule[:1])
    assert not (tmp_path / "b.json").exists()


def operations(schedule: Any) -> list[list[dict[str, Any]]]:
    return [[{"machine": m, "start": s} for m, s in job] for job in schedule]


ENDS = TWO.record(BEST)["schedule"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"routes": [[1, 2]]}, r"a schedule \(keys: name, .*\), got the keys \['routes'\]"),
        ({"schedule": 5}, "a schedule"),
        ({"schedule": [5]}, "schedule, job 0: expected a list of operations, .* got 5"),
        ({"schedule": [[[2, 0]]]}, r"each with machine, start, end .*, got \[2, 0\]"),
        ({"schedule": [[{"machine": 2}]]}, r"got \{\"machine\": 2\}"),
        ({"schedule": [[{"machine": 2, "start": 0.5}]]}, "as whole numbers, got"),
        ({"schedule": [[{"machine": 2, "start": True}]]}, "as whole numbers, got"),
        ({"schedule": operations(BEST[:1])}, "every operation is scheduled once, got 1 of 2 jobs"),
        ({"schedule": operations((BEST[0], ((1, 0), (2, 4), (0, 11))))}, "machine 2"),
        (
            {"schedule": [[{**ENDS[0][0], "end": 6}, *ENDS[0][1:]], ENDS[1]]},
            "takes its processing time, got job 0, operation 0: an end at 6, not 5",
        ),
        ({"schedule": ENDS, "makespan": 11}, "ends at the makespan, 12, got 11"),
    ],
)
def test_wrong_schedules(tmp_path: Path, data: Any, message: str):
    """The message names the file, the place and the rule."""
    path = written(tmp_path, json.dumps(data), "wrong.json")
    with pytest.raises(FileFormatError, match=message) as caught:
        TWO.read_solution(path)
    assert "wrong.json" in str(caught.value)


def test_ends_and_makespan_may_be_left_out(tmp_path: Path):
    """They follow from the rest."""
    path = written(tmp_path, json.dumps({"schedule": operations(BEST)}), "a.json")
    assert TWO.read_solution(path) == BEST
    with pytest.raises(FileFormatError, match="expected JSON"):
        TWO.read_solution(written(tmp_path, "Route #1: 1 2\n", "a.sol"))
