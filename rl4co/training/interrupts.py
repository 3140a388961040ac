"""Ctrl-C and SIGTERM during training: stop after the running batch, with a checkpoint.

Outside batches (setup, evaluation of a baseline, validation) the training stops at once. A second
signal acts as usual. Only single-process runs are handled here: Lightning stops distributed ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities.rank_zero import rank_zero_info

#: What shells add to the number of a signal for the exit code.
_EXIT_OFFSET = 128
#: Name of the checkpoint; `ckpt_path="last"` finds it.
LAST_CHECKPOINT = "last.ckpt"


class TrainingInterrupted(SystemExit):
    """Ends a training after a signal; its exit code is that of the signal.

    Args:
        number: Number of the signal.

    Attributes:
        signal_name: "SIGTERM", or "Ctrl-C" for SIGINT.
        checkpoint: The checkpoint to go on from; None: none was written.
    """

    def __init__(self, number: int) -> None:
        super().__init__(_EXIT_OFFSET + number)
        self.signal_name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self.checkpoint: Path | None = None


class StopOnSignals(Callback):
    """Stops a training after Ctrl-C or SIGTERM; the trainer adds it.

    Signals are handled inside :meth:`handle_signals`, which the trainer enters around `fit`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._received: int | None = None
        self._in_training_batch = False

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handles SIGINT and SIGTERM while it is entered; only possible in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        process = os.getpid()
        self._received, self._in_training_batch = None, False

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def receive(number: int, _: object) -> None:
            # A second signal, while the first one waits for its batch; or one to a worker process.
            if self._received is not None or os.getpid() != process:
                restore()
                signal.raise_signal(number)
                return
            self._received = number
            if not self._in_training_batch:
                raise TrainingInterrupted(number)

        for number in before:
            signal.signal(number, receive)
        try:
            yield
        finally:
            restore()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """From now on signals wait for the end of a batch."""
        self._in_training_batch = True

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Stops if a signal has arrived."""
        if self._received is not None:
            raise TrainingInterrupted(self._received)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validation can stop at once: a resumed run repeats it."""
        self._in_training_batch = False

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The end of an epoch can stop at once."""
        self._in_training_batch = False

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Writes a checkpoint where the run can be resumed exactly."""
        if not isinstance(exception, TrainingInterrupted):
            return
        is_resumable = self._in_training_batch or (
            trainer.validating and not trainer.sanity_checking
        )
        folder = _checkpoint_folder(trainer)
        if is_resumable and folder is not None and trainer.global_step > 0:
            exception.checkpoint = folder / LAST_CHECKPOINT
            trainer.save_checkpoint(exception.checkpoint)
        advice = (
            "" if exception.checkpoint is None else f"; go on with ckpt_path={exception.checkpoint}"
        )
        rank_zero_info(f"stopped by {exception.signal_name}{advice}")


def _checkpoint_folder(trainer: L.Trainer) -> Path | None:
    """The folder of the first checkpoint callback; None if there is none on this machine."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint) and callback.dirpath is not None:
            return None if "://" in str(callback.dirpath) else Path(callback.dirpath)
    return None
