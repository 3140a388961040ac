"""`Chip`: what the electronic design problems are about, simulated or read from files.

A chip is its impedance matrix at some frequencies, together with the impedance of the decoupling
capacitors (decaps) that can be placed on it. The published files can be used if one has them; they
are recognised by their checksums. Without any file the chip is simulated, see
:mod:`rl4co.envs.eda._power_grid`.
"""

from __future__ import annotations

import hashlib
import math
import warnings
import zipfile

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from numpy.typing import NDArray
from torch import Tensor

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.data.io import read_npy, read_npz
from rl4co.envs.eda._power_grid import Complex, PowerGrid, Real, cached_impedance

#: The published files and their SHA-256.
PUBLISHED_FILES: Mapping[str, tuple[str, str]] = {
    "chip_file": (
        "10x10_pkg_chip.npy",
        "f8346fc527f431b9ae5667c8b2338707ed05925e2cad7ef456d1e5272f130065",
    ),
    "decap_file": (
        "01nF_decap.npy",
        "3304fc25c5a0e7ba1658b7209f0e3272dcb22045d029a397eb529310b5cdd9c0",
    ),
    "freq_file": (
        "freq_201.npy",
        "f5e7005ba6c9359dc7c8ae6d2c33b97f79811ae011f12b1b574a53e3e1ccae85",
    ),
}

#: The published decap: 0.1 nF with a series resistance, in farad and ohm.
DECAP_CAPACITANCE, DECAP_RESISTANCE = 1e-10, 0.1436

#: Largest relative asymmetry of an impedance matrix that passes for rounding.
_ASYMMETRY = 1e-3


def published_frequencies() -> Real:
    """The 201 frequencies of the published files, in hertz."""
    return np.linspace(0.1e9, 20e9, 201)


class ChipTensors(NamedTuple):
    """A chip as tensors.

    Attributes:
        impedance: `[F, N, N]`, complex.
        decap: Magnitude of a decap's impedance `[F]`.
        weight: Weights of the frequencies in a score `[F]`.
    """

    impedance: Tensor
    decap: Tensor
    weight: Tensor


class Chip:
    """Impedances of a chip and of the decaps on it.

    Args:
        rows: Cells in a column.
        cols: Cells in a row.
        frequency: In hertz `[F]`; None takes those of the published files.
        decap: Impedance of a decap `[F]`, complex; None takes the published model.
        impedance: `[F, N, N]`, complex, symmetric; None simulates the chip.
        source: Where the impedance comes from, for messages.
    """

    def __init__(
        self,
        rows: int = 10,
        cols: int = 10,
        frequency: Real | None = None,
        decap: Complex | None = None,
        impedance: Complex | None = None,
        source: str = "simulated",
    ) -> None:
        self.grid = PowerGrid(rows, cols)
        self.frequency = published_frequencies() if frequency is None else frequency
        self.decap = _default_decap(self.frequency) if decap is None else decap
        self.source = source
        self._impedance = impedance
        self._tensors: dict[tuple[torch.device, torch.dtype], ChipTensors] = {}
        self._arrays: tuple[NDArray[np.float32], ...] | None = None
        self._others: dict[int, Chip] = {}

    @property
    def num_cells(self) -> int:
        """Number N of cells."""
        return self.grid.num_cells

    @property
    def is_simulated(self) -> bool:
        """Whether the impedance comes from the own network and not from a file."""
        return self._impedance is None

    @property
    def impedance(self) -> Complex:
        """Impedance matrices `[F, N, N]`."""
        if self._impedance is None:
            return cached_impedance(self.grid, tuple(self.frequency.tolist()))
        return self._impedance

    @property
    def weight(self) -> Real:
        """Weights of the frequencies in a score `[F]`: a tenth per gigahertz, inverted."""
        return 1e8 / self.frequency

    def can_resize(self, num_cells: int) -> bool:
        """Whether there is a chip of this kind with another number of cells."""
        square = math.isqrt(num_cells) ** 2 == num_cells
        return num_cells == self.num_cells or (self.is_simulated and square)

    def resized(self, num_cells: int) -> Chip:
        """This chip, or a simulated one of the same kind with another number of cells."""
        if num_cells == self.num_cells:
            return self
        if not self.can_resize(num_cells):
            raise ConfigError(
                f"expected instances with {self.num_cells} cells, as {self!r} has, got "
                f"{num_cells}; use an environment with a chip of that size (grid_size)"
            )
        if num_cells not in self._others:
            side = math.isqrt(num_cells)
            self._others[num_cells] = Chip(side, side, self.frequency, self.decap)
        return self._others[num_cells]

    def tensors(self, device: torch.device, dtype: torch.dtype) -> ChipTensors:
        """The chip as tensors on a device; converted once.

        Args:
            device: Where to compute.
            dtype: Precision of real numbers, float32 or float64.
        """
        key = device, dtype
        if key not in self._tensors:
            wide = torch.complex128 if dtype == torch.float64 else torch.complex64
            self._tensors[key] = ChipTensors(
                torch.tensor(self.impedance, dtype=wide, device=device),
                torch.tensor(np.abs(self.decap), dtype=dtype, device=device),
                torch.tensor(self.weight, dtype=dtype, device=device),
            )
        return self._tensors[key]

    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """What the compiled loop reads: real and imaginary part `[N, N, F]`, decap and weight."""
        if self._arrays is None:
            last = self.impedance.transpose(1, 2, 0)  # [N, N, F]
            parts = (last.real, last.imag, np.abs(self.decap), self.weight)
            self._arrays = tuple(np.ascontiguousarray(part, dtype=np.float32) for part in parts)
        return self._arrays

    def __repr__(self) -> str:
        return f"Chip({self.grid.rows} x {self.grid.cols}, {self.source})"

    def __getstate__(self) -> dict[str, Any]:
        """For copies and worker processes: conversions are made anew there."""
        return {**self.__dict__, "_tensors": {}, "_arrays": None, "_others": {}}


def _default_decap(frequency: Real) -> Complex:
    impedance = DECAP_RESISTANCE + 1 / (2j * np.pi * frequency * DECAP_CAPACITANCE)
    return impedance.astype(np.complex128)


# ---------------------------------------------------------------- files


def read_chip(
    data_dir: str | Path | None = None,
    chip_file: str | Path | None = None,
    decap_file: str | Path | None = None,
    freq_file: str | Path | None = None,
    grid_size: tuple[int, int] | None = None,
) -> Chip:
    """The chip in files, or a simulated one if no file is named.

    A folder alone means the published files, under their published names; a file among them with
    another checksum raises an error. Files that are named explicitly may be any.

    Args:
        data_dir: Folder of the files; without files by name it must have the published chip.
        chip_file: Impedance `[F, N, N]`, complex: `.npy`, or `.npz` with the key `impedance` (and
            perhaps `frequency` and `decap`).
        decap_file: Impedance of a decap `[F]` (axes of size 1 do not matter), complex: `.npy`.
        freq_file: Frequencies in hertz `[F]`: `.npy`.
        grid_size: Rows and columns of the grid; None takes 10 by 10 for a simulated chip, and a
            square for one from a file.
    """
    paths = {
        name: _find(name, data_dir, filename)
        for name, filename in {
            "chip_file": chip_file,
            "decap_file": decap_file,
            "freq_file": freq_file,
        }.items()
    }
    chip = {} if paths["chip_file"] is None else _read_arrays(paths["chip_file"], "impedance")
    for name, key in {"decap_file": "decap", "freq_file": "frequency"}.items():
        if paths[name] is not None:
            chip[key] = _read_arrays(paths[name], key)[key]
    frequency, decap = _check_frequencies(chip, paths)
    if "impedance" not in chip:
        return Chip(*(grid_size or (10, 10)), frequency=frequency, decap=decap)
    path = paths["chip_file"]
    impedance = _check_impedance(chip["impedance"], len(frequency), path)
    rows, cols = _grid_of(impedance.shape[-1], grid_size, path)
    source = "published" if _checksum(path) == PUBLISHED_FILES["chip_file"][1] else f"from {path}"
    if source != "published":
        warnings.warn(
            f"{path} is not the published chip; scores on it compare with each other alone",
            stacklevel=4,
        )
    return Chip(rows, cols, frequency, decap, impedance, source)


def _find(name: str, data_dir: str | Path | None, filename: str | Path | None) -> Path | None:
    """The file of an argument, None if there is none."""
    published, checksum = PUBLISHED_FILES[name]
    if filename is not None:
        path = Path(filename) if data_dir is None else Path(data_dir) / filename
        if not path.is_file():
            raise FileNotFoundError(
                f"expected the {name} {str(path)!r}, got no such file; correct data_dir or {name}"
            )
        return path
    if data_dir is None:
        return None
    path = Path(data_dir) / published
    if not path.is_file():
        if name != "chip_file":  # its closed form will do
            return None
        raise FileNotFoundError(
            f"expected the published chip {published!r} in data_dir {str(data_dir)!r}, got no such "
            "file; name another file in chip_file, or leave out data_dir to simulate a chip"
        )
    if _checksum(path) != checksum:
        raise FileFormatError(
            f"expected the published file with SHA-256 {checksum} under its name {str(path)!r}, "
            f"got another one; if it is the one you mean, say so: {name}={published!r}"
        )
    return path


def _checksum(path: Path | None) -> str:
    digest = hashlib.sha256()
    if path is not None:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def _read_arrays(path: Path | None, key: str) -> dict[str, NDArray[Any]]:
    """Arrays of a file: that of an `.npy` under `key`, those of an `.npz` under their names."""
    assert path is not None
    try:
        arrays = read_npz(path) if zipfile.is_zipfile(path) else {key: read_npy(path)}
    except FileFormatError:
        raise
    except (ValueError, OSError) as error:
        raise FileFormatError(
            f"expected arrays without Python objects in {path}, got: {error}; write it with "
            "numpy.save"
        ) from error
    if key not in arrays:
        raise FileFormatError(f"expected the key {key!r} in {path}, got {sorted(arrays)}")
    return arrays


def _check_frequencies(
    chip: Mapping[str, NDArray[Any]], paths: Mapping[str, Path | None]
) -> tuple[Real, Complex]:
    """Frequencies and decap impedance, which must go with each other."""
    frequency = published_frequencies()
    if "frequency" in chip:
        values = chip["frequency"]
        frequency = _along_frequencies(values, np.float64)
        if frequency.ndim != 1 or not len(frequency) or not np.all(frequency > 0):
            raise FileFormatError(
                f"expected positive frequencies [F] in {paths['freq_file'] or paths['chip_file']}, "
                f"got {values.dtype} of shape {list(values.shape)}; they are in hertz"
            )
    if "decap" not in chip:
        return frequency, _default_decap(frequency)
    values = chip["decap"]
    decap = _along_frequencies(values, np.complex128)
    if decap.shape != frequency.shape:
        raise FileFormatError(
            f"expected the impedance of a decap at {len(frequency)} frequencies in "
            f"{paths['decap_file'] or paths['chip_file']}, got {values.dtype} of shape "
            f"{list(values.shape)}; give the frequencies that belong to it in freq_file"
        )
    return frequency, decap


def _along_frequencies(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Finite numbers without axes of size 1; none where they are no such numbers."""
    if not np.can_cast(values.dtype, dtype) or not np.all(np.isfinite(values)):
        return np.empty(0, dtype)
    return np.atleast_1d(values.squeeze()).astype(dtype)


def _check_impedance(impedance: NDArray[Any], num_frequencies: int, path: Path | None) -> Complex:
    """The impedance of a file, if it can be one."""
    shape = impedance.shape
    if impedance.ndim != 3 or shape[1] != shape[2] or not np.iscomplexobj(impedance):
        raise FileFormatError(
            f"expected a complex array [frequencies, cells, cells] in {path}, got "
            f"{impedance.dtype} of shape {list(shape)}; transpose or convert it"
        )
    if shape[0] != num_frequencies:
        raise FileFormatError(
            f"expected impedances at {num_frequencies} frequencies in {path}, got {shape[0]}; give "
            "the frequencies that belong to them in freq_file"
        )
    if not np.all(np.isfinite(impedance)):
        raise FileFormatError(f"expected finite impedances in {path}, got NaN or infinity")
    asymmetry = np.abs(impedance - impedance.transpose(0, 2, 1)).max()
    if asymmetry > _ASYMMETRY * np.abs(impedance).max():
        raise FileFormatError(
            f"expected symmetric impedance matrices in {path}, got entries that differ by "
            f"{asymmetry:.3g} ohm; a network of passive parts is reciprocal"
        )
    return impedance.astype(np.complex128)


def _grid_of(
    num_cells: int, grid_size: tuple[int, int] | None, path: Path | None
) -> tuple[int, int]:
    """Rows and columns of a chip from a file."""
    side = math.isqrt(num_cells)
    rows, cols = grid_size or (side, side)
    if rows * cols != num_cells:
        wanted = f"{rows} x {cols}" if grid_size else "a square grid"
        raise ConfigError(
            f"expected {wanted} for the chip in {path}, got {num_cells} cells; give its rows and "
            "columns in grid_size"
        )
    return rows, cols
