"""Gurobi on plain mixed-integer programs, as a function for worker processes.

Importing this module needs gurobipy and neither torch nor other modules of the library that do.
"""

from __future__ import annotations

import time

import gurobipy
import numpy as np
import scipy.sparse

from rl4co.solvers._job_report import job_start
from rl4co.solvers._mip_problem import Limits, MixedIntegerProblem, Result


def solve(problem: MixedIntegerProblem, limits: Limits) -> Result:
    """The best solution within the limits."""
    began = job_start(limits.max_runtime)
    kinds = np.where(problem.is_integer, gurobipy.GRB.BINARY, gurobipy.GRB.CONTINUOUS)
    shape = (problem.num_rows, len(problem.cost))
    matrix = scipy.sparse.csr_matrix((problem.value, problem.column, problem.start), shape=shape)
    with gurobipy.Env(params={"OutputFlag": 0}) as env, gurobipy.Model(env=env) as model:
        variables = model.addMVar(shape[1], lb=0.0, ub=1.0, obj=problem.cost, vtype=kinds)
        for sense, side in (("<", problem.upper), (">", problem.lower)):
            rows = np.isfinite(side)
            model.addMConstr(matrix[rows], variables, sense, side[rows])
        if problem.guess is not None:
            variables.Start = problem.guess
        model.Params.Threads, model.Params.Seed, model.Params.MIPGap = 1, limits.seed, 0.0
        model.Params.TimeLimit = max(limits.max_runtime - (time.perf_counter() - began), 0.0)
        model.optimize()
        return Result(
            np.array(variables.X) if model.SolCount else None,
            float(model.ObjBound),
            model.Status == gurobipy.GRB.OPTIMAL,
            time.perf_counter() - began,
        )
