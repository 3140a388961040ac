"""What the swap searches of the graph problems share: arrays in, checked, arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, InvalidSolutionError
from rl4co.kernels import run_in_chunks

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

#: A swap must gain this share of the value of the solution: more than rounding, so no cycles.
MIN_GAIN = 1e-9


def search_rows(
    search: Callable[[Ints, Ints, int, int], None],
    chosen: np.ndarray,
    counts: np.ndarray,
    num_candidates: int,
    candidate: str,
    max_iterations: int,
    threads: int,
) -> Ints:
    """Improved copies of selections.

    Args:
        search: Improves rows in place: selections, how many of each count, first and last row.
        chosen: Selections; with more of them than instances, row `s * B + b` belongs to instance b.
        counts: Number k of candidates to choose in each instance; what comes behind is filled up
            with the last of them.
        num_candidates: Number N of candidates.
        candidate: What a candidate is called.
        max_iterations: Most swaps of a selection, for the check of it.
        threads: Threads that share the rows.

    Shapes:
        chosen `[S * B, T]`, counts `[B]` → `[S * B, T]`
    """
    chosen, counts = np.asarray(chosen), np.asarray(counts, dtype=np.int64)
    if chosen.ndim != 2 or not len(counts) or len(chosen) % len(counts):
        raise ConfigError(
            f"expected {candidate}s of shape [S * B, T] with B={len(counts)}, got "
            f"{list(chosen.shape)}"
        )
    check_at_least(0, max_iterations=max_iterations)
    result = np.array(chosen, dtype=np.int64, order="C")
    of_rows = np.tile(counts, len(result) // len(counts))
    for row, count in enumerate(of_rows):
        selection = result[row, :count]
        outside = selection.min() < 0 or selection.max() >= num_candidates
        if outside or len(np.unique(selection)) < count:
            raise InvalidSolutionError(f"no {candidate} is chosen twice", [row], len(result))
    run_in_chunks(lambda rows: search(result, of_rows, rows.start, rows.stop), len(result), threads)
    for row, count in enumerate(of_rows):
        result[row, count:] = result[row, count - 1]
    return result
