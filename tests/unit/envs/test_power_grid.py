"""The simulated power network: the closed form against nodal analysis; files of other chips."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.envs import DPPEnv, DPPGenerator
from rl4co.envs.eda import _chip
from rl4co.envs.eda._chip import Chip, published_frequencies, read_chip
from rl4co.envs.eda._power_grid import ASPECT, PowerGrid


def nodal_analysis(grid: PowerGrid, frequency: float) -> np.ndarray:
    """Impedance of the chip's cells, from the admittances of all branches, by inversion."""
    s, n = 2j * np.pi * frequency, grid.num_cells
    branch = grid.resistance + s * grid.inductance
    plane = grid.plane_resistance + s * grid.plane_inductance
    admittance = np.zeros((2 * n, 2 * n), dtype=complex)  # cells of the chip, then of the plane

    def connect(a: int, b: int, y: complex) -> None:
        admittance[[a, b], [a, b]] += y
        admittance[[a, b], [b, a]] -= y

    for cell in range(n):
        row, col = divmod(cell, grid.cols)
        if col + 1 < grid.cols:
            connect(cell, cell + 1, 1 / (ASPECT * branch))
            connect(n + cell, n + cell + 1, 1 / plane)
        if row + 1 < grid.rows:
            connect(cell, cell + grid.cols, ASPECT / branch)
            connect(n + cell, n + cell + grid.cols, 1 / plane)
        connect(cell, n + cell, 1 / (grid.bump_resistance + s * grid.bump_inductance))
        feed = n * (grid.feed_resistance + s * grid.feed_inductance)
        admittance[cell, cell] += s * grid.capacitance * (1 - 1j * grid.loss_tangent)
        admittance[n + cell, n + cell] += s * grid.plane_capacitance + 1 / feed
    return np.linalg.inv(admittance)[:n, :n]


@pytest.mark.parametrize(("rows", "cols"), [(10, 10), (3, 5), (4, 1), (1, 1)])
def test_closed_form_is_nodal_analysis(rows, cols):
    grid = PowerGrid(rows, cols)
    frequencies = np.array([0.1e9, 2.6e9, 20e9])
    expected = np.stack([nodal_analysis(grid, frequency) for frequency in frequencies])
    np.testing.assert_allclose(grid.impedance(frequencies), expected, rtol=1e-9, atol=1e-9)


def test_passive_and_symmetric_at_all_frequencies():
    """No placement can gain energy, and no pivot of an elimination vanishes."""
    impedance = Chip().impedance
    assert impedance.shape == (201, 100, 100)
    assert np.abs(impedance - impedance.transpose(0, 2, 1)).max() < 1e-12
    assert np.linalg.eigvalsh(impedance.real).min() > 0.5


def test_empty_grids_are_rejected():
    with pytest.raises(ConfigError, match="cols"):
        PowerGrid(3, 0)


# ---------------------------------------------------------------- files


@pytest.fixture
def small(tmp_path):
    """A folder with a chip of 2 x 3 cells at four frequencies."""
    frequency = np.linspace(1e9, 4e9, 4)
    np.save(tmp_path / "freq.npy", frequency)
    np.save(tmp_path / "chip.npy", PowerGrid(2, 3).impedance(frequency))
    np.save(tmp_path / "decap.npy", np.full((4, 1, 1), 3.0 + 4.0j))
    return tmp_path


NAMES = {"chip_file": "chip.npy", "freq_file": "freq.npy", "decap_file": "decap.npy"}


def test_another_chip_is_taken_with_a_remark(small):
    with pytest.warns(UserWarning, match="is not the published chip"):
        chip = read_chip(small, **NAMES, grid_size=(2, 3))
    assert (chip.grid.rows, chip.grid.cols) == (2, 3)
    assert not chip.is_simulated
    np.testing.assert_array_equal(np.abs(chip.decap), 5.0)
    np.testing.assert_allclose(chip.weight, [0.1, 0.05, 0.1 / 3, 0.025])


@pytest.mark.filterwarnings("ignore:.*is not the published chip")
def test_one_archive_for_all(small, tmp_path):
    arrays = {key: np.load(small / f"{key}.npy") for key in ("chip", "freq", "decap")}
    np.savez(tmp_path / "all.npz", impedance=arrays["chip"], frequency=arrays["freq"])
    params = {"chip_file": tmp_path / "all.npz", "grid_size": [2, 3], "num_keepout_max": 1}
    env = DPPEnv(generator_params=params)
    reset = env.reset(batch_size=2)
    assert reset["locs"].shape == (2, 6, 2)
    assert env.max_decaps == 1


def test_one_frequency_will_do(tmp_path):
    np.save(tmp_path / "freq.npy", np.array([1e9]))
    np.save(tmp_path / "decap.npy", np.array([[[2.0 - 1.0j]]]))
    chip = read_chip(freq_file=tmp_path / "freq.npy", decap_file=tmp_path / "decap.npy")
    assert chip.impedance.shape == (1, 100, 100)


def save_another_chip(folder, **changes):
    for name, change in changes.items():
        np.save(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")))


def asymmetric(chip):
    chip[:, 0, 1] += 1.0
    return chip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chip": lambda z: z[0]}, r"\[frequencies, cells, cells\]"),
        ({"chip": lambda z: z[:, :, :-1]}, r"\[frequencies, cells, cells\]"),
        ({"chip": lambda z: z.real}, "a complex array"),
        ({"chip": lambda z: z[:-1]}, "at 4 frequencies .* got 3; give the frequencies"),
        ({"chip": lambda z: z * np.nan}, "finite"),
        ({"chip": asymmetric}, "symmetric"),
        ({"freq": lambda f: f[:-1]}, "at 3 frequencies"),
        ({"freq": lambda f: -f}, "positive frequencies"),
        ({"freq": lambda f: f[:0]}, "positive frequencies"),
        ({"freq": lambda f: f + 1j}, "positive frequencies .* got complex128"),
        ({"freq": lambda f: f.astype(str)}, "positive frequencies .* got <U"),
        ({"decap": lambda d: d[:-1]}, "decap at 4 frequencies"),
        ({"decap": lambda d: d.astype(str)}, "decap at 4 frequencies .* got <U"),
        ({"decap": lambda d: d * np.nan}, "decap at 4 frequencies"),
    ],
)  # fmt: skip
def test_invalid_chip_files_are_rejected(small, changes, message):
    save_another_chip(small, **changes)
    with pytest.raises(FileFormatError, match=message):
        read_chip(small, **NAMES, grid_size=(2, 3))


def test_cells_that_form_no_grid_are_rejected(small):
    with pytest.raises(ConfigError, match=r"a square grid .* got 6 cells"):
        read_chip(small, **NAMES)
    with pytest.raises(ConfigError, match="expected 3 x 3"):
        read_chip(small, **NAMES, grid_size=(3, 3))


def test_published_names_mean_the_published_files(small):
    """Another file under the published name passes only if it is named explicitly."""
    shutil.copy(small / "chip.npy", small / "10x10_pkg_chip.npy")
    with pytest.raises(FileFormatError, match=r"SHA-256.*chip_file='10x10_pkg_chip.npy'"):
        read_chip(small, freq_file="freq.npy", grid_size=(2, 3))
    with pytest.warns(UserWarning, match="is not the published chip"):
        read_chip(small, "10x10_pkg_chip.npy", freq_file="freq.npy", grid_size=(2, 3))


def test_the_published_chip_is_recognised(small, monkeypatch):
    """By its checksum alone, and without a remark."""
    name = "10x10_pkg_chip.npy"
    np.save(small / name, PowerGrid().impedance(published_frequencies()))
    checksum = _chip._checksum(small / name)
    files = {**_chip.PUBLISHED_FILES, "chip_file": (name, checksum)}
    monkeypatch.setattr(_chip, "PUBLISHED_FILES", files)
    assert read_chip(small).source == "published"


def test_published_decap_and_frequencies_are_the_closed_forms(shared_dir):
    folder = shared_dir / "data" / "eda"
    for argument, (name, checksum) in list(_chip.PUBLISHED_FILES.items())[1:]:
        assert _chip._checksum(folder / name) == checksum, argument
    chip = read_chip(None, decap_file=folder / "01nF_decap.npy", freq_file=folder / "freq_201.npy")
    assert chip.is_simulated
    np.testing.assert_allclose(chip.frequency, published_frequencies(), rtol=1e-12)
    np.testing.assert_allclose(chip.decap, Chip().decap, atol=1e-6)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="leave out data_dir to simulate"):
        DPPGenerator(data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match="chip_file"):
        DPPGenerator(chip_file=tmp_path / "nothing.npy")
    with pytest.raises(ConfigError, match="nothing is downloaded"):
        DPPGenerator(url="https://example.org/data.zip")
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(FileFormatError, match="expected arrays"):
        DPPGenerator(chip_file=tmp_path / "text.npy")


def test_copies_leave_conversions_behind():
    """16 MB of tensors would travel to every worker process."""
    chip = Chip()
    chip.arrays()
    assert len(pickle.dumps(chip)) < 20_000
    assert pickle.loads(pickle.dumps(chip)).impedance is chip.impedance
