"""The trained models of the service, by name; used in worker processes."""

from __future__ import annotations

import functools

from rl4co.core.errors import UnknownNameError
from rl4co.core.registry import LAYOUTS
from rl4co.pretrained import ModelSource, pretrained_models
from rl4co.serve.schemas import Model
from rl4co.tasks.approaches import ByModel

#: Decodings of all models that construct solutions, and further ones where symmetries of the plane
#: keep costs and every node can be the first.
_DECODINGS = ("greedy", "sampling", "beam_search")
_SYMMETRIC = ("multistart_greedy", "augment_dihedral_8", "multistart_greedy_augment_dihedral_8")
_WITHOUT_SYMMETRY = ("jssp", "fjsp", "flp", "mcp", "atsp")


def list_models() -> list[Model]:
    """All models that construct solutions."""
    models = (describe_model(source) for source in pretrained_models().values())
    return [model for model in models if model is not None]


def describe_model(source: ModelSource) -> Model | None:
    """The description of a model; None if it does not construct solutions."""
    card, problem, text = source.card(), source.problem, source.path / "CARD.md"
    if problem is None or source.name is None or card.get("kind") == "improve":
        return None
    layout = LAYOUTS.get(problem)
    size = card.get("size")
    return Model(
        name=source.name,
        problem=problem,
        problems=[problem, *(layout.includes if layout else ())],
        size=size if isinstance(size, int) else None,
        method=source.name.partition("-")[0],
        decodings=[*_DECODINGS, *(() if problem in _WITHOUT_SYMMETRY else _SYMMETRIC)],
        card=text.read_text(encoding="utf-8") if text.is_file() else "",
    )


def find_named(name: str) -> tuple[ModelSource, Model]:
    """The model called `name`; only names are accepted, no paths."""
    sources = pretrained_models()
    model = describe_model(sources[name]) if name in sources else None
    if model is None:
        raise UnknownNameError("pretrained model", name, [each.name for each in list_models()])
    return sources[name], model


@functools.lru_cache(maxsize=4)
def load_model(name: str) -> ByModel:
    """The model called `name`, ready to solve; the last few stay in memory."""
    return ByModel.load(find_named(name)[0])
