"""What the policies see of a job shop: features of operations, machines, jobs and their pairs.

All times are relative to the clock and to the scale of the instance, so that neither the units of
processing times nor the length of the schedule so far matter.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from torch import Tensor

State = Mapping[str, Tensor]

#: Keys of a state that change from step to step and that :func:`observe` reads.
STEP_KEYS = ("next_op", "time", "busy_until", "job_busy_until", "earliest_start")
#: Keys whose last axis are operations.
OPERATION_KEYS = (
    *("proc_times", "op_times", "pad_mask", "ops_job_map", "ops_sequence_order", "ops_ma_adj"),
    *("num_eligible", "cumulative_work", "start_times", "finish_times", "ma_assignment"),
    *("op_scheduled", "lbs", "is_ready", "job_ops_adj"),
)
#: Numbers of features.
NUM_OPERATION, NUM_MACHINE, NUM_JOB, NUM_PAIR = 8, 4, 6, 4
#: Sums of many processing times are divided by this many scales, to be as large as single ones.
_MANY = 10.0


def trim_padding(state: State) -> State:
    """States `[B]` without the operations that are padding in all of them.

    Padding comes last and changes nothing, but costs time: of 60 operations in instances with 10
    jobs of 4 to 6 operations, some 5 are padding in all of a batch. On other devices than a CPU
    nothing is trimmed, because asking for the number would make the CPU wait.
    """
    ends = state["end_op_per_job"]
    if ends.device.type != "cpu":
        return state
    size = int(ends.max()) + 1
    trimmed = {key: state[key][..., :size] for key in OPERATION_KEYS if key in state}
    return {**state, **trimmed}


@dataclasses.dataclass
class Shop:
    """What never changes about the instances `[B]`.

    Attributes:
        times: Processing times in units of the scale, 0 where not eligible `[B, M, O]`.
        op_times: Mean over eligible machines `[B, O]`.
        work: Running sum of `op_times` `[B, O]`.
        load: Running sum of each machine's expected share of the work, from 0 `[B, M, O + 1]`.
        num_eligible: Number of eligible machines, relative to all `[B, O]`.
        job: Job of each operation `[B, O]`.
        last: Last operation of each job `[B, J]`.
        follows: Whether an operation has a predecessor `[B, O]`.
        real: Operations that are no padding `[B, O]`.
        real_machines: Machines that some operation can run on `[B, M]`.
        scale: The unit of time `[B, 1]`.
        machine: The machine of each operation `[B, O]`; None if there is a choice.
    """

    times: Tensor
    op_times: Tensor
    work: Tensor
    load: Tensor
    num_eligible: Tensor
    job: Tensor
    last: Tensor
    follows: Tensor
    real: Tensor
    real_machines: Tensor
    scale: Tensor
    machine: Tensor | None

    @classmethod
    def of(cls, state: State, scaling_factor: float | None = None) -> Shop:
        """The instances of states with batch `[B]`.

        Args:
            state: States of the JSSP or the FJSP.
            scaling_factor: Unit of time; None: the mean processing time of each instance.
        """
        real = ~state["pad_mask"]
        times, op_times = state["proc_times"], state["op_times"]
        if scaling_factor is None:
            scale = op_times.sum(-1, keepdim=True) / real.sum(-1, keepdim=True)  # [B, 1]
        else:
            scale = torch.full_like(op_times[:, :1], scaling_factor)
        eligible = times > 0
        real_machines = eligible.sum(-1) > 0
        times, op_times = times / scale.unsqueeze(-1), op_times / scale
        count = eligible.sum(-2).to(times.dtype)  # [B, O]
        load = (times / count.clamp_min(1.0).unsqueeze(-2)).cumsum(-1)
        return cls(
            times=times,
            op_times=op_times,
            work=op_times.cumsum(-1),
            load=F.pad(load, (1, 0)),
            num_eligible=count / real_machines.sum(-1, keepdim=True),
            job=state["ops_job_map"],
            last=state["end_op_per_job"],
            follows=(state["ops_sequence_order"] > 0) & real,
            real=real,
            real_machines=real_machines,
            scale=scale,
            machine=state["ma_assignment"] if "next_ma" in state else None,
        )

    @property
    def edges(self) -> Tensor:
        """Eligible pairs `[B, O, M]`."""
        return (self.times > 0).mT

    def operation_features(self, state: State) -> Tensor:
        """Features `[B, O, F]` of operations in states with batch `[B]`; zeros for padding."""
        now = state["time"].unsqueeze(-1)  # [B, 1]
        # Ends of jobs in the row of operations.
        last = self.last.gather(-1, self.job)  # [B, O]
        place = torch.arange(last.shape[-1], device=last.device)
        scheduled = state["op_scheduled"]
        upcoming = torch.zeros_like(scheduled).scatter(-1, state["next_op"], True) > scheduled
        until_end = (state["lbs"] - now).clamp_min(0.0) / self.scale
        features = [
            self.op_times,
            until_end / _MANY,
            (self.work.gather(-1, last) - self.work) / _MANY,
            (last - place) / _MANY,
            self.num_eligible,
            state["is_ready"],
            scheduled,
            upcoming,
        ]
        return torch.stack(
            [feature.to(until_end.dtype) for feature in features], -1
        ) * self.real.unsqueeze(-1)

    def machine_features(self, state: State) -> Tensor:
        """Features `[B, M, F]` of machines in states with batch `[B]`; zeros for padding."""
        left = (~state["op_scheduled"]).to(self.times.dtype)  # [B, O]
        share = self.load.diff(dim=-1)  # [B, M, O]
        load = (share @ left.unsqueeze(-1)).squeeze(-1)  # [B, M]
        choices = (self.times > 0).to(left.dtype) @ left.unsqueeze(-1)
        startable = choices.squeeze(-1) / self.real.sum(-1, keepdim=True)
        return self._machines(state["busy_until"] - state["time"].unsqueeze(-1), load, startable)

    def _machines(self, busy: Tensor, load: Tensor, choices: Tensor) -> Tensor:
        """`[..., M]` each → `[..., M, F]`."""
        extra = load.dim() - 2
        scale = self.scale.view(-1, *(1,) * extra, 1)  # [B, (1,) 1]
        real = self.real_machines.view(len(busy), *(1,) * extra, -1)  # [B, (1,) M]
        busy = busy.clamp_min(0.0) / scale
        features = [busy, busy <= 0, load / _MANY, choices]
        return torch.stack([f.to(load.dtype) for f in features], -1) * real.unsqueeze(-1)


@dataclasses.dataclass
class Observation:
    """What a decoder sees at the queries `[B, Q]`; K is M, or 1 if operations have one machine.

    Attributes:
        next_op: Next operation of each job `[B, Q, J]`.
        left: Jobs that have one `[B, Q, J]`.
        jobs: Features of jobs `[B, Q, J, F]`.
        machines: Features of machines `[B, Q, M, F]`.
        startable: Next operations that can start now on a machine `[B, Q, J, K]`. The P of them
            are the pairs; where finding them would take a look at the device, all are.
        pairs: Features of pairs `[P, F]`.
        pair_job: Their place among all jobs of all queries `[P]`.
        pair_machine: Their place among all machines of all queries `[P]`.
        pair_counts: 1 for pairs that can start, 0 for others `[P]`.
    """

    next_op: Tensor
    left: Tensor
    jobs: Tensor
    machines: Tensor
    startable: Tensor
    pairs: Tensor
    pair_job: Tensor
    pair_machine: Tensor
    pair_counts: Tensor

    def spread(self, scores: Tensor) -> Tensor:
        """Scores of pairs `[P]` at the places of their actions, zeros elsewhere: `[B, Q, J K]`."""
        if len(scores) == self.startable.numel():
            return scores.view(self.startable.shape).flatten(2)
        everywhere = scores.new_zeros(self.startable.shape)
        return everywhere.masked_scatter(self.startable, scores).flatten(2)


def observe(state: State, shop: Shop) -> Observation:
    """Features of all that can be decided in states with axes `[B, Q]`.

    Args:
        state: The keys :data:`STEP_KEYS` and `action_mask`.
        shop: The instances `[B]`.
    """
    next_op = state["next_op"]  # [B, Q, J]
    batch, queries, num_jobs = next_op.shape
    flat = next_op.flatten(1)  # [B, Q * J]
    scale = shop.scale.unsqueeze(-1)  # [B, 1, 1]
    now = state["time"].unsqueeze(-1)  # [B, Q, 1]
    earliest = state["earliest_start"]  # [B, Q, J(, M)]
    if shop.machine is not None:
        earliest = earliest.unsqueeze(-1)  # [B, Q, J, 1]
    can_run = earliest < torch.inf
    left = can_run.sum(-1) > 0  # [B, Q, J]

    op_times = shop.op_times.gather(-1, flat).view_as(next_op)
    end_work = shop.work.gather(-1, shop.last).unsqueeze(1)  # [B, 1, J]
    after = torch.where(left, end_work - shop.work.gather(-1, flat).view_as(next_op), 0.0)
    wait = (state["job_busy_until"] - now).clamp_min(0.0) / scale
    until_end = torch.where(left, wait + op_times + after, 0.0)
    behind = until_end - until_end.amax(-1, keepdim=True)
    jobs = [
        op_times,
        after / _MANY,
        (shop.last.unsqueeze(1) - next_op) / _MANY,
        wait,
        behind / _MANY,
        left,
    ]

    if shop.machine is None:
        times = _columns(shop.times, flat).view(batch, queries, num_jobs, -1)  # [B, Q, J, M]
    else:
        times = op_times.unsqueeze(-1)  # [B, Q, J, 1]
    delay = (earliest - now.unsqueeze(-1)).clamp_min(0.0) / scale.unsqueeze(-1)
    delay = torch.where(can_run, delay, 0.0)
    finish = torch.where(can_run, delay + times, torch.inf)
    excess = torch.where(can_run, finish - finish.amin(-1, keepdim=True), 0.0)
    startable = state["action_mask"][..., 1:].unflatten(-1, (num_jobs, -1))  # [B, Q, J, K]
    counts = startable.flatten()
    which = _scored(counts)  # [P]
    pair_job = which // times.shape[-1]
    pairs = [times, delay, excess, times - op_times.unsqueeze(-1)]

    # Work that is expected on each machine: of each job from its next operation on.
    first = torch.where(left, next_op, shop.last.unsqueeze(1) + 1).flatten(1)  # [B, Q * J]
    behind_first = _columns(shop.load, first).view(batch, queries, num_jobs, -1)  # [B, Q, J, M]
    total = _columns(shop.load, shop.last + 1).sum(1)  # [B, M]
    load = total.unsqueeze(1) - behind_first.sum(2)  # [B, Q, M]
    num_machines = load.shape[-1]
    query = pair_job // num_jobs  # [P]
    if shop.machine is None:
        machine = which % num_machines
    else:
        machine = shop.machine.gather(-1, flat).flatten()[pair_job]
    pair_machine = query * num_machines + machine
    choices = torch.zeros_like(load).flatten()
    pair_counts = counts[which].to(choices.dtype)  # [P]
    choices = choices.index_add(0, pair_machine, pair_counts)
    busy = state["busy_until"] - now
    machines = shop._machines(busy, load, choices.view_as(load) / _MANY)
    return Observation(
        next_op=next_op,
        left=left,
        jobs=_stack(jobs),
        machines=machines,
        startable=startable,
        pairs=torch.stack([feature.flatten()[which] for feature in pairs], -1),
        pair_job=pair_job,
        pair_machine=pair_machine,
        pair_counts=pair_counts,
    )


def _scored(startable: Tensor) -> Tensor:
    """Places of the pairs to score: those that can start, or all, where that takes no look.

    Looking for them would make other devices than the CPU wait.
    """
    if startable.device.type == "cpu":
        return startable.nonzero().squeeze(-1)
    return torch.arange(len(startable), device=startable.device)


def _columns(table: Tensor, index: Tensor) -> Tensor:
    """Columns of tables: `[B, M, O], [B, K]` → `[B, K, M]`."""
    index = index.unsqueeze(-1).expand(*index.shape, table.shape[1])  # [B, K, M]
    return table.mT.gather(1, index)


def _stack(features: list[Tensor]) -> Tensor:
    return torch.stack([feature.to(features[0].dtype) for feature in features], -1)
