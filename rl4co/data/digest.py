"""Digests that tell a damaged file from a sound one.

Checkpoints are zip archives (that is what `torch.save` writes), and torch does not compare their
checksums when it reads them. Their digest is the archive's comment: a place that every reader
skips, and that moves with the file.
"""

from __future__ import annotations

import hashlib
import io
import os

from collections.abc import Iterable
from typing import IO

from rl4co.core.errors import FileFormatError

#: First bytes of an archive, and of its last record, which ends with the length and the comment.
_ARCHIVE, _LAST_RECORD = b"PK\x03\x04", b"PK\x05\x06"
_LAST_RECORD_SIZE = 22
_NO_COMMENT = b"\0\0"
_MARK = b"rl4co sha256 "
#: Size of the comment with its length in front.
_COMMENT_SIZE = 2 + len(_MARK) + 64
_CHUNK = 2**20


def sha256(parts: Iterable[bytes]) -> str:
    """Digest of some bytes, one part after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def add_digest(archive: bytes) -> bytes:
    """A zip archive without a comment, with its digest as comment; others are left as they are."""
    if not _has_no_comment(io.BytesIO(archive)):
        return archive
    return archive[:-2] + _comment_of(sha256([archive]))


def check_digest(file: IO[bytes], name: object) -> None:
    """Raise :class:`FileFormatError` if an archive differs from the one that was written.

    Archives without a comment (of earlier versions or other programs) and files that are no
    archives pass: there is nothing to compare with.

    Args:
        file: The archive; its position is set to the beginning.
        name: Its name, for the message.
    """
    file.seek(0)
    is_archive = file.read(len(_ARCHIVE)) == _ARCHIVE
    if is_archive and not _has_no_comment(file) and not _is_sound(file):
        raise FileFormatError(
            f"expected {name} as it was written, got a file with other bytes (its digest differs): "
            "it is damaged; use a copy of it, or an older checkpoint of the same run"
        )
    file.seek(0)


def _comment_of(digest: str) -> bytes:
    comment = _MARK + digest.encode()
    return len(comment).to_bytes(2, "little") + comment


def _has_no_comment(file: IO[bytes]) -> bool:
    """Whether an archive ends as torch writes it."""
    size = file.seek(0, os.SEEK_END)
    if size < _LAST_RECORD_SIZE:
        return False
    file.seek(size - _LAST_RECORD_SIZE)
    record = file.read(_LAST_RECORD_SIZE)
    return record.startswith(_LAST_RECORD) and record.endswith(_NO_COMMENT)


def _is_sound(file: IO[bytes]) -> bool:
    """Whether the comment of an archive is the digest of the bytes before it."""
    size = file.seek(0, os.SEEK_END) - _COMMENT_SIZE
    if size < _LAST_RECORD_SIZE:
        return False
    file.seek(0)
    digest = hashlib.sha256()
    for begin in range(0, size, _CHUNK):
        digest.update(file.read(min(_CHUNK, size - begin)))
    digest.update(_NO_COMMENT)
    return file.read() == _comment_of(digest.hexdigest())
