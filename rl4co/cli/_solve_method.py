"""The options of `rl4co solve` that select how solutions are found, checked and resolved."""

from __future__ import annotations

import dataclasses

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rl4co.cli._frame import stderr
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.pretrained import AUTO
from rl4co.tasks.methods import METHODS, SEARCHES

if TYPE_CHECKING:
    from rl4co.tasks.solve import Approach, ByModel, BySolver


class TimeSplit(NamedTuple):
    """Seconds per instance of each stage; None: no limit, or no such stage."""

    first: float | None
    improve: float | None
    polish: float | None

    @classmethod
    def split(
        cls, total: float | None, improves: bool, improve: float | None, polish: float | None
    ) -> TimeSplit:
        """Splits the total among the stages.

        Later stages get the seconds that they were given, or half of the total by default, but at
        least half is left for the first stage.
        """
        if total is None:
            return cls(None, improve, polish)
        if not total > 0:
            raise ConfigError(f"expected a positive number of seconds, got {total:g}")
        if improves and improve is None:
            improve = total / 2
        later = (improve or 0.0) + (polish or 0.0)
        scale = min(1.0, total / 2 / later) if later > 0 else 1.0
        improve, polish = (None if stage is None else scale * stage for stage in (improve, polish))
        return cls(total - (improve or 0.0) - (polish or 0.0), improve, polish)


@dataclasses.dataclass(frozen=True)
class SolveMethod:
    """Selects how solutions are found; options that are not given are None."""

    solver: str | None
    max_runtime: float | None
    model: str | None
    method: str | None
    initial: Path | None
    decoding: dict[str, Any]
    adapting: dict[str, Any]
    improving: dict[str, Any]
    seed: int | None
    lkh: dict[str, Any]  # options of this solver
    allow_classes: list[str]
    animates: bool = False

    def within(self, seconds: TimeSplit) -> SolveMethod:
        """The same method with other seconds for its stages."""
        improving = {**self.improving, "seconds": seconds.improve}
        return dataclasses.replace(self, max_runtime=seconds.first, improving=improving)

    def check(self) -> None:
        """Raises for options that exclude each other or would have no effect."""
        methods = {"--solver": self.solver, "--model": self.model, "--initial": self.initial}
        chosen = [flag for flag, value in methods.items() if value is not None]
        if len(chosen) > 1:
            raise ConfigError(f"expected one of {', '.join(methods)}, got {' and '.join(chosen)}")
        if self.method is not None and self.method not in METHODS:
            raise UnknownNameError("evaluation method", self.method, METHODS)
        decoding = {"method": self.method, **self.decoding, **self.adapting}
        flag = next((key for key, value in decoding.items() if value is not None), None)
        if self.model is None and flag is not None:
            raise ConfigError(
                f"expected --model with --{flag.replace('_', '-')}, got none; solvers do not decode"
            )
        name = self.adapting["search"]
        if self.max_runtime is not None and chosen not in ([], ["--solver"]) and name is None:
            raise ConfigError(
                f"expected --max-runtime only for a solver or a --search, got it with {chosen[0]}; "
                "--polish SECONDS improves a solution"
            )
        self._check_search(name)
        excluded = {"--search": name, "--improve": self.improving["improve"]}
        if self.animates and (self.model is None or any(excluded.values())):
            raise ConfigError(
                "expected --model alone with --animate, which shows the decisions of a model that "
                "constructs solutions; leave out other methods"
            )
        if self.improving["improve"] is not None and not chosen and self.max_runtime is not None:
            raise ConfigError(
                "expected --max-runtime for a solver, got it with --improve alone; use "
                "--improve-seconds"
            )
        for option in ("steps", "seconds", "num_augment"):
            if self.improving["improve"] is None and self.improving[option] is not None:
                flag = "copies" if option == "num_augment" else option
                raise ConfigError(f"expected --improve MODEL with --improve-{flag}, got none")

    def _check_search(self, name: str | None) -> None:
        if name is None:
            if self.adapting["iterations"] is not None:
                raise ConfigError("expected --search with --iterations, got none")
            return
        if name not in SEARCHES:
            raise UnknownNameError("search method", name, SEARCHES)
        decoding = {"method": self.method, **self.decoding, "num_augment": None}
        flag = next((key for key, value in decoding.items() if value is not None), None)
        if flag is not None:
            raise ConfigError(
                f"expected --search or --{flag.replace('_', '-')}, got both; a search samples "
                "from the model as it is being adapted"
            )

    def approach(self, device: str, progress: bool) -> Approach:
        """The approach that finds solutions and improves them.

        Args:
            device: Device of models.
            progress: Whether to show the steps of improving.
        """
        if self.improving["improve"] is None:
            return self._first(device)
        from rl4co.tasks.load import find_device
        from rl4co.tasks.solve import ByImprovement

        chosen = (self.solver, self.model, self.initial)
        start = None if all(option is None for option in chosen) else self._first(device)
        settings = {**self.improving, "seed": self.seed, "progress": progress}
        options = _without_none(settings)
        return ByImprovement.load(
            options.pop("improve"), start, find_device(device), options, self.allow_classes
        )

    def _first(self, device: str) -> Approach:
        """The approach that finds first solutions."""
        from rl4co.tasks.solve import ByFile, ByModel, BySearch
        from rl4co.tasks.trace import ByTracedModel

        if self.initial is not None:
            return ByFile(self.initial)
        if self.model is not None and self.adapting["search"] is not None:
            settings = {
                "iterations": self.adapting["iterations"],
                "augment_size": self.decoding["num_augment"],
                "max_runtime": self.max_runtime,
                "seed": self.seed,
            }
            return self._load(BySearch, self.adapting["search"], device, settings)
        if self.model is not None:
            settings = {**self.decoding, "seed": self.seed}
            kind = ByTracedModel if self.animates else ByModel
            return self._load(kind, self.method or "greedy", device, settings)
        return self.by_solver(self.solver, 10.0 if self.max_runtime is None else self.max_runtime)

    def _load(
        self, kind: type[ByModel], method: str, device: str, settings: dict[str, Any]
    ) -> Approach:
        from rl4co.tasks.load import find_device
        from rl4co.tasks.solve import ByNearestModel

        assert self.model is not None
        target, options = find_device(device), _without_none(settings)
        if self.model == AUTO:
            return ByNearestModel(kind, method, target, options, announce=_announce)
        return kind.load(self.model, method, target, options, self.allow_classes)

    def by_solver(self, solver: str | None, seconds: float) -> BySolver:
        """A solver and its options."""
        from rl4co.tasks.solve import BySolver

        return BySolver(solver, seconds, self.seed, self.lkh if solver == "lkh" else {})


def _announce(text: str) -> None:
    stderr().print(text, markup=False, highlight=False)


def _without_none(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def read_reference(best_known: str | None) -> dict[str, Any]:
    """Arguments of `read_instance`: a number is a value, a .csv file a table, others solutions."""
    if best_known is None:
        return {}
    try:
        return {"best_known": float(best_known)}
    except ValueError:
        is_table = Path(best_known).suffix.lower() == ".csv"
        return {"best_known" if is_table else "solution": Path(best_known)}
