"""The callback of the published package that measures times."""

from __future__ import annotations

import time

from typing import Any

import lightning as L

from lightning.pytorch.callbacks import Callback


class SpeedMonitor(Callback):
    """Logs times under `time/...`; :class:`rl4co.training.SpeedMonitor` logs instances per second.

    Args:
        intra_step_time: Whether to log the milliseconds of a step.
        inter_step_time: Whether to log those between two steps.
        epoch_time: Whether to log the seconds of an epoch.
        verbose: Whether to print the time of each step.
    """

    def __init__(
        self,
        intra_step_time: bool = True,
        inter_step_time: bool = True,
        epoch_time: bool = True,
        verbose: bool = False,
    ) -> None:
        super().__init__()
        self.intra_step_time, self.inter_step_time = intra_step_time, inter_step_time
        self.epoch_time, self.verbose = epoch_time, verbose
        self._epoch_start = self._step_start = 0.0
        self._step_end: float | None = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the clock of the epoch."""
        self._epoch_start, self._step_end = time.perf_counter(), None

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Logs the time since the last step, and starts the clock of this one."""
        self._step_start = time.perf_counter()
        if self.inter_step_time and self._step_end is not None:
            self._log(trainer, "time/inter_step (ms)", 1e3 * (self._step_start - self._step_end))

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Logs the time of the step."""
        self._step_end = time.perf_counter()
        milliseconds = 1e3 * (self._step_end - self._step_start)
        if self.verbose:
            pl_module.print(f"time/intra_step (ms): {milliseconds:.1f}")
        if self.intra_step_time:
            self._log(trainer, "time/intra_step (ms)", milliseconds)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Logs the time of the epoch."""
        if self.epoch_time and trainer.logger is not None:
            seconds = time.perf_counter() - self._epoch_start
            trainer.logger.log_metrics({"time/epoch (s)": seconds}, step=trainer.global_step)

    @staticmethod
    def _log(trainer: L.Trainer, name: str, value: float) -> None:
        every: int = getattr(trainer, "log_every_n_steps", 1)
        if trainer.logger is not None and (trainer.global_step + 1) % every == 0:
            trainer.logger.log_metrics({name: value}, step=trainer.global_step)
