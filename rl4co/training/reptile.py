"""Reptile: meta-learning over problem sizes and distributions of nodes.

Papers: Nichol et al. (2018), https://arxiv.org/abs/1803.02999; for routing Manchanda et al. (2022),
https://arxiv.org/abs/2206.00787, and Zhou et al. (2023), https://arxiv.org/abs/2305.19587.
"""

from __future__ import annotations

import inspect
import math

from collections.abc import Mapping
from typing import Any, NamedTuple

import lightning as L
import torch

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.generator import Generator
from rl4co.envs.point_patterns import MULTI_DISTRIBUTION_PAIRS
from rl4co.models.rl.base import RL4COLitModule

DATA_TYPES = ("size", "distribution", "size_distribution")
#: Gaussian mixtures (number of modes, distance of their centres) of Zhou et al. (2023).
_MIXTURES = [(0, 0), *((modes, far) for modes in range(1, 10) for far in (1, 10, 20, 30, 40, 50))]
_SIZE_STEP = 5
_SMALLEST_ALPHA = 1e-4
_LR_DECAY = 0.1


class Task(NamedTuple):
    """Settings of an epoch's instances; None: those of the environment's generator.

    Attributes:
        size: `num_loc` of the instances.
        mixture: Modes and distance of the Gaussian mixture of their nodes.
    """

    size: int | None = None
    mixture: tuple[int, int] | None = None


class ReptileCallback(Callback):
    """Trains a model whose weights are a good start for every task.

    $$\\theta \\leftarrow \\theta + \\alpha \\frac{1}{K} \\sum_{k=1}^{K} (\\theta_k - \\theta)$$

    An epoch of training is a task: it starts from the meta weights $\\theta$ with a fresh state of
    the optimizer and ends at $\\theta_k$. After every K epochs the meta weights move, before
    validation looks at them (in the epochs in between, validation sees the weights of a task).
    Trainable weights and the policy's running statistics take part. The tasks follow from the seed
    of the model, and the rest is in checkpoints: a resumed run repeats an uninterrupted one.

    Only the training data changes. Validation and test sets stay those of the environment that the
    model was built with, which itself is not touched.

    Args:
        num_tasks: Tasks K per step of the meta weights.
        alpha: Step size $\\alpha$.
        alpha_decay: Factor on it in every epoch (not below 0.0001).
        min_size: Smallest `num_loc` of a task; not for `data_type="distribution"`.
        max_size: Largest one.
        sch_bar: Share of all epochs after which the learning rate is divided by 10.
        data_type: "size" (all sizes in the range), "distribution" (55 Gaussian mixtures) or
            "size_distribution" (sizes in steps of 5, 11 Gaussian mixtures).
        print_log: Whether to log each epoch's task.
    """

    def __init__(
        self,
        num_tasks: int,
        alpha: float,
        alpha_decay: float,
        min_size: int | None = None,
        max_size: int | None = None,
        sch_bar: float = 0.9,
        data_type: str = "size",
        print_log: bool = True,
    ) -> None:
        super().__init__()
        if num_tasks < 1:
            raise ConfigError(f"expected num_tasks of at least 1, got {num_tasks}")
        if not (0.0 < alpha <= 1.0 and 0.0 < alpha_decay <= 1.0 and 0.0 <= sch_bar <= 1.0):
            raise ConfigError(
                "expected alpha and alpha_decay in (0, 1] and sch_bar in [0, 1], got "
                f"{alpha}, {alpha_decay} and {sch_bar}"
            )
        self.num_tasks, self.alpha, self.alpha_decay = num_tasks, alpha, alpha_decay
        self.sch_bar, self.data_type, self.print_log = sch_bar, data_type, print_log
        self.tasks = list_tasks(data_type, min_size, max_size)
        self._env: RL4COEnvBase | None = None
        self._meta: dict[str, Tensor] = {}
        self._moves: dict[str, Tensor] = {}

    def task(self, model: RL4COLitModule, epoch: int) -> Task:
        """The task of an epoch, a function of the seed alone."""
        rng = derive_generator(model.run_seed, "task", epoch)
        return self.tasks[int(torch.randint(len(self.tasks), (), generator=rng))]

    def step_size(self, epoch: int) -> float:
        """$\\alpha$ in an epoch."""
        return max(self.alpha * self.alpha_decay ** (epoch + 1), _SMALLEST_ALPHA)

    # ---------------------------------------------------------------- Lightning's hooks

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Sets the task of the epoch that a resumed run continues."""
        if not isinstance(pl_module, RL4COLitModule):
            raise ConfigError(f"expected a model of RL4CO, got {type(pl_module).__name__}")
        if pl_module.env.data_files["train"]:
            raise ConfigError(
                "expected generated training instances for Reptile, got train_file; its tasks are "
                "settings of the generator"
            )
        self._env = pl_module.env
        task_generator(
            self._env.generator, self.tasks[0]
        )  # raises now for other generators, not in some epoch
        self._set_task(pl_module, trainer.current_epoch)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the task of the epoch from the meta weights."""
        assert isinstance(pl_module, RL4COLitModule)
        epoch = trainer.current_epoch
        task = self._set_task(pl_module, epoch)
        weights = _weights(pl_module)
        if epoch % self.num_tasks == 0 or not self._meta:
            self._meta = {name: weight.detach().clone() for name, weight in weights.items()}
            self._moves = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        else:
            _assign(weights, self._meta)
        for optimizer in trainer.optimizers:
            optimizer.state.clear()  # momenta of another task
            if epoch > 0 and epoch == int(self.sch_bar * (trainer.max_epochs or 0)):
                for group in optimizer.param_groups:
                    group["lr"] *= _LR_DECAY
        if self.print_log:
            rank_zero_info(f"epoch {epoch}: {task}")

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Records the change of weights after each task; updates meta weights after the last."""
        if not trainer.is_last_batch:
            return
        weights = _weights(pl_module)
        for name, weight in weights.items():
            self._moves[name] += weight.detach() - self._meta[name]
        if (trainer.current_epoch + 1) % self.num_tasks == 0:
            step = self.step_size(trainer.current_epoch) / self.num_tasks
            _assign(
                weights,
                {name: meta + step * self._moves[name] for name, meta in self._meta.items()},
            )

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restores the model's environment."""
        if self._env is not None:
            pl_module.env = self._env

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"meta": self._meta, "moves": self._moves}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From a checkpoint."""
        self._meta, self._moves = dict(state_dict["meta"]), dict(state_dict["moves"])

    def _set_task(self, model: RL4COLitModule, epoch: int) -> Task:
        assert self._env is not None
        task = self.task(model, epoch)
        twin = self._env.with_data()
        twin.generator = task_generator(self._env.generator, task)
        model.env = twin
        return task


def list_tasks(data_type: str, min_size: int | None, max_size: int | None) -> list[Task]:
    """All tasks of a kind, see :class:`ReptileCallback`."""
    if data_type not in DATA_TYPES:
        raise UnknownNameError("data_type", data_type, DATA_TYPES)
    if data_type == "distribution":
        return [Task(mixture=mixture) for mixture in _MIXTURES]
    if min_size is None or max_size is None or not 1 <= min_size <= max_size:
        raise ConfigError(
            f"expected 1 <= min_size <= max_size for data_type {data_type!r}, got {min_size} and "
            f"{max_size}"
        )
    if data_type == "size":
        return [Task(size=size) for size in range(min_size, max_size + 1)]
    sizes = range(min_size, max_size + 1, _SIZE_STEP)
    return [Task(size, mixture) for size in sizes for mixture in MULTI_DISTRIBUTION_PAIRS]


def task_generator(generator: Generator, task: Task) -> Generator:
    """A generator like the given one, for the instances of a task.

    Where vehicles have a capacity that was not chosen, it grows with the size, as in Zhou et al.
    (2023): $\\lceil 30 + n / 5 \\rceil$, or 20 below 20 customers.
    """
    parameters = inspect.signature(type(generator).__init__).parameters
    wanted: dict[str, Any] = {}
    if task.size is not None:
        wanted["num_loc"] = task.size
        if "capacity" in parameters and generator._init_arguments.get("capacity") is None:
            wanted["capacity"] = float(math.ceil(30 + task.size / 5) if task.size >= 20 else 20)
    options: dict[str, Any] = {}
    if task.mixture is not None:
        wanted["loc_distribution"] = "gaussian_mixture"
        options = {"loc_num_modes": task.mixture[0], "loc_cdist": float(task.mixture[1])}
    missing = [name for name in wanted if name not in parameters]
    if missing:
        raise UnsupportedError(
            f"expected a generator with {' and '.join(missing)} for the tasks of Reptile, got "
            f"{type(generator).__name__}"
        )
    return type(generator)(**{**generator._init_arguments, **wanted, **options})


def _weights(model: L.LightningModule) -> dict[str, Tensor]:
    """Trainable weights, and the running statistics of the policy."""
    weights: dict[str, Tensor] = {
        name: weight for name, weight in model.named_parameters() if weight.requires_grad
    }
    statistics = {
        name: buffer
        for name, buffer in model.named_buffers()
        if name.startswith("policy.") and buffer.is_floating_point()
    }
    return weights | statistics


@torch.no_grad()
def _assign(weights: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, weight in weights.items():
        weight.copy_(values[name])
