"""Callbacks: progress bar, speed, and the learning curve as a list."""

from __future__ import annotations

import time

from typing import Any

import lightning as L

from lightning.pytorch.callbacks import Callback, RichProgressBar
from tensordict import TensorDictBase

from rl4co.core.errors import ConfigError
from rl4co.models.policies.pretrained import load_pretrained

#: Metrics that the progress bar shows under a shorter name, in this order.
_SHOWN = {
    "train/reward": "reward",
    "train/reward_step": "reward",
    "val/reward": "val reward",
    "train/loss": "loss",
    "train/loss_step": "loss",
}


class Throughput:
    """Training instances per second since the last reset, over all processes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts to count anew."""
        self._instances, self._start = 0, time.perf_counter()

    def add(self, batch: Any, num_processes: int) -> None:
        """Counts a batch; each process has one of this size."""
        size = batch.batch_size[0] if isinstance(batch, TensorDictBase) else len(batch)
        self._instances += size * num_processes

    @property
    def rate(self) -> float:
        """Instances per second."""
        return self._instances / max(time.perf_counter() - self._start, 1e-9)


class SpeedMonitor(Callback):
    """Logs `train/instances_per_second` of each epoch: training steps only, validation excluded."""

    def __init__(self) -> None:
        super().__init__()
        self._throughput = Throughput()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the clock of the epoch that a resumed run continues."""
        self._throughput.reset()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the clock."""
        self._throughput.reset()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Counts a batch; logs the rate with the last one."""
        self._throughput.add(batch, trainer.world_size)
        if trainer.is_last_batch:
            pl_module.log(
                "train/instances_per_second",
                self._throughput.rate,
                on_step=False,
                on_epoch=True,
                batch_size=1,
                sync_dist=True,
            )


class RL4COProgressBar(RichProgressBar):
    """Progress with reward, loss and instances per second.

    The bar is drawn a few times per second, not after every batch: with small problems drawing
    would take a large part of the time.

    Args:
        refresh_rate: Updates per second.
        leave: Whether to keep the bar of each finished epoch on the screen.
        kwargs: Further arguments of Lightning's `RichProgressBar` (`theme`, `console_kwargs`).
    """

    def __init__(self, refresh_rate: int = 4, leave: bool = False, **kwargs: Any) -> None:
        super().__init__(refresh_rate=refresh_rate, leave=leave, **kwargs)
        self._throughput = Throughput()
        self._updated = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the clock of the epoch that a resumed run continues."""
        self._throughput.reset()
        super().on_train_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the bar and the clock of an epoch."""
        self._throughput.reset()
        super().on_train_epoch_start(trainer, pl_module)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Counts every batch, draws now and then."""
        self._throughput.add(batch, trainer.world_size)
        now = time.perf_counter()
        due = self.is_enabled and now - self._updated >= 1.0 / self.refresh_rate
        if due or trainer.is_last_batch:
            self._updated = now
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Shows the metrics of the epoch, in one process only.

        Reading them reduces them over all processes, of which only the first one draws a bar: it
        would wait for the others forever.
        """
        if trainer.world_size == 1:
            super().on_train_epoch_end(trainer, pl_module)

    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Metrics to show: reward and loss, what else was logged for the bar, the rate."""
        logged = super().get_metrics(trainer, pl_module)
        logged.pop("v_num", None)
        shown = {short: logged.pop(name) for name, short in _SHOWN.items() if name in logged}
        # Means of the last epoch are in the logs; next to the running values they only confuse.
        others_running = {k: value for k, value in logged.items() if not k.endswith("_epoch")}
        return {**shown, **others_running, "instances/s": f"{self._throughput.rate:,.0f}"}


class LearningCurve(Callback):
    """Collects the metrics of each epoch in a list, which checkpoints keep.

    Attributes:
        history: One dictionary per epoch: `epoch`, `step`, `seconds` of training so far, and the
            metrics of training and validation (`train/reward`, `val/reward`, ...).
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[dict[str, float]] = []
        self._validation: dict[str, float] = {}
        self._seconds_before = 0.0
        self._start = time.perf_counter()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the clock."""
        self._start = time.perf_counter()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keeps the metrics of validation for the end of the epoch."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._validation = _metrics_of(trainer, "val/")

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Adds the epoch."""
        self.history.append(
            {
                "epoch": trainer.current_epoch,
                "step": trainer.global_step,
                "seconds": self._seconds,
                **_metrics_of(trainer, "train/"),
                **self._validation,
            }
        )
        self._validation = {}

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._start

    def values(self, metric: str) -> list[float]:
        """One metric over the epochs in which it was logged."""
        return [entry[metric] for entry in self.history if metric in entry]

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {
            "history": list(self.history),
            "validation": self._validation,
            "seconds": self._seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.history = list(state_dict["history"])
        self._validation = dict(state_dict["validation"])
        self._seconds_before = state_dict["seconds"]


class StartWeights(Callback):
    """Starts a training from the weights of a saved policy; a resumed training ignores it.

    Args:
        folder: Folder written by `save_pretrained`, of a policy of the same architecture.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Loads the weights before baselines copy the policy."""
        if stage != "fit" or trainer.ckpt_path is not None:
            return
        policy: Any = pl_module.policy
        weights = load_pretrained(self.folder).state_dict()
        try:
            policy.load_state_dict(weights)
        except RuntimeError as error:
            raise ConfigError(
                f"expected the weights of a policy with the same architecture in {self.folder}, "
                f"got others: {error}"
            ) from error


def _metrics_of(trainer: L.Trainer, prefix: str) -> dict[str, float]:
    """The metrics of a phase under their plain names."""
    metrics = trainer.callback_metrics
    # What is logged per step and per epoch has the epoch's value under the plain name too.
    variants = {f"{name}_{suffix}" for name in metrics for suffix in ("step", "epoch")}
    return {
        name: float(value)
        for name, value in metrics.items()
        if name.startswith(prefix) and name not in variants
    }
