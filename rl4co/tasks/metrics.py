"""Measures of a benchmark: gaps, primal integrals, comparable times. Pure functions of numbers.

They follow the paper's benchmarking setup (RL4CO, appendix on metrics). Values are in the units of
an instance; `maximize` says that more is better, as for the prizes of the orienteering problem.
Gaps and primal integrals are percentages, 0 is as good as the best-known solution.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import statistics

from collections.abc import Iterable, Sequence

from rl4co.core.errors import ConfigError

#: Gap, in percent, that counts before there is any solution (Berthold, 2013).
INITIAL_GAP = 100.0


# ---------------------------------------------------------------- gaps


def gap(value: float, best: float, maximize: bool = False) -> float:
    r"""How much worse a value is than the best-known one, in percent of the latter.

    $100 (a - a^*) / |a^*|$, and $100 (a^* - a) / |a^*|$ where more is better. Negative: a new best.

    Args:
        value: Value $a$ of a solution.
        best: Best-known value $a^*$.
        maximize: Whether more is better.

    Raises:
        ConfigError: The best-known value is 0 and the value is not, or one of them is no number.
    """
    for name, number in (("value", value), ("best-known value", best)):
        if not math.isfinite(number):
            raise ConfigError(f"expected a finite {name}, got {number}")
    excess = best - value if maximize else value - best
    if not excess:
        return 0.0
    if not best:
        raise ConfigError(
            f"expected a best-known value other than 0, got 0 for a value of {value:g}; a gap has "
            "no meaning there, compare the values themselves"
        )
    return 100.0 * excess / abs(best)


def mean_gap(values: Sequence[float], bests: Sequence[float], maximize: bool = False) -> float:
    """The average of the gaps of all instances, which is not the gap of the averages.

    Args:
        values: Value of a solution of each instance.
        bests: Best-known value of each instance.
        maximize: Whether more is better.
    """
    if len(values) != len(bests) or not values:
        raise ConfigError(
            f"expected a value and a best-known value for at least one instance, got {len(values)} "
            f"and {len(bests)}"
        )
    return statistics.fmean(gap(a, b, maximize) for a, b in zip(values, bests, strict=True))


# ---------------------------------------------------------------- incumbents


@dataclasses.dataclass(frozen=True)
class Incumbents:
    """The best solution so far, as a function of time: a step for each improvement.

    Attributes:
        times: Seconds since the beginning, ascending.
        values: Value of the best solution from each time on, each better than the one before.
        maximize: Whether more is better.
    """

    times: tuple[float, ...]
    values: tuple[float, ...]
    maximize: bool = False

    def __post_init__(self) -> None:
        if len(self.times) != len(self.values):
            raise ConfigError(
                f"expected a value for each time, got {len(self.values)} values and "
                f"{len(self.times)} times"
            )
        if not all(map(math.isfinite, (*self.times, *self.values))):
            raise ConfigError("expected finite times and values of incumbents, got NaN or infinity")
        if any(time < 0 for time in self.times) or list(self.times) != sorted(self.times):
            raise ConfigError(f"expected ascending times from 0 on, got {list(self.times)}")
        pairs = zip(self.values, self.values[1:], strict=False)
        if not all(_is_better(after, before, self.maximize) for before, after in pairs):
            raise ConfigError(
                f"expected values that improve, got {list(self.values)}; use Incumbents.of_points"
            )

    @classmethod
    def of_points(cls, points: Iterable[tuple[float, float]], maximize: bool = False) -> Incumbents:
        """From all solutions found, whether or not they improve on earlier ones.

        Args:
            points: Pairs of time and value, in any order.
            maximize: Whether more is better.
        """
        kept: list[tuple[float, float]] = []
        for time, value in sorted(points, key=lambda point: point[0]):
            if not kept or _is_better(value, kept[-1][1], maximize):
                kept.append((time, value))
        return cls(tuple(t for t, _ in kept), tuple(v for _, v in kept), maximize)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def best(self) -> float:
        """Value of the last incumbent."""
        if not self.values:
            raise ConfigError("expected at least one incumbent, got none")
        return self.values[-1]

    def value_at(self, time: float) -> float | None:
        """Value of the best solution at a time; None before the first."""
        position = bisect.bisect_right(self.times, time)
        return self.values[position - 1] if position else None

    def gap_at(self, time: float, best: float) -> float | None:
        """Gap in percent at a time; None before the first solution.

        Args:
            time: Seconds since the beginning.
            best: Best-known value.
        """
        value = self.value_at(time)
        return None if value is None else gap(value, best, self.maximize)


def _is_better(value: float, than: float, maximize: bool) -> bool:
    return value > than if maximize else value < than


def primal_integral(
    incumbents: Incumbents,
    best: float,
    time_limit: float,
    initial_gap: float = INITIAL_GAP,
) -> float:
    r"""The gap averaged over the time budget, in percent: anytime performance, lower is better.

    $$PI = 100 \left(\frac{\sum_{i=1}^{n} a_{i-1} (t_i - t_{i-1}) + a_n (T_{max} - t_n)}
    {T_{max}\, a^*} - 1\right)$$

    with $t_0 = 0$. The paper leaves $a_0$ open, the value before the first solution. Here it is
    given by `initial_gap`: $a_0 = 2 a^*$ by default (Berthold, 2013), or a prize of 0 where more is
    better; the DIMACS challenge (2022) took 10. Solutions found after $T_{max}$ do not count.

    Paper: https://doi.org/10.1016/j.orl.2013.08.007

    Args:
        incumbents: Values $a_1, ..., a_n$ and their times.
        best: Best-known value $a^*$.
        time_limit: Seconds $T_{max}$.
        initial_gap: Gap in percent until the first solution.
    """
    if not (math.isfinite(time_limit) and time_limit > 0):
        raise ConfigError(f"expected a positive time limit, got {time_limit}")
    area, since, current = 0.0, 0.0, initial_gap
    for time, value in zip(incumbents.times, incumbents.values, strict=True):
        if time >= time_limit:
            break
        area += current * (time - since)
        since, current = time, gap(value, best, incumbents.maximize)
    return (area + current * (time_limit - since)) / time_limit


# ---------------------------------------------------------------- time


def per_instance_time(seconds: float, batch_size: int) -> float:
    """Time of one instance, if so many were solved together: an equal share.

    It is a throughput, and shorter than what a single instance would have to wait.
    """
    if batch_size < 1:
        raise ConfigError(f"expected a batch of at least 1 instance, got {batch_size}")
    return seconds / batch_size


def passmark_score(
    cpu_mark: float, gpu_mark: float = 0.0, *, num_cpus: int = 1, num_gpus: int = 1
) -> float:
    r"""PassMark score of a machine: $s = (\#CPU \cdot CPU\_Mark + \#GPU \cdot GPU\_Mark) / 2$.

    Args:
        cpu_mark: PassMark's rating of one thread of the processor (https://www.passmark.com).
        gpu_mark: PassMark's rating of the graphics card; 0 for methods that use none.
        num_cpus: Threads in use.
        num_gpus: Graphics cards in use.
    """
    if cpu_mark < 0 or gpu_mark < 0 or num_cpus < 0 or num_gpus < 0:
        raise ConfigError(
            f"expected marks and numbers of processors that are not negative, got {cpu_mark}, "
            f"{gpu_mark}, {num_cpus}, {num_gpus}"
        )
    return 0.5 * (num_cpus * cpu_mark + num_gpus * gpu_mark)


def normalize_runtime(seconds: float, score: float, reference_score: float) -> float:
    r"""Time on one machine, converted to another: $\tilde t_2 = t_1 s_1 / s_2$.

    Args:
        seconds: Time $t_1$ on the machine of the measurement.
        score: Its score $s_1$, see :func:`passmark_score`.
        reference_score: Score $s_2$ of the other machine.
    """
    if not (score > 0 and reference_score > 0):
        raise ConfigError(f"expected positive scores, got {score} and {reference_score}")
    return seconds * score / reference_score


# ---------------------------------------------------------------- summaries


@dataclasses.dataclass(frozen=True)
class Summary:
    """Summary of numbers.

    Attributes:
        count: How many there are.
        mean: Average.
        std: Standard deviation (of the population).
        minimum: Smallest.
        median: Middle one.
        maximum: Largest.
    """

    count: int
    mean: float
    std: float
    minimum: float
    median: float
    maximum: float


def summarize(values: Sequence[float]) -> Summary | None:
    """Mean, spread and extremes; None of no values."""
    if not values:
        return None
    return Summary(
        count=len(values),
        mean=statistics.fmean(values),
        std=statistics.pstdev(values),
        minimum=min(values),
        median=statistics.median(values),
        maximum=max(values),
    )


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Points that no other point beats in both numbers, by ascending first number.

    Args:
        points: Pairs of numbers of which less is better, such as time and gap.

    Returns:
        Their positions; of equal points the first.
    """
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda k: (*points[k], k)):
        if not front or points[index][1] < points[front[-1]][1]:
            front.append(index)
    return front
