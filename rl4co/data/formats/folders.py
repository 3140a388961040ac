"""Which files of a folder are instances: its solutions, tables and other texts are not."""

from __future__ import annotations

import json
import os
import re

from pathlib import Path

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.lilim import looks_like_lilim
from rl4co.data.formats.orienteering import looks_like_orienteering
from rl4co.data.formats.own import COLUMNS
from rl4co.data.formats.pmed import looks_like_pmed
from rl4co.data.formats.shop_files import looks_like_shop
from rl4co.data.formats.solomon import looks_like_solomon
from rl4co.data.formats.source import Source, is_number

#: Suffixes that only instances have; files with others are looked into.
INSTANCE_SUFFIXES = (".vrp", ".tsp", ".atsp", ".oplib", ".fjs")


def find_instances(folder: str | os.PathLike[str]) -> list[Path]:
    """All instances in a folder and below it, hidden ones left out, in the order of their paths.

    Files `.vrp`, `.tsp`, `.atsp`, `.oplib` and `.fjs` always count, damaged or not. Files `.txt`,
    `.json` and `.csv` count if they look like an instance; those without a suffix (as in JSPLIB),
    and `.jsp` and `.tai`, if they look like a job shop.
    """
    place = Path(folder)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    visible = (f for f in files if not any(p[0] == "." for p in f.relative_to(place).parts))
    return [file for file in visible if _is_instance(file)]


def _is_instance(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix in INSTANCE_SUFFIXES:
        return True
    looks = _LOOKS.get(suffix)
    if looks is None or not path.stat().st_size:
        return False
    try:
        return looks(Source.read(path))
    except FileFormatError:  # no text
        return False


def _text(source: Source) -> bool:
    recognises = (
        looks_like_solomon, looks_like_orienteering, looks_like_lilim, looks_like_shop,
        looks_like_pmed,
    )  # fmt: skip
    return any(recognise(source) for recognise in recognises)


def _json(source: Source) -> bool:
    try:
        data = json.loads(source.text)
    except (ValueError, RecursionError):
        return True  # damaged: whoever reads it is told where
    return isinstance(data, dict) and not {"coordinates", "cost_matrix"}.isdisjoint(data)


def _csv(source: Source) -> bool:
    """Columns of nodes, or a matrix; not a table of best-known values, for example."""
    lines = (line for line in source.lines if line.strip() and not line.startswith("#"))
    cells = [cell.strip().lower() for cell in re.split("[,;\t]", next(lines, ""))]
    return all(map(is_number, cells)) or not {"node", *COLUMNS}.isdisjoint(cells)


#: Suffix → whether a file looks like an instance.
_LOOKS = {
    ".txt": _text,
    ".json": _json,
    ".csv": _csv,
    ".jsp": looks_like_shop,
    ".tai": looks_like_shop,
    "": looks_like_shop,
}
