"""Modules of the user, which may be in the working folder."""

from __future__ import annotations

import importlib
import sys

from collections.abc import Iterable, Sequence
from pathlib import Path

from rl4co.core.errors import ConfigError


def search_working_folder(names: Sequence[str] | None) -> list[str]:
    """The names of modules or classes; if there are any, the working folder is searched as well."""
    if names and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return list(names or ())


def import_modules(names: Iterable[str] | None) -> None:
    """Imports modules for what they register.

    Raises:
        ConfigError: There is no such module.
    """
    for name in search_working_folder(list(names or ())):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"expected a module to import, got {name!r}: {error}; install it, or start in its "
                "folder"
            ) from error
