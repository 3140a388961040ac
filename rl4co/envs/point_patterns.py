"""Random point patterns in the unit square, as pure functions of (size, parameters, rng).

The distributions of the literature in which the points of an instance depend on each other:
clusters and their mixtures with uniform points (Bi et al., 2022, https://arxiv.org/abs/2210.07686)
and scaled Gaussian mixtures (Zhou et al., 2023, https://arxiv.org/abs/2305.19587). All functions
take a size `[*B, N, 2]`, draw every instance of the batch at once and return coordinates in
`[0, 1]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from torch import Tensor

Size: TypeAlias = Sequence[int]
Rng: TypeAlias = torch.Generator | None

#: Bi et al. (2022): range of the cluster centres and spread around them.
_CENTER_LOW, _CENTER_HIGH, _CLUSTER_STD = 0.2, 0.8, 0.07

#: Zhou et al. (2023): the eleven (modes, centre distance) pairs of their training distributions.
MULTI_DISTRIBUTION_PAIRS: tuple[tuple[int, int], ...] = (
    (0, 0),
    (1, 1),
    *((modes, cdist) for modes in (3, 5, 7) for cdist in (10, 30, 50)),
)


def clusters(size: Size, num_clusters: int, rng: Rng = None) -> Tensor:
    """Gaussian clusters of (nearly) equal size, as in Solomon's C instances."""
    smallest, larger = divmod(size[-2], num_clusters)
    label = _block_labels([smallest + (k < larger) for k in range(num_clusters)], rng)  # [N]
    return _around(_cluster_centers(size, num_clusters, rng)[..., label, :], rng)


def half_clustered(size: Size, num_clusters: int, rng: Rng = None) -> Tensor:
    """Half of the points (chosen at random) in clusters, the others uniform, as in Solomon's RC."""
    num_loc, k = size[-2], num_clusters
    half = num_loc // 2
    sizes = [half // k] * (k - 1) + [half - half // k * (k - 1)]
    label = _block_labels([*sizes, num_loc - half], rng)  # [N], label k = uniform
    label = label[rand(size[:-1], rng).argsort(-1)].unsqueeze(-1)  # [*B, N, 1]
    centers = _cluster_centers(size, k, rng)  # [*B, K, 2]
    own_center = torch.take_along_dim(centers, label.clamp_max(k - 1), dim=-2)  # [*B, N, 2]
    return torch.where(label < k, _around(own_center, rng), rand(size, rng))


def uniform_clustered_or_mixed(
    size: Size, num_clusters: int, num_clusters_mixed: int, rng: Rng = None
) -> Tensor:
    """Each instance is, with equal probability, uniform, clustered or half clustered."""
    # All three for all instances: cheaper than the host synchronisations of sorting them out.
    kind = randint(3, (*size[:-2], 1, 1), rng)  # [*B, 1, 1]
    clustered = clusters(size, num_clusters, rng)
    mixed = half_clustered(size, num_clusters_mixed, rng)
    return torch.where(kind == 0, rand(size, rng), torch.where(kind == 1, clustered, mixed))


def gaussian_mixture(size: Size, num_modes: int, cdist: float, rng: Rng = None) -> Tensor:
    """Gaussian mixture with centres in `[0, cdist]²`, scaled to the square.

    Special cases, as in the paper: `num_modes = 0` is uniform, `(1, 1)` is one correlated Gaussian.
    """
    if num_modes == 0:
        return rand(size, rng)
    if (num_modes, cdist) == (1, 1):
        return correlated_gaussian(size, rng)
    modes = torch.full(size[:-2], num_modes, device=device_of(rng))  # [*B]
    distance = torch.full(size[:-2], float(cdist), device=device_of(rng))  # [*B]
    return _scaled_mixture(size, modes, distance, num_modes, rng)


def multi_gaussian_mixtures(size: Size, rng: Rng = None) -> Tensor:
    """Each instance is one of the :func:`gaussian_mixture` of `MULTI_DISTRIBUTION_PAIRS`."""
    pairs = torch.tensor(MULTI_DISTRIBUTION_PAIRS, device=device_of(rng))  # [11, 2]
    kind = randint(len(pairs), size[:-2], rng)  # [*B]
    modes, cdist = pairs[kind].unbind(-1)  # [*B] each
    max_modes = max(modes for modes, _ in MULTI_DISTRIBUTION_PAIRS)
    mixture = _scaled_mixture(size, modes, cdist, max_modes, rng)
    kind = kind[..., None, None]  # [*B, 1, 1]
    structured = torch.where(kind == 1, correlated_gaussian(size, rng), mixture)
    return torch.where(kind == 0, rand(size, rng), structured)


def correlated_gaussian(size: Size, rng: Rng = None) -> Tensor:
    """One Gaussian with correlation U(0, 1) per instance (Xin et al., 2022).

    The longer side of its bounding box is scaled to 1, the aspect ratio is kept, and the result is
    centred in the square.
    """
    rho = rand((*size[:-2], 1), rng)  # [*B, 1]
    first, second = randn(size, rng).unbind(-1)  # [*B, N] each
    coords = torch.stack([first, rho * first + (1 - rho.square()).sqrt() * second], dim=-1)
    coords = coords - coords.amin(-2, keepdim=True)
    coords = coords / _extent(coords).amax(-1, keepdim=True)
    return coords + (1 - coords.amax(-2, keepdim=True)) / 2


def _scaled_mixture(
    size: Size, num_modes: Tensor, cdist: Tensor, max_modes: int, rng: Rng
) -> Tensor:
    """Unit Gaussians around random centres, each axis scaled to `[0, 1]` (Zhang et al., 2022).

    Args:
        size: `[*B, N, 2]`.
        num_modes: `[*B]`, modes per instance.
        cdist: `[*B]`, side of the square of the centres per instance.
        max_modes: Upper bound of `num_modes`.
        rng: Source of randomness.
    """
    centers = rand((*size[:-2], max_modes, 2), rng) * cdist[..., None, None]  # [*B, M, 2]
    modes = num_modes[..., None]  # [*B, 1]
    label = torch.minimum((rand(size[:-1], rng) * modes).long(), (modes - 1).clamp_min(0))
    own_center = torch.take_along_dim(centers, label.unsqueeze(-1), dim=-2)  # [*B, N, 2]
    coords = own_center + randn(size, rng)
    return (coords - coords.amin(-2, keepdim=True)) / _extent(coords)


def _extent(coords: Tensor) -> Tensor:
    """Side lengths of the bounding box, `[*B, 1, 2]`; 1 where all points agree (one point, say)."""
    extent = coords.amax(-2, keepdim=True) - coords.amin(-2, keepdim=True)
    return torch.where(extent > 0, extent, torch.ones_like(extent))


def _block_labels(sizes: Sequence[int], rng: Rng) -> Tensor:
    """0 `sizes[0]` times, 1 `sizes[1]` times, and so on: `[sum(sizes)]`."""
    labels = [label for label, count in enumerate(sizes) for _ in range(count)]
    return torch.tensor(labels, dtype=torch.long, device=device_of(rng))


def _cluster_centers(size: Size, num_clusters: int, rng: Rng) -> Tensor:
    """Centres of an instance's clusters: `[*B, K, 2]`."""
    unit = rand((*size[:-2], num_clusters, 2), rng)
    return _CENTER_LOW + (_CENTER_HIGH - _CENTER_LOW) * unit


def _around(centers: Tensor, rng: Rng) -> Tensor:
    """One point near each centre, kept inside the unit square: `[*B, N, 2]`."""
    return (centers + _CLUSTER_STD * randn(centers.shape, rng)).clamp(0.0, 1.0)


def device_of(rng: Rng) -> torch.device | None:
    """Device on which `rng` draws; None (torch's default device) for the global generator."""
    return None if rng is None else rng.device


def rand(size: Size, rng: Rng = None) -> Tensor:
    """Uniform numbers in `[0, 1)`."""
    return torch.rand(tuple(size), generator=rng, device=device_of(rng))


def randn(size: Size, rng: Rng = None) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(tuple(size), generator=rng, device=device_of(rng))


def randint(high: int, size: Size, rng: Rng = None) -> Tensor:
    """Integers in `[0, high)`."""
    return torch.randint(high, tuple(size), generator=rng, device=device_of(rng))
