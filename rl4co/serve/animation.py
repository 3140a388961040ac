"""Replays in one HTML file: the player of the page with a trace, without a server or a network."""

from __future__ import annotations

import html
import json
import re

from importlib.resources import files
from typing import Any

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


def animation_html(trace: dict[str, Any], title: str) -> str:
    """A page that plays a trace.

    Args:
        trace: `problem`, `instance` (lists by key, None for infinity) and `runs`, a list of
            `label`, `kind` (model or solver), `decisions` (`step`, `action`, `forced`,
            `candidates`, `mask`), `incumbents` (`seconds`, `cost`, `solution`), `solution`
            and `seconds`, as the service reports them.
        title: Title of the page.
    """
    static = files("rl4co.serve") / "static"
    texts = [(static / name).read_text(encoding="utf-8") for name in _MODULES]
    return _PAGE.format(
        title=html.escape(title),
        style=(static / "style.css").read_text(encoding="utf-8"),
        # Names of nodes come from files: "</script>" and the like must not end the element.
        trace=json.dumps(trace, allow_nan=False).replace("<", "\\u003c"),
        script="\n".join(_IMPORT.sub("", text) for text in texts),
    )
