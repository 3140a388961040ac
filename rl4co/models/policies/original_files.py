"""Weights of original code: reading its files, and its layout of attention heads."""

from __future__ import annotations

import pickle
import struct
import zipfile

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torch import Tensor

from rl4co.core.errors import FileFormatError
from rl4co.data.io import reason_of

_UNREADABLE = (
    ValueError,
    LookupError,
    EOFError,
    RuntimeError,
    OSError,
    TypeError,  # torch has it for an archive of something else
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
)


def read_weights(path: str | Path, method: str) -> Mapping[str, Any]:
    """What a `.pt` checkpoint (opened with `weights_only=True`) or an `.npz` of arrays holds.

    Args:
        path: The file.
        method: Name of the method, for messages.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"expected original {method} weights at {path}, got no file")
    content: Any
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                content = {key: torch.as_tensor(arrays[key]) for key in arrays.files}
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except _UNREADABLE as error:
        raise FileFormatError(
            f"expected an original .pt checkpoint or an .npz of its arrays, got {path}, which is "
            f"truncated, foreign or holds Python objects ({reason_of(error)}); download it again"
        ) from error
    if not isinstance(content, Mapping):
        raise FileFormatError(
            f"expected original {method} weights in {path}, got a {type(content).__name__}"
        )
    return content


def heads_in(value: Tensor) -> Tensor:
    """`[H, D, d]` (input on the left) → `[H * d, D]` (torch's convention)."""
    return value.transpose(1, 2).flatten(0, 1)


def heads_out(value: Tensor) -> Tensor:
    """`[H, d, D]` → `[D, H * d]`."""
    return value.flatten(0, 1).t()
