"""Work that is left alone, and how the time of a command is shared."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from rl4co.cli._solve_method import TimeSplit
from rl4co.core.errors import ConfigError, RL4COError, StoppedError
from rl4co.envs import get_env
from rl4co.solvers._cancellation import CancelToken, is_cancelled, report_incumbent
from rl4co.solvers._lkh_worker import read_tour
from rl4co.solvers._quick import curve_order, quick_solutions
from rl4co.tasks import limits
from rl4co.tasks.limits import has_abandoned_work, wait


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ends soon."""
    monkeypatch.setattr(limits, "GRACE", 0.5)
    monkeypatch.setattr(limits, "CANCEL_GRACE", 0.1)


def same(answer: str) -> str:
    return answer


def test_results_and_errors_pass():
    """Work that ends in time returns as if it ran without a limit."""
    assert wait(lambda: "done", CancelToken(), 60.0, str.upper) == "DONE"
    with pytest.raises(ZeroDivisionError):
        wait(lambda: str(1 / 0), CancelToken(), None, same)


@pytest.mark.usefixtures("hurried")
def test_deaf_work_is_left_alone():
    """What it has offered counts, if it will do; a sentence says so."""
    end = threading.Event()

    def work() -> str:
        report_incumbent(lambda: "offered")
        end.wait()
        return "done"

    token = CancelToken()
    assert wait(work, token, 0.1, same) == "offered"
    assert token.cuts == ["there was no end within 0.1 s; this is the best until then"]
    assert has_abandoned_work()

    def reject(answer: str) -> str:
        raise RL4COError(f"expected another answer, got {answer}")

    with pytest.raises(StoppedError, match=r"within 0.1 s, got none"):
        wait(work, CancelToken(), 0.1, reject)
    interrupted = CancelToken()
    interrupted.stop.set()
    with pytest.raises(StoppedError, match="interrupt"):
        wait(lambda: str(end.wait()), interrupted, None, same)
    assert interrupted.cuts == []
    end.set()
    while has_abandoned_work():
        time.sleep(0.01)


@pytest.mark.usefixtures("hurried")
def test_work_that_listens_gives_its_own_result():
    """It is asked to stop when its time is over, or when somebody wants it."""

    def work() -> str:
        while not is_cancelled():
            time.sleep(0.001)
        return "best so far"

    token = CancelToken()
    assert wait(work, token, 0.05, same) == "best so far"
    assert len(token.cuts) == 1 and not token.stop.is_set()
    threading.Timer(0.05, token.stop.set).start()
    assert wait(work, token, None, same) == "best so far"


def test_shares_of_the_time():
    """Later stages have what they ask for, at most half; without a limit all have it."""
    assert TimeSplit.split(None, True, 3.0, 4.0) == (None, 3.0, 4.0)
    assert TimeSplit.split(10.0, False, None, None) == (10.0, None, None)
    assert TimeSplit.split(10.0, False, None, 2.0) == (8.0, None, 2.0)
    assert TimeSplit.split(10.0, False, None, 10.0) == (5.0, None, 5.0)
    assert TimeSplit.split(10.0, True, None, None) == (5.0, 5.0, None)
    assert TimeSplit.split(12.0, True, 6.0, 6.0) == (6.0, 3.0, 3.0)
    with pytest.raises(ConfigError, match="positive number of seconds, got -1"):
        TimeSplit.split(-1.0, False, None, None)


# ---------------------------------------------------------------- solutions at once


def test_the_curve_meets_neighbours():
    """On a grid of 8 x 8 every step goes to a neighbour: Hilbert's curve is continuous."""
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), -1).reshape(-1, 2)
    steps = np.abs(np.diff(grid[curve_order(grid)], axis=0)).sum(1)
    assert steps.tolist() == [1.0] * 63


@pytest.mark.parametrize("problem", ["tsp", "cvrp", "atsp", "cvrptw", "jssp", "flp"])
def test_quick_solutions_are_valid(problem: str):
    """Routes, matrices, windows, schedules, choices; along the curve where there is one."""
    env = get_env(problem)
    instances = env.dataset(2, phase="test").data
    actions, method = quick_solutions(env, instances)
    env.check_solution_validity(env.reset(instances), actions)
    assert (method == "space-filling curve") == (problem in ("tsp", "cvrp"))


def test_tours_that_lkh_did_not_finish_writing(tmp_path):
    """A tour is whole or it is none."""
    file = tmp_path / "best.tour"
    assert read_tour(str(file), 3) is None
    for text, expected in (
        ("NAME : x\nTOUR_SECTION\n2\n3\n1\n-1\nEOF\n", [0, 1, 2]),
        ("NAME : x\nTOUR_SECTION\n2\n3\n", None),
        ("NAME : x\nTOUR", None),
    ):
        file.write_text(text)
        assert read_tour(str(file), 3) == expected


def test_a_tour_that_is_not_by_lkh_says_so():
    """Stopped before LKH has any."""
    pytest.importorskip("elkai")
    env, token = get_env("tsp"), CancelToken()
    token.stop.set()
    with token.active():
        env.solve(env.generate(1), solver="lkh", max_runtime=1.0)
    assert token.cuts == ["LKH found no tour in time; this is a very simple one"]
