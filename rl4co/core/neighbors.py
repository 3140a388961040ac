"""Nearest neighbours of points without a matrix of all distances."""

from __future__ import annotations

import numpy as np

from rl4co.core.errors import ConfigError

#: Largest number of nodes for which anything of the size nodes x nodes may be allocated.
MAX_DENSE_NODES = 5_000


def nearest_neighbors(points: np.ndarray, count: int) -> np.ndarray:
    """The nearest other points of each point, nearest first.

    Needs memory for the result only. Points at the same place are neighbours at distance zero.

    Args:
        points: Coordinates.
        count: Neighbours K per point, at most N - 1.

    Shapes:
        points `[N, 2]` → `[N, K]`, int64

    Example:
        >>> nearest_neighbors(np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]), 1).tolist()
        [[1], [0], [1]]
    """
    from scipy.spatial import cKDTree

    points = np.asarray(points, dtype=np.float64)
    size = len(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ConfigError(f"expected points of shape [N, 2], got {list(points.shape)}")
    if not 0 <= count < max(size, 1):
        raise ConfigError(f"expected 0 to {size - 1} neighbours of {size} points, got {count}")
    if count == 0:
        return np.empty((size, 0), dtype=np.int64)
    _, nearest = cKDTree(points).query(points, k=count + 1)  # [N, K + 1]
    # Among points at one place, a point need not be the first of its own neighbours.
    itself = nearest == np.arange(size)[:, None]
    itself[~itself.any(1), -1] = True
    return np.ascontiguousarray(nearest[~itself].reshape(size, count), dtype=np.int64)
