"""Which files of a folder are instances: its solutions, tables and other texts are not."""

from __future__ import annotations

import json
import os

from pathlib import Path

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.content import suffix_of
from rl4co.data.formats.custom_csv import looks_like_csv
from rl4co.data.formats.lilim import looks_like_lilim
from rl4co.data.formats.orienteering import looks_like_orienteering
from rl4co.data.formats.pmed import looks_like_pmed
from rl4co.data.formats.shop_files import looks_like_shop
from rl4co.data.formats.solomon import looks_like_solomon
from rl4co.data.formats.source import Source

#: Suffixes that only instances have; files with others are looked into.
INSTANCE_SUFFIXES = (".vrp", ".tsp", ".atsp", ".oplib", ".fjs")


def find_instances(folder: str | os.PathLike[str]) -> list[Path]:
    """All instances in a folder and below it, hidden ones left out, in the order of their paths.

    Files `.vrp`, `.tsp`, `.atsp`, `.oplib` and `.fjs` always count, damaged or not. Files `.txt`,
    `.json` and `.csv` count if they look like an instance; those without a suffix (as in JSPLIB),
    and `.jsp` and `.tai`, if they look like a job shop. The same with `.gz` behind it.
    """
    place = Path(folder)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    visible = (f for f in files if not any(p[0] == "." for p in f.relative_to(place).parts))
    return [file for file in visible if _is_instance(file)]


def _is_instance(path: Path) -> bool:
    suffix = suffix_of(path)
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


#: Suffix → whether a file looks like an instance.
_LOOKS = {
    ".txt": _text,
    ".json": _json,
    ".csv": looks_like_csv,
    ".jsp": looks_like_shop,
    ".tai": looks_like_shop,
    "": looks_like_shop,
}
