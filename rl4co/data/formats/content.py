"""The content of a file that is read: a plain one, one packed by gzip, or the standard input (`-`).

What is no file (a folder, a device, a pipe, a link that leads nowhere or to itself) is refused
under its name. Names of instances are those of their files without `.gz` and suffix.
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

#: The standard input, in place of a file.
STDIN = Path("-")

#: Suffix of packed files, which stands behind the one of the format.
PACKED = ".gz"
_MAGIC = b"\x1f\x8b"

#: Largest content that is unpacked; a small file may unpack to more than there is memory.
MAX_UNPACKED = 2**30

_NO_FILES = {
    stat.S_ISDIR: ("a folder", "name a file in it"),
    stat.S_ISCHR: ("a device", "name a file"),
    stat.S_ISBLK: ("a device", "name a file"),
    stat.S_ISFIFO: ("a pipe", "give it as standard input, with - as the file"),
    stat.S_ISSOCK: ("a socket", "name a file"),
}


def read_content(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file, unpacked if they are packed by gzip, whatever the file is called.

    The standard input can be read once; it is kept for those who ask again.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: It is no file, or packed and damaged or far too large.
    """
    file = Path(path)
    if file == STDIN:
        content = _standard_input()
    else:
        require_file(file)
        content = file.read_bytes()
    return _unpack(file, content) if content.startswith(_MAGIC) else content


def require_file(path: Path) -> None:
    """Raises unless a path is that of a file, and says what it is instead."""
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
    for is_kind, (name, remedy) in _NO_FILES.items():
        if is_kind(mode):
            raise FileFormatError(f"expected a file, got {name}: {path}; {remedy}")


def name_of(path: Path) -> str:
    """What is in a file, by its name: without folders, `.gz` and suffix."""
    return "stdin" if path == STDIN else _unpacked_name(path).stem


def suffix_of(path: Path) -> str:
    """The suffix that names the format, in lower case: that before `.gz` of a packed file."""
    return "" if path == STDIN else _unpacked_name(path).suffix.lower()


def _unpacked_name(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == PACKED else path


@functools.cache
def _standard_input() -> bytes:
    return sys.stdin.buffer.read()


def _unpack(path: Path, content: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            text = file.read(MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(
            f"expected a complete gzip file, got {path} ({error}); the file is truncated or "
            "damaged: get it again from its source"
        ) from error
    if len(text) > MAX_UNPACKED:
        raise FileFormatError(
            f"expected at most {MAX_UNPACKED:,} bytes, got more when unpacking {path}; no instance "
            "is that large"
        )
    return text
