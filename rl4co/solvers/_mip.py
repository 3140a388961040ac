"""Shared steps of solvers of mixed-integer programs: formulate, solve in workers, encode, compare.

A formulation may start with a restricted problem, whose bound holds for the full problem. Its
solution is optimal if the formulation confirms that the restriction did not matter. Otherwise a
larger problem follows, while time is left.
"""

from __future__ import annotations

import math
import time

from collections.abc import Callable
from importlib.util import find_spec

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import MissingDependencyError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import Solver, SolverResult, register_solver
from rl4co.solvers._cancellation import report_incumbent
from rl4co.solvers._mip_problem import Limits, MixedIntegerProblem, Result
from rl4co.solvers._routing import time_left
from rl4co.solvers._worker_pool import map_instances
from rl4co.solvers.formulations import MIPFormulation, formulation_of
from rl4co.solvers.local_search import local_search

#: How far below a cost, relative to it, a bound may be to prove it: costs are sums in float32.
COST_TOLERANCE = 1e-6
#: Randomised starts of the local search for the first solution.
FIRST_STARTS = 10
#: Share of the time after which no further start begins.
FIRST_SHARE = 0.25


def register_mip_solver(name: str, label: str, package: str, extra: str | None) -> Solver:
    """Registers a solver of mixed-integer programs for all problems that have such a formulation.

    Args:
        name: Registry key, equal to the module's name. The worker is `_<name>_worker.solve`: it
            gets a problem and :class:`Limits`, and returns a :class:`Result`.
        label: Name for messages.
        package: Package that it needs.
        extra: Extra of this library that brings the package.
    """

    @register_solver(name, reads=MIPFormulation)
    def solve(
        env: RL4COEnvBase,
        td: TensorDictBase,
        *,
        max_runtime: float,
        num_procs: int,
        initial: Tensor | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> SolverResult:
        """Solutions with lower bounds and proofs of optimality.

        Options:
            max_runtime: Seconds per instance at most, the local search included; the search ends
                earlier if it proves optimality.
            num_procs: Instances solved at the same time, each in a process with one thread.
            initial: Initial solutions `[B, T]`; None: those of a local search.
            seed: Seed of the search.

        Returns:
            Actions `[B, T]`, bounds `[B]` and proofs `[B]`.
        """
        if find_spec(package) is None:
            raise MissingDependencyError(package, extra)
        check_at_least(0, seed=seed)
        began = time.perf_counter()
        first = initial
        if first is None:
            limit = FIRST_SHARE * max_runtime
            first = local_search(env, td, starts=FIRST_STARTS, max_runtime=limit).actions
        search = _Search(env, td, first)
        report_incumbent(lambda: search.actions)

        def run(problems: list[MixedIntegerProblem], seconds: list[float]) -> list[Result]:
            limits = [Limits(left, seed) for left in seconds]
            target, text = f"rl4co.solvers._{name}_worker:solve", f"{label} ({env.name})"
            jobs = list(zip(problems, limits, strict=True))
            results = map_instances(
                target, jobs, num_procs, description=text, progress=progress, max_runtime=seconds
            )
            # Cancelled without a solution: the initial one remains.
            nothing = [Result(None, -math.inf, False, left) for left in seconds]
            return [result or empty for result, empty in zip(results, nothing, strict=True)]

        return search.run(run, time_left(began, max_runtime, len(td)))

    return solve


class _Search:
    """The instances of a batch, with the best solution and bound of each.

    Args:
        env: Environment.
        td: State after reset.
        first: Initial solutions `[B, T]`.
    """

    def __init__(self, env: RL4COEnvBase, td: TensorDictBase, first: Tensor) -> None:
        self.env, self.td = env, td
        self.formulation = formulation_of(env, MIPFormulation)
        columns = {key: value.cpu().numpy() for key, value in td.items()}
        self.instances = [
            {key: column[row] for key, column in columns.items()} for row in range(len(first))
        ]
        self.actions, self.rewards = first, env.get_reward(td, first)
        self.bounds = torch.full_like(self.rewards, -torch.inf, dtype=torch.float64)
        self.proven = torch.zeros_like(self.rewards, dtype=torch.bool)

    def run(
        self,
        solve: Callable[[list[MixedIntegerProblem], list[float]], list[Result]],
        max_runtime: float,
    ) -> SolverResult:
        """Solves larger and larger problems, until all is proven or the time is over.

        Args:
            solve: Problems and seconds for each → results.
            max_runtime: Seconds per instance.
        """
        left = dict.fromkeys(range(len(self.instances)), max_runtime)
        attempt = 0
        while left:
            problems = [
                self.formulation.build(self.instances[row], self.actions[row].tolist(), attempt)
                for row in left
            ]
            results = solve(problems, list(left.values()))
            for row, problem, result in zip(list(left), problems, results, strict=True):
                left[row] -= result.seconds
                if self._update(row, problem, result) or not result.optimal or left[row] <= 0:
                    del left[row]
            attempt += 1
        # A solver's bound is off by its tolerance, the environment's cost may be a sum in float32.
        costs = -self.rewards.double()
        bounds = torch.where(self.proven, costs, torch.minimum(self.bounds, costs))
        return SolverResult(self.actions, bounds, self.proven)

    def _update(self, row: int, problem: MixedIntegerProblem, result: Result) -> bool:
        """Keeps the solution and bound of a result; returns whether the instance is solved."""
        instance, complete = self.instances[row], False
        self.bounds[row] = max(float(self.bounds[row]), result.bound)
        if result.values is not None:
            self._keep_better(row, self.formulation.decode(instance, result.values))
            complete = self.formulation.is_complete(instance, problem, result.values)
        cost = -float(self.rewards[row])
        met = cost <= float(self.bounds[row]) + COST_TOLERANCE * abs(cost)
        self.proven[row] = met or (result.optimal and complete)
        return bool(self.proven[row])

    def _keep_better(self, row: int, solution: list[int]) -> None:
        """Keeps a solution of one instance if it is better than the current one."""
        steps = self.actions.shape[-1]
        actions = torch.tensor([solution], device=self.actions.device)
        reward = self.env.get_reward(self.td[row : row + 1], actions, check_solution=True)
        if reward[0] > self.rewards[row]:
            # Steps after the last choice change nothing.
            self.actions = self.actions.clone()
            self.actions[row] = torch.nn.functional.pad(actions[0], (0, steps - len(solution)))
            self.rewards = self.rewards.clone()
            self.rewards[row] = reward[0]
