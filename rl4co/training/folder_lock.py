"""A file in the folder of a training that names the process that is running there."""

from __future__ import annotations

import contextlib

from pathlib import Path

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rl4co.core.processes import has_ended, own_mark, process_number

FILE = ".rl4co-training"


class FolderLock:
    """The claim of this process on a folder.

    It does not lock the folder, which may be shared on purpose; the second process gets a warning.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE

    def claim(self) -> None:
        """Warns if another process trains here, and writes the file."""
        other = self._read()
        running = process_number(other) is not None and other != own_mark() and not has_ended(other)
        if running:
            rank_zero_warn(
                f"expected a folder that no other training writes to, got {self.folder}, in which "
                f"process {process_number(other)} is running; they overwrite each other's files: "
                f"stop one or give it another folder (if none is running, remove {self.path})"
            )
        with contextlib.suppress(OSError):  # a missing file is no reason to stop
            self.path.write_text(f"{own_mark()}\n", encoding="utf-8")

    def release(self) -> None:
        """Removes the file, if it is still that of this process."""
        if self._read() == own_mark():
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
