"""SCIP on plain mixed-integer programs, as a function for worker processes.

Importing this module needs pyscipopt and neither torch nor other modules of the library that do.
"""

from __future__ import annotations

import time

from typing import Any

import numpy as np

from pyscipopt import SCIP_EVENTTYPE, Eventhdlr, Model, quicksum

from rl4co.solvers._job_report import is_cancelled, job_start, report_incumbent
from rl4co.solvers._mip_problem import Limits, MixedIntegerProblem, Result


def solve(problem: MixedIntegerProblem, limits: Limits) -> Result:
    """The best solution within the limits."""
    began = job_start(limits.max_runtime)
    model = Model()
    model.hideOutput()
    variables = [
        model.addVar(vtype="B" if is_binary else "C", lb=0.0, ub=1.0, obj=float(cost))
        for is_binary, cost in zip(problem.is_integer, problem.cost, strict=True)
    ]
    for index in range(problem.num_rows):
        columns, values = problem.row(index)
        total = quicksum(float(v) * variables[c] for c, v in zip(columns, values, strict=True))
        low, high = float(problem.lower[index]), float(problem.upper[index])
        if low == high:
            model.addCons(total == low)
        else:
            if np.isfinite(low):
                model.addCons(total >= low)
            if np.isfinite(high):
                model.addCons(total <= high)
    if problem.guess is not None:
        guess = model.createSol()
        for variable, value in zip(variables, problem.guess, strict=True):
            model.setSolVal(guess, variable, float(value))
        model.addSol(guess)
    built = time.perf_counter() - began
    model.setParam("limits/time", max(limits.max_runtime - built, 0.0))
    model.setParam("limits/gap", 0.0)
    model.setParam("randomization/randomseedshift", limits.seed)
    handler = _IncumbentHandler(variables, began)
    model.includeEventhdlr(handler, "incumbents", "reports every new best solution")
    model.optimize()
    has_solution = model.getNSols() > 0
    return Result(
        np.array([model.getVal(variable) for variable in variables]) if has_solution else None,
        float(model.getDualbound()),
        model.getStatus() == "optimal",
        time.perf_counter() - began,
    )


class _IncumbentHandler(Eventhdlr):
    """Reports every new best solution."""

    def __init__(self, variables: list[Any], began: float) -> None:
        self.variables, self.began = variables, began

    def eventinit(self) -> None:
        """Called by SCIP before the search."""
        self.model.catchEvent(SCIP_EVENTTYPE.BESTSOLFOUND, self)

    def eventexit(self) -> None:
        """Called by SCIP after the search."""
        self.model.dropEvent(SCIP_EVENTTYPE.BESTSOLFOUND, self)

    def eventexec(self, event: Any) -> None:
        """Called by SCIP for each new best solution."""
        best = self.model.getBestSol()
        values = np.array([self.model.getSolVal(best, variable) for variable in self.variables])
        seconds = time.perf_counter() - self.began
        report_incumbent(Result(values, float(self.model.getDualbound()), False, seconds))
        if is_cancelled():
            self.model.interruptSolve()
