"""What a Lightning checkpoint holds besides tensors, and how a model is rebuilt from it.

A checkpoint must open with `weights_only=True`, so it describes the model in plain values: the name
of its class and its constructor arguments, with an environment given by name and generator
parameters, and a policy by class name and arguments. An argument that cannot be described so (a
network of one's own, a function) is listed as missing, and loading asks for it.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import re

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import lightning as L
import torch

from torch import nn

from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError
from rl4co.core.lazy import exported_names, resolve
from rl4co.core.registry import ENVS
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.generator import Generator
from rl4co.models.policies.pretrained import PretrainedMixin

#: Key of the description in a checkpoint, and its version.
RECORD_KEY = "rl4co"
_FORMAT = 1
_ZOO = "rl4co.models.zoo"

#: What torch raises for files that are cut off, of another kind, or hold Python objects.
_READ_ERRORS = (pickle.UnpicklingError, RuntimeError, EOFError, LookupError, ValueError, OSError)

M = TypeVar("M", bound=L.LightningModule)
MapLocation = Callable[[Any, str], Any] | torch.device | str | dict[str, str] | None


# ---------------------------------------------------------------- reading


def read_checkpoint(
    source: str | Path | IO[bytes], map_location: MapLocation = "cpu", weights_only: bool = True
) -> dict[str, Any]:
    """The content of a Lightning checkpoint.

    Args:
        source: File, or an open binary stream.
        map_location: Where to put tensors, see `torch.load`.
        weights_only: Refuse anything but tensors and plain values. False runs code from the file.
    """
    if isinstance(source, str | Path) and not Path(source).is_file():
        raise FileNotFoundError(
            f"expected a checkpoint at {source}, got no file; check the path (a run writes its "
            "checkpoints to the folder of its ModelCheckpoint callback)"
        )
    try:
        content = torch.load(source, map_location=map_location, weights_only=weights_only)
    except PermissionError:
        raise
    except _READ_ERRORS as error:
        # torch's words for an object of a class that is not on its list of harmless ones.
        pattern = r"Unsupported (?:global|class):?\s+(?:GLOBAL\s+)?(\S+)"
        if found := re.search(pattern, str(error)):
            raise FileFormatError(
                f"expected tensors and plain values in {source}, got a {found[1]}, which is not "
                "loaded because that could run code from the file; if you trust the file, pass "
                "weights_only=False to fit, validate or test"
            ) from error
        raise FileFormatError(
            f"expected a Lightning checkpoint in {source}, got a truncated or foreign file; use an "
            f"older checkpoint of the same run ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    keys = list(content) if isinstance(content, dict) else [type(content).__name__]
    if not {"state_dict", "pytorch-lightning_version"} <= set(keys):
        raise FileFormatError(
            f"expected a Lightning checkpoint in {source}, got a file with {keys[:5]}; for weights "
            "alone use load_state_dict, for a folder of save_pretrained use from_pretrained"
        )
    return content


def check_weights(model: nn.Module, weights: Mapping[str, Any], name: str) -> None:
    """Raises unless the weights of a checkpoint fit the model.

    Args:
        model: The model to load them into.
        weights: The checkpoint's state dict.
        name: Class recorded in the checkpoint, for the message.
    """
    expected = model.state_dict()
    wrong = [
        *(f"{key} is missing" for key in expected.keys() - weights.keys()),
        *(f"{key} is unknown" for key in weights.keys() - expected.keys()),
        *(
            f"{key} is {_shape(weights[key])} instead of {_shape(expected[key])}"
            for key in expected.keys() & weights.keys()
            if _shape(weights[key]) != _shape(expected[key])
        ),
    ]
    if wrong:
        more = f"; {len(wrong) - 4} more" if len(wrong) > 4 else ""
        shown = "; ".join(sorted(wrong)[:4]) + more
        raise FileFormatError(
            f"expected a checkpoint of this {type(model).__name__}, got one of {name} with other "
            f"weights ({shown}); build the model with the arguments of the interrupted run, or use "
            "load_from_checkpoint"
        )


def _shape(value: Any) -> list[int] | None:
    """None for what is no tensor (modules may keep plain values in their state as well)."""
    return list(value.shape) if isinstance(value, torch.Tensor) else None


# ---------------------------------------------------------------- describing


class NotPlainError(TypeError):
    """A value that cannot be written as plain data (internal)."""


def plain(value: Any) -> Any:
    """The value as nested dictionaries, lists, strings, numbers, booleans and None.

    Mappings and sequences of any kind (those of a configuration library, say) are converted.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    for kind in (bool, int, float, str):
        if isinstance(value, kind):  # a subclass: numpy's floats, string enumerations
            return kind(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise NotPlainError("a mapping with keys that are not strings")
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(item) for item in value]
    raise NotPlainError(type(value).__qualname__)


def bind_arguments(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor call by name, `**kwargs` flattened."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    bound = signature.bind_partial(None, *args, **kwargs).arguments
    named = dict(list(bound.items())[1:])
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(named.pop(parameter.name, {}))
    return named


def describe_model(model: nn.Module, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The plain record of a model: class name and constructor arguments."""
    return {
        "format": _FORMAT,
        "class": type(model).__name__,
        "arguments": {name: _describe(value) for name, value in arguments.items()},
    }


def _describe(value: Any) -> dict[str, Any]:
    """`{"value": ...}`, `{"env": ...}`, `{"policy": ...}` or `{"missing": what}`."""
    try:
        if isinstance(value, RL4COEnvBase):
            return {"env": describe_env(value)}
        if isinstance(value, PretrainedMixin):
            return {"policy": _describe_policy(value)}
        return {"value": plain(value)}
    except NotPlainError as reason:
        return {"missing": str(reason)}


def _describe_policy(policy: PretrainedMixin) -> dict[str, Any]:
    name = type(policy).__name__
    known = exported_names(_ZOO)
    if name not in known or resolve(known[name], name) is not type(policy):
        raise NotPlainError(f"{name}, which is not a policy of the library")
    arguments = {}
    for key, value in policy._init_arguments.items():
        try:
            arguments[key] = plain(value)
        except NotPlainError as reason:
            raise NotPlainError(f"{name} with {key}={reason}") from None
    return {"class": name, "arguments": arguments}


#: Settings of environments that are kept as attributes of the same name.
_ENV_SETTINGS = ("data_dir", "check_solution", "check_instance", "check_action", "seed")


def describe_env(env: RL4COEnvBase) -> dict[str, Any]:
    """The plain record of an environment: name, generator parameters and settings."""
    cls = type(env)
    if _env_class(env.name, cls.__name__) is not cls:
        raise NotPlainError(f"a {cls.__name__}, which the library does not know by name")
    settings = {name: getattr(env, name) for name in _ENV_SETTINGS}
    # What the problem's own constructor adds to the base class, kept under the same name.
    own = set(_parameters(cls)) - set(_parameters(RL4COEnvBase)) - {"kwargs"}
    settings |= {name: getattr(env, name) for name in own if hasattr(env, name)}
    files = {}
    for phase, table in env.data_files.items():
        files[phase] = {name: str(path) for name, path in table.items()}
    return {
        "name": env.name,
        "class": cls.__name__,
        "generator_params": _generator_params(env.generator),
        "settings": plain(settings),
        "data_files": files,
    }


def _env_class(name: str, class_name: str) -> Any:
    """The environment registered as `name`, or exported as `class_name`; None if there is none."""
    for package in ENVS.packages:
        exported = exported_names(package)
        if class_name in exported:
            return resolve(exported[class_name], class_name)
    return ENVS.get(name)


@functools.lru_cache(maxsize=64)
def _parameters(cls: type) -> tuple[str, ...]:
    return tuple(inspect.signature(cls.__init__).parameters)[1:]  # type: ignore[misc]


def _generator_params(generator: Generator) -> dict[str, Any]:
    """Constructor arguments of a generator, read from its attributes and verified.

    A generator keeps its parameters as attributes of the same name, but not all of them (the name
    of a distribution becomes a sampler). So the reading counts only if a generator built from it
    draws the same instances.
    """
    cls = type(generator)
    params = {}
    for name in _parameters(cls):
        if hasattr(generator, name):
            try:
                params[name] = plain(getattr(generator, name))
            except NotPlainError:
                continue  # a sampler; if it is not the default one, the comparison below fails
    try:
        same = _draws(cls(**params)) == _draws(generator)
    except Exception:  # a generator of one's own may fail in any way; then it is not plain either
        same = False
    if not same:
        raise NotPlainError(f"an environment whose {cls.__name__} has custom distributions")
    return params


def _draws(generator: Generator) -> list[Any]:
    instances = generator(2, rng=derive_generator("checkpoint"))
    return [(key, value.tolist()) for key, value in sorted(instances.items())]


# ---------------------------------------------------------------- rebuilding


def load_model(
    cls: type[M],
    source: str | Path | IO[bytes],
    given: Mapping[str, Any],
    map_location: MapLocation = "cpu",
    strict: bool = True,
) -> M:
    """The model described in a checkpoint, with its weights, in evaluation mode.

    Args:
        cls: Class of the model, or a base class of it.
        source: The checkpoint.
        given: Constructor arguments that replace the recorded ones.
        map_location: Device of the model, see `torch.load`.
        strict: Whether the weights must fit exactly.
    """
    checkpoint = read_checkpoint(source, map_location)
    record = checkpoint.get(RECORD_KEY)
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise FileFormatError(
            f"expected the description of a model (format {_FORMAT}) in {source}, got none; build "
            "the model yourself and use load_state_dict with the checkpoint's 'state_dict'"
        )
    built = _model_class(cls, record["class"], source)
    model = built(**_rebuild_arguments(record, given, source))
    model.strict_loading = strict
    model.on_load_checkpoint(checkpoint)
    model.load_state_dict(checkpoint["state_dict"], strict=strict)
    if isinstance(map_location, str | torch.device):
        model.to(map_location)
    return model.eval()


def _rebuild_arguments(
    record: Mapping[str, Any], given: Mapping[str, Any], source: Any
) -> dict[str, Any]:
    """Constructor arguments from a record; what is given wins over what is recorded."""
    arguments = dict(given)
    missing = {}
    for name, entry in record["arguments"].items():
        # An object that is given needs no arguments to build it from.
        if name in given or name.removesuffix("_kwargs") in given:
            continue
        if "missing" in entry:
            missing[name] = entry["missing"]
        elif "env" in entry:
            arguments[name] = _rebuild_env(entry["env"])
        elif "policy" in entry:
            policy = entry["policy"]
            arguments[name] = resolve(exported_names(_ZOO)[policy["class"]], policy["class"])(
                **policy["arguments"]
            )
        else:
            arguments[name] = entry["value"]
    if missing:
        wanted = ", ".join(f"{name}=..." for name in missing)
        reasons = "; ".join(f"{name} was {what}" for name, what in missing.items())
        raise ConfigError(
            f"expected plain constructor arguments in {source} to rebuild {record['class']}, got "
            f"others ({reasons}); pass them: load_from_checkpoint(path, {wanted})"
        )
    return arguments


def _rebuild_env(record: Mapping[str, Any]) -> RL4COEnvBase:
    cls = _env_class(record["name"], record["class"])
    if cls is None:
        raise UnknownNameError("environment", record["name"], ENVS.names())
    env = cls(generator_params=record["generator_params"], **record["settings"])
    env.data_files = {phase: dict(table) for phase, table in record["data_files"].items()}
    return env


def _model_class(cls: type[M], name: str, source: Any) -> Any:
    """The class called `name`: `cls`, one of its subclasses, or a model of the zoo."""
    found = {each.__name__: each for each in (cls, *_subclasses(cls))}
    if name not in found:
        zoo = exported_names(_ZOO)
        candidate = resolve(zoo[name], name) if name in zoo else None
        if not (isinstance(candidate, type) and issubclass(candidate, cls)):
            raise FileFormatError(
                f"expected a checkpoint of {cls.__name__} in {source}, got one of {name}; use "
                f"{name}.load_from_checkpoint, or RL4COLitModule.load_from_checkpoint for any model"
            )
        return candidate
    return found[name]


def _subclasses(cls: type) -> list[type]:
    direct: list[type] = cls.__subclasses__()
    return [*direct, *(each for child in direct for each in _subclasses(child))]
