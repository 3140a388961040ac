"""`RL4COTrainer`: Lightning's trainer with settings that suit combinatorial optimization.

trainer = RL4COTrainer(epochs=10, precision="16-mixed")
trainer.fit(model)
trainer.fit(model, ckpt_path="path/to/last.ckpt")  # goes on exactly where it was
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import sys
import warnings

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import torch

from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.accelerators import (
    Accelerator,
    CPUAccelerator,
    CUDAAccelerator,
    MPSAccelerator,
    XLAAccelerator,
)
from lightning.pytorch.callbacks import Callback, ProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger
from lightning.pytorch.plugins import Precision
from lightning.pytorch.strategies import DDPStrategy, Strategy
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from tensordict import TensorDictBase

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.training.callbacks import RL4COProgressBar
from rl4co.training.checkpoint import (
    AtomicCheckpointIO,
    WritableCheckpoints,
    require_writable_metrics,
)
from rl4co.training.interrupts import StopOnSignals
from rl4co.training.memory import tune_allocator as apply_allocator_settings
from rl4co.training.resume import ExactResume

_MATMUL_PRECISIONS = ("highest", "high", "medium")
_DEFAULT_CLIP = 1.0
_HALF_PRECISIONS = ("16-mixed", "16-true", "16", 16)

#: Warnings that do not apply here: a frozen baseline is in evaluation mode on purpose, and
#: deprecations concern calls inside Lightning.
_NEEDLESS_WARNINGS = (
    r"Found \d+ module\(s\) in eval mode at the start of training",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
)


class RL4COTrainer(L.Trainer):
    """Lightning's trainer, with these differences:

    - `16-mixed` precision where there is a GPU, else `32-true`. On a CPU, which has no fast 16-bit
      floats, 16-bit settings become `32-true` with a warning (`bf16-mixed` is honoured).
    - Several devices train with `DistributedDataParallel`; loaders shard themselves.
    - Checkpoints are written atomically and opened with `weights_only=True`; a resumed run gives
      the numbers of one that was not interrupted.
    - Metrics go to a CSV file unless a logger is given; no account is needed anywhere.

    Args:
        max_epochs: Number of epochs.
        epochs: The same under the name of the paper's listing; give one of them.
        min_epochs: Epochs that early stopping cannot prevent.
        accelerator: "auto", "cpu", "gpu", "mps", ... or an object.
        devices: Number of devices, their indices, or "auto".
        strategy: "auto", a name that Lightning knows ("DDPStrategy" means "ddp"), or an object.
        precision: "16-mixed", "bf16-mixed", "32-true", "64-true", ...; None: "16-mixed" with a GPU,
            else "32-true".
        gradient_clip_val: Largest norm of the gradient; None does not clip. Models that make
            several updates per batch (PPO) clip by their own `max_grad_norm` instead.
        reload_dataloaders_every_n_epochs: Passed on to Lightning. Training data is new in every
            epoch whatever this is.
        matmul_precision: "highest", "high" or "medium": precision of float32 products on CUDA (see
            `torch.set_float32_matmul_precision`); None leaves torch's setting. Never applied on a
            CPU, where "medium" makes training several times slower.
        disable_profiling_executor: Switch off the profiling executor of TorchScript, which
            compiles anew for every shape it meets.
        auto_configure_ddp: With strategy "auto" or "ddp" and several devices, use DDP with unused
            parameters allowed (a multi-start policy never uses its start embedding, a critic in
            warm-up is not used yet) and gradients as views of the buckets.
        tune_allocator: On a CPU, keep large freed blocks of memory for the next step
            (:func:`rl4co.training.memory.tune_allocator`).
        logger: Logger(s); None for a CSV file below `default_root_dir`, False for none.
        callbacks: Callbacks; a progress bar is added unless there is one or
            `enable_progress_bar=False`.
        use_distributed_sampler: Whether Lightning shards the data; the library's own loaders do
            it themselves.
        kwargs: All other arguments of `lightning.Trainer` (`limit_train_batches`, `max_time`,
            `default_root_dir`, `accumulate_grad_batches`, ...).
    """

    callbacks: list[Callback]

    def __init__(
        self,
        max_epochs: int | None = None,
        *,
        epochs: int | None = None,
        min_epochs: int | None = None,
        accelerator: str | Accelerator = "auto",
        devices: list[int] | str | int = "auto",
        strategy: str | Strategy = "auto",
        precision: Any = None,
        gradient_clip_val: float | None = _DEFAULT_CLIP,
        reload_dataloaders_every_n_epochs: int = 1,
        matmul_precision: str | None = "medium",
        disable_profiling_executor: bool = True,
        auto_configure_ddp: bool = True,
        tune_allocator: bool = True,
        logger: Logger | Iterable[Logger] | bool | None = None,
        callbacks: list[Callback] | Callback | None = None,
        use_distributed_sampler: bool = False,
        **kwargs: Any,
    ) -> None:
        _reject_unknown(kwargs)
        if epochs is not None and max_epochs not in (None, epochs):
            raise ConfigError(
                f"expected epochs or max_epochs, got epochs={epochs} and max_epochs={max_epochs}; "
                "give one of them"
            )
        if matmul_precision not in (None, *_MATMUL_PRECISIONS):
            raise UnknownNameError("matmul_precision", matmul_precision, _MATMUL_PRECISIONS)
        _require_available(accelerator)
        device = device_type(accelerator)
        if device == "cuda" and matmul_precision is not None:
            torch.set_float32_matmul_precision(matmul_precision)
        if disable_profiling_executor:
            _disable_profiling_executor()
        processes = count_devices(device, devices) * kwargs.get("num_nodes", 1)
        strategy = _choose_strategy(strategy, processes, auto_configure_ddp)
        if logger is None and not kwargs.get("barebones"):
            logger = CSVLogger(kwargs.get("default_root_dir") or ".", name="lightning_logs")
        with without_needless_warnings():
            super().__init__(
                max_epochs=epochs if max_epochs is None else max_epochs,
                min_epochs=min_epochs,
                accelerator=accelerator,
                devices=devices,
                strategy=strategy,
                precision=_supported_precision(precision, device, kwargs.get("plugins")),
                gradient_clip_val=gradient_clip_val,
                reload_dataloaders_every_n_epochs=reload_dataloaders_every_n_epochs,
                logger=logger,
                callbacks=_with_defaults(callbacks, kwargs),
                use_distributed_sampler=use_distributed_sampler,
                **kwargs,
            )
        if type(self.strategy.checkpoint_io) is TorchCheckpointIO:
            self.strategy.checkpoint_io = AtomicCheckpointIO()
        _keep_batches(self.strategy.precision_plugin)
        self._tune_allocator = tune_allocator and device == "cpu"

    def fit(
        self,
        model: L.LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: L.LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = True,
    ) -> None:
        """Trains a model.

        Args:
            model: The model.
            train_dataloaders: Replaces the model's training data.
            val_dataloaders: Replaces the model's validation data.
            datamodule: Source of both.
            ckpt_path: Checkpoint to go on from; "last" and "best" as in Lightning.
            weights_only: Accept checkpoints with tensors and plain values only. False runs code
                from the file.
        """
        require_writable_metrics(self)
        with self._settings(), self._clipping(model), self._stopping_on_signals():
            super().fit(
                model, train_dataloaders, val_dataloaders, datamodule, ckpt_path, weights_only
            )

    def validate(
        self,
        model: L.LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | Path | None = None,
        verbose: bool = True,
        datamodule: L.LightningDataModule | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Metrics on the validation sets; arguments as in Lightning, see :meth:`fit`."""
        with self._settings():
            return super().validate(
                model, dataloaders, ckpt_path, verbose, datamodule, weights_only
            )

    def test(
        self,
        model: L.LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | Path | None = None,
        verbose: bool = True,
        datamodule: L.LightningDataModule | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Metrics on the test sets; arguments as in Lightning, see :meth:`fit`."""
        with self._settings():
            return super().test(model, dataloaders, ckpt_path, verbose, datamodule, weights_only)

    @contextlib.contextmanager
    def _clipping(self, model: L.LightningModule) -> Iterator[None]:
        """Leaves clipping to models that step their optimizer themselves, as Lightning demands."""
        clip = self.gradient_clip_val
        if not clip or not isinstance(model, L.LightningModule) or model.automatic_optimization:
            yield
            return
        if clip != _DEFAULT_CLIP:
            rank_zero_warn(
                f"expected {type(model).__name__} to clip its gradients itself, got "
                f"gradient_clip_val={clip} of the trainer, which is not used; set the model's "
                "max_grad_norm"
            )
        self.gradient_clip_val = None
        try:
            yield
        finally:
            self.gradient_clip_val = clip

    def _stopping_on_signals(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C and SIGTERM end the run after the batch, unless Lightning has to inform others."""
        handlers = [each for each in self.callbacks if isinstance(each, StopOnSignals)]
        if self.world_size > 1 or not handlers:
            return contextlib.nullcontext()
        return handlers[0].handle_signals()

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        """Settings of the process while the trainer runs (the allocator's stay)."""
        if self._tune_allocator:
            apply_allocator_settings()
        with without_needless_warnings():
            yield


@contextlib.contextmanager
def without_needless_warnings() -> Iterator[None]:
    """Silences warnings of Lightning that do not apply here, and its advertisements."""
    log = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    log.addFilter(_is_no_advertisement)
    try:
        with warnings.catch_warnings():
            for message in _NEEDLESS_WARNINGS:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        log.removeFilter(_is_no_advertisement)


def _is_no_advertisement(record: logging.LogRecord) -> bool:
    return "Tip: For seamless cloud" not in record.getMessage()


def device_type(accelerator: str | Accelerator) -> str:
    """The kind of device of an accelerator: "cpu", "cuda", "mps" or another name."""
    classes = {
        "cpu": CPUAccelerator,
        "cuda": CUDAAccelerator,
        "mps": MPSAccelerator,
        "tpu": XLAAccelerator,
    }
    if isinstance(accelerator, Accelerator):
        return next(
            (name for name, cls in classes.items() if isinstance(accelerator, cls)), "other"
        )
    if accelerator not in ("auto", "gpu"):
        return accelerator
    for name in ("cuda", "mps") if accelerator == "gpu" else ("tpu", "cuda", "mps"):
        if classes[name].is_available():
            return name
    return "cpu"


def _require_available(accelerator: str | Accelerator) -> None:
    """Raises :class:`ConfigError` for a GPU that this machine, or this build of torch, lacks."""
    classes = {"gpu": (CUDAAccelerator, MPSAccelerator), "cuda": (CUDAAccelerator,)}
    kinds = classes.get(accelerator, ()) if isinstance(accelerator, str) else ()
    if kinds and not any(kind.is_available() for kind in kinds):
        raise ConfigError(
            f"expected a GPU for accelerator={accelerator!r}, got none that torch can use; use "
            "accelerator='auto' or 'cpu' (on the command line trainer=default or trainer=cpu, with "
            "trainer.devices=2 trainer.strategy=ddp for several processes)"
        )


def count_devices(device: str, devices: list[int] | str | int) -> int:
    """Number of devices that `devices` means on this machine."""
    if isinstance(devices, str) and devices != "auto":
        devices = [int(part) for part in devices.split(",") if part.strip()]
        devices = devices[0] if len(devices) == 1 else devices
    if isinstance(devices, list | tuple):
        return len(devices)
    if devices in ("auto", -1):
        return torch.cuda.device_count() if device == "cuda" else 1
    return int(devices)


def _choose_strategy(strategy: str | Strategy, processes: int, configure: bool) -> str | Strategy:
    """The strategy to ask Lightning for; a single device needs none."""
    if strategy == "DDPStrategy":
        strategy = "ddp" if processes > 1 else "auto"
    if strategy not in ("auto", "ddp") or processes == 1 or not configure or _is_interactive():
        return strategy
    return DDPStrategy(find_unused_parameters=True, gradient_as_bucket_view=True)


def _keep_batches(plugin: Precision) -> None:
    """Hands batches of instances on as they are.

    Plugins for "64-true" and the like rebuild what looks like a dictionary, and a TensorDict loses
    its batch size. Policies match the precision of instances to their weights themselves.
    """
    convert = plugin.convert_input

    def convert_input(data: Any) -> Any:
        return data if isinstance(data, TensorDictBase) else convert(data)

    plugin.convert_input = convert_input  # type: ignore[method-assign]


def _supported_precision(precision: Any, device: str, plugins: Any) -> Any:
    """The precision to ask Lightning for."""
    plugin_list = plugins if isinstance(plugins, list | tuple) else [plugins]
    if any(isinstance(plugin, Precision) for plugin in plugin_list):
        return None  # Lightning takes one or the other
    if precision is None:
        return "32-true" if device == "cpu" else "16-mixed"
    if device == "cpu" and precision in _HALF_PRECISIONS:
        rank_zero_warn(
            f"expected a GPU for precision {precision!r}, got a CPU, which has no fast 16-bit "
            "floats; using '32-true' instead (ask for it, or for 'bf16-mixed', to avoid this)"
        )
        return "32-true"
    if precision in ("16-true", "bf16-true"):
        mixed = precision.replace("true", "mixed")
        raise ConfigError(
            f"expected weights of 32 or 64 bits, which add up the lengths of tours, got precision "
            f"{precision!r}; use {mixed!r}, which computes in 16 bits where that does no harm"
        )
    return precision


def _with_defaults(
    callbacks: list[Callback] | Callback | None, options: dict[str, Any]
) -> list[Callback]:
    chosen = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or [])
    wants_bar = options.get("enable_progress_bar") is not False and not options.get("barebones")
    if wants_bar and not any(isinstance(callback, ProgressBar) for callback in chosen):
        chosen.append(RL4COProgressBar())
    present = {type(callback) for callback in chosen}
    # First, so that the others find the metrics of an interrupted epoch in place.
    first = [cls() for cls in (ExactResume, WritableCheckpoints) if cls not in present]
    # Last, so that the others have seen the batch after which the run stops.
    last = [] if StopOnSignals in present else [StopOnSignals()]
    return [*first, *chosen, *last]


def _reject_unknown(options: dict[str, Any]) -> None:
    accepted = set(inspect.signature(L.Trainer.__init__).parameters) - {"self"}
    for name in options:
        if name not in accepted:
            added = set(inspect.signature(RL4COTrainer.__init__).parameters) - {"self", "kwargs"}
            raise UnknownNameError("argument of RL4COTrainer", name, accepted | added)


def _disable_profiling_executor() -> None:
    """The switch is not public in torch, and may go away with TorchScript."""
    for name in ("_jit_set_profiling_executor", "_jit_set_profiling_mode"):
        switch = getattr(torch._C, name, None)
        if switch is not None:
            switch(False)


def _is_interactive() -> bool:
    """In notebooks Lightning has to choose a way of starting processes that works there."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
