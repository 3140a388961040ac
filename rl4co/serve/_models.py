"""The trained models of the service, by name."""

from __future__ import annotations

import functools
import json
import os

from pathlib import Path
from typing import Any, NamedTuple

from rl4co.core.errors import UnknownNameError
from rl4co.core.registry import LAYOUTS
from rl4co.serve.schemas import Model
from rl4co.tasks.approaches import ByModel

#: Decodings of all models that construct solutions, and further ones where symmetries of the plane
#: keep costs and every node can be the first.
_DECODINGS = ("greedy", "sampling", "beam_search")
_SYMMETRIC = (
    "multistart_greedy",
    "augment_dihedral_8",
    "multistart_greedy_augment_dihedral_8",
)


class NamedModel(NamedTuple):
    """A model and its folder."""

    model: Model
    path: Path


def named_models() -> dict[str, NamedModel]:
    """All models by name."""
    folder = os.environ.get("RL4CO_MODELS", "")
    paths = sorted(Path(folder).glob("*/config.json")) if folder else []
    return {path.parent.name: _model(path.parent.name, path.parent) for path in paths}


def _model(name: str, path: Path) -> NamedModel:
    config = _json(path / "config.json")
    card = _json(path / "card.json") if (path / "card.json").is_file() else {}
    text = path / "CARD.md"
    problem = str(card.get("problem") or config.get("arguments", {}).get("env_name"))
    layout = LAYOUTS.get(problem)
    return NamedModel(
        Model(
            name=name,
            problem=problem,
            problems=[problem, *(layout.includes if layout else ())],
            size=card.get("size"),
            method=str(card.get("method") or name.partition("-")[0]),
            decodings=[
                *_DECODINGS,
                *(_SYMMETRIC if problem not in ("jssp", "fjsp", "flp") else ()),
            ],
            card=text.read_text(encoding="utf-8") if text.is_file() else "",
        ),
        path,
    )


def _json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def find_model(name: str) -> NamedModel:
    """The model called `name`; only names are accepted, no paths."""
    models = named_models()
    if name not in models:
        raise UnknownNameError("pretrained model", name, models)
    return models[name]


@functools.lru_cache(maxsize=4)
def load_model(name: str) -> ByModel:
    """The model called `name`, ready to solve; the last few stay in memory."""
    return ByModel.load(find_model(name).path)
