"""The methods of jobs: models with a decoding, and classical solvers; used in worker processes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rl4co.core.errors import ConfigError, RL4COError, UnknownNameError, UnsupportedError
from rl4co.core.registry import ENVS, SOLVERS
from rl4co.data.formats import Benchmark
from rl4co.serve._instances import ClientInstance
from rl4co.serve._models import find_named, load_model
from rl4co.solvers._base import require_formulation
from rl4co.solvers._job_report import cancellation
from rl4co.tasks.approaches import Answer, Approach, ByModel, BySolver, environment_of
from rl4co.tasks.catalogue import CATALOGUE
from rl4co.tasks.methods import METHODS
from rl4co.tasks.solve import solve_instance
from rl4co.tasks.trace import ByTracedModel

#: Solutions of sampling.
DEFAULT_SAMPLES = 64
#: Least relative improvement of an incumbent that is worth an event.
_MIN_CHANGE = 1e-9
#: Most incumbents of a method whose solutions are sent, and least seconds between them.
MAX_SOLUTIONS, _SOLUTION_INTERVAL = 100, 0.05

Send = Callable[[str, dict[str, Any]], None]


def check_method(method: Mapping[str, Any], instance: Benchmark) -> None:
    """Raises unless a method can solve an instance."""
    if method["kind"] == "solver":
        for option in ("decoding", "samples"):
            if method.get(option) is not None:
                raise ConfigError(
                    f"expected {option} only with a model, got it with the solver "
                    f"{method['name']}; solvers do not decode"
                )
        SOLVERS.location(method["name"])  # raises for names that do not exist
        solver = SOLVERS[method["name"]]
        if solver.reads is not None:
            require_formulation(environment_of(instance), solver.reads, method["name"])
        return
    decoding = method.get("decoding") or "greedy"
    _, model = find_named(method["name"])
    if decoding not in METHODS:
        raise UnknownNameError("evaluation method", decoding, METHODS)
    if decoding not in model.decodings:
        raise UnsupportedError(
            f"expected one of {', '.join(model.decodings)} for {model.name}, got {decoding}; "
            "give another decoding"
        )
    if method.get("samples") is not None and decoding != "sampling":
        raise ConfigError(f"expected samples only with sampling, got them with {decoding}")
    instance.as_problem(model.problem)


def solve(
    instance: ClientInstance, payload: Mapping[str, Any], send: Send
) -> tuple[dict[str, Any], list[int]]:
    """The result of one method as the API has it, and the actions of its solution.

    Args:
        instance: The instance.
        payload: `method`, `max_runtime` and `trace`.
        send: Sends an event.
    """
    benchmark, method = instance.benchmark, payload["method"]
    approach: Approach
    if method["kind"] == "solver":
        approach = BySolver(method["name"], payload["max_runtime"], method.get("seed"))
    else:
        approach = _by_model(method, payload["trace"])
    incumbents = _Incumbents(instance, send)
    solved = solve_instance(
        benchmark,
        approach,
        limit=payload["max_runtime"],
        stop=cancellation(),
        on_cost=incumbents.add_cost,
        on_incumbent=incumbents.add,
    )
    incumbents.add_solution(solved.solution)
    for decision in solved.trace.decisions if solved.trace else ():
        send("decision", instance.decision_record(decision))
    record = {
        "cost": solved.value,
        "seconds": solved.seconds,
        "bound": solved.bound,
        "solver": solved.solver,
        "remarks": solved.remarks,
        "solution": instance.solution_record(solved.solution),
    }
    return record, benchmark.to_actions(solved.solution)[0].tolist()


class _Incumbents:
    """Sends the costs of better and better solutions, and some of the solutions.

    Args:
        instance: The instance.
        send: Sends an event.
    """

    def __init__(self, instance: ClientInstance, send: Send) -> None:
        self.instance, self.send = instance, send
        self.sign = -1.0 if instance.benchmark.maximize else 1.0
        self.began = time.perf_counter()
        self.best_cost = self.best_solution_cost = math.inf
        self.num_solutions, self.last_sent = 0, -math.inf

    def add_cost(self, cost: float) -> None:
        """Sends a cost in the units of the environment (lower is better) if it is the best."""
        if cost < self.best_cost - _MIN_CHANGE * abs(cost):
            self.best_cost = cost
            seconds = time.perf_counter() - self.began
            self.send("incumbent", {"seconds": seconds, "cost": self.sign * cost})

    def add(self, read: Callable[[], Answer]) -> None:
        """Sends the solution of an answer if it is the best; not all of them if there are many."""
        is_early = time.perf_counter() - self.began < self.last_sent + _SOLUTION_INTERVAL
        if is_early or self.num_solutions >= MAX_SOLUTIONS:
            return
        with contextlib.suppress(RL4COError):  # not valid, or no heuristic for a quick first one
            solution = read().solution
            self.instance.benchmark.check(solution)
            self.add_solution(solution)

    def add_solution(self, solution: Any) -> None:
        """Sends a valid solution if it is the best."""
        cost = self.sign * self.instance.benchmark.objective(solution)
        self.add_cost(cost)
        if cost < self.best_solution_cost:
            self.best_solution_cost = cost
            self.last_sent = time.perf_counter() - self.began
            self.num_solutions += 1
            record = self.instance.solution_record(solution)
            self.send("solution", {"seconds": self.last_sent, "solution": record})


def _by_model(method: Mapping[str, Any], trace: bool) -> ByModel:
    decoding = method.get("decoding") or "greedy"
    options = {key: method[key] for key in ("samples", "seed") if method.get(key) is not None}
    if decoding == "sampling":
        options.setdefault("samples", DEFAULT_SAMPLES)
    loaded = load_model(method["name"])
    if not trace:
        return dataclasses.replace(loaded, method=decoding, options=options)
    return ByTracedModel(loaded.policy, loaded.env, decoding, options)


def traced_decisions(
    instance: ClientInstance, model: str, forced: Sequence[int], forbidden: Sequence[int]
) -> dict[str, Any]:
    """All decisions of a model after forced actions, and the solution that they construct."""
    loaded = load_model(model)
    approach = ByTracedModel(loaded.policy, loaded.env, forced=forced, forbidden=forbidden)
    answer = approach(instance.benchmark)
    assert answer.trace is not None
    return {
        "decisions": [instance.decision_record(each) for each in answer.trace.decisions],
        "solution": instance.solution_record(answer.solution),
    }


#: Solver → the package that it needs.
_PACKAGES = {
    "cpsat": "ortools",
    "gurobi": "gurobipy",
    "highs": "highspy",
    "lkh": "elkai",
    "ortools": "ortools",
    "pyvrp": "pyvrp",
    "scip": "pyscipopt",
}


def solvers_of(problem: str) -> list[dict[str, Any]]:
    """The solvers of a problem, the default first."""
    env = ENVS[problem]()
    default = env.default_solver().name
    titles = CATALOGUE["solvers"]()
    rows = []
    for name, solver in SOLVERS.items():
        with contextlib.suppress(UnsupportedError):
            if solver.reads is not None:
                require_formulation(env, solver.reads, name)
            available = find_spec(_PACKAGES.get(name, "rl4co")) is not None
            rows.append(
                {
                    "name": name,
                    "title": titles.get(name, name),
                    "available": available,
                    "default": name == default,
                }
            )
    return sorted(rows, key=lambda row: not row["default"])
