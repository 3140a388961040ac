"""One limit for all inputs: plain and compressed files, archives, arrays and the standard input."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rl4co.core import memory
from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.data import load_npz_to_tensordict, read_instance
from rl4co.data.formats.shop_files import read_l2d
from rl4co.data.size_limit import DEFAULT_LIMIT, VARIABLE, input_limit, read_limited
from rl4co.envs import DPPEnv
from rl4co.models.original_weights.files import read_weights

SQUARE = b'{"coordinates": [[0, 0], [0, 3], [4, 3], [4, 0]]}'


@pytest.mark.parametrize("name", ["large.vrp", "large.npy"])
def test_large_files_are_rejected_unread(tmp_path: Path, name: str):
    """By their size; nothing is allocated for them."""
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(DEFAULT_LIMIT + 1)
    tracemalloc.start()
    with pytest.raises(FileFormatError, match=VARIABLE):
        read_instance(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_archives_are_rejected_before_they_expand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A few kilobytes that announce (and hold) more than the limit."""
    monkeypatch.setenv(VARIABLE, "100MB")
    path = tmp_path / "bomb.npz"
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (1, 30_000_000)}
    np.lib.format.write_array_header_1_0(header, fields)
    zeros = bytes(2_400_000)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("locs.npy", "w", force_zip64=True) as entry,
    ):
        entry.write(header.getvalue())
        for _ in range(50):
            entry.write(zeros)
    tracemalloc.start()
    with pytest.raises(FileFormatError, match=VARIABLE):
        load_npz_to_tensordict(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_the_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It counts bytes after decompression, of every kind of input."""
    plain, packed, arrays = (tmp_path / name for name in ("a.json", "b.json.gz", "c.npz"))
    plain.write_bytes(SQUARE)
    packed.write_bytes(gzip.compress(SQUARE))
    np.savez(arrays, locs=np.zeros((1, 2, 2), np.float32))
    np.save(tmp_path / "d.npy", np.ones((1, 2, 1, 1), np.int64))
    readers = {
        plain: read_instance, packed: read_instance, arrays: load_npz_to_tensordict,
        tmp_path / "d.npy": read_l2d,
    }  # fmt: skip
    for limit, is_enough in (("1 KiB", True), (str(len(SQUARE) - 1), False)):
        monkeypatch.setenv(VARIABLE, limit)
        for path, read in readers.items():
            if is_enough:
                read(path)
            else:
                with pytest.raises(FileFormatError, match=VARIABLE):
                    read(path)


def read_chip(path: Path) -> None:
    DPPEnv(generator_params={"chip_file": path})


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("large.npz", read_chip),
        ("large.npy", read_chip),
        ("large.npz", partial(read_weights, method="POMO")),
    ],
)
def test_chips_and_original_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reader: Callable[[Path], object]
):
    """Readers of arrays outside this package check the limit, too."""
    path = tmp_path / name
    impedance = np.ones((2, 100, 100), complex)
    if path.suffix == ".npz":
        np.savez_compressed(path, impedance=impedance)
    else:
        np.save(path, impedance)
    monkeypatch.setenv(VARIABLE, "300KB")
    assert path.suffix == ".npy" or path.stat().st_size < 300_000
    with pytest.raises(FileFormatError, match=VARIABLE):
        reader(path)


def test_streams_without_an_end(monkeypatch: pytest.MonkeyPatch):
    """Reading stops at the limit."""
    monkeypatch.setenv(VARIABLE, "3MB")
    with open("/dev/zero", "rb") as endless, pytest.raises(FileFormatError, match="3,000,000"):
        read_limited(endless, "standard input")


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_more_lines_than_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes
):
    """Millions of short lines need a hundred times their size as objects."""
    monkeypatch.setattr(memory, "physical_memory", lambda: 1e6)
    (tmp_path / "yes").write_bytes(b"y" + end * 100_000)
    with pytest.raises(FileFormatError, match="lines that fit into memory"):
        read_instance(tmp_path / "yes")


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", DEFAULT_LIMIT), ("8GiB", 2**33), ("500 mb", 500_000_000), ("4096", 4096), ("2K", 2000)],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, limit: int):
    """Binary and decimal prefixes."""
    monkeypatch.setenv(VARIABLE, text)
    assert input_limit() == limit


@pytest.mark.parametrize("text", ["much", "-1", "0", "1.5G", "GiB"])
def test_wrong_sizes(monkeypatch: pytest.MonkeyPatch, text: str):
    """What is no size is not ignored."""
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigError, match=VARIABLE):
        input_limit()
