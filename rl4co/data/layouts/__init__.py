"""Instances from files in the form of each environment: one module per problem.

A module registers one class under its own name, found like an environment's embeddings:

    @LAYOUTS.register("cvrp")
    class CVRPLayout(RoutingLayout): ...

Third-party packages do the same and name the class in the entry-point group `rl4co.layouts`. A
problem without a layout has no benchmark files; `.npz` files need none.
"""

from __future__ import annotations

from rl4co.data.layouts._base import Layout, includes
from rl4co.data.layouts._routing import RoutingLayout, name_problem, routing_layout, routing_layouts
from rl4co.data.layouts._shop import ShopLayout, name_shop

__all__ = [
    "Layout",
    "RoutingLayout",
    "ShopLayout",
    "includes",
    "name_problem",
    "name_shop",
    "routing_layout",
    "routing_layouts",
]
