"""Data files: what is written comes back, nothing is half written, bad files are rejected."""

from __future__ import annotations

import errno
import os
import pickle

from pathlib import Path

import numpy as np
import pytest
import torch

from numpy.lib import format
from tensordict import TensorDict

import rl4co.data.io as io_module

from rl4co.core import memory
from rl4co.core.errors import ConfigError, FileFormatError, UnsupportedError, WriteError
from rl4co.data import load_npz_to_tensordict, save_tensordict_to_npz
from rl4co.data.formats.shop_files import read_l2d


@pytest.fixture
def instances() -> TensorDict:
    """Three instances with keys of several types and shapes."""
    return TensorDict(
        {
            "locs": torch.rand(3, 4, 2),
            "capacity": torch.full((3, 1), 30.0),
            "job": torch.arange(3),
            "pad_mask": torch.tensor([[True, False]] * 3),
        },
        batch_size=[3],
    )


@pytest.mark.parametrize("compress", [False, True])
def test_round_trip(instances: TensorDict, tmp_path: Path, compress: bool):
    """Values, dtypes and the batch size survive."""
    path = save_tensordict_to_npz(instances, tmp_path / "data.npz", compress=compress)
    assert path == tmp_path / "data.npz"
    loaded = load_npz_to_tensordict(path)
    assert loaded.batch_size == (3,)
    assert set(loaded.keys()) == set(instances.keys())
    for key, value in instances.items():
        assert loaded[key].dtype == value.dtype
        assert torch.equal(loaded[key], value)


def test_round_trip_of_one_instance(tmp_path: Path):
    """Batch size 1 stays an axis."""
    path = save_tensordict_to_npz(TensorDict({"x": torch.rand(1)}, [1]), tmp_path / "one")
    assert load_npz_to_tensordict(path).batch_size == (1,)


def test_any_key_can_be_written(tmp_path: Path):
    """Also those that are parameters of numpy's function."""
    td = TensorDict({"file": torch.rand(2), "allow_pickle": torch.rand(2)}, [2])
    loaded = load_npz_to_tensordict(save_tensordict_to_npz(td, tmp_path / "x.npz"))
    assert torch.equal(loaded["file"], td["file"])
    assert torch.equal(loaded["allow_pickle"], td["allow_pickle"])


def test_compression_makes_files_smaller(tmp_path: Path):
    """Zeros compress well."""
    td = TensorDict({"x": torch.zeros(1000)}, [1000])
    plain = save_tensordict_to_npz(td, tmp_path / "plain.npz")
    small = save_tensordict_to_npz(td, tmp_path / "small.npz", compress=True)
    assert small.stat().st_size < plain.stat().st_size / 2


def test_numpy_reads_and_writes_the_same_files(instances: TensorDict, tmp_path: Path):
    """The format is plain npz in both directions."""
    path = save_tensordict_to_npz(instances, tmp_path / "ours.npz")
    with np.load(path, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["locs"], instances["locs"].numpy())
    np.savez(tmp_path / "theirs.npz", locs=np.ones((2, 3, 2)))
    assert load_npz_to_tensordict(tmp_path / "theirs.npz")["locs"].shape == (2, 3, 2)


def test_equal_data_gives_equal_files(instances: TensorDict, tmp_path: Path):
    """No time stamps: a checksum identifies a data set."""
    first = save_tensordict_to_npz(instances, tmp_path / "a.npz")
    second = save_tensordict_to_npz(instances, tmp_path / "b.npz")
    assert first.read_bytes() == second.read_bytes()


def test_suffix_may_be_left_out_and_folders_are_made(instances: TensorDict, tmp_path: Path):
    """`data/tsp/set.v1` means `data/tsp/set.v1.npz`, for writing and reading."""
    path = save_tensordict_to_npz(instances, tmp_path / "new" / "set.v1")
    assert path == tmp_path / "new" / "set.v1.npz"
    assert load_npz_to_tensordict(tmp_path / "new" / "set.v1").batch_size == (3,)


def test_precision_on_disk(tmp_path: Path):
    """float64 is read as float32; bfloat16, which numpy lacks, is written as float32."""
    np.savez(tmp_path / "double.npz", x=np.array([0.1, 0.2]), n=np.array([1, 2]))
    loaded = load_npz_to_tensordict(tmp_path / "double.npz")
    assert loaded["x"].dtype == torch.float32
    assert loaded["n"].dtype == torch.int64
    path = save_tensordict_to_npz(
        TensorDict({"x": torch.ones(2, dtype=torch.bfloat16)}, [2]), tmp_path / "half.npz"
    )
    assert load_npz_to_tensordict(path)["x"].dtype == torch.float32


def test_foreign_byte_order_is_read(tmp_path: Path):
    """Big-endian files are legal."""
    np.savez(tmp_path / "big.npz", x=np.array([1, 2], dtype=">i4"))
    assert load_npz_to_tensordict(tmp_path / "big.npz")["x"].tolist() == [1, 2]


def test_parameters_and_views_are_written_by_value(tmp_path: Path):
    """Tensors that require a gradient or are not contiguous are fine, and stay as they are."""
    x = torch.rand(2, 3, requires_grad=True)
    td = TensorDict({"x": x, "y": torch.rand(3, 2).T}, [2])
    loaded = load_npz_to_tensordict(save_tensordict_to_npz(td, tmp_path / "v.npz"))
    assert torch.equal(loaded["y"], td["y"])
    assert td["x"].requires_grad


# ---------------------------------------------------------------- atomic writing


def test_failed_write_leaves_the_old_file(
    instances: TensorDict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An error in the middle of writing neither damages the file nor leaves rubbish behind."""
    path = save_tensordict_to_npz(instances, tmp_path / "data.npz")
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(io_module.np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        save_tensordict_to_npz(instances[:1], path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["data.npz"]


def test_folder_that_cannot_be_written_to(instances: TensorDict, tmp_path: Path):
    """The file that was asked for, the system's reason and what to do; no temporary name."""
    (tmp_path / "file").write_text("not a folder")
    path = tmp_path / "file" / "data.npz"
    with pytest.raises(WriteError) as caught:
        save_tensordict_to_npz(instances, path)
    assert str(caught.value).startswith(f"expected to write {path}, got: ")
    assert str(caught.value).endswith("; choose a folder that can be written to")
    assert isinstance(caught.value, OSError) and caught.value.filename == str(path)


def test_full_disk(instances: TensorDict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The system's error for it names no file; ours does, and the old one is intact."""
    path = save_tensordict_to_npz(instances, tmp_path / "data.npz")
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteError, match=r"data\.npz, got: .*; free disk space$") as caught:
        save_tensordict_to_npz(instances[:1], path)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["data.npz"]


def test_file_appears_only_when_complete(
    instances: TensorDict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """While arrays are being written, the final name does not exist."""
    seen = []
    write = io_module.np.lib.format.write_array

    def spy(*args, **kwargs):
        seen.append((tmp_path / "data.npz").exists())
        write(*args, **kwargs)

    monkeypatch.setattr(io_module.np.lib.format, "write_array", spy)
    save_tensordict_to_npz(instances, tmp_path / "data.npz")
    assert seen == [False] * 4
    assert os.listdir(tmp_path) == ["data.npz"]


def test_what_cannot_be_written_is_rejected(tmp_path: Path):
    """Nested data and instances without batch axis, before any file is made."""
    nested = TensorDict({"a": TensorDict({"b": torch.ones(2)}, [2])}, [2])
    with pytest.raises(UnsupportedError, match="'a'"):
        save_tensordict_to_npz(nested, tmp_path / "x.npz")
    with pytest.raises(ConfigError, match="unsqueeze"):
        save_tensordict_to_npz(TensorDict({"a": torch.ones(2)}, []), tmp_path / "x.npz")
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- rejected files


def test_missing_file(tmp_path: Path):
    """The message has the path and what to do."""
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz.*generate_dataset"):
        load_npz_to_tensordict(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.95])
def test_truncated_file(tmp_path: Path, keep: float, compress: bool):
    """Cut at any point, the file is rejected by name."""
    td = TensorDict({"locs": torch.rand(200, 2), "demand": torch.rand(200)}, [200])
    path = save_tensordict_to_npz(td, tmp_path / "cut.npz", compress=compress)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(FileFormatError, match=r"cut\.npz.*save_tensordict_to_npz"):
        load_npz_to_tensordict(path)


def test_numbers_are_counted_before_room_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A header that announces more than there is; a small file of more numbers than memory."""
    path = tmp_path / "huge.npy"
    header = {"descr": "<i8", "fortran_order": False, "shape": (10**9, 2, 10, 10)}
    for version, write in ((1, format.write_array_header_1_0), (2, format.write_array_header_2_0)):
        with path.open("wb") as file:
            write(file, header)
        assert path.read_bytes()[6] == version
        with pytest.raises(FileFormatError, match="announces 1600000000000 bytes"):
            read_l2d(path)
    td = TensorDict({"x": torch.zeros(1, 10**6)}, [1])
    path = save_tensordict_to_npz(td, tmp_path / "zeros.npz", compress=True)
    monkeypatch.setattr(memory, "physical_memory", lambda: 10**6)
    with pytest.raises(FileFormatError, match=r"'x'.*more than the memory"):
        load_npz_to_tensordict(path)


def test_damaged_array_is_named(tmp_path: Path):
    """A flipped byte in the data fails the archive's checksum; the key is in the message."""
    td = TensorDict({"locs": torch.rand(200, 2)}, [200])
    path = save_tensordict_to_npz(td, tmp_path / "flip.npz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(FileFormatError, match=r"flip\.npz \(key 'locs'"):
        load_npz_to_tensordict(path)


def test_foreign_files(tmp_path: Path):
    """Text, a single array, an empty archive."""
    (tmp_path / "text.npz").write_text("not an archive")
    np.save(tmp_path / "array.npy", np.ones(3))
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(FileFormatError, match=r"text\.npz"):
        load_npz_to_tensordict(tmp_path / "text.npz")
    with pytest.raises(FileFormatError, match=r"array\.npy.*no archive"):
        load_npz_to_tensordict(tmp_path / "array.npy")
    with pytest.raises(FileFormatError, match=r"empty\.npz.*it is empty"):
        load_npz_to_tensordict(tmp_path / "empty.npz")


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (os.environ["BOMB_TARGET"],)


def test_opening_a_file_never_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Object arrays and pickles are rejected before anything in them is executed."""
    target = tmp_path / "trace"
    monkeypatch.setenv("BOMB_TARGET", str(target))
    np.savez(tmp_path / "objects.npz", locs=np.ones(1), evil=np.array([Bomb()], dtype=object))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileFormatError, match=r"objects\.npz \(key 'evil'") as caught:
        load_npz_to_tensordict(tmp_path / "objects.npz")
    assert "allow_pickle" not in str(caught.value), "advice to run the code"
    with pytest.raises(FileFormatError, match=r"pickle\.npz"):
        load_npz_to_tensordict(tmp_path / "pickle.npz")
    assert not target.exists()


def test_text_arrays_are_rejected(tmp_path: Path):
    """Only numbers become tensors."""
    np.savez(tmp_path / "names.npz", name=np.array(["a", "b"]))
    with pytest.raises(FileFormatError, match=r"'name'.*<U1"):
        load_npz_to_tensordict(tmp_path / "names.npz")


@pytest.mark.parametrize("other", [np.ones(3), np.float32(1.0)])
def test_disagreeing_lengths_are_rejected(tmp_path: Path, other):
    """Two instances of one key, three (or no axis at all) of another."""
    np.savez(tmp_path / "odd.npz", locs=np.ones((2, 4, 2)), demand=other)
    with pytest.raises(FileFormatError, match=r"odd\.npz.*'locs': 2, 'demand': (3|None)"):
        load_npz_to_tensordict(tmp_path / "odd.npz")


def test_expected_keys(instances: TensorDict, tmp_path: Path):
    """The data set of another problem is rejected; both kinds of difference are listed."""
    path = save_tensordict_to_npz(instances.select("locs", "job"), tmp_path / "d.npz")
    load_npz_to_tensordict(path, expected_keys={"locs", "job"})
    load_npz_to_tensordict(path, expected_keys=["locs"], optional_keys=["job", "matrix"])
    with pytest.raises(FileFormatError, match=r"missing: \['demand'\], unexpected: \['job'\]"):
        load_npz_to_tensordict(path, expected_keys={"locs": "n 2", "demand": "n"})
    with pytest.raises(FileFormatError, match=r"missing: none, unexpected: \['job'\]"):
        load_npz_to_tensordict(path, expected_keys={"locs"})
    with pytest.raises(FileFormatError, match=r"keys \['locs'\] \(and perhaps \['matrix'\]\) in"):
        load_npz_to_tensordict(path, expected_keys={"locs"}, optional_keys={"matrix"})
