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
from rl4co.core.rng import derive_generator
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

    def val_dataloader(self) -> EvalLoader | list[EvalLoader]:
        """The loader of the validation set, or one for each where there are several or none."""
        return self._loaders("val", self.val_batch_size)

    def test_dataloader(self) -> EvalLoader | list[EvalLoader]:
        """The loader of the test set, or one for each where there are several or none."""
        return self._loaders("test", self.test_batch_size)

    def wrap_dataset(self, dataset: TensorDictDataset) -> Any:
        """Hook: instances with what is known about them in advance, under further keys.

        It is called with the instances of each training batch, since there are none before.
        """
        return dataset

    def wrap_batch(self, batch: TensorDictBase) -> TensorDictBase:
        """A training batch after :meth:`wrap_dataset`."""
        dataset = TensorDictDataset(batch)
        wrapped = self.wrap_dataset(dataset)
        return batch if wrapped is dataset else _whole_batch(wrapped).to(self.device)

    # ---------------------------------------------------------------- properties

    @property
    def train_dataset(self) -> TensorDictDataset:
        """Instances of one epoch: those of the training file, or as many fresh ones."""
        if self.env.data_files["train"]:
            return self._training_set()
        rng = derive_generator(self.run_seed, "train_dataset")
        return self.env.dataset_cls(self.draw_instances(self.data_sizes["train"], rng))

    @property
    def val_dataset(self) -> TensorDictDataset | dict[str, TensorDictDataset]:
        """The validation set, or several by name."""
        return self._dataset("val")

    @property
    def test_dataset(self) -> TensorDictDataset | dict[str, TensorDictDataset]:
        """The test set, or several by name."""
        return self._dataset("test")

    @property
    def data_cfg(self) -> dict[str, Any]:
        """Sizes and places of the data."""
        return {
            "batch_size": self.batch_size,
            "val_batch_size": self.val_batch_size,
            "test_batch_size": self.test_batch_size,
            "generate_default_data": self.generate_default_data,
            "data_dir": str(self.env.data_dir),
            **{f"{phase}_data_size": size for phase, size in self.data_sizes.items()},
        }

    def _dataset(self, phase: str) -> TensorDictDataset | dict[str, TensorDictDataset]:
        if phase not in self._datasets:
            self.load_datasets()
        sets = self._datasets[phase]
        return next(iter(sets.values())) if len(sets) == 1 else sets

    def _dataloader(
        self,
        dataset: TensorDictDataset | Mapping[str, TensorDictDataset],
        batch_size: int,
        shuffle: bool = False,
    ) -> EvalLoader | list[EvalLoader]:
        """A loader of complete batches for a data set, or one for each of several."""
        if isinstance(dataset, Mapping):
            return [self._dataloader_single(each, batch_size, shuffle) for each in dataset.values()]
        return self._dataloader_single(dataset, batch_size, shuffle)

    def _dataloader_single(
        self, dataset: TensorDictDataset, batch_size: int, shuffle: bool = False
    ) -> EvalLoader:
        options: dict[str, Any] = {
            "num_workers": self.dataloader_num_workers,
            "seed": self.run_seed if shuffle else None,
            "rank": self.global_rank,
            "world_size": self._world_size,
        }
        return EvalLoader(make_dataloader(dataset, batch_size, shuffle, **options))

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
        if self._trainer is None:
            return 0, 0
        epoch = 0 if getattr(self.trainer, "overfit_batches", 0) else self.current_epoch
        return epoch, self.trainer.fit_loop.batch_idx + 1

    def _epoch_loader(self, epoch: int) -> DataLoader[Any]:
        shard = {"rank": self.global_rank, "world_size": self._world_size}
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

    @property
    def _world_size(self) -> int:
        """Number of processes; one without a trainer."""
        return 1 if self._trainer is None else self.trainer.world_size

    def _load(self, phase: str) -> dict[str, TensorDictDataset]:
        """The data sets of a phase by name; none if it is to have no instances."""
        if self.data_sizes[phase] == 0 and not self.env.data_files[phase]:
            return {}
        data = self.env.dataset(self.data_sizes[phase], phase=phase)
        return data if isinstance(data, dict) else {phase: data}

    def _loaders(self, phase: str, batch_size: int) -> EvalLoader | list[EvalLoader]:
        return self._dataloader(self._dataset(phase), batch_size)


def _whole_batch(dataset: Any) -> TensorDictBase:
    """All instances of a data set, also of one that only knows single instances."""
    indices = range(len(dataset))
    if hasattr(dataset, "__getitems__"):
        return dataset.__getitems__(list(indices))
    return dataset.collate_fn([dataset[index] for index in indices])


def _join(sets: Mapping[str, TensorDictDataset]) -> TensorDictBase:
    """The instances of several sets in a row, which must have one size: a batch mixes them."""
    first, *further = (dataset.data for dataset in sets.values())
    shapes = [_shapes(data) for data in (first, *further)]
    if any(shape != shapes[0] for shape in shapes):
        listing = "; ".join(f"{name}: {shape}" for name, shape in zip(sets, shapes, strict=True))
        raise ConfigError(
            f"expected training files with instances of the same keys and sizes, got {listing}; "
            "train on one size, or generate instances of several with callbacks=reptile"
        )
    return torch.cat([first, *further]) if further else first


def _shapes(data: TensorDictBase) -> dict[str, list[int]]:
    """Key → shape of one instance."""
    return {str(key): list(value.shape[1:]) for key, value in sorted(data.items())}
