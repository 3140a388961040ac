"""Classical solvers and simple heuristics, to compare with and to learn from.

Each module registers one solver under its own name; `env.solve(instances, solver=...)` finds it.
Modules that begin with an underscore are shared parts.
"""
