"""Keys, shapes and ranges of the instances of a problem, and the check of instances.

The check is one vectorised pass over a batch; a message names the key, the instances and the rule.
"""

from __future__ import annotations

import dataclasses
import re

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, FileFormatError, InvalidInstanceError, format_indices
from rl4co.data.io import load_npz_to_tensordict
from rl4co.envs.arguments import number_kind
from rl4co.envs.hooks import ProblemHooks

#: Largest number of an instance: squares of it, and sums of many of them, are finite in float32.
LARGEST = 1e15
#: One axis of a key: a size, a name, or a name plus a number.
_AXIS = re.compile(r"\d+|[A-Za-z_]+(\+\d+)?")


@dataclasses.dataclass(frozen=True)
class InstanceSchema:
    """Keys, shapes and kinds of numbers of a problem's instances.

    The axes of a key are written as a string with blanks between them: a size (`"2"`), a name
    (`"n"`, of the same size wherever it stands) or a name plus a number (`"n+1"`). The empty string
    is a key without axes, one number for each instance.

    Attributes:
        problem: Name of the problem, for messages.
        required: Key → axes of one instance, e.g. `{"locs": "n 2", "prize": "n+1"}`.
        optional: The same for keys that an instance may have on top.
        substitutes: Optional key → required keys that it replaces.
        unlimited: Keys in which infinity means "no limit".
        kinds: Key → "floating point", "integer" or "boolean"; floating point if not given.
        integer_keys: Floating-point keys that may come as integers.
    """

    problem: str
    required: Mapping[str, str]
    optional: Mapping[str, str]
    substitutes: Mapping[str, tuple[str, ...]]
    unlimited: Collection[str]
    kinds: Mapping[str, str]
    integer_keys: Collection[str] = ()

    @classmethod
    def of(cls, problem: ProblemHooks, instance: TensorDictBase) -> InstanceSchema:
        """The schema that a problem declares, with the kinds of numbers of a generated instance."""
        return cls(
            problem=problem.name,
            required=problem.instance_shapes,
            optional=problem.optional_shapes,
            substitutes=problem.substitutes,
            unlimited=problem.unlimited_keys,
            kinds={key: number_kind(value) for key, value in instance.items()},
            integer_keys=problem.integer_keys,
        )

    def __post_init__(self) -> None:
        for table in (self.required, self.optional):
            if not isinstance(table, Mapping):
                raise ConfigError(
                    f"expected a mapping of keys to axes for {self.problem}, got {table!r}; write "
                    'instance_shapes = {"locs": "n 2"}'
                )
            for key, axes in table.items():
                if not isinstance(axes, str) or not all(map(_AXIS.fullmatch, axes.split())):
                    raise ConfigError(
                        f"expected axes of {self.problem} key {key!r} as sizes (2), names (n) or "
                        f"sums (n+1) with blanks between them, got {axes!r}; write "
                        "'n 2' for n points in the plane, '' for one number"
                    )

    def required_keys(self, present: Collection[str]) -> set[str]:
        """Keys that an instance must have, given the optional ones that are present."""
        replaced = {
            key
            for stand_in, keys in self.substitutes.items()
            if stand_in in present
            for key in keys
        }
        return set(self.required) - replaced

    def normalized(self, td: TensorDictBase) -> TensorDictBase:
        """Instances with all axes and floating-point numbers; the TensorDict itself if it has them.

        Numbers that have an axis of their own, `[*B, 1]`, may come as `[*B]`; `integer_keys` may
        come as integers.
        """
        axes, changed = {**self.optional, **self.required}, dict[str, Tensor]()
        for key, value in td.items():
            if axes.get(key) == "1" and value.shape == td.batch_size:
                changed[key] = value.unsqueeze(-1)
            if key in self.integer_keys and number_kind(value) == "integer":
                changed[key] = changed.get(key, value).to(torch.get_default_dtype())
        return td.copy().update(changed) if changed else td

    def check(
        self,
        td: TensorDictBase,
        find_faults: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        find_place: Callable[[dict[str, Tensor]], str],
    ) -> None:
        """Raises :class:`InvalidInstanceError` unless all instances are sound.

        Args:
            td: Instances.
            find_faults: The problem's own rules: rule → `[*B]`, True where an instance breaks it.
            find_place: Where the first faulty instance is wrong, as text to add. Like the rules, it
                sees instances with the right keys, shapes and kinds of numbers only.
        """
        instance = dict(td.items())
        if 0 in td.batch_size:
            raise InvalidInstanceError(
                f"expected at least one {self.problem} instance, "
                f"got batch size {list(td.batch_size)}; is the data set or the slice of it empty?"
            )
        self._check_keys(instance, td.batch_size)
        faults: dict[str, Tensor] = {}
        for key, value in instance.items():
            if (key in self.required or key in self.optional) and value.dtype != torch.bool:
                faults |= _range_faults(key, value, len(td.batch_size), key in self.unlimited)
        faults.update(find_faults(instance))
        if not faults:
            return
        broken = torch.stack([fault.flatten() for fault in faults.values()])  # [rules, B]
        if not broken.any():
            return
        for rule, row in zip(faults, broken, strict=True):
            if row.any():
                where = format_indices(row.nonzero().flatten().tolist())
                raise InvalidInstanceError(
                    f"expected {self.problem} instances in which {rule}, "
                    f"got {int(row.sum())} of {len(row)} that break it (instances {where}); "
                    f"mend them or leave them out{find_place(instance)}"
                )

    def load(self, path: str | Path) -> TensorDict:
        """Instances from an `.npz` file that has these keys (any keys if none are required)."""
        td = load_npz_to_tensordict(path)
        if not self.required:
            return td
        present = set(td.keys())
        missing = sorted(self.required_keys(present) - present)
        unexpected = sorted(present - {*self.required, *self.optional})
        if missing or unexpected:
            more = f" (and perhaps {list(self.optional)})" if self.optional else ""
            instead = "".join(
                f", {key!r} in place of {list(keys)}" for key, keys in self.substitutes.items()
            )
            raise FileFormatError(
                f"expected the keys {list(self.required)}{more} of {self.problem}{instead} in "
                f"{path}, got {sorted(present)} (missing: {missing or 'none'}, unexpected: "
                f"{unexpected or 'none'}); is this the data of another problem?"
            )
        return td

    def _check_keys(self, instance: Mapping[str, Tensor], batch: torch.Size) -> None:
        missing = self.required_keys(instance) - set(instance)
        if missing:
            raise InvalidInstanceError(
                f"expected {self.problem} instances with keys {list(self.required)}, "
                f"got {sorted(instance)}; missing: {sorted(missing)}; add them, or use the "
                "environment that the instances were made for"
            )
        sizes: dict[str, int] = {}
        for key, axes in {**self.required, **self.optional}.items():
            if key not in instance:
                continue
            value, letters = instance[key], axes.split()
            shape = value.shape[len(batch) :]
            fits = (
                len(shape) == len(letters)
                and 0 not in shape
                and all(
                    size == _axis_size(letter, size, sizes)
                    for letter, size in zip(letters, shape, strict=True)
                )
            )
            if not fits:
                raise InvalidInstanceError(
                    f"expected {self.problem} key {key!r} of shape [*B, {', '.join(letters)}] with "
                    f"batch {list(batch)} and {sizes}, got {list(value.shape)}; reshape it, or set "
                    "the batch_size of the TensorDict to its leading axes"
                )
            kind = self.kinds.get(key, "floating point")
            if number_kind(value) != kind:
                raise InvalidInstanceError(
                    f"expected {self.problem} key {key!r} of a {kind} dtype, got {value.dtype}; "
                    "convert it before reset"
                )
            # Integers are indices and are added up; torch mixes no two kinds of them in that.
            if kind == "integer" and value.dtype != torch.int64:
                raise InvalidInstanceError(
                    f"expected {self.problem} key {key!r} of dtype int64, got {value.dtype}; "
                    "convert it before reset"
                )


def _range_faults(key: str, value: Tensor, batch_dims: int, unlimited: bool) -> dict[str, Tensor]:
    """Rules on the range of numbers `[*B, ...]` → `[*B]`, True where an instance breaks one.

    Args:
        key: Name of the numbers.
        value: The numbers.
        batch_dims: Number of axes of the batch.
        unlimited: Whether infinity means "no limit".
    """
    # NaN is the smallest and the largest of whatever it is among. This is many times faster than
    # asking each entry, which shows where instances have matrices.
    rows = value.flatten(batch_dims) if value.dim() > batch_dims else value.unsqueeze(-1)
    low, high = rows.amin(-1), rows.amax(-1)  # [*B]
    if unlimited:
        return {f"{key} is finite": ~(low > -torch.inf)}
    return {
        f"{key} is finite": ~(low.isfinite() & high.isfinite()),
        f"{key} is at most {LARGEST:g} (choose another unit)": (low < -LARGEST) | (high > LARGEST),
    }


def _axis_size(letter: str, size: int, sizes: dict[str, int]) -> int:
    """Size that an axis must have: a number, or a letter plus a number; binds new letters."""
    name, _, offset = letter.partition("+")
    if name.isdigit():
        return int(name)
    return sizes.setdefault(name, size - int(offset or 0)) + int(offset or 0)
