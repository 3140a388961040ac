"""The base class of all formulations: the solvers that a problem prefers."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import FORMULATIONS


class Formulation:
    """How one problem is handed to classical solvers. Its methods keep nothing on the object.

    Attributes:
        kind: Name of its kind, for messages; each kind has a base class.
        solvers: Names of the solvers that look for the best solutions of the problem, the best one
            first: it is the default. The last one is quick. Others that read this kind solve the
            problem if asked for.
        large_solver: The default for instances whose distances of all pairs take too much memory;
            None: there is none.
    """

    kind: ClassVar[str] = "formulation"
    solvers: ClassVar[tuple[str, ...]] = ()
    large_solver: ClassVar[str | None] = None


F = TypeVar("F", bound=Formulation)


def formulation_of(env: Any, kind: type[F]) -> F:
    """How instances of the environment are formulated as problems of a kind.

    Args:
        env: Environment.
        kind: Base class of the formulations wanted.
    """
    formulation = FORMULATIONS.get(env.name)
    if formulation is None or not issubclass(formulation, kind):
        got = "none" if formulation is None else f"a {formulation.kind}"
        raise UnsupportedError(
            f"expected an environment with a {kind.kind}, got {env.name!r} with {got}; register "
            f"one with FORMULATIONS.register({env.name!r})"
        )
    return formulation()
