"""`RL4COLitModule`: the thin Lightning module under every RL algorithm.

It joins an environment and a policy, an optimizer and logging, and derives all randomness of
training from (seed, epoch, batch, rank), so that a resumed run repeats an uninterrupted one. Its
data come from :mod:`rl4co.models.rl.data`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.arguments import RecordsArguments
from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.registry import EMBEDDINGS, ENVS
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.custom_classes import AllowedClasses
from rl4co.models.rl.checkpointing import (
    RECORD_KEY,
    MapLocation,
    check_weights,
    describe_model,
    load_model,
)
from rl4co.models.rl.data import DataHooks
from rl4co.models.rl.optimizers import (
    OptimizerLike,
    SchedulerLike,
    check_optimization,
    create_optimizer,
    create_scheduler,
)
from rl4co.models.rl.policy_check import check_policy_reads_states

M = TypeVar("M", bound="RL4COLitModule")

_DEFAULT_METRICS = {
    "train": ("loss", "reward", "bl_val"),
    "val": ("reward",),
    "test": ("reward",),
}


class RL4COLitModule(RecordsArguments, DataHooks):
    """Base class of RL algorithms.

    Args:
        env: Environment.
        policy: Policy.
        batch_size: Training instances per step (and process).
        val_batch_size: Validation instances per step (default: `batch_size`).
        test_batch_size: Test instances per step (default: `batch_size`).
        train_data_size: Training instances per epoch.
        val_data_size: Validation instances, unless they come from files; 0: no validation.
        test_data_size: Test instances, unless they come from files; 0: no tests.
        optimizer: Name in `torch.optim`, class or factory.
        optimizer_kwargs: Its arguments (default `{"lr": 1e-4}`).
        lr_scheduler: Name in `torch.optim.lr_scheduler`, class or factory; None: constant rate.
        lr_scheduler_kwargs: Its arguments (default for MultiStepLR: as in the paper).
        lr_scheduler_interval: "epoch" or "step".
        lr_scheduler_monitor: Metric watched by schedulers such as ReduceLROnPlateau.
        shuffle_train_dataloader: Shuffle training data that comes from a file.
        dataloader_num_workers: Worker processes of the loaders.
        generate_default_data: Write validation and test sets to `data_dir` first and use them:
            those of the paper that the environment names, or sets from its generator.
        data_dir: Folder of the data sets (default: the environment's).
        metrics: Names of outputs to log, per phase (`{"train": [...], "val": [...], ...}`; None:
            those of the method); a name that the first step does not have raises an error.
        log_on_step: Log training metrics at every step, not only per epoch; `metrics` may have it,
            too.
        seed: Seed of instances and actions; default: torch's initial seed.
    """

    #: Metrics that a method logs on top of (or instead of) the defaults.
    default_metrics: Mapping[str, Sequence[str]] = {}
    #: Environments that a method is made for; None: all that have embeddings.
    supported_envs: ClassVar[Sequence[str] | None] = None
    #: Why it is made for these alone, for the error message.
    support_reason: ClassVar[str] = "its networks need embeddings of the problem"

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        batch_size: int = 512,
        val_batch_size: int | None = None,
        test_batch_size: int | None = None,
        train_data_size: int = 100_000,
        val_data_size: int = 10_000,
        test_data_size: int = 10_000,
        optimizer: OptimizerLike = "Adam",
        optimizer_kwargs: Mapping[str, Any] | None = None,
        lr_scheduler: SchedulerLike | None = None,
        lr_scheduler_kwargs: Mapping[str, Any] | None = None,
        lr_scheduler_interval: str = "epoch",
        lr_scheduler_monitor: str = "val/reward",
        generate_default_data: bool = False,
        shuffle_train_dataloader: bool = True,
        dataloader_num_workers: int = 0,
        data_dir: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        log_on_step: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        # The caller's environment stays as it is.
        self.env = env if data_dir is None else env.with_data(data_dir)
        self.policy = policy
        check_policy_reads_states(policy, self.env)
        self.batch_size = _positive("batch_size", batch_size)
        self.val_batch_size = _positive("val_batch_size", val_batch_size, batch_size)
        self.test_batch_size = _positive("test_batch_size", test_batch_size, batch_size)
        self.data_sizes = {
            "train": _positive("train_data_size", train_data_size),
            "val": _at_least(0, "val_data_size", val_data_size),
            "test": _at_least(0, "test_data_size", test_data_size),
        }
        self.optimizer, self.optimizer_kwargs = optimizer, dict(optimizer_kwargs or {"lr": 1e-4})
        self.lr_scheduler = lr_scheduler
        self.lr_scheduler_kwargs = lr_scheduler_kwargs
        self.lr_scheduler_interval = lr_scheduler_interval
        self.lr_scheduler_monitor = lr_scheduler_monitor
        check_optimization(
            optimizer,
            self.optimizer_kwargs,
            lr_scheduler,
            lr_scheduler_kwargs,
            lr_scheduler_interval,
        )
        self.generate_default_data = generate_default_data
        self.shuffle_train_dataloader = shuffle_train_dataloader
        self.dataloader_num_workers = dataloader_num_workers
        requested = dict(metrics or {})
        in_metrics = requested.pop("log_on_step", None)
        self.log_on_step = log_on_step if in_metrics is None else in_metrics
        self._asked_metrics = _checked_metrics(requested)
        self.metrics = {**_DEFAULT_METRICS, **self.default_metrics, **self._asked_metrics}
        self._totals: dict[str, tuple[Tensor, int]] = {}
        self._datasets = {}
        self.run_seed = torch.initial_seed() % 2**63 if seed is None else seed

    # ---------------------------------------------------------------- support

    @classmethod
    def supports(cls, env_name: str) -> bool:
        """Whether the method with its default policy solves an environment."""
        return env_name in (EMBEDDINGS if cls.supported_envs is None else cls.supported_envs)

    @classmethod
    def default_policy(
        cls,
        policy_cls: Callable[..., nn.Module],
        env: RL4COEnvBase,
        policy: nn.Module | None,
        policy_kwargs: Mapping[str, Any] | None,
        **defaults: Any,
    ) -> nn.Module:
        """The policy that the caller passed, or the method's default for the environment.

        Args:
            policy_cls: Class of the method's default policy.
            env: Environment.
            policy: Custom policy, possibly for environments that the method does not support.
            policy_kwargs: Arguments of the default policy.
            defaults: The method's settings; `policy_kwargs` wins over them.
        """
        if policy is not None:
            if policy_kwargs:
                raise ConfigError("expected policy or policy_kwargs, got both; give one of them")
            return policy
        if isinstance(env, str):
            raise ConfigError(
                f"expected an environment for {cls.__name__}, got {env!r}; use get_env({env!r})"
            )
        if not cls.supports(env.name):
            supported = [name for name in ENVS if cls.supports(name)]
            raise UnsupportedError(
                f"expected one of {', '.join(supported)} for {cls.__name__}, got {env.name!r}: "
                f"{cls.support_reason}; choose another method or pass a custom policy"
            )
        return policy_cls(**{"env_name": env.name, **defaults, **(policy_kwargs or {})})

    # ---------------------------------------------------------------- steps

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """One step of any phase; returns logged metrics and, in training, `loss`."""
        raise NotImplementedError

    def training_step(self, batch: TensorDictBase, batch_idx: int) -> dict[str, Any]:
        """Lightning's hook."""
        return self.shared_step(self.wrap_batch(batch), batch_idx, phase="train")

    def validation_step(
        self, batch: TensorDictBase, batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Lightning's hook."""
        return self.shared_step(batch, batch_idx, phase="val", dataloader_idx=dataloader_idx)

    def test_step(
        self, batch: TensorDictBase, batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Lightning's hook."""
        return self.shared_step(batch, batch_idx, phase="test", dataloader_idx=dataloader_idx)

    def forward(self, td: TensorDictBase, **kwargs: Any) -> Any:
        """Solves instances with the policy, reset or not yet.

        Args:
            td: State after `env.reset`, or instances.
            kwargs: Arguments of the policy; `env` replaces the model's.
        """
        env = kwargs.pop("env", None) or self.env
        if "done" not in td.keys():
            td = env.reset(td)
        return self.policy(td, env, **kwargs)

    def setup(self, stage: str | None = None) -> None:
        """Agrees on the seed and mode of training; loads or generates validation and test sets.

        Without a trainer it makes the data ready for :meth:`test_dataloader` and the like.
        """
        if self._trainer is not None:
            self.run_seed = self.trainer.strategy.broadcast(self.run_seed)
        self._totals.clear()
        if stage == "fit":
            # Lightning trains modules in the mode they are in, and pretrained policies come in
            # evaluation mode.
            self.train()
        self.load_datasets()
        self.post_setup_hook()

    def post_setup_hook(self) -> None:
        """Hook of algorithms at the end of :meth:`setup`."""

    def on_train_epoch_end(self) -> None:
        """Runs :meth:`after_epoch`; override that one."""
        self.after_epoch()

    @property
    def before_first_update(self) -> bool:
        """Whether a trainer is about to train weights that it has not updated yet."""
        trainer = self._trainer
        return trainer is not None and bool(trainer.training) and trainer.global_step == 0

    def after_epoch(self) -> None:
        """Hook of algorithms at the end of each training epoch."""

    def action_rng(self, phase: str, batch_idx: int) -> torch.Generator:
        """Random stream for the actions of one batch."""
        return derive_generator(
            self.run_seed, "actions", phase, self.current_epoch, batch_idx, self.global_rank,
            device=self.device,
        )  # fmt: skip

    # ---------------------------------------------------------------- logging

    def log_metrics(
        self,
        metric_dict: Mapping[str, Any],
        phase: str,
        dataloader_idx: int | None = None,
        batch_size: int | None = None,
    ) -> dict[str, Any]:
        """Logs the metrics of a phase as `phase/name` and returns them with the loss.

        With several validation or test sets each is logged as `phase/set/name`, and the mean over
        all their instances as `phase/name`.

        Args:
            metric_dict: Outputs by name; those that are metrics of the phase are logged.
            phase: train, val or test.
            dataloader_idx: Number of the data set; None: the first.
            batch_size: Instances that the outputs are of (default: as many as there are rewards).
        """
        out = metric_dict
        if batch_size is None:
            reward = out.get("reward")
            batch_size = len(reward) if isinstance(reward, Tensor) and reward.dim() else 1
        tensors = {name: value for name, value in out.items() if isinstance(value, Tensor)}
        for name in self._asked_metrics.get(phase, ()):
            if name not in tensors:
                raise UnknownNameError(f"{phase} metric", name, tensors)
        # Of the defaults, an algorithm logs those that it has.
        logged = [name for name in self.metrics[phase] if name in tensors]
        values = {name: tensors[name].detach().float().mean() for name in logged}
        options: dict[str, Any] = {
            "on_step": phase == "train" and self.log_on_step,
            "on_epoch": True,
            "sync_dist": True,
            "batch_size": batch_size,
            "add_dataloader_idx": False,
        }
        names = self.set_names(phase)
        for name, value in values.items():
            visible = name in ("reward", "loss")
            if len(names) < 2:
                self.log(f"{phase}/{name}", value, prog_bar=visible, **options)
                continue
            self.log(
                f"{phase}/{names[dataloader_idx or 0]}/{name}", value, prog_bar=visible, **options
            )
            total, size = self._totals.get(name, (torch.zeros_like(value), 0))
            self._totals[name] = (total + batch_size * value, size + batch_size)
        # Lightning differentiates "loss", so the logged copy must not replace it.
        return {**values, **({"loss": out["loss"]} if "loss" in out else {})}

    def _log_totals(self, phase: str) -> None:
        """Means over several sets; Lightning does not add up what different loaders log."""
        for name, (total, size) in self._totals.items():
            self.log(f"{phase}/{name}", total / size, batch_size=size, sync_dist=True)
        self._totals.clear()

    def on_validation_epoch_end(self) -> None:
        """Lightning's hook."""
        self._log_totals("val")

    def on_test_epoch_end(self) -> None:
        """Lightning's hook."""
        self._log_totals("test")

    # ---------------------------------------------------------------- optimizers

    def trainable_parameters(self) -> list[Any]:
        """Parameters for the optimizer, or groups of them with separate settings."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def configure_optimizers(self) -> Any:
        """Optimizer over everything that learns, and its scheduler."""
        optimizer = create_optimizer(
            self.trainable_parameters(), self.optimizer, self.optimizer_kwargs
        )
        if self.lr_scheduler is None:
            return optimizer
        scheduler = create_scheduler(optimizer, self.lr_scheduler, self.lr_scheduler_kwargs)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler,
                "interval": self.lr_scheduler_interval,
                "monitor": self.lr_scheduler_monitor,
            },
        }

    # ---------------------------------------------------------------- checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds a plain description of the model and the seed, the source of all randomness."""
        checkpoint[RECORD_KEY] = describe_model(self)
        checkpoint["run_seed"] = self.run_seed

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the seed of the interrupted run; raises for weights of another model."""
        if self.strict_loading:
            name = checkpoint.get(RECORD_KEY, {}).get("class", "model")
            check_weights(self, checkpoint["state_dict"], name)
        self.run_seed = checkpoint.get("run_seed", self.run_seed)

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls: type[M],
        checkpoint_path: str | Path | IO[bytes],
        env: RL4COEnvBase | None = None,
        policy: nn.Module | None = None,
        map_location: MapLocation = "cpu",
        strict: bool = True,
        allow_classes: AllowedClasses = (),
        **kwargs: Any,
    ) -> M:
        """The model of a checkpoint, in evaluation mode.

        The model is rebuilt from the plain values in the file (names and constructor arguments);
        no code from the file is run. On a base class, a file may hold a model of any subclass.

        Args:
            checkpoint_path: Checkpoint written during training.
            env: Replaces the recorded environment; needed if that cannot be described by plain
                values.
            policy: Replaces the recorded policy; needed in the same case.
            map_location: Device of the model, see `torch.load`.
            strict: Whether the weights must fit exactly.
            allow_classes: Custom classes (of the model, its policy or their parts) that may be
                used: classes, or module paths (`"my_package.MyPolicy"`), which are imported then.
            kwargs: Further constructor arguments that replace the recorded ones.
        """
        objects = {"env": env, "policy": policy}
        replacements = {key: value for key, value in objects.items() if value is not None} | kwargs
        return load_model(cls, checkpoint_path, replacements, map_location, strict, allow_classes)


def _positive(name: str, size: int | None, default: int | None = None) -> int:
    """A size, or the default in place of None."""
    return _at_least(1, name, default if size is None else size)


def _at_least(least: int, name: str, size: int | None) -> int:
    if not isinstance(size, Integral) or size < least:
        raise ConfigError(f"expected {name} to be an integer of at least {least}, got {size!r}")
    return int(size)


def _checked_metrics(metrics: Mapping[str, Sequence[str] | None]) -> dict[str, tuple[str, ...]]:
    """Names of metrics per phase; whether they exist shows when the first step has its outputs."""
    requested = {phase: names for phase, names in metrics.items() if names is not None}
    for phase, names in requested.items():
        if phase not in _DEFAULT_METRICS:
            raise UnknownNameError("phase in metrics", phase, _DEFAULT_METRICS)
        if isinstance(names, str):
            raise ConfigError(f"expected a list of names as metrics[{phase!r}], got {names!r}")
    return {phase: tuple(names) for phase, names in requested.items()}
