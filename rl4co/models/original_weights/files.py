"""Reading the files of original code, its layout of attention heads, and filling policies."""

from __future__ import annotations

import pickle
import struct
import zipfile

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from torch import Tensor, nn

from rl4co.core.errors import FileFormatError
from rl4co.data.io import read_npz, reason_of

P = TypeVar("P", bound=nn.Module)
Weights = dict[str, Tensor]

#: Keys under which checkpoints of original code hold the state dict of the policy.
_STATE_DICTS = ("model", "model_state_dict")
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
    """Content of a `.pt` checkpoint (opened with `weights_only=True`) or an `.npz` of arrays.

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
            content = {key: torch.as_tensor(array) for key, array in read_npz(path).items()}
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (PermissionError, FileFormatError):
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


def read_state_dict(source: str | Path | Mapping[str, Any], method: str) -> Weights:
    """State dict of a policy: of a file, a checkpoint's mapping, or itself.

    Args:
        source: File, see :func:`read_weights`, or a mapping.
        method: Name of the method, for messages.
    """
    content = source if isinstance(source, Mapping) else read_weights(source, method)
    for key in _STATE_DICTS:
        content = content.get(key, content) if isinstance(content, Mapping) else content
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor | np.ndarray) for value in content.values()
    ):
        raise FileFormatError(
            f"expected original {method} weights (tensors by name), got other values in "
            f"{source if not isinstance(source, Mapping) else 'the state dict'}"
        )
    # Networks trained on several devices have the prefix `module.`.
    return {key.removeprefix("module."): torch.as_tensor(x) for key, x in content.items()}


def fill(policy: P, weights: Mapping[str, Tensor], name: str) -> P:
    """Loads weights under the names of the policy and returns it in evaluation mode.

    Counters of batch normalisation, which evaluation does not read, may be missing.

    Args:
        policy: Built with the sizes of the weights.
        weights: Converted weights.
        name: Problem or method, for messages.
    """
    expected = policy.state_dict()
    counters = {key: x for key, x in expected.items() if key.endswith("num_batches_tracked")}
    weights = {**counters, **weights}
    wrong = sorted(
        key
        for key in expected.keys() | weights.keys()
        if key not in expected or key not in weights or expected[key].shape != weights[key].shape
    )
    if wrong:
        raise FileFormatError(
            f"expected original weights for {name}, got others: {', '.join(wrong[:6])} missing, "
            "unknown or of another shape; is it a file for another problem or method?"
        )
    policy.load_state_dict(weights)
    return policy.eval()


def heads_in(value: Tensor) -> Tensor:
    """`[H, D, d]` (input on the left) → `[H * d, D]` (torch's convention)."""
    return value.transpose(1, 2).flatten(0, 1)


def heads_out(value: Tensor) -> Tensor:
    """`[H, d, D]` → `[D, H * d]`."""
    return value.flatten(0, 1).t()
