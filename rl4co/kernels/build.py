"""Builds the library of `pointer.cpp`: `python -m rl4co.kernels.build`.

Installing the package does the same (see `hatch_build.py`), therefore this file imports neither
torch nor the rest of the package. The library is a file beside the source whose name holds a digest
of the source and the compiler's options, so an outdated one is never loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile

from pathlib import Path

SOURCE = Path(__file__).resolve().with_name("pointer.cpp")

_OPTIONS = [
    *("-std=c++17", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fvisibility=hidden", "-Wno-psabi"),
]
#: Instruction sets, best first → floats per vector and compiler options; chosen when the library is
#: loaded. What a compiler does not know is left out, apart from the last one.
_X86_LEVELS = {
    "avx512": (16, ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mavx2", "-mfma"]),
    "avx2": (8, ["-mavx2", "-mfma"]),
}
_BASE = "base"


class BuildError(RuntimeError):
    """There is no compiler, or it failed."""


def library_path(folder: Path = SOURCE.parent) -> Path:
    """Where the library of the present source is, or would be."""
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
    for file in (SOURCE, Path(__file__)):
        digest.update(file.read_bytes())
    return folder / f"_pointer_{digest.hexdigest()[:16]}.so"


def build(folder: Path = SOURCE.parent) -> Path:
    """Compiles the library into a folder, replaces older ones, and returns its path."""
    target = library_path(folder)
    compiler = _compiler()
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    levels = {**(_X86_LEVELS if x86 else {}), _BASE: (4, ["-DPOINTER_DISPATCH"])}
    with tempfile.TemporaryDirectory() as scratch:
        objects = {level: Path(scratch) / f"{level}.o" for level in levels}
        running = {
            level: subprocess.Popen(
                [
                    *(*compiler, *_OPTIONS, *options),
                    *(f"-DPOINTER_LEVEL={level}", f"-DPOINTER_LANES={lanes}"),
                    *("-c", str(SOURCE), "-o", str(objects[level])),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for level, (lanes, options) in levels.items()
        }
        output = {level: process.communicate()[0] for level, process in running.items()}
        if running[_BASE].returncode:
            raise BuildError(f"expected {compiler[0]} to compile {SOURCE}, got\n{output[_BASE]}")
        compiled = [str(objects[level]) for level in levels if not running[level].returncode]
        linked = target.with_suffix(f".{os.getpid()}.tmp")
        command = [*compiler, "-shared", "-o", str(linked), *compiled]
        link = subprocess.run(command, capture_output=True, text=True, check=False)
        if link.returncode:
            raise BuildError(f"expected {compiler[0]} to link {target}, got\n{link.stderr}")
    linked.replace(target)
    for old in folder.glob("_pointer_*.so"):
        if old != target:
            old.unlink(missing_ok=True)
    return target


def _compiler() -> list[str]:
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path:
            return [path]
    raise BuildError("expected a C++ compiler (c++, g++ or clang++), got none; install one")


def main() -> int:
    """Builds the library and prints its path."""
    try:
        path = build()
    except (BuildError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(path)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
