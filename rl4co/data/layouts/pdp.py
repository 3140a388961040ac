"""PDP: one route in which pickups come before their deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays, RoutingLayout, depot_and_customers

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("pdp")
class PDPLayout(RoutingLayout):
    """Pairs of nodes."""

    requires = ("pairs",)
    marks = frozenset({"pairs"})
    returns = False
    single_route = True

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """Nodes: pickups come first already."""
        return depot_and_customers(instance, normalize)
