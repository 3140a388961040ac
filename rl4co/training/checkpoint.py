"""Checkpoint files: a crash never destroys the previous one, and reading one runs no code.

:class:`AtomicCheckpointIO` is what :class:`~rl4co.training.RL4COTrainer` gives to Lightning, so it
serves every `ModelCheckpoint` callback and `trainer.save_checkpoint`.
"""

from __future__ import annotations

import io
import os
import tempfile

from pathlib import Path
from typing import Any

import lightning as L
import torch

from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rl4co.core.errors import ConfigError
from rl4co.data.digest import add_digest
from rl4co.data.io import atomic_write
from rl4co.models.rl.checkpointing import read_checkpoint
from rl4co.training.folder_lock import FolderLock

_CHECKPOINTS_ELSEWHERE = (
    "give ModelCheckpoint another dirpath, the trainer another default_root_dir, or switch "
    "checkpoints off with enable_checkpointing=False"
)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes to a temporary name in the same folder, then renames; reads plain values only.

    Whatever happens during writing (a full disk, a kill, a power cut), the file under the final
    name is the old one or the new one, never a part of it. What happens to it later shows by its
    digest when it is read.
    """

    def __init__(self) -> None:
        super().__init__()
        self._inspected = False

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Writes a checkpoint.

        Args:
            checkpoint: Content.
            path: File to write; remote paths (`s3://...`) are left to Lightning.
            storage_options: Not used for local files.
        """
        if not _is_local(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        self._inspect(buffer, path)
        write_atomically(Path(path), add_digest(buffer.getvalue()))

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any = "cpu",
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Reads a checkpoint.

        Args:
            path: File to read.
            map_location: Where to put tensors, see `torch.load`.
            weights_only: Accept tensors and plain values only; None means True.
        """
        if not _is_local(path):
            return super().load_checkpoint(path, map_location, weights_only is not False)
        return read_checkpoint(path, map_location, weights_only is not False)

    def _inspect(self, buffer: io.BytesIO, path: str | Path) -> None:
        """Warns at the first checkpoint, not when resuming, if it holds more than plain values."""
        if self._inspected:
            return
        self._inspected = True
        buffer.seek(0)
        classes = torch.serialization.get_unsafe_globals_in_checkpoint(buffer)
        if classes:
            rank_zero_warn(
                f"expected tensors and plain values in the checkpoint {path}, got also objects of "
                f"{', '.join(classes)} (from a callback or a scheduler?); to resume from it, "
                "weights_only=False has to be passed to fit"
            )


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, makes sure it is on the disk, and renames it.

    Args:
        path: Final name; its folder is created if needed.
        content: The bytes.
    """
    size = f"{len(content) / 2**20:.1f} MiB"
    remedy = f"earlier checkpoints are intact, so free {size} and resume"
    with atomic_write(path, remedy) as file:
        file.write(content)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut; not every system can open a folder."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class WritableCheckpoints(Callback):
    """Raises if checkpoints cannot be written; warns if another run writes to the same folder.

    The trainer adds it; without it a wrong folder would show after the first epoch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._locks: list[FolderLock] = []

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Tries to write to the folder of every checkpoint callback, and claims it."""
        if not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        folders = {
            callback.dirpath
            for callback in trainer.checkpoint_callbacks
            if isinstance(callback, ModelCheckpoint) and callback.dirpath is not None
        }
        for folder in sorted(map(str, folders)):
            require_writable(folder)
            if _is_local(folder):
                self._locks.append(FolderLock(folder))
                self._locks[-1].claim()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Releases the folders."""
        self._release()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Releases the folders."""
        self._release()

    def _release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()


def require_writable_metrics(trainer: L.Trainer) -> None:
    """Raises :class:`ConfigError` unless the loggers that write files can do so.

    Lightning opens their files before any callback has a say.
    """
    if not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
        return
    for logger in trainer.loggers:
        if logger.save_dir is not None:
            require_writable(
                logger.save_dir,
                "metrics",
                f"give {type(logger).__name__} another save_dir, the trainer another "
                "default_root_dir, or switch logging off with logger=False",
            )


def require_writable(
    folder: str | Path, content: str = "checkpoints", remedy: str = _CHECKPOINTS_ELSEWHERE
) -> None:
    """Raises :class:`ConfigError` unless files can be written to `folder`, which is created.

    Args:
        folder: The folder; remote ones are not checked.
        content: Contents of the folder, for the message.
        remedy: Advice, for the message.
    """
    if not _is_local(folder):
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"expected a folder for {content} that can be written to, got {folder} "
            f"({error.strerror}); {remedy}"
        ) from error


def _is_local(path: str | Path) -> bool:
    return "://" not in str(path)
