"""Formulations of the problems for classical solvers: one module per problem, found by its name.

A module registers one class under its own name, which says which solvers the problem prefers and
how its instances and solutions are translated:

    @FORMULATIONS.register("cvrp")
    class CVRPFormulation(RoutingFormulation):
        solvers = ("pyvrp", "ortools", "insertion")

        def formulate(self, env, instance): ...

Third-party packages do the same and name the class in the entry-point group `rl4co.formulations`.
There is one base class for each kind of problem; every solver that reads this kind solves the
problem on request, and the preferred ones in the order of `solvers` by default. A problem without a
formulation is solved by those that work on any environment (`random`, and `local_search` where
there is one).

A formulation of any kind may have further methods, and solvers that need one say so where it is
missing:

- `greedy(env, td)` → actions `[B, T]`: a greedy construction (`greedy`);
- `genomes(env, td)` → :class:`rl4co.solvers._evolution.Encoding`: solutions as genomes (`genetic`,
  `particle_swarm`).
"""

from __future__ import annotations

from rl4co.solvers.formulations._base import Formulation, formulation_of
from rl4co.solvers.formulations._mip import MIPFormulation
from rl4co.solvers.formulations._placement import PlacementFormulation
from rl4co.solvers.formulations._routing import RoutingFormulation, instances_of, pad_actions
from rl4co.solvers.formulations._scheduling import SchedulingFormulation

__all__ = [
    "Formulation",
    "MIPFormulation",
    "PlacementFormulation",
    "RoutingFormulation",
    "SchedulingFormulation",
    "formulation_of",
    "instances_of",
    "pad_actions",
]
