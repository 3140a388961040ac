"""Results on disk: one line of JSON for each (method, instance), written as soon as it is ready.

Each line carries a key, a digest of everything that matters to the result: the method with its
settings (of a model, its weights), and the content of the instance. A run computes only results
whose keys are missing, and leaves those of other settings alone. Another digest, of the line
itself, shows whether it was changed; lines of earlier versions have none.
"""

from __future__ import annotations

import dataclasses
import json
import os

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.data.digest import sha256

FILE = "results.jsonl"
_FORMAT = {"format": "rl4co-benchmark-1"}
_DIGEST = "sha256"


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of one method on one instance.

    Attributes:
        key: Digest of method and instance.
        method: Name of the method, for human readers of the file.
        instance: Name of the instance, likewise.
        value: Value of the solution in the units of the instance; None if there is none.
        seconds: Time per instance.
        incumbents: Pairs of time and value, each better than the one before.
        solution: Routes, schedule, or actions, in plain lists.
        error: Why there is no value.
    """

    key: str
    method: str
    instance: str
    value: float | None = None
    seconds: float | None = None
    incumbents: tuple[tuple[float, float], ...] = ()
    solution: list[Any] | None = None
    error: str | None = None


class ResultStore:
    """The results in a folder; use :func:`open_store`."""

    def __init__(self, path: Path, file: IO[bytes], results: dict[str, Result]) -> None:
        self.path, self.results = path, results
        self._file = file

    def add(self, results: Iterable[Result]) -> None:
        """Appends results; they are on disk when this returns."""
        new = list(results)
        records = [dataclasses.asdict(result) for result in new]
        lines = [
            json.dumps({**record, _DIGEST: _digest(record)}, allow_nan=False) for record in records
        ]
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.results.update((result.key, result) for result in new)


@contextmanager
def open_store(folder: str | os.PathLike[str]) -> Iterator[ResultStore]:
    """The store in a folder, which is created and locked against other processes.

    Raises:
        ConfigError: Another benchmark is writing there.
        FileFormatError: The file has another format or is damaged.
    """
    path = Path(folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        _lock(file, path)
        file.seek(0)
        content = file.read()
        # A process that was killed while writing leaves half a line behind.
        complete = content[: content.rfind(b"\n") + 1]
        results = _parse(path, complete)
        file.truncate(len(complete))
        if not complete:
            file.write(json.dumps(_FORMAT).encode() + b"\n")
            file.flush()
        yield ResultStore(path, file, results)


def _parse(path: Path, content: bytes) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            record = json.loads(line)
            if number == 1:
                if record != _FORMAT:
                    raise ValueError("another format")
                continue
            if record.pop(_DIGEST, None) not in (None, _digest(record)):
                raise ValueError("its digest differs, so it was changed after it was written")
            record["incumbents"] = tuple((time, value) for time, value in record["incumbents"])
            result = Result(**record)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                f"{path}, line {number}: expected a result of a benchmark, got {line[:60]!r} "
                f"({error}); remove the line, or use another folder"
            ) from error
        results[result.key] = result
    return results


def _digest(record: Mapping[str, Any]) -> str:
    return sha256([json.dumps(record, sort_keys=True).encode()])


def _lock(file: IO[bytes], path: Path) -> None:
    """Locks the file against other processes; the system unlocks it when this process ends."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"expected a folder of which no benchmark is running, got {path.parent}; wait for the "
            "other one, or use another folder"
        ) from error
