"""Ends the trainings of a hyperparameter search that do worse than earlier ones."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import lightning as L

from lightning.pytorch.callbacks import Callback

from rl4co.core.errors import ConfigError

if TYPE_CHECKING:
    from optuna.trial import Trial

#: The trial of a search that trains now.
current_trial: ContextVar[Trial] = ContextVar("current trial of a search")


class TrialPruning(Callback):
    """Reports each validation to the current trial, and ends the training if it is to be pruned.

    Args:
        metric: What is reported.

    Attributes:
        values: What was reported.
        pruned: Whether the training was ended.
    """

    def __init__(self, metric: str) -> None:
        self.metric, self.trial = metric, current_trial.get()
        self.values: list[float] = []
        self.pruned = False

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reports the metric."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self.metric not in trainer.callback_metrics:
            raise ConfigError(
                f"expected the metric {self.metric} after validation, got "
                f"{sorted(trainer.callback_metrics)}; set optimized_metric to one of them"
            )
        self.values.append(float(trainer.callback_metrics[self.metric]))
        self.trial.report(self.values[-1], len(self.values))
        self.pruned = self.pruned or self.trial.should_prune()
        trainer.should_stop = trainer.should_stop or self.pruned
