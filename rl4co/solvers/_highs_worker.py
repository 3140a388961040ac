"""HiGHS on plain mixed-integer programs, as a function for worker processes.

Importing this module needs highspy and neither torch nor other modules of the library that do.
"""

from __future__ import annotations

import time

from typing import Any

import highspy
import numpy as np

from rl4co.solvers._job_report import is_cancelled, job_start, report_incumbent
from rl4co.solvers._mip_problem import Limits, MixedIntegerProblem, Result


def solve(problem: MixedIntegerProblem, limits: Limits) -> Result:
    """The best solution within the limits."""
    began = job_start(limits.max_runtime)
    solver = highspy.Highs()
    options = {
        "output_flag": False,
        "threads": 1,
        "random_seed": limits.seed,
        # The default accepts solutions that are 0.01 % worse than the optimum.
        "mip_rel_gap": 0.0,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_model(problem))
    if problem.guess is not None:
        guess = highspy.HighsSolution()
        guess.col_value = problem.guess.tolist()
        solver.setSolution(guess)

    def report_solution(event: Any) -> None:
        data = event.data_out
        seconds = time.perf_counter() - began
        report_incumbent(Result(np.array(data.mip_solution), data.mip_dual_bound, False, seconds))

    def check_cancelled(event: Any) -> None:
        event.data_in.user_interrupt = is_cancelled()

    solver.cbMipImprovingSolution.subscribe(report_solution)
    solver.cbMipInterrupt.subscribe(check_cancelled)
    left = limits.max_runtime - (time.perf_counter() - began)
    solver.setOptionValue("time_limit", max(left, 0.0))
    solver.run()
    info = solver.getInfo()
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Result(
        np.array(solver.getSolution().col_value) if has_solution else None,
        float(info.mip_dual_bound),
        solver.getModelStatus() == highspy.HighsModelStatus.kOptimal,
        time.perf_counter() - began,
    )


def _model(problem: MixedIntegerProblem) -> highspy.HighsLp:
    size = len(problem.cost)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = size, problem.num_rows
    model.col_cost_ = problem.cost
    model.col_lower_, model.col_upper_ = np.zeros(size), np.ones(size)
    model.row_lower_, model.row_upper_ = problem.lower, problem.upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_col_, model.a_matrix_.num_row_ = size, problem.num_rows
    model.a_matrix_.start_ = problem.start
    model.a_matrix_.index_ = problem.column
    model.a_matrix_.value_ = problem.value
    kinds = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    model.integrality_ = [kinds[0 if integer else 1] for integer in problem.is_integer]
    return model
