"""What a Lightning checkpoint holds besides tensors, and how a model is rebuilt from it.

A checkpoint must open with `weights_only=True`, so it describes the model in plain values: the name
of its class and the arguments of its constructor, and in the same way the environment, generator or
policy among these. An argument that cannot be described so (a function, a network that does not
record its arguments) is listed as missing, and loading asks for it. Custom classes are described by
their module paths, and used only if the caller allows them.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import re

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import lightning as L
import torch

from torch import nn

from rl4co.core.arguments import NotPlainError, RecordsArguments, plain
from rl4co.core.errors import ConfigError, FileFormatError, RL4COError, UnknownNameError
from rl4co.core.lazy import exported_names, resolve
from rl4co.core.registry import ENVS, IMPORT_FIRST, MODELS
from rl4co.data.digest import check_digest
from rl4co.models.policies.budget import parameter_budget, reject_oversized_arguments
from rl4co.models.policies.custom_classes import (
    AllowedClasses,
    find_allowed,
    library_class,
)
from rl4co.models.policies.pretrained import kind_of

#: Key of the description in a checkpoint, and its version.
RECORD_KEY = "rl4co"
_FORMAT = 2
_ZOO = "rl4co.models.zoo"
_ALGORITHMS = "rl4co.models.rl"
#: How often a constructor may make the weights of a model (of a policy, its baseline, ...).
_COPIES = 4
#: Arguments that say where an object is, not what it is; the one who loads it decides.
_NOT_DESCRIBED = ("device",)

#: What torch raises for files that are cut off, of another kind, or hold Python objects.
_READ_ERRORS = (pickle.UnpicklingError, RuntimeError, EOFError, LookupError, ValueError, OSError)

#: What constructors raise for arguments that make no sense.
_BUILD_ERRORS = (
    TypeError, AttributeError, ValueError, LookupError, ArithmeticError, RuntimeError, MemoryError,
)  # fmt: skip

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
        weights_only: Accept only tensors and plain values. False runs code from the file.
    """
    if isinstance(source, str | Path) and not Path(source).is_file():
        raise FileNotFoundError(
            f"expected a checkpoint at {source}, got no file; check the path (a run writes its "
            "checkpoints to the folder of its ModelCheckpoint callback)"
        )
    try:
        _check_digest(source)
        content = torch.load(source, map_location=map_location, weights_only=weights_only)
    except (PermissionError, FileFormatError):
        raise
    except _READ_ERRORS as error:
        # torch's message for an object of a class that it does not allow, and for one of a module
        # that runs programs or code.
        pattern = r"(?i)unsupported (?:global|class):?\s+(?:GLOBAL\s+)?(\S+)"
        if found := re.search(pattern, str(error)):
            harmful = "is blocked" in str(error)
            remedy = (
                "a checkpoint of training never needs that, so do not open the file"
                if harmful
                else "if you trust the file, pass weights_only=False to fit, validate or test"
            )
            raise FileFormatError(
                f"expected tensors and plain values in {source}, got objects that "
                f"{'would' if harmful else 'could'} run code ({found[1]}), which are not loaded; "
                f"{remedy}"
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


def _check_digest(source: str | Path | IO[bytes]) -> None:
    if not isinstance(source, str | Path):
        check_digest(source, "the checkpoint")
        return
    with open(source, "rb") as file:
        check_digest(file, source)


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
            f"{key} is {_form(weights[key])} instead of {_form(expected[key])}"
            for key in expected.keys() & weights.keys()
            if _form(weights[key]) != _form(expected[key])
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


def _form(value: Any) -> str | None:
    """Kind and shape; None for other objects than tensors, which modules may keep as well."""
    if not isinstance(value, torch.Tensor):
        return None
    return f"{kind_of(value)} {list(value.shape)}"


# ---------------------------------------------------------------- describing


def describe_model(model: RecordsArguments) -> dict[str, Any]:
    """The plain record of a model: class name and constructor arguments."""
    arguments = {}
    for name, value in model._init_arguments.items():
        try:
            arguments[name] = _describe(value)
        except NotPlainError as reason:
            arguments[name] = {"missing": str(reason)}
    return {"format": _FORMAT, "class": type(model).__name__, "arguments": arguments}


def _describe(value: Any) -> dict[str, Any]:
    """`{"value": ...}`, or `{"object": ...}` for one of the library that records its arguments."""
    if not isinstance(value, RecordsArguments):
        return {"value": plain(value)}
    cls = type(value)
    record: dict[str, Any] = {"class": cls.__name__, "name": getattr(value, "name", None)}
    if _library_class(record) is not cls:
        record["module"] = cls.__module__
    arguments = {}
    for name, argument in value._init_arguments.items():
        if name in _NOT_DESCRIBED:
            continue
        try:
            arguments[name] = _describe(argument)
        except NotPlainError as reason:
            raise NotPlainError(f"a {cls.__name__} with {name}={reason}") from None
    return {"object": {**record, "arguments": arguments}}


def _library_class(record: Mapping[str, Any]) -> Any:
    """The class of a record: one that the library exports, or a registered environment."""
    exported = _exported_classes()
    if record["class"] in exported:
        return resolve(exported[record["class"]], record["class"])
    return ENVS.get(record["name"])


@functools.cache
def _exported_classes() -> dict[str, str]:
    """Name → module of the policies, environments and generators of the library."""
    packages = (_ZOO, *ENVS.packages)
    return {name: at for package in packages for name, at in exported_names(package).items()}


# ---------------------------------------------------------------- rebuilding


def load_model(
    cls: type[M],
    source: str | Path | IO[bytes],
    replacements: Mapping[str, Any],
    map_location: MapLocation = "cpu",
    strict: bool = True,
    allow_classes: AllowedClasses = (),
) -> M:
    """The model described in a checkpoint, with its weights, in evaluation mode.

    Args:
        cls: Class of the model, or a base class of it.
        source: The checkpoint.
        replacements: Constructor arguments that replace the recorded ones.
        map_location: Device of the model, see `torch.load`.
        strict: Whether the weights must fit exactly.
        allow_classes: Custom classes that may be used, see
            :meth:`~rl4co.models.policies.pretrained.PretrainedMixin.from_pretrained`.
    """
    checkpoint = read_checkpoint(source, map_location)
    record = checkpoint.get(RECORD_KEY)
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise FileFormatError(
            f"expected the description of a model (format {_FORMAT}) in {source}, got none; build "
            "the model yourself and use load_state_dict with the checkpoint's 'state_dict'"
        )
    model = _build(cls, record, replacements, source, checkpoint["state_dict"], allow_classes)
    model.strict_loading = strict
    model.on_load_checkpoint(checkpoint)
    model.load_state_dict(checkpoint["state_dict"], strict=strict)
    if isinstance(map_location, str | torch.device):
        model.to(map_location)
    return model.eval()


def _build(
    cls: type[M],
    record: Mapping[str, Any],
    replacements: Mapping[str, Any],
    source: Any,
    weights: Mapping[str, Any],
    allowed: AllowedClasses,
) -> Any:
    """The model of a record, before it gets its weights, which say how large it may be."""
    numbers = sum(value.numel() for value in weights.values() if isinstance(value, torch.Tensor))
    try:
        reject_oversized_arguments(record["arguments"], source)
        built = find_allowed(record["class"], allowed) or _model_class(cls, record["class"], source)
        with parameter_budget(_COPIES * numbers, source):
            return built(**_rebuild_arguments(record, replacements, source, allowed))
    except RL4COError:
        raise
    except _BUILD_ERRORS as error:
        if replacements:  # they may be the cause
            raise
        raise FileFormatError(
            f"expected the description of a model in {source}, got one that no model can be built "
            f"from ({type(error).__name__}: {error}); the file is damaged, or of another version"
        ) from error


def _rebuild_arguments(
    record: Mapping[str, Any], replacements: Mapping[str, Any], source: Any, allowed: AllowedClasses
) -> dict[str, Any]:
    """Constructor arguments from a record; replacements win over recorded ones."""
    arguments = dict(replacements)
    missing = {}
    custom: list[str] = []
    for name, entry in record["arguments"].items():
        # A replacement needs no arguments to build it from.
        if name in replacements or name.removesuffix("_kwargs") in replacements:
            continue
        if "missing" in entry:
            missing[name] = entry["missing"]
        elif classes := _custom_classes(entry, allowed):
            missing[name] = f"a {', a '.join(path.rpartition('.')[2] for path in classes)}"
            custom += classes
        else:
            arguments[name] = _rebuild(entry, allowed)
    if missing:
        names = ", ".join(f"{name}=..." for name in missing)
        reasons = "; ".join(f"{name} was {what}" for name, what in missing.items())
        choice = f", or, if you trust their code, allow_classes={custom}" if custom else ""
        choice += "".join(f", --allow-class {path}" for path in custom)
        raise ConfigError(
            f"expected plain constructor arguments in {source} to rebuild {record['class']}, got "
            f"others ({reasons}); pass them: load_from_checkpoint(path, {names}){choice}"
        )
    return arguments


def _custom_classes(entry: Mapping[str, Any], allowed: AllowedClasses) -> list[str]:
    """Module paths of the classes in a record that are neither the library's nor allowed."""
    if "object" not in entry:
        return []
    record = entry["object"]
    inner = [
        path for each in record["arguments"].values() for path in _custom_classes(each, allowed)
    ]
    path = f"{record['module']}.{record['class']}" if "module" in record else ""
    is_allowed = not path or find_allowed(path, allowed) or library_class(path)
    return inner if is_allowed else [path, *inner]


def _rebuild(entry: Mapping[str, Any], allowed: AllowedClasses) -> Any:
    """The value or object that an entry of a record describes."""
    if "value" in entry:
        return entry["value"]
    record = entry["object"]
    path = f"{record.get('module', '')}.{record['class']}"
    cls: Any = find_allowed(path, allowed) or library_class(path) or _library_class(record)
    if not (isinstance(cls, type) and issubclass(cls, RecordsArguments)):
        raise UnknownNameError("class", record["class"], _exported_classes(), remedy=IMPORT_FIRST)
    arguments = record["arguments"].items()
    return cls(**{name: _rebuild(argument, allowed) for name, argument in arguments})


def _model_class(cls: type[M], name: str, source: Any) -> Any:
    """The class called `name`: `cls`, a subclass of it, an algorithm, a model or a plug-in's.

    A checkpoint of a base class of `cls` is one of `cls` if its arguments and weights fit: a policy
    that was trained by REINFORCE itself makes an Attention Model, say.
    """
    classes = {each.__name__: each for each in (cls, *_subclasses(cls))}
    bases = [base.__name__ for base in cls.__mro__ if issubclass(base, L.LightningModule)]
    if name in bases:
        return cls
    if name not in classes:
        module = importlib.import_module(exported_names(_ZOO).get(name, _ALGORITHMS))
        candidate = getattr(module, name, None) or _plugin_model(name)
        if not (isinstance(candidate, type) and issubclass(candidate, cls)):
            raise FileFormatError(
                f"expected a checkpoint of {cls.__name__} in {source}, got one of {name}; use "
                f"{name}.load_from_checkpoint, RL4COLitModule.load_from_checkpoint for any model, "
                "or, for a custom class, allow_classes=['my_package.MyModel'] (on the command line "
                "--allow-class my_package.MyModel)"
            )
        return candidate
    return classes[name]


def _plugin_model(name: str) -> Any:
    """The class called `name` among the models of installed plug-ins, None if there is none."""
    return next((model for model in MODELS.plugins() if model.__name__ == name), None)


def _subclasses(cls: type) -> list[type]:
    direct: list[type] = cls.__subclasses__()
    return [*direct, *(each for child in direct for each in _subclasses(child))]
