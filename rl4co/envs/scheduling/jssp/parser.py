"""Job shops in files: the standard format, Taillard's, the FJS format and arrays."""

from __future__ import annotations

import os

from pathlib import Path
from typing import Literal

from tensordict import TensorDict, TensorDictBase

from rl4co.core.errors import FileFormatError, UnknownNameError
from rl4co.data.formats.shop import ShopInstance
from rl4co.data.formats.shop_files import parse_fjs, parse_jsplib, read_l2d
from rl4co.data.formats.shop_texts import format_fjs, format_jsplib, format_taillard
from rl4co.data.formats.source import Source
from rl4co.envs.scheduling.fjsp import parser

#: Names of the formats that are written: text of an instance, ending of its file.
FORMATS = {
    "standard": (format_jsplib, ".jsp"),
    "taillard": (format_taillard, ".tai"),
    "fjs": (format_fjs, ".fjs"),
}


def read(
    loc: str | os.PathLike[str], max_ops: int | None = None
) -> tuple[TensorDict, int, int, int]:
    """Reads the only instance of a file.

    Args:
        loc: File in the standard format, in Taillard's or (`.fjs`) in the FJS format. Machines
            count from 0 or from 1, which is recognised.
        max_ops: Number of operations to pad to.

    Returns:
        The instance with batch size `[1]`, its number of jobs, of machines, and the most operations
        of a job.

    Raises:
        FileFormatError: The file is damaged (the message names the line, job and operation), or has
            several instances.
    """
    shops = read_instances(Path(loc))
    if len(shops) != 1:
        raise FileFormatError(
            f"expected one instance in {loc}, got {len(shops)}; read them all with read_instances"
        )
    return parser.described(shops[0], max_ops)


def read_instances(path: Path) -> list[ShopInstance]:
    """All instances of one file; Taillard's files and arrays may have several."""
    if path.suffix.lower() == ".npy":
        return read_l2d(path)
    source = Source.read(path)
    return [parse_fjs(source)] if path.suffix.lower() == ".fjs" else parse_jsplib(source)


def write(
    where: str | os.PathLike[str],
    instances: TensorDictBase,
    file_format: Literal["standard", "taillard", "fjs"] = "standard",
) -> list[Path]:
    """Writes instances into a folder, one file each.

    Args:
        where: The folder; it is created.
        instances: Instances or states with batch size `[B]` or none.
        file_format: `standard` or `taillard`, in which jobs that do not visit every machine end
            with operations that take no time; or `fjs`, which has room for jobs of any length.

    Returns:
        The files.
    """
    if file_format not in FORMATS:
        raise UnknownNameError("format", file_format, FORMATS)
    format_instance, suffix = FORMATS[file_format]
    return parser.write(where, instances, format_instance=format_instance, suffix=suffix)
