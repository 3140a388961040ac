"""The console for all output; in a module of its own because importing rich is slow."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console

from rich.segment import Segment

from rl4co.core.text import printable


class Console(rich.console.Console):
    """rich's console, with control characters in texts made visible.

    Names in files, paths and messages may hold sequences that a terminal obeys. What rich itself
    sends to the terminal (colours, progress bars) is kept apart from texts.
    """

    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterable[Segment]:
        """What is printed, in pieces."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)
