"""Published import path of the generation of data sets."""

from __future__ import annotations

from rl4co.data.generate import generate_dataset, generate_default_datasets, generate_env_data

__all__ = ["generate_dataset", "generate_default_datasets", "generate_env_data"]
