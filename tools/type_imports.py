"""Writes the imports that only type checkers read into packages that import on first use.

`rl4co.envs.routing` offers the classes of all of its sub-packages without importing any of them
(:mod:`rl4co.core.lazy`). Type checkers do not run code, so they get a line for each sub-package
below `if TYPE_CHECKING:`. `make format` keeps these lines complete, so that a new problem or method
edits nothing but its own folder.
"""

from __future__ import annotations

import re
import sys

from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rl4co.core.lazy import declared_names
from rl4co.core.registry import ENVS

ROOT = Path(__file__).resolve().parents[1]
#: Packages that offer what their sub-packages declare in `__all__`.
PACKAGES = (*ENVS.packages, "rl4co.models.zoo")
HEAD = "if TYPE_CHECKING:\n"


def star_imports(package: str, root: Path = ROOT) -> list[str]:
    """The lines of a package's sub-packages, sorted."""
    folder = root / package.replace(".", "/")
    files = sorted(folder.glob("*/__init__.py"))
    return [f"    from {package}.{f.parent.name} import *\n" for f in files if declared_names(f)]


def rewrite(text: str, lines: list[str]) -> str:
    """A module's text with these lines as its block for type checkers."""
    without = re.sub(rf"{HEAD}(?:    from \S+ import \*\n)*(?:    pass\n)?", HEAD, text)
    if HEAD not in without:
        raise SystemExit(f"expected the line {HEAD.strip()!r} in\n{text}")
    return without.replace(HEAD, HEAD + "".join(lines or ["    pass\n"]))


def main() -> None:
    """Rewrites the packages that are out of date."""
    for package in PACKAGES:
        file = ROOT / package.replace(".", "/") / "__init__.py"
        old = file.read_text(encoding="utf-8")
        new = rewrite(old, star_imports(package))
        if new != old:
            file.write_text(new, encoding="utf-8")
            print(f"{package}: imports for type checkers written")


if __name__ == "__main__":
    main()
