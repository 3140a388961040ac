"""Plot of one prize collecting instance, with its tour or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    ACCENT,
    MUTED,
    as_path,
    count_of,
    format_cost,
    path_cost,
)
from rl4co.envs.routing._map import MapOptions
from rl4co.envs.routing.op.render import depot_walk, draw_partial_tour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the depot, customers that grow with their expected prize, and the tour.

    Customers that the tour leaves out are grey, the redder the larger their penalty.
    """
    expected, real, penalty = (
        state[key].detach().cpu().double().numpy()
        for key in ("expected_prize", "real_prize", "penalty")
    )  # [N] each
    required = float(state["prize_required"].reshape(-1)[0])
    walk = None if actions is None else depot_walk(as_path(actions))
    colors = _penalty_colors(penalty)
    chart = draw_partial_tour(state, ax, expected, walk, colors, **options)
    customers, note = count_of(chart.num_customers, "customer"), None
    heading = f"{customers} · prize {required:g} required"
    if walk is not None:
        visited = np.unique(walk)
        length, left = path_cost(state, walk), penalty.sum() - penalty[visited].sum()
        heading = f"{np.count_nonzero(visited)} of {customers}"
        heading += f" · cost {format_cost(length + left)}"
        note = (
            f"length {format_cost(length)} + penalties {format_cost(left)} · "
            f"prize {format_cost(real[visited].sum())} of {required:g}"
        )
    return chart.finish(heading, note)


def _penalty_colors(penalty: np.ndarray) -> list[str]:
    """From grey to red with the penalty `[N]`."""
    from matplotlib.colors import to_hex, to_rgb

    share = (penalty / max(float(penalty.max(initial=0.0)), 1e-12))[:, None]  # [N, 1]
    mixed = (1 - share) * np.array(to_rgb(MUTED)) + share * np.array(to_rgb(ACCENT))  # [N, 3]
    return [to_hex(color) for color in mixed]
