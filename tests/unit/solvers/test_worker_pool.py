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
from rl4co.solvers import _job_report
from rl4co.solvers._cancellation import CancelToken, is_cancelled
from rl4co.solvers._job_report import (
    finish_report,
    job_start,
    record_cost,
    report_incumbent,
    start_report,
)
from rl4co.solvers._threads import map_in_threads
from rl4co.solvers._worker_pool import WorkerPool, map_instances
from rl4co.solvers._worker_process import WorkerProcess


def test_accounts_keep_improvements():
    """Costs that are no better leave no trace; a new report begins empty."""
    start_report()
    for cost in (9.0, 11.0, 7.0, 7.0, 5.0):
        record_cost(cost)
    report = finish_report()
    times, costs = zip(*report.incumbents, strict=True)
    assert costs == (9.0, 7.0, 5.0)
    assert list(times) == sorted(times) and times[0] >= 0 and times[-1] <= report.seconds
    start_report()
    assert finish_report().incumbents == []


def test_workers_stay_and_tell_their_times():
    """The same process serves both calls, and each call gets reports of its own jobs."""
    with WorkerPool() as pool:
        with pool.running() as first:
            (pid,) = map_instances("os:getpid", [()])
        with pool.running() as second:
            assert map_instances("os:getpid", [(), ()]) == [pid, pid]
            map_instances("time:sleep", [(0.3,)])
        assert [len(first), len(second)] == [1, 3]
        assert 0.3 <= second[2].seconds < 60 and second[1].seconds < second[2].seconds
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_without_a_worker_pool_workers_end_with_the_call():
    """Nothing is kept, before or after."""
    with WorkerPool() as pool, pool.running():
        pass
    (pid,) = map_instances("os:getpid", [()])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_dead_worker_is_replaced():
    """A crash is an error of its own call only."""
    with WorkerPool() as pool, pool.running() as reports:
        with pytest.raises(RL4COError, match="code 3"):
            map_instances("os:_exit", [(3,)])
        assert map_instances("os:getpid", [()])[0] != os.getpid()
        assert len(reports) == 1


def test_an_error_ends_workers_that_are_busy_elsewhere():
    """The pool does not wait for a job whose result is not needed any more."""
    failures: list[Exception] = []
    pool, busy = WorkerPool(), threading.Event()

    def work() -> None:
        with pool.running():
            map_instances("time:sleep", [(0.0,)])
            busy.set()
            try:
                map_instances("time:sleep", [(600.0,)])
            except Exception as error:  # of the process, or of its closed pipe
                failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert busy.wait(60)
    while not pool._busy:
        time.sleep(0.001)
    pool.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    thread.join(60)
    assert not thread.is_alive() and len(failures) == 1


def test_a_pool_that_is_shut_down_starts_nothing():
    with WorkerPool() as pool, pool.running():
        pool.shutdown(kill=True)
        with pytest.raises(RL4COError, match="shut down"):
            map_instances("time:sleep", [(600.0,)])


def test_a_worker_is_usable_after_a_cancelled_job(tmp_path: Path):
    """The next job of the same process is not cancelled."""
    sign = tmp_path / "started"
    with WorkerPool() as pool, pool.running():
        job = f"{__name__}:sleep_until_cancelled"
        with stop_at(sign).active():
            assert map_instances(job, [(str(sign),)]) == ["cancelled"]
        with pytest.warns(UserWarning, match="did not end in time"):
            assert map_instances(job, [(str(sign),)], max_runtime=0.3, grace=0.2) == ["running"]


@pytest.mark.solvers
@pytest.mark.parametrize("solver", ["pyvrp", "ortools"])
@pytest.mark.parametrize("problem", ["cvrp", "op"])
def test_incumbents_are_in_the_units_of_the_environment(solver: str, problem: str):
    """They improve down to the cost that is returned, within the time of the job."""
    env = get_env(problem, generator_params={"num_loc": 20})
    instances = env.dataset(1, phase="test").data
    with WorkerPool() as pool, pool.running() as reports:
        _, costs = env.solve(instances, max_runtime=0.3, solver=solver)
    (report,) = reports
    times, found = zip(*report.incumbents, strict=True)
    assert found[-1] == pytest.approx(float(costs[0]), rel=1e-5)
    assert list(found) == sorted(found, reverse=True)
    assert times[0] > 0 and times[-1] <= report.seconds


# ---------------------------------------------------------------- limits


def report_and_sleep(results: list[int], seconds: float, sign: str | None = None) -> str:
    """A job that finds better and better results, and then nothing more."""
    for result in results:
        report_incumbent(result)
    if sign is not None:
        Path(sign).touch()
    time.sleep(seconds)
    return "the end"


def sleep_until_cancelled(sign: str) -> str:
    """A job that can be asked to stop."""
    report_incumbent("running")
    Path(sign).touch()
    while not _job_report.is_cancelled():
        time.sleep(0.01)
    return "cancelled"


def stop_at(sign: Path) -> CancelToken:
    """A token that stops as soon as there is a sign."""
    token = CancelToken()

    def wait() -> None:
        while not sign.exists():
            time.sleep(0.01)
        token.stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return token


def test_a_job_out_of_time_has_its_best_result():
    """It is killed; the next job gets another process."""
    jobs = [([1, 2], 600.0), ([], 600.0), ([3], 0.0)]
    with CancelToken().active() as token, WorkerPool() as pool, pool.running() as reports:
        found = map_instances(
            f"{__name__}:report_and_sleep", jobs, max_runtime=[0.5, 0.1, 60.0], grace=0.5
        )
    assert found == [2, None, "the end"]
    assert token.cuts == ["Solving did not end in time; this is its best solution so far"]
    # Half of the limit at least, and the grace.
    assert len(reports) == 3 and 0.75 <= reports[0].seconds < 60


def spent_time(max_runtime: float) -> float:
    return time.perf_counter() - job_start(max_runtime)


def test_the_start_of_a_process_counts():
    """It takes at most half of the limit; jobs of a running process wait for nothing."""
    target = f"{__name__}:spent_time"
    with WorkerPool() as pool, pool.running():
        started, later = (map_instances(target, [(600.0,)])[0] for _ in range(2))
        assert 0.02 < started < 300 and later < started
    assert map_instances(target, [(0.02,)])[0] == pytest.approx(0.01, abs=0.005)


def test_a_stop_reaches_all_jobs(tmp_path: Path):
    """Those that listen end by themselves, others are killed, and others are not begun."""
    sign = tmp_path / "begun"
    with stop_at(sign).active():
        assert map_instances(f"{__name__}:sleep_until_cancelled", [(str(sign),)]) == ["cancelled"]
        assert map_instances(f"{__name__}:sleep_until_cancelled", [(str(sign),)]) == [None]
    sign = tmp_path / "reported"
    with stop_at(sign).active() as token:
        jobs = [([7], 600.0, str(sign)), ([8], 0.0, None)]
        assert map_instances(f"{__name__}:report_and_sleep", jobs, grace=0.1) == [7, None]
    assert token.cuts == []


def test_a_busy_worker_ends_with_its_pipe():
    """Where no signal tells that the parent has ended, the end of stdin does."""
    process = WorkerProcess("time:sleep")._process
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        pickle.dump(("job", time.time(), pickle.dumps((600.0,))), process.stdin)
        process.stdin.flush()
        assert pickle.load(process.stdout) == ("started", None)
        process.stdin.close()
        assert process.wait(60) == 0


def test_without_a_watch_a_cut_is_a_warning():
    """Nothing is silent."""
    with pytest.warns(UserWarning, match="did not end in time"):
        map_instances(f"{__name__}:report_and_sleep", [([1], 600.0)], max_runtime=0.5, grace=0.5)


def test_threads_of_a_call_that_fails_are_stopped():
    """So that Ctrl-C does not wait for an iterated local search."""
    begun, ended = threading.Event(), threading.Event()

    def work(job: int, note: object) -> None:
        if job == 0:
            begun.wait()
            raise KeyboardInterrupt
        begun.set()
        while not is_cancelled():
            time.sleep(0.01)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        map_in_threads(work, [0, 1], 2, description="")
    assert ended.is_set()
