"""Figure of one decap placement problem with several ports, each with its impedance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl4co.envs.eda._figure import draw_placement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from rl4co.envs.eda._chip import Chip


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    chip: Chip,
    reward_type: str = "minmax",
    **options: Any,
) -> Figure:
    """Draws ports red, decaps blue with their order, keep-outs dark; and a curve for each port."""
    return draw_placement(state, actions, chip, objective=reward_type, ax=ax, **options)
