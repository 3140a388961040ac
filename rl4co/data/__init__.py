"""Data sets: files, loaders, augmentation and generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.data.augment import (
    StateAugmentation,
    dihedral_8_augmentation,
    min_max_normalize,
    symmetric_augmentation,
)
from rl4co.data.dataset import (
    ExtraKeyDataset,
    GeneratedDataset,
    TensorDictDataset,
    make_dataloader,
)
from rl4co.data.io import load_npz_to_tensordict, save_tensordict_to_npz

if TYPE_CHECKING:
    from rl4co.data.formats import (
        BenchmarkInstance,
        BenchmarkShop,
        read_best_known,
        read_instance,
        read_instances,
        read_solution,
        write_solution,
    )
    from rl4co.data.generate import (
        generate_dataset,
        generate_default_datasets,
        generate_env_data,
    )

__all__ = [
    "BenchmarkInstance",
    "BenchmarkShop",
    "ExtraKeyDataset",
    "GeneratedDataset",
    "StateAugmentation",
    "TensorDictDataset",
    "dihedral_8_augmentation",
    "generate_dataset",
    "generate_default_datasets",
    "generate_env_data",
    "load_npz_to_tensordict",
    "make_dataloader",
    "min_max_normalize",
    "read_best_known",
    "read_instance",
    "read_instances",
    "read_solution",
    "save_tensordict_to_npz",
    "symmetric_augmentation",
    "write_solution",
]

# Generating needs the environments, and they need this package; files are for those who have some:
# imported on first use.
_GENERATE = ("generate_dataset", "generate_default_datasets", "generate_env_data")
_FORMATS = (
    "BenchmarkInstance",
    "BenchmarkShop",
    "read_best_known",
    "read_instance",
    "read_instances",
    "read_solution",
    "write_solution",
)

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={
        **dict.fromkeys(_GENERATE, "rl4co.data.generate"),
        **dict.fromkeys(_FORMATS, "rl4co.data.formats"),
    },
)
