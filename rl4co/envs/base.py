"""`RL4COEnvBase`: what every environment has in common.

A problem is a subclass with a handful of *pure hooks* on a mapping of tensors, declared in
:mod:`rl4co.envs.hooks`. What TorchRL needs besides is in :mod:`rl4co.envs.torchrl_mode`.
"""

from __future__ import annotations

import copy
import inspect
import math

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from rl4co.core.adapters import adapt
from rl4co.core.arguments import RecordsArguments
from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.ops import batchify, flatten_starts
from rl4co.core.registry import FORMULATIONS, SOLVERS
from rl4co.core.rng import derive_generator
from rl4co.data.dataset import TensorDictDataset
from rl4co.data.io import named_files, resolve_data
from rl4co.envs.arguments import (
    check_action,
    check_actions,
    check_is_tensordict,
    reject_masked,
    reject_violations,
)
from rl4co.envs.generator import Generator
from rl4co.envs.hooks import ProblemHooks, State
from rl4co.envs.instances import InstanceSchema
from rl4co.envs.torchrl_mode import make_specs, reject_fixed_batch_axes, write_action

__all__ = ["PHASE_SEEDS", "RL4COEnvBase", "State"]

E = TypeVar("E", bound="RL4COEnvBase")

#: Seeds of the validation and test sets of the paper (after Kool et al., 2019).
PHASE_SEEDS: Mapping[str, int] = {"val": 4321, "test": 1234}
_PHASES = ("train", "val", "test")


class RL4COEnvBase(RecordsArguments, ProblemHooks, EnvBase):
    """Base class of all environments.

    Args:
        generator: Source of instances; built from `generator_params` if not given.
        generator_params: Arguments of the default generator.
        data_dir: Folder against which the files below are resolved.
        train_file: One data set or several for training, joined into one; None generates
            instances batch by batch.
        val_file: One data set or several for validation; None generates with seed 4321.
        test_file: One data set or several for testing; None generates with seed 1234.
        val_dataloader_names: Names of the validation sets (default: their file names).
        test_dataloader_names: Names of the test sets.
        check_solution: Whether `get_reward` verifies solutions.
        check_instance: Whether `reset` verifies instances.
        check_action: Whether actions that the mask forbids or that do not exist raise an error.
            None: in `step`, if the action is on a CPU, where reading it costs little. True: also on
            other devices, in the decode loop and in TorchRL mode. False: never.
        dataset_cls: Data set class wrapped around instances.
        seed: Seed of the environment's own random stream; None draws from torch's global one.
        device: Device of the tensors.
        _torchrl_mode: Step as TorchRL does (keeps the root state, rewards at the last step).
    """

    batch_locked = False
    #: Whether solutions are scored by the state in which they end, rather than by any state.
    scores_final_states: ClassVar[bool] = False
    #: Whether `reset` and `step` are made of the hooks `_init_state` and `_transition`; if a class
    #: replaces them as a whole, its specs and step bounds are approximate.
    steps_by_hooks: ClassVar[bool] = True
    #: Keys, shapes and kinds of numbers of its instances.
    schema: InstanceSchema
    #: The environment's own random stream; None draws from torch's global one.
    rng: torch.Generator | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        adapt("environment", cls)

    def __init__(
        self,
        generator: Generator | None = None,
        generator_params: Mapping[str, Any] | None = None,
        *,
        data_dir: str | Path = "data",
        train_file: str | Sequence[str] | None = None,
        val_file: str | Sequence[str] | None = None,
        test_file: str | Sequence[str] | None = None,
        val_dataloader_names: Sequence[str] | None = None,
        test_dataloader_names: Sequence[str] | None = None,
        check_solution: bool = True,
        check_instance: bool = True,
        check_action: bool | None = None,
        dataset_cls: type[TensorDictDataset] = TensorDictDataset,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _torchrl_mode: bool = False,
    ) -> None:
        super().__init__(device=device, batch_size=torch.Size([]))
        if generator is not None and generator_params:
            raise ConfigError("expected generator or generator_params, got both; give one of them")
        self.generator = generator or self.generator_cls(**(generator_params or {}))
        self.data_dir = Path(data_dir)
        self.data_files = {
            "train": named_files(train_file, None),
            "val": named_files(val_file, val_dataloader_names),
            "test": named_files(test_file, test_dataloader_names),
        }
        self.check_solution = check_solution
        self.check_instance = check_instance
        self.check_action = check_action
        self.dataset_cls = dataset_cls
        self.seed, self.rng = seed, None
        if seed is not None:
            self._set_seed(seed)
        self._torchrl_mode = _torchrl_mode
        self._make_specs()

    # ---------------------------------------------------------------- episode

    def reset(
        self,
        td: TensorDictBase | None = None,
        batch_size: int | Sequence[int] | None = None,
        **kwargs: Any,
    ) -> TensorDict:
        """Initial state of the given instances, or of freshly generated ones.

        Args:
            td: Instances; never modified.
            batch_size: How many instances to generate when `td` is None.
            kwargs: Forwarded to TorchRL's `reset` in TorchRL mode.
        """
        if kwargs and not self._torchrl_mode:
            raise UnknownNameError("argument of reset", next(iter(kwargs)), ("td", "batch_size"))
        if not self._torchrl_mode:
            return self._reset_by_hooks(td, batch_size)
        if td is None and batch_size is not None:
            td = self.generate(batch_size)
        if td is None:
            return super().reset(**kwargs)
        check_is_tensordict(td)
        # A copy, because TorchRL writes the new state into its argument.
        return super().reset(self.schema.normalized(td).copy(), **kwargs)

    def _reset_by_hooks(
        self, td: TensorDictBase | None, batch_size: int | Sequence[int] | None
    ) -> TensorDict:
        if td is None:
            td = self.generate(self.batch_size if batch_size is None else batch_size)
        check_is_tensordict(td)
        td = self.schema.normalized(td)
        if self.check_instance:
            self.check_instances(td)
        return TensorDict(self.initial_state(td), batch_size=td.batch_size, device=self.device)

    def initial_state(self, td: TensorDictBase) -> State:
        """The state in which the solution of an instance begins; the instance is not checked."""
        instance = dict(td.to(self.device).items())
        done = torch.zeros(*td.batch_size, 1, dtype=torch.bool, device=self.device)
        extras = {key: value for key, value in instance.items() if key not in self.instance_shapes}
        state = {"i": done.long(), **extras, **self._init_state(instance)}
        state.update(done=done, terminated=done)
        state["reward"] = torch.zeros(*td.batch_size, 1, device=self.device)
        state["action_mask"] = self._action_mask(state)
        return state

    def step(self, td: TensorDictBase) -> Any:
        """Applies `td["action"]`; the new state is under `"next"`. `td` is not modified.

        Outside TorchRL mode the result holds nothing but the new state: no copy of the previous
        one is kept.
        """
        return super().step(td) if self._torchrl_mode else {"next": self._step_by_hooks(td)}

    def _step_by_hooks(self, td: TensorDictBase) -> TensorDict:
        check_action(self.name, td["action_mask"], td.get("action", None))
        state = dict(td.items())
        if self._looks_at(state["action"]):
            reject_masked(self.name, state, state["action"])
        new_state = self.advance(state, state["action"])
        new_state["terminated"] = new_state["done"]
        return TensorDict(new_state, batch_size=td.batch_size, device=self.device)

    def _looks_at(self, action: Tensor) -> bool:
        """Whether `step` checks an action by itself, see `check_action`."""
        return self.check_action is None and action.device.type == "cpu"

    def advance(self, state: State, action: Tensor) -> State:
        """One step on a plain mapping: the new state with its mask. What the decode loop calls."""
        if self.check_action:
            reject_masked(self.name, state, action)
        changes = self._transition(state, action)
        reward = self._step_reward(state, action, changes)
        if reward is not None:
            changes["reward"] = reward
        if "i" not in changes:
            changes["i"] = state["i"] + 1
        new_state = {**state, **changes, "action": action}
        new_state["action_mask"] = self._action_mask(new_state)
        return new_state

    def steps_left(self, state: State) -> tuple[int, int]:
        """Fewest and most steps from a state to the end of its solution.

        :meth:`step_bounds` counts from an empty solution; a state may have steps behind it, which
        takes one look at `i`.
        """
        fewest, most = self.step_bounds(state)
        first, last = (int(taken) for taken in state["i"].aminmax())
        return max(fewest - last, 0), max(most - first, 0)

    def get_action_mask(self, td: Mapping[str, Tensor] | TensorDictBase) -> Tensor:
        """Allowed actions of a state: `[*B, N]`, True = allowed."""
        return self._action_mask(dict(td.items()))

    def get_reward(
        self,
        td: TensorDictBase | Mapping[str, Tensor],
        actions: Tensor,
        check_solution: bool | None = None,
    ) -> Tensor:
        """Reward of complete solutions, without stepping.

        Args:
            td: State or reset instances with batch `[*B]`.
            actions: `[*B, T]`.
            check_solution: Overrides the environment's setting.

        Returns:
            Rewards `[*B]`.
        """
        if self.check_solution if check_solution is None else check_solution:
            self.check_solution_validity(td, actions)
        return self._objective(dict(td.items()), actions)

    def check_solution_validity(
        self, td: TensorDictBase | Mapping[str, Tensor], actions: Tensor
    ) -> None:
        """Raises :class:`InvalidSolutionError` naming the constraint and the instances."""
        state = dict(td.items())
        check_actions(self.name, state["action_mask"], actions)
        num_actions = state["action_mask"].shape[-1]
        outside = (actions < 0) | (actions >= num_actions)  # [*B, T]
        violations = {
            "every action exists": outside.any(-1),
            # Hooks gather by action, so they only see actions that exist.
            **self._violations(state, actions.clamp(0, num_actions - 1)),
        }
        reject_violations(violations)

    def check_augmentation(self, augment_fn: object) -> None:
        """Raises :class:`UnsupportedError` if an augmentation is known to change costs here.

        Args:
            augment_fn: Its name; a custom function is trusted.
        """
        keeps = self.augmentations()
        if isinstance(augment_fn, str) and augment_fn not in keeps:
            names = " or ".join(map(repr, keeps))
            raise UnsupportedError(
                f"expected an augmentation under which solutions of this {self.name} keep their "
                f"costs, got {augment_fn!r}; "
                + (f"use {names}" if keeps else "use sampling instead")
            )

    # ---------------------------------------------------------------- instances and data

    def generate(self, batch_size: int | Sequence[int]) -> TensorDict:
        """Fresh instances from the environment's generator and random stream."""
        return self.generator(batch_size, rng=self.rng).to(self.device)

    def check_instances(self, td: TensorDictBase) -> None:
        """Raises :class:`InvalidInstanceError` naming the key, the instance and the rule."""
        td = self.schema.normalized(td)
        self.schema.check(td, self._instance_faults, self._fault_place)

    def dataset(
        self,
        batch_size: int | Sequence[int] = (),
        phase: str = "train",
        filename: str | None = None,
    ) -> TensorDictDataset | dict[str, TensorDictDataset]:
        """The data set of a phase: its file(s) if it has any, otherwise generated instances.

        Validation and test instances come from the seeds of the paper, so they are the same in
        every run. Several files give a dictionary by name.

        Args:
            batch_size: Number of instances to generate, or to read at most from each file (`()`
                reads all).
            phase: train, val or test.
            filename: File to read instead of the phase's own.
        """
        if phase not in _PHASES:
            raise UnknownNameError("phase", phase, _PHASES)
        files = named_files(filename, None) if filename else self.data_files[phase]
        if not files:
            if not isinstance(batch_size, int) and not len(batch_size):
                raise ConfigError(
                    f"expected a batch_size for the {phase} set of {self.name}, which has no file, "
                    f"got (); pass the number of instances to generate, or a filename"
                )
            seed = PHASE_SEEDS.get(phase)
            rng = self.rng if seed is None else torch.Generator().manual_seed(seed)
            return self.dataset_cls(self.generator(batch_size, rng=rng))
        sizes = (batch_size,) if isinstance(batch_size, int) else tuple(batch_size)
        limit = math.prod(sizes) if sizes else None
        sets = {
            name: self.dataset_cls(self.load_data(resolve_data(path, self.data_dir))[:limit])
            for name, path in files.items()
        }
        return sets if len(sets) > 1 else next(iter(sets.values()))

    def with_data(
        self: E,
        data_dir: str | Path | None = None,
        data_files: Mapping[str, Mapping[str, str | Path]] | None = None,
    ) -> E:
        """A copy of the environment that reads other files; this one stays as it is.

        Args:
            data_dir: Folder of the data sets (default: this environment's).
            data_files: Phase → name → file, for the phases to replace.
        """
        twin = copy.copy(self)
        twin.rng = self.rng  # one random stream, whichever of the two draws from it
        twin.data_dir = self.data_dir if data_dir is None else Path(data_dir)
        tables = {**self.data_files, **(data_files or {})}
        twin.data_files = {phase: dict(files) for phase, files in tables.items()}
        return twin

    def load_data(self, fpath: str | Path) -> TensorDict:
        """Instances from an `.npz` file with this problem's keys."""
        return self.schema.load(fpath)

    # ---------------------------------------------------------------- starts, search, figures

    def get_num_starts(self, td: TensorDictBase) -> int:
        """Number of distinct starts, from the instances (never from the generator).

        Instances of a batch may allow more or fewer first actions. This is the largest of their
        numbers, so no start of any of them is missed; it may change from batch to batch. Where it
        depends on values of the instances, it takes one look at the device.
        """
        return self._count_starts(dict(td.items()))

    def select_start_nodes(self, td: TensorDictBase, num_starts: int) -> Tensor:
        """First actions of :meth:`start_actions` in the published row order, starts outermost.

        Shapes:
            `[S * B]`, row `s * B + b` is start s of instance b; several batch axes count as one, no
            batch axis as one instance
        """
        starts = self.start_actions(dict(td.items()), num_starts)  # [*B, S]
        return flatten_starts(starts, td.batch_dims)

    def start_actions(self, state: State, num_starts: int) -> Tensor:
        """First actions `[*B, S]`, distinct where an instance allows as many.

        An instance that allows fewer repeats them in turn, after all its distinct ones are used.
        """
        self._check_num_starts(state, num_starts)
        return self._start_actions(state, num_starts)

    def _check_num_starts(self, state: State, num_starts: int) -> None:
        available = self._most_starts(state)
        if not 1 <= num_starts <= available:
            raise ConfigError(
                f"expected 1 to {available} starts for {self.name}, got {num_starts}; "
                "use sampling for more solutions per instance"
            )

    def start_prefix(self, state: State) -> Tensor | None:
        """Actions `[*B, K]` that every solution begins with, before its start; None: none."""
        return self._start_prefix(state)

    def action_gains(self, state: State) -> Tensor:
        """What each action adds to the reward at once `[*B, N]`: what greedy heuristics look at."""
        return self._action_gains(state)

    def local_search(
        self, td: TensorDictBase, actions: Tensor, rng: object = None, **options: Any
    ) -> Tensor:
        """Solutions improved by the problem's local search: `[*B, T]` → `[*B, T']`.

        Args:
            td: State with batch `[*B]`. With one batch axis, `actions` may have several solutions
                per instance in the order of `batchify`: the search gets a copy of it for each.
            actions: Solutions.
            rng: A seed or generator; the searches are deterministic and ignore it.
            options: Settings of the problem's search.
        """
        if td.batch_dims == 1 and len(actions) > len(td) > 0 == len(actions) % len(td):
            td = batchify(td, len(actions) // len(td))
        return self._local_search(dict(td.items()), actions, **options)

    def solve(
        self,
        instances: TensorDictBase,
        max_runtime: float = 10.0,
        num_procs: int = 1,
        solver: str | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        """Solves instances with a classical solver.

        Args:
            instances: Batch of instances.
            max_runtime: Seconds per instance.
            num_procs: Instances solved at the same time.
            solver: Name of the solver; default is :meth:`default_solver`.
            options: Forwarded to the solver: `initial` is a solution `[B, T]` of each instance to
                begin with, where the solver can (the result is never worse), others are its own.

        Returns:
            Actions `[B, T]` in this environment's encoding and costs `[B]` (minus the reward).
        """
        chosen = SOLVERS[solver] if solver else self.default_solver()
        instances = self.schema.normalized(instances)
        return chosen(self, instances, max_runtime=max_runtime, num_procs=num_procs, **options)

    def default_solver(self, warm_start: bool = False, large: bool = False) -> Any:
        """The first one of the solvers that the problem's formulation prefers.

        Args:
            warm_start: Whether it has to be one that can begin with a given solution.
            large: Whether it should do without the distances of all pairs, if one does.
        """
        formulation = FORMULATIONS.get(self.name)
        if large and formulation and formulation.large_solver:
            return SOLVERS[formulation.large_solver]
        for name in formulation.solvers if formulation else ():
            if SOLVERS[name].warm_start or not warm_start:
                return SOLVERS[name]
        kind = "that can begin with a given solution " if warm_start else ""
        raise UnsupportedError(f"no classical solver {kind}for {self.name}")

    def render(
        self,
        td: TensorDictBase,
        actions: Tensor | None = None,
        *,
        index: int = 0,
        **options: Any,
    ) -> Any:
        """A matplotlib figure of one instance, with its solution if `actions` are given.

        Args:
            td: State (after `reset`), batched or single.
            actions: `[*B, T]`, or None for the instance alone.
            index: Which instance of a batch to draw.
            options: Forwarded to the problem's renderer (`ax`, ...).
        """
        dims = len(td.batch_size)
        state = {key: value.detach().cpu() for key, value in td.items()}
        if dims:
            # [*B, ...] -> [B, ...] -> [...]
            state = {key: value.flatten(0, dims - 1)[index] for key, value in state.items()}
        if actions is not None:
            actions = actions.detach().cpu()
            actions = actions.flatten(0, -2)[index] if actions.dim() > 1 else actions  # [T]
        return self._render(state, actions, **options)

    # ---------------------------------------------------------------- TorchRL

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDict:
        """TorchRL's reset: a TensorDict with instance keys only is an instance to start from."""
        if tensordict is None:
            return self._torchrl_state(self.generate(self.batch_size))
        keys = set(tensordict.keys())
        if "i" not in keys and self.schema.required_keys(keys) <= keys:
            if self.check_instance:
                self.check_instances(tensordict)
            return self._torchrl_state(tensordict)
        return self._torchrl_state(self.generate(tensordict.batch_size))

    def _torchrl_state(self, td: TensorDictBase) -> TensorDict:
        """The initial state with room for the solution, and without a reward."""
        state = self.initial_state(td)
        steps = self.step_bounds(state)[1]
        del state["reward"]
        state["solution"] = torch.zeros(
            *td.batch_size, steps, dtype=torch.int64, device=self.device
        )
        return TensorDict(state, batch_size=td.batch_size, device=self.device)

    def _spec_instance(self) -> TensorDict:
        """An instance that specs are made from."""
        return self.generator([], rng=derive_generator("specs"))

    def _spec_state(self, instance: TensorDictBase) -> TensorDict:
        """A state that specs are made from; it must not touch any random stream in use."""
        return self._torchrl_state(instance)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        """TorchRL's step: records the action, and rewards a solution when it is finished."""
        if not self._torchrl_mode:
            return self._step_by_hooks(tensordict)
        state = dict(tensordict.exclude("next").items())
        new_state = self.advance(state, state["action"])
        new_state["terminated"] = new_state["done"]
        new_state.pop("action")
        new_state["solution"] = write_action(state["solution"], state["i"], state["action"])
        if "reward" not in new_state or not self.has_dense_reward:
            final = self._objective(new_state, new_state["solution"]).unsqueeze(-1)  # [*B, 1]
            finished_now = new_state["done"] & ~state["done"]
            new_state["reward"] = torch.where(finished_now, final, torch.zeros_like(final))
        return TensorDict(new_state, batch_size=tensordict.batch_size, device=self.device)

    @property
    def has_dense_reward(self) -> bool:
        """Whether single steps are rewarded."""
        return type(self)._step_reward is not ProblemHooks._step_reward

    def _make_specs(self) -> None:
        """Sets `schema` and TorchRL's specs from a generated state, so that they agree with it."""
        instance = self._spec_instance()
        self.schema = InstanceSchema.of(self, instance)
        try:
            state = self._spec_state(instance)
        except (IndexError, RuntimeError, ValueError) as error:
            reject_fixed_batch_axes(self, instance, error)
            raise
        make_specs(self, state)

    def _action_numbers(self, td: TensorDictBase) -> tuple[int, ...] | None:
        """How many values each number of an action has; None: an action is an index of the mask."""
        return None

    def _set_seed(self, seed: int | None) -> None:
        self.seed = seed
        self.rng = None if seed is None else derive_generator(seed)

    # ---------------------------------------------------------------- internals

    @classmethod
    def hint_for_argument(cls, name: str, value: Any) -> str:
        """Sizes and distributions belong to the generator."""
        generator = getattr(cls, "generator_cls", Generator)
        if name not in inspect.signature(generator.__init__).parameters:
            return ""
        return (
            f"it is one of {generator.__name__}: write "
            f"{cls.__name__}(generator_params={{{name!r}: {value!r}}});"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(generator={self.generator!r}, device={str(self.device)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """For copies and worker processes: generators travel as their state."""
        state = self.__dict__.copy()
        state["rng"] = None if self.rng is None else self.rng.get_state()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        rng_state = state.pop("rng")
        super().__setstate__(state)
        self.rng = None if rng_state is None else torch.Generator().set_state(rng_state)
