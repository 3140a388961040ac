"""OP: one route of limited length that collects prizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._routing import Arrays, RoutingLayout, depot_and_customers

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance


@LAYOUTS.register("op")
class OPLayout(RoutingLayout):
    """Prizes and a limit."""

    requires = ("prizes", "max_length")
    marks = frozenset({"prizes"})
    knows = frozenset({"max_length"})
    single_route = True
    env_options = {"length_margin": -1e-6}

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """Prizes by the largest if normalised."""
        assert instance.prizes is not None and instance.max_length is not None
        unit = (float(instance.prizes[1:].max()) or 1.0) if normalize else 1.0
        return {
            **depot_and_customers(instance, normalize),
            "prize": instance.prizes[1:] / unit,
            "max_length": np.float64(instance.max_length / (instance.scale if normalize else 1.0)),
        }
