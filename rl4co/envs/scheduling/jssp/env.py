"""Job Shop Scheduling Problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from torch import Tensor

from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.generator import Generator
from rl4co.envs.scheduling import _parts as parts
from rl4co.envs.scheduling.fjsp.env import FJSPEnv
from rl4co.envs.scheduling.jssp.generator import JSSPFileGenerator, JSSPGenerator


@ENVS.register("jssp")
class JSSPEnv(FJSPEnv):
    """Job Shop Scheduling Problem: shortest schedule of jobs, each operation on its own machine.

    The special case of the flexible job shop (:class:`FJSPEnv`, where instances, the clock, waiting
    and arguments are described) in which exactly one machine is eligible for each operation. So an
    action only names a job: action $j + 1$ starts the next operation of job j now, action 0 waits
    until the next operation ends.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `proc_times` | float32 | `[*B, M, O]` | processing times, 0 = another machine |
        | `start_op_per_job` | int64 | `[*B, J]` | first operation of each job |
        | `end_op_per_job` | int64 | `[*B, J]` | last operation of each job |
        | `pad_mask` | bool | `[*B, O]` | operations that are padding |
        | `ops_job_map` | int64 | `[*B, O]` | job of each operation (padding: some job) |
        | `job_ops_adj` | bool | `[*B, J, O]` | operations of each job |
        | `ops_sequence_order` | int64 | `[*B, O]` | place in its job, from 0 (padding: 0) |
        | `op_times` | float32 | `[*B, O]` | processing time of each operation (padding: 0) |
        | `ma_assignment` | int64 | `[*B, O]` | machine of each operation (padding: 0) |
        | `cumulative_work` | float32 | `[*B, O]` | running sum of `op_times` |
        | `time` | float32 | `[*B]` | the clock; the makespan once done |
        | `next_op` | int64 | `[*B, J]` | first operation not started; once all are, the last |
        | `next_ma` | int64 | `[*B, J]` | machine of `next_op` |
        | `job_busy_until` | float32 | `[*B, J]` | end of the latest operation started, or 0 |
        | `busy_until` | float32 | `[*B, M]` | end of the latest operation started, or 0 |
        | `earliest_start` | float32 | `[*B, J]` | when `next_op` could start, or inf |
        | `start_times` | float32 | `[*B, O]` | start of scheduled operations, else 0 |
        | `finish_times` | float32 | `[*B, O]` | end of scheduled ones, else inf (padding: 0) |
        | `op_scheduled` | bool | `[*B, O]` | operations started; True for padding |
        | `lbs` | float32 | `[*B, O]` | lower bounds on the ends of operations (padding: 0) |
        | `is_ready` | bool | `[*B, O]` | not started, and the predecessor has ended |
        | `job_in_process` | bool | `[*B, J]` | an operation of the job is running |
        | `job_done` | bool | `[*B, J]` | all operations have ended; True for padding |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, J+1]` | wait, then jobs whose next operation can start |

    Rows up to `cumulative_work` never change. `earliest_start` is infinite where no operation is
    left; it may lie in the past.

    The lower bounds `lbs` are the true ends of scheduled operations; the next operation of a job
    ends no earlier than $\\max(t, C_j, C_m) + p$, where t is the clock and $C$ is when the job and
    the machine are free, and each later one adds its processing time.

    Constraints:
        Every operation is scheduled exactly once, after its predecessor in the job has ended; a
        machine runs one operation at a time; the agent waits only where the mask allows it and an
        operation is running.

    Finish condition:
        All operations are started: what is left of them runs to its end by itself.

    Reward:
        Minus the makespan, $-\\max_o C_o$. With `stepwise_reward` each step is rewarded with the
        decrease of the largest lower bound, $H(s_t) - H(s_{t+1})$ (Zhang et al., 2020), which adds
        up to $H(s_0)$ minus the makespan. `get_reward` is minus the makespan always.
    """

    name = "jssp"
    generator_cls: ClassVar[type[Generator]] = JSSPGenerator
    file_generator_cls: ClassVar[type[Generator]] = JSSPFileGenerator
    chooses_machines: ClassVar[bool] = False

    def _machine_facts(self, instance: State) -> State:
        times = instance["proc_times"]  # [*B, M, O]
        op_times = times.sum(-2)
        return {
            "op_times": op_times,
            "ma_assignment": (times > 0).int().argmax(-2),
            "cumulative_work": op_times.cumsum(-1),
        }

    def _job_of(self, state: State, index: Tensor) -> Tensor:
        return index

    def _machine_of(self, state: State, index: Tensor, op: Tensor) -> tuple[Tensor, Tensor]:
        return state["ma_assignment"].gather(-1, op), state["op_times"].gather(-1, op)

    def _action_of(self, state: State, job: Tensor, machine: Tensor) -> Tensor:
        return 1 + job

    def _observe(self, state: State) -> State:
        return {**super()._observe(state), "next_ma": self._next_machines(state)}

    def _next_machines(self, state: State) -> Tensor:
        """The machines that run the jobs' next operations, `[*B, J]`."""
        return state["ma_assignment"].gather(-1, state["next_op"])

    def _earliest(self, state: State, machines: Tensor, ready: Tensor) -> Tensor:
        return torch.maximum(ready, state["busy_until"].gather(-1, machines))  # [*B, J]

    def _next_finish(
        self, state: State, machines: Tensor, earliest: Tensor, time: Tensor
    ) -> Tensor:
        next_times = state["op_times"].gather(-1, state["next_op"])
        return torch.maximum(earliest, time.unsqueeze(-1)) + next_times  # [*B, J]

    def _first_free(self, state: State, ops: Tensor, free: Tensor) -> Tensor:
        return free.gather(-1, state["ma_assignment"].gather(-1, ops))

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        violations = super()._violations(state, actions)
        del violations[parts.ELIGIBLE]  # the instance names the machines, not the actions
        return violations

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        several = ((instance["proc_times"] > 0).sum(-2) > 1).any(-1)
        return {**super()._instance_faults(instance), parts.ONE_MACHINE: several}

    def _only_machines(self, instance: Mapping[str, Tensor]) -> Tensor:
        return (instance["proc_times"] > 0).int().argmax(-2)
