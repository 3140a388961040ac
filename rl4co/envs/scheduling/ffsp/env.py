"""Flexible Flow Shop Problem."""

from __future__ import annotations

import itertools
import math

from collections.abc import Mapping
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import all_true, any_true, batchify
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.generator import Generator
from rl4co.envs.scheduling.ffsp.generator import FFSPGenerator
from rl4co.envs.scheduling.ffsp.questions import (
    NEVER,
    count_machines,
    fresh,
    next_question,
    stage_goes_on,
)
from rl4co.envs.scheduling.ffsp.schedule import (
    Schedule,
    check_schedule,
    follow_schedule,
    left_shift,
    trace_schedule,
)


@ENVS.register("ffsp")
class FFSPEnv(RL4COEnvBase):
    """Flexible flow shop: jobs pass S stages in order, on one of the M machines of each stage.

    Paper: Kwon et al. (2021), https://arxiv.org/abs/2106.11113.

    An instance has integer processing times `run_time [J, P]` of J jobs on the P = S · M machines
    of all stages; machine m of stage s is column s · M + m.

    Machines are asked one by one which job they start now. A machine is asked when it is free and
    some job waits at its stage; the order is that of `machine_table`, stage after stage. When all
    have been asked, the clock moves on. Action j starts job j, action J waits: the machine is asked
    again when the next job anywhere has been finished. (In the paper it is asked again one unit of
    time later. Nothing has happened by then, so a start at that time could as well have been
    earlier; and the number of steps would grow with the processing times. Without a wait, both
    count the same steps.)

    A machine may wait if another job will come to its stage. This is the rule of the paper. It
    leaves out some schedules, even optimal ones: a slow machine must take the last job although a
    fast one is about to be free. Other orders of machines (:meth:`permute_machines`) reach other
    schedules; with `free_waiting` every schedule without needless delay can be constructed.
    Solutions that wait more often than the mask allows are valid.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `run_time` | int64 | `[*B, J, P]` | processing times |
        | `job_duration` | int64 | `[*B, J+1, P]` | the same, and zeros for waiting |
        | `machine_table` | int64 | `[*B, P]` | machines in the order in which they are asked |
        | `stage_machine_table` | int64 | `[*B, P]` | their numbers for policies |
        | `time_idx` | int64 | `[*B]` | the clock |
        | `sub_time_idx` | int64 | `[*B]` | place in `machine_table` of the machine that is asked |
        | `machine_idx` | int64 | `[*B]` | that machine |
        | `stage_idx` | int64 | `[*B]` | its stage |
        | `stage_machine_idx` | int64 | `[*B]` | its number for policies |
        | `machine_wait_step` | int64 | `[*B, P]` | time until each machine is free |
        | `job_location` | int64 | `[*B, J+1]` | stages each job has begun; the last entry is S |
        | `job_wait_step` | int64 | `[*B, J+1]` | time until its operation ends; at the last, 0 |
        | `job_ready_time` | int64 | `[*B, J+1]` | when it ends, or has ended; 0 before the first |
        | `schedule` | int64 | `[*B, S, J+1]` | start of each job in each stage, else 0 |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, J+1]` | jobs that can be started; waiting |

    Constraints:
        Every job passes every stage exactly once; it starts in a stage when it has left the one
        before. That a machine processes one job at a time is part of the encoding: only free
        machines are asked.

    Finish condition:
        Every job has begun the last stage; finished instances wait, and their clock stands still.

    Reward:
        Minus the makespan, the time at which the last job is finished.

    Args:
        generator: See :class:`RL4COEnvBase`.
        generator_params: See :class:`RL4COEnvBase`.
        num_stage: Number of stages S; None takes that of the generator.
        flatten_stages: Whether the numbers of machines in `stage_machine_idx` are distinct over all
            stages (0 ... P - 1), for policies that see all machines at once, or count anew in each
            stage (0 ... M - 1), for policies with a network per stage. None: as the generator says.
        free_waiting: Whether a machine may also wait for another machine of its stage.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "ffsp"
    generator_cls = FFSPGenerator
    instance_shapes = {"run_time": "j p"}

    def __init__(
        self,
        generator: Generator | None = None,
        generator_params: Mapping[str, Any] | None = None,
        *,
        num_stage: int | None = None,
        flatten_stages: bool | None = None,
        free_waiting: bool = False,
        **kwargs: Any,
    ) -> None:
        if generator is None:
            generator, generator_params = self.generator_cls(**(generator_params or {})), None
        stages = getattr(generator, "num_stage", None) if num_stage is None else num_stage
        if not isinstance(stages, int) or stages < 1:
            raise ConfigError(
                f"expected num_stage to be an integer >= 1, got {stages!r}; give it to the "
                "environment if the generator does not have it"
            )
        self.num_stage: int = stages
        self.flatten_stages = (
            getattr(generator, "flatten_stages", True) if flatten_stages is None else flatten_stages
        )
        self.free_waiting = free_waiting
        super().__init__(generator, generator_params, **kwargs)

    def _init_state(self, instance: State) -> State:
        run_time = instance["run_time"]
        batch, (num_jobs, num_machines) = run_time.shape[:-2], run_time.shape[-2:]
        like: dict[str, Any] = {"dtype": torch.int64, "device": run_time.device}
        job_location = torch.zeros(*batch, num_jobs + 1, **like)
        job_location[..., -1] = self.num_stage
        zeros = torch.zeros(batch, **like)
        per_stage = num_machines // self.num_stage
        table = torch.arange(num_machines, device=run_time.device).expand(*batch, -1)  # [*B, P]
        return {
            "run_time": run_time,
            "job_duration": torch.cat(
                [run_time, torch.zeros_like(run_time[..., :1, :])], -2
            ),  # [*B, J + 1, P]
            "machine_table": table,
            "stage_machine_table": table if self.flatten_stages else table % per_stage,
            "time_idx": zeros,
            "sub_time_idx": zeros,
            "machine_idx": zeros,
            "stage_idx": zeros,
            "stage_machine_idx": zeros,
            "machine_wait_step": torch.zeros(*batch, num_machines, **like),
            "job_location": job_location,
            "job_wait_step": torch.zeros(*batch, num_jobs + 1, **like),
            "job_ready_time": torch.zeros(*batch, num_jobs + 1, **like),
            "schedule": torch.zeros(*batch, self.num_stage, num_jobs + 1, **like),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        num_machines, (num_stages, rows) = count_machines(state), state["schedule"].shape[-2:]
        waiting = rows - 1
        # Finished instances wait, whatever they are told.
        job = torch.where(state["done"], waiting, action.unsqueeze(-1))  # [*B, 1]
        machine = state["machine_idx"].unsqueeze(-1)
        duration = state["job_duration"].flatten(-2).gather(-1, job * num_machines + machine)
        starts, now = job != waiting, state["time_idx"].unsqueeze(-1)
        place = state["stage_idx"].unsqueeze(-1) * rows + job  # in the flat schedule
        location = state["job_location"].scatter_add(-1, job, starts.long())
        ready = state["job_ready_time"].scatter(-1, job, starts * (now + duration))
        job_wait = (ready - now).clamp_min(0)
        # A machine that is asked has no time to wait: adding is setting.
        machine_wait = state["machine_wait_step"].scatter_add(-1, machine, duration)
        done = state["done"] | all_true(location >= num_stages)
        delay, position = next_question(state, location, job_wait, machine_wait, done)
        return {
            "time_idx": (now + delay).squeeze(-1),
            "sub_time_idx": position.squeeze(-1),
            "machine_idx": state["machine_table"].gather(-1, position).squeeze(-1),
            "stage_idx": position.squeeze(-1) // (num_machines // num_stages),
            "stage_machine_idx": state["stage_machine_table"].gather(-1, position).squeeze(-1),
            "machine_wait_step": (machine_wait - delay).clamp_min(0),
            "job_location": location,
            "job_wait_step": (job_wait - delay).clamp_min(0),
            "job_ready_time": ready,
            "schedule": state["schedule"]
            .flatten(-2)
            .scatter(-1, place, starts * now)
            .unflatten(-1, (num_stages, rows)),  # [*B, S, J + 1]
            "done": done,
        }

    def _action_mask(self, state: State) -> Tensor:
        stage = state["stage_idx"].unsqueeze(-1)  # [*B, 1]
        location = state["job_location"][..., :-1]  # [*B, J]
        available = (location == stage) & (state["job_wait_step"][..., :-1] == 0)
        to_come = (location <= stage) & ~available
        may_wait = state["done"] | any_true(to_come)
        if self.free_waiting:
            may_wait = may_wait | stage_goes_on(state)
        return torch.cat([available, may_wait], -1)  # [*B, J + 1]

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        walker = fresh(state)
        for action in actions.unbind(-1):
            walker.update(self._transition(walker, action))
        return -walker["job_ready_time"].amax(-1).to(torch.float32)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        num_stages, num_jobs = state["schedule"].shape[-2], state["run_time"].shape[-2]
        times = torch.zeros_like(state["job_location"]).scatter_add(
            -1, actions, torch.ones_like(actions)
        )[..., :num_jobs]  # [*B, J], how often each job is started
        schedule = self.get_schedule(state, actions)
        return {
            "every job passes every stage exactly once": (times != num_stages).any(-1),
            "a job starts in a stage when it has left the one before": schedule.premature.any(-1),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        run_time = instance["run_time"]
        uneven = run_time.shape[-1] % self.num_stage != 0
        return {
            "run_time has the same number of machines in each of the environment's num_stage "
            "stages": torch.full(run_time.shape[:-2], uneven, device=run_time.device),
            "run_time is positive": (run_time <= 0).flatten(-2).any(-1),
            f"run_time is below {NEVER} (choose another unit)": (run_time >= NEVER)
            .flatten(-2)
            .any(-1),
        }

    def _fault_place(self, instance: State) -> str:
        """The first operation that takes no time."""
        run_time = instance["run_time"].reshape(-1, *instance["run_time"].shape[-2:])  # [B, J, P]
        wrong = (run_time <= 0).nonzero()
        if not len(wrong):
            return ""
        row, job, machine = wrong[0].tolist()
        stage = machine // max(run_time.shape[-1] // self.num_stage, 1)
        return (
            f"; the operation of job {job} in stage {stage} takes "
            f"{int(run_time[row, job, machine])} on machine {machine} in instance {row}"
        )

    def step_bounds(self, state: State) -> tuple[int, int]:
        """An action for each job and stage; and each machine waits once after each job at most."""
        num_stages, num_jobs = state["schedule"].shape[-2], state["run_time"].shape[-2]
        num_machines, starts = count_machines(state), num_stages * num_jobs
        if self.free_waiting:
            return starts, starts * (1 + num_machines)
        # Machines of the first stage never wait, those of others only after a first job.
        later_machines = num_machines - num_machines // num_stages
        return starts, starts + (starts - 1) * later_machines

    def _count_starts(self, state: State) -> int:
        return state["run_time"].shape[-2]

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        jobs = torch.arange(num_starts, device=state["run_time"].device)
        return jobs.expand(*state["run_time"].shape[:-2], num_starts)  # [*B, S]

    # ---------------------------------------------------------------- orders of machines

    def order_machines(self, state: State) -> State:
        """A fresh state in which each solution asks machines in another order.

        The orders are the permutations of the machines of a stage, used in all stages alike, as in
        Kwon et al. (2021), who take all 24 of 4 machines as the starts of POMO. The first is the
        numerical one. As the order is part of the state, rewards of the actions that follow must be
        asked of this state (or of one that was permuted in the same way).

        Args:
            state: After reset, with an axis of solutions: `[*B, S]`, S at most M!.

        Returns:
            The state with other `machine_table`, `stage_machine_table`, `machine_idx` and
            `stage_machine_idx`.
        """
        batch, num_machines = state["machine_table"].shape[:-1], count_machines(state)
        num_stages = state["schedule"].shape[-2]
        per_stage = num_machines // num_stages
        if not batch or batch[-1] > math.factorial(per_stage):
            raise ConfigError(
                f"expected an axis of 1 to {math.factorial(per_stage)} solutions, one for each "
                f"order of {per_stage} machines, got batch {list(batch)}"
            )
        orders = list(itertools.islice(itertools.permutations(range(per_stage)), batch[-1]))
        device = state["machine_table"].device
        order = torch.tensor(orders, device=device).repeat(1, num_stages)  # [S, P]
        first = torch.arange(0, num_machines, per_stage, device=device)
        table = order + first.repeat_interleave(per_stage)
        tables = {
            "machine_table": table.expand(*batch, -1),
            # The number for policies is the machine's, or that within its stage.
            "stage_machine_table": state["stage_machine_table"].gather(
                -1, table.expand(*batch, -1)
            ),
        }
        return {
            **state,
            **tables,
            "machine_idx": tables["machine_table"][..., 0],
            "stage_machine_idx": tables["stage_machine_table"][..., 0],
        }

    def permute_machines(self, td: TensorDictBase, num_starts: int | None = None) -> TensorDict:
        """Fresh states repeated with different orders of machines, see :meth:`order_machines`.

        Args:
            td: State after reset, batch `[B]`.
            num_starts: Number of orders; None takes all M!.

        Returns:
            Batch `[S * B]`, row `s * B + b` is instance b with order s.
        """
        if bool((td["i"] > 0).any()):
            raise ConfigError("expected a state after reset, got one with steps behind it")
        per_stage = td["run_time"].shape[-1] // td["schedule"].shape[-2]
        count = math.factorial(per_stage) if num_starts is None else num_starts
        rows = batchify(td, count)  # [S * B]
        # [S * B, ...] -> [B, S, ...]
        state = {
            key: value.unflatten(0, (count, -1)).transpose(0, 1) for key, value in rows.items()
        }
        permuted = {
            key: value.transpose(0, 1).flatten(0, 1)
            for key, value in self.order_machines(state).items()
        }
        return TensorDict(permuted, batch_size=rows.batch_size, device=td.device)

    # ---------------------------------------------------------------- schedules

    def get_schedule(self, td: TensorDictBase | Mapping[str, Tensor], actions: Tensor) -> Schedule:
        """What solutions mean: when which job runs on which machine.

        Args:
            td: State or reset instances with batch `[*B]`.
            actions: `[*B, T]`.
        """
        num_stages = td["schedule"].shape[-2]
        return trace_schedule(td["run_time"], td["machine_table"], num_stages, actions)

    def actions_from_schedule(
        self, td: TensorDictBase | Mapping[str, Tensor], start_times: Tensor, machines: Tensor
    ) -> Tensor:
        """The actions that lead to given schedules.

        Operations that could begin earlier without a change of the order on any machine do so, as
        the environment knows no needless delay. Waits are inserted also where the mask forbids
        them, see the class docstring.

        Args:
            td: State after reset with batch `[*B]`.
            start_times: Start of each job in each stage `[*B, J, S]`.
            machines: Its machine `[*B, J, S]`, numbered over all stages.

        Returns:
            Actions `[*B, T]`; shorter solutions end with waits.

        Raises:
            InvalidSolutionError: A schedule breaks a constraint.
        """
        check_schedule(td["run_time"], start_times, machines, td["schedule"].shape[-2])
        early = left_shift(td["run_time"], start_times, machines)
        return follow_schedule(self, fresh(dict(td.items())), early, machines)
