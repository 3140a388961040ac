"""PDPTW: pickups and deliveries by a fleet; files of it can be read, there is no environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays, RoutingLayout

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("pdptw")
class PDPTWLayout(RoutingLayout):
    """Pairs, demands and windows."""

    requires = ("demand", "capacity", "time_windows", "pairs")
    marks = frozenset({"pairs"})
    knows = frozenset({"demand", "time_windows"})

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """Raise UnsupportedError."""
        raise UnsupportedError(
            f"there is no environment for {instance.problem} ({instance.name}); "
            "its costs and the check of its solutions are available"
        )
