"""Schedules of job shops as start times and machines: from actions, to actions, and their check."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from copy import copy

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, InvalidSolutionError
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.scheduling import _parts as parts
from rl4co.envs.scheduling._parts import Schedule


class ShopSchedules(RL4COEnvBase):
    """Methods of job-shop environments that work on complete schedules.

    A schedule is the start `[*B, O]` and the machine `[*B, O]` of each operation.
    """

    mask_no_ops: bool

    @abstractmethod
    def _simulate(self, state: State, actions: Tensor) -> tuple[parts.Selection, parts.Timeline]:
        """The operations that actions start, and the clock before each, without stepping."""

    @abstractmethod
    def _action_of(self, state: State, job: Tensor, machine: Tensor) -> Tensor:
        """The action that starts the next operation of a job on a machine."""

    def get_schedule(self, td: TensorDictBase | Mapping[str, Tensor], actions: Tensor) -> Schedule:
        """The schedule that actions `[*B, T]` build: start, end and machine of each operation.

        Operations that the actions do not start have infinite times; padding has 0.
        """
        state = dict(td.items())
        selection, timeline = self._simulate(state, actions)
        return parts.as_schedule(state, selection, timeline.clock)

    def check_schedule(
        self,
        td: TensorDictBase | Mapping[str, Tensor],
        start_times: Tensor,
        machines: Tensor | None = None,
        finish_times: Tensor | None = None,
    ) -> None:
        """Raises :class:`InvalidSolutionError` naming the constraint that a schedule violates.

        Args:
            td: Instances or states with batch `[*B]`.
            start_times: When each operation starts `[*B, O]`; padding is not read.
            machines: Machine of each operation `[*B, O]`; may be left out in JSSP.
            finish_times: When each operation ends `[*B, O]`, to check the processing times too.
        """
        instance = dict(td.items())
        assigned = self._assigned_machines(instance, start_times, machines)
        violations = parts.schedule_violations(instance, start_times, assigned, finish_times)
        for constraint, violated in violations.items():
            where = violated.flatten().nonzero().flatten().tolist()
            if where:
                raise InvalidSolutionError(constraint, where, violated.numel())

    def actions_from_schedule(
        self,
        td: TensorDictBase,
        start_times: Tensor,
        machines: Tensor | None = None,
    ) -> Tensor:
        """Actions that build a given schedule, for example that of a classical solver.

        Operations are started in the order of their start times, on their machines, and as soon as
        they can: a semi-active schedule is reproduced exactly, any other one is shifted to the
        left, so the makespan never grows (and stays equal if the schedule is optimal).

        Args:
            td: Instances or states with batch `[*B]`.
            start_times: When each operation starts `[*B, O]`; padding is not read.
            machines: Machine of each operation `[*B, O]` (integers); may be left out in JSSP.

        Returns:
            Actions `[*B, T]` for :meth:`get_reward`; shorter solutions end in zeros.

        Raises:
            InvalidSolutionError: The schedule breaks a constraint.
        """
        self.check_schedule(td, start_times, machines)
        waiting_env = copy(self)  # a schedule may wait where agents may not
        waiting_env.mask_no_ops = False
        state = dict(self.reset(td.select(*self.instance_shapes)).items())
        assigned = self._assigned_machines(state, start_times, machines)
        begin = torch.where(state["pad_mask"], torch.inf, start_times.double())
        order = begin.argsort(dim=-1, stable=True)  # [*B, O]
        position = torch.zeros_like(state["i"])
        actions: list[Tensor] = []
        while not state["done"].all():
            op = order.gather(-1, position)  # [*B, 1]
            job = state["ops_job_map"].gather(-1, op)
            start = self._action_of(state, job, assigned.gather(-1, op))
            allowed = state["action_mask"].gather(-1, start) & ~state["done"]
            actions.append(torch.where(allowed, start, 0).squeeze(-1))
            position = (position + allowed).clamp_max(order.shape[-1] - 1)
            state = waiting_env.advance(state, actions[-1])
        return torch.stack(actions, -1)

    def _assigned_machines(
        self, instance: Mapping[str, Tensor], start_times: Tensor, machines: Tensor | None
    ) -> Tensor:
        """The machines of a schedule, after a check of its shapes."""
        shape = instance["pad_mask"].shape
        if machines is None:
            machines = self._only_machines(instance)
        for key, value in {"start_times": start_times, "machines": machines}.items():
            if value.shape != shape:
                raise ConfigError(
                    f"expected {key} of shape {list(shape)}, one for each operation, "
                    f"got {list(value.shape)}"
                )
        return machines.long()

    def _only_machines(self, instance: Mapping[str, Tensor]) -> Tensor:
        raise ConfigError(
            f"expected the machine of each operation for a schedule of {self.name}, got None; "
            "give machines"
        )
