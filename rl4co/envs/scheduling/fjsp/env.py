"""Flexible Job Shop Scheduling Problem."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from typing_extensions import override

from rl4co.core.errors import (
    InvalidActionError,
    UnknownNameError,
    format_indices,
)
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.generator import Generator
from rl4co.envs.scheduling import _parts as parts
from rl4co.envs.scheduling._schedules import ShopSchedules
from rl4co.envs.scheduling.fjsp.generator import FJSPFileGenerator, FJSPGenerator
from rl4co.envs.scheduling.fjsp.times import estimates, machine_facts, next_event, of_next_ops

_BOUNDS = ("mean", "min")


@ENVS.register("fjsp")
class FJSPEnv(ShopSchedules):
    """Flexible Job Shop Scheduling Problem: shortest schedule of jobs on alternative machines.

    Each of J jobs is a chain of operations; each operation runs without interruption on one of its
    eligible machines, whose processing times may differ. An instance has the operations of all jobs
    in one row of O, job after job, padding last: `start_op_per_job [J]` and `end_op_per_job [J]`
    (first and last operation of each job), `proc_times [M, O]` (0: not eligible) and `pad_mask [O]`
    (True = padding). A job that points to a padded operation is padding, too.

    The environment steps through time (Tassel et al., 2021). An action starts an operation *now*:
    action $1 + j M + m$ starts the next operation of job j on machine m; action 0 waits until the
    next operation ends. When nothing can start, the clock moves by itself to the first time at
    which something can, and after the last operation to the end of the schedule. With `mask_no_ops`
    (the default) the agent never waits while something can start, so a solution has exactly one
    action per operation, but it can only build *non-delay* schedules, and these do not always
    include an optimal one. Without it, the agent can build every semi-active schedule, and so an
    optimal one. Solutions that come from elsewhere may wait in either case, see
    :meth:`actions_from_schedule`.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `proc_times` | float32 | `[*B, M, O]` | processing times, 0 = not eligible |
        | `start_op_per_job` | int64 | `[*B, J]` | first operation of each job |
        | `end_op_per_job` | int64 | `[*B, J]` | last operation of each job |
        | `pad_mask` | bool | `[*B, O]` | operations that are padding |
        | `ops_job_map` | int64 | `[*B, O]` | job of each operation (padding: some job) |
        | `job_ops_adj` | bool | `[*B, J, O]` | operations of each job |
        | `ops_sequence_order` | int64 | `[*B, O]` | place in its job, from 0 (padding: 0) |
        | `ops_ma_adj` | bool | `[*B, M, O]` | eligible machines of each operation |
        | `num_eligible` | float32 | `[*B, O]` | number of eligible machines (padding: 0) |
        | `op_times` | float32 | `[*B, O]` | mean processing time, see `bound` (padding: 0) |
        | `cumulative_work` | float32 | `[*B, O]` | running sum of `op_times` |
        | `time` | float32 | `[*B]` | the clock; the makespan once done |
        | `next_op` | int64 | `[*B, J]` | first operation not started; once all are, the last |
        | `job_busy_until` | float32 | `[*B, J]` | end of the latest operation started, or 0 |
        | `busy_until` | float32 | `[*B, M]` | end of the latest operation started, or 0 |
        | `earliest_start` | float32 | `[*B, J, M]` | when `next_op` could start, or inf |
        | `start_times` | float32 | `[*B, O]` | start of scheduled operations, else 0 |
        | `finish_times` | float32 | `[*B, O]` | end of scheduled ones, else inf (padding: 0) |
        | `ma_assignment` | int64 | `[*B, O]` | machine of scheduled operations, else 0 |
        | `op_scheduled` | bool | `[*B, O]` | operations started; True for padding |
        | `lbs` | float32 | `[*B, O]` | estimated or true end of operations (padding: 0) |
        | `is_ready` | bool | `[*B, O]` | not started, and the predecessor has ended |
        | `job_in_process` | bool | `[*B, J]` | an operation of the job is running |
        | `job_done` | bool | `[*B, J]` | all operations have ended; True for padding |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, A]` | A = 1 + J M: wait, then pairs, job by job |

    Rows up to `cumulative_work` never change. `earliest_start` is infinite where the machine cannot
    run the job's next operation or none is left; it may lie in the past.

    The estimates `lbs` follow Song et al. (2022): the next operation of a job ends at the mean over
    its eligible machines m of $\\max(t, C_{j}, C_m) + p_m$, where t is the clock and $C$ is when
    the job and the machine are free; each later operation adds its mean processing time. With
    `bound="min"` the smallest takes the place of the mean, which gives true lower bounds.

    Constraints:
        Every operation is scheduled exactly once, on an eligible machine, after its predecessor in
        the job has ended; a machine runs one operation at a time; the agent waits only where the
        mask allows it and an operation is running.

    Finish condition:
        All operations are started: what is left of them runs to its end by itself.

    Reward:
        Minus the makespan, $-\\max_o C_o$. With `stepwise_reward` each step is rewarded with the
        decrease of the largest of `lbs`, $H(s_t) - H(s_{t+1})$ (Zhang et al., 2020); the rewards of
        an episode add up to $H(s_0)$ minus the makespan. `get_reward` is minus the makespan always.

    Args:
        generator: Source of instances.
        generator_params: Arguments of the generator; with `file_path` instances are read from files
            (:class:`FJSPFileGenerator`).
        mask_no_ops: Mask waiting while something can start.
        check_mask: Raise if an unfinished state has no allowed action (a look at the device in each
            step; for debugging).
        stepwise_reward: Reward single steps.
        bound: Processing times in the estimates `lbs`: mean or min over the eligible machines.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "fjsp"
    generator_cls: ClassVar[type[Generator]] = FJSPGenerator
    file_generator_cls: ClassVar[type[Generator]] = FJSPFileGenerator
    #: Whether actions say on which machine an operation runs.
    chooses_machines: ClassVar[bool] = True
    instance_shapes = {
        "start_op_per_job": "j",
        "end_op_per_job": "j",
        "proc_times": "m o",
        "pad_mask": "o",
    }

    def __init__(
        self,
        generator: Generator | None = None,
        generator_params: Mapping[str, Any] | None = None,
        mask_no_ops: bool = True,
        check_mask: bool = False,
        stepwise_reward: bool = False,
        bound: Literal["mean", "min"] = "mean",
        **kwargs: Any,
    ) -> None:
        if bound not in _BOUNDS:
            raise UnknownNameError("bound", bound, _BOUNDS)
        self.mask_no_ops = mask_no_ops
        self.check_mask = check_mask
        self.stepwise_reward = stepwise_reward
        self.bound = bound
        if generator is None and generator_params and generator_params.get("file_path"):
            generator, generator_params = self.file_generator_cls(**generator_params), None
        super().__init__(generator, generator_params, **kwargs)

    # ---------------------------------------------------------------- episode

    def _init_state(self, instance: State) -> State:
        first, last, pad = (
            instance[key] for key in ("start_op_per_job", "end_op_per_job", "pad_mask")
        )
        times = instance["proc_times"]  # [*B, M, O]
        job = parts.operation_jobs(last, pad)
        places = torch.arange(pad.shape[-1], device=pad.device) - first.gather(-1, job)  # [*B, O]
        no_time = torch.zeros_like(times[..., 0, :])  # [*B, O]
        state = {
            **{key: instance[key] for key in self.instance_shapes},
            "ops_job_map": job,
            "job_ops_adj": parts.one_hot_jobs(job, pad, first.shape[-1]),
            "ops_sequence_order": torch.where(pad, 0, places),
            **self._machine_facts(instance),
            "next_op": first,
            "time": torch.zeros_like(times[..., 0, 0]),
            "job_busy_until": torch.zeros_like(first, dtype=times.dtype),
            "busy_until": torch.zeros_like(times[..., 0]),
            "start_times": no_time,
            "finish_times": torch.where(pad, no_time, torch.inf),
            "op_scheduled": pad,
        }
        return {**state, **self._observe(state)}

    def _machine_facts(self, instance: State) -> State:
        """Keys of the state that describe machines and do not change in an episode."""
        return machine_facts(instance, self.bound)

    def _transition(self, state: State, action: Tensor) -> State:
        index = action.unsqueeze(-1) - 1  # [*B, 1], -1 waits
        starts = (index >= 0) > state["done"]
        job, op, machine, duration = self._selected(state, index)  # [*B, 1] each
        now = state["time"].unsqueeze(-1)  # [*B, 1]
        finish = now + duration
        following = torch.minimum(op + starts, state["end_op_per_job"].gather(-1, job))

        def write(key: str, index: Tensor, value: Tensor) -> Tensor:
            old = state[key]
            return old.scatter(-1, index, torch.where(starts, value, old.gather(-1, index)))

        changes = {
            "next_op": state["next_op"].scatter(-1, job, following),
            "job_busy_until": write("job_busy_until", job, finish),
            "busy_until": write("busy_until", machine, finish),
            "start_times": write("start_times", op, now),
            "finish_times": write("finish_times", op, finish),
            "op_scheduled": write("op_scheduled", op, starts),
        }
        if self.chooses_machines:
            changes["ma_assignment"] = write("ma_assignment", op, machine)
        if not self.mask_no_ops:
            changes["time"] = next_event(state, ~(starts | state["done"]))
        changes.update(self._observe({**state, **changes}))
        return changes

    def _selected(self, state: State, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Job, operation, machine and processing time `[*B, 1]` of actions, counted without 0."""
        index = index.clamp_min(0)
        job = self._job_of(state, index)
        op = state["next_op"].gather(-1, job)
        return job, op, *self._machine_of(state, index, op)

    def _job_of(self, state: State, index: Tensor) -> Tensor:
        """The job of each action; `index` counts from 0 without waiting, which is -1."""
        return index // state["busy_until"].shape[-1]

    def _machine_of(self, state: State, index: Tensor, op: Tensor) -> tuple[Tensor, Tensor]:
        """Machine and processing time of actions that start the operations `op`."""
        num_machines, num_ops = state["proc_times"].shape[-2:]
        machine = index % num_machines
        times = state["proc_times"].flatten(-2)  # [*B, M * O]
        return machine, times.gather(-1, machine * num_ops + op)

    def _action_of(self, state: State, job: Tensor, machine: Tensor) -> Tensor:
        return 1 + job * state["busy_until"].shape[-1] + machine

    def _observe(self, state: State) -> State:
        """Moves the clock to the first time at which something can start; derives the keys."""
        left = ~state["op_scheduled"].gather(-1, state["next_op"])  # [*B, J]
        ready = torch.where(left, state["job_busy_until"], torch.inf)  # [*B, J]
        machines = self._next_machines(state)
        earliest = self._earliest(state, machines, ready)  # [*B, J, ...]
        soonest = earliest.amin(tuple(range(state["time"].dim(), earliest.dim())))  # [*B]
        done = soonest == torch.inf
        now = torch.maximum(state["time"], soonest)
        time = torch.where(done, state["busy_until"].amax(-1), now)
        idle = state["job_busy_until"] <= time.unsqueeze(-1)  # [*B, J]
        nothing = torch.zeros_like(state["op_scheduled"])
        next_finish = self._next_finish(state, machines, earliest, time)
        return {
            "earliest_start": earliest.contiguous(),  # the mask reads it job by job
            "time": time,
            "lbs": estimates(state, next_finish),
            "is_ready": nothing.scatter(-1, state["next_op"], idle & left),
            "job_in_process": ~idle,
            "job_done": idle > left,
            "done": done.unsqueeze(-1),
        }

    def _next_machines(self, state: State) -> Tensor:
        """Which machines can run the jobs' next operations: `[*B, M, J]`."""
        return of_next_ops(state, "ops_ma_adj")

    def _earliest(self, state: State, machines: Tensor, ready: Tensor) -> Tensor:
        """When the next operations could start, `[*B, J, M]`.

        Args:
            state: Without the keys that :meth:`_observe` gives.
            machines: See :meth:`_next_machines`.
            ready: When each job is free for its next operation `[*B, J]`, inf if it has none.
        """
        free = torch.maximum(ready.unsqueeze(-2), state["busy_until"].unsqueeze(-1))  # [*B, M, J]
        return torch.where(machines, free, torch.inf).transpose(-1, -2)

    def _next_finish(
        self, state: State, machines: Tensor, earliest: Tensor, time: Tensor
    ) -> Tensor:
        """Estimated end of the next operations `[*B, J]`; not read where there is none."""
        start = torch.maximum(earliest, time[..., None, None]).transpose(-1, -2)  # [*B, M, J]
        if self.bound == "min":
            return (start + of_next_ops(state, "proc_times")).amin(-2)
        next_op = state["next_op"]
        mean_start = torch.where(machines, start, 0.0).sum(-2)
        mean_start = mean_start / state["num_eligible"].gather(-1, next_op)
        return mean_start + state["op_times"].gather(-1, next_op)

    def _action_mask(self, state: State) -> Tensor:
        now, done = state["time"].unsqueeze(-1), state["done"]
        startable = state["earliest_start"].flatten(now.dim() - 1) <= now  # [*B, A - 1]
        # Waiting needs a running operation; once done, it is the only allowed action.
        wait = done if self.mask_no_ops else done | (state["busy_until"] > now).any(-1, True)
        return torch.cat([wait, startable], -1)

    def _step_reward(self, state: State, action: Tensor, changes: State) -> Tensor | None:
        if not self.stepwise_reward:
            return None
        return state["lbs"].amax(-1, keepdim=True) - changes["lbs"].amax(-1, keepdim=True)

    @property
    @override
    def has_dense_reward(self) -> bool:
        return self.stepwise_reward

    def advance(self, state: State, action: Tensor) -> State:
        """One step on a plain mapping; with `check_mask` a dead end raises an error."""
        new_state = super().advance(state, action)
        if self.check_mask:
            stuck = ~(new_state["action_mask"].any(-1, keepdim=True) | new_state["done"])
            if stuck.any():
                where = format_indices(stuck.flatten().nonzero().flatten().tolist())
                raise InvalidActionError(
                    f"expected an allowed action in every unfinished {self.name} state, got none "
                    f"in instances {where}; check the instance with env.check_instances"
                )
        return new_state

    def step_bounds(self, state: State) -> tuple[int, int]:
        """One operation at least (the others may be padding); at most all O.

        With waiting, each wait lasts until another operation ends that has a start after it, so
        there are at most O - 1 of them.
        """
        num_ops = state["pad_mask"].shape[-1]
        return 1, num_ops if self.mask_no_ops else 2 * num_ops - 1

    # ---------------------------------------------------------------- solutions

    def _selection(self, state: State, actions: Tensor) -> tuple[parts.Selection, Tensor]:
        """The operations that `actions [*B, T]` start; see :func:`parts.selected_operations`."""
        index = actions - 1
        job = self._job_of(state, index)
        op, upcoming = parts.selected_operations(state, job)
        machine, duration = self._machine_of(state, index, op)
        return parts.Selection(job, op, machine, torch.where(job < 0, 0.0, duration)), upcoming

    def _simulate(self, state: State, actions: Tensor) -> tuple[parts.Selection, parts.Timeline]:
        selection, upcoming = self._selection(state, actions)
        first_free = partial(self._first_free, state)
        return selection, parts.simulate(state, selection, upcoming, first_free)

    def _first_free(self, state: State, ops: Tensor, free: Tensor) -> Tensor:
        """When the first machine is free that can run an operation: `[*B, J], [*B, M]` → `[*B, J]`.

        For the check of solutions, which shares nothing with the mask.
        """
        adjacency = state["ops_ma_adj"]
        index = ops.unsqueeze(-2).expand(*adjacency.shape[:-1], ops.shape[-1])  # [*B, M, J]
        eligible = adjacency.gather(-1, index)
        return torch.where(eligible, free.unsqueeze(-1), torch.inf).amin(-2)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        if self.mask_no_ops and not parts.may_wait(actions):
            selection, _ = self._selection(state, actions)
            jobs, machines = state["next_op"].shape[-1], state["busy_until"].shape[-1]
            return -parts.eager_makespan(selection, jobs, machines)
        selection, timeline = self._simulate(state, actions)
        return -(timeline.clock + selection.duration).mul(~selection.waits).amax(-1)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        selection, timeline = self._simulate(state, actions)
        schedule = parts.as_schedule(state, selection, timeline.clock)
        violations = parts.schedule_violations(state, schedule.start_times, schedule.machines)
        pointless = selection.waits & ~(timeline.finished | timeline.running)  # [*B, T]
        return {
            parts.ONCE: violations[parts.ONCE] | parts.repeated(state, selection),
            parts.ELIGIBLE: violations[parts.ELIGIBLE],
            parts.ORDER: violations[parts.ORDER],
            parts.CAPACITY: violations[parts.CAPACITY],
            parts.WAITING: pointless.any(-1),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        return parts.instance_faults(instance)

    def _fault_place(self, instance: State) -> str:
        return parts.locate_fault(instance, self._instance_faults)

    # ---------------------------------------------------------------- starts, files, figures

    def _count_starts(self, state: State) -> int:
        return state["next_op"].shape[-1]

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        """Each job's first operation on its fastest machine; padding jobs repeat other jobs."""
        job = parts.first_jobs(state, num_starts)  # [*B, S]
        first = state["start_op_per_job"].gather(-1, job)
        times = torch.where(state["proc_times"] > 0, state["proc_times"], torch.inf)
        fastest = times.argmin(-2).gather(-1, first)  # [*B, O] -> [*B, S]
        return self._action_of(state, job, fastest)

    def load_data(self, fpath: str | Path) -> TensorDict:
        """Instances from an `.npz` file, from a text file, or from all files of a folder."""
        path = Path(fpath)
        if path.suffix == ".npz" or not path.exists():
            return super().load_data(path)
        return self.file_generator_cls(path).instances

    def render(
        self,
        td: TensorDictBase,
        actions: Tensor | int | None = None,
        *,
        index: int = 0,
        **options: Any,
    ) -> Any:
        """Draws a solution, or with a number as `actions` the state of that instance.

        Args:
            td: State, batched or single.
            actions: `[*B, T]`; None for the jobs alone; or the index of an instance of the batch,
                whose schedule so far is drawn.
            index: Which instance of a batch to draw.
            options: See :func:`rl4co.envs.scheduling.fjsp.render.render`.
        """
        if not isinstance(actions, int):
            return super().render(td, actions, index=index, **options)
        keys = ("start_times", "finish_times", "ma_assignment")
        row = td.reshape(-1)[actions].detach().cpu()
        return self._draw(row, parts.Schedule(*(row[key] for key in keys)), **options)

    def _render(self, state: State, actions: Tensor | None, **options: Any) -> Any:
        schedule = None if actions is None else self.get_schedule(state, actions)
        return self._draw(state, schedule, **options)

    def _draw(self, state: State, schedule: parts.Schedule | None, **options: Any) -> Any:
        from rl4co.envs.scheduling.fjsp.render import render

        return render(state, schedule, **options)
