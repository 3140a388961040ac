"""Trained models by name: those in this package, of other packages and of the user.

A collection is a folder with one folder per model (`config.json`, `model.safetensors`, `card.json`,
`CARD.md`) and perhaps an `index.json` with sizes and digests. Collections are, in this order,
`$RL4CO_MODELS`, packages that entry points of the group `rl4co.pretrained` name, and this package.
Importing this module loads nothing heavy; nothing here downloads anything.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import warnings

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "card.json"
TEXT_FILE = "CARD.md"
INDEX_FILE = "index.json"
#: Name that selects a model by problem and size.
AUTO = "auto"
#: Environment variable with a folder of model folders.
VARIABLE = "RL4CO_MODELS"
#: Entry points whose value is a package with model folders.
GROUP = "rl4co.pretrained"

INDEX_FORMAT = "rl4co-models-1"
#: `method-problemSIZE[-tag]`
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


class FileRecord(NamedTuple):
    """What an index says about a file."""

    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A saved model: a folder written by `save_pretrained`, or a checkpoint.

    Args:
        path: The folder or checkpoint.
        name: Name of a pretrained model; None for other folders and checkpoints.
        origin: Where its name is from, for messages.
        files: Names of its files and what the index says about them; {} without an index.
    """

    path: Path
    name: str | None = None
    origin: str = ""
    files: Mapping[str, FileRecord] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return self.name or str(self.path)

    def read(self, file: str) -> bytes:
        """The bytes of a file; raises if they are not those of the index.

        Args:
            file: Name of the file in the folder.
        """
        path = self.path / file
        if not path.is_file():
            raise FileNotFoundError(
                f"expected {file} in {self.path}, got none; was it written by save_pretrained?"
            )
        size, record = path.stat().st_size, self.files.get(file)
        if record is None:
            from rl4co.data.size_limit import check_input_size

            check_input_size(size, path)
            return path.read_bytes()
        if size != record.bytes:
            raise self._exchanged(path, f"{record.bytes} bytes", f"{size}")
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != record.sha256:
            raise self._exchanged(path, f"digest {record.sha256}", digest)
        return content

    def verify(self) -> None:
        """Raises if a file that the index lists is not as it was released."""
        for file in self.files:
            self.read(file)

    def _exchanged(self, path: Path, expected: str, actual: str) -> FileFormatError:
        return FileFormatError(
            f"expected {expected} in {path}, as {INDEX_FILE} says, got {actual}; the file is "
            f"damaged or exchanged: install {self.origin} again"
        )

    def card(self) -> dict[str, Any]:
        """The content of `card.json`; {} if there is none."""
        path = self.path / CARD_FILE
        return _read_json(path) if path.is_file() else {}

    @property
    def problem(self) -> str | None:
        """Name of the environment that the card or the configuration names."""
        config = _read_json(self.path / CONFIG_FILE)
        name = self.card().get("problem") or config.get("arguments", {}).get("env_name")
        return name if isinstance(name, str) else None


def find_model(text: str | os.PathLike[str] | ModelSource) -> ModelSource:
    """The model that a path or a name means.

    An existing folder with `config.json` or a checkpoint file comes first. A folder or file that
    has the name of a pretrained model triggers a warning.

    Args:
        text: Folder, checkpoint or name (see :func:`pretrained_models`).

    Raises:
        UnknownNameError: There is neither; the message has the nearest name.
        FileNotFoundError: The text is a path, and there is nothing.
    """
    if isinstance(text, ModelSource):
        return text
    path, name = Path(text), os.fspath(text)
    model = pretrained_models().get(name) if _NAME.fullmatch(name) else None
    if path.is_file() or (path / CONFIG_FILE).is_file():
        if model is not None:
            warnings.warn(
                f"{path.absolute()} has the name of a pretrained model and is used instead of it; "
                f"rename it to get {name!r} of {model.origin}",
                stacklevel=2,
            )
        return ModelSource(path)
    if model is not None:
        if path.exists():
            warnings.warn(
                f"{path.absolute()} has the name of a pretrained model, but no {CONFIG_FILE}; "
                f"using {name!r} of {model.origin}",
                stacklevel=2,
            )
        return model
    if path.is_dir():
        return ModelSource(path)  # whose reader says what is missing
    if path.name != name or path.suffix:
        raise FileNotFoundError(
            f"expected a checkpoint, a folder with {CONFIG_FILE} (see save_pretrained) or the name "
            f"of a pretrained model, got no such path: {name}"
        )
    raise UnknownNameError("pretrained model, folder or checkpoint", name, pretrained_models())


def pretrained_models() -> dict[str, ModelSource]:
    """All pretrained models by name; the first collection that has a name determines it."""
    models: dict[str, ModelSource] = {}
    for folder, origin in _collections():
        for name, source in read_collection(folder, origin).items():
            models.setdefault(name, source)
    return dict(sorted(models.items()))


def nearest_model(
    problem: str, size: int | None, includes: Callable[[str, str], bool] | None = None
) -> ModelSource:
    """The pretrained model for instances of a problem and size, as the cards say.

    Models of the problem come first, then those of more general problems; among them, the one
    trained on the nearest size. Only models that construct solutions are considered.

    Args:
        problem: Name of the environment.
        size: Number of nodes or operations; None: any.
        includes: Whether a problem (first argument) includes the instances of another one.
    """
    sources = pretrained_models().values()
    usable = [source for source in sources if source.card().get("kind", "construct") == "construct"]
    exact = [source for source in usable if source.problem == problem]
    general = [] if includes is None else [
        source for source in usable if source.problem and includes(source.problem, problem)
    ]  # fmt: skip
    candidates = exact or general
    if not candidates:
        known = sorted({str(source.problem) for source in usable})
        raise UnknownNameError("pretrained model for the problem", problem, known)
    return min(candidates, key=lambda source: _distance(source, size))


def _distance(source: ModelSource, size: int | None) -> float:
    """Ratio of two sizes, as a logarithm; models without a size are the farthest."""
    trained = source.card().get("size")
    if not isinstance(trained, int | float) or trained <= 0:
        return math.inf
    return 0.0 if size is None else abs(math.log(max(size, 1) / trained))


# ---------------------------------------------------------------- collections


def check_name(name: str) -> str:
    """The name; raises unless it is `method-problemSIZE[-tag]`, in lower case."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"expected a name such as pomo-tsp50 (method-problemSIZE, lower case), got {name!r}"
        )
    return name


def read_collection(folder: Path, origin: str) -> dict[str, ModelSource]:
    """The models in a folder: those of its index, or every folder with a configuration.

    Args:
        folder: The collection.
        origin: What it is called in messages.
    """
    if not (folder / INDEX_FILE).is_file():
        paths = sorted(path for path in folder.iterdir() if (path / CONFIG_FILE).is_file())
        return {path.name: ModelSource(path, path.name, origin) for path in paths}
    models: dict[str, ModelSource] = {}
    rows = read_index(folder)
    for name, row in rows.items():
        target = row if isinstance(row, str) else name  # an alias names another model
        records = _records(rows.get(target), f"{target!r} in {folder / INDEX_FILE}")
        models[name] = ModelSource(folder / target, name, origin, records)
    return models


def read_index(folder: Path) -> dict[str, Any]:
    """The rows of an `index.json`: name → files with digests, or the name that an alias means."""
    path = folder / INDEX_FILE
    index = _read_json(path)
    rows = index.get("models")
    if index.get("format") != INDEX_FORMAT or not isinstance(rows, dict):
        raise FileFormatError(
            f"expected the models of an index of the format {INDEX_FORMAT!r} in {path}, got "
            f"{index.get('format')!r}; was it written by another version?"
        )
    for name in rows:
        check_name(name)
    return rows


def _records(row: Any, place: str) -> dict[str, FileRecord]:
    """Size and digest of each file in a row of an index."""
    files = row if isinstance(row, dict) else {}
    records = {
        file: FileRecord(entry["sha256"], entry["bytes"])
        for file, entry in files.items()
        if isinstance(entry, dict) and entry.keys() == set(FileRecord._fields)
    }
    if records.keys() != {CONFIG_FILE, WEIGHTS_FILE}:
        raise FileFormatError(
            f"expected sha256 and bytes of {CONFIG_FILE} and {WEIGHTS_FILE} of {place}, got "
            f"{str(row)[:80]}"
        )
    return records


def _collections() -> Iterator[tuple[Path, str]]:
    """Folders of models and what they are called, in the order in which they are searched."""
    if text := os.environ.get(VARIABLE, ""):
        if not Path(text).is_dir():
            raise ConfigError(
                f"expected a folder of models in the environment variable {VARIABLE}, got {text}; "
                "correct or unset it"
            )
        yield Path(text), f"${VARIABLE}"
    for point in entry_points(group=GROUP):
        spec = find_spec(point.value)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(folder), f"the package {point.value}"
    yield Path(__file__).parent, "the package rl4co"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"expected JSON in {path}, got: {error}") from error
    if not isinstance(content, dict):
        raise FileFormatError(f"expected a JSON object in {path}, got a {type(content).__name__}")
    return content
