"""HiGHS, a solver of mixed-integer programs, for facility location and maximum coverage.

https://highs.dev. Open source, and quick on both problems.

    solutions = env.solve(instances, solver="highs", max_runtime=60.0)
    solutions.costs, solutions.bounds, solutions.optimal

It begins with the solution of a local search (or a given one), so there is a solution however short
the time is. :mod:`rl4co.solvers.formulations` has the programs.
"""

from __future__ import annotations

from rl4co.solvers._mip import register_mip_solver

highs = register_mip_solver("highs", "HiGHS", "highspy", extra="solvers")
