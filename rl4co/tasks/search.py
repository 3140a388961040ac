"""Searches with a policy that is adapted to the instances, in one call.

    result = search(policy, env, instances, method="eas_lay", iterations=200)
    result.actions, result.rewards, result.history

`save_path` keeps the best solutions during the search, so that a killed one can be resumed.
"""

from __future__ import annotations

import contextlib

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rl4co.core.errors import UnknownNameError
from rl4co.core.lazy import resolve
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.instance_search import Progress
from rl4co.models.rl.search_record import SearchResult
from rl4co.models.rl.transductive import TransductiveModel
from rl4co.tasks.evaluate import DatasetLike, as_instances
from rl4co.tasks.methods import SEARCHES


def search(
    policy: nn.Module,
    env: RL4COEnvBase,
    instances: DatasetLike,
    method: str = "eas_lay",
    *,
    iterations: int = 200,
    batch_size: int | None = None,
    max_runtime: float | None = None,
    save_path: str | Path | None = None,
    seed: int = 1234,
    progress: bool = False,
    stop: Callable[[], bool] = lambda: False,
    on_best: Callable[[Tensor], None] | None = None,
    **options: Any,
) -> SearchResult:
    """Adapts a policy to instances and returns the best solutions found.

    Args:
        policy: Pretrained policy; not modified. The search runs on its device.
        env: Environment.
        instances: Instances, a data set, an `.npz` file, or a number of test instances to generate.
        method: One of :data:`~rl4co.tasks.methods.SEARCHES`.
        iterations: Iterations for each instance.
        batch_size: Instances that are searched at the same time; None: the method's default.
        max_runtime: Seconds for each batch; None: no limit.
        save_path: File for the best solutions, renewed as the search goes. An existing file of the
            same search is continued.
        seed: Seed of all randomness.
        progress: Whether to show a progress bar with the mean of the best rewards.
        stop: Called before every iteration but the first; True ends the search.
        on_best: Called with the best solutions so far `[num, T]` after every iteration.
        options: Further arguments of the method's model, see
            :class:`~rl4co.models.rl.transductive.TransductiveModel`: `augment_size`,
            `decode_type`, `num_solutions`, `optimizer_kwargs`, ...

    Returns:
        Actions, rewards and their history, on the CPU.
    """
    if method not in SEARCHES:
        raise UnknownNameError("search method", method, SEARCHES)
    if batch_size is not None:
        options["batch_size"] = batch_size
    model: TransductiveModel = resolve("rl4co.models", SEARCHES[method].model)(
        env,
        policy,
        as_instances(env, instances),
        max_iters=iterations,
        max_runtime=max_runtime,
        save_path=save_path,
        seed=seed,
        **options,
    )
    weight = next(policy.parameters(), None)
    if weight is not None:
        model.to(weight.device)
    with _bar(method, model, progress) as show:

        def report(state: Progress) -> bool:
            show(state)
            if on_best is not None:
                on_best(model.record.solutions.clone())
            return not stop()

        return model.search(report)


@contextlib.contextmanager
def _bar(title: str, model: TransductiveModel, shown: bool) -> Iterator[Callable[[Progress], None]]:
    """A progress bar over all iterations of all instances."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from rl4co.core.console import Console

    record = model.record
    columns = (
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[best]}"),
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True), disable=not shown) as bar:
        total = len(record.iterations) * model.max_iters
        task = bar.add_task(title, total=total, best="")

        def report(progress: Progress) -> None:
            rewards = record.rewards[record.rewards.isfinite()]
            bar.update(
                task,
                completed=int(record.iterations.sum()),
                best=f"best {float(rewards.mean()):.4f} ({len(rewards)} instances)",
            )

        yield report
