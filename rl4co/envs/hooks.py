"""The hooks of a problem: what the author of an environment writes.

All are pure functions on a mapping of tensors (`State`), work for any number of leading batch axes
`*B` and never synchronise with the host; `_count_starts` alone may look at the device once.
:class:`rl4co.envs.base.RL4COEnvBase` calls them.
"""

from __future__ import annotations

import importlib.util

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.core.graphs import CandidateGraph
from rl4co.data.augment import NAMED_AUGMENTATIONS, has_coordinates

if TYPE_CHECKING:
    from rl4co.envs.generator import Generator

State = dict[str, Tensor]


class ProblemHooks:
    """What a problem is made of; the methods behind `step_bounds` are optional capabilities."""

    name: ClassVar[str]
    generator_cls: ClassVar[type[Generator]]
    #: Keys of an instance with the axes of one instance, e.g. `{"locs": "n 2", "prize": "n+1"}`:
    #: sizes, names and sums with blanks between them, "" for one number (see
    #: :class:`rl4co.envs.instances.InstanceSchema`).
    instance_shapes: ClassVar[Mapping[str, str]]
    #: Keys that an instance may have on top.
    optional_shapes: ClassVar[Mapping[str, str]] = {}
    #: Keys in which infinity means "no limit"; elsewhere it raises an error.
    unlimited_keys: ClassVar[Collection[str]] = ()
    #: Floating-point keys that an instance may give as integers; `reset` converts them.
    integer_keys: ClassVar[Collection[str]] = ()
    #: Whether rewards are gains (prizes), rather than costs with a minus.
    maximizes: ClassVar[bool] = False
    #: Whether methods that can solve copies of an instance under symmetries do so by default.
    augments_by_default: ClassVar[bool] = True
    #: Optional key → required keys that it replaces (for example a matrix for coordinates).
    substitutes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def _init_state(self, instance: State) -> State:
        """Initial state of an instance; the base adds `action_mask`, `done` and `reward`."""
        raise NotImplementedError

    def _transition(self, state: State, action: Tensor) -> State:
        """The keys that change when `action [*B]` is taken, `done [*B, 1]` among them."""
        raise NotImplementedError

    def _action_mask(self, state: State) -> Tensor:
        """Allowed actions `[*B, N]`; once finished, only such that change nothing."""
        raise NotImplementedError

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        """Reward `[*B]` of complete solutions `actions [*B, T]`."""
        raise NotImplementedError

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        """Constraint → `[*B]`, True where a solution violates it. Must not consult the mask."""
        raise NotImplementedError

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        """Rule → `[*B]`, True where an instance breaks it (shapes and NaN are checked already)."""
        return {}

    def _fault_place(self, instance: State) -> str:
        """Where the first instance that breaks a rule is wrong, as text to add to the error."""
        return ""

    def _step_reward(self, state: State, action: Tensor, changes: State) -> Tensor | None:
        """Reward `[*B, 1]` of one step for problems with dense rewards; None = at the end only."""
        return None

    def step_bounds(self, state: State) -> tuple[int, int]:
        """Fewest and most steps of a whole solution; equal if the number is known in advance."""
        raise NotImplementedError

    def augmentations(self) -> tuple[str, ...]:
        """Names of the augmentations (:mod:`rl4co.data.augment`) that keep the costs of solutions.

        Those are all where costs are made of Euclidean distances, and none where instances have no
        coordinates.
        """
        shapes = {**self.instance_shapes, **self.optional_shapes}
        return () if shapes and not has_coordinates(shapes) else NAMED_AUGMENTATIONS

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        """The first `num_starts` distinct feasible first actions `[*B, S]`.

        An instance that has fewer repeats them in turn, after all of them are used.
        """
        raise UnsupportedError(_no_starts(self.name))

    def _start_prefix(self, state: State) -> Tensor | None:
        """Actions `[*B, K]` that every solution begins with, before the start; None if there are
        none."""
        return None

    def _count_starts(self, state: State) -> int:
        """Number of distinct first actions of the instance in the batch that has most of them."""
        raise UnsupportedError(_no_starts(self.name))

    def _most_starts(self, state: State) -> int:
        """Most starts that may be asked for, from shapes alone.

        To be overridden where :meth:`_count_starts` depends on values: a number of starts that is
        set once must not raise in the next batch.
        """
        return self._count_starts(state)

    def _action_gains(self, state: State) -> Tensor:
        """What each action adds to the reward at once `[*B, N]`, for greedy construction."""
        raise UnsupportedError(f"{self.name} has no greedy construction")

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        """Improved solutions `[*B, T']`."""
        raise UnsupportedError(f"{self.name} has no local search")

    def _sample_by_edges(
        self, state: State, graph: CandidateGraph, weights: Tensor, draws: Tensor, rule: str
    ) -> Tensor | None:
        """Solutions `[B, A, T]` drawn edge by edge in one go, where a problem has a faster way than
        step by step; None by default.

        Args:
            state: Fresh state, batch `[B]`.
            graph: Candidate edges.
            weights: Their weights `[B, E]`; a step chooses among those that the mask allows.
            draws: Uniform numbers in [0, 1), `[B, A, T]`, one for each step.
            rule: What to do if no candidate is allowed, see
                :func:`rl4co.decoding.edges.sample_by_edges`.
        """
        return None

    def _render(self, state: State, actions: Tensor | None, **options: Any) -> Any:
        """Figure of a single instance (no batch axis).

        By default that of the function `render` in the file `render.py` beside the `env.py` of the
        class, or of the first base class with such a file.
        """
        modules = (cls.__module__ for cls in type(self).__mro__)
        files = (f"{name.removesuffix('env')}render" for name in modules if name.endswith(".env"))
        for file in files:
            if importlib.util.find_spec(file) is not None:
                return importlib.import_module(file).render(state, actions, **options)
        raise UnsupportedError(f"{self.name} cannot be rendered")


def defines_hook(env: ProblemHooks, name: str) -> bool:
    """Whether a problem defines an optional hook; also for a wrapper that forwards attributes.

    Args:
        env: The environment.
        name: Name of the hook, such as `_local_search`.
    """
    hook = getattr(env, name)
    return getattr(hook, "__func__", hook) is not getattr(ProblemHooks, name)


def _no_starts(problem: str) -> str:
    return (
        f"expected several starts (multi-start, POMO), got none for {problem}; write the hooks "
        "_count_starts and _start_actions, or use sampling (AttentionModel, SymNCO) instead"
    )
