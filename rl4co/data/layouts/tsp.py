"""TSP: a tour through all nodes."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays, RoutingLayout, nodes_of

if TYPE_CHECKING:
    from rl4co.data.formats.distances import EdgeCosts
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("tsp")
class TSPLayout(RoutingLayout):
    """Tours without a depot."""

    has_depot = False
    returns = False
    single_route = True

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """Coordinates, and the matrix where they do not say enough."""
        if instance.fixed_edges is not None:
            raise UnsupportedError(
                f"expected a tour without fixed edges for the environment {instance.problem!r}, "
                f"got {len(instance.fixed_edges)} in {instance.name}; only cost and check know them"
            )
        return nodes_of(instance, normalize)

    def fits(self, features: Set[str], costs: EdgeCosts) -> bool:
        """Nothing but symmetric costs."""
        return not features and costs.is_symmetric
