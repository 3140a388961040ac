"""Build step of the package: compiles the pointer kernel where there is a C++ compiler.

Without one, or if it fails, the package is the same without the library and runs in torch alone.
"""

from __future__ import annotations

import runpy
import sysconfig

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PointerKernel(BuildHookInterface):
    """Adds the library to a wheel, which then belongs to one platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles into the source folder, where an editable installation finds the library."""
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / "rl4co" / "kernels"
        try:
            library = runpy.run_path(str(folder / "build.py"))["build"]()
        except Exception as error:  # the package works without
            self.app.display_warning(f"rl4co goes without its compiled kernel: {error}")
            return
        if version == "editable":
            return
        build_data["artifacts"].append(f"/rl4co/kernels/{library.name}")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
