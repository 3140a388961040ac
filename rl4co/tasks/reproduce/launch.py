"""Shards of `rl4co reproduce` as jobs of a launcher of Hydra: joblib, or SLURM by submitit.

    rl4co reproduce fjsp --launcher submitit_slurm --shards 8 --launcher-option timeout_min=600

This module is a Hydra application whose jobs are the shards; the command starts it in a process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra

from hydra.core.config_store import ConfigStore

from rl4co.core.errors import ConfigError, MissingDependencyError, UnknownNameError

#: Launcher → package with it.
LAUNCHERS = {
    "joblib": "hydra-joblib-launcher",
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
}
EXTRA = "launchers"
#: Folder of Hydra's and submitit's files in the folder of results.
FOLDER = "launcher"
_THREADS = "OMP_NUM_THREADS"
_CONFIG = "rl4co_reproduce_shard"

ConfigStore.instance().store(_CONFIG, {"shard": 1, "shards": 1, "arguments": []})


def launch(
    launcher: str, shards: int, arguments: Sequence[str], options: Sequence[str], folder: Path
) -> bool:
    """Runs `rl4co reproduce` for all shards by a launcher, and waits; whether all succeeded.

    Args:
        launcher: One of :data:`LAUNCHERS`.
        shards: How many.
        arguments: Arguments of the command.
        options: Settings of the launcher, `KEY=VALUE`.
        folder: Folder of results, in which the launcher keeps its files.

    Raises:
        UnknownNameError: There is no such launcher.
        MissingDependencyError: Its package is not installed.
    """
    if launcher not in LAUNCHERS:
        raise UnknownNameError("launcher", launcher, LAUNCHERS)
    package = LAUNCHERS[launcher]
    if importlib.util.find_spec(f"hydra_plugins.{package.replace('-', '_')}") is None:
        raise MissingDependencyError(package, EXTRA)
    for option in options:
        if "=" not in option:
            raise ConfigError(f"expected --launcher-option KEY=VALUE, got {option!r}")
    overrides = [
        f"hydra/launcher={launcher}",
        *(f"hydra.launcher.{option}" for option in options),
        f"hydra.sweep.dir={json.dumps(str(folder / FOLDER))}",
        "hydra.output_subdir=null",
        "hydra/hydra_logging=none",
        "hydra/job_logging=none",
        f"shards={shards}",
        f"shard={','.join(str(index) for index in range(1, shards + 1))}",
        f"arguments={json.dumps(list(arguments))}",
    ]
    env = dict(os.environ)
    if launcher == "joblib":  # its jobs share this machine
        env.setdefault(_THREADS, str(max(1, (os.cpu_count() or 1) // shards)))
    command = [sys.executable, "-m", "rl4co.tasks.reproduce.launch", "--multirun", *overrides]
    return subprocess.run(command, env=env, check=False).returncode == 0


def _run_shard(cfg: Any) -> None:
    """A job: the command for one shard."""
    part = f"{cfg.shard}/{cfg.shards}"
    command = [sys.executable, "-m", "rl4co.cli", "reproduce", *cfg.arguments, "--shard", part]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise RuntimeError(f"shard {part} ended with the exit code {code}")


if __name__ == "__main__":
    hydra.main(version_base="1.3", config_path=None, config_name=_CONFIG)(_run_shard)()
