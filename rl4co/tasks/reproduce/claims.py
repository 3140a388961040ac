"""Claims of the paper, decided on our results: five verdicts, and "not run" without results.

A claim names a statistic that is negative if the claim is true. It holds if the 95 % interval of
the statistic lies below 0 in every comparison, and does not hold if it lies above 0 in one. The
interval is over training seeds if there are three, else over instances, which are paired. The
paper contradicts itself if its own printed values give the opposite sign.
"""

from __future__ import annotations

import dataclasses
import itertools

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.tasks.reproduce.paper import PaperValues
from rl4co.tasks.reproduce.results import Measured, Numbers, Results
from rl4co.tasks.reproduce.table import Family

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
BELOW_BUDGET, CONTRADICTED = "below its least budget", "the paper contradicts itself"
NOT_RUN = "not run"
VERDICTS = (HOLDS, FAILS, UNDECIDED, BELOW_BUDGET, CONTRADICTED)

_KINDS = ("less", "best", "at_most", "at_least", "spread")
_KEYS = ("text", "where", "from", "metric", "over", "by", "contradiction", "line", *_KINDS)
#: Resamples of instances behind an interval, and its level.
_RESAMPLES, _LEVELS = 1000, (2.5, 97.5)
#: Training seeds from which the interval is over seeds.
_MANY_SEEDS = 3


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A claim on one combination of the other axes.

    Attributes:
        axes: The combination.
        value: The statistic, negative if the claim is true.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    axes: Mapping[str, str]
    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        text: The claim.
        verdict: One of :data:`VERDICTS`, or :data:`NOT_RUN`.
        comparisons: What was compared.
        note: An explanation.
    """

    text: str
    verdict: str
    comparisons: tuple[Comparison, ...] = ()
    note: str = ""


def check_claims(family: Family) -> None:
    """Raises for claims with unknown keys, axes or options."""
    for claim in family.claims:
        for key in claim:
            if key not in _KEYS:
                raise UnknownNameError(f"key of the claim {claim.get('text')!r}", key, _KEYS)
        where = {str(axis): each for axis, each in claim.get("where", {}).items()}
        selections = [(a, o) for item in _items(family, claim) for a, o in item.items()]
        selections += [(a, str(o)) for a, each in where.items()
                       for o in (each if isinstance(each, list) else [each])]  # fmt: skip
        for axis, option in selections:
            if axis not in family.options:
                raise UnknownNameError(f"axis of {family.name}", axis, family.options)
            if option not in family.options[axis]:
                raise UnknownNameError(f"option of the axis {axis}", option, family.options[axis])


def judge(results: Results, paper: PaperValues, text: str | None = None) -> list[Verdict]:
    """The verdicts on the claims of a family.

    Args:
        results: Our results.
        paper: The paper's values.
        text: Judge only claims whose text contains this.
    """
    check_claims(results.family)
    claims = [claim for claim in results.family.claims if (text or "") in claim["text"]]
    if text is not None and not claims:
        names = [claim["text"] for claim in results.family.claims]
        raise UnknownNameError(f"claim of {results.family.name}", text, names)
    return [_judge(results, paper, claim) for claim in claims]


# ---------------------------------------------------------------- claims


def _kind(claim: Mapping[str, Any]) -> str:
    kinds = [kind for kind in _KINDS if kind in claim]
    if len(kinds) != 1 or "text" not in claim:
        raise ConfigError(
            f"expected a claim with `text` and one of {', '.join(_KINDS)}, got {dict(claim)}"
        )
    return kinds[0]


def _items(family: Family, claim: Mapping[str, Any]) -> list[dict[str, str]]:
    """What a claim compares: selections of options."""
    entry = claim[_kind(claim)]
    entries = entry if isinstance(entry, list) else [entry]
    return [_selection(family, each) for each in entries if not isinstance(each, int | float)]


def _selection(family: Family, entry: Any) -> dict[str, str]:
    if isinstance(entry, Mapping):
        return {str(axis): str(option) for axis, option in entry.items()}
    return {family.axis_of(str(entry)): str(entry)}


def _judge(results: Results, paper: PaperValues, claim: Mapping[str, Any]) -> Verdict:
    family, kind = results.family, _kind(claim)
    items = _items(family, claim)
    where = dict(claim.get("where", {}))
    over = claim.get("over", family.compare if kind == "spread" else None)
    compared = {axis for item in items for axis in item} | ({over} if over else set())
    measured = results.select(where)
    comparisons, steps, missing, signs = [], [], 0, []
    for combination in _combinations(measured, compared):
        groups = [[m for m in measured if m.cell.fits({**combination, **item})] for item in items]
        if kind == "best":
            axis = next(iter(items[0]))
            rivals = [m for m in measured if m.cell.fits(combination) and m not in groups[0]
                      and axis in m.axes]  # fmt: skip
            groups.append(rivals)
        cells = [cell for group in groups for cell in group]
        if not all(groups):
            continue  # the combination does not exist, or the profile does not have an option
        signs.append(_statistic(kind, claim, [_printed(paper, group, claim) for group in groups]))
        if not all(cell.is_complete for cell in cells):
            missing += 1
            continue
        steps += [cell.cell.steps for cell in cells if cell.cell.steps is not None]
        comparisons.append(_compare(kind, claim, groups, combination))
    verdict, note = _verdict(claim, comparisons, steps, missing)
    if claim.get("contradiction"):
        verdict, note = CONTRADICTED, f"{claim['contradiction']}; ours: {verdict}"
    elif any(sign is not None and sign > 0 for sign in signs):
        verdict, note = CONTRADICTED, f"its printed values say the opposite; ours: {verdict}"
    return Verdict(claim["text"], verdict, tuple(comparisons), note)


def _verdict(
    claim: Mapping[str, Any], comparisons: Sequence[Comparison], steps: Sequence[int], missing: int
) -> tuple[str, str]:
    if not comparisons or missing:
        return NOT_RUN, f"{missing} comparisons lack results" if missing else ""
    least = claim.get("from")
    if least is not None and steps and min(steps) < least:
        return BELOW_BUDGET, f"{min(steps)} steps, decided from {least}"
    failing = [each for each in comparisons if each.low > 0]
    if failing:
        return FAILS, ""
    open_ones = [each for each in comparisons if each.high >= 0]
    return (UNDECIDED, "") if open_ones else (HOLDS, "")


def _combinations(measured: Sequence[Measured], compared: set[str]) -> list[dict[str, str]]:
    """Combinations of the axes that a claim does not compare."""
    axes: dict[str, dict[str, None]] = {}
    for each in measured:
        for axis, option in each.axes.items():
            if axis not in compared:
                axes.setdefault(axis, {})[option] = None
    return [dict(zip(axes, names, strict=True)) for names in itertools.product(*axes.values())]


# ---------------------------------------------------------------- statistics


def _statistic(
    kind: str, claim: Mapping[str, Any], groups: Sequence[Sequence[float | None]]
) -> float | None:
    """A number that is negative if the claim is true, from the means of each group's cells."""
    means = [[mean for mean in group if mean is not None] for group in groups]
    if not all(means) or any(len(a) < len(b) for a, b in zip(means, groups, strict=True)):
        return None
    if kind in ("less", "best"):
        factor = float(claim.get("by", 1.0))  # "less by a factor of 6": by: 6
        return factor * max(means[0]) - min(itertools.chain(*means[1:]))
    if kind == "at_most":
        return max(means[0]) - _bound(claim, kind)
    if kind == "at_least":
        return _bound(claim, kind) - min(means[0])
    first, second = (max(group) - min(group) for group in means)
    return first - second


def _bound(claim: Mapping[str, Any], kind: str) -> float:
    return float(next(each for each in claim[kind] if isinstance(each, int | float)))


def _compare(
    kind: str,
    claim: Mapping[str, Any],
    groups: Sequence[Sequence[Measured]],
    axes: Mapping[str, str],
) -> Comparison:
    metric = claim.get("metric", "gap")
    arrays = [[cell.per_instance(metric) for cell in group] for group in groups]

    def value(choose: Callable[[Numbers], Numbers]) -> float:
        means = [[float(np.nanmean(choose(array))) for array in group] for group in arrays]
        number = _statistic(kind, claim, means)
        assert number is not None
        return number

    seeds = min(len(array) for group in arrays for array in group)
    centre = value(lambda array: array)
    if seeds >= _MANY_SEEDS:
        from scipy.stats import t

        numbers = np.array([value(lambda a, s=seed: a[s % len(a)]) for seed in range(seeds)])  # type: ignore[misc]
        half = t.ppf(0.975, seeds - 1) * numbers.std(ddof=1) / seeds**0.5
        return Comparison(axes, centre, centre - half, centre + half)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(_RESAMPLES):
        rows: dict[int, Any] = {}  # sets of the same size are paired

        def resampled(array: Numbers, rows: dict[int, Any] = rows) -> Numbers:
            size = array.shape[1]
            if size not in rows:
                rows[size] = rng.integers(0, size, size)
            return array[:, rows[size]]

        draws.append(value(resampled))
    low, high = np.percentile(draws, _LEVELS)
    return Comparison(axes, centre, float(low), float(high))


def _printed(
    paper: PaperValues, group: Sequence[Measured], claim: Mapping[str, Any]
) -> list[float | None]:
    """The paper's values of a group of cells."""
    values = [paper.find(each.axes, claim.get("metric", "gap")) for each in group]
    return [None if value is None else value.number for value in values]
