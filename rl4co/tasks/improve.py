"""Improves solutions with a trained policy, for a number of steps or seconds, in one call.

    result = improve(policy, env, instances, steps=1000, initial="greedy")
    result.costs, result.actions, result.incumbents, result.times

First solutions are random, greedy, given, or those of a constructive policy. The best solution of
every instance is kept, so there is a result whenever the search stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.modes import evaluating
from rl4co.core.ops import batchify
from rl4co.core.rng import derive_generator
from rl4co.data.augment import dihedral_8_augmentation
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.hooks import State
from rl4co.envs.improvement import ImprovementEnvBase, Initial
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.tasks.evaluate import DatasetLike, as_instances

Augmentation = Literal["dihedral8", "random", "dynamic"]
#: Steps without improvement after which dynamic augmentation draws another symmetry.
PATIENCE = 10
_NUM_SYMMETRIES = 8


@dataclasses.dataclass(frozen=True)
class ImprovementResult:
    """The best solutions and how they were found; all on the CPU.

    Attributes:
        solutions: Successors in the best solutions `[B, N]`.
        actions: The same as actions of the constructive environment `[B, T]`: node 0 first where it
            is a node like others, without it where it is a depot.
        costs: Their costs `[B]`.
        incumbents: Best costs after 0, 1, 2, ... steps `[T + 1, B]`.
        times: Seconds from the start to each of these `[T + 1]`; making the first solutions counts.
        stopped: Why it ended: "steps", "seconds" or "interrupted".
    """

    solutions: Tensor
    actions: Tensor
    costs: Tensor
    incumbents: Tensor
    times: Tensor
    stopped: str

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.times) - 1


def improve(
    policy: ImprovementPolicy,
    env: RL4COEnvBase,
    instances: DatasetLike,
    steps: int | None = None,
    *,
    seconds: float | None = None,
    initial: Initial | None = None,
    num_augment: int = 1,
    augment: Augmentation | None = None,
    restart_after: int | None = None,
    seed: int = 1234,
    progress: bool = False,
    stop: Callable[[], bool] | None = None,
    **decoding: Any,
) -> ImprovementResult:
    """Improves solutions of all instances at the same time.

    Ctrl-C ends it early; the best solutions so far are returned.

    Args:
        policy: Improvement policy; not changed, used in evaluation mode on its device.
        env: Improvement environment.
        instances: Instances, a data set, an `.npz` file, or a number of test instances to generate.
            States of the environment go on from their best solutions, unless `initial` says other.
        steps: Most steps.
        seconds: Most seconds, first solutions included; at least one of both limits is needed.
        initial: First solutions: "random", "greedy", successors `[B, N]`, or a constructive policy
            (see :meth:`ImprovementEnvBase.reset`); default: as the environment has it.
        num_augment: Copies of an instance, each with its own moves (and random first solution); the
            best of them counts.
        augment: Symmetries under which the policy sees the copies; costs stay the same:
            "dihedral8": the eight symmetries of the square in order (DACT);
            "random": one of them drawn for each copy (N2S-A);
            "dynamic": drawn anew after ten steps without improvement (NeuOpt's D2A).
            Default: that of the method, see `policy.inference`.
        restart_after: Steps without gain after which an instance goes on from its best solution; 0:
            never. Default: that of the method.
        seed: Seed of all randomness. Moves are drawn for all instances together, so the result
            of an instance depends on how many there are.
        progress: Whether to show a progress bar with the mean of the best costs.
        stop: Called before every step; True ends the search.
        decoding: `decode_type`, `temperature`, `top_k`, `top_p`, `tanh_clipping` of the policy.
    """
    started = time.perf_counter()
    _check_policy(policy)
    _check_limits(steps, seconds, num_augment, restart_after)
    policy.check_decoding(**decoding)
    chosen = policy.environment(env)
    augment = augment or policy.inference.get("augment", "dihedral8")
    if augment not in get_args(Augmentation):
        raise UnknownNameError("augmentation", augment, get_args(Augmentation))
    if restart_after is None:
        restart_after = int(policy.inference.get("restart_after", 0))
    device = next(policy.parameters()).device
    batch = as_instances(chosen, instances).to(device)
    if "rec_best" in batch.keys():  # states
        initial = batch["rec_best"] if initial is None else initial
        batch = chosen.instances_of(batch)
    rng = derive_generator(seed, "improve")
    copies = batchify(batch, num_augment) if num_augment > 1 else batch
    if isinstance(initial, Tensor) and num_augment > 1:
        initial = batchify(initial, num_augment)
    with torch.no_grad(), evaluating(policy):
        search = _Search(policy, chosen, copies, initial, augment, num_augment, restart_after, rng)
        record = _Record(len(batch), num_augment, started)
        record.add(search.state)
        stopped = _run(search, record, steps, seconds, progress, stop, decoding)
    return _result(search.state, chosen, record, stopped, num_augment)


class _Search:
    """Current solutions, and the views of them that the policy sees."""

    def __init__(
        self,
        policy: ImprovementPolicy,
        env: ImprovementEnvBase,
        instances: TensorDictBase,
        initial: Initial | None,
        augment: str,
        num_augment: int,
        restart_after: int,
        rng: torch.Generator,
    ) -> None:
        self.policy, self.env, self.rng = policy, env, rng
        self.augment, self.restart_after = augment, restart_after
        self.state: State = dict(env.reset(instances, initial=initial, rng=rng).items())
        locs = self.state["locs"]
        self.idle = torch.zeros(len(locs), dtype=torch.int64, device=locs.device)
        # All views of an instance [8, B, N, 2], and which one each row is shown [B].
        self.views = dihedral_8_augmentation(locs).unflatten(0, (_NUM_SYMMETRIES, -1))
        copy = torch.arange(num_augment, device=locs.device)
        if augment != "dihedral8":
            drawn = torch.randint(_NUM_SYMMETRIES, (num_augment,), generator=rng).to(locs.device)
            copy = torch.where(copy == 0, copy, drawn)  # one copy is the instance itself
        self.view = (copy % _NUM_SYMMETRIES).repeat_interleave(len(locs) // num_augment)

    def step(self, decoding: Mapping[str, Any]) -> None:
        """One move of every row."""
        rows = torch.arange(len(self.view), device=self.view.device)
        view = {**self.state, "locs": self.views[self.view, rows]}
        td = TensorDict(view, batch_size=[len(rows)])
        action = self.policy(td, self.env, phase="test", rng=self.rng, **decoding)["actions"]
        self.env.check_moves(td, action)
        self.state = self.env.advance(self.state, action)
        gained = self.state["reward"].squeeze(-1) > 0
        self.idle = torch.where(gained, 0, self.idle + 1)
        if self.augment == "dynamic":
            drawn = torch.randint(_NUM_SYMMETRIES, self.view.shape, generator=self.rng)
            is_due = (self.idle > 0) & (self.idle % PATIENCE == 0)
            self.view = torch.where(is_due, drawn.to(self.view.device), self.view)
        if self.restart_after:
            back = (self.idle > 0) & (self.idle % self.restart_after == 0)
            self.state = self.env.restart_from_best(self.state, back)


class _Record:
    """Best costs and seconds, step by step."""

    def __init__(self, num_instances: int, num_augment: int, started: float) -> None:
        self.shape, self.started = (num_augment, num_instances), started
        self.points: list[tuple[Tensor, float]] = []
        self.state: State = {}

    def add(self, state: State) -> None:
        costs = state["cost_bsf"].view(self.shape).amin(0).cpu()
        # An interrupt comes before or after this line, never between its parts.
        self.points.append((costs, time.perf_counter() - self.started))
        self.state = state


def _run(
    search: _Search,
    record: _Record,
    steps: int | None,
    seconds: float | None,
    progress: bool,
    stop: Callable[[], bool] | None,
    decoding: Mapping[str, Any],
) -> str:
    """Improves until a limit is reached; returns which one."""
    with _bar(steps, seconds, progress) as report:
        try:
            while True:
                done, now = len(record.points) - 1, record.points[-1][1]
                if steps is not None and done >= steps:
                    return "steps"
                # Another step is only made if it fits into the time, judged by the last one.
                last = now - record.points[-2][1] if done else 0.0
                if seconds is not None and now + last > seconds:
                    return "seconds"
                if stop is not None and stop():
                    return "interrupted"
                search.step(decoding)
                record.add(search.state)
                report(record)
        except KeyboardInterrupt:
            if search.state is not record.state:  # a step that was made, but not recorded yet
                record.add(search.state)
            return "interrupted"


def _result(
    state: State, env: ImprovementEnvBase, record: _Record, stopped: str, num_augment: int
) -> ImprovementResult:
    costs, best = state["cost_bsf"].view(record.shape).min(0)  # [B]
    successors = state["rec_best"].unflatten(0, record.shape)  # [A, B, N]
    index = best[None, :, None].expand(1, -1, successors.shape[-1])
    solutions = successors.gather(0, index).squeeze(0)  # [B, N]
    env.check_solution_validity({**_rows(state, len(costs)), "rec_best": solutions})
    return ImprovementResult(
        solutions.cpu(),
        env.constructive_actions(solutions).cpu(),
        costs.cpu(),
        torch.stack([best for best, _ in record.points]),
        torch.tensor([seconds for _, seconds in record.points], dtype=torch.float64),
        stopped,
    )


def _rows(state: State, count: int) -> State:
    return {key: value[:count] for key, value in state.items()}


def _check_policy(policy: Any) -> None:
    if isinstance(policy, ImprovementPolicy):
        return
    inner = isinstance(getattr(policy, "policy", None), ImprovementPolicy)
    advice = "pass its .policy" if inner else "policies that construct solutions go to evaluate"
    raise ConfigError(f"expected an improvement policy, got {type(policy).__name__}; {advice}")


def _check_limits(
    steps: int | None, seconds: float | None, num_augment: int, restart_after: int | None
) -> None:
    if steps is None and seconds is None:
        raise ConfigError("expected a limit, got neither steps nor seconds; give one of them")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ConfigError(f"expected steps to be an integer of at least 1, got {steps!r}")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and seconds > 0):
        raise ConfigError(f"expected a positive number of seconds, got {seconds!r}")
    if type(num_augment) is not int or num_augment < 1:
        raise ConfigError(f"expected num_augment to be an integer from 1 on, got {num_augment!r}")
    if restart_after is not None and (type(restart_after) is not int or restart_after < 0):
        raise ConfigError(
            f"expected restart_after to be an integer from 0 on, or None, got {restart_after!r}"
        )


@contextlib.contextmanager
def _bar(
    steps: int | None, seconds: float | None, shown: bool
) -> Iterator[Callable[[_Record], None]]:
    """A progress bar over steps, or over seconds if only these are limited."""
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from rl4co.core.console import Console

    columns = (
        TextColumn("Improving"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[best]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        task = bar.add_task("", total=float(steps if steps is not None else seconds or 0), best="")

        def report(record: _Record) -> None:
            if not shown:
                return
            made, (costs, seconds_so_far) = len(record.points) - 1, record.points[-1]
            best = f"step {made}, mean best cost {float(costs.mean()):.4f}"
            done = made if steps is not None else seconds_so_far
            bar.update(task, completed=done, best=best)

        yield report
