"""HiGHS, a solver of mixed-integer programs, for facility location and maximum coverage.

https://highs.dev. Open source, and quick on both problems.

    solutions = env.solve(instances, solver="highs", max_runtime=60.0)
    solutions.costs, solutions.bounds, solutions.optimal

The search starts from the solution of a local search (or an initial one), so there is a solution
for any time limit. The programs are defined in :mod:`rl4co.solvers.formulations`.
"""

from __future__ import annotations

from rl4co.solvers._mip import register_mip_solver

highs = register_mip_solver("highs", "HiGHS", "highspy", extra="solvers")
