"""`rl4co list`: lists all names."""

from __future__ import annotations

import fnmatch
import json

from collections.abc import Mapping
from typing import Annotated

import typer

from rl4co.cli._frame import DebugFlag, JsonFlag, app, reports_errors, show, stderr
from rl4co.cli._options import Imports
from rl4co.core.errors import UnknownNameError
from rl4co.core.imports import import_modules
from rl4co.tasks.catalogue import CATALOGUE


@app.command("list")
@reports_errors
def list_names(
    kind: Annotated[str | None, typer.Argument(help="What to list; default: everything.")] = None,
    pattern: Annotated[
        str | None, typer.Argument(help="Part of the name, or a pattern such as '*tsp*'.")
    ] = None,
    imports: Imports = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """List environments, models, experiments and all other names."""
    import_modules(imports)
    if kind is not None and kind not in CATALOGUE:
        raise UnknownNameError("kind of name", kind, CATALOGUE)
    listed = {
        each: {
            name: text for name, text in sorted(CATALOGUE[each]().items()) if _fits(name, pattern)
        }
        for each in ([kind] if kind else CATALOGUE)
    }
    if json_output:
        print(json.dumps({each: _records(names) for each, names in listed.items()}))
        return
    for each, names in listed.items():
        if names or (kind and pattern is None):
            show(each, ("name", "what it is"), list(names.items()))
    if pattern is not None and not any(listed.values()):
        stderr().print(f"nothing matches {pattern!r}", highlight=False)


def _records(names: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "description": text} for name, text in names.items()]


def _fits(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    has_wildcard = any(sign in pattern for sign in "*?[")
    return fnmatch.fnmatchcase(name, pattern if has_wildcard else f"*{pattern}*")
