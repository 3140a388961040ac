"""Costs per edge: every rule of rounding, every type of distance, every form of a matrix."""

from __future__ import annotations

import math

from pathlib import Path

import numpy as np
import pytest

from rl4co.core import memory
from rl4co.core.errors import UnsupportedError
from rl4co.data.formats import EdgeCosts, distances, read_instance
from rl4co.data.formats.distances import ROUNDINGS, euclidean, get_rounding

SYMMETRIC = np.array([[0, 1, 2, 3], [1, 0, 4, 5], [2, 4, 0, 6], [3, 5, 6, 0]], dtype=float)
ASYMMETRIC = np.array([[9, 1, 2], [3, 9, 4], [5, 6, 9]], dtype=float)

#: EDGE_WEIGHT_FORMAT → the numbers of SYMMETRIC, with lines broken where they should not matter.
FORMATS = {
    "FULL_MATRIX": "0 1 2\n3 1 0 4 5 2 4 0\n6 3 5 6 0",
    "UPPER_ROW": "1 2 3\n4 5\n6",
    "LOWER_ROW": "1\n2 4\n3 5 6",
    "UPPER_DIAG_ROW": "0 1 2 3\n0 4 5\n0 6\n0",
    "LOWER_DIAG_ROW": "0 1 0 2 4 0\n3 5 6 0",
    "UPPER_COL": "1 2 4\n3 5 6",
    "LOWER_COL": "1 2 3 4\n5 6",
    "UPPER_DIAG_COL": "0\n1 0\n2 4 0\n3 5 6 0",
    "LOWER_DIAG_COL": "0 1 2 3\n0 4 5\n0 6 0",
}

#: EDGE_WEIGHT_TYPE → two points and the cost between them.
TYPES = [
    ("EUC_2D", (0, 0), (1, 1), 1),  # 1.41
    ("EUC_2D", (0, 0), (0.9, 1.2), 2),  # 1.5: halves go up, to odd numbers and to even ones
    ("EUC_2D", (0, 0), (0, 2.5), 3),
    ("CEIL_2D", (0, 0), (1, 1), 2),
    ("CEIL_2D", (0, 0), (3, 4), 5),
    ("FLOOR_2D", (0, 0), (1.5, 1.5), 2),  # 2.12
    ("EXACT_2D", (0, 0), (1, 1), math.sqrt(2)),
    ("MAN_2D", (0, 0), (1.4, -1.3), 3),  # 2.7
    ("MAX_2D", (0, 0), (1.4, -1.3), 1),
    ("ATT", (6734, 1453), (2233, 10), 1495),  # att48: sqrt(22341250 / 10) = 1494.7
    ("ATT", (0, 0), (10, 0), 4),  # sqrt(10) = 3.16, nearest is 3, which is below
    ("GEO", (38.24, 20.42), (39.57, 26.15), 509),  # ulysses16
    ("GEO", (38.24, 20.42), (40.56, 25.32), 501),
    ("GEO", (38.24, 20.42), (36.26, 23.12), 312),
    ("GEO", (-33.52, 151.13), (-33.52, 151.13), 1),  # two nodes at one place
]


def tsp(folder: Path, header: str, body: str, size: int) -> Path:
    path = folder / "tiny.tsp"
    path.write_text(f"NAME : tiny\nTYPE : TSP\nDIMENSION : {size}\n{header}\n{body}\nEOF\n")
    return path


@pytest.mark.parametrize(("kind", "a", "b", "cost"), TYPES)
def test_types_of_distances(tmp_path: Path, kind: str, a: tuple, b: tuple, cost: float):
    """Costs worked out by hand, or known from the literature."""
    body = f"NODE_COORD_SECTION\n1 {a[0]} {a[1]}\n2 {b[0]} {b[1]}"
    instance = read_instance(tsp(tmp_path, f"EDGE_WEIGHT_TYPE : {kind}", body, 2))
    assert instance.costs.tolist() == [[0, cost], [cost, 0]]
    assert instance.cost([0, 1]) == 2 * cost


@pytest.mark.parametrize("layout", FORMATS)
def test_formats_of_matrices(tmp_path: Path, layout: str):
    """The numbers are one stream, whatever the lines are."""
    header = f"EDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {layout} "
    body = f"EDGE_WEIGHT_SECTION\n{FORMATS[layout]}"
    instance = read_instance(tsp(tmp_path, header, body, 4))
    np.testing.assert_array_equal(instance.costs, SYMMETRIC)
    assert instance.problem == "tsp" and instance.coordinates is None


def test_an_asymmetric_matrix_goes_from_row_to_column(tmp_path: Path):
    """Its diagonal, which is never travelled, costs nothing."""
    path = tmp_path / "tiny.atsp"
    path.write_text(
        "NAME: tiny\nTYPE: ATSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
        "EDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n9 1 2 3 9 4 5 6 9\nEOF\n"
    )
    instance = read_instance(path)
    assert instance.problem == "atsp"
    assert instance.cost([0, 1, 2]) == 1 + 4 + 5
    assert instance.cost([0, 2, 1]) == 2 + 6 + 3
    assert np.diag(instance.costs).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "distance", "cost"),
    [
        ("exact", 2.678, 2.678),
        ("nearest", 2.5, 3.0),
        ("up", 2.01, 3.0),
        ("down", 2.99, 2.0),
        ("one_decimal", 2.678, 2.6),
        ("next", 2.0, 3.0),
    ],
)
def test_roundings(name: str, distance: float, cost: float):
    """One distance each."""
    assert get_rounding(name).apply(np.array([distance])).tolist() == [cost]
    assert set(ROUNDINGS) == {"exact", "nearest", "up", "down", "one_decimal", "next"}


def test_rounding_is_per_edge():
    """Four edges of length 1.4 cost 4 and not 6; one decimal of 0.1 adds up without noise."""
    square = np.array([[0, 0], [0, 1.4], [1.4, 1.4], [1.4, 0]])
    tour = np.arange(4)
    costs = EdgeCosts.of_points(square, rounding="nearest")
    assert costs.total(tour, np.roll(tour, -1)) == 4
    line = np.stack([0.1 * np.arange(11), np.zeros(11)], axis=1)
    steps = np.arange(10)
    tenths = EdgeCosts.of_points(line * 1.0001, rounding="one_decimal")
    assert tenths.total(steps, steps + 1) == 1.0  # ten times 0.1 added up as floats is less


def test_left_at_one_place_and_reached_at_another():
    """A depot with a start and an end: a path, although tours are closed."""
    points = np.array([[0.0, 0], [10, 0], [3, 4]])
    costs = EdgeCosts.of_points(points).take(np.array([0, 2]), np.array([1, 2]))
    assert costs(np.array([0]), np.array([1])).tolist() == [5.0]
    assert costs(np.array([1]), np.array([0])).tolist() == [math.sqrt(65)]
    assert not costs.is_symmetric and not costs.is_euclidean
    assert costs.all_pairs()[0, 0] == 0


def test_pairs_agree_with_the_matrix():
    """Costs of single edges, without the matrix, are its entries."""
    rng = np.random.default_rng(1)
    costs = EdgeCosts.of_points(rng.uniform(0, 99, (20, 2)), euclidean, "nearest")
    origin, destination = rng.integers(0, 20, (2, 50))
    np.testing.assert_array_equal(
        costs(origin, destination), costs.all_pairs()[origin, destination]
    )


def test_matrices_are_made_in_blocks_and_rejected_beyond_memory(monkeypatch: pytest.MonkeyPatch):
    """The blocks make no difference; what does not fit is rejected before it is allocated."""
    costs = EdgeCosts.of_points(np.random.default_rng(2).uniform(0, 99, (30, 2)))
    at_once = costs.all_pairs()
    monkeypatch.setattr(distances, "_BLOCK", 70)  # two rows at once
    np.testing.assert_array_equal(costs.all_pairs(), at_once)
    monkeypatch.setattr(memory, "physical_memory", lambda: 8 * 30 * 30 - 1)
    with pytest.raises(UnsupportedError, match="fit into memory, got 30 nodes"):
        costs.all_pairs()


def test_decimals_of_matrices():
    """Whole numbers are recognised, so that sums of them are whole."""
    assert EdgeCosts.of_matrix(SYMMETRIC).decimals == 0
    assert EdgeCosts.of_matrix(SYMMETRIC / 3).decimals is None
    assert not EdgeCosts.of_matrix(ASYMMETRIC).is_symmetric


def test_a_matrix_cannot_be_rounded_otherwise():
    """There are no distances to round."""
    with pytest.raises(UnsupportedError, match="leave out the rounding"):
        EdgeCosts.of_matrix(SYMMETRIC).rounded("exact")
