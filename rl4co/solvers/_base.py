"""Registration of solvers: turns a function that returns actions into a registered solver.

A solver is called as `solver(env, instances, max_runtime=..., num_procs=..., **options)`. It
returns `(actions [B, T], costs [B])` in the encoding of the environment, see :class:`Solutions`.
Some accept `initial`, a solution of each instance `[B, T]`, and return one that is not worse. A
solver has the attributes:

- `name`: its key in the registry;
- `reads`: the kind of formulations that it needs (:mod:`rl4co.solvers.formulations`); None: none,
  it works on any environment;
- `options`: names of its options;
- `warm_start`: whether it accepts `initial`.
"""

from __future__ import annotations

import functools
import inspect

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol, cast

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least, check_positive
from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.registry import SOLVERS
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers.formulations import Formulation, formulation_of


class SolverResult(NamedTuple):
    """What the function of a solver may return instead of actions alone.

    Attributes:
        actions: `[B, T]`.
        bounds: Lower bounds on the costs of any solutions `[B]`.
        optimal: Which solutions are proven to be optimal `[B]`.
        mean_costs: Mean cost of all solutions of which these are the best `[B]`.
    """

    actions: Tensor
    bounds: Tensor | None = None
    optimal: Tensor | None = None
    mean_costs: Tensor | None = None


class Solutions(tuple[Tensor, Tensor]):
    """The pair `(actions, costs)` with bounds and proofs.

    Attributes:
        actions: Solutions `[B, T]` in the encoding of the environment.
        costs: Minus their rewards `[B]`.
        bounds: Lower bounds on the costs of any solutions `[B]`; None if the solver computes none.
        optimal: Which solutions are proven to be optimal `[B]`; None if the solver proves nothing.
        mean_costs: Mean cost of all solutions of which these are the best `[B]`; None if the
            solver does not report it.
    """

    actions: Tensor
    costs: Tensor
    bounds: Tensor | None
    optimal: Tensor | None
    mean_costs: Tensor | None

    def __new__(
        cls,
        actions: Tensor,
        costs: Tensor,
        bounds: Tensor | None = None,
        optimal: Tensor | None = None,
        mean_costs: Tensor | None = None,
    ) -> Solutions:
        """A pair with attributes."""
        self = super().__new__(cls, (actions, costs))
        self.actions, self.costs, self.bounds, self.optimal = actions, costs, bounds, optimal
        self.mean_costs = mean_costs
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        """For copies and pickles."""
        return self.actions, self.costs, self.bounds, self.optimal, self.mean_costs


class Solver(Protocol):
    """The signature of a registered solver."""

    name: str
    reads: type[Formulation] | None
    options: Collection[str]
    warm_start: bool

    def __call__(
        self,
        env: RL4COEnvBase,
        instances: TensorDictBase,
        *,
        max_runtime: float = 10.0,
        num_procs: int = 1,
        initial: Tensor | None = None,
        **options: Any,
    ) -> Solutions:
        """Actions `[B, T]` and costs `[B]`."""
        ...


def register_solver(
    name: str, reads: type[Formulation] | None = None
) -> Callable[[Callable[..., Tensor | SolverResult]], Solver]:
    """Decorator: turns `function(env, td, *, max_runtime, num_procs, **options)` into a solver.

    The function gets the state after `env.reset` and returns actions `[B, T]`, or a
    :class:`SolverResult` with bounds. Costs are minus the reward of the environment, and invalid
    solutions raise an error. Every solver accepts a `seed`; deterministic ones ignore it.

    Parameters that several functions have mean the same in all of them; a function declares those
    that it uses:

    - `max_runtime`: seconds per instance;
    - `num_procs`: instances solved at the same time, each in a separate process or thread;
    - `progress`: whether to show a progress bar; None: if stderr is a terminal;
    - `initial`: initial solutions `[B, T]`, which are valid; the result must not be worse.

    Args:
        name: Registry key, equal to the module's name.
        reads: Kind of formulations that the solver reads. It solves all problems that have one
            (and raises for unsupported instances); it is the default of those whose
            formulation names it first. None: it works on any environment.
    """

    def wrap(function: Callable[..., Tensor | SolverResult]) -> Solver:
        parameters = set(inspect.signature(function).parameters)
        solver_options = parameters - {"env", "td", "max_runtime", "num_procs", "initial"}

        @functools.wraps(function)
        def solve(
            env: RL4COEnvBase,
            instances: TensorDictBase,
            *,
            max_runtime: float = 10.0,
            num_procs: int = 1,
            initial: Tensor | None = None,
            **options: Any,
        ) -> Solutions:
            if reads is not None:
                require_formulation(env, reads, name)
            if "seed" not in solver_options:
                options.pop("seed", None)  # deterministic solvers ignore a seed
            for option in options:
                if option not in solver_options:
                    raise UnknownNameError(f"option of the solver {name!r}", option, solver_options)
            check_positive(max_runtime=max_runtime)
            check_at_least(1, num_procs=num_procs)
            if initial is not None and not solver.warm_start:
                raise UnsupportedError(
                    f"expected no initial solutions for the solver {name!r}, which cannot "
                    f"improve them, got some; use {env.default_solver(warm_start=True).name!r}"
                )
            td = _reset(env, instances)
            if initial is not None:
                env.check_solution_validity(td, initial)
                options["initial"] = initial
            limits = {"max_runtime": max_runtime, "num_procs": num_procs}
            options |= {name: limits[name] for name in parameters & set(limits)}
            result = function(env, td, **options)
            if not isinstance(result, SolverResult):
                result = SolverResult(result)
            actions, *proofs = result
            costs = -env.get_reward(td, actions, check_solution=True)
            return Solutions(actions, costs, *proofs)

        solver = cast(Solver, solve)
        solver.name = name
        solver.options = tuple(sorted(solver_options))
        solver.warm_start = "initial" in parameters
        solver.reads = reads
        return SOLVERS.register(name)(solver)

    return wrap


def require_formulation(env: RL4COEnvBase, reads: type[Formulation], solver: str) -> None:
    """Raise unless a problem has a formulation of the kind that a solver reads.

    Args:
        env: The problem.
        reads: Kind of formulations.
        solver: Name of the solver, for the message.
    """
    try:
        formulation_of(env, reads)
    except UnsupportedError as error:
        raise UnsupportedError(f"the solver {solver!r} cannot solve {env.name}: {error}") from None


def _reset(env: RL4COEnvBase, instances: TensorDictBase) -> TensorDict:
    if len(instances.batch_size) != 1:
        raise ConfigError(
            f"expected instances with one batch axis, got batch {list(instances.batch_size)}; "
            "flatten the batch, or unsqueeze(0) a single instance"
        )
    if "i" not in instances.keys():
        return env.reset(instances)
    # A state after reset contains its instance.
    if bool((instances["i"] > 0).any()):
        raise ConfigError(
            "expected instances or the state after reset, got a later state; "
            "solvers construct complete solutions"
        )
    return cast(TensorDict, instances)


def keep_better(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The better one of two solutions of each instance; the first one if they are equal.

    The shorter actions are filled up with zeros, as everywhere.

    Args:
        one: Actions `[B, T]` and rewards `[B]`.
        other: The same.
    """
    steps = max(one[0].shape[-1], other[0].shape[-1])
    actions = [torch.nn.functional.pad(x[0], (0, steps - x[0].shape[-1])) for x in (one, other)]
    better = other[1] > one[1]
    return (
        torch.where(better.unsqueeze(-1), actions[1], actions[0]),
        torch.where(better, other[1], one[1]),
    )
