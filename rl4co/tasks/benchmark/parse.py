"""Reads the specification of a benchmark from files, mappings and short texts.

    methods: [pyvrp:1s, insertion, {name: AM, model: models/am, decode: greedy}]
    instances: [cvrplib/A, {env: cvrp, size: 10, params: {num_loc: 50}}]

Every entry is a mapping or a short text `HEAD:PART:...`. A part is `key=value` or, for solvers, a
time limit; for models, how to decode; for environments, the number of nodes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import types
import typing

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError
from rl4co.core.registry import ENVS, SOLVERS
from rl4co.pretrained import pretrained_models
from rl4co.tasks.benchmark.spec import (
    DECODE_OPTIONS,
    BenchmarkSpec,
    DataSource,
    FileSource,
    GeneratedSource,
    Method,
    ModelMethod,
    PassMark,
    SolverMethod,
    Source,
)
from rl4co.tasks.methods import METHODS

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|m|h|)")
#: Separates the parts of a short text; not the colon of a Windows drive.
_COLON = re.compile(r":(?![\\/])")

#: Limit on the values of a specification.
_MOST_VALUES = 1_000_000

T = TypeVar("T")


def load_spec(path: str | os.PathLike[str]) -> BenchmarkSpec:
    """The specification in a YAML or JSON file; paths in it are relative to the working folder."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"expected a specification, got no such file: {file}")
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix.lower() == ".json" else _read_yaml(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"expected YAML or JSON in {file}, got: {error}") from error
    try:
        return parse_spec(content)
    except (ConfigError, UnknownNameError) as error:
        raise ConfigError(f"{file}: {error}") from error


def parse_spec(content: Any) -> BenchmarkSpec:
    """The specification in plain lists and mappings."""
    values = dict(_mapping(content, "a specification"))
    for key, parse in (("methods", parse_method), ("instances", parse_source)):
        entries = values.get(key)
        if isinstance(entries, str) or not isinstance(entries, Sequence):
            raise ConfigError(f"expected a list under {key!r}, got {_short(entries)}")
        values[key] = tuple(parse(entry) for entry in entries)
    if values.get("time_limit") is not None:
        values["time_limit"] = parse_time(values["time_limit"])
    if values.get("seeds") is not None:
        values["seeds"] = parse_seeds(values["seeds"])
    if values.get("passmark") is not None:
        values["passmark"] = _build(PassMark, _mapping(values["passmark"], "passmark"))
    return _build(BenchmarkSpec, values)


def parse_method(entry: Any) -> Method:
    """A method from a mapping (with `solver` or `model`) or a short text."""
    if isinstance(entry, str):
        values = _method_from_text(entry)
    else:
        values = dict(_mapping(entry, "a method"))
    if ("solver" in values) == ("model" in values):
        raise ConfigError(f"expected a method with `solver` or `model`, got {_short(entry)}")
    if "model" in values:
        values.setdefault("name", f"{Path(values['model']).stem}:{values.get('decode', 'greedy')}")
        return _build(ModelMethod, values)
    if values.get("time_limit") is not None:
        values["time_limit"] = parse_time(values["time_limit"])
    values.setdefault("name", values["solver"])
    return _build(SolverMethod, values)


def parse_source(entry: Any) -> Source:
    """A set of instances from a mapping (with `files`, `data` or `env`) or a short text."""
    if isinstance(entry, str):
        values = _source_from_text(entry)
    else:
        values = dict(_mapping(entry, "a set of instances"))
    if "files" in values:
        files = values["files"]
        values["files"] = (files,) if isinstance(files, str) else tuple(map(str, files))
        values.setdefault("name", Path(values["files"][0]).stem.strip("*.") or "files")
        return _build(FileSource, values)
    if "data" in values:
        values.setdefault("name", Path(values["data"]).stem)
        return _build(DataSource, values)
    if "env" not in values:
        raise ConfigError(f"expected instances with `files`, `data` or `env`, got {_short(entry)}")
    params = _mapping(values.get("params", {}), "params")
    values.setdefault("name", "".join(map(str, (values["env"], *params.values()))))
    return _build(GeneratedSource, values)


def parse_time(value: Any) -> float:
    """Seconds from a number or a text such as `500ms`, `2s` or `1.5m`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _TIME.fullmatch(str(value).strip())
    if not match:
        raise ConfigError(f"expected a time such as 2s, 500ms or 1m, got {_short(value)}")
    return float(match[1]) * _UNITS[match[2]]


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Seeds from a list of them, or from their number: 1, 2, ..."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(range(1, value + 1))
    if isinstance(value, list | tuple) and value and all(type(seed) is int for seed in value):
        return tuple(value)
    raise ConfigError(f"expected a number of seeds, or a list of them, got {value!r}")


# ---------------------------------------------------------------- short texts


def _method_from_text(text: str) -> dict[str, Any]:
    head, plain, settings = _parts(text)
    if head in SOLVERS.names():
        if len(plain) > 1:
            raise ConfigError(f"expected one time limit in {text!r}, got {plain}")
        limit = {"time_limit": plain[0]} if plain else {}
        return {"solver": head, "name": text, **limit, "options": settings}
    if "/" not in head and not Path(head).exists() and head not in pretrained_models():
        known = {*SOLVERS.names(), *pretrained_models()}
        raise UnknownNameError("solver, pretrained model, folder or checkpoint", head, known)
    if len(plain) > 1:
        raise ConfigError(f"expected one way to decode in {text!r}, got {plain}")
    decode = plain[0] if plain else "greedy"
    labels = [f"{key}={value}" for key, value in settings.items()]
    label = ":".join([Path(head).stem, decode, *labels])
    if decode in METHODS:
        names = [key for key in settings if key in DECODE_OPTIONS]
    else:  # options of searches and custom strategies are checked when they run
        fields = {field.name for field in dataclasses.fields(ModelMethod)}
        names = [key for key in settings if key not in fields]
    options = {key: settings.pop(key) for key in names}
    return {"name": label, "model": head, "decode": decode, **settings, "options": options}


def _source_from_text(text: str) -> dict[str, Any]:
    head, plain, settings = _parts(text)
    if head in ENVS.names():
        if len(plain) > 1 or not all(part.isdigit() for part in plain):
            raise ConfigError(f"expected one number of nodes in {text!r}, got {plain}")
        params = {"num_loc": int(plain[0])} if plain else {}
        values: dict[str, Any] = {"env": head}
        for key in ("size", "seed", "name"):
            if key in settings:
                values[key] = settings.pop(key)
        return {**values, "params": {**params, **settings}}
    if plain:
        raise ConfigError(f"expected key=value after the path in {text!r}, got {plain[0]!r}")
    return {"data" if head.endswith(".npz") else "files": head, **settings}


def _parts(text: str) -> tuple[str, list[str], dict[str, Any]]:
    """Head, plain parts and settings of a short text."""
    head, *parts = (part.strip() for part in _COLON.split(text))
    settings: dict[str, Any] = {}
    plain = []
    for part in parts:
        key, equals, value = part.partition("=")
        if equals:
            settings[key] = _value(value)
        else:
            plain.append(part)
    return head, plain, settings


def _value(text: str) -> Any:
    """A number if it is one (YAML takes `1e-3` for a text), else as in YAML."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _read_yaml(text)


def _read_yaml(text: str) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if _count_values(content, {}) > _MOST_VALUES:
        raise ValueError(f"aliases that stand for more than {_MOST_VALUES} values")
    return content


def _count_values(value: Any, counts: dict[int, float]) -> float:
    """How many values a text expands to; values shared by aliases are counted each time.

    Args:
        value: The content of a YAML file.
        counts: Counts of containers by their identity; pass an empty dictionary.
    """
    if not isinstance(value, Mapping | list):
        return 1
    if id(value) not in counts:
        counts[id(value)] = math.inf  # of a container that holds itself
        parts = value.values() if isinstance(value, Mapping) else value
        counts[id(value)] = 1 + sum(_count_values(part, counts) for part in parts)
    return counts[id(value)]


# ---------------------------------------------------------------- records


def _short(value: Any, length: int = 200) -> str:
    """A value as text for a message."""
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}..."


def _mapping(value: Any, meaning: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"expected a mapping as {meaning}, got {_short(value)}")
    return value


def _build(cls: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from a mapping: its keys are fields, its values of their types."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    kinds = typing.get_type_hints(cls)
    for key, value in values.items():
        if key not in fields:
            raise UnknownNameError(f"key of {cls.__name__}", key, fields)
        if not _fits(value, kinds[key]):
            raise ConfigError(
                f"expected {fields[key].type} for {key!r} of {cls.__name__}, got {_short(value)}"
            )
    for key, field in fields.items():
        optional = {field.default, field.default_factory} != {dataclasses.MISSING}
        if not optional and key not in values:
            raise ConfigError(f"expected {key!r} in {cls.__name__}, got {_short(dict(values))}")
    return cls(**values)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type; contents of containers are not checked."""
    if isinstance(kind, types.UnionType):
        return any(_fits(value, each) for each in typing.get_args(kind))
    plain = typing.get_origin(kind) or kind
    if plain is float:
        plain = (int, float)
    return isinstance(value, plain) and not isinstance(value, bool)
