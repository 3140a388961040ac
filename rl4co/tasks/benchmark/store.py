"""Results on disk: lines of JSON, written as soon as they are ready.

A line has the result of one method on one instance with its solution, or, in a compact store, the
values of one method on a batch of instances. Each line carries a key, a digest of everything that
matters to the result: the method with its settings (of a model, its weights; of a trained one, its
recipe), and the content of the instances. A run computes only results whose keys are missing, and
leaves those of other settings alone. Another digest, of the line itself, shows whether it was
changed; lines of earlier versions have none.
"""

from __future__ import annotations

import dataclasses
import json
import os

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.data.digest import sha256

FILE = "results.jsonl"
#: All files of results in a folder: one for each process that writes.
FILES = "results*.jsonl"
_FORMAT = {"format": "rl4co-benchmark-2"}
#: Compact lines are new in the second format.
_FORMATS = ({"format": "rl4co-benchmark-1"}, _FORMAT)
_DIGEST = "sha256"
#: Digits of values and times in compact lines.
_DIGITS = 9


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


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """Results of one method on a batch of instances, without solutions.

    Attributes:
        key: Digest of the keys of all results.
        method: Name of the method, for human readers of the file.
        values: Values in the units of the instances; None where there is none.
        seconds: Time per instance: one number if it is the same for all.
        incumbents: Trajectories with more than one point, by position in the batch.
        errors: Why there is no value, by position in the batch.
        facts: What produced the results: `recipe`, `weights`, `version`.
    """

    key: str
    method: str
    values: list[float | None]
    seconds: float | list[float | None] | None
    incumbents: Mapping[str, list[tuple[float, float]]]
    errors: Mapping[str, str]
    facts: Mapping[str, str]

    @classmethod
    def of(cls, results: Sequence[Result], facts: Mapping[str, str]) -> BatchResult:
        """The compact form of results."""
        seconds = [_rounded(result.seconds) for result in results]
        return cls(
            key=batch_key([result.key for result in results]),
            method=results[0].method,
            values=[_rounded(result.value) for result in results],
            seconds=seconds[0] if len(set(seconds)) == 1 else seconds,
            incumbents={
                str(index): [(_rounded(time) or 0.0, _rounded(v) or 0.0) for time, v in points]
                for index, points in enumerate(result.incumbents for result in results)
                if len(points) > 1
            },
            errors={str(i): each.error for i, each in enumerate(results) if each.error is not None},
            facts=facts,
        )

    def expand(self, keys: Sequence[str]) -> list[Result]:
        """One result for each instance."""
        same = not isinstance(self.seconds, list)
        results = []
        for index, (key, value) in enumerate(zip(keys, self.values, strict=True)):
            seconds = self.seconds if same else self.seconds[index]  # type: ignore[index]
            points = [] if value is None or seconds is None else [(seconds, value)]
            points = [(t, v) for t, v in self.incumbents.get(str(index), points)]
            error = self.errors.get(str(index))
            results.append(
                Result(key, self.method, str(index), value, seconds, tuple(points), None, error)  # type: ignore[arg-type]
            )
        return results


class ResultStore:
    """The results in a folder; use :func:`open_store`.

    Args:
        path: The file to which results are appended.
        file: The same, open.
        lines: Results and batches of results in all files of the folder.
        compact: Whether to store batches without solutions.
    """

    def __init__(
        self,
        path: Path,
        file: IO[bytes],
        lines: Iterable[Result | BatchResult],
        compact: bool = False,
    ) -> None:
        self.path, self.compact = path, compact
        self.results: dict[str, Result] = {}
        self.batches: dict[str, list[BatchResult]] = {}
        self._file = file
        self._keep(lines)

    def add(self, results: Iterable[Result], facts: Mapping[str, str] | None = None) -> None:
        """Appends the results of a batch; they are on disk when this returns."""
        new: list[Result | BatchResult] = list(results)
        if self.compact:
            new = [BatchResult.of([each for each in new if isinstance(each, Result)], facts or {})]
        self.append(new)

    def append(self, lines: Sequence[Result | BatchResult]) -> None:
        """Appends lines; they are on disk when this returns."""
        self._file.write(b"".join(map(as_line, lines)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._keep(lines)

    def find(self, keys: Sequence[str]) -> list[Result] | None:
        """The results of a batch, the last ones that were stored; None if any is missing."""
        if batch := self.batches.get(batch_key(keys)):
            return batch[-1].expand(keys)
        results = [self.results[key] for key in keys if key in self.results]
        return results if len(results) == len(keys) else None

    def facts(self, keys: Sequence[str]) -> Mapping[str, str]:
        """What produced the results of a batch, as far as it is stored."""
        batch = self.batches.get(batch_key(keys))
        return batch[-1].facts if batch else {}

    def settle_weights(self) -> list[str]:
        """Keeps results of one set of weights for each recipe: those with most batches.

        Two machines may train a recipe to slightly different weights, whose results are not mixed.

        Returns:
            A note for each recipe that has other results.
        """
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for batch in (each for lines in self.batches.values() for each in lines):
            if "recipe" in batch.facts:
                counts[batch.facts["recipe"]][batch.facts["weights"]] += 1
        kept = {recipe: of_recipe.most_common(1)[0][0] for recipe, of_recipe in counts.items()}
        self.batches = {
            key: remaining
            for key, lines in self.batches.items()
            if (remaining := [b for b in lines if kept.get(b.facts.get("recipe", "")) in
                              (None, b.facts.get("weights"))])
        }  # fmt: skip
        return [
            f"recipe {recipe[:12]}: {sum(of.values()) - of[kept[recipe]]} batches of other weights "
            f"than {kept[recipe][:12]} are left out"
            for recipe, of in counts.items()
            if len(of) > 1
        ]

    def _keep(self, lines: Iterable[Result | BatchResult]) -> None:
        for line in lines:
            if isinstance(line, Result):
                self.results[line.key] = line
            else:
                self.batches.setdefault(line.key, []).append(line)


@contextmanager
def open_store(
    folder: str | os.PathLike[str], name: str = FILE, compact: bool = False
) -> Iterator[ResultStore]:
    """The store in a folder, which is created.

    Args:
        folder: The folder; results in all of its files are read.
        name: The file to write, which is locked against other processes.
        compact: Whether to store batches without solutions.

    Raises:
        ConfigError: Another benchmark is writing there.
        FileFormatError: A file has another format or is damaged.
    """
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    others = [each for each in sorted(path.parent.glob(FILES)) if each != path]
    with path.open("a+b") as file:
        lock(
            file,
            f"expected a folder of which no benchmark is running, got {path.parent}; wait for the "
            "other one, or use another folder",
        )
        file.seek(0)
        lines = read_lines(path, content := file.read())
        file.truncate(content.rfind(b"\n") + 1)
        if not lines and b"\n" not in content:
            file.write(json.dumps(_FORMAT).encode() + b"\n")
            file.flush()
        read = [line for each in others for line in read_lines(each, each.read_bytes())]
        yield ResultStore(path, file, [*read, *lines], compact)


def as_line(result: Result | BatchResult) -> bytes:
    """A result as a line of JSON with its digest."""
    record = json.loads(json.dumps(dataclasses.asdict(result), allow_nan=False))
    return json.dumps({**record, _DIGEST: _digest(record)}).encode() + b"\n"


def batch_key(keys: Sequence[str]) -> str:
    """Key of a batch: that of its only instance, or a digest of all."""
    return keys[0] if len(keys) == 1 else sha256([key.encode() for key in keys])


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def read_lines(path: Path, content: bytes) -> list[Result | BatchResult]:
    """The results in a file; half a line, which a killed process leaves behind, is left out."""
    results: list[Result | BatchResult] = []
    content = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            record = json.loads(line)
            if number == 1:
                if record not in _FORMATS:
                    raise ValueError("another format")
                continue
            if record.pop(_DIGEST, None) not in (None, _digest(record)):
                raise ValueError("its digest differs, so it was changed after it was written")
            if "values" in record:
                results.append(BatchResult(**record))
                continue
            record["incumbents"] = tuple((time, value) for time, value in record["incumbents"])
            results.append(Result(**record))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                f"{path}, line {number}: expected a result of a benchmark, got {line[:60]!r} "
                f"({error}); remove the line, or use another folder"
            ) from error
    return results


def _digest(record: Mapping[str, Any]) -> str:
    return sha256([json.dumps(record, sort_keys=True).encode()])


def lock(file: IO[bytes], message: str) -> None:
    """Locks a file against other processes; the system unlocks it when this process ends.

    Raises:
        ConfigError: Another process has it; the message says so.
    """
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(message) from error
