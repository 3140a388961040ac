"""Figure of one decap placement problem: the board, and the impedance at its port."""

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
    **options: Any,
) -> Figure:
    """Draws the port red, decaps blue with their order, keep-outs dark; and the impedance curve.

    Args:
        state: Single instance: a state without batch axis.
        actions: Solution `[T]`, or None for the instance alone.
        ax: Axes for the board alone; a new figure with board and curve if None.
        chip: The chip of the environment.
        options: See :func:`rl4co.envs.eda._figure.draw_placement`.

    Returns:
        The figure.
    """
    return draw_placement(state, actions, chip, objective="minmax", ax=ax, **options)
