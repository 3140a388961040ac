"""Algorithms that update their weights several times per batch, and what this takes.

Lightning's automatic optimization makes one step per batch. :class:`InnerLoop` makes as many as its
subclass asks for, and sees to what Lightning then leaves to the module: gradients summed over
processes, scaled losses of mixed precision, clipping, schedulers.
"""

from __future__ import annotations

import math

from typing import Any

import torch

from lightning.pytorch.core.optimizer import LightningOptimizer
from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from rl4co.core.errors import ConfigError
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.base import RL4COLitModule


class InnerLoop(RL4COLitModule):
    """Base class of algorithms with several updates per batch; subclasses write :meth:`learn`.

    A step of a scheduler with `lr_scheduler_interval="step"` is a batch, as everywhere else.
    `trainer.global_step` counts updates.

    Args:
        max_grad_norm: Largest norm of the gradient of all weights; None does not clip. It takes
            the place of the trainer's `gradient_clip_val`.
        kwargs: Further arguments, and those not listed here: see :class:`RL4COLitModule`.
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        max_grad_norm: float | None = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(env, policy, **kwargs)
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ConfigError(f"expected a positive max_grad_norm or None, got {max_grad_norm}")
        self.max_grad_norm = max_grad_norm
        self.automatic_optimization = False

    def learn(self, batch: TensorDictBase, batch_idx: int) -> dict[str, Any]:
        """Learns from a batch with calls of :meth:`update_weights`; returns metrics, if any."""
        raise NotImplementedError

    def training_step(self, batch: TensorDictBase, batch_idx: int) -> dict[str, Any]:
        """Lightning's hook; override :meth:`learn`."""
        out = self.learn(self.wrap_batch(batch), batch_idx)
        self._step_schedulers("step")
        if self.trainer.is_last_batch:
            self._step_schedulers("epoch")
        if not out:
            return {}
        return self.log_metrics(out, "train", batch_size=batch.batch_size[0])

    def update_weights(self, loss: Tensor) -> None:
        """One step of the optimizer down the gradient of `loss`, which all processes share."""
        optimizer = self.optimizers()
        assert isinstance(optimizer, LightningOptimizer)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Clips the gradient.

        Not earlier: with 16-bit precision gradients are scaled until here, and their norm would be
        that of other numbers.
        """
        if self.max_grad_norm is not None:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            nn.utils.clip_grad_norm_(weights, self.max_grad_norm)

    def after_epoch(self) -> None:
        """Steps the schedulers that look at a metric, once validation has it."""
        self._step_schedulers("epoch", plateau=True)

    def split_rows(
        self, num_rows: int, mini_batch_size: int | float, batch_idx: int, inner_epoch: int
    ) -> tuple[Tensor, ...]:
        """Mini-batches of an inner epoch, as indices of rows; see :func:`split_evenly`.

        The order depends on seed, epoch, batch, inner epoch and process alone. All processes get
        the same number of mini-batches, as they have to add up their gradients.
        """
        count = count_mini_batches(num_rows, mini_batch_size)
        if self.trainer.world_size > 1:
            most = torch.tensor(count, device=self.device)
            count = int(self.trainer.strategy.reduce(most, reduce_op="max"))
        rng = derive_generator(
            self.run_seed, "mini-batches", self.current_epoch, batch_idx, inner_epoch,
            self.global_rank,
        )  # fmt: skip
        return split_evenly(torch.randperm(num_rows, generator=rng).to(self.device), count)

    def configure_optimizers(self) -> Any:
        """Optimizer and scheduler; Lightning would warn that it leaves all else to the module."""
        configured = super().configure_optimizers()
        if isinstance(configured, dict):
            configured["lr_scheduler"] = configured["lr_scheduler"]["scheduler"]
        return configured

    def _step_schedulers(self, interval: str, plateau: bool = False) -> None:
        """What Lightning does where the optimization is automatic."""
        for config in self.trainer.lr_scheduler_configs:
            watches = isinstance(config.scheduler, ReduceLROnPlateau)
            if watches is not plateau or (not plateau and interval != self.lr_scheduler_interval):
                continue
            metric = None
            if watches:
                metrics = self.trainer.callback_metrics
                metric = metrics.get(self.lr_scheduler_monitor)
                if metric is None:
                    raise ConfigError(
                        f"expected a metric {self.lr_scheduler_monitor!r} for the scheduler, got "
                        f"{', '.join(sorted(metrics))}; set lr_scheduler_monitor to one of these"
                    )
            self.lr_scheduler_step(config.scheduler, metric)


def check_mini_batch_size(size: int | float) -> None:
    """Raises unless it is a number of rows (an integer) or a share of them (a float)."""
    if isinstance(size, bool) or not (
        (isinstance(size, int) and size >= 1) or (isinstance(size, float) and 0.0 < size <= 1.0)
    ):
        raise ConfigError(
            "expected mini_batch_size to be an integer of at least 1 or a share in (0, 1], got "
            f"{size!r}"
        )


def count_mini_batches(num_rows: int, mini_batch_size: int | float) -> int:
    """Fewest mini-batches of at most this size (a float: this share of the rows, rounded up)."""
    if isinstance(mini_batch_size, float):
        # The least bit less: 0.1 * 30 is 3.0000000000000004 in binary.
        mini_batch_size = max(1, math.ceil(mini_batch_size * num_rows * (1 - 1e-12)))
    return math.ceil(num_rows / mini_batch_size)


def split_evenly(rows: Tensor, count: int) -> tuple[Tensor, ...]:
    """Splits rows `[R]` in `count` parts whose sizes differ by one at most.

    Equal shares rather than full ones and a remainder: an update from a few left-over rows would
    have the weight of all others. With fewer rows than parts (in one of several processes), rows
    are repeated.
    """
    if len(rows) < count:
        rows = rows.repeat(math.ceil(count / len(rows)))[:count]
    return rows.tensor_split(count)
