"""Augmentation: copies of an instance under symmetries of the plane, which keep all distances.

The copies are the outermost axis, as in :func:`rl4co.core.ops.batchify`: row `a * B + b` is copy
`a` of instance `b`.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.ops import batchify
from rl4co.core.shapes import check_shapes

#: A function of the repeated coordinates `[A * B, N, 2]` and A, giving the transformed ones.
AugmentFn: TypeAlias = Callable[[Tensor, int], Tensor]

#: Keys that hold coordinates.
COORDINATE_KEYS = ("locs", "depot")


def has_coordinates(keys: Collection[str]) -> bool:
    """Whether instances with these keys can be rotated and reflected."""
    return any(key in keys for key in COORDINATE_KEYS)


#: The dihedral group in the order of the paper's table, as (mirror x, mirror y, swap axes); the
#: axes are swapped first.
_DIHEDRAL: tuple[tuple[bool, bool, bool], ...] = tuple(
    (mirror_x, mirror_y, swap)
    for swap in (False, True)
    for mirror_x in (False, True)
    for mirror_y in (False, True)
)


def dihedral_8_augmentation(xy: Tensor) -> Tensor:
    """The eight symmetries of the square: four rotations and their mirror images.

    In the unit square, in this order: (x, y), (x, 1-y), (1-x, y), (1-x, 1-y), (y, x), (y, 1-x),
    (1-y, x), (1-y, 1-x). An instance that does not lie in the unit square is mirrored inside the
    square `[lo, hi]²` of its own smallest and largest coordinate: 1-x becomes lo+hi-x.

    Paper: Kwon et al. (2020), https://arxiv.org/abs/2010.16011

    Shapes:
        `[B, N, 2]` → `[8 * B, N, 2]`
    """
    check_shapes(xy=(xy, "B N 2"))
    low, high = _reference_square(xy)
    mirrored = low + high - xy  # [B, N, 2]
    copies = []
    for mirror_x, mirror_y, swap in _DIHEDRAL:
        x = (mirrored if mirror_x else xy)[..., int(swap)]  # [B, N]
        y = (mirrored if mirror_y else xy)[..., int(not swap)]  # [B, N]
        copies.append(torch.stack([x, y], dim=-1))
    return torch.cat(copies)  # [8 * B, N, 2]


def symmetric_augmentation(
    xy: Tensor,
    num_augment: int = 8,
    first_augment: bool = False,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Random rotations about the centre of the square, half of them followed by a reflection.

    The angle is uniform in [0, 2π); the centre is (0.5, 0.5) for instances in the unit square. The
    result may leave the square.

    Paper: Kim et al. (2022), Sym-NCO, https://arxiv.org/abs/2205.13209

    Args:
        xy: Coordinates that are repeated already: row `a * B + b` is copy a of instance b.
        num_augment: Number A of copies.
        first_augment: Whether the first copy is transformed too.
        rng: Source of randomness; None draws from torch's global generator.

    Shapes:
        `[A * B, N, 2]` → `[A * B, N, 2]`
    """
    rows = check_shapes(xy=(xy, "B N 2"))["B"]
    if num_augment < 1 or rows % num_augment:
        raise ConfigError(
            f"expected coordinates repeated num_augment={num_augment} times, got {rows} rows; "
            "repeat them with rl4co.utils.ops.batchify first"
        )
    draws = torch.rand(2, rows, 1, generator=rng, device=xy.device if rng is None else rng.device)
    angle, reflect = draws.to(xy.device)  # [A * B, 1] each
    angle, reflect = 2 * math.pi * angle, reflect < 0.5
    low, high = _reference_square(xy)
    center = (low + high) / 2  # [A * B, 1, 1]
    x, y = (xy - center).unbind(-1)  # [A * B, N] each
    rotated_x = x * angle.cos() - y * angle.sin()
    rotated_y = x * angle.sin() + y * angle.cos()
    rotated = torch.stack([rotated_x, rotated_y], dim=-1)  # [A * B, N, 2]
    moved = torch.where(reflect.unsqueeze(-1), rotated.flip(-1), rotated) + center
    batch = rows // num_augment
    return moved if first_augment else torch.cat([xy[:batch], moved[batch:]])


def min_max_normalize(x: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Shift and scale to [0, 1]; constant values become 0.

    Args:
        x: Any tensor.
        dim: Axes that share one minimum and maximum; None: all of them.
    """
    axes = tuple(range(x.dim())) if dim is None else dim
    low, high = x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)
    extent = high - low
    return (x - low) / torch.where(extent > 0, extent, torch.ones_like(extent))


class StateAugmentation:
    """Repeats instances and transforms the coordinates of each copy.

    All coordinate keys of a copy get the same transformation; all other keys are repeated.

    Args:
        num_augment: Number A of copies.
        augment_fn: `"symmetric"`, `"dihedral8"` (then at most 8 copies), or a function called with
            the repeated coordinates `[A * B, N, 2]` and A that returns the transformed ones.
        first_aug_identity: Whether the first copy is the instance itself.
        normalize: Whether to scale the coordinates to [0, 1] afterwards, by one scale for all
            copies of an instance, so that their costs remain comparable with each other.
        feats: Coordinate keys; None takes those of `locs` and `depot` that are there.
        rng: Source of randomness; None draws from torch's global generator.

    Shapes:
        TensorDict `[B]` → TensorDict `[A * B]`
    """

    def __init__(
        self,
        num_augment: int = 8,
        augment_fn: str | AugmentFn = "symmetric",
        first_aug_identity: bool = True,
        normalize: bool = False,
        feats: Sequence[str] | None = None,
        rng: torch.Generator | None = None,
    ) -> None:
        check_at_least(1, num_augment=num_augment)
        if isinstance(augment_fn, str) and augment_fn not in _AUGMENTATIONS:
            raise UnknownNameError("augmentation", augment_fn, _AUGMENTATIONS)
        self._augmentation = (
            _AUGMENTATIONS[augment_fn]
            if isinstance(augment_fn, str)
            else _from_function(augment_fn)
        )
        if num_augment > self._augmentation.max_copies:
            raise ConfigError(
                f"expected num_augment from 1 to {self._augmentation.max_copies:g} with "
                f"augment_fn={augment_fn!r}, got {num_augment}; "
                "use augment_fn='symmetric' for more copies"
            )
        self.num_augment = num_augment
        self.augment_fn = augment_fn
        self.first_aug_identity = first_aug_identity
        self.normalize = normalize
        self.feats = None if feats is None else tuple(feats)
        self.rng = rng

    def __call__(self, td: TensorDictBase) -> TensorDict:
        """The augmented instances; `td` is not modified."""
        if td.batch_dims != 1:
            raise ConfigError(
                f"expected instances with one batch axis, got batch size {list(td.batch_size)}; "
                "flatten the batch axes first"
            )
        keys = self._coordinate_keys(td)
        points = [_as_points(key, td[key]) for key in keys]  # [B, N_k, 2] each
        xy = self._transform(torch.cat(points, dim=1))  # [A * B, sum N_k, 2]
        parts = xy.split([point.shape[1] for point in points], dim=1)
        out = batchify(td.exclude(*keys), self.num_augment)
        for key, part in zip(keys, parts, strict=True):
            out[key] = part.reshape(-1, *td[key].shape[1:])  # [A * B, N_k, 2] or [A * B, 2]
        return out

    def _transform(self, xy: Tensor) -> Tensor:
        out = self._augmentation.apply(xy, self.num_augment, self.first_aug_identity, self.rng)
        if not self.normalize:
            return out
        copies = out.unflatten(0, (self.num_augment, -1))  # [A, B, N, 2]
        return min_max_normalize(copies, dim=(0, 2, 3)).flatten(0, 1)  # [A * B, N, 2]

    def _coordinate_keys(self, td: TensorDictBase) -> tuple[str, ...]:
        if self.feats is not None:
            missing = [key for key in self.feats if key not in td.keys()]
            if missing or not self.feats:
                raise ConfigError(
                    f"expected feats among the keys {sorted(td.keys())}, got {list(self.feats)}"
                )
            return self.feats
        keys = tuple(key for key in COORDINATE_KEYS if key in td.keys())
        if not has_coordinates(keys):
            raise UnsupportedError(
                f"expected instances with coordinates under {' or '.join(COORDINATE_KEYS)}, got "
                f"the keys {sorted(td.keys())}; an instance given by a matrix has no symmetries of "
                "the plane: use sampling or multistart, or name its coordinates in feats"
            )
        return keys


class _Augmentation(NamedTuple):
    """A method to make copies: `apply(xy [B, N, 2], A, identity first, rng)` → `[A * B, N, 2]`."""

    apply: Callable[[Tensor, int, bool, torch.Generator | None], Tensor]
    max_copies: float = math.inf


def _dihedral8(
    xy: Tensor, num_augment: int, identity_first: bool, rng: torch.Generator | None
) -> Tensor:
    copies = dihedral_8_augmentation(xy).unflatten(0, (len(_DIHEDRAL), -1))  # [8, B, N, 2]
    copies = copies if identity_first else copies.roll(-1, dims=0)  # identity last
    return copies[:num_augment].flatten(0, 1)  # [A * B, N, 2]


def _symmetric(
    xy: Tensor, num_augment: int, identity_first: bool, rng: torch.Generator | None
) -> Tensor:
    return symmetric_augmentation(batchify(xy, num_augment), num_augment, not identity_first, rng)


def _from_function(function: AugmentFn) -> _Augmentation:
    def apply(
        xy: Tensor, num_augment: int, identity_first: bool, rng: torch.Generator | None
    ) -> Tensor:
        repeated = batchify(xy, num_augment)  # [A * B, N, 2]
        out = function(repeated, num_augment)
        if out.shape != repeated.shape:
            raise ConfigError(
                f"expected {function!r} to keep the shape {list(repeated.shape)}, got "
                f"{list(out.shape)}"
            )
        return torch.cat([xy, out[len(xy) :]]) if identity_first else out

    return _Augmentation(apply)


_AUGMENTATIONS: dict[str, _Augmentation] = {
    "dihedral8": _Augmentation(_dihedral8, max_copies=len(_DIHEDRAL)),
    "symmetric": _Augmentation(_symmetric),
}

#: Augmentations with a name; all of them keep Euclidean distances.
NAMED_AUGMENTATIONS: tuple[str, ...] = tuple(_AUGMENTATIONS)


def _reference_square(xy: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of the square in which an instance is mirrored: `[B, N, 2]` → two `[B, 1, 1]`.

    The unit square if the instance lies in it, otherwise the square of its extreme coordinates.
    """
    low, high = xy.amin((-2, -1), keepdim=True), xy.amax((-2, -1), keepdim=True)
    in_unit_square = (low >= 0) & (high <= 1)
    zero, one = torch.zeros_like(low), torch.ones_like(high)
    return torch.where(in_unit_square, zero, low), torch.where(in_unit_square, one, high)


def _as_points(key: str, value: Tensor) -> Tensor:
    """Coordinates of a key as `[B, N, 2]`; `[B, 2]` is one point."""
    if value.dim() not in (2, 3) or value.shape[-1] != 2:
        raise UnsupportedError(
            f"expected coordinates of shape [B, N, 2] or [B, 2] under {key!r}, got "
            f"{list(value.shape)}"
        )
    return value.unsqueeze(1) if value.dim() == 2 else value
