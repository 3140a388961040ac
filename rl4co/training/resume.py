"""Exact resuming: a run that was killed gives the numbers of one that was not.

All randomness of training is a function of seed, epoch, batch and process, and weights, optimizers
and schedulers are in every checkpoint. This module corrects Lightning's progress
counters at the moment of saving. There are five such moments:

| saved | still to come | what Lightning does on its own |
|---|---|---|
| after a batch | the next batch | right |
| after a batch that validation follows | validation | skips it |
| after the last batch of an epoch | validation, end of epoch | skips both |
| after validation | the next batch, or the end of the epoch | right, but has lost the metrics |
| at the end of an epoch | a step of ReduceLROnPlateau, the next epoch | skips the step |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch

from lightning.pytorch.callbacks import Callback, EarlyStopping

#: Key of what this module adds to a checkpoint.
RESUME_KEY = "rl4co_resume"


class ExactResume(Callback):
    """Makes a resumed run repeat the remainder of the interrupted one; the trainer adds it.

    It records, with each checkpoint, the metrics so far (those that callbacks and schedulers
    read, and the sums behind the means of the running epoch) and describes the position in the run
    such that nothing is done twice or left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._record: dict[str, Any] | None = None

    # ---------------------------------------------------------------- saving

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Settles the progress counters and adds the metrics."""
        loop: Any = trainer.fit_loop  # Lightning's annotations do not know all of its counters
        epoch = loop.epoch_progress.current
        record: dict[str, Any] = {
            "metrics": {key: float(value) for key, value in trainer.callback_metrics.items()},
            "epoch_over": True,
            "sums": [],
            "plateau": [],
        }
        if epoch.processed > epoch.completed:
            settle_epoch(checkpoint["loops"]["fit_loop"])
            record["plateau"] = _plateau_steps(trainer)
        elif epoch.started > epoch.processed:
            batch = loop.epoch_loop.batch_progress
            if trainer.validating:  # stopped by a signal; a resumed run repeats the validation
                settle_batch(checkpoint["loops"]["fit_loop"], validates=True, last=False)
            elif batch.current.processed > batch.current.completed:
                validates = loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
                last = loop.epoch_loop._num_ready_batches_reached()
                settle_batch(checkpoint["loops"]["fit_loop"], validates, last)
            record |= {"epoch_over": False, "sums": _epoch_sums(trainer)}
        checkpoint[RESUME_KEY] = record

    # ---------------------------------------------------------------- resuming

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keeps the record until training starts."""
        self._record = checkpoint.get(RESUME_KEY)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restores the metrics and the decisions that depend on them."""
        if self._record is None:
            return
        metrics = {key: torch.tensor(value) for key, value in self._record["metrics"].items()}
        trainer.callback_metrics.update(metrics)
        for index, metric in self._record["plateau"]:
            pl_module.lr_scheduler_step(trainer.lr_scheduler_configs[index].scheduler, metric)
        if self._record["epoch_over"]:
            # With a limit on steps Lightning takes any resumed epoch for one that was begun.
            trainer.fit_loop.epoch_loop.restarting = False
            _stop_if_out_of_patience(trainer)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Adds the sums of the interrupted epoch to those of its first batch after the restart."""
        self._restore_sums(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The same for an epoch that was interrupted after its last batch."""
        if self._record is not None:
            self._restore_sums(trainer)
            _stop_if_out_of_patience(trainer)
        # Lightning would not step ReduceLROnPlateau at the end of a resumed epoch, for want of
        # metrics. They are here.
        trainer.fit_loop._restarting = False

    def _restore_sums(self, trainer: L.Trainer) -> None:
        if self._record is None:
            return
        for entry in self._record["sums"]:
            _add_sum(trainer, entry)
        self._record = None


# ---------------------------------------------------------------- progress counters


def settle_epoch(loops: dict[str, Any]) -> None:
    """Counters of a checkpoint saved at the end of an epoch: that epoch is over.

    Args:
        loops: Lightning's state of the fit loop; changed in place.
    """
    for counts in (loops["epoch_progress"]["current"], loops["epoch_progress"]["total"]):
        counts["completed"] = counts["processed"]
    batches = loops["epoch_loop.batch_progress"]
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False


def settle_batch(loops: dict[str, Any], validates: bool, last: bool) -> None:
    """Counters of a checkpoint saved right after a batch.

    Args:
        loops: Lightning's state of the fit loop; changed in place.
        validates: Whether validation follows the batch.
        last: Whether it is the last batch of the epoch.
    """
    if not validates and not last:
        return
    batches = loops["epoch_loop.batch_progress"]
    for counts in (batches["current"], batches["total"]):
        counts["completed"] = counts["processed"]
    if validates:
        # "In the middle of validation, with nothing done": Lightning goes back to it.
        progress = loops["epoch_loop.val_loop.batch_progress"]
        progress["current"] = dict.fromkeys(progress["current"], 0)
        progress["total"] = {"ready": 1, "completed": 0, "started": 1, "processed": 0}
        progress["is_last_batch"] = False
    else:
        # The step is counted after validation, and there is none.
        loops["epoch_loop.state_dict"]["_batches_that_stepped"] += 1


# ---------------------------------------------------------------- metrics


def _plateau_steps(trainer: L.Trainer) -> list[tuple[int, float]]:
    """Schedulers, with their metrics, that step on a metric once the epoch's hooks are done.

    A model that steps its optimizer itself has stepped them already.
    """
    if not trainer.lightning_module.automatic_optimization:
        return []
    return [
        (index, float(trainer.callback_metrics[config.monitor]))
        for index, config in enumerate(trainer.lr_scheduler_configs)
        if config.reduce_on_plateau
        and config.interval == "epoch"
        and (trainer.current_epoch + 1) % config.frequency == 0
        and config.monitor in trainer.callback_metrics
    ]


def _epoch_sums(trainer: L.Trainer) -> list[dict[str, Any]]:
    """Sums behind the means that are logged at the end of the running epoch (all processes)."""
    return [
        {
            "fx": metric.meta.fx,
            "name": metric.meta.name,
            "prog_bar": metric.meta.prog_bar,
            "logger": metric.meta.logger,
            "on_step": metric.meta.on_step,
            "add_dataloader_idx": metric.meta.add_dataloader_idx,
            "sync_dist": metric.meta.sync.should,
            "sum": float(trainer.strategy.reduce(metric.value.clone(), reduce_op="sum")),
            "size": int(
                trainer.strategy.reduce(metric.cumulated_batch_size.clone(), reduce_op="sum")
            ),
        }
        for metric in trainer.fit_loop.epoch_loop._results.values()
        if metric.is_tensor
        and metric.meta.on_epoch
        and metric.meta.is_mean_reduction
        and not metric.has_reset
    ]


def _add_sum(trainer: L.Trainer, entry: Mapping[str, Any]) -> None:
    """Adds a recorded sum to a logged mean (on the first process, which recorded it for all)."""
    results = trainer.fit_loop.epoch_loop._results
    key = f"{entry['fx']}.{entry['name']}"
    if key not in results or results[key].has_reset:  # no batch was left to log it
        options = {name: value for name, value in entry.items() if name not in ("sum", "size")}
        zero = torch.zeros((), device=trainer.strategy.root_device)
        reduce = trainer.strategy.reduce
        results.log(**options, value=zero, on_epoch=True, sync_dist_fn=reduce, batch_size=0)
    if trainer.is_global_zero:
        metric = results[key]
        metric.value = metric.value + entry["sum"]
        metric.cumulated_batch_size = metric.cumulated_batch_size + entry["size"]


def _stop_if_out_of_patience(trainer: L.Trainer) -> None:
    """A run that had been stopped early must not train one epoch more because it was killed."""
    for callback in trainer.early_stopping_callbacks:
        if isinstance(callback, EarlyStopping) and (
            callback.stopped_epoch or callback.wait_count >= max(callback.patience, 1)
        ):
            trainer.should_stop = True
