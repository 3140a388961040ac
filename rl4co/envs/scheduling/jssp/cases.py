"""Facts about the job shop, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case
from rl4co.envs.scheduling._parts import CAPACITY, ONCE, ORDER, WAITING
from rl4co.envs.scheduling.fjsp.cases import PASS, REJECTED, WAIT

# Three jobs, two machines. Job 0: machine 0 for 3, machine 1 for 2; job 1: machine 1 for 2, machine
# 0 for 4; job 2: machine 1 for 1. Action j + 1 is job j.
THREE: dict[str, Any] = {
    "start_op_per_job": [0, 2, 4],
    "end_op_per_job": [1, 3, 4],
    "proc_times": [[3.0, 0, 0, 4, 0], [0.0, 2, 2, 0, 1]],
    "pad_mask": [False] * 5,
}
# The same, with a job and an operation of padding.
PADDED: dict[str, Any] = {
    "start_op_per_job": [0, 2, 4, 5],
    "end_op_per_job": [1, 3, 4, 5],
    "proc_times": [[3.0, 0, 0, 4, 0, 0], [0.0, 2, 2, 0, 1, 0]],
    "pad_mask": [False] * 5 + [True],
}
ONE: dict[str, Any] = {
    "start_op_per_job": [0],
    "end_op_per_job": [0],
    "proc_times": [[0.0], [5.0]],
    "pad_mask": [False],
}

CASES = (
    # Job 0 0-3 and job 1 0-2; job 2 on machine 1 2-3; at 3 job 1 on machine 0, 3-7, and job 0 3-5.
    Case("three jobs", THREE, [1, 2, 3, 2, 1], reward=-7.0),
    # Job 2 0-1, job 0 0-3; job 1 1-3; then job 0 on machine 1 3-5, and job 1 on machine 0 3-7.
    Case("the shortest one first", THREE, [3, 1, 2, 1, 2], reward=-7.0),
    # As in the first case, but job 0 takes machine 1 at 3 before job 2, which runs 5-6.
    Case("a wait before job 2", THREE, [1, 2, 0, 2, 1, 3], reward=-7.0, env_params=WAIT),
    # Job 1 0-2, wait: at 2 job 1 on machine 0, 2-6, and job 2 on machine 1, 2-3; job 0 6-9, 9-11.
    Case("a wait that costs", THREE, [2, 0, 2, 3, 1, 1], reward=-11.0, env_params=WAIT),
    Case("idling at the end is free", THREE, [1, 2, 3, 2, 1, 0], reward=-7.0),
    Case("padding changes nothing", PADDED, [1, 2, 3, 2, 1], reward=-7.0),
    Case("one operation", ONE, [1], reward=-5.0),
    # Machine 0 is taken 0-10, so job 1 gets it 10-11, and ends 11-23.
    Case("never waiting", PASS, [1, 2, 2, 2], reward=-23.0),
    # Job 1 on machine 1, 0-1; wait; on machine 0, 1-2; then job 0 2-12, and job 1 2-14.
    Case("waiting pays", PASS, [2, 0, 2, 1, 2], reward=-14.0, env_params=WAIT),
    # Solutions
    Case("an operation is missing", THREE, [1, 2, 3, 2], violates=ONCE),
    Case("an operation too many", THREE, [1, 2, 3, 2, 1, 1], violates=ONCE),
    Case("a padded job", PADDED, [1, 2, 3, 2, 1, 4], violates=ONCE),
    Case("a job beyond the last", THREE, [1, 2, 3, 2, 4], violates="every action exists"),
    # Job 0 runs until 3; at 0 machine 1 is free, so job 0 would run twice.
    Case("a job twice at the same time", THREE, [1, 1, 2, 3, 2], violates=ORDER),
    # Machine 1 has job 1 until 2, and job 0 could still start at 0; job 2 would share machine 1.
    Case("a machine twice at the same time", THREE, [2, 3, 1, 2, 1], violates=CAPACITY),
    Case("waiting for nothing", PASS, [0, 2, 0, 2, 1, 2], violates=WAITING, env_params=WAIT),
    # Instances
    *(Case(name, instance, faults=rule) for name, (instance, rule) in REJECTED.items()),
    Case(
        "two machines to choose from",
        {**PASS, "proc_times": [[10.0, 0, 1, 0], [10.0, 1, 0, 12]]},
        faults="every operation has one eligible machine only",
    ),
)
