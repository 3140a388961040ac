"""What the graph problems share: a number of candidates is chosen, each at most once."""

from __future__ import annotations

from typing import ClassVar

import torch

from torch import Tensor

from rl4co.envs.base import RL4COEnvBase, State


class SelectionEnv(RL4COEnvBase):
    """Base of problems that choose k of N candidates; k may differ between instances of a batch.

    A solution is its first k actions. Instances that are finished before their batch mates repeat
    their last action; steps behind the k-th count for nothing, whatever they are.
    """

    #: What a candidate is called in messages.
    candidate: ClassVar[str]

    def _num_to_choose(self, state: State) -> Tensor:
        """Number k of candidates to choose: `[*B, 1]`, int64."""
        raise NotImplementedError

    def _cover(self, state: State, action: Tensor) -> State:
        """The keys that change when a candidate is chosen, apart from those of all selections."""
        raise NotImplementedError

    def _transition(self, state: State, action: Tensor) -> State:
        candidate = action.unsqueeze(-1)  # [*B, 1]
        done = state["i"] + 1 >= self._num_to_choose(state)
        return {
            **self._cover(state, action),
            "chosen": state["chosen"].scatter(-1, candidate, True),
            # A finished instance may choose its last candidate again, which changes nothing.
            "available": (state["available"] & ~done).scatter(-1, candidate, done),
            "done": done,
        }

    def _action_mask(self, state: State) -> Tensor:
        return state["available"]

    def _counted(self, state: State, actions: Tensor) -> Tensor:
        """The first k actions, the last of them repeated: `[*B, T]` → `[*B, T]`."""
        steps = torch.arange(actions.shape[-1], device=actions.device)
        last = self._num_to_choose(state) - 1  # [*B, 1]
        return actions.gather(-1, torch.minimum(steps, last))

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        wanted = self._num_to_choose(state)  # [*B, 1]
        counts = torch.arange(actions.shape[-1], device=actions.device) < wanted  # [*B, T]
        times = torch.zeros(state["chosen"].shape, dtype=torch.int64, device=actions.device)
        times = times.scatter_add(-1, actions, counts.long())  # [*B, N]
        return {
            f"as many {self.candidate}s are chosen as asked for": (
                wanted.squeeze(-1) > actions.shape[-1]
            ),
            f"no {self.candidate} is chosen twice": (times > 1).any(-1),
        }

    def step_bounds(self, state: State) -> tuple[int, int]:
        """From one candidate to all of them; how many it is, only the device knows."""
        return 1, state["action_mask"].shape[-1]

    def _count_starts(self, state: State) -> int:
        return state["action_mask"].shape[-1]

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        mask = state["action_mask"]
        return torch.arange(num_starts, device=mask.device).expand(*mask.shape[:-1], num_starts)


def fresh_selection(like: Tensor) -> State:
    """Nothing is chosen, everything is available; `like` is a tensor `[*B, N]`."""
    return {
        "chosen": torch.zeros(like.shape, dtype=torch.bool, device=like.device),
        "available": torch.ones(like.shape, dtype=torch.bool, device=like.device),
    }


def default_choice(num_to_choose: int | None, num_candidates: int) -> int:
    """How many to choose: as given, else 10, or half of the candidates where these are few."""
    return min(10, (num_candidates + 1) // 2) if num_to_choose is None else num_to_choose
