"""Facts about the FFSP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

STAGES = "every job passes every stage exactly once"
ORDER = "a job starts in a stage when it has left the one before"

# Two stages of one machine each: a flow shop of two jobs; waiting is action 2.
LINE: dict[str, Any] = {"run_time": [[3, 2], [1, 4]]}
LINE_ENV: dict[str, Any] = {"num_stage": 2}
# One stage of two machines, the second one faster; waiting is action 3.
PARALLEL: dict[str, Any] = {"run_time": [[4, 1], [5, 2], [6, 3]]}
PARALLEL_ENV: dict[str, Any] = {"num_stage": 1}
# Two stages of two machines (columns 0, 1 and 2, 3); waiting is action 2.
SQUARE: dict[str, Any] = {"run_time": [[2, 5, 3, 9], [4, 1, 6, 2]]}
SQUARE_ENV: dict[str, Any] = {"num_stage": 2}

CASES = (
    # Stage 0: job 0 at 0-3, job 1 at 3-4. Stage 1: job 0 at 3-5, job 1 at 5-9.
    Case("longer job first", LINE, [0, 1, 0, 1], reward=-9.0, env_params=LINE_ENV),
    # Stage 0: job 1 at 0-1, job 0 at 1-4. Stage 1: job 1 at 1-5, job 0 at 5-7.
    Case("shorter job first", LINE, [1, 0, 1, 0], reward=-7.0, env_params=LINE_ENV),
    # The machine of stage 1 waits at time 1, while job 0 is still in stage 0: job 0 at 4-6, job 1
    # at 6-10.
    Case("waiting", LINE, [1, 0, 2, 0, 1], reward=-10.0, env_params=LINE_ENV),
    Case("steps after the end", LINE, [1, 0, 1, 0, 2, 2], reward=-7.0, env_params=LINE_ENV),
    # Machine 0: job 0 at 0-4. Machine 1: job 1 at 0-2, job 2 at 2-5.
    Case("two machines", PARALLEL, [0, 1, 2], reward=-5.0, env_params=PARALLEL_ENV),
    # Machine 0: job 2 at 0-6. Machine 1: job 0 at 0-1, job 1 at 1-3.
    Case("longest on the slow one", PARALLEL, [2, 0, 1], reward=-6.0, env_params=PARALLEL_ENV),
    # Machine 0: job 0 at 0-4, although machine 1 would be done with all of them at 6.
    Case("single job", {"run_time": [[4, 1]]}, [0], reward=-4.0, env_params=PARALLEL_ENV),
    # It may wait for machine 1 if that is allowed: job 0 at 0-1.
    Case("free waiting", {"run_time": [[4, 1]]}, [1, 0], reward=-1.0,
         env_params={"num_stage": 1, "free_waiting": True}),
    # Stage 0: job 0 on machine 0 at 0-2, job 1 on machine 1 at 0-1. At time 1 machine 2 takes job 1
    # (1-7); at time 2 machine 3 takes job 0 (2-11).
    Case("two stages", SQUARE, [0, 1, 1, 0], reward=-11.0, env_params=SQUARE_ENV),
    # At time 1 machine 2 waits, machine 3 takes job 1 (1-3); at time 2 machine 2 takes job 0 (2-5).
    Case("two stages, waiting", SQUARE, [0, 1, 2, 1, 0], reward=-5.0, env_params=SQUARE_ENV),
    Case("one machine, one job", {"run_time": [[7]]}, [0], reward=-7.0, env_params=PARALLEL_ENV),
    # Solutions
    Case("no job at all", LINE, [], violates=STAGES, env_params=LINE_ENV),
    Case("a job missing in the last stage", LINE, [0, 1, 0], violates=STAGES, env_params=LINE_ENV),
    Case("a job too often", LINE, [0, 1, 0, 1, 0], violates=STAGES, env_params=LINE_ENV),
    Case("only waiting", LINE, [2, 2, 2, 2, 2], violates=STAGES, env_params=LINE_ENV),
    # Time 3: machine 0 takes job 1 and is asked first; then machine 1 can take job 0, not job 1.
    Case("in the stage before", LINE, [0, 1, 1, 0], violates=ORDER, env_params=LINE_ENV),
    # At time 3 machine 0 is asked for job 0 again, which is through with this stage.
    Case("not at this stage", LINE, [0, 0, 1, 1], violates=ORDER, env_params=LINE_ENV),
    Case("job beyond the last", LINE, [0, 1, 0, 3], violates="every action exists",
         env_params=LINE_ENV),
    # Instances
    Case("no time", {"run_time": [[3, 2], [0, 4]]}, env_params=LINE_ENV,
         faults="the operation of job 1 in stage 0 takes 0 on machine 0 in instance 0"),
    Case("negative time", {"run_time": [[3, -2], [1, 4]]}, env_params=LINE_ENV,
         faults="run_time is positive"),
    Case("endless time", {"run_time": [[3, 2**40], [1, 4]]}, env_params=LINE_ENV,
         faults="run_time is below 1099511627776"),
    Case("uneven stages", {"run_time": [[3, 2, 1], [1, 4, 1]]}, env_params=LINE_ENV,
         faults="run_time has the same number of machines in each of"),
    Case("times that are no integers", {"run_time": [[3.0, 2.0]]}, env_params=LINE_ENV,
         faults="integer dtype"),
    Case("one row", {"run_time": [3, 2]}, env_params=LINE_ENV, faults="of shape [*B, j, p]"),
    Case("no times", {}, env_params=LINE_ENV, faults="missing: ['run_time']"),
)  # fmt: skip
