"""Evaluates a policy on a data set with any evaluation method.

    result = evaluate_policy(env, policy, dataset, method="multistart_greedy_augment_dihedral_8")
    result["avg_reward"], result["rewards"], result["actions"], result["inference_time"]

Solutions are always scored on the original instances by the environment, starts come from the
instances, and the deterministic methods give the same result for every batch size.
"""

from __future__ import annotations

import time

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.modes import evaluating
from rl4co.data.dataset import TensorDictDataset
from rl4co.data.io import save_tensordict_to_npz
from rl4co.decoding.strategies import DecodeType
from rl4co.envs.base import RL4COEnvBase
from rl4co.tasks.evaluators import (
    Augmentation,
    Evaluator,
    best_solutions,
    device_of,
    make_evaluator,
)

__all__ = [
    "DatasetLike",
    "as_instances",
    "best_solutions",
    "device_of",
    "evaluate_policy",
    "pad_and_join",
]

DatasetLike: TypeAlias = TensorDictBase | TensorDictDataset | str | Path | int


def evaluate_policy(
    env: RL4COEnvBase,
    policy: nn.Module,
    dataset: DatasetLike,
    method: DecodeType = "greedy",
    batch_size: int | None = None,
    max_batch_size: int = 4096,
    start_batch_size: int = 8192,
    auto_batch_size: bool = True,
    samples: int = 1280,
    softmax_temp: float | None = None,
    num_augment: int = 8,
    force_dihedral_8: bool = True,
    *,
    num_starts: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    beam_width: int | None = None,
    augment_fn: str | None = None,
    feats: Sequence[str] | None = None,
    seed: int = 1234,
    progress: bool = False,
    save_path: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Solves every instance of a data set and reports the best solution of each.

    Args:
        env: Environment.
        policy: The policy; used on its device, in evaluation mode.
        dataset: Instances, a data set, an `.npz` file, or a number of test instances to generate.
        method: Name of an evaluation method (see `rl4co list methods`), a registered decoding
            strategy, also as `multistart_NAME` and followed by `_augment` or `_augment_dihedral_8`,
            or the class or object of a strategy.
        batch_size: Instances per call of the policy; None: chosen from the solutions per instance
            and halved while memory does not suffice.
        max_batch_size: Most instances per call when chosen automatically.
        start_batch_size: Most solutions per call when chosen automatically.
        auto_batch_size: False: `batch_size` is required.
        samples: Solutions sampled per instance by "sampling".
        softmax_temp: Older name of `temperature`.
        num_augment: Copies of an instance in methods that augment.
        force_dihedral_8: False: the methods "..._dihedral_8" use random symmetries instead.
        num_starts: Starts per instance in multi-start methods; None: all starts of the instance.
        temperature: Softmax temperature; None: that of the policy.
        top_p: Nucleus of sampling.
        top_k: Number of actions to sample from.
        beam_width: Width of "beam_search"; None: the strategy's default.
        augment_fn: Symmetries ("dihedral8" or "symmetric") for a strategy that does not name any.
        feats: Coordinate keys to augment; None: chosen automatically.
        seed: Seed of sampling and random symmetries. Their result depends on the batch size, too.
        progress: Whether to show a progress bar.
        save_path: File (`.npz`) to which rewards and actions are written.
        options: Settings of the strategy (`epsilon=0.3` for a custom one); of "ants": `n_ants`,
            `n_iterations`, `max_runtime`, `beta` and `heuristic` ("distance" in place of the
            network's weights); of "glop": those of the solver; of "improve": `copies` and the
            arguments of :func:`~rl4co.tasks.improve.improve`; of "active_search", "eas_emb" and
            "eas_lay": the arguments of :func:`~rl4co.tasks.search.search`.

    Returns:
        `rewards [num]` and `actions [num, T]` (padded with zeros to a common length) on the CPU,
        `inference_time` in seconds, and `avg_reward`; of "improve" with one batch also `times` in
        seconds and `incumbents`, the best costs after each step `[T + 1, num]`.
    """
    evaluator = make_evaluator(
        env,
        policy,
        method,
        named={
            "num_samples": samples,
            "num_starts": num_starts,
            "temperature": _temperature(temperature, softmax_temp),
            "top_p": top_p,
            "top_k": top_k,
            "beam_width": beam_width,
        },
        options=options,
        augmentation=Augmentation(augment_fn, num_augment, feats, force_dihedral_8),
        seed=seed,
    )
    instances = as_instances(env, dataset)
    if batch_size is None and not auto_batch_size:
        raise ConfigError("expected a batch_size with auto_batch_size=False, got None")
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"expected batch_size of at least 1, got {batch_size}")
    adaptive = batch_size is None
    with torch.no_grad(), evaluating(policy):
        if batch_size is None:
            solutions = evaluator.solutions_per_instance(env.reset(instances[:1]))
            batch_size = max(1, min(max_batch_size, start_batch_size // solutions))
        started = time.perf_counter()
        rewards, actions = _run(evaluator, instances, batch_size, adaptive, progress, str(method))
        inference_time = time.perf_counter() - started
    if save_path is not None:
        results = TensorDict({"rewards": rewards, "actions": actions}, batch_size=[len(rewards)])
        save_tensordict_to_npz(results, save_path)
    result: dict[str, Any] = {
        "rewards": rewards,
        "actions": actions,
        "inference_time": inference_time,
        "avg_reward": rewards.mean(),
    }
    trajectories: Sequence[Any] = getattr(evaluator, "trajectories", ())
    if len(trajectories) == 1:
        result["times"], result["incumbents"] = trajectories[0]
    return result


def as_instances(env: RL4COEnvBase, dataset: DatasetLike) -> TensorDictBase:
    """Instances from anything that :func:`evaluate_policy` accepts as a data set."""
    if isinstance(dataset, TensorDictDataset):
        dataset = dataset.data
    elif isinstance(dataset, str | Path):
        dataset = env.load_data(dataset)
    elif isinstance(dataset, int) and not isinstance(dataset, bool):
        generated = env.dataset(dataset, phase="test")
        if isinstance(generated, dict):
            raise ConfigError(
                f"expected one test set, got {sorted(generated)}; pass one of env.dataset(...)"
            )
        dataset = generated.data
    if not isinstance(dataset, TensorDictBase):
        raise ConfigError(
            "expected instances (TensorDict), a TensorDictDataset, an .npz file or a number of "
            f"instances as data set, got {type(dataset).__name__}"
        )
    if 0 in dataset.batch_size:
        raise ConfigError(
            f"expected at least one instance to solve, got batch {list(dataset.batch_size)}; is "
            "the data set or the slice of it empty?"
        )
    if len(dataset.batch_size) != 1:
        raise ConfigError(
            f"expected instances with one batch axis, got batch {list(dataset.batch_size)}; "
            "flatten the batch, or unsqueeze(0) a single instance"
        )
    return dataset


def pad_and_join(actions: Sequence[Tensor]) -> Tensor:
    """Solutions `[B, T]` of several batches as one, padded with zeros to the longest."""
    length = max(action.shape[-1] for action in actions)
    return torch.cat([nn.functional.pad(a, (0, length - a.shape[-1])) for a in actions])


def _run(
    evaluator: Evaluator,
    instances: TensorDictBase,
    batch_size: int,
    adaptive: bool,
    progress: bool,
    title: str,
) -> tuple[Tensor, Tensor]:
    """Rewards `[num]` and actions `[num, T]` on the CPU."""
    from rich.progress import Progress

    from rl4co.core.console import Console

    num = instances.batch_size[0]
    rewards: list[Tensor] = []
    actions: list[Tensor] = []
    first = 0
    with Progress(console=Console(stderr=True), disable=not progress) as bar:
        task = bar.add_task(title, total=num)
        while first < num:
            try:
                reward, action = evaluator(instances[first : first + batch_size], first)
            except torch.OutOfMemoryError:
                if not adaptive or batch_size == 1:
                    raise
                batch_size = batch_size // 2
                continue
            rewards.append(reward.cpu())
            actions.append(action.cpu())
            first += batch_size
            bar.update(task, completed=min(first, num))
    return torch.cat(rewards), pad_and_join(actions)


def _temperature(temperature: float | None, softmax_temp: float | None) -> float | None:
    if temperature is not None and softmax_temp is not None and temperature != softmax_temp:
        raise ConfigError(
            f"expected temperature or softmax_temp, got {temperature} and {softmax_temp}"
        )
    return softmax_temp if temperature is None else temperature
