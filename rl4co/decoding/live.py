"""Instances that a decode loop drops when all of their solutions are finished."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch import Tensor

from rl4co.envs.base import State

#: Called with positions `[B']` among the instances before: the others are not looked at any more.
NarrowFn = Callable[[Tensor], None]

#: One in so many instances must be finished before the others go on without them.
_SHARE = 8


class LiveInstances:
    """Which instances a decode loop still computes, and what becomes of the others.

    Args:
        state: Initial state with axes `[B, S]`.

    Attributes:
        rows: Positions in the batch of those that are left `[B']`.
        padding: Action that a dropped solution repeats `[B, S]`.
    """

    def __init__(self, state: State) -> None:
        mask = state["action_mask"]
        self.rows = torch.arange(len(mask), device=mask.device)
        self.padding = torch.zeros(mask.shape[:2], dtype=torch.int64, device=mask.device)
        self._phases: list[tuple[int, Tensor]] = []  # from which step on only these were left

    def drop_finished(self, state: State, step: int, narrow: NarrowFn) -> State:
        """The state of the instances with unfinished solutions, if the others are many enough."""
        finished = state["done"].flatten(1).all(1)  # [B']
        count = int(finished.sum())
        if count == 0 or count * _SHARE < len(finished):
            return state
        waiting = state["action_mask"][finished].view(torch.uint8).argmax(-1)  # [dropped, S]
        self.padding[self.rows[finished]] = waiting
        left = (~finished).nonzero().squeeze(-1)
        self.rows = self.rows[left]
        self._phases.append((step, self.rows))
        narrow(left)
        return {key: _select(value, left) for key, value in state.items()}

    def restore(self, values: list[Tensor], dropped: Tensor) -> list[Tensor]:
        """Each step's values of all instances `[B, S]`; those of `dropped` where there are none."""
        whole = list(values)
        for (first, rows), end in zip(self._phases, self._ends(len(values)), strict=True):
            for step in range(first, end):
                whole[step] = dropped.to(values[step].dtype).index_copy(0, rows, values[step])
        return whole

    def _ends(self, steps: int) -> list[int]:
        """Steps at which the phases end."""
        return [min(first, steps) for first, _ in self._phases[1:]] + [steps] * bool(self._phases)


def _select(value: Tensor, rows: Tensor) -> Tensor:
    """Some instances of a tensor with axes `[B, S]`; what all solutions share stays shared."""
    if value.stride(1) == 0:
        return value[:, 0][rows].unsqueeze(1).expand(-1, value.shape[1], *value.shape[2:])
    return value[rows]
