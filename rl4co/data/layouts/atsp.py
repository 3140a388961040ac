"""ATSP: a tour whose costs depend on the direction."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays
from rl4co.data.layouts.tsp import TSPLayout

if TYPE_CHECKING:
    from rl4co.data.formats.distances import EdgeCosts
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("atsp")
class ATSPLayout(TSPLayout):
    """Tours by a matrix."""

    includes = ("tsp",)

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """Always with the matrix."""
        unit = instance.scale if normalize else 1.0
        arrays = super().to_arrays(instance, normalize)
        return {**arrays, "cost_matrix": instance.costs / unit}

    def fits(self, features: Set[str], costs: EdgeCosts) -> bool:
        """Nothing but asymmetric costs."""
        return not features and not costs.is_symmetric
