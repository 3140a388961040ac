"""CVRP: routes of vehicles with a capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays, RoutingLayout, depot_and_customers

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("cvrp")
class CVRPLayout(RoutingLayout):
    """Demands and a capacity."""

    requires: ClassVar[tuple[str, ...]] = ("demand", "capacity")
    marks = frozenset({"demand"})

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """Demands by the capacity if normalised."""
        assert instance.demand is not None and instance.capacity is not None
        unit = instance.capacity if normalize else 1.0
        arrays = {
            **depot_and_customers(instance, normalize),
            "demand": instance.demand[1:] / unit,
            "capacity": [float(instance.capacity)],
        }
        if not normalize:
            arrays["vehicle_capacity"] = [float(instance.capacity)]
        return arrays
