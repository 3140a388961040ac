"""The data of an RL algorithm: Lightning's hooks that load, generate and serve instances.

Training instances are made batch by batch from (seed, epoch, batch, rank), so memory does not
depend on the length of an epoch, and a resumed run goes on with the batch that was next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch

from tensordict import TensorDictBase
from torch.utils.data import DataLoader

from rl4co.core.errors import ConfigError
from rl4co.data.dataset import (
    GeneratedDataset,
    ShardedBatchSampler,
    TensorDictDataset,
    make_dataloader,
)
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.loader import EvalLoader, TrainLoader


class DataHooks(L.LightningModule):
    """Data sets and loaders of the environment's instances; see :class:`RL4COLitModule`."""

    env: RL4COEnvBase
    batch_size: int
    val_batch_size: int
    test_batch_size: int
    data_sizes: dict[str, int]
    shuffle_train_dataloader: bool
    dataloader_num_workers: int
    generate_default_data: bool
    run_seed: int
    _datasets: dict[str, dict[str, TensorDictDataset]]

    def prepare_data(self) -> None:
        """Writes the default data sets if asked to (in one process only)."""
        if self.generate_default_data:
            from rl4co.data.generate import write_missing_sets

            write_missing_sets(self.env)
            self._default_files()

    def load_datasets(self) -> None:
        """Loads or generates the validation and test sets."""
        if self.generate_default_data:
            files = {phase: {path.stem: path} for phase, path in self._default_files().items()}
            self.env = self.env.with_data(data_files=files)
        self._datasets = {phase: self._load(phase) for phase in ("val", "test")}

    def train_dataloader(self) -> TrainLoader:
        """Generated batch by batch, or from the environment's training files."""
        return TrainLoader(self._epoch_loader, self._position, len(self._epoch_loader(0)))

    def val_dataloader(self) -> list[EvalLoader]:
        """One loader per validation set."""
        return self._loaders("val", self.val_batch_size)

    def test_dataloader(self) -> list[EvalLoader]:
        """One loader per test set."""
        return self._loaders("test", self.test_batch_size)

    def draw_instances(self, size: int, rng: torch.Generator) -> TensorDictBase:
        """Instances like those of training: generated, or drawn from the training files."""
        if not self.env.data_files["train"]:
            return self.env.generator(size, rng=rng)
        dataset = self._training_set()
        return dataset[torch.randint(len(dataset), (size,), generator=rng)]

    def set_names(self, phase: str) -> list[str]:
        """Names of the data sets of a phase."""
        return list(self.env.data_files[phase])

    # ---------------------------------------------------------------- internals

    def _default_files(self) -> dict[str, Path]:
        """Files of phases for which the environment names none."""
        from rl4co.data.generate import default_files

        phases = [phase for phase in ("val", "test") if not self.env.data_files[phase]]
        return default_files(self.env, {phase: self.data_sizes[phase] for phase in phases})

    def _position(self) -> tuple[int, int]:
        """Epoch and batch that come next; "overfitting" means the batches of one epoch for ever."""
        epoch = 0 if getattr(self.trainer, "overfit_batches", 0) else self.current_epoch
        return epoch, self.trainer.fit_loop.batch_idx + 1

    def _epoch_loader(self, epoch: int) -> DataLoader[Any]:
        shard = {"rank": self.global_rank, "world_size": self.trainer.world_size}
        if not self.env.data_files["train"]:
            dataset = GeneratedDataset(
                self.env.generator,
                size=self.data_sizes["train"],
                batch_size=self.batch_size,
                seed=self.run_seed,
                epoch=epoch,
                **shard,
            )
            return make_dataloader(dataset, num_workers=self.dataloader_num_workers)
        loader = make_dataloader(
            self._training_set(),
            self.batch_size,
            shuffle=self.shuffle_train_dataloader,
            num_workers=self.dataloader_num_workers,
            seed=self.run_seed,
            **shard,
        )
        cast(ShardedBatchSampler, loader.sampler).set_epoch(epoch)
        return loader

    def _training_set(self) -> TensorDictDataset:
        """The instances of the environment's training files, read once; several become one set."""
        if "train" not in self._datasets:
            sets = self._load("train")
            self._datasets["train"] = {"train": self.env.dataset_cls(_join(sets))}
        return self._datasets["train"]["train"]

    def _load(self, phase: str) -> dict[str, TensorDictDataset]:
        data = self.env.dataset(self.data_sizes[phase], phase=phase)
        return data if isinstance(data, dict) else {phase: data}

    def _loaders(self, phase: str, batch_size: int) -> list[EvalLoader]:
        options: dict[str, Any] = {
            "num_workers": self.dataloader_num_workers,
            "rank": self.global_rank,
            "world_size": self.trainer.world_size,
        }
        return [
            EvalLoader(make_dataloader(dataset, batch_size, **options))
            for dataset in self._datasets[phase].values()
        ]


def _join(sets: Mapping[str, TensorDictDataset]) -> TensorDictBase:
    """The instances of several sets in a row, which must have one size: a batch mixes them."""
    first, *others = (dataset.data for dataset in sets.values())
    shapes = [_shapes(data) for data in (first, *others)]
    if any(shape != shapes[0] for shape in shapes):
        listing = "; ".join(f"{name}: {shape}" for name, shape in zip(sets, shapes, strict=True))
        raise ConfigError(
            f"expected training files with instances of the same keys and sizes, got {listing}; "
            "train on one size, or generate instances of several with callbacks=reptile"
        )
    return torch.cat([first, *others]) if others else first


def _shapes(data: TensorDictBase) -> dict[str, list[int]]:
    """Key → shape of one instance."""
    return {str(key): list(value.shape[1:]) for key, value in sorted(data.items())}
