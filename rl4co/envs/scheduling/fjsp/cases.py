"""Facts about the flexible job shop, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case
from rl4co.envs.scheduling._parts import CAPACITY, ELIGIBLE, ONCE, ORDER, WAITING

WAIT = {"mask_no_ops": False}

# Two jobs of two operations on two machines. Action 1 + 2 j + m: 1 and 2 are job 0 on machine 0 and
# 1, 3 and 4 are job 1.
TWO: dict[str, Any] = {
    "start_op_per_job": [0, 2],
    "end_op_per_job": [1, 3],
    "proc_times": [[2.0, 0.0, 3.0, 2.0], [4.0, 3.0, 2.0, 0.0]],
    "pad_mask": [False] * 4,
}
# The same with a machine that runs nothing, two padded operations and a padded job.
PADDED: dict[str, Any] = {
    "start_op_per_job": [0, 2, 5],
    "end_op_per_job": [1, 3, 5],
    "proc_times": [[2.0, 0, 3, 2, 0, 0], [4.0, 3, 2, 0, 0, 0], [0.0] * 6],
    "pad_mask": [False] * 4 + [True] * 2,
}
# Job 0 takes machine 0 for 10; job 1 visits machine 1 for 1, machine 0 for 1, machine 1 for 12.
# Job 0 should let job 1 pass on machine 0.
PASS: dict[str, Any] = {
    "start_op_per_job": [0, 1],
    "end_op_per_job": [0, 3],
    "proc_times": [[10.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 12.0]],
    "pad_mask": [False] * 4,
}
ONE: dict[str, Any] = {
    "start_op_per_job": [0],
    "end_op_per_job": [0],
    "proc_times": [[7.0], [5.0]],
    "pad_mask": [False],
}

#: Instances that every job shop rejects, with part of the message.
REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "a job without operations": (
        {**PASS, "start_op_per_job": [0, 2], "end_op_per_job": [1, 1]},
        "every job has an operation",
    ),
    "a job behind the last operation": (
        {**PASS, "end_op_per_job": [0, 4]},
        "every job has an operation",
    ),
    "a negative operation": ({**PASS, "start_op_per_job": [-1, 1]}, "every job has an operation"),
    "jobs that overlap": ({**PASS, "start_op_per_job": [0, 0]}, "follows the last one"),
    "a gap between jobs": ({**PASS, "start_op_per_job": [0, 2]}, "follows the last one"),
    "jobs that begin late": ({**PASS, "start_op_per_job": [1, 1]}, "every job has an operation"),
    "padding only": ({**PASS, "pad_mask": [True] * 4}, "follows the last one"),
    "padding in front of a job": (
        {**PADDED, "start_op_per_job": [0, 5, 2], "end_op_per_job": [1, 5, 3]},
        "follows the last one",
    ),
    "a padded job of two operations": (
        {**PADDED, "start_op_per_job": [0, 2, 4]},
        "padding jobs come after all other jobs",
    ),
    "padding inside a job": (
        {**PASS, "pad_mask": [False, False, True, False]},
        "pad_mask is True exactly behind",
    ),
    "padding that is not marked": (
        {**PADDED, "pad_mask": [False] * 5 + [True]},
        "pad_mask is True exactly behind",
    ),
    "a negative processing time": (
        {**PASS, "proc_times": [[10.0, 0, 1, 0], [-1.0, 1, 0, 12]]},
        "no processing time is negative",
    ),
    "which machine is negative": (
        {**PASS, "proc_times": [[10.0, 0, 1, 0], [0.0, 1, 0, -12]]},
        "operation 2 of job 1 takes -12 on machine 1",
    ),
    "an operation without a machine": (
        {**PASS, "proc_times": [[10.0, 0, 0, 0], [0.0, 1, 0, 12]]},
        "every operation has an eligible machine",
    ),
    "which operation has no machine": (
        {**PASS, "proc_times": [[10.0, 0, 0, 0], [0.0, 1, 0, 12]]},
        "in instance 0: operation 1 of job 1 has no eligible machine",
    ),
    "padding with a processing time": (
        {**PADDED, "proc_times": [[2.0, 0, 3, 2, 9, 0], [0.0, 3, 0, 0, 0, 0], [0.0] * 6]},
        "padded operations have no processing times",
    ),
    "a time that is not finite": (
        {**PASS, "proc_times": [[10.0, 0, 1, 0], [0.0, 1, 0, float("inf")]]},
        "proc_times is finite",
    ),
    "whole numbers as times": (
        {**PASS, "proc_times": [[10, 0, 1, 0], [0, 1, 0, 12]]},
        "floating point dtype",
    ),
    "a padding mask of another size": (
        {**PASS, "pad_mask": [False] * 3},
        "key 'pad_mask' of shape",
    ),
    "no processing times": (
        {key: value for key, value in PASS.items() if key != "proc_times"},
        "missing: ['proc_times']",
    ),
}

CASES = (
    # Job 0 on machine 0 and job 1 on machine 1, both 0-2; then the last ones, 2-5 and 2-4.
    Case("the faster machines", TWO, [1, 4, 2, 3], reward=-5.0),
    # 0-3 and 0-4 the other way round; then job 1 on machine 0, 3-5, and job 0 on machine 1, 4-7.
    Case("the slower machines", TWO, [3, 2, 3, 2], reward=-7.0),
    Case("idling at the end is free", TWO, [1, 4, 2, 3, 0, 0], reward=-5.0),
    # Three machines: 1, 2, 3 are job 0, and 4, 5, 6 are job 1.
    Case("padding changes nothing", PADDED, [1, 5, 2, 4], reward=-5.0),
    Case("one operation, slower", ONE, [1], reward=-7.0),
    Case("one operation, faster", ONE, [2], reward=-5.0),
    # Machine 0 is taken 0-10, so job 1 gets it 10-11, and ends 11-23.
    Case("never waiting", PASS, [1, 4, 3, 4], reward=-23.0),
    Case("never waiting, with the choice", PASS, [1, 4, 3, 4], reward=-23.0, env_params=WAIT),
    # Job 1 on machine 1, 0-1; wait; on machine 0, 1-2; then job 0 2-12, and job 1 2-14.
    Case("waiting pays", PASS, [4, 0, 3, 1, 4], reward=-14.0, env_params=WAIT),
    # Waiting longer than it takes: job 0 starts at 14.
    Case("waiting too long", PASS, [4, 0, 3, 4, 0, 1], reward=-24.0, env_params=WAIT),
    Case("idling after waiting", PASS, [4, 0, 3, 1, 4, 0], reward=-14.0, env_params=WAIT),
    # Solutions
    Case("an operation is missing", TWO, [1, 4, 2], violates=ONCE),
    Case("an operation too many", TWO, [1, 4, 2, 3, 3], violates=ONCE),
    Case("nothing but waiting", TWO, [0, 0, 0, 0], violates=ONCE),
    Case("a padded job", PADDED, [1, 5, 2, 4, 7], violates=ONCE),
    Case("a job beyond the last", TWO, [1, 4, 2, 5], violates="every action exists"),
    Case("the second operation on machine 0", TWO, [1, 4, 1, 3], violates=ELIGIBLE),
    Case("a machine that runs nothing", PADDED, [3, 5, 2, 4], violates=ELIGIBLE),
    # Job 0 is on machine 0 until 2, and would start on machine 1 at 0, too.
    Case("a job twice at the same time", TWO, [1, 2, 3, 3], violates=ORDER),
    # Machine 0 has job 0 until 2, and would start job 1 at 0, too.
    Case("a machine twice at the same time", TWO, [1, 3, 2, 3], violates=CAPACITY),
    Case("a busy machine, with waiting", TWO, [1, 3, 2, 3], violates=CAPACITY, env_params=WAIT),
    Case("waiting for nothing", PASS, [0, 4, 0, 3, 1, 4], violates=WAITING, env_params=WAIT),
    # Instances
    *(Case(name, instance, faults=rule) for name, (instance, rule) in REJECTED.items()),
)
