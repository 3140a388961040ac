"""Instances of environments as routing problems, and their routes as actions.

One file for each family of problems; each problem is an entry of :data:`FORMULATIONS`.
"""

from __future__ import annotations

from rl4co.core.errors import UnsupportedError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._formulations._base import Formulation, Instance, instances_of, pad_actions
from rl4co.solvers._formulations.fleets import FLEETS
from rl4co.solvers._formulations.orders import ORDERS
from rl4co.solvers._formulations.prizes import PRIZES
from rl4co.solvers._formulations.tours import TOURS

__all__ = [
    "FORMULATIONS",
    "Formulation",
    "Instance",
    "formulation_of",
    "instances_of",
    "pad_actions",
]

FORMULATIONS: dict[str, Formulation] = {**TOURS, **FLEETS, **PRIZES, **ORDERS}


def formulation_of(env: RL4COEnvBase) -> Formulation:
    """How instances of the environment are formulated as routing problems."""
    if env.name not in FORMULATIONS:
        raise UnsupportedError(
            f"expected a routing problem among {', '.join(sorted(FORMULATIONS))}, got {env.name!r}"
        )
    return FORMULATIONS[env.name]
