"""Animations of how a policy constructs a solution: GIF, or HTML with the player of the page."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import os
import re

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from rl4co.core.errors import ConfigError, StoppedError
from rl4co.data.formats.plain import to_plain
from rl4co.data.formats.write import require_writable
from rl4co.data.io import atomic_write
from rl4co.envs.rendering import ACCENT, node_coordinates
from rl4co.serve._instances import ClientInstance
from rl4co.tasks.solve import Solved, describe, environment_of
from rl4co.tasks.trace import TracedDecision

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".gif", ".html")
#: Most frames of a GIF; of longer constructions, it shows every second step, every third, ...
MAX_FRAMES = 120
#: Seconds of a GIF without its last frame, limits for each frame, and seconds of the last one.
_PLAY_SECONDS, _FRAME_SECONDS, _LAST_SECONDS = 10.0, (0.08, 0.6), 2.5
#: Candidates below this probability are not drawn.
_MIN_PROBABILITY = 0.01

# The modules of the player, each after those that it imports.
_MODULES = ("problems.js", "svg.js", "gantt.js", "plane.js", "player.js")
_IMPORT = re.compile(r'^import [^;]*? from "\./[\w.]+";\n', re.MULTILINE)

_PAGE = """\
<!doctype html>
<html lang="en" data-theme="auto">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body class="animation">
<h1>{title}</h1>
<div id="player" class="card"></div>
<script type="application/json" id="trace">{trace}</script>
<script type="module">
{script}
const trace = JSON.parse(document.getElementById("trace").textContent);
playTrace(document.getElementById("player"), trace);
</script>
</body>
</html>
"""


def check_animation(path: str | os.PathLike[str]) -> Path:
    """Raises unless an animation can be written to a file."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"expected an animation as {' or '.join(SUFFIXES)}, got {target.name!r}; "
            "change the suffix"
        )
    require_writable(target)
    return target


def save_animation(solved: Solved, path: str | os.PathLike[str]) -> Path:
    """Writes an animation of the decisions that led to a solution.

    Args:
        solved: The solution, with its trace.
        path: File to write, `.gif` or `.html`. Folders are created.

    Raises:
        StoppedError: The search was interrupted before there was a trace.
    """
    target = check_animation(path)
    if solved.trace is None:
        raise StoppedError("expected decisions to animate, got an interrupt before; solve again")
    problem, decisions = solved.trace
    # A job shop solved by a model for flexible ones has the actions of these.
    solved = dataclasses.replace(solved, instance=solved.instance.as_problem(problem))
    with atomic_write(target) as file:
        if target.suffix.lower() == ".html":
            file.write(animation_html(solved, decisions).encode())
        else:
            _save_gif(solved, decisions, file)
    return target


# ---------------------------------------------------------------- HTML


def animation_html(solved: Solved, decisions: Sequence[TracedDecision]) -> str:
    """A page that plays decisions, complete in one file: it loads nothing.

    Args:
        solved: The solution.
        decisions: The decisions that led to it.
    """
    instance = ClientInstance(solved.instance, to_plain(solved.instance))
    run = {
        "label": solved.solver,
        "kind": "model",
        "decisions": [instance.decision_record(decision) for decision in decisions],
        "solution": instance.solution_record(solved.solution),
        "seconds": solved.seconds,
    }
    trace = {"problem": solved.instance.problem, "instance": instance.plain, "runs": [run]}
    static = files("rl4co.serve") / "static"
    texts = [(static / name).read_text(encoding="utf-8") for name in _MODULES]
    return _PAGE.format(
        title=html.escape(describe(solved)),
        style=(static / "style.css").read_text(encoding="utf-8"),
        # Names of nodes come from files: "</script>" and the like must not end the element.
        trace=json.dumps(_without_infinity(trace), allow_nan=False).replace("<", "\\u003c"),
        script="\n".join(_IMPORT.sub("", text) for text in texts),
    )


def _without_infinity(value: Any) -> Any:
    """The value with None for infinite numbers, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _without_infinity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------- GIF


def _save_gif(solved: Solved, decisions: Sequence[TracedDecision], file: IO[bytes]) -> None:
    stride = math.ceil(len(decisions) / MAX_FRAMES)
    frames = _Frames(solved, decisions)
    first_step = 1 if frames.points is None else 0  # an empty schedule would have no axes
    steps = [*range(first_step, len(decisions), stride), len(decisions)]
    images = [frames.draw(step) for step in steps]
    low, high = _FRAME_SECONDS
    seconds = min(max(_PLAY_SECONDS / len(images), low), high)
    durations = [round(1000 * seconds)] * (len(images) - 1) + [round(1000 * _LAST_SECONDS)]
    first, *others = images
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0)


class _Frames:
    """Draws partial solutions, all with the axes of the complete one.

    Args:
        solved: The solution.
        decisions: The decisions that led to it.
    """

    def __init__(self, solved: Solved, decisions: Sequence[TracedDecision]) -> None:
        self.solved, self.decisions = solved, decisions
        self.env = environment_of(solved.instance)
        self.state = self.env.reset(solved.instance.to_tensordict(normalize=False))
        self.actions = torch.tensor([[decision.action for decision in decisions]])
        self.points = node_coordinates(self.state[0])[0] if "locs" in self.state.keys() else None
        self.limits: tuple[Any, Any] | None = None
        self.draw(len(decisions))

    def draw(self, step: int) -> Image:
        """The solution after some decisions, and the candidates of the next one."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from PIL import Image

        figure_size = (6, 6) if self.points is not None else (8, 5)
        figure = Figure(figsize=figure_size, dpi=100, layout="constrained")
        canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()
        actions = self.actions[:, :step] if step else None
        self.env.render(self.state, actions, ax=axes, title=self._title(step))
        if self.limits is None:
            self.limits = axes.get_xlim(), axes.get_ylim()
        axes.set(xlim=self.limits[0], ylim=self.limits[1])
        if self.points is not None and step < len(self.decisions):
            for action, probability in self.decisions[step].candidates():
                if probability >= _MIN_PROBABILITY and action < len(self.points):
                    (x, y), size = self.points[action], 1400 * probability + 60
                    axes.scatter(x, y, size, color=ACCENT, alpha=0.35, zorder=1)
        canvas.draw()
        return Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert(
            "P", palette=Image.Palette.ADAPTIVE
        )

    def _title(self, step: int) -> str:
        if step == len(self.decisions):
            return describe(self.solved)
        decision = self.decisions[step]
        probability = float(decision.probabilities[decision.action])
        name, total = self.solved.instance.name, len(self.decisions)
        return f"{name} · step {step + 1} of {total} · {probability:.0%}"
