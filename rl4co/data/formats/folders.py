"""Which files of a folder are instances: its solutions, tables and other texts are not."""

from __future__ import annotations

import json
import os
import re

from pathlib import Path

from rl4co.data.formats.lilim import looks_like_lilim
from rl4co.data.formats.orienteering import looks_like_orienteering
from rl4co.data.formats.own import COLUMNS
from rl4co.data.formats.solomon import looks_like_solomon
from rl4co.data.formats.source import Source, is_number

#: Suffixes that only instances have; files with others are looked into.
INSTANCE_SUFFIXES = (".vrp", ".tsp", ".atsp", ".oplib")


def find_instances(folder: str | os.PathLike[str]) -> list[Path]:
    """All instances in a folder and below it, in the order of their paths.

    Files `.vrp`, `.tsp`, `.atsp` and `.oplib` always count, damaged or not. Files `.txt`, `.json`
    and `.csv` count if they look like an instance.
    """
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return [path for path in files if _is_instance(path)]


def _is_instance(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix in INSTANCE_SUFFIXES:
        return True
    looks = {".txt": _text, ".json": _json, ".csv": _csv}.get(suffix)
    return looks is not None and path.stat().st_size > 0 and looks(Source.read(path))


def _text(source: Source) -> bool:
    recognises = (looks_like_solomon, looks_like_orienteering, looks_like_lilim)
    return any(recognise(source) for recognise in recognises)


def _json(source: Source) -> bool:
    try:
        data = json.loads(source.text)
    except ValueError:
        return True  # damaged: whoever reads it is told where
    return isinstance(data, dict) and not {"coordinates", "cost_matrix"}.isdisjoint(data)


def _csv(source: Source) -> bool:
    """Columns of nodes, or a matrix; not a table of best-known values, for example."""
    lines = (line for line in source.lines if line.strip() and not line.startswith("#"))
    cells = [cell.strip().lower() for cell in re.split("[,;\t]", next(lines, ""))]
    return all(map(is_number, cells)) or not {"node", *COLUMNS}.isdisjoint(cells)
