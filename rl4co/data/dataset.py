"""Data sets of TensorDicts and the loader that fetches a batch by one index operation.

- :class:`TensorDictDataset`: instances in memory (validation, test, training from a file).
- :class:`ExtraKeyDataset`: one of these with another key on top (a baseline's values, say).
- :class:`GeneratedDataset`: training instances made batch by batch; holds no data at all.
- :func:`make_dataloader`: a `DataLoader` for any of them, sharded over the ranks of a distributed
  run. It brings its own sharding, so a Lightning trainer needs `use_distributed_sampler=False`.
"""

from __future__ import annotations

import math
import sys

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from rl4co.core.errors import ConfigError
from rl4co.core.rng import derive_generator, derive_seed, draw_seed

#: How workers start. Importing TorchRL makes "spawn" the default, with which every worker of every
#: epoch imports everything again (seconds). Forking is torch's own default on Linux; elsewhere it
#: is unsafe or missing.
_WORKER_START = "fork" if sys.platform == "linux" else None


class InstanceGenerator(Protocol):
    """A function that generates instances for :class:`GeneratedDataset`."""

    def __call__(self, batch_size: int, rng: torch.Generator | None = None) -> TensorDict:
        """A batch of instances."""
        ...


class TensorDictDataset(Dataset[TensorDict]):
    """Instances in memory.

    Args:
        td: Instances with at least one batch axis; kept by reference, never modified.
    """

    def __init__(self, td: TensorDictBase) -> None:
        if not isinstance(td, TensorDictBase) or not td.batch_dims:
            got = "batch size []" if isinstance(td, TensorDictBase) else type(td).__name__
            raise ConfigError(f"expected a TensorDict with a batch axis, got {got}")
        self.data = td

    def __len__(self) -> int:
        return self.data.batch_size[0]

    def __getitem__(self, index: int | Sequence[int] | slice | Tensor) -> TensorDict:
        """One instance for an integer, a batch for a list, slice or tensor of indices."""
        return self.data[index]

    def __getitems__(self, indices: Sequence[int]) -> TensorDict:
        """A batch of instances by one index operation; `DataLoader` calls this if it exists."""
        return self[list(indices)]

    def add_key(self, key: str, value: Tensor) -> ExtraKeyDataset:
        """The same instances with another key; this data set is not changed."""
        return ExtraKeyDataset(self, value, key)

    @staticmethod
    def collate_fn(batch: TensorDict | list[TensorDict]) -> TensorDict:
        """The batch itself if it was fetched as one, otherwise the stacked instances."""
        return torch.stack(batch) if isinstance(batch, list) else batch


class ExtraKeyDataset(TensorDictDataset):
    """A data set with one more key.

    Args:
        dataset: The data set to extend; not changed.
        extra: Values, one row per instance.
        key_name: Key of the values.
    """

    def __init__(self, dataset: TensorDictDataset, extra: Tensor, key_name: str = "extra") -> None:
        if extra.dim() == 0 or len(extra) != len(dataset):
            raise ConfigError(
                f"expected one row of {key_name!r} for each of {len(dataset)} instances, got a "
                f"tensor of shape {list(extra.shape)}"
            )
        # A shallow copy shares the tensors but not the set of keys.
        super().__init__(dataset.data.copy().set(key_name, extra))
        self.key_name = key_name


@dataclass(frozen=True)
class GeneratedDataset(Dataset[TensorDict]):
    """The training instances of one epoch, generated batch by batch when asked for.

    Item `i` is the `i`-th batch. It is a function of `(seed, epoch, i, rank)` alone, so
    workers, restarts and the order of access do not change it, and memory does not grow with
    `size`.

    Args:
        generator: Makes the instances.
        size: Instances of an epoch, all ranks together.
        batch_size: Instances of a batch, per rank.
        seed: Seed of the run.
        epoch: Number of the epoch.
        rank: Rank of this process.
        world_size: Number of processes. All get the same number of batches.
    """

    generator: InstanceGenerator
    size: int
    batch_size: int
    seed: int = 0
    epoch: int = 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        _check_shard(self.size, self.batch_size, self.rank, self.world_size)

    def __len__(self) -> int:
        return _num_batches(self.size, self.batch_size, self.world_size)

    def __getitem__(self, index: int) -> TensorDict:
        """The `index`-th batch."""
        if not 0 <= index < len(self):
            raise IndexError(f"expected a batch index below {len(self)}, got {index}")
        start, stop = _batch_bounds(index, self.size, self.batch_size, self.rank, self.world_size)
        rng = derive_generator(self.seed, self.epoch, index, self.rank)
        return self.generator(stop - start, rng=rng)


class ShardedBatchSampler(Sampler[list[int]]):
    """Lists of indices, one per batch, for one rank of a distributed run.

    The ranks get disjoint contiguous parts of the (shuffled) data set that together cover it. All
    get the same number of batches, because a rank that runs out of batches early makes the other
    ranks wait for ever; where sizes do not divide, batches are smaller rather than padded with
    repeated instances (but a rank with fewer instances than batches, which happens at batch
    size 1 only, has to repeat one).

    Args:
        size: Number of instances in the data set.
        batch_size: Largest number of instances in a batch, per rank.
        shuffle: Whether to permute the instances, differently in each epoch.
        seed: Seed of the permutations; None draws one from torch's global generator in each epoch
            (not with several ranks, which could not agree on it).
        rank: Rank of this process.
        world_size: Number of processes.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        _check_shard(size, batch_size, rank, world_size)
        if shuffle and seed is None and world_size > 1:
            raise ConfigError(
                "expected a seed to shuffle a data set in several processes, got None; "
                "pass the same seed in all of them"
            )
        self.size, self.batch_size, self.shuffle, self.seed = size, batch_size, shuffle, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the permutation; Lightning calls this at the start of each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return _num_batches(self.size, self.batch_size, self.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        for index in range(len(self)):
            start, stop = _batch_bounds(
                index, self.size, self.batch_size, self.rank, self.world_size
            )
            yield order[start:stop].tolist()

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(self.size)
        seed = draw_seed() if self.seed is None else self.seed
        return torch.randperm(self.size, generator=derive_generator(seed, "shuffle", self.epoch))


def make_dataloader(
    dataset: TensorDictDataset | GeneratedDataset,
    batch_size: int | None = None,
    shuffle: bool = False,
    num_workers: int = 0,
    *,
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> DataLoader[TensorDict]:
    """A loader whose batches are TensorDicts fetched by one index operation.

    Args:
        dataset: Instances in memory, or generated ones, which bring their own batches and shard.
        batch_size: Instances of a batch, per rank; not used for a :class:`GeneratedDataset`.
        shuffle: Whether to shuffle the instances in each epoch.
        num_workers: Worker processes.
        seed: Seed of the shuffling, see :class:`ShardedBatchSampler`.
        rank: Rank of this process.
        world_size: Number of processes.
    """
    sampler: Sampler[Any] | range
    if isinstance(dataset, GeneratedDataset):
        if shuffle or batch_size not in (None, dataset.batch_size):
            raise ConfigError(
                f"expected generated batches as they are (batch_size={dataset.batch_size}, "
                f"shuffle=False), got batch_size={batch_size}, shuffle={shuffle}"
            )
        sampler = range(len(dataset))
    elif batch_size is None:
        raise ConfigError("expected a batch_size for a data set in memory, got None")
    else:
        sampler = ShardedBatchSampler(len(dataset), batch_size, shuffle, seed, rank, world_size)
    # The sampler's items are batches, hence batch_size=None. A loader draws the seed of its
    # workers even if it has none; with a generator of its own it leaves the global one alone.
    worker_seed = torch.Generator().manual_seed(derive_seed("workers", seed or 0, rank))
    return DataLoader(
        dataset,
        batch_size=None,
        sampler=sampler,
        num_workers=num_workers,
        collate_fn=_identity,
        generator=worker_seed,
        multiprocessing_context=_WORKER_START if num_workers else None,
    )


def _identity(batch: TensorDict) -> TensorDict:
    return batch


def _check_shard(size: int, batch_size: int, rank: int, world_size: int) -> None:
    if batch_size < 1:
        raise ConfigError(f"expected batch_size >= 1, got {batch_size}")
    if not 0 <= rank < world_size:
        raise ConfigError(f"expected 0 <= rank < world_size, got {rank} and {world_size}")
    if size < world_size:
        raise ConfigError(
            f"expected at least one instance for each of {world_size} processes, got {size}"
        )


def _num_batches(size: int, batch_size: int, world_size: int) -> int:
    """Batches of every rank: as many as the largest shard needs."""
    return math.ceil(math.ceil(size / world_size) / batch_size)


def _batch_bounds(
    index: int, size: int, batch_size: int, rank: int, world_size: int
) -> tuple[int, int]:
    """First and last-plus-one position of a rank's batch `index` in the data set."""
    first, last = rank * size // world_size, (rank + 1) * size // world_size
    num_batches = _num_batches(size, batch_size, world_size)

    def start(k: int) -> int:
        # Full batches, but one instance must be left for each batch that follows.
        return max(first, min(first + k * batch_size, last - (num_batches - k)))

    return start(index), max(start(index + 1), start(index) + 1)
