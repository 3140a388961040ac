"""Families of tables: from a declarative file to cells, each a method on a set of instances.

A file in `rl4co/configs/reproduce` has axes; every combination of their options is a cell. The
settings of a cell are `defaults`, then those of its options, then those of matching exceptions.
A profile adds variables (`${size}`), and changes options of axes. `docs/reproduce.md` describes
all keys.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.tasks.benchmark.parse import load_mapping, parse_method, parse_source
from rl4co.tasks.benchmark.spec import Method, Source

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "reproduce"
#: File with recipes of the models that the library ships, a family without instances.
MODELS_FILE = "models"
PROFILES = ("smoke", "cpu", "paper")
EQUAL = ("steps", "samples", "minutes")
#: Least training of a method whose steps follow from a budget.
LEAST_STEPS = 50

_KEYS = ("title", "about", "paper", "compare", "equal", "defaults", "axes", "exceptions",
         "profiles", "views", "claims")  # fmt: skip
#: A reference to a variable or setting.
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
#: Settings that describe a cell; all others are variables.
_DECODE_KEYS = ("method", "batch_size", "passes", "seed", "device")


@dataclasses.dataclass(frozen=True)
class Family:
    """A file in one of its profiles.

    Attributes:
        name: Name of the file.
        title: Title of its page.
        about: A paragraph about it.
        profile: Name of the profile.
        paper: Files with the paper's values.
        compare: Axis whose options are trained with equal budgets.
        equal: What is equal: steps, samples or minutes.
        axes: Axis → option → settings.
        options: Axis → its options in any profile.
        defaults: Settings of all cells.
        exceptions: Changes of cells, with `where` and `set` or `drop`.
        variables: Variables of the profile.
        views: Tables and plots.
        claims: Claims of the paper.
    """

    name: str
    title: str
    about: str
    profile: str
    paper: tuple[str, ...]
    compare: str
    equal: str
    axes: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Sequence[str]]
    defaults: Mapping[str, Any]
    exceptions: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any]
    views: Sequence[Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]]

    def axis_of(self, option: str) -> str:
        """The axis that has an option."""
        for axis, options in self.options.items():
            if option in options:
                return axis
        names = [name for options in self.options.values() for name in options]
        raise UnknownNameError(f"option of the axes of {self.name}", option, names)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A method on a set of instances.

    Attributes:
        axes: Option of each axis; those that do not concern a solver are missing.
        source: The instances; None: the cell is only trained.
        methods: The method, once for each seed of its training.
        reference: Method whose values gaps refer to, where no value is known.
        steps: Training batches.
        minutes: Estimated minutes of one training; None: there is no estimate.
        solutions: Solutions of a training batch; None: not stated.
    """

    axes: Mapping[str, str]
    source: Source | None
    methods: tuple[Method, ...]
    reference: Method | None = None
    steps: int | None = None
    minutes: float | None = None
    solutions: float | None = None

    def fits(self, where: Mapping[str, Any]) -> bool:
        """Whether its options are among those of a selection."""
        return fits(self.axes, where)


def fits(axes: Mapping[str, str], where: Mapping[str, Any]) -> bool:
    """Whether options are among those of a selection; an axis that is missing fits everything.

    Args:
        axes: Option of each axis.
        where: Axis → option, or list of options.
    """
    return all(axis not in axes or axes[axis] in _names(chosen) for axis, chosen in where.items())


def _names(chosen: Any) -> list[str]:
    return [str(each) for each in (chosen if isinstance(chosen, list | tuple) else [chosen])]


# ---------------------------------------------------------------- files


def family_names() -> list[str]:
    """Names of all families of the library."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def load_family(
    name: str, profile: str = "cpu", variables: Mapping[str, Any] | None = None
) -> Family:
    """A family in a profile.

    Args:
        name: Name of a family, or path of a YAML file.
        profile: Name of a profile.
        variables: Variables that win over those of the profile.
    """
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file() and not name.endswith(".yaml"):
        raise UnknownNameError("family of tables", name, family_names())
    content = load_mapping(path)
    for key in content:
        if key not in _KEYS:
            raise UnknownNameError(f"key of {path.name}", key, _KEYS)
    profiles = content.get("profiles") or {}
    if profile not in profiles:
        raise UnknownNameError(f"profile of {path.name}", profile, profiles)
    changes = dict(profiles[profile] or {})
    axes = {str(axis): options for axis, options in (content.get("axes") or {}).items()}
    options = {
        axis: [
            *dict.fromkeys(
                name
                for changed in [None, *((each or {}).get(axis) for each in profiles.values())]
                for name in _axis(axis, axes[axis], changed)
            )
        ]
        for axis in axes
    }
    for axis in [*axes]:
        axes[axis] = _axis(axis, axes[axis], changes.pop(axis, None))
    return Family(
        name=path.stem,
        title=content.get("title", path.stem),
        about=content.get("about", ""),
        profile=profile,
        paper=tuple(content.get("paper") or ()),
        compare=content.get("compare", "method"),
        equal=content.get("equal", "steps"),
        axes=axes,
        options=options,
        defaults=_merged(content.get("defaults") or {}, changes.pop("defaults", None)),
        exceptions=[*(content.get("exceptions") or ()), *changes.pop("exceptions", ())],
        variables={"data": "data", **changes, **(variables or {})},
        views=content.get("views") or (),
        claims=content.get("claims") or (),
    )


def _axis(axis: str, options: Any, changes: Any) -> dict[str, dict[str, Any]]:
    """Options with their settings; a list means `{option: {axis: option}}`."""
    if isinstance(changes, list):
        kept = options if isinstance(options, Mapping) else {}
        options = {each: kept.get(each, {axis: each}) for each in changes}
        changes = None
    if isinstance(options, list):
        options = {each: {axis: each} for each in options}
    merged = _merged(options, changes)
    return {str(name): dict(settings or {}) for name, settings in merged.items()}


def _merged(base: Mapping[Any, Any], changes: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Mappings merged at all depths; None removes a key."""
    merged = dict(base)
    for key, value in (changes or {}).items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merged(merged[key], value)
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


# ---------------------------------------------------------------- cells


def expand(
    family: Family,
    budget: float | None = None,
    equal: str | None = None,
    seeds: int | None = None,
    only: Mapping[str, Sequence[str]] | None = None,
) -> list[Cell]:
    """All cells of a family.

    Args:
        family: The family.
        budget: Minutes of the slowest training among those that are compared; None: the profile's.
        equal: What the compared trainings have in equal amounts; None: what the file says.
        seeds: Number of trainings of each recipe; None: the seeds of the profile.
        only: Axis → options to keep.

    Raises:
        ConfigError: The budget is below the least one, or a setting of a cell is wrong.
    """
    _check_only(family, only or {})
    settings = dict(_settings(family))
    steps = _steps(family, settings, budget, equal or family.equal)
    chosen: Any = range(1, seeds + 1) if seeds else family.variables.get("seeds", [1])
    cells = {}
    for axes, values in settings.items():
        if fits(dict(axes), only or {}):
            cell = _cell(family, dict(axes), values, steps.get(axes), list(chosen))
            cells[tuple(sorted(cell.axes.items()))] = cell
    return list(cells.values())


#: Options of all axes in their order, as pairs.
Options = tuple[tuple[str, str], ...]


def _settings(family: Family) -> Iterable[tuple[Options, dict[str, Any]]]:
    """Settings of every combination of options, with variables resolved."""
    for names in itertools.product(*family.axes.values()):
        axes = dict(zip(family.axes, names, strict=True))
        values = dict(family.defaults)
        for axis, option in axes.items():
            values = _merged(values, family.axes[axis][option])
        matching = [each for each in family.exceptions if fits(axes, each.get("where", {}))]
        if any(each.get("drop") for each in matching):
            continue
        for each in matching:
            values = _merged(values, each.get("set"))
        content = {**family.variables, **values}
        try:
            resolved = _resolved(content, content)
        except (ConfigError, RecursionError) as error:
            raise ConfigError(f"{_label(family, axes)}: {error}") from error
        kept = {axis: axes[axis] for axis in axes if axis not in _names(values.get("without", []))}
        yield tuple(kept.items()), {str(key): value for key, value in resolved.items()}


def _resolved(value: Any, scope: Mapping[Any, Any]) -> Any:
    """A setting with its references `${name}` and `${name.key}` replaced by what they name."""
    if isinstance(value, Mapping):
        return {key: _resolved(each, scope) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_resolved(each, scope) for each in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    if match := _REFERENCE.fullmatch(value):
        return _resolved(_find(match[1], scope), scope)
    return _REFERENCE.sub(lambda match: str(_resolved(_find(match[1], scope), scope)), value)


def _find(name: str, scope: Mapping[Any, Any]) -> Any:
    value: Any = scope
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ConfigError(f"expected a variable or setting in ${{{name}}}, got none of it")
        value = value[key]
    return value


def _cell(
    family: Family,
    axes: dict[str, str],
    values: dict[str, Any],
    steps: int | None,
    seeds: Sequence[int],
) -> Cell:
    label = _label(family, axes)
    name = "/".join(axes.values())
    source = reference = None
    minutes = None
    try:
        if (instances := values.get("instances")) is not None:
            source = parse_source(instances)
        if (entry := values.get("reference")) is not None:
            reference = parse_method(entry)
        if values.get("solver") is not None and "experiment" in values.get("recipe", {}):
            raise ConfigError("expected `solver` or a `recipe` with an experiment, got both")
        if (solver := values.get("solver")) is not None:
            named = {"name": name, **solver} if isinstance(solver, Mapping) else solver
            return Cell(axes, source, (dataclasses.replace(parse_method(named), name=name),),
                        reference)  # fmt: skip
        if "experiment" not in values.get("recipe", {}):
            raise ConfigError("expected `solver` or `recipe` with an experiment, got neither")
        recipe = dict(values["recipe"])
        if recipe.get("steps") is None:
            recipe["steps"] = steps
        if recipe["steps"] is not None and values.get("cost") is not None:
            minutes = recipe["steps"] * values["cost"] / 60
        methods = tuple(_trained(name, {**recipe, "seed": seed}, values) for seed in seeds)
    except (ConfigError, UnknownNameError) as error:
        raise ConfigError(f"{label}: {error}") from error
    return Cell(axes, source, methods, reference, recipe["steps"], minutes, values.get("solutions"))


def _trained(name: str, recipe: Mapping[str, Any], values: Mapping[str, Any]) -> Method:
    decode = dict(values.get("decode") or {})
    kept = {key: decode.pop(key) for key in _DECODE_KEYS if key in decode}
    initial = values.get("initial")
    return parse_method(
        {
            "name": name,
            "recipe": recipe,
            "decode": kept.pop("method", "greedy"),
            "options": decode,
            **({} if initial is None else {"initial": {"seed": recipe["seed"], **initial}}),
            **kept,
        }
    )


def _label(family: Family, axes: Mapping[str, str]) -> str:
    return f"{family.name}, {', '.join(f'{axis}={option}' for axis, option in axes.items())}"


def _check_only(family: Family, only: Mapping[str, Sequence[str]]) -> None:
    for axis, options in only.items():
        if axis not in family.axes:
            raise UnknownNameError(f"axis of {family.name}", axis, family.axes)
        for option in options:
            if option not in family.axes[axis]:
                raise UnknownNameError(f"option of the axis {axis}", option, family.axes[axis])


# ---------------------------------------------------------------- budgets


def _steps(
    family: Family,
    settings: Mapping[Options, Mapping[str, Any]],
    budget: float | None,
    equal: str,
) -> dict[Options, int]:
    """Steps of the trainings whose recipes name none, by arithmetic: no clock is read."""
    if equal not in EQUAL:
        raise UnknownNameError("budget that can be equal", equal, EQUAL)
    open_cells = {
        axes: values
        for axes, values in settings.items()
        if values.get("solver") is None and (values.get("recipe") or {}).get("steps") is None
    }
    fixed = family.variables.get("steps")
    if fixed is not None and budget is None:
        return {axes: int(fixed * each.get("factor", 1)) for axes, each in open_cells.items()}
    minutes = family.variables.get("budget") if budget is None else budget
    if minutes is None:
        return {}
    if not (math.isfinite(minutes) and minutes > 0):
        raise ConfigError(f"expected a positive number of minutes as budget, got {minutes}")
    groups: dict[Options, list[Options]] = {}
    for axes, values in open_cells.items():
        if values.get("cost") is None:
            raise ConfigError(
                f"{_label(family, dict(axes))}: expected `cost`, the seconds of a training step, "
                "got none; measure it with --calibrate, or give `steps`"
            )
        groups.setdefault(_group(family, axes), []).append(axes)
    steps: dict[Options, float] = {}
    for members in groups.values():
        rates = {axes: 60 * minutes / open_cells[axes]["cost"] for axes in members}
        shared = _shared(rates, open_cells, equal)
        steps |= {axes: n * open_cells[axes].get("factor", 1) for axes, n in shared.items()}
        slowest = min(members, key=lambda axes: rates[axes])
        if rates[slowest] < LEAST_STEPS:
            least = LEAST_STEPS * open_cells[slowest]["cost"] / 60
            raise ConfigError(
                f"expected a budget of at least {least:.2g} minutes, in which "
                f"{_label(family, dict(slowest))} makes {LEAST_STEPS} steps, got {minutes:g}"
            )
    return {axes: two_digits(count) for axes, count in steps.items()}


def _group(family: Family, axes: Options) -> Options:
    """What compared trainings have in common: the axes that change recipes, but `compare`."""
    trained = [
        axis
        for axis, options in family.axes.items()
        if axis == "size" or any({"recipe", "cost", "env"} & set(each) for each in options.values())
    ]
    return tuple(
        (axis, option) for axis, option in axes if axis in trained and axis != family.compare
    )


def _shared(
    rates: Mapping[Options, float], cells: Mapping[Options, Mapping[str, Any]], equal: str
) -> dict[Options, float]:
    """Steps of compared trainings, from the steps that each could make in its time."""
    if equal == "minutes":
        return dict(rates)
    if equal == "steps":
        return dict.fromkeys(rates, min(rates.values()))
    missing = next((axes for axes in rates if cells[axes].get("solutions") is None), None)
    if missing is not None:
        raise ConfigError(
            f"expected `solutions` (of a training step) for equal samples, got none for "
            f"{dict(missing)}"
        )
    samples = min(rate * cells[axes]["solutions"] for axes, rate in rates.items())
    return {axes: samples / cells[axes]["solutions"] for axes in rates}


def two_digits(number: float) -> int:
    """A number rounded to two digits, so that similar budgets share trainings; at least 1."""
    digits = max(0, len(str(int(number))) - 2)
    return max(1, round(number / 10**digits) * 10**digits)
