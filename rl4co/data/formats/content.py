"""The content of an input: a plain file, a file compressed by gzip, or the standard input (`-`).

Paths that are no files (folders, devices, pipes, broken links) raise an error that names their
kind. Instances are named after their files, without `.gz` and suffix.
"""

from __future__ import annotations

import errno
import functools
import gzip
import io
import os
import stat
import sys
import zlib

from pathlib import Path

from rl4co.core.errors import FileFormatError
from rl4co.data.size_limit import check_input_size, read_limited

#: Path that means the standard input.
STDIN = Path("-")

#: Suffix of compressed files, after the one of the format.
COMPRESSED = ".gz"
_MAGIC = b"\x1f\x8b"

_OTHER_KINDS = {
    stat.S_ISDIR: ("a folder", "name a file in it"),
    stat.S_ISCHR: ("a device", "name a file"),
    stat.S_ISBLK: ("a device", "name a file"),
    stat.S_ISFIFO: ("a pipe", "give it as standard input, with - as the file"),
    stat.S_ISSOCK: ("a socket", "name a file"),
}


def read_content(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file, decompressed if they are compressed by gzip, whatever its suffix.

    The standard input can be read only once; its content is cached.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: The path is no file, the file is damaged, or it is larger than the limit of
            :mod:`rl4co.data.size_limit`.
    """
    file = Path(path)
    if file == STDIN:
        content = _standard_input()
    else:
        require_file(file)
        check_input_size(file.stat().st_size, file)
        with file.open("rb") as stream:
            content = read_limited(stream, file)
    return _decompress(file, content) if content.startswith(_MAGIC) else content


def require_file(path: Path) -> None:
    """Raises unless a path is a file; the message names what it is instead."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileFormatError(
                f"expected a file, got a loop of symbolic links: {path}; correct the link"
            ) from None
        if path.is_symlink():
            raise FileNotFoundError(
                f"expected a file, got a link to {os.readlink(path)}, where there is none: {path}; "
                "correct the link"
            ) from None
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise FileNotFoundError(
                f"expected a file, got no such file: {path}; check the path"
            ) from None
        raise
    for is_kind, (name, remedy) in _OTHER_KINDS.items():
        if is_kind(mode):
            raise FileFormatError(f"expected a file, got {name}: {path}; {remedy}")


def name_of(path: Path) -> str:
    """Name of the instance in a file: the file name without folders, `.gz` and suffix."""
    return "stdin" if path == STDIN else _decompressed_name(path).stem


def suffix_of(path: Path) -> str:
    """The suffix that names the format, in lower case and without `.gz`."""
    return "" if path == STDIN else _decompressed_name(path).suffix.lower()


def _decompressed_name(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == COMPRESSED else path


@functools.cache
def _standard_input() -> bytes:
    return read_limited(sys.stdin.buffer, "standard input")


def _decompress(path: Path, content: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return read_limited(file, path)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(
            f"expected a complete gzip file, got {path} ({error}); the file is truncated or "
            "damaged: get it again from its source"
        ) from error
