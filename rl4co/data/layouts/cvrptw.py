"""CVRPTW: a CVRP with time windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays, or_zeros
from rl4co.data.layouts.cvrp import CVRPLayout

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("cvrptw")
class CVRPTWLayout(CVRPLayout):
    """Demands, windows and service times."""

    requires = ("demand", "capacity", "time_windows")
    marks = frozenset({"time_windows"})
    knows = frozenset({"demand"})

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """A CVRP with times in units of length."""
        assert instance.time_windows is not None
        unit = instance.scale if normalize else 1.0
        return {
            **super().to_arrays(instance, normalize),
            "durations": or_zeros(instance.service_times, instance) / unit,
            "time_windows": instance.time_windows / unit,
        }
