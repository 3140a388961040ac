"""Approaches to an instance: a classical solver, a trained model, a solution file.

Models see the instance scaled as in their training (unit square, demands by the capacity);
solutions are in the units of the instance.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import threading

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.neighbors import MAX_DENSE_NODES
from rl4co.core.registry import ENVS, LAYOUTS, SOLVERS
from rl4co.data.formats import Benchmark
from rl4co.data.layouts import includes
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.improvement import ImprovementEnvBase, is_improvement
from rl4co.envs.successors import successors_from_tour, tour_from_visits
from rl4co.pretrained import ModelSource, nearest_model
from rl4co.solvers._base import Solver
from rl4co.solvers._cancellation import converting_incumbents, is_cancelled, report_incumbent
from rl4co.solvers._quick import quick_solutions
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.load import load_policy

if TYPE_CHECKING:
    from rl4co.tasks.trace import Trace


class Answer(NamedTuple):
    """A solution of an instance.

    Attributes:
        solution: Routes, or a schedule.
        solver: Name of the solver or method.
        bound: Lower bound on the values of all solutions, if one was proven.
        trace: The decisions that led to the solution, if they were recorded.
    """

    solution: Any
    solver: str
    bound: float | None = None
    trace: Trace | None = None


#: From an instance to a solution.
Approach: TypeAlias = Callable[[Benchmark], Answer]


@dataclasses.dataclass(frozen=True)
class BySolver:
    """Solutions by a classical solver, from scratch or from another solution.

    Args:
        solver: Name; None: the best one for the problem (that can start from a solution).
        max_runtime: Seconds per instance.
        seed: Seed of the solver, ignored by deterministic ones; None: the solver's default.
        options: Further options of the solver.
    """

    solver: str | None = None
    max_runtime: float = 10.0
    seed: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.max_runtime > 0:
            raise ConfigError(f"expected a positive number of seconds, got {self.max_runtime:g}")
        if self.solver is not None:
            SOLVERS.location(self.solver)  # raises for names that do not exist

    def __call__(self, instance: Benchmark, start: Any = None) -> Answer:
        """A solution that is not worse than `start`, with its proven bound."""
        exact = instance.to_tensordict(normalize=False)
        env = environment_of(instance)
        is_warm, is_large = start is not None, instance.size > MAX_DENSE_NODES
        name = self.solver or env.default_solver(warm_start=is_warm, large=is_large).name
        # Before the solver is loaded: some import neural networks, which takes seconds.
        if start is not None:
            report_incumbent(lambda: Answer(start, name))
        else:
            report_incumbent(lambda: _quick_answer(instance, env, exact, name))
        chosen = SOLVERS[name]
        limits = supported_limits(instance.solver_options, chosen)
        options: dict[str, Any] = {**limits, **self.options}
        if start is not None:
            options["initial"] = instance.to_actions(start)
        if self.seed is not None:
            options["seed"] = self.seed
        with converting_incumbents(lambda actions: Answer(instance.from_actions(actions), name)):
            result = chosen(env, exact, max_runtime=self.max_runtime, **options)
        bound = None if result.bounds is None else float(result.bounds[0])
        if bound is not None and not math.isfinite(bound):  # interrupted before the first bound
            bound = None
        return Answer(instance.from_actions(result.actions), chosen.name, bound)


def _quick_answer(
    instance: Benchmark, env: RL4COEnvBase, td: TensorDictBase, solver: str
) -> Answer:
    """A solution by a simple heuristic, for a solver that found none in time."""
    actions, method = quick_solutions(env, td)
    return Answer(instance.from_actions(actions), f"{method} in place of {solver}")


def supported_limits(limits: Mapping[str, int], solver: Solver) -> dict[str, Any]:
    """Limits of an instance that are options of a solver; others are checked afterwards."""
    return {key: value for key, value in limits.items() if key in solver.options}


@dataclasses.dataclass(frozen=True)
class ByModel:
    """Solutions by a trained policy.

    Args:
        policy: The policy.
        env: Environment of the policy. It accepts instances of special cases: a CVRP for the
            MTVRP.
        method: How to decode, one of :data:`~rl4co.tasks.methods.METHODS`.
        options: Further arguments of :func:`~rl4co.tasks.evaluate.evaluate_policy`.
    """

    policy: nn.Module
    env: RL4COEnvBase
    method: str = "greedy"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | ModelSource,
        method: str = "greedy",
        device: str = "cpu",
        options: Mapping[str, Any] | None = None,
        allow_classes: Sequence[str | type] = (),
    ) -> ByModel:
        """The model of a name, folder or checkpoint, see :func:`~rl4co.tasks.load.load_policy`."""
        policy, env = load_policy(path, device, allow_classes)
        env = env or _environment(policy.env_name)
        if is_improvement(env):
            raise UnsupportedError(
                f"expected a model that constructs solutions in {path}, got a "
                f"{type(policy).__name__}, which improves them; use --improve for it"
            )
        return cls(policy, env, method, dict(options or {}))

    def __call__(self, instance: Benchmark) -> Answer:
        """The best solution that the method finds."""
        seen = instance.as_problem(self.env.name)
        td = seen.to_tensordict(normalize=True)
        if self.method != "greedy":
            report_incumbent(lambda: Answer(seen.from_actions(self._greedy(td)), "greedy"))
        with self._lock:  # one policy, shared by all files
            actions = self.decode(td, lambda best: Answer(seen.from_actions(best), self.method))
        return Answer(seen.from_actions(actions), self.method)

    def _greedy(self, td: TensorDictBase) -> Tensor:
        """Greedy actions `[B, T]`."""
        actions: Tensor = evaluate_policy(self.env, self.policy, td, "greedy")["actions"]
        return actions

    def decode(self, td: TensorDictBase, answer: Callable[[Tensor], Answer]) -> Tensor:
        """Actions `[B, T]` for instances as the policy sees them.

        Args:
            td: Instances.
            answer: Converts actions to an answer, for incumbents.
        """
        result = evaluate_policy(self.env, self.policy, td, self.method, **self.options)
        actions: Tensor = result["actions"]
        return actions


@dataclasses.dataclass(frozen=True)
class BySearch(ByModel):
    """Solutions by a policy that is fine-tuned on the instance.

    Args:
        policy: See :class:`ByModel`.
        env: See :class:`ByModel`.
        method: How to adapt it, one of :data:`~rl4co.tasks.methods.SEARCHES`.
        options: Further arguments of :func:`~rl4co.tasks.search.search`.
    """

    method: str = "eas_lay"

    def decode(self, td: TensorDictBase, answer: Callable[[Tensor], Answer]) -> Tensor:
        """See :class:`ByModel`."""
        from rl4co.tasks.search import search  # with Lightning, which nothing else here needs

        def keep(best: Tensor) -> None:
            report_incumbent(lambda: answer(best))

        return search(
            self.policy, self.env, td, self.method, **self.options, stop=is_cancelled, on_best=keep
        ).actions


@dataclasses.dataclass(frozen=True)
class ByNearestModel:
    """Solutions by the pretrained model for the problem and the size of each instance.

    Args:
        kind: :class:`ByModel` or :class:`BySearch`.
        method: See :class:`ByModel`.
        device: Device of the models.
        options: See :class:`ByModel`.
        announce: Called with a line about each model that is chosen.
    """

    kind: type[ByModel] = ByModel
    method: str = "greedy"
    device: str = "cpu"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    announce: Callable[[str], None] = lambda text: None
    _loaded: dict[str, ByModel] = dataclasses.field(default_factory=dict, repr=False)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def __call__(self, instance: Benchmark) -> Answer:
        """See :class:`ByModel`."""
        source = nearest_model(instance.problem, instance.size, includes)
        with self._lock:
            if str(source) not in self._loaded:
                self.announce(f"model: {source} of {source.origin}, for {instance.name}")
                self._loaded[str(source)] = self.kind.load(
                    source, self.method, self.device, self.options
                )
        return self._loaded[str(source)](instance)


@dataclasses.dataclass(frozen=True)
class ByFile:
    """A solution from a file, to be polished or evaluated.

    Args:
        path: File in any format of solutions.
    """

    path: str | os.PathLike[str]

    def __call__(self, instance: Benchmark) -> Answer:
        """The solution in the file; it must be valid."""
        return Answer(instance.read_solution(self.path), Path(self.path).name)


def environment_of(instance: Benchmark) -> RL4COEnvBase:
    """The environment of an instance."""
    return _environment(instance.problem)


@functools.cache
def _environment(problem: str) -> RL4COEnvBase:
    layout = LAYOUTS.get(problem)
    env: RL4COEnvBase = ENVS[problem](**(layout.env_options if layout else {}))
    return env


@dataclasses.dataclass(frozen=True)
class ByImprovement:
    """Solutions by a policy that improves complete ones.

    Args:
        policy: The improvement policy.
        env: Its environment.
        start: Approach that finds first solutions; None: random or greedy ones, see `options`.
        options: Further arguments of :func:`~rl4co.tasks.improve.improve`; 1000 steps if there is
            no limit among them.
    """

    policy: Any
    env: ImprovementEnvBase
    start: Approach | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        start: Approach | None = None,
        device: str = "cpu",
        options: Mapping[str, Any] | None = None,
        allow_classes: Sequence[str | type] = (),
    ) -> ByImprovement:
        """The model of a name, folder or checkpoint, see :func:`~rl4co.tasks.load.load_policy`."""
        from rl4co.models.policies.improvement import ImprovementPolicy

        policy, env = load_policy(path, device, allow_classes)
        if not isinstance(policy, ImprovementPolicy):
            raise UnsupportedError(
                f"expected a model that improves solutions in {path}, got a "
                f"{type(policy).__name__}, which constructs them; use --model for it"
            )
        return cls(policy, policy.environment(env), start, dict(options or {}))

    def __call__(self, instance: Benchmark) -> Answer:
        """The best solution of the search, including the first one."""
        from rl4co.tasks.improve import improve

        seen = instance.as_problem(self.env.constructive_env.name)
        steps = None if "seconds" in self.options else 1000
        options = {"steps": steps, "stop": is_cancelled, **self.options}
        name = type(self.policy).__name__.removesuffix("Policy")
        if self.start is not None:
            first = self.start(instance)
            tour = tour_from_visits(seen.to_actions(first.solution), seen.size)
            options["initial"] = successors_from_tour(tour)
            name = f"{first.solver} + {name}"
        td = seen.to_tensordict(normalize=True)
        if "locs" not in td.keys():
            raise UnsupportedError(
                f"expected coordinates for {name}, which looks at them, got {instance.name} with "
                "distances alone; use --solver"
            )
        if self.start is not None:
            report_incumbent(lambda: first._replace(solver=name))
        with self._lock:  # one policy, shared by all files
            result = improve(self.policy, self.env, td, **options)
        solution = seen.from_actions(result.actions)
        # The policy sees distances without rounding; the instance may round them.
        if self.start is not None and seen.objective(first.solution) < seen.objective(solution):
            solution = first.solution
        return Answer(solution, name)
