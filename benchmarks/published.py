"""Virtual environment with the published rl4co package, the other side of every comparison.

The environment is built once and then reused: torch first (so that both packages run on the same
build), then rl4co with torch held fixed by a constraint.

    python -m benchmarks.published                        # build, or check, the default folder
    python -m benchmarks.published --venv ~/.cache/rl4co-published
    python -m benchmarks.published --torch-index URL      # an index of CPU-only torch builds
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from pathlib import Path

RL4CO_VERSION = "0.7.0"
TORCH_VERSION = "2.13.0"
#: Its graph networks and its local search fail without these, and it does not ask for them.
EXTRAS = ("torch_geometric", "numba")
VENV_VARIABLE = "RL4CO_PUBLISHED_VENV"
DEFAULT_VENV = Path(__file__).parent / ".venv-published"
MARKER = ".rl4co-published"  # written before the first install: only such folders are modified

_VERSIONS_SCRIPT = """
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
print(version("rl4co"), version("torch"))
"""


class PublishedVenvError(RuntimeError):
    """The virtual environment cannot be used as the published contender."""


def venv_path(argument: str | Path | None = None) -> Path:
    """Location of the environment: the argument, else the variable, else the default folder."""
    chosen = argument or os.environ.get(VENV_VARIABLE) or DEFAULT_VENV
    return Path(chosen).expanduser().absolute()


def python_of(venv: Path) -> Path:
    """Interpreter of a virtual environment (its symbolic link must not be resolved)."""
    return venv / "Scripts" / "python.exe" if os.name == "nt" else venv / "bin" / "python"


def clean_environment() -> dict[str, str]:
    """Process environment without the variables that would leak this package into another venv."""
    leaking = {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV"}
    return {key: value for key, value in os.environ.items() if key not in leaking}


def installed_versions(venv: Path) -> tuple[str, str]:
    """Versions of rl4co and torch inside the environment, `"missing"` where there is none."""
    command = [str(python_of(venv)), "-c", _VERSIONS_SCRIPT]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=clean_environment()
    )
    rl4co_version, torch_version = done.stdout.split()
    return rl4co_version, torch_version


def install_commands(python: Path, constraint: Path, torch_index: str | None) -> list[list[str]]:
    """The two pip calls: torch alone, then rl4co with torch fixed by the constraint file."""
    pip = [str(python), "-m", "pip", "install"]
    index = ["--extra-index-url", torch_index] if torch_index else []
    return [
        [*pip, *index, f"torch=={TORCH_VERSION}"],
        [*pip, "--constraint", str(constraint), f"rl4co=={RL4CO_VERSION}", *EXTRAS],
    ]


def _install(venv: Path, torch_index: str | None) -> None:
    if not python_of(venv).exists():
        print(f"creating {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (venv / MARKER).touch()
    with tempfile.TemporaryDirectory() as folder:
        constraint = Path(folder) / "constraints.txt"
        constraint.write_text(f"torch=={TORCH_VERSION}\n", encoding="utf-8")
        for command in install_commands(python_of(venv), constraint, torch_index):
            print("running", " ".join(command[1:]), file=sys.stderr)
            # pip talks on stdout; ours stays free for the caller
            subprocess.run(command, check=True, stdout=sys.stderr, env=clean_environment())


def ensure_published(venv: Path, torch_index: str | None = None) -> Path:
    """Make sure that the environment exists and holds the right versions.

    A folder that this function did not create is used if it is complete and never modified.

    Args:
        venv: folder of the virtual environment.
        torch_index: additional package index for torch, e.g. the one with CPU builds.

    Returns:
        The interpreter of the environment.

    Raises:
        PublishedVenvError: the folder is not ours and does not hold the expected versions.
    """
    exists = venv.exists() and any(venv.iterdir())
    ours = (venv / MARKER).exists()
    if exists and not python_of(venv).exists() and not ours:
        raise PublishedVenvError(
            f"expected a virtual environment or no folder, got {venv}; choose another --venv"
        )
    complete = python_of(venv).exists() and "missing" not in installed_versions(venv)
    if not complete:
        if exists and not ours:
            raise PublishedVenvError(
                f"expected rl4co and torch installed in {venv}, got an environment without them; "
                "choose another --venv, or a folder that does not exist yet"
            )
        _install(venv, torch_index)
    rl4co_version, torch_version = installed_versions(venv)
    if rl4co_version != RL4CO_VERSION or torch_version.split("+")[0] != TORCH_VERSION:
        raise PublishedVenvError(
            f"expected rl4co {RL4CO_VERSION} with torch {TORCH_VERSION}, got rl4co "
            f"{rl4co_version} with torch {torch_version}; delete {venv} or choose another --venv"
        )
    return python_of(venv)


def main(argv: list[str] | None = None) -> None:
    """Build or check the environment and print its interpreter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", help=f"folder (default: ${VENV_VARIABLE}, else {DEFAULT_VENV})")
    parser.add_argument("--torch-index", help="additional package index for torch")
    arguments = parser.parse_args(argv)
    try:
        print(ensure_published(venv_path(arguments.venv), arguments.torch_index))
    except PublishedVenvError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
