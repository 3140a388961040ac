"""Routing problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from rl4co.envs.routing.atsp import *
    from rl4co.envs.routing.cvrp import *
    from rl4co.envs.routing.cvrpmvc import *
    from rl4co.envs.routing.cvrptw import *
    from rl4co.envs.routing.mdcpdp import *
    from rl4co.envs.routing.mtsp import *
    from rl4co.envs.routing.mtvrp import *
    from rl4co.envs.routing.op import *
    from rl4co.envs.routing.pctsp import *
    from rl4co.envs.routing.pdp import *
    from rl4co.envs.routing.pdp_ruin_repair import *
    from rl4co.envs.routing.sdvrp import *
    from rl4co.envs.routing.shpp import *
    from rl4co.envs.routing.spctsp import *
    from rl4co.envs.routing.svrp import *
    from rl4co.envs.routing.tsp import *
    from rl4co.envs.routing.tsp_dense import *
    from rl4co.envs.routing.tsp_kopt import *

__getattr__, __dir__ = lazy_attributes(__name__, eager=(), packages=(__name__,))
