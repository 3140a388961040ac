"""The curve of costs of an improvement run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.rendering import FAINT, INK, MUTED, ROUTE_COLORS, draw_title, root_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor


def render_costs(
    best: Mapping[str, Tensor | Sequence[float]] | Tensor | Sequence[float],
    current: Tensor | Sequence[float] | None = None,
    *,
    times: Mapping[str, Sequence[float]] | Sequence[float] | None = None,
    reference: float | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Figure:
    """Draws best costs so far against steps or seconds, as stairs.

    Args:
        best: Best costs after 0, 1, 2, ... steps `[T + 1]`, means over instances if there are
            several; or such curves by name.
        current: Costs of the current solutions `[T + 1]`, drawn behind a single curve.
        times: Seconds of each entry, for each curve, in place of steps.
        reference: A cost to compare with (an optimum, say), drawn as a horizontal line.
        ax: Axes to draw on; a new figure if None.
        title: Title; none by default.

    Returns:
        The figure.
    """
    curves = best if isinstance(best, Mapping) else {"best so far": best}
    clocks = times if isinstance(times, Mapping) or times is None else {next(iter(curves)): times}
    if clocks is not None and clocks.keys() != curves.keys():
        raise ConfigError(
            f"expected times of the curves {', '.join(curves)}, got those of {', '.join(clocks)}"
        )
    if current is not None and len(curves) > 1:
        raise ConfigError("expected one curve beside current costs, got several; drop `current`")
    axes = _axes(ax)
    for number, (name, values) in enumerate(curves.items()):
        costs = _numbers(values)
        x = np.arange(len(costs)) if clocks is None else _numbers(clocks[name])
        behind = None if current is None else _numbers(current)
        for y in (costs, costs if behind is None else behind):
            if y.ndim != 1 or x.shape != y.shape:
                raise ConfigError(
                    f"expected one cost for each of {len(x)} steps, got shape {list(y.shape)} for "
                    f"{name!r}; take the mean over instances first"
                )
        if behind is not None:
            axes.plot(x, behind, color=MUTED, linewidth=0.8, label="current")
        color = ROUTE_COLORS[number % len(ROUTE_COLORS)]
        axes.plot(x, costs, drawstyle="steps-post", color=color, linewidth=1.6, label=name)
    if reference is not None:
        axes.axhline(reference, color=INK, linewidth=1.0, linestyle="--", label="reference")
    axes.set_xlabel("step" if clocks is None else "seconds", color=INK)
    axes.set_ylabel("cost", color=INK)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    if title is not None:
        draw_title(axes, title)
    return root_figure(axes)


def _numbers(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = values.detach().cpu() if hasattr(values, "detach") else values
    return np.asarray(values, dtype=np.float64)


def _axes(ax: Axes | None) -> Any:
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6.0, 3.6), layout="constrained").subplots()
    ax.grid(color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
