"""Loaders as Lightning sees them.

They are not `DataLoader` objects: Lightning rebuilds those (to shard them, to overfit) and does not
know that an item of the library's samplers is a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensordict import TensorDict
from torch.utils.data import DataLoader


class EvalLoader:
    """The batches of a data set, in order.

    Args:
        loader: Loader of these batches.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader, self.dataset = loader, loader.dataset

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[TensorDict]:
        return iter(self.loader)


class TrainLoader:
    """Training batches from wherever the trainer is: its epoch, its next batch.

    Lightning makes the iterator of an epoch before a resumed run knows how far it had come, and it
    makes a loader once unless it is told to reload. So this one asks for the position when the
    first batch is fetched, not earlier: an epoch never repeats the data of another one, and a run
    resumed in the middle of an epoch goes on with exactly the batch that was next.

    Args:
        make: Epoch → loader of all batches of that epoch; its sampler must list them in order.
        position: () → epoch and index of the next batch.
        num_batches: Batches of an epoch.
    """

    def __init__(
        self,
        make: Callable[[int], DataLoader[Any]],
        position: Callable[[], tuple[int, int]],
        num_batches: int,
    ) -> None:
        self._make, self._position, self._num_batches = make, position, num_batches

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[TensorDict]:
        # A generator: none of this runs before the first batch is asked for.
        epoch, first = self._position()
        yield from skip_batches(self._make(epoch), first)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the position is the trainer's.

        That there is a state at all tells Lightning that a restart within an epoch is all right.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to do, see :meth:`state_dict`."""


def skip_batches(loader: DataLoader[Any], first: int) -> DataLoader[Any]:
    """A loader of the batches from `first` on; those before are not even made.

    Args:
        loader: Loader whose sampler gives one item per batch (`batch_size=None`).
        first: Index of the first batch to keep.
    """
    if first == 0:
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=None,
        sampler=list(loader.sampler)[first:],
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        generator=loader.generator,
        multiprocessing_context=loader.multiprocessing_context,
    )
