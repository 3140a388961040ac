"""Workers that stay between calls, what they tell about their jobs, and how these are cut short."""

from __future__ import annotations

import os
import pickle
import threading
import time

from pathlib import Path

import pytest

from rl4co.core.errors import RL4COError
from rl4co.envs import get_env
from rl4co.solvers._account import (
    close_account,
    is_stop_wanted,
    note_incumbent,
    open_account,
    publish,
)
from rl4co.solvers._parallel import Crew, _Team, map_instances
from rl4co.solvers._threads import map_in_threads
from rl4co.solvers._watch import Watch, is_stopped
from rl4co.solvers._workers import Worker


def test_accounts_keep_improvements():
    """Costs that are no better leave no trace; a new account begins empty."""
    open_account()
    for cost in (9.0, 11.0, 7.0, 7.0, 5.0):
        note_incumbent(cost)
    account = close_account()
    times, costs = zip(*account.incumbents, strict=True)
    assert costs == (9.0, 7.0, 5.0)
    assert list(times) == sorted(times) and times[0] >= 0 and times[-1] <= account.seconds
    open_account()
    assert close_account().incumbents == []


def test_workers_stay_and_tell_their_times():
    """The same process serves both calls, and each call gets accounts of its own jobs."""
    with Crew() as crew:
        with crew.at_work() as first:
            (pid,) = map_instances("os:getpid", [()])
        with crew.at_work() as second:
            assert map_instances("os:getpid", [(), ()]) == [pid, pid]
            map_instances("time:sleep", [(0.3,)])
        assert [len(first), len(second)] == [1, 3]
        assert 0.3 <= second[2].seconds < 60 and second[1].seconds < second[2].seconds
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_without_a_crew_workers_end_with_the_call():
    """Nothing is kept, before or after."""
    with Crew() as crew, crew.at_work():
        pass
    (pid,) = map_instances("os:getpid", [()])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_dead_worker_is_replaced():
    """A crash is an error of its own call only."""
    with Crew() as crew, crew.at_work() as accounts:
        with pytest.raises(RL4COError, match="code 3"):
            map_instances("os:_exit", [(3,)])
        assert map_instances("os:getpid", [()])[0] != os.getpid()
        assert len(accounts) == 1


def test_an_error_ends_workers_that_are_busy_elsewhere():
    """Nobody waits for a job whose result is not wanted any more."""
    failures: list[Exception] = []
    crew, busy = Crew(), threading.Event()

    def work() -> None:
        with crew.at_work():
            map_instances("time:sleep", [(0.0,)])
            busy.set()
            try:
                map_instances("time:sleep", [(600.0,)])
            except Exception as error:  # of the process, or of its closed pipe
                failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert busy.wait(60)
    while not crew._busy:
        time.sleep(0.001)
    crew.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    thread.join(60)
    assert not thread.is_alive() and len(failures) == 1


def test_a_crew_that_was_dismissed_begins_nothing():
    """Neither a new job nor one whose worker was hired, but had not begun."""
    with Crew() as crew, crew.at_work():
        team = _Team("time:sleep", 1, crew)
        team.__enter__()
        crew.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        with pytest.raises(RL4COError, match="dismissed"):
            team.run((600.0,), None, 1.0)
        with pytest.raises(RL4COError, match="dismissed"):
            map_instances("time:sleep", [(600.0,)])


@pytest.mark.solvers
@pytest.mark.parametrize("solver", ["pyvrp", "ortools"])
@pytest.mark.parametrize("problem", ["cvrp", "op"])
def test_incumbents_are_in_the_units_of_the_environment(solver: str, problem: str):
    """They improve down to the cost that is returned, within the time of the job."""
    env = get_env(problem, generator_params={"num_loc": 20})
    instances = env.dataset(1, phase="test").data
    with Crew() as crew, crew.at_work() as accounts:
        _, costs = env.solve(instances, max_runtime=0.3, solver=solver)
    (account,) = accounts
    times, found = zip(*account.incumbents, strict=True)
    assert found[-1] == pytest.approx(float(costs[0]), rel=1e-5)
    assert list(found) == sorted(found, reverse=True)
    assert times[0] > 0 and times[-1] <= account.seconds


# ---------------------------------------------------------------- limits


def publish_and_sleep(results: list[int], seconds: float, sign: str | None = None) -> str:
    """A job that finds better and better results, and then nothing more."""
    for result in results:
        publish(result)
    if sign is not None:
        Path(sign).touch()
    time.sleep(seconds)
    return "the end"


def sleep_until_stopped(sign: str) -> str:
    """A job that can be asked to stop."""
    Path(sign).touch()
    while not is_stop_wanted():
        time.sleep(0.01)
    return "stopped"


def stop_at(sign: Path) -> Watch:
    """A watch that stops as soon as there is a sign."""
    watch = Watch()

    def wait() -> None:
        while not sign.exists():
            time.sleep(0.01)
        watch.stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return watch


def test_a_job_out_of_time_has_its_best_result():
    """It is killed; the next job gets another process."""
    jobs = [([1, 2], 600.0), ([], 600.0), ([3], 0.0)]
    with Watch().over() as watch, Crew() as crew, crew.at_work() as accounts:
        found = map_instances(
            f"{__name__}:publish_and_sleep", jobs, max_runtime=[0.5, 0.1, 60.0], grace=0.5
        )
    assert found == [2, None, "the end"]
    assert watch.cuts == ["Solving did not end in time; this is its best solution so far"]
    assert len(accounts) == 3 and 1.0 <= accounts[0].seconds < 60


def test_a_stop_reaches_all_jobs(tmp_path: Path):
    """Those that listen end by themselves, others are killed, and others are not begun."""
    sign = tmp_path / "begun"
    with stop_at(sign).over():
        assert map_instances(f"{__name__}:sleep_until_stopped", [(str(sign),)]) == ["stopped"]
        assert map_instances(f"{__name__}:sleep_until_stopped", [(str(sign),)]) == [None]
    sign = tmp_path / "published"
    with stop_at(sign).over() as watch:
        jobs = [([7], 600.0, str(sign)), ([8], 0.0, None)]
        assert map_instances(f"{__name__}:publish_and_sleep", jobs, grace=0.1) == [7, None]
    assert watch.cuts == []


def test_a_busy_worker_ends_with_its_pipe():
    """Where no signal tells that the parent has ended, the end of stdin does."""
    process = Worker("time:sleep")._process
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        pickle.dump(("job", pickle.dumps((600.0,))), process.stdin)
        process.stdin.flush()
        assert pickle.load(process.stdout) == ("begun", None)
        process.stdin.close()
        assert process.wait(60) == 0


def test_without_a_watch_a_cut_is_a_warning():
    """Nothing is silent."""
    with pytest.warns(UserWarning, match="did not end in time"):
        map_instances(f"{__name__}:publish_and_sleep", [([1], 600.0)], max_runtime=0.5, grace=0.5)


def test_threads_of_a_call_that_fails_are_stopped():
    """So that Ctrl-C does not wait for an iterated local search."""
    begun, ended = threading.Event(), threading.Event()

    def work(job: int, note: object) -> None:
        if job == 0:
            begun.wait()
            raise KeyboardInterrupt
        begun.set()
        while not is_stopped():
            time.sleep(0.01)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        map_in_threads(work, [0, 1], 2, description="")
    assert ended.is_set()
