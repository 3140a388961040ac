"""Flexible job shops in files: reading and writing the FJS format."""

from __future__ import annotations

import os

from collections.abc import Callable
from pathlib import Path

from tensordict import TensorDict, TensorDictBase

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.shop import ShopInstance, batch_instances
from rl4co.data.formats.shop_files import read_fjs
from rl4co.data.formats.shop_texts import format_fjs
from rl4co.data.io import atomic_write

#: Suffixes of files that lie beside instances and are none.
IGNORED = (".csv", ".json", ".md", ".npz")


def read(
    loc: str | os.PathLike[str], max_ops: int | None = None
) -> tuple[TensorDict, int, int, int]:
    """Reads one instance in the FJS format.

    Args:
        loc: The file. Machines count from 0 or from 1, which is recognised.
        max_ops: Number of operations to pad to.

    Returns:
        The instance with batch size `[1]`, its number of jobs, of machines, and the most operations
        of a job.

    Raises:
        FileFormatError: The file is damaged; the message names the line, job and operation.
    """
    return described(read_fjs(loc), max_ops)


def described(shop: ShopInstance, max_ops: int | None) -> tuple[TensorDict, int, int, int]:
    """An instance with batch size `[1]` and its sizes, see :func:`read`."""
    longest = max(len(job) for job in shop.jobs)
    return batch_instances([shop], max_ops), shop.num_jobs, shop.num_machines, longest


def read_instances(path: Path) -> list[ShopInstance]:
    """All instances of one file."""
    return [read_fjs(path)]


def write(
    where: str | os.PathLike[str],
    instances: TensorDictBase,
    *,
    format_instance: Callable[[ShopInstance], str] = format_fjs,
    suffix: str = ".fjs",
) -> list[Path]:
    """Writes instances into a folder, one file each.

    Args:
        where: The folder; it is created.
        instances: Instances or states with batch size `[B]` or none.
        format_instance: Instance → text of its file (default: the FJS format, machines from 1).
        suffix: Ending of the file names.

    Returns:
        The files, such as `0001_10j_5m.fjs`.
    """
    folder = Path(where)
    folder.mkdir(parents=True, exist_ok=True)
    batch = instances.reshape(-1) if instances.batch_dims else instances.unsqueeze(0)
    files = []
    for number in range(len(batch)):
        shop = ShopInstance.from_tensordict(batch[number], name=f"{number + 1:04d}")
        name = f"{number + 1:04d}_{shop.num_jobs}j_{shop.num_machines}m{suffix}"
        with atomic_write(folder / name) as file:
            file.write(format_instance(shop).encode())
        files.append(folder / name)
    return files


def list_files(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or the files of a folder in the order of their names.

    Files whose names begin with a dot or end in one of :data:`IGNORED` are left out.
    """
    root = Path(path)
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise FileNotFoundError(f"expected a file or folder, got {root}; check the path")
    files = [
        file
        for file in sorted(root.iterdir())
        if file.is_file() and file.suffix.lower() not in IGNORED and file.name[0] != "."
    ]
    if not files:
        raise FileFormatError(f"expected files with instances in {root}, got none")
    return files
