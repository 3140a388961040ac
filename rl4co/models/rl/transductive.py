"""Transductive RL: a policy is adapted to the very instances that are to be solved.

:class:`TransductiveModel` owns what all searches have in common: batches of instances one after
the other, each from the original weights; the iterations; the incumbents, which never get worse,
and their file; Lightning. A method says what is adapted and how solutions are found, by an
:class:`InstanceSearch`.
"""

from __future__ import annotations

import contextlib
import copy
import time

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.optim import Optimizer

from rl4co.core.arguments import NotPlainError, plain
from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.data.augment import StateAugmentation, has_coordinates
from rl4co.data.dataset import TensorDictDataset, make_dataloader
from rl4co.decoding.strategies import is_multistart
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.rl.base import RL4COLitModule
from rl4co.models.rl.instance_copies import InstanceCopies
from rl4co.models.rl.instance_search import InstanceSearch, Progress
from rl4co.models.rl.loader import TrainLoader
from rl4co.models.rl.optimizers import create_optimizer
from rl4co.models.rl.search_record import SearchRecord, SearchResult, fingerprint

#: Seconds between two versions of the file while a batch is searched.
_SAVE_INTERVAL = 1.0
#: Key of the incumbents in a checkpoint.
_CHECKPOINT_KEY = "search"
_DECODE_TYPES = ("multistart_sampling", "sampling")


class TransductiveModel(RL4COLitModule):
    """Base class of searches that adapt a policy to instances.

    One epoch of the trainer is one pass over the data set; a training step searches one batch of
    instances with `max_iters` iterations of manual optimisation. :meth:`search` does the same
    without a trainer. The policy itself is never changed. All randomness is derived from the seed
    and the iteration, so an instance gets the same numbers in whatever batch it is.

    Gradient clipping of the trainer does not apply: it would tie the instances of a batch together.

    Args:
        env: Environment.
        policy: Pretrained constructive policy (see
            :func:`~rl4co.models.rl.saved_policies.read_policy` for files).
        dataset: Instances, a data set, or an `.npz` file; None: the environment's test set of
            `test_data_size` instances.
        batch_size: Instances that are searched at the same time.
        max_iters: Iterations for each instance.
        max_runtime: Seconds for each batch; None: no limit.
        save_path: File for the incumbents, renewed as the search goes (at most one second late).
            If it exists, the search goes on from it.
        augment_size: Copies of each instance under symmetries. Default: 8, and none for problems
            that have no coordinates or little use for them (`env.augments_by_default`).
        augment_dihedral: Symmetries of the square (at most 8) or random rotations and reflections.
        num_parallel_runs: How often the copies are repeated.
        decode_type: "multistart_sampling" or "sampling"; default: from distinct starts where the
            environment has any.
        num_solutions: Solutions per copy and iteration; default: as many as there are starts or,
            without starts, actions.
        kwargs: See :class:`RL4COLitModule`; `optimizer` and `optimizer_kwargs` are the search's.
    """

    default_metrics = {"train": ("loss", "reward", "max_reward")}
    #: Instances that share an :class:`InstanceSearch`; None: those of a batch.
    search_size: ClassVar[int | None] = None

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        dataset: TensorDictDataset | TensorDictBase | str | Path | None = None,
        batch_size: int = 1,
        max_iters: int = 100,
        max_runtime: float | None = 86_400,
        save_path: str | Path | None = None,
        augment_size: int | None = None,
        augment_dihedral: bool = True,
        num_parallel_runs: int = 1,
        decode_type: str | None = None,
        num_solutions: int | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(policy, ConstructivePolicy):
            raise UnsupportedError(
                f"expected a constructive policy for {type(self).__name__}, got "
                f"{type(policy).__name__}; load one with rl4co.models.load_pretrained, say"
            )
        super().__init__(env, policy, batch_size=batch_size, **kwargs)
        if self.lr_scheduler is not None:
            raise ConfigError(
                f"expected no lr_scheduler for a search, got {self.lr_scheduler!r}; each batch has "
                "a few iterations with a constant rate"
            )
        if augment_size is None:
            symmetric = env.augments_by_default and has_coordinates(env.instance_shapes)
            augment_size = 8 if symmetric else 1
        counts = {
            "max_iters": max_iters,
            "augment_size": augment_size,
            "num_parallel_runs": num_parallel_runs,
            "num_solutions": 2 if num_solutions is None else num_solutions,
        }
        for name, value in counts.items():
            # With a single solution there is no baseline to compare it with.
            least = 2 if name == "num_solutions" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"expected {name} of at least {least}, got {value!r}")
        if max_runtime is not None and not max_runtime > 0:
            raise ConfigError(f"expected a positive max_runtime or None, got {max_runtime}")
        if decode_type not in (None, *_DECODE_TYPES):
            raise UnknownNameError("decode type of a search", decode_type, _DECODE_TYPES)
        self.automatic_optimization = False
        self.dataset = dataset
        self.max_iters, self.max_runtime, self.save_path = max_iters, max_runtime, save_path
        self.num_parallel_runs, self.num_solutions = num_parallel_runs, num_solutions
        self.augment_size, self.decode_type = augment_size, decode_type
        self.augment_fn = "dihedral8" if augment_dihedral else "symmetric"
        self._augmentation(None)  # rejects bad settings early
        self._record: SearchRecord | None = None
        self._restored: dict[str, Any] | None = None
        self._saved_at = -float("inf")
        self._clipping: Any = None
        self._logged = 0

    # ---------------------------------------------------------------- for methods

    def start_search(self, td: TensorDictBase) -> InstanceSearch:
        """The search on reset instances, batch `[B]`."""
        raise NotImplementedError

    def fresh_policy(self) -> ConstructivePolicy:
        """A copy of the policy in evaluation mode (normalisation as it was trained)."""
        policy = copy.deepcopy(self.policy).eval()
        assert isinstance(policy, ConstructivePolicy)  # checked at the beginning
        return policy

    def copies(self, td: TensorDictBase) -> InstanceCopies:
        """The instances and their copies."""

        def augment(instance: TensorDictBase) -> TensorDictBase:
            return self._augmentation(derive_generator(self.run_seed, "augment"))(instance)

        return InstanceCopies(
            self.env,
            td,
            augment if self.augment_size > 1 else None,
            self.num_parallel_runs,
            None if self.decode_type is None else is_multistart(self.decode_type),
            self.num_solutions,
        )

    # ---------------------------------------------------------------- searching

    def search(self, progress: Callable[[Progress], object] | None = None) -> SearchResult:
        """Searches all instances, without a trainer.

        Args:
            progress: Called after each iteration; if it returns False, the batch ends.
        """
        instances, record = self._instances(), self.record
        for first in range(0, len(instances), self.batch_size):
            batch = instances[first : first + self.batch_size]
            self.search_batch(batch, first, progress)
        return record.result()

    def search_batch(
        self,
        batch: TensorDictBase,
        first: int,
        progress: Callable[[Progress], object] | None = None,
    ) -> Progress | None:
        """Searches the instances of a batch; None if that was done before.

        Args:
            batch: Instances, batch `[B]`.
            first: Position of the batch in the data set.
            progress: See :meth:`search`.
        """
        size = self.search_size or len(batch)
        last = None
        for start in range(0, len(batch), size):
            for last in self._iterate(batch[start : start + size], first + start):
                if progress is not None and progress(last) is False:
                    break
        return last

    def _iterate(self, batch: TensorDictBase, first: int) -> Iterator[Progress]:
        """The iterations of one :class:`InstanceSearch`."""
        record, rows = self.record, slice(first, first + len(batch))
        if self._is_done(rows):
            return
        started = time.perf_counter()
        td = self.env.reset(batch).to(self.device)
        with torch.enable_grad():
            search = self.start_search(td)
        learning = [p for p in search.adapted.parameters() if p.requires_grad]
        if not learning:
            raise ConfigError("expected parameters that learn, got none; unfreeze the policy")
        optimizer = create_optimizer(learning, self.optimizer, self.optimizer_kwargs)
        record.restore(rows, search.adapted, optimizer)
        while not self._is_done(rows):
            iteration = int(record.iterations[first])
            incumbent = record.incumbents(rows)
            rng = derive_generator(self.run_seed, "search", iteration, device=self.device)
            with torch.enable_grad():
                candidates = search.sample(
                    None if incumbent is None else incumbent.to(self.device), rng
                )
                optimizer.zero_grad()
                candidates.loss.backward()
                optimizer.step()
            better = record.improve(rows, candidates.actions, candidates.rewards)
            more = search.intensify(iteration)
            if more is not None:
                better |= record.improve(rows, *more)
            if better:
                self._check(td, rows)
            now = time.perf_counter()
            record.close_iteration(rows, now - started)
            started = now
            self._save(rows, search.adapted, optimizer)
            yield Progress(
                first,
                len(batch),
                iteration + 1,
                float(candidates.rewards.mean()),
                float(record.rewards[rows].mean()),
                float(candidates.loss.detach()),
            )

    def _is_done(self, rows: slice) -> bool:
        """Whether the instances have had their iterations, or their time."""
        iterations = int(self.record.iterations[rows].min())
        if iterations >= self.max_iters:
            return True
        seconds = float(self.record.seconds[rows].min())
        # Another iteration, which would take as long as the others, must still fit in.
        return self.max_runtime is not None and (
            iterations > 0 and seconds + seconds / iterations > self.max_runtime
        )

    def _check(self, td: TensorDictBase, rows: slice) -> None:
        """Raises if incumbents are no valid solutions of the environment."""
        if self.env.check_solution:
            self.env.check_solution_validity(td, self.record.solutions[rows].to(self.device))

    # ---------------------------------------------------------------- record

    @property
    def record(self) -> SearchRecord:
        """The incumbents, loaded from `save_path` if that exists."""
        if self._record is None:
            self._record = SearchRecord(
                len(self._instances()), self.save_path, self._signature(), self._restored
            )
        return self._record

    @property
    def instance_solutions(self) -> Tensor:
        """Best solutions so far `[num, T]`, padded with zeros."""
        return self.record.solutions

    @property
    def instance_rewards(self) -> Tensor:
        """Their rewards `[num]`; minus infinity where no search has begun."""
        return self.record.rewards

    def _signature(self) -> str:
        """Settings, weights and instances that decide what a search finds."""
        # Settings that only say how long, how many at once and where to save.
        free = ("max_iters", "max_runtime", "batch_size", "save_path", "dataset", "env", "policy")
        settings: dict[str, Any] = {"env": self.env.name, "seed": self.run_seed}
        for owner in (self, self.policy):
            settings[type(owner).__name__] = ""
            for name, value in getattr(owner, "_init_arguments", {}).items():
                if name not in free:
                    with contextlib.suppress(NotPlainError):
                        settings[f"{type(owner).__name__}.{name}"] = repr(plain(value))
        instances = self._instances()
        tensors = [*self.policy.state_dict().items(), *sorted(instances.items())]
        return fingerprint(settings, tensors)

    def _save(self, rows: slice, adapted: nn.Module, optimizer: Optimizer) -> None:
        """Keeps the file up to date, but does not write all the time."""
        done = self._is_done(rows)
        if done or time.monotonic() - self._saved_at > _SAVE_INTERVAL:
            self.record.save(None if done else rows, adapted, optimizer)
            self._saved_at = time.monotonic()

    # ---------------------------------------------------------------- data

    def _instances(self) -> TensorDictBase:
        """All instances, loaded or generated once."""
        data = self.dataset
        if data is None:
            data = self.env.dataset(self.data_sizes["test"], phase="test")
        elif isinstance(data, str | Path):
            data = self.env.load_data(data)
        if isinstance(data, TensorDictDataset):
            data = data.data
        if not isinstance(data, TensorDictBase) or len(data.batch_size) != 1 or not len(data):
            got = list(data.batch_size) if isinstance(data, TensorDictBase) else type(data).__name__
            raise ConfigError(
                f"expected at least one instance with one batch axis to search, got {got}; pass "
                "instances (TensorDict), one data set or an .npz file as dataset"
            )
        self.dataset = data
        return data

    def _augmentation(self, rng: torch.Generator | None) -> StateAugmentation:
        return StateAugmentation(self.augment_size, self.augment_fn, rng=rng)

    def load_datasets(self) -> None:
        """The instances are training, validation and test set in one."""
        data = TensorDictDataset(self._instances())
        self._datasets = {phase: {phase: data} for phase in ("train", "val", "test")}

    def train_dataloader(self) -> TrainLoader:
        """The batches to search, in order; a resumed run continues with the next one."""
        loader = make_dataloader(self._datasets["train"]["train"], self.batch_size)
        return TrainLoader(lambda epoch: loader, self._position, len(loader))

    def set_names(self, phase: str) -> list[str]:
        """There is one set."""
        return [phase]

    # ---------------------------------------------------------------- Lightning

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the incumbents."""
        super().on_save_checkpoint(checkpoint)
        checkpoint[_CHECKPOINT_KEY] = self.record.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the incumbents, unless `save_path` has newer ones or the instances differ."""
        super().on_load_checkpoint(checkpoint)
        self._restored, self._record = checkpoint.get(_CHECKPOINT_KEY), None

    def configure_optimizers(self) -> Optimizer:
        """A placeholder that lets the trainer count batches; each batch has its optimizer."""
        return torch.optim.SGD([nn.Parameter(torch.zeros((), device=self.device))], lr=0.0)

    def configure_callbacks(self) -> list[Any]:
        """Disables the trainer's clipping, which Lightning rejects with manual optimisation."""
        if self.trainer.state.fn == "fit":
            self._clipping, self.trainer.gradient_clip_val = self.trainer.gradient_clip_val, None
        return []

    def teardown(self, stage: str) -> None:
        """Restores the clipping of the trainer."""
        if stage == "fit":
            self.trainer.gradient_clip_val = self._clipping

    def setup(self, stage: str | None = None) -> None:
        """Loads the instances; the policy stays in the mode it is in."""
        if self._world_size > 1:
            raise UnsupportedError(
                f"expected one process for {type(self).__name__}, got {self._world_size}; "
                "search parts of the data set in separate runs (RL4COTrainer(devices=1))"
            )
        self._totals.clear()
        self.load_datasets()

    def training_step(self, batch: TensorDictBase, batch_idx: int) -> dict[str, Any]:
        """Searches one batch of instances, in the precision of the policy's weights."""
        first = batch_idx * self.batch_size
        with torch.autocast(self.device.type, enabled=False):
            last = self.search_batch(batch, first, self._log_iteration)
        self._count_step()
        outputs = {"max_reward": self.record.rewards[first : first + len(batch)]}
        if last is not None:
            outputs |= {"loss": torch.tensor(last.loss), "reward": torch.tensor(last.reward)}
        metrics = self.log_metrics(outputs, "train", batch_size=len(batch))
        return {name: value for name, value in metrics.items() if name != "loss"}

    def _count_step(self) -> None:
        """A step with the placeholder, which changes nothing."""
        placeholder: Any = self.optimizers()
        (parameter,) = placeholder.param_groups[0]["params"]
        placeholder.zero_grad()
        self.manual_backward(0.0 * parameter)
        placeholder.step()

    def _log_iteration(self, progress: Progress) -> None:
        """Sends the curve of each iteration to the loggers; Lightning keeps one value per step."""
        values = {
            "search/reward": progress.reward,
            "search/max_reward": progress.best,
            "search/loss": progress.loss,
        }
        for logger in self.loggers:
            logger.log_metrics(values, step=self._logged)
        self._logged += 1

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Validation: the policy as it is, greedily. Test: the incumbents."""
        if phase == "test":
            first = batch_idx * self.test_batch_size
            rewards = self.record.rewards[first : first + len(batch)]
            if not bool(rewards.isfinite().all()):
                raise ConfigError(
                    "expected incumbents of all test instances, got instances without; search "
                    "them first with trainer.fit(model) or model.search()"
                )
        else:
            with torch.no_grad():
                rewards = self.policy(self.env.reset(batch), self.env, phase=phase)["reward"]
        return self.log_metrics({"reward": rewards}, phase, dataloader_idx, batch_size=len(batch))

    def after_epoch(self) -> None:
        """One pass over the instances is all there is to do."""
        self.record.save()
        self.trainer.should_stop = True
