"""MTVRP: backhauls, open routes, limits on length and time windows, in any combination."""

from __future__ import annotations

import math

from typing import TYPE_CHECKING

import numpy as np

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays, RoutingLayout, nodes_of, or_zeros

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("mtvrp")
class MTVRPLayout(RoutingLayout):
    """Whatever features an instance has."""

    requires = ("demand", "capacity")
    marks = frozenset({"backhaul_demand", "open_routes", "max_length"})
    knows = frozenset({"demand", "time_windows"})
    includes = ("cvrp", "cvrptw")

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """Features that an instance does not have are zero or infinite."""
        assert instance.demand is not None and instance.capacity is not None
        load, length = (instance.capacity, instance.scale) if normalize else (1.0, 1.0)
        no_windows = np.array([[0.0, math.inf]] * instance.num_nodes)
        windows = no_windows if instance.time_windows is None else instance.time_windows
        limit = math.inf if instance.max_length is None else instance.max_length
        return {
            **nodes_of(instance, normalize),
            "demand_linehaul": instance.demand / load,
            "demand_backhaul": or_zeros(instance.backhaul_demand, instance) / load,
            "backhaul_class": [1.0],
            "vehicle_capacity": [instance.capacity / load],
            "capacity_original": [float(instance.capacity)],
            "open_route": [instance.open_routes],
            "distance_limit": [limit / length],
            "time_windows": windows / length,
            "service_time": or_zeros(instance.service_times, instance) / length,
            "speed": [1.0],
        }
