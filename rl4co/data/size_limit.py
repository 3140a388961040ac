"""One limit on the size of everything that is read: files, archives and the standard input.

The limit counts bytes after decompression, so that a small compressed file cannot exhaust the
memory. It is 2 GiB; the environment variable `RL4CO_MAX_INPUT` sets another one (`8GiB`, `500MB` or
a number of bytes).
"""

from __future__ import annotations

import io
import os
import re

from typing import Protocol

from rl4co.core.errors import ConfigError, InputSizeError

#: Largest input in bytes, unless the environment variable sets another limit.
DEFAULT_LIMIT = 2 * 2**30
VARIABLE = "RL4CO_MAX_INPUT"

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_CHUNK = 2**20


class Readable(Protocol):
    """An input stream: standard input, an open file or a decompressor."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""


def input_limit() -> int:
    """Largest input in bytes.

    Raises:
        ConfigError: The environment variable `RL4CO_MAX_INPUT` is no size.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    size = _SIZE.fullmatch(text)
    if size is None or not int(size[1]):
        raise ConfigError(
            f"expected {VARIABLE} (--max-input-size) as a size such as 8GiB or a number of bytes, "
            f"got {text!r}; correct or unset it"
        )
    base = 1024 if size[3] else 1000
    return int(size[1]) * int(base ** " kmgt".index(size[2].lower() or " "))


def set_input_limit(size: str) -> None:
    """Set the limit of this process and of those that it starts.

    Args:
        size: A size such as `8GiB`, or a number of bytes.

    Raises:
        ConfigError: It is no size.
    """
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = size
    try:
        input_limit()
    except ConfigError:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        raise


def check_input_size(num_bytes: int, name: object) -> None:
    """Raises :class:`InputSizeError` if an input is larger than the limit.

    Args:
        num_bytes: Size of the input after decompression, as announced or as counted so far.
        name: The input, for the message.
    """
    limit = input_limit()
    if num_bytes > limit:
        raise InputSizeError(
            f"expected an input of at most {limit:,} bytes (after decompression), got more: "
            f"{name}; set {VARIABLE} (or --max-input-size of rl4co solve) to a larger size, such "
            "as 8GiB, to read it"
        )


def read_limited(stream: Readable, name: object) -> bytes:
    """Read a stream to its end, or raise :class:`InputSizeError` as soon as it exceeds the limit.

    Args:
        stream: The input.
        name: The input, for the message.
    """
    content = io.BytesIO()
    while chunk := stream.read(_CHUNK):
        content.write(chunk)
        check_input_size(content.tell(), name)
    return content.getvalue()
