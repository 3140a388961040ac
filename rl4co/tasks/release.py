"""Turns a checkpoint or policy folder into a pretrained model: float16 weights, card, index."""

from __future__ import annotations

import hashlib
import json
import re

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.core.errors import ConfigError
from rl4co.core.registry import ENVS
from rl4co.data.io import atomic_write
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.generator import Generator
from rl4co.envs.mixed_sizes import MixedSizeGenerator
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.models.policies.pretrained import Precision, load_pretrained
from rl4co.models.rl.checkpointing import RECORD_KEY, read_checkpoint
from rl4co.models.rl.saved_policies import load_policy
from rl4co.pretrained import (
    CARD_FILE,
    CONFIG_FILE,
    INDEX_FILE,
    INDEX_FORMAT,
    WEIGHTS_FILE,
    ModelSource,
    check_name,
    find_model,
    read_collection,
    read_index,
)
from rl4co.tasks.benchmark.recipes import (
    TRAINING,
    compose,
    folder_of,
    read_training,
    recipe_from,
)
from rl4co.tasks.benchmark.spec import Recipe
from rl4co.tasks.cards.check import describe_check, measure_check
from rl4co.tasks.instantiate import instantiate_env

CARD_FORMAT = "rl4co-card-1"
#: Arguments of a training that say nothing about its result.
_NOT_RECORDED = re.compile(r"env|policy|metrics|(val|test)_.*|generate_default_data|dataloader_.*")


def add_model(
    source: str | Path | ModelSource,
    name: str,
    folder: str | Path,
    *,
    generator_params: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    dtype: Precision = "float16",
    replace: bool = False,
) -> ModelSource:
    """Writes `FOLDER/NAME` and its entry in `FOLDER/index.json`; returns the new model.

    The card has what the checkpoint says about its training; `rl4co models card` adds results.

    Args:
        source: Checkpoint or policy folder.
        name: Name of the new model, `method-problemSIZE[-tag]`.
        folder: Collection of models, which is created.
        generator_params: Arguments of the generator of the training instances; None: those of the
            checkpoint or recipe, or the defaults.
        training: Further facts about the training: recipe, hours, commit, ...
        dtype: Precision of the weights in the file.
        replace: Whether to replace a model of this name. Released models keep their weights: give
            a new training a new name.
    """
    place = Path(folder)
    target = place / check_name(name)
    rows = read_index(place) if (place / INDEX_FILE).is_file() else {}
    if (name in rows or target.exists()) and not replace:
        raise ConfigError(
            f"expected a new name, got {name!r}, which is in {place}; use another tag such as "
            f"{name}-v2, or --replace if the model is not released"
        )
    origin = find_model(source)
    policy, env = load_policy(origin)
    env = env or _env_of_recipe(origin)
    if env is None or generator_params is not None:
        settings = getattr(policy, "env_params", {})
        env = ENVS[policy.env_name](generator_params=dict(generator_params or {}), **settings)
    card = describe_model(policy, env, name, dtype)
    card["training"] = {**_training(origin), **(training or {})}
    policy.save_pretrained(target, dtype)
    check = describe_check(card)
    before, after = (measure_check(each, check) for each in (policy, load_pretrained(target)))
    card["check"] = {**check, "value": after}
    card["precision_change"] = 100 * (after - before) / abs(before)  # percent
    write_card(target, card)
    rows[name] = {file: _record(target / file) for file in (CONFIG_FILE, WEIGHTS_FILE)}
    _write_json(place / INDEX_FILE, {"format": INDEX_FORMAT, "models": dict(sorted(rows.items()))})
    return read_collection(place, str(place))[name]


def describe_model(policy: Any, env: RL4COEnvBase, name: str, dtype: str) -> dict[str, Any]:
    """What a card says about a model before anything is measured."""
    is_improvement = isinstance(policy, ImprovementPolicy)
    problem = policy.environment(env).constructive_env if is_improvement else env
    return {
        "format": CARD_FORMAT,
        "name": name,
        "problem": problem.name,
        "size": trained_size(env),
        "kind": "improve"
        if is_improvement
        else "ants"
        if hasattr(policy, "n_ants")
        else "construct",
        "policy": type(policy).__name__,
        "parameters": sum(parameter.numel() for parameter in policy.parameters()),
        "precision": dtype,
        "generator": _plain(_settings(env.generator)),
        "licence": "MIT",
    }


def trained_size(env: RL4COEnvBase) -> int | None:
    """Number of nodes, operations or items of the instances that the generator draws."""
    generator: Any = env.generator
    if isinstance(generator, MixedSizeGenerator):
        return generator.max_size
    if hasattr(generator, "num_machines"):
        return int(generator.num_jobs * generator.num_machines)
    argument = type(generator).size_name()
    size = getattr(generator, argument, None) if argument else None
    return size if isinstance(size, int) else None


def _settings(generator: Generator) -> dict[str, Any]:
    """Arguments of a generator; of one with many sizes, those of the one inside it as well."""
    settings = dict(generator._init_arguments)
    inner = settings.pop("generator", None)
    return {**_settings(inner), **settings} if isinstance(inner, Generator) else settings


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    """Writes `card.json`."""
    _write_json(folder / CARD_FILE, card)


def _training(source: ModelSource) -> dict[str, Any]:
    """What a checkpoint, the folder of a recipe or a card says about a training."""
    if (source.path / TRAINING).is_file():
        return _recipe_facts(source.path)
    if not source.path.is_file():
        return dict(source.card().get("training", {}))
    checkpoint = read_checkpoint(source.path)
    record = checkpoint[RECORD_KEY]
    arguments = {
        key: value["value"]
        for key, value in record["arguments"].items()
        if not _NOT_RECORDED.fullmatch(key) and value.get("value") is not None
    }
    return {
        "algorithm": record["class"],
        "arguments": _plain(arguments),
        "steps": checkpoint["global_step"],
        "seed": checkpoint.get("run_seed"),
    }


def _env_of_recipe(source: ModelSource) -> RL4COEnvBase | None:
    """The environment that a recipe trained on, if it wrote the folder."""
    if not (source.path / TRAINING).is_file():
        return None
    return instantiate_env(compose(_recipe(source.path)).env)


def _recipe(folder: Path) -> Recipe:
    return recipe_from(read_training(folder)["recipe"])


def _recipe_facts(folder: Path) -> dict[str, Any]:
    """Recipe, steps, seed and hours of a training of `rl4co reproduce`, and of its start."""
    record = read_training(folder)
    recipe = _recipe(folder)
    changes = {key: value for key, value in record["recipe"].items() if value is not None}
    facts = {"recipe": changes, "key": record["key"], "steps": record["steps"], "seed": recipe.seed}
    hours = record["seconds"] / 3600
    if recipe.start is not None:
        root = folder.parent.parent
        hours += _recipe_facts(folder_of(recipe.start, root))["hours"]
    return {**facts, "hours": round(hours, 2), "machine": record["machine"]}


def _plain(value: Any) -> Any:
    """A value as JSON can hold it; other objects as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _record(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
