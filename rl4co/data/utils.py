"""Published import path of data files."""

from __future__ import annotations

from rl4co.data.io import load_npz_to_tensordict, save_tensordict_to_npz

__all__ = ["load_npz_to_tensordict", "save_tensordict_to_npz"]
