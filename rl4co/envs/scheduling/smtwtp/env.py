"""Single Machine Total Weighted Tardiness Problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import all_true
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.generator import Generator
from rl4co.envs.scheduling.smtwtp.generator import SMTWTPGenerator


@ENVS.register("smtwtp")
class SMTWTPEnv(RL4COEnvBase):
    """Single machine total weighted tardiness: the order of jobs that is least late.

    Paper: DeepACO (Ye et al., 2023), https://arxiv.org/abs/2309.14032.

    J jobs run one after another, from time 0 and without a pause. An instance has
    `job_due_time [J + 1]`, `job_weight [J + 1]` and `job_process_time [J + 1]`; entry 0 of each is
    0 and belongs to a dummy job, from which a solution sets out. Action j runs job j next.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `job_due_time` | float32 | `[*B, N]` | due times, N = J + 1 |
        | `job_weight` | float32 | `[*B, N]` | cost of a unit of time that the job is late |
        | `job_process_time` | float32 | `[*B, N]` | processing times |
        | `visited` | bool | `[*B, N]` | jobs that have been run; True for the dummy |
        | `current_job` | int64 | `[*B]` | last job (starts at the dummy, 0) |
        | `current_time` | float32 | `[*B, 1]` | when it ended |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | jobs to run; the dummy alone once all are done |

    Constraints:
        Every job runs exactly once.

    Finish condition:
        All jobs have run.

    Reward:
        Minus the total weighted tardiness, $-\\sum_j w_j \\max(C_j - d_j, 0)$, where $C_j$ is when
        job j ends. The dummy costs nothing and takes no time.

    Args:
        generator: Source of instances.
        generator_params: Arguments of the generator.
        num_job: Number of jobs of generated instances, short for `{"num_job": ...}` in
            `generator_params`; None leaves it to them.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "smtwtp"
    generator_cls = SMTWTPGenerator
    instance_shapes = {"job_due_time": "j+1", "job_weight": "j+1", "job_process_time": "j+1"}

    def __init__(
        self,
        generator: Generator | None = None,
        generator_params: Mapping[str, Any] | None = None,
        num_job: int | None = None,
        **kwargs: Any,
    ) -> None:
        if num_job is not None:
            params = {"num_job": num_job, **(generator_params or {})}
            other_count = (
                params["num_job"] if generator is None else getattr(generator, "num_job", None)
            )
            if other_count != num_job:
                source = "generator_params" if generator is None else "generator"
                raise ConfigError(
                    f"expected num_job = {num_job!r} in {source}, too, got {other_count!r}; "
                    "give it once"
                )
            generator_params = params if generator is None else generator_params
        super().__init__(generator, generator_params, **kwargs)

    def _init_state(self, instance: State) -> State:
        times = instance["job_process_time"]
        jobs = torch.arange(times.shape[-1], device=times.device)
        return {
            **{key: instance[key] for key in self.instance_shapes},
            "visited": (jobs == 0).expand_as(times),
            "current_job": torch.zeros_like(times[..., 0], dtype=torch.int64),
            "current_time": torch.zeros_like(times[..., :1]),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        job = action.unsqueeze(-1)  # [*B, 1]
        visited = state["visited"].scatter(-1, job, True)
        # A job that has run takes no time again: whatever a finished instance is told, it is done.
        new = ~state["visited"].gather(-1, job)
        duration = state["job_process_time"].gather(-1, job) * new
        return {
            "visited": visited,
            "current_job": torch.where(state["done"].squeeze(-1), state["current_job"], action),
            "current_time": state["current_time"] + duration,
            "done": all_true(visited),
        }

    def _action_mask(self, state: State) -> Tensor:
        return torch.cat([state["done"], ~state["visited"][..., 1:]], -1)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        ends = state["job_process_time"].gather(-1, actions).cumsum(-1)  # [*B, T]
        late = (ends - state["job_due_time"].gather(-1, actions)).clamp_min(0)
        return -(state["job_weight"].gather(-1, actions) * late).sum(-1)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        times = torch.zeros_like(state["visited"], dtype=torch.int64).scatter_add(
            -1, actions, torch.ones_like(actions)
        )  # [*B, N]
        return {"every job runs exactly once": (times[..., 1:] != 1).any(-1)}

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        first = torch.stack([instance[key][..., 0] for key in self.instance_shapes], -1)  # [*B, 3]
        process = instance["job_process_time"]
        return {
            "the first entry of job_due_time, job_weight and job_process_time is 0 (put a dummy "
            "job in front)": (first != 0).any(-1),
            "there is a job besides the dummy": torch.full(
                process.shape[:-1], process.shape[-1] < 2, device=process.device
            ),
            "job_process_time is positive": (process[..., 1:] <= 0).any(-1),
            "job_weight is not negative": (instance["job_weight"] < 0).any(-1),
        }

    def _fault_place(self, instance: State) -> str:
        """The first job with a number that it cannot have."""
        for key, breaks in (("job_process_time", torch.le), ("job_weight", torch.lt)):
            jobs = instance[key].reshape(-1, instance[key].shape[-1])[:, 1:]  # [B, J]
            wrong = breaks(jobs, 0).nonzero()
            if len(wrong):
                row, job = wrong[0].tolist()
                return f"; {key} of job {job + 1} is {float(jobs[row, job]):g} in instance {row}"
        return ""

    def step_bounds(self, state: State) -> tuple[int, int]:
        """One step for each job."""
        num_jobs = state["job_weight"].shape[-1] - 1
        return num_jobs, num_jobs

    def _count_starts(self, state: State) -> int:
        return state["job_weight"].shape[-1] - 1

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        jobs = torch.arange(1, num_starts + 1, device=state["job_weight"].device)
        return jobs.expand(*state["job_weight"].shape[:-1], num_starts)  # [*B, S]

    def load_data(self, fpath: str | Path) -> TensorDict:
        """Instances from an `.npz` file, or from a text file of the OR-Library (`wt40.txt`)."""
        if Path(fpath).suffix == ".txt":
            from rl4co.data.formats.tardiness import read_weighted_tardiness

            return read_weighted_tardiness(fpath)
        return super().load_data(fpath)
