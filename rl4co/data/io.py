"""Data sets on disk: one `.npz` archive with one array per key, instances along the first axis.

Reading never unpickles, so opening a file never runs code from it. Writing goes to a temporary name
and is renamed at the end, so a file is either complete or not there.
"""

from __future__ import annotations

import math
import os
import re
import time
import uuid
import zipfile
import zlib

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, FileFormatError, UnsupportedError, WriteError
from rl4co.core.memory import exceeds_memory
from rl4co.core.processes import has_ended, own_mark
from rl4co.data.size_limit import check_input_size

#: Errors of numpy and zipfile for files that are damaged, foreign or contain pickles.
_READ_ERRORS = (
    zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, OSError, MemoryError,
    RuntimeError,
)  # fmt: skip


#: Names of files that are being written: that of the file, the process and something unique.
_TEMPORARY = re.compile(r"\..+\.(?:(\d+-[0-9a-f]{8})-)?[0-9a-f]{32}\.tmp", re.DOTALL)
#: Seconds after which a file is no longer being written.
_ABANDONED = 24 * 3600


def save_tensordict_to_npz(
    td: TensorDictBase, path: str | os.PathLike[str], compress: bool = False
) -> Path:
    """Write the tensors of `td` to an `.npz` file.

    Args:
        td: Instances with at least one batch axis, without nested TensorDicts.
        path: File to write; the suffix `.npz` is added if missing, folders are created.
        compress: Whether to compress (smaller and slower).

    Returns:
        The path that was written.
    """
    if not td.batch_dims:
        raise ConfigError(
            "expected instances with a batch axis, got batch size []; use td.unsqueeze(0)"
        )
    arrays = {str(key): _to_array(key, value) for key, value in td.items()}
    target = _with_suffix(Path(path))
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    # Not np.savez: it takes the keys as keyword arguments and trips over one called "file".
    with atomic_write(target) as file, zipfile.ZipFile(file, "w", method) as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return target


def load_npz_to_tensordict(
    path: str | os.PathLike[str],
    expected_keys: Collection[str] | None = None,
    optional_keys: Collection[str] = (),
) -> TensorDict:
    """Read an `.npz` file into a TensorDict with batch size `[B]`.

    Args:
        path: File to read; the suffix `.npz` may be left out.
        expected_keys: Keys that the file must have; None accepts any keys.
        optional_keys: Keys that it may have on top of `expected_keys`.

    Returns:
        Tensors by key, double precision reduced to float32.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: The file is damaged or foreign, larger than the limit of
            :mod:`rl4co.data.size_limit`, has the wrong keys, contains Python objects, or its arrays
            disagree on the number of instances.
    """
    source = Path(path)
    source = source if source.is_file() else _with_suffix(source)
    if not source.is_file():
        raise FileNotFoundError(
            f"expected a data file, got no such file: {Path(path)}; check the path, or write the "
            "file with generate_default_datasets (the sets of the paper), generate_dataset or "
            "save_tensordict_to_npz"
        )
    try:
        arrays = read_npz(source)
    except FileFormatError:
        raise
    except (ValueError, OSError) as error:
        raise _unreadable(source, str(error)) from error
    if expected_keys is not None:
        _check_keys(source, set(arrays), set(expected_keys), set(optional_keys))
    tensors = {key: _to_tensor(source, key, array) for key, array in arrays.items()}
    return TensorDict(tensors, batch_size=[_common_length(source, tensors)])


@contextmanager
def atomic_write(target: Path, remedy: str | None = None) -> Iterator[IO[bytes]]:
    """File object whose content appears under `target` only if the block succeeds.

    Args:
        target: File to write; folders are created.
        remedy: What to do if that fails, see :class:`WriteError`.

    Raises:
        WriteError: The folder cannot be written to, or the disk is full.
    """
    temporary = target.with_name(f".{target.name}.{own_mark()}-{uuid.uuid4().hex}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except WriteError:  # of another file, written in the same block
        raise
    except OSError as error:
        raise WriteError(target, error, remedy) from error
    finally:
        with suppress(OSError):  # the folder may be the reason of the error
            temporary.unlink()


def remove_leftovers(folder: Path) -> None:
    """Delete the files that :func:`atomic_write` left in a folder when its process was killed.

    These are files with its names whose process has ended, or that were not written to for a day
    (of other machines, or of earlier versions, which did not name their process).
    """
    with suppress(OSError):  # a folder that cannot be listed may still be written to
        for entry in os.scandir(folder):
            named = _TEMPORARY.fullmatch(entry.name)
            if named is None:
                continue
            with suppress(OSError):  # another process is about to do the same
                if has_ended(named[1] or "") or time.time() - entry.stat().st_mtime > _ABANDONED:
                    os.unlink(entry.path)


def _with_suffix(path: Path) -> Path:
    return path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")


def _to_array(key: object, value: object) -> NDArray[np.generic]:
    if not isinstance(value, Tensor):
        raise UnsupportedError(
            f"expected tensors only, got {type(value).__name__} under {key!r}; "
            "flatten nested TensorDicts with td.flatten_keys() and drop other values"
        )
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[np.generic]]:
    """All arrays of an `.npz` archive; sizes are checked before memory is allocated.

    Args:
        path: The file.

    Raises:
        FileFormatError: The archive is larger than the limit of :mod:`rl4co.data.size_limit`.
        ValueError: The archive is damaged, empty or holds Python objects.
    """
    arrays: dict[str, NDArray[np.generic]] = {}
    key = None
    with open(path, "rb") as source:
        if not zipfile.is_zipfile(source):
            raise ValueError("it is no archive, or the end of it is missing")
        try:
            with zipfile.ZipFile(source) as archive:
                # Announced sizes: `zipfile` reads no more of an entry than its size.
                check_input_size(sum(entry.file_size for entry in archive.infolist()), path)
                for entry in archive.infolist():
                    key = entry.filename.removesuffix(".npy")
                    with archive.open(entry) as file:
                        check_array_size(file, entry.file_size)
                    with archive.open(entry) as file:
                        arrays[key] = np.lib.format.read_array(file, allow_pickle=False)
        except FileFormatError:
            raise
        except _READ_ERRORS as error:
            raise ValueError(f"key {key!r}: {reason_of(error)}") from error
    if not arrays:
        raise ValueError("it is empty")
    return arrays


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of an `.npy` file; its size is checked before memory is allocated.

    Args:
        path: The file.

    Raises:
        FileFormatError: The file is larger than the limit of :mod:`rl4co.data.size_limit`.
        ValueError: The file is damaged or holds Python objects.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        check_input_size(size, path)
        try:
            check_array_size(file, size)
            file.seek(0)
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except _READ_ERRORS as error:
            raise ValueError(reason_of(error)) from error
    return array


def check_array_size(file: IO[bytes], size: int) -> None:
    """Raise ValueError unless an array in `.npy` form has the numbers that its header announces.

    NumPy allocates memory for the announced shape before it reads numbers, and a compressed file
    may hold more of them than the memory.

    Args:
        file: At the beginning of the array; left behind its header.
        size: Number of bytes that are there.
    """
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    expected, actual = math.prod(shape) * dtype.itemsize, size - file.tell()
    # Arrays of objects raise an error of their own when they are read.
    if not dtype.hasobject and expected != actual:
        raise ValueError(f"its header announces {expected} bytes of numbers, there are {actual}")
    if exceeds_memory(expected):
        raise ValueError(f"it has {expected / 2**30:.0f} GiB of numbers, more than the memory")


def reason_of(error: Exception) -> str:
    """The message of an error of NumPy or torch, without the advice to run the code inside."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    advice = ("allow_pickle", "Weights only load failed")
    return "its content is no plain data" if any(words in text for words in advice) else text


def _unreadable(source: Path, reason: str) -> FileFormatError:
    return FileFormatError(
        f"expected a complete .npz archive of numeric arrays, got {source} ({reason}); the file is "
        "damaged, foreign or holds Python objects: write it again with save_tensordict_to_npz or "
        "generate_dataset"
    )


def _check_keys(source: Path, actual: set[str], expected: set[str], optional: set[str]) -> None:
    missing, unexpected = sorted(expected - actual), sorted(actual - expected - optional)
    if missing or unexpected:
        more = f" (and perhaps {sorted(optional)})" if optional else ""
        raise FileFormatError(
            f"expected the keys {sorted(expected)}{more} in {source}, got {sorted(actual)} "
            f"(missing: {missing or 'none'}, unexpected: {unexpected or 'none'}); "
            "is this the data set of another problem?"
        )


def _to_tensor(source: Path, key: str, array: NDArray[np.generic]) -> Tensor:
    # Files of machines with the other byte order are rare but legal; torch rejects their arrays.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    try:
        tensor = torch.from_numpy(native)
    except TypeError as error:
        raise FileFormatError(
            f"expected a numeric array under {key!r} in {source}, got dtype {array.dtype}"
        ) from error
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _common_length(source: Path, tensors: dict[str, Tensor]) -> int:
    lengths = {key: tensor.shape[0] if tensor.dim() else None for key, tensor in tensors.items()}
    first = next(iter(lengths.values()))
    if first is None or any(length != first for length in lengths.values()):
        raise FileFormatError(
            f"expected the same number of instances along the first axis of every key of {source}, "
            f"got {lengths}; repeat shared values so that every key has one row per instance"
        )
    return first


def named_files(
    files: str | Path | Sequence[str | Path] | None, names: Sequence[str] | None = None
) -> dict[str, str | Path]:
    """Data set name → file, for one file or several.

    Args:
        files: Path(s); None gives an empty table.
        names: Names of the sets (default: the file names without suffix).
    """
    if files is None:
        return {}
    paths = [files] if isinstance(files, str | Path) else list(files)
    labels = list(names) if names else [Path(path).stem for path in paths]
    if len(labels) != len(paths) or len(set(labels)) != len(labels):
        raise ConfigError(
            f"expected one distinct name for each of {len(paths)} data files, got {labels}"
        )
    return dict(zip(labels, paths, strict=True))


def resolve_data(path: str | Path, folder: Path) -> Path:
    """The file or folder that a name means: the path itself, or else below `folder`.

    A name that does not exist is taken as an `.npz` file whose suffix was left out.
    """
    path = Path(path)
    places = [path] if path.is_absolute() else [path, folder / path]
    suffixed = [_with_suffix(place) for place in places]
    # A file in the working directory must not hide the folder of data that is meant.
    existing = (place for place in (*suffixed, *places) if place.exists())
    return next(existing, suffixed[-1])
