"""Facts about the SMTWTP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN = float("nan")
ONCE = "every job runs exactly once"

# Job 1 is short and late by any order in which it does not come first; job 3 weighs most.
THREE: dict[str, Any] = {
    "job_due_time": [0.0, 1.0, 4.0, 2.0],
    "job_weight": [0.0, 1.0, 2.0, 10.0],
    "job_process_time": [0.0, 1.0, 3.0, 2.0],
}
ONE: dict[str, Any] = {
    "job_due_time": [0.0, 2.5],
    "job_weight": [0.0, 4.0],
    "job_process_time": [0.0, 3.0],
}


def change(key: str, job: int, value: float) -> dict[str, Any]:
    """The three jobs with another number."""
    return {**THREE, key: [value if j == job else old for j, old in enumerate(THREE[key])]}


CASES = (
    # Ends 1, 4, 6: the first two in time, job 3 is 4 late at weight 10.
    Case("in order", THREE, [1, 2, 3], reward=-40.0),
    # Ends 2, 3, 6: job 1 is 2 late at weight 1, job 2 is 2 late at weight 2.
    Case("heaviest first", THREE, [3, 1, 2], reward=-(2.0 + 4.0)),
    # Ends 1, 3, 6: job 3 is 1 late at weight 10, job 2 is 2 late at weight 2.
    Case("earliest due first", THREE, [1, 3, 2], reward=-(10.0 + 4.0)),
    Case("one job", ONE, [1], reward=-4.0 * 0.5),
    Case(
        "one job in time",
        {**ONE, "job_due_time": [0.0, 3.0]},
        [1],
        reward=0.0,
    ),
    # A due time that has passed already counts from there: ends at 3, due at -1.
    Case("late from the start", {**ONE, "job_due_time": [0.0, -1.0]}, [1], reward=-16.0),
    # Solutions
    Case("job twice", THREE, [1, 2, 2], violates=ONCE),
    Case("job missing", THREE, [1, 2], violates=ONCE),
    Case("dummy in place of a job", THREE, [0, 1, 2], violates=ONCE),
    Case("one job too many", THREE, [1, 2, 3, 1], violates=ONCE),
    Case("job beyond the last", THREE, [1, 2, 4], violates="every action exists"),
    # Instances
    Case("no dummy", change("job_due_time", 0, 1.0), faults="put a dummy job in front"),
    Case("dummy that takes time", change("job_process_time", 0, 1.0), faults="put a dummy"),
    Case(
        "nothing to do",
        {"job_due_time": [0.0], "job_weight": [0.0], "job_process_time": [0.0]},
        faults="there is a job besides the dummy",
    ),
    Case("job of no time", change("job_process_time", 2, 0.0), faults="job_process_time of job 2"),
    Case("negative time", change("job_process_time", 3, -1.0), faults="of job 3 is -1"),
    Case("time rule", change("job_process_time", 1, -1.0), faults="job_process_time is positive"),
    Case("negative weight", change("job_weight", 1, -0.5), faults="job_weight is not negative"),
    Case("not a number", change("job_weight", 1, NAN), faults="job_weight is finite"),
    Case(
        "another number of jobs",
        {**THREE, "job_weight": [0.0, 1.0]},
        faults="key 'job_weight' of shape [*B, j+1]",
    ),
    Case("no weights", {"job_due_time": [0.0, 1.0], "job_process_time": [0.0, 1.0]},
         faults="missing: ['job_weight']"),
    Case("integers", {**ONE, "job_weight": [0, 4]}, faults="floating point dtype"),
)  # fmt: skip
