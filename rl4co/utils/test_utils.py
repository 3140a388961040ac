"""Import path of an environment with instances for tests."""

from __future__ import annotations

from rl4co.envs.testing import generate_env_data

__all__ = ["generate_env_data"]
