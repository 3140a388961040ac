"""A power distribution network of chip and package, and its impedance matrix in closed form.

The chip is a uniform grid of cells. Neighbours are connected by a resistor and an inductor in
series, every cell has a lossy capacitor to ground, and a bump leads from it to the cell below in a
package plane of the same kind, which is fed from a distant source. A uniform grid has the
eigenvectors of the discrete cosine transform, so the matrix is written down without an inversion,
for a grid of any size.

The values are *effective*: they were fitted until the network gives nearly the two scores that are
known of the published chip (5.84 for 5.82, and 6.56 for 6.68). Two numbers do not identify a chip;
scores on this network are its own, and not those of the papers.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from numpy.typing import NDArray

from rl4co.envs.generator import check_count

Complex = NDArray[np.complex128]
Real = NDArray[np.float64]

#: Height of a chip cell to its width (300 µm by 225 µm): branches along rows have more impedance.
ASPECT = 1.3333


@dataclasses.dataclass(frozen=True)
class PowerGrid:
    """A grid of `rows` by `cols` cells; ohm, henry and farad.

    Attributes:
        rows: Cells in a column.
        cols: Cells in a row; cell k is in row `k // cols` and column `k % cols`.
        resistance: Of a branch between neighbours on the chip, before the aspect ratio.
        inductance: Of such a branch.
        capacitance: Of a cell to ground.
        loss_tangent: Losses of that capacitor.
        bump_resistance: From a cell to the package.
        bump_inductance: From a cell to the package.
        plane_resistance: Of a branch in the package plane.
        plane_inductance: Of a branch in the package plane.
        plane_capacitance: Of a cell of the package plane to ground.
        feed_resistance: From the whole plane to the source.
        feed_inductance: From the whole plane to the source.
    """

    rows: int = 10
    cols: int = 10
    resistance: float = 17.0
    inductance: float = 65e-12
    capacitance: float = 77e-15
    loss_tangent: float = 0.05
    bump_resistance: float = 0.70
    bump_inductance: float = 590e-12
    plane_resistance: float = 0.002
    plane_inductance: float = 10e-12
    plane_capacitance: float = 0.1e-12
    feed_resistance: float = 0.30
    feed_inductance: float = 210e-12

    def __post_init__(self) -> None:
        check_count("rows", self.rows)
        check_count("cols", self.cols)

    @property
    def num_cells(self) -> int:
        """Number N of cells."""
        return self.rows * self.cols

    def impedance(self, frequency: Real) -> Complex:
        """Impedance matrices of all cells against ground.

        $$Z = Q \\, \\mathrm{diag}(1 / d_k) \\, Q^T, \\quad
          d_k = \\frac{\\lambda^h_k}{a z} + \\frac{a \\lambda^v_k}{z} + y
                + \\Big(z_b + \\frac{1}{y_k}\\Big)^{-1}, \\quad
          y_k = \\frac{\\lambda^h_k + \\lambda^v_k}{z_p} + y_p + \\frac{1}{N z_s}$$

        with the cosine vectors Q, eigenvalues $\\lambda$ of paths, the aspect ratio a, impedances z
        of branches, bumps (b), plane (p) and source (s), and admittances y to ground.

        Args:
            frequency: In hertz `[F]`.

        Returns:
            `[F, N, N]`, symmetric.
        """
        s = 2j * np.pi * frequency[:, None]  # [F, 1]
        along_rows = np.tile(_path_eigenvalues(self.cols), self.rows)  # [N]
        along_cols = np.repeat(_path_eigenvalues(self.rows), self.cols)  # [N]
        branch = self.resistance + s * self.inductance
        bump = self.bump_resistance + s * self.bump_inductance
        plane = self.plane_resistance + s * self.plane_inductance
        feed = self.feed_resistance + s * self.feed_inductance
        below = (along_rows + along_cols) / plane + s * self.plane_capacitance
        below = below + 1 / (self.num_cells * feed)  # [F, N]
        admittance = (
            along_rows / (ASPECT * branch)
            + ASPECT * along_cols / branch
            + s * self.capacitance * (1 - 1j * self.loss_tangent)
            + 1 / (bump + 1 / below)
        )
        vectors = np.kron(_path_vectors(self.rows), _path_vectors(self.cols))  # [N, N]
        scaled = vectors / admittance[:, None, :]  # [F, N, N]
        # Two real products: numpy has none of a complex and a real matrix.
        return scaled.real @ vectors.T + 1j * (scaled.imag @ vectors.T)


@functools.lru_cache(maxsize=8)
def cached_impedance(grid: PowerGrid, frequency: tuple[float, ...]) -> Complex:
    """:meth:`PowerGrid.impedance`, computed once in a process; not to be written to."""
    impedance = grid.impedance(np.array(frequency))
    impedance.flags.writeable = False
    return impedance


def _path_eigenvalues(size: int) -> Real:
    """Eigenvalues of the Laplacian of a path: $2 - 2 \\cos(\\pi k / n)$."""
    return 2.0 - 2.0 * np.cos(np.pi * np.arange(size) / size)


def _path_vectors(size: int) -> Real:
    """Its eigenvectors as columns, those of the discrete cosine transform (type II)."""
    index = np.arange(size)
    vectors = np.cos(np.pi * np.outer(index + 0.5, index) / size) * np.sqrt(2.0 / size)
    vectors[:, 0] /= np.sqrt(2.0)
    return vectors
