"""Memory of single transitions between two updates of a stepwise method, on TorchRL's buffers.

What belongs to an instance and never changes (coordinates, processing times) is kept once per
instance, not once per step: a transition holds the number of its instance. This file is the only
one beside the environments that knows TorchRL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.errors import ConfigError

#: Key of a transition: the number of its instance.
INSTANCE = "instance"


class TransitionBuffer:
    """Transitions of the batches since the last update.

    Args:
        capacity: Most transitions to hold. On-policy methods must not lose any, so more are an
            error.
        device: Device that holds them; None: where they come from.
    """

    def __init__(self, capacity: int, device: torch.device | str | None = None) -> None:
        if capacity < 1:
            raise ConfigError(f"expected a buffer_size of at least 1, got {capacity}")
        self.capacity, self.device = capacity, device
        self._storage: Any = None
        self._shapes: dict[str, Any] = {}
        self._instances: list[TensorDict] = []

    def __len__(self) -> int:
        return 0 if self._storage is None else len(self._storage)

    def add(self, transitions: Mapping[str, Tensor], instances: Mapping[str, Tensor]) -> None:
        """Adds the transitions of a batch.

        Args:
            transitions: `[R, ...]`, with the row of its instance under :data:`INSTANCE`.
            instances: `[B, ...]`, what all transitions of an instance share.
        """
        rows = transitions[INSTANCE]
        if len(self) + len(rows) > self.capacity:
            raise ConfigError(
                f"expected at most buffer_size = {self.capacity} transitions between two updates, "
                f"got {len(self) + len(rows)}; raise buffer_size, or lower batch_size or "
                "update_timestep"
            )
        offset = sum(len(earlier) for earlier in self._instances)
        new = TensorDict({**transitions, INSTANCE: rows + offset}, batch_size=[len(rows)])
        batch_size = [len(next(iter(instances.values())))] if instances else [0]
        self._instances.append(TensorDict(dict(instances), batch_size=batch_size).to(self.device))
        shapes = {key: (value.shape[1:], value.dtype) for key, value in new.items()}
        if self._storage is None or shapes != self._shapes:
            if len(self):
                raise ConfigError(
                    f"expected transitions like {self._shapes} until the next update, got "
                    f"{shapes}; set update_timestep to 1 for instances of several sizes"
                )
            self._storage, self._shapes = _new_storage(self.capacity, self.device), shapes
        self._storage.extend(new)

    def get(self, rows: Tensor, device: torch.device) -> TensorDict:
        """Transitions `[R]` with the full state, on `device`."""
        batch = self._storage[rows.to(self.device) if self.device is not None else rows]
        if len(self._instances) > 1:
            self._instances = [torch.cat(self._instances)]
        (instances,) = self._instances
        owner = batch[INSTANCE]
        state = {key: value[owner] for key, value in instances.items()}
        moving = {key: value for key, value in batch.items() if key not in (INSTANCE, "index")}
        return TensorDict({**state, **moving}, batch_size=[len(rows)]).to(device)

    def clear(self) -> None:
        """Forgets everything; the memory is kept for the next batch."""
        self._instances = []
        if self._storage is not None:
            self._storage.empty()

    #: The same as :meth:`clear`.
    empty = clear

    # ---------------------------------------------------------------- checkpoints

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Plain tensors; empty after an update."""
        if not len(self):
            return {}
        held: TensorDict = self._storage[:]
        instances: Any = torch.cat(self._instances)
        return {
            "transitions": {k: v.cpu().clone() for k, v in held.items() if k != "index"},
            "instances": {k: v.cpu() for k, v in instances.items()},
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]], device: Any) -> None:
        """From :meth:`state_dict`; tensors are put on `device` before they are added."""
        self.clear()
        if state:
            parts = (
                {key: value.to(device) for key, value in state[name].items()}
                for name in ("transitions", "instances")
            )
            self.add(*parts)


def _new_storage(capacity: int, device: torch.device | str | None) -> Any:
    # Importing TorchRL's buffers is slow.
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    storage = LazyTensorStorage(capacity, device="auto" if device is None else device)
    return TensorDictReplayBuffer(storage=storage, batch_size=1)
