"""Figures of decap placements: the board, and the impedance at its ports before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.eda._placement import port_mask
from rl4co.envs.eda._scores import port_impedance
from rl4co.envs.rendering import (
    FAINT,
    INK,
    MUTED,
    ROUTE_COLORS,
    as_path,
    count_of,
    draw_title,
    figure_png,
    root_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from rl4co.envs.eda._chip import Chip

#: Colours as in the figures of the paper: ports red, decaps blue, keep-outs dark.
PORT, DECAP, KEEPOUT, FREE = "#d6336c", "#1f6fb4", "#6b7487", "#f3f5f8"


def draw_placement(
    state: Mapping[str, Tensor],
    actions: Tensor | None,
    chip: Chip,
    *,
    objective: str = "minmax",
    ax: Axes | None = None,
    legend: bool = True,
    title: str | None = None,
) -> Figure:
    """Draws the board; and beside it the impedance at the ports, unless axes are given.

    Ports are red, decaps blue with their order, keep-outs dark.

    Args:
        state: Single instance: a state without batch axis.
        actions: Solution `[T]`, or None for the instance alone.
        chip: The chip of the environment.
        objective: How the scores of several ports are put together: "minmax" or "meansum".
        ax: Axes for the board alone; a new figure with both if None.
        legend: Whether to explain the colours.
        title: Replaces the title, which gives the number of decaps and the score.

    Returns:
        The figure.
    """
    keepout = state["keepout"].numpy()
    chip = chip.resized(len(keepout))
    ports = np.flatnonzero(port_mask(state["probe"], len(keepout)).numpy()).tolist()
    decaps = [] if actions is None else list(dict.fromkeys(as_path(actions).tolist()))
    if any(not 0 <= cell < len(keepout) for cell in decaps):
        raise ConfigError(f"expected cells 0 to {len(keepout) - 1} as actions, got {decaps}")
    limit = state.get("max_decaps", None)
    decaps = decaps if limit is None else decaps[: int(limit)]
    before = [port_impedance(chip, [], port) for port in ports]
    after = [port_impedance(chip, decaps, port) for port in ports]
    scores = [
        float((chip.weight * (old - new)).sum()) for old, new in zip(before, after, strict=True)
    ]
    score = min(scores) if objective == "minmax" else float(np.mean(scores))
    heading = (
        f"{count_of(len(ports), 'probing port')} · {int(keepout.sum()) - len(ports)} keep-outs"
    )
    if decaps:
        heading = f"{count_of(len(decaps), 'decap')} · score {score:.3f}"

    curves = None
    if ax is None:
        from matplotlib.figure import Figure as NewFigure

        figure = NewFigure(figsize=(9.6, 4.6), layout="constrained")
        # Notebooks show figures by pyplot's hook; this shows ours without pyplot.
        figure._repr_png_ = partial(figure_png, figure)  # type: ignore[attr-defined]
        ax, curves = figure.subplots(1, 2, width_ratios=[1, 1.05])
    assert ax is not None
    _draw_board(ax, chip, keepout, ports, decaps, legend)
    draw_title(ax, heading if title is None else title)
    if curves is not None:
        _draw_curves(curves, chip, ports, before, after if decaps else None, legend)
    return root_figure(ax)


def _draw_board(
    ax: Axes,
    chip: Chip,
    keepout: np.ndarray,
    ports: Sequence[int],
    decaps: Sequence[int],
    legend: bool,
) -> None:
    """The grid, row 0 at the top: free cells, keep-outs, ports and numbered decaps."""
    from matplotlib.patches import FancyBboxPatch, Patch

    rows, cols = chip.grid.rows, chip.grid.cols
    order = {cell: step + 1 for step, cell in enumerate(decaps)}
    port_names = _name_ports(ports)
    size = float(np.clip(80 / max(rows, cols), 3.5, 9))
    for cell in range(rows * cols):
        row, col = divmod(cell, cols)
        color = FREE
        if cell in ports:
            color = PORT
        elif cell in order:
            color = DECAP
        elif keepout[cell]:
            color = KEEPOUT
        box = FancyBboxPatch(
            (col - 0.44, row - 0.44), 0.88, 0.88, facecolor=color,
            edgecolor=FAINT if color == FREE else color, linewidth=0.6,
            boxstyle="round,pad=0,rounding_size=0.12",
        )  # fmt: skip
        ax.add_patch(box)
        label = port_names[cell] if cell in ports else str(order.get(cell, ""))
        ax.text(
            col, row, label, color="white", fontsize=size, fontweight="bold", ha="center",
            va="center_baseline",
        )  # fmt: skip
    ax.set_xlim(-0.6, cols - 0.4)
    ax.set_ylim(rows - 0.4, -0.6)
    ax.set_aspect("equal", adjustable="box")
    step = max(1, max(rows, cols) // 10)
    ax.set_xticks(range(0, cols, step))
    ax.set_yticks(range(0, rows, step))
    ax.tick_params(colors=MUTED, labelsize=7, length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if legend:
        kinds = {"probing port": PORT, "decap": DECAP, "keep-out": KEEPOUT, "free": FREE}
        entries = [
            Patch(facecolor=color, edgecolor=FAINT, label=name)
            for name, color in kinds.items()
            if name != "decap" or decaps
        ]
        ax.legend(
            handles=entries, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=4,
            frameon=False, fontsize=8, labelcolor=INK, handlelength=1.0, columnspacing=1.2,
        )  # fmt: skip


def _name_ports(ports: Sequence[int]) -> dict[int, str]:
    """What each port is called on the board and beside its curve: P, or P1, P2 and so on."""
    if len(ports) == 1:
        return {ports[0]: "P"}
    return {port: f"P{index}" for index, port in enumerate(ports, start=1)}


def _draw_curves(
    ax: Axes,
    chip: Chip,
    ports: Sequence[int],
    before: Sequence[np.ndarray],
    after: Sequence[np.ndarray] | None,
    legend: bool,
) -> None:
    """Impedance over frequency at each port, dashed without decaps and solid with them."""
    gigahertz = chip.frequency / 1e9
    colors = [PORT, *(color for color in ROUTE_COLORS if color != PORT)]
    port_names = _name_ports(ports)
    for index, (port, old) in enumerate(zip(ports, before, strict=True)):
        style: dict[str, Any] = {"color": colors[index % len(colors)], "linewidth": 1.5}
        name = f"port {port_names[port]} ({port // chip.grid.cols}, {port % chip.grid.cols})"
        if after is None:
            ax.plot(gigahertz, old, **style, label=name)
        else:
            ax.plot(gigahertz, old, **style, alpha=0.55, linestyle=(0, (4, 2)))
            ax.plot(gigahertz, after[index], **style, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("frequency (GHz)", color=INK, fontsize=9)
    ax.set_ylabel("impedance (Ω)", color=INK, fontsize=9)
    ax.tick_params(colors=MUTED, labelsize=7, which="both", color=FAINT)
    ax.grid(color=FAINT, linewidth=0.5, which="both", alpha=0.6)
    for spine in ax.spines.values():
        spine.set_color(FAINT)
    draw_title(ax, "without decaps (dashed) and with them" if after is not None else "no decaps")
    if legend:
        ax.legend(frameon=False, fontsize=8, labelcolor=INK, handlelength=1.6, loc="upper left")
