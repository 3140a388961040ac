"""The machine and the versions of packages that results were computed with."""

from __future__ import annotations

import os
import platform

from importlib.metadata import PackageNotFoundError, version

#: Packages whose releases matter to results.
PACKAGES = ("torch", "numpy", "pyvrp", "ortools", "elkai")


def machine_facts() -> dict[str, str | None]:
    """Machine, Python and versions of packages; those that are not installed have None."""
    return {
        "rl4co": _version("rl4co"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        **{package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
