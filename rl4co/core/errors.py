"""The library's own exceptions.

Where a built-in exception says it all (`FileNotFoundError`, `IndexError`), that one is raised.
Messages follow one grammar: *expected what, got what; do what*. Each class also derives from the
built-in exception a caller would guess, so `except ValueError` keeps working.
"""

from __future__ import annotations

import difflib
import errno

from collections.abc import Iterable, Sequence


class RL4COError(Exception):
    """Base class of the library's own errors."""


class UnknownNameError(RL4COError, LookupError):
    """A name that no registry, table or closed set knows.

    Args:
        kind: What was looked up, for the message ("environment", "decode type", ...).
        name: The unknown name.
        known: All valid names.
        hint: What to do instead, if more is known than the nearest name.
        remedy: How another name becomes known.
    """

    def __init__(
        self, kind: str, name: object, known: Iterable[str], hint: str = "", remedy: str = ""
    ) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        close = difflib.get_close_matches(str(name), self.known, n=1, cutoff=0.5)
        if not hint and close:
            hint = f"did you mean {close[0]!r}?"
        hint = f"{hint} " if hint else ""
        listed = ", ".join(self.known) or "(none)"
        remedy = f"; {remedy}" if remedy else ""
        super().__init__(f"no {kind} {name!r}; {hint}known: {listed}{remedy}")


class RegistryError(RL4COError, RuntimeError):
    """Two definitions claim the same name, or a module does not register what its name promises."""


class ConfigError(RL4COError, ValueError):
    """A parameter or a combination of parameters that makes no sense."""


class UnknownArgumentError(UnknownNameError, ConfigError, TypeError):
    """A keyword argument that a call does not take; Python's own error for it is a `TypeError`."""


class InvalidInstanceError(RL4COError, ValueError):
    """An instance that breaks a rule of its problem (NaN, demand above capacity, a wrong shape)."""


class InvalidSolutionError(RL4COError, ValueError):
    """A solution that violates a constraint.

    Args:
        constraint: Name of the violated constraint.
        instances: Indices of the violating instances in the (flattened) batch.
        batch: Number of instances in that batch.
    """

    def __init__(self, constraint: str, instances: Sequence[int], batch: int) -> None:
        self.constraint, self.instances = constraint, list(instances)
        super().__init__(
            f"expected solutions that satisfy {constraint!r}, got {len(self.instances)} of {batch} "
            f"that violate it (instances {format_indices(self.instances)})"
        )


class NoSolutionError(RL4COError, RuntimeError):
    """An instance for which no valid solution was found, or for which there is none."""


class InvalidActionError(RL4COError, ValueError):
    """An action that the mask forbids, or a state in which every action is forbidden."""


class NotFiniteError(RL4COError, FloatingPointError):
    """Numbers that came out as NaN: a training that has diverged."""


class EnvCheckError(RL4COError, AssertionError):
    """An environment that breaks the contract of environments, with everything found wrong.

    Args:
        env: Name of the environment's class.
        findings: One sentence for each fault, with its remedy.
    """

    def __init__(self, env: str, findings: Sequence[str]) -> None:
        self.env, self.findings = env, list(findings)
        listing = "\n".join(f"  {n}. {text}" for n, text in enumerate(self.findings, start=1))
        super().__init__(
            f"expected {env} to keep the contract of environments, got {len(self.findings)} "
            f"finding{'s' if len(self.findings) != 1 else ''}:\n{listing}"
        )


class UnsupportedError(RL4COError, NotImplementedError):
    """A combination of components that is not available, with the reason."""


class StoppedError(RL4COError, RuntimeError):
    """Work that was interrupted, or out of time, before there was any result."""


class FileFormatError(RL4COError, ValueError):
    """A file that is truncated, foreign, or does not hold what was expected."""


class InputSizeError(FileFormatError):
    """A file that is larger than the limit on inputs, perhaps only after decompression."""


class WriteError(RL4COError, OSError):
    """A file that cannot be written: its folder does not allow it, or the disk is full.

    Args:
        path: The file.
        reason: What the system said.
        remedy: What to do; None: free disk space or choose another folder, whichever helps.
    """

    def __init__(self, path: object, reason: OSError, remedy: str | None = None) -> None:
        full = reason.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        self.message = (
            f"expected to write {path}, got: {reason.strerror or reason}; "
            f"{remedy or ('free disk space' if full else 'choose a folder that can be written to')}"
        )
        super().__init__(self.message)
        self.errno, self.filename = reason.errno, str(path)

    def __str__(self) -> str:
        return self.message  # not `[Errno 28] ...`, as an OSError with these attributes has it


class MissingDependencyError(RL4COError, ImportError):
    """An optional package that is not installed.

    Args:
        package: Name of the package on PyPI.
        extra: RL4CO extra that brings it, if there is one.
    """

    def __init__(self, package: str, extra: str | None = None) -> None:
        target = f"rl4co[{extra}]" if extra else package
        super().__init__(f"{package} is not installed; run: pip install '{target}'")


def format_indices(indices: Sequence[int], limit: int = 8) -> str:
    """Indices as text, cut after `limit` entries."""
    shown = ", ".join(str(i) for i in indices[:limit])
    return shown + (f", ... {len(indices) - limit} more" if len(indices) > limit else "")
