"""Saving and loading policies as a folder: `config.json` and `model.safetensors`.

The configuration has a digest of itself and of the weights; folders without one are older.

Opening such a folder never runs code from it: the configuration is JSON, the weights are
safetensors, and classes are those of the library, of installed plug-ins and those that the caller
allows (or is the one called).
"""

from __future__ import annotations

import json
import math
import sys

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import torch

from torch import Tensor, nn

from rl4co.core.arguments import NotPlainError, RecordsArguments
from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError
from rl4co.core.registry import MODELS
from rl4co.data.digest import sha256
from rl4co.data.io import atomic_write
from rl4co.models.policies.budget import parameter_budget, reject_oversized_arguments
from rl4co.models.policies.custom_classes import (
    AllowedClasses,
    describe,
    find_allowed,
    not_allowed,
    rebuild,
    require_allowed,
)
from rl4co.pretrained import CONFIG_FILE, WEIGHTS_FILE, ModelSource, find_model

_FORMAT = "rl4co-policy-1"
_DIGEST = "sha256"
#: Key of the module of a custom policy class, for messages.
_MODULE = "module"
#: What constructors raise for arguments that they do not take.
_CONSTRUCTOR_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, MemoryError)

#: Precision of saved weights.
Precision: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]
#: Kinds of numbers in the header of safetensors, by the letters in front of the number of bits.
_KINDS = {"F": "floating-point", "BF": "floating-point", "C": "complex", "BOOL": "boolean"}

P = TypeVar("P", bound="PretrainedMixin")


class PretrainedMixin(RecordsArguments):
    """A module that can be rebuilt from JSON (its constructor's arguments) and weights."""

    def save_pretrained(self, folder: str | Path, dtype: Precision | None = None) -> Path:
        """Writes `config.json` and `model.safetensors` into `folder`; returns the folder.

        Args:
            folder: The folder, which is created.
            dtype: Precision of the weights in the file; None: as they are. Loading converts them
                back; "float16" halves the file and hardly changes solutions.
        """
        from safetensors.torch import save

        folder = Path(folder)
        config = {
            "format": _FORMAT,
            "class": type(self).__name__,
            "arguments": _plain_arguments(self),
        }
        if not type(self).__module__.startswith("rl4co."):
            config[_MODULE] = type(self).__module__
        assert isinstance(self, nn.Module)
        tensors = {key: _converted(key, value, dtype) for key, value in self.state_dict().items()}
        weights = save(tensors)
        config[_DIGEST] = _digest(config, weights)
        text = json.dumps(config, indent=2) + "\n"
        # Both are written before either gets its name; the weights get theirs first.
        with (
            atomic_write(folder / CONFIG_FILE) as config_file,
            atomic_write(folder / WEIGHTS_FILE) as weights_file,
        ):
            config_file.write(text.encode())
            config_file.flush()
            weights_file.write(weights)
        return folder

    @classmethod
    def from_pretrained(
        cls: type[P],
        folder: str | Path | ModelSource,
        device: torch.device | str = "cpu",
        allow_classes: AllowedClasses = (),
    ) -> P:
        """The policy saved in `folder`, in evaluation mode.

        Args:
            folder: Written by :meth:`save_pretrained`, or the name of a pretrained model.
            device: Device of the policy.
            allow_classes: Custom classes of its parts that may be used: classes, or module paths
                (`"my_package.MyEncoder"`), which are imported then.
        """
        source = find_model(folder)
        config = read_config(source)
        if config["class"] != cls.__name__:
            raise FileFormatError(
                f"expected a {cls.__name__} in {folder}, got a {config['class']}; "
                f"use {config['class']}.from_pretrained or rl4co.models.load_pretrained"
            )
        path = source.path / WEIGHTS_FILE
        content = source.read(WEIGHTS_FILE)
        _check_digest(config, content, folder)
        declared = _declared(content, path)
        described = config["arguments"]
        for value in described.values():
            require_allowed(value, allow_classes, folder)
        try:
            with parameter_budget(sum(math.prod(shape) for _, shape in declared.values()), path):
                arguments = {name: rebuild(x, allow_classes) for name, x in described.items()}
                policy = cls(**arguments)
        except (
            *_CONSTRUCTOR_ERRORS,
            RuntimeError,
        ) as error:
            raise FileFormatError(
                f"expected arguments of {cls.__name__} in {folder}, got others ({error}); "
                "was it written by another version?"
            ) from error
        assert isinstance(policy, nn.Module)
        _check_declared(policy, declared, path)
        _load_weights(policy, content, path)
        return policy.to(device).eval()


def read_config(folder: str | Path | ModelSource) -> dict[str, Any]:
    """The validated `config.json` of a policy folder or pretrained model."""
    source = find_model(folder)
    path = source.path / CONFIG_FILE
    try:
        config = json.loads(source.read(CONFIG_FILE).decode())
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"expected JSON in {path}, got: {error}") from error
    form = config.get("format") if isinstance(config, dict) else None
    if form != _FORMAT:
        what = repr(form) if str(form).startswith("rl4co-") else "a foreign file"
        raise FileFormatError(
            f"expected format {_FORMAT!r} in {path}, got {what[:80]}; load it with the version of "
            "rl4co that wrote it"
        )
    if not isinstance(config.get("class"), str) or not isinstance(config.get("arguments"), dict):
        raise FileFormatError(f"expected a class name and its arguments in {path}, got neither")
    if unknown := sorted(config.keys() - {"format", "class", "arguments", _DIGEST, _MODULE}):
        raise FileFormatError(
            f"expected the keys format, class, arguments and {_DIGEST} in {path}, got also "
            f"{', '.join(unknown)}; remove them"
        )
    reject_oversized_arguments(config["arguments"], path)
    return config


def load_pretrained(
    folder: str | Path | ModelSource,
    device: torch.device | str = "cpu",
    allow_classes: AllowedClasses = (),
) -> Any:
    """The policy saved in `folder`, whatever its class, in evaluation mode.

    Arguments are those of :meth:`PretrainedMixin.from_pretrained`; `allow_classes` may also have
    the class of the policy.
    """
    from rl4co.core.lazy import exported_names, resolve

    source = find_model(folder)
    config = read_config(source)
    name, path = config["class"], config.get(_MODULE)
    known = exported_names("rl4co.models.zoo")
    found: Any = find_allowed(name, allow_classes)
    if found is None:
        found = resolve(known[name], name) if name in known else _plugin_policies().get(name)
    if found is None and path is not None:
        raise not_allowed(f"{path}.{name}", folder)
    if found is None:
        raise UnknownNameError("policy class", name, {*known, *_plugin_policies()})
    if not (isinstance(found, type) and issubclass(found, PretrainedMixin)):
        raise FileFormatError(f"expected the class of a policy in {folder}, got {name}")
    return found.from_pretrained(source, device, allow_classes)


def _plugin_policies() -> dict[str, Any]:
    """The policies beside the models of installed plug-ins, by the names of their classes."""
    modules = [sys.modules[model.__module__] for model in MODELS.plugins()]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, PretrainedMixin)
    }


def _digest(config: Mapping[str, Any], weights: bytes) -> str:
    """Digest of a configuration, whatever its white space, and of weights."""
    values = {key: value for key, value in config.items() if key != _DIGEST}
    return sha256([json.dumps(values, sort_keys=True).encode(), weights])


def _check_digest(config: Mapping[str, Any], weights: bytes, folder: object) -> None:
    if _DIGEST in config and config[_DIGEST] != _digest(config, weights):
        raise FileFormatError(
            f"expected {CONFIG_FILE} and {WEIGHTS_FILE} in {folder} as they were written, got "
            "others (their digest differs): one of them is damaged, or of another model; get a "
            f"copy, or remove the line {_DIGEST!r} if you changed them yourself"
        )


def _load_weights(policy: nn.Module, content: bytes, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        weights = load(content)
    except SafetensorError as error:
        raise FileFormatError(
            f"expected safetensors in {path}, got a truncated or foreign file ({error})"
        ) from error
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        raise FileFormatError(f"expected weights that fit the configuration: {error}") from error


def _declared(content: bytes, path: Path) -> dict[str, tuple[str, list[int]]]:
    """Name → type and shape of each tensor, as the header of a safetensors file declares them.

    Nothing of the announced sizes is allocated; the header is a part of the file.
    """
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length].decode())
        return {
            key: (str(entry["dtype"]), [int(size) for size in entry["shape"]])
            for key, entry in header.items()
            if key != "__metadata__"
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"expected safetensors in {path}, got a truncated or foreign file ({error})"
        ) from error


def _check_declared(
    policy: nn.Module, declared: Mapping[str, tuple[str, list[int]]], path: Path
) -> None:
    """Raises for other shapes or kinds of numbers than the policy has, before they are read."""
    for key, expected in policy.state_dict().items():
        if key not in declared:
            continue  # loading reports missing and unknown ones
        dtype, shape = declared[key]
        if _KINDS.get(dtype.rstrip("0123456789"), "whole") != kind_of(expected):
            raise FileFormatError(
                f"expected {kind_of(expected)} numbers ({expected.dtype}) for {key} in {path}, got "
                f"{dtype}; save the policy with weights of its own type (quantized ones are not "
                "supported)"
            )
        if shape != list(expected.shape):
            raise FileFormatError(
                f"expected weights that fit the configuration, {key} of the shape "
                f"{list(expected.shape)}, got {shape} in {path}; one of the files is of another "
                "model"
            )


def kind_of(tensor: Tensor) -> str:
    """Kind of a tensor's numbers; numbers of one kind differ in precision only."""
    if tensor.is_floating_point():
        return "floating-point"
    if tensor.is_complex():
        return "complex"
    return "boolean" if tensor.dtype == torch.bool else "whole"


def _converted(key: str, value: Tensor, dtype: Precision | None) -> Tensor:
    """A tensor for the file; raises if the precision cannot hold its numbers."""
    if dtype is None or not value.is_floating_point():
        return value.contiguous()
    if dtype not in get_args(Precision):
        raise UnknownNameError("precision of weights", dtype, get_args(Precision))
    converted = value.to(getattr(torch, dtype)).contiguous()
    if bool((converted.isfinite() != value.isfinite()).any()):
        raise ConfigError(
            f"expected weights that {dtype} can hold, got {float(value.abs().max()):g} in {key}; "
            "save them in another precision"
        )
    return converted


def _plain_arguments(policy: RecordsArguments) -> dict[str, Any]:
    arguments = {}
    for name, value in policy._init_arguments.items():
        try:
            arguments[name] = describe(value)
        except NotPlainError as reason:
            raise ConfigError(
                f"expected plain values as arguments of {type(policy).__name__} to save it, got "
                f"{name}={reason}; derive custom parts from rl4co.core.arguments.RecordsArguments "
                "(encoders and decoders of this library are), write a subclass of the policy that "
                "builds this part from plain values, or save its state_dict"
            ) from None
    return arguments
