"""The methods of jobs: models with a decoding, and classical solvers; used in worker processes."""

from __future__ import annotations

import contextlib
import dataclasses

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.registry import ENVS, SOLVERS
from rl4co.data.formats import Benchmark
from rl4co.serve._instances import GivenInstance
from rl4co.serve._models import find_named, load_model
from rl4co.solvers._base import require_formulation
from rl4co.solvers._job_report import cancellation
from rl4co.tasks.approaches import ByModel, BySolver, environment_of
from rl4co.tasks.catalogue import CATALOGUE
from rl4co.tasks.methods import METHODS
from rl4co.tasks.solve import solve_instance
from rl4co.tasks.trace import ByTracedModel, TracedDecision

#: Leading candidates of a decision.
NUM_CANDIDATES = 10
#: Least change, relative, of the cost of an incumbent that is worth an event.
_MIN_CHANGE = 1e-9

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


def solve(given: GivenInstance, payload: Mapping[str, Any], send: Send) -> dict[str, Any]:
    """The solution of an instance by one method, as the API has it.

    Args:
        given: The instance.
        payload: `method`, `max_runtime` and `trace`.
        send: Sends an event.
    """
    instance, method, limit = given.benchmark, payload["method"], payload["max_runtime"]
    sign = -1.0 if instance.maximize else 1.0
    traces: list[list[TracedDecision]] = []
    approach: Any
    if method["kind"] == "solver":
        approach = BySolver(method["name"], limit, method.get("seed"))
    else:
        approach = _by_model(method, payload["trace"], traces.append)
    best: float | None = None

    def on_cost(cost: float) -> None:
        nonlocal best
        if best is None or cost < best - _MIN_CHANGE * abs(best):
            best = cost
            send("incumbent", {"cost": sign * cost})

    solved = solve_instance(instance, approach, limit=limit, stop=cancellation(), on_cost=on_cost)
    on_cost(sign * solved.value)
    actions = instance.to_actions(solved.solution)[0].tolist()
    for decision in traces[-1] if traces else ():
        send("decision", decision_record(given, decision))
    return {
        "cost": solved.value,
        "seconds": solved.seconds,
        "bound": solved.bound,
        "solver": solved.solver,
        "remarks": solved.remarks,
        "solution": given.solution(actions, solved.solution),
        "actions": actions,
    }


def _by_model(
    method: Mapping[str, Any], trace: bool, on_trace: Callable[[list[TracedDecision]], object]
) -> ByModel:
    decoding = method.get("decoding") or "greedy"
    options = {key: method[key] for key in ("samples", "seed") if method.get(key) is not None}
    if decoding != "sampling":
        options.pop("samples", None)
    elif "samples" not in options:
        options["samples"] = 64
    loaded = load_model(method["name"])
    if not trace:
        return dataclasses.replace(loaded, method=decoding, options=options)
    return ByTracedModel(loaded.policy, loaded.env, decoding, options, on_trace=on_trace)


def traced_decisions(
    given: GivenInstance, model: str, forced: Sequence[int], forbidden: Sequence[int]
) -> dict[str, Any]:
    """All decisions of a model after forced actions, and the solution that they construct."""
    traces: list[list[TracedDecision]] = []
    loaded = load_model(model)
    approach = ByTracedModel(
        loaded.policy, loaded.env, forced=forced, forbidden=forbidden, on_trace=traces.append
    )
    answer = approach(given.benchmark)
    actions = given.benchmark.to_actions(answer.solution)[0].tolist()
    return {
        "decisions": [decision_record(given, decision) for decision in traces[-1]],
        "solution": given.solution(actions, answer.solution),
    }


def decision_record(given: GivenInstance, decision: TracedDecision) -> dict[str, Any]:
    """A decision in the form of the API, actions in the client's numbers."""
    candidates = decision.candidates(NUM_CANDIDATES)
    names = given.to_client([action for action, _ in candidates])
    probability = float(decision.probabilities[decision.action])
    return {
        "step": decision.step,
        "action": given.to_client([decision.action])[0],
        "forced": decision.forced,
        "probability": probability,
        "candidates": [[name, p] for name, (_, p) in zip(names, candidates, strict=True)],
        "mask": given.to_client(decision.mask.nonzero().flatten().tolist()),
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
