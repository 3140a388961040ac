"""What the job shops share: the structure of jobs, decoding of actions, checks of schedules.

All are pure functions of tensors with any number of leading batch axes `*B`. J counts jobs, M
machines, O operations (padding included), T steps. The operations of all jobs form one row, job
after job; padding comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from torch import Tensor

#: Relative slack with which times of a schedule are compared. Whole numbers up to 2^24 are exact in
#: float32; sums of other durations are rounded.
TIME_TOLERANCE = 1e-5

ONCE = "every operation is scheduled exactly once"
ELIGIBLE = "every operation runs on an eligible machine"
ORDER = "an operation starts after its predecessor in the job is finished"
CAPACITY = "a machine runs one operation at a time"
BEGIN = "no operation starts before time 0"
DURATION = "every operation takes its processing time"
WAITING = "waiting is for an operation that runs"

#: Rule of job shops without a choice of machines.
ONE_MACHINE = "every operation has one eligible machine only (use fjsp for several)"


# ---------------------------------------------------------------- structure of instances


def operation_jobs(end_op_per_job: Tensor, pad_mask: Tensor) -> Tensor:
    """The job of each operation, `[*B, J], [*B, O]` → `[*B, O]`; the last one for padding."""
    num_jobs, num_ops = end_op_per_job.shape[-1], pad_mask.shape[-1]
    ops = torch.arange(num_ops, device=pad_mask.device).unsqueeze(-1)  # [O, 1]
    behind = (ops > end_op_per_job.unsqueeze(-2)).sum(-1)  # [*B, O, J] -> [*B, O]
    return behind.clamp_max(num_jobs - 1)


def one_hot_jobs(ops_job_map: Tensor, pad_mask: Tensor, num_jobs: int) -> Tensor:
    """Operations of each job, `[*B, O], [*B, O]` → `[*B, J, O]`; padding is of none."""
    jobs = torch.arange(num_jobs, device=pad_mask.device).unsqueeze(-1)  # [J, 1]
    return (ops_job_map.unsqueeze(-2) == jobs) & ~pad_mask.unsqueeze(-2)


def instance_faults(instance: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rules of job shops: rule → `[*B]`, True where an instance breaks it."""
    first, last = instance["start_op_per_job"], instance["end_op_per_job"]  # [*B, J]
    times, pad = instance["proc_times"], instance["pad_mask"]  # [*B, M, O], [*B, O]
    num_ops = pad.shape[-1]
    inside = (first >= 0) & (last < num_ops) & (first < num_ops) & (last >= 0)
    # A job of padding only is padding itself, and so are all jobs behind it.
    padding = pad.gather(-1, first.clamp(0, num_ops - 1))  # [*B, J]
    real = ~padding
    before = torch.cat([torch.full_like(last[..., :1], -1), last[..., :-1]], -1)  # [*B, J]
    real_ops = (last - first + 1).mul(real).sum(-1, keepdim=True)  # [*B, 1]
    positions = torch.arange(num_ops, device=pad.device)
    eligible = (times > 0).sum(-2)  # [*B, O]
    return {
        "every job has an operation (start_op_per_job <= end_op_per_job < number of operations)": (
            ~inside | (last < first)
        ).any(-1),
        "the first operation of a job follows the last one of the job before it, from 0 on": (
            real & (first != before + 1)
        ).any(-1)
        | padding[..., 0],
        "padding jobs come after all other jobs, and each points to one padded operation": (
            (padding & (first != last)) | (padding & real.flip(-1).cumsum(-1).flip(-1).bool())
        ).any(-1),
        "pad_mask is True exactly behind the last operation of the last job": (
            pad != (positions >= real_ops)
        ).any(-1),
        "no processing time is negative (0: the machine cannot run the operation)": (times < 0).any(
            (-2, -1)
        ),
        "every operation has an eligible machine (a processing time > 0)": (
            (eligible == 0) & ~pad
        ).any(-1),
        "padded operations have no processing times": ((eligible > 0) & pad).any(-1),
    }


def locate_fault(
    instance: Mapping[str, Tensor],
    find_faults: Callable[[dict[str, Tensor]], dict[str, Tensor]],
) -> str:
    """Where the first faulty instance is wrong: its job and operation, as text to add.

    Args:
        instance: Instances that were rejected.
        find_faults: The problem's rules.

    Returns:
        Such as `; in instance 2: operation 1 of job 0 has no eligible machine`; empty if the fault
        is not of that kind.
    """
    faults = find_faults(dict(instance))
    dims = next(iter(faults.values())).dim()
    finite = instance["proc_times"].isfinite().flatten(dims).all(-1)  # [*B]
    rules = torch.stack([~finite.flatten(), *(fault.flatten() for fault in faults.values())])
    broken = rules.any(0)  # [B]
    if not broken.any():
        return ""
    row = int(broken.long().argmax())
    single = {
        key: (value.flatten(0, dims - 1)[row] if dims else value).cpu()
        for key, value in instance.items()
    }
    sentence = next(_operation_faults(single, one_machine=ONE_MACHINE in faults), None)
    return f"; in instance {row}: {sentence}" if sentence else ""


def _operation_faults(instance: Mapping[str, Tensor], one_machine: bool) -> Iterator[str]:
    """Sentences on the jobs and operations that are wrong in one instance.

    Args:
        instance: The instance, without batch axis.
        one_machine: Whether an operation may have one eligible machine only.
    """
    pad, times = instance["pad_mask"].tolist(), instance["proc_times"]  # [O], [M, O]
    num_ops = len(pad)
    bounds = (instance[key].tolist() for key in ("start_op_per_job", "end_op_per_job"))
    padding: int | None = None  # the first job of padding
    begin, latest = 0, "no job"  # where the next job has to begin, and behind which one
    for job, (first, last) in enumerate(zip(*bounds, strict=True)):
        if not 0 <= first <= last < num_ops:
            yield f"job {job} has no operations, from {first} to {last} of {num_ops}"
            continue
        if pad[first]:
            padding = job if padding is None else padding
            if job == 0:
                yield f"job 0 is padding, as operation {first} of the row is"
            if first != last:
                yield (
                    f"job {job} is padding and goes from operation {first} to {last} of the row; "
                    "point it to one of them"
                )
            continue
        if padding is not None:
            yield f"job {job} (operation {first} of the row) follows job {padding}, a padded one"
        if first != begin:
            yield (
                f"job {job} begins at operation {first} of the row, and not at {begin}, "
                f"right behind {latest}"
            )
        for op in range(first, last + 1):
            name = f"operation {op - first} of job {job}"
            yield from _time_faults(name, times[:, op], pad[op], one_machine)
        begin, latest = last + 1, f"job {job}"
    for op in range(begin, num_ops):
        name, column = f"operation {op} of the row, behind {latest},", times[:, op]
        if not pad[op]:
            yield f"{name} belongs to no job; mark it as padding, or give it to a job"
        if column.any():  # a time that is not a number counts, too
            machine = int((column != 0).long().argmax())
            yield f"{name} is padding and takes {column[machine]:g} on machine {machine}"


def _time_faults(name: str, times: Tensor, padded: bool, one_machine: bool) -> Iterator[str]:
    """Sentences on the processing times `[M]` of an operation that belongs to a job."""
    if padded:
        yield f"{name} is padding"
    wrong = (times < 0) | ~times.isfinite()  # [M]
    if wrong.any():
        machine = int(wrong.long().argmax())
        yield f"{name} takes {times[machine]:g} on machine {machine}"
    eligible = int((times > 0).sum())
    if not padded and not eligible:
        yield f"{name} has no eligible machine"
    if one_machine and eligible > 1:
        yield f"{name} has {eligible} eligible machines"


# ---------------------------------------------------------------- action sequences


class Selection(NamedTuple):
    """The operations that a sequence of actions starts, all `[*B, T]`.

    Attributes:
        job: Job of each action, -1 where the agent waits.
        op: Next operation of the job, or its last one if none is left.
        machine: Machine.
        duration: Processing time, 0 for waiting and where the machine cannot run the operation.
    """

    job: Tensor
    op: Tensor
    machine: Tensor
    duration: Tensor

    @property
    def waits(self) -> Tensor:
        """Where the agent waits."""
        return self.job < 0


def selected_operations(state: Mapping[str, Tensor], job: Tensor) -> tuple[Tensor, Tensor]:
    """Which operation each action starts, by counting how often its job came before.

    Args:
        state: With `start_op_per_job` and `end_op_per_job`.
        job: `[*B, T]`, -1 for none.

    Returns:
        The operations `[*B, T]`, and the operation that each job would start next, before each
        action `[*B, T, J]` (one behind its last if it has none left).
    """
    first, last = state["start_op_per_job"], state["end_op_per_job"]
    jobs = torch.arange(first.shape[-1], device=job.device)
    picked = job.unsqueeze(-1) == jobs  # [*B, T, J]
    before = picked.cumsum(-2) - picked.long()  # [*B, T, J]
    upcoming = first.unsqueeze(-2) + before  # [*B, T, J]
    index = job.clamp_min(0).unsqueeze(-1)  # [*B, T, 1]
    op = upcoming.gather(-1, index).squeeze(-1)  # [*B, T]
    return torch.minimum(op, last.gather(-1, index.squeeze(-1))), upcoming


def eager_makespan(selection: Selection, num_jobs: int, num_machines: int) -> Tensor:
    """Makespan `[*B]` if each operation starts once its job, its machine and the clock allow.

    Without waiting the clock stands at the start of the previous operation, or has moved to the
    first time at which anything can start; a feasible action starts just then.
    """
    batch, (num_steps,) = selection.job.shape[:-1], selection.job.shape[-1:]
    # One column per job and machine, and a last one for actions that start nothing.
    free = selection.duration.new_zeros(*batch, num_jobs + num_machines + 1)
    nothing = torch.full_like(selection.job, num_jobs + num_machines)
    columns = torch.stack(
        [
            torch.where(selection.waits, nothing, selection.job),
            torch.where(selection.waits, nothing, selection.machine + num_jobs),
        ],
        -1,
    ).unbind(-2)  # T x [*B, 2]
    durations = selection.duration.unsqueeze(-2).unbind(-1)  # T x [*B, 1]
    clock = free[..., :1]  # [*B, 1]
    for step in range(num_steps):
        ready = free.gather(-1, columns[step]).amax(-1, keepdim=True)  # [*B, 1]
        clock = torch.maximum(clock, ready)
        finish = (clock + durations[step]).expand_as(columns[step])
        free = free.scatter(-1, columns[step], finish)
    return free.amax(-1)


def may_wait(actions: Tensor) -> bool:
    """Whether some of the solutions `[*B, T]` wait (action 0) between starts.

    On other devices than the CPU this returns True without a synchronisation.
    """
    waits = actions == 0
    return actions.device.type != "cpu" or bool((waits[..., :-1] & ~waits[..., 1:]).any())


class Timeline(NamedTuple):
    """The simulated clock before each action, all `[*B, T]`.

    Attributes:
        clock: The time.
        running: Whether an operation is running.
        finished: Whether all operations are started.
    """

    clock: Tensor
    running: Tensor
    finished: Tensor


def simulate(
    state: Mapping[str, Tensor],
    selection: Selection,
    upcoming: Tensor,
    first_free: Callable[[Tensor, Tensor], Tensor],
) -> Timeline:
    """Simulates the clock along actions that start operations at once, allowed or not.

    The clock moves to the next time at which something can start, if nothing can. Times are sums in
    the precision of the instance, as events that coincide decide what can start.

    Args:
        state: With `start_op_per_job`, `end_op_per_job`, `pad_mask`, `proc_times`.
        selection: The actions.
        upcoming: See :func:`selected_operations`.
        first_free: (operations `[*B, J]`, times at which machines are free `[*B, M]`) → time at
            which the first eligible machine is free `[*B, J]`.
    """
    last = state["end_op_per_job"].unsqueeze(-2)  # [*B, 1, J]
    batch, num_jobs = last.shape[:-2], last.shape[-1]
    num_machines = state["proc_times"].shape[-2]
    left = (upcoming <= last) & ~_padding_jobs(state).unsqueeze(-2)  # [*B, T, J]
    next_ops = torch.minimum(upcoming, last)
    # A last column takes what actions that start nothing write.
    job_free = selection.duration.new_zeros(*batch, num_jobs + 1)
    machine_free = selection.duration.new_zeros(*batch, num_machines + 1)
    job = torch.where(selection.waits, num_jobs, selection.job).unsqueeze(-1)  # [*B, T, 1]
    machine = torch.where(selection.waits, num_machines, selection.machine).unsqueeze(-1)
    clock = job_free[..., :1]  # [*B, 1]
    clocks, running, finished = [], [], []
    for step in range(selection.job.shape[-1]):
        machines = machine_free[..., :-1]
        free = torch.maximum(job_free[..., :-1], first_free(next_ops[..., step, :], machines))
        soonest = torch.where(left[..., step, :], free, torch.inf).amin(-1, keepdim=True)
        finished.append(soonest == torch.inf)
        clock = torch.where(finished[-1], clock, torch.maximum(clock, soonest))
        clocks.append(clock)
        event = torch.where(machines > clock, machines, torch.inf).amin(-1, keepdim=True)
        running.append(event < torch.inf)
        finish = clock + selection.duration[..., step : step + 1]
        job_free = job_free.scatter(-1, job[..., step, :], finish)
        machine_free = machine_free.scatter(-1, machine[..., step, :], finish)
        clock = torch.where(selection.waits[..., step : step + 1] & running[-1], event, clock)
    return Timeline(torch.cat(clocks, -1), torch.cat(running, -1), torch.cat(finished, -1))


def repeated(state: Mapping[str, Tensor], selection: Selection) -> Tensor:
    """Whether a job gets other than one action per operation, `[*B]`."""
    first, last = state["start_op_per_job"], state["end_op_per_job"]  # [*B, J]
    jobs = torch.arange(first.shape[-1], device=first.device)
    times = (selection.job.unsqueeze(-1) == jobs).sum(-2)  # [*B, T, J] -> [*B, J]
    return (times != (last - first + 1) * ~_padding_jobs(state)).any(-1)


def first_jobs(state: Mapping[str, Tensor], count: int) -> Tensor:
    """The first `count` jobs, `[*B, count]`, cycling through the real jobs."""
    real = (~_padding_jobs(state)).sum(-1, keepdim=True)  # [*B, 1]
    return torch.arange(count, device=real.device) % real


def _padding_jobs(state: Mapping[str, Tensor]) -> Tensor:
    """Padding jobs, `[*B, J]`."""
    return state["pad_mask"].gather(-1, state["start_op_per_job"])


# ---------------------------------------------------------------- schedules


class Schedule(NamedTuple):
    """When and where operations run, all `[*B, O]`.

    Attributes:
        start_times: Start, inf if an operation is not scheduled (padding: 0).
        finish_times: End, likewise.
        machines: Machine, 0 if not scheduled.
    """

    start_times: Tensor
    finish_times: Tensor
    machines: Tensor


def as_schedule(state: Mapping[str, Tensor], selection: Selection, starts: Tensor) -> Schedule:
    """The schedule in which the chosen operations start at the times `starts [*B, T]`."""
    pad = state["pad_mask"]
    # Actions that start nothing write to a column behind the last operation.
    op = torch.where(selection.waits, pad.shape[-1], selection.op)  # [*B, T]
    blank = starts.new_full((*pad.shape[:-1], pad.shape[-1] + 1), torch.inf)  # [*B, O + 1]
    start = blank.scatter(-1, op, starts)[..., :-1]
    finish = blank.scatter(-1, op, starts + selection.duration)[..., :-1]
    machines = torch.zeros_like(blank, dtype=torch.int64).scatter(-1, op, selection.machine)[
        ..., :-1
    ]
    return Schedule(torch.where(pad, 0.0, start), torch.where(pad, 0.0, finish), machines)


def schedule_violations(
    instance: Mapping[str, Tensor],
    start_times: Tensor,
    machines: Tensor,
    finish_times: Tensor | None = None,
) -> dict[str, Tensor]:
    """Violated constraints of schedules, from start times and machines alone, in float64.

    Args:
        instance: Instance or state with `start_op_per_job [*B, J]`, `end_op_per_job [*B, J]`,
            `proc_times [*B, M, O]`, `pad_mask [*B, O]`.
        start_times: When each operation starts `[*B, O]`; padding is not read, and an operation
            that is not finite is not scheduled.
        machines: Machine of each operation `[*B, O]`.
        finish_times: When each operation ends `[*B, O]`, if that is to be checked too.

    Returns:
        Constraint → `[*B]`, True where it is violated.
    """
    pad, times = instance["pad_mask"], instance["proc_times"].double()  # [*B, O], [*B, M, O]
    real = ~pad
    start = torch.where(real, start_times.double(), torch.zeros_like(pad, dtype=torch.float64))
    exists = (machines >= 0) & (machines < times.shape[-2])
    row = machines.clamp(0, times.shape[-2] - 1).unsqueeze(-2)  # [*B, 1, O]
    duration = times.gather(-2, row).squeeze(-2)  # [*B, O]
    finish = start + duration
    slack = TIME_TOLERANCE * finish.abs().nan_to_num(0, 0, 0).amax(-1, keepdim=True).clamp_min(1.0)

    # Neighbours in the row of operations that belong to one job.
    job = operation_jobs(instance["end_op_per_job"], pad)  # [*B, O]
    follows = (job[..., 1:] == job[..., :-1]) & real[..., 1:]  # [*B, O - 1]
    early = follows & (start[..., 1:] < finish[..., :-1] - slack)

    # Operations by machine, on each machine by start; then only neighbours can overlap. Padding
    # goes to an extra machine.
    place = torch.where(real, machines, times.shape[-2])
    by_start = start.argsort(dim=-1, stable=True)
    order = by_start.gather(-1, place.gather(-1, by_start).argsort(dim=-1, stable=True))
    sorted_place = place.gather(-1, order)
    same = (sorted_place[..., 1:] == sorted_place[..., :-1]) & real.gather(-1, order)[..., 1:]
    overlap = same & (start.gather(-1, order)[..., 1:] < finish.gather(-1, order)[..., :-1] - slack)
    violations = {
        ONCE: (real & ~start.isfinite()).any(-1),
        ELIGIBLE: (real & ~(exists & (duration > 0))).any(-1),
        BEGIN: (real & (start < -slack)).any(-1),
        ORDER: early.any(-1),
        CAPACITY: overlap.any(-1),
    }
    if finish_times is not None:
        off = (finish_times.double() - finish).abs() > slack
        violations[DURATION] = (real & off).any(-1)
    return violations
