"""Evaluates a policy on a data set with any decoding scheme.

    result = evaluate_policy(env, policy, dataset, method="multistart_greedy_augment_dihedral_8")
    result["avg_reward"], result["rewards"], result["actions"], result["inference_time"]

Solutions are always scored on the original instances by the environment, starts come from the
instances, and the deterministic methods give the same result for every batch size.
"""

from __future__ import annotations

import dataclasses
import time

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.modes import evaluating
from rl4co.core.ops import unbatchify
from rl4co.core.registry import DECODING
from rl4co.core.rng import derive_generator
from rl4co.data.augment import StateAugmentation
from rl4co.data.dataset import TensorDictDataset
from rl4co.data.io import save_tensordict_to_npz
from rl4co.decoding.strategies import (
    BeamSearch,
    DecodeType,
    DecodingStrategy,
    get_decoding_strategy,
)
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.improvement import is_improvement
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.tasks.methods import METHODS, EvalMethod

DatasetLike: TypeAlias = TensorDictBase | TensorDictDataset | str | Path | int


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    """One validated set of choices, applied batch by batch."""

    env: RL4COEnvBase
    policy: nn.Module
    method: EvalMethod
    decoding: Mapping[str, Any]
    num_augment: int
    feats: Sequence[str] | None
    seed: int

    @property
    def strategy(self) -> DecodingStrategy:
        """How the policy is asked to decode, but for what it prefers itself."""
        return get_decoding_strategy(self.method.decode_type, **self.decoding)

    def solutions_per_instance(self, td: TensorDictBase) -> int:
        """How many solutions are decoded for each instance of a state."""
        starts, strategy = 1, self.strategy
        if strategy.multistart:
            starts = strategy.num_starts or self.env.get_num_starts(td)
        copies = self.num_augment if self.method.augment_fn else 1
        width = strategy.beam_width if isinstance(strategy, BeamSearch) else strategy.num_samples
        return int(starts * copies * width)

    def __call__(self, instances: TensorDictBase, first: int) -> tuple[Tensor, Tensor]:
        """Best rewards `[B]` and their actions `[B, T]`.

        Args:
            instances: Batch of instances.
            first: Position of the batch in the data set, from which its randomness is derived.
        """
        device = device_of(self.policy)
        td = self.env.reset(instances).to(device)
        seen = self._augment(td, first)  # [A * B]
        settings = dict(self.decoding)
        if isinstance(self.policy, ConstructivePolicy):
            settings["log_probs"] = False
        if self.strategy.draws and self.strategy.rng is None:
            settings["rng"] = derive_generator(self.seed, "sampling", first, device=device)
        out = self.policy(
            seen,
            self.env,
            phase="test",
            decode_type=self.method.decode_type,
            calc_reward=False,
            **settings,
        )
        return best_solutions(self.env, td, out["actions"])

    def _augment(self, td: TensorDict, first: int) -> TensorDict:
        if self.method.augment_fn is None:
            return td
        augment = StateAugmentation(
            num_augment=self.num_augment,
            augment_fn=self.method.augment_fn,
            feats=self.feats,
            rng=derive_generator(self.seed, "augment", first),
        )
        return augment(td)


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
    feats: Sequence[str] | None = None,
    seed: int = 1234,
    progress: bool = False,
    save_path: str | Path | None = None,
) -> dict[str, Any]:
    """Solves every instance of a data set and reports the best solution of each.

    Args:
        env: Environment.
        policy: Constructive policy; solved on its device, in evaluation mode.
        dataset: Instances, a data set, an `.npz` file, or a number of test instances to generate.
        method: One of :data:`~rl4co.tasks.methods.METHODS`, or a decoding strategy of one's own
            (registered name, class or object), which says itself how many solutions it makes.
        batch_size: Instances per call of the policy; None: chosen from the solutions per instance
            and halved while memory does not suffice.
        max_batch_size: Most instances per call when chosen.
        start_batch_size: Most solutions per call when chosen.
        auto_batch_size: False: `batch_size` must be given.
        samples: Solutions drawn per instance by "sampling".
        softmax_temp: Older name of `temperature`.
        num_augment: Copies of an instance in methods that augment.
        force_dihedral_8: False: the methods "..._dihedral_8" use random symmetries instead.
        num_starts: Starts per instance in multi-start methods; None: all the instance has.
        temperature: Softmax temperature; None: the policy's own.
        top_p: Nucleus of "sampling".
        top_k: Number of actions that "sampling" chooses from.
        beam_width: Width of "beam_search"; None: the strategy's default.
        feats: Coordinate keys to augment; None: those that are there.
        seed: Seed of sampling and random symmetries. Their result depends on the batch size, too.
        progress: Whether to show a progress bar.
        save_path: File (`.npz`) to which rewards and actions are written.

    Returns:
        `rewards [num]` and `actions [num, T]` (padded with zeros to a common length) on the CPU,
        `inference_time` in seconds, and `avg_reward`.
    """
    if is_improvement(env):
        raise UnsupportedError(
            f"expected an environment that constructs solutions, got {env.name}; use "
            "rl4co.tasks.improve.improve, or --improve on the command line"
        )
    chosen = _method(method, force_dihedral_8)
    decoding = _decoding(
        chosen,
        method,
        {
            "num_samples": samples if chosen.samples else None,
            "num_starts": num_starts,
            "temperature": _temperature(temperature, softmax_temp),
            "top_p": top_p,
            "top_k": top_k,
            "beam_width": beam_width,
        },
    )
    evaluation = _Evaluation(env, policy, chosen, decoding, num_augment, feats, seed)
    instances = as_instances(env, dataset)
    if batch_size is None and not auto_batch_size:
        raise ConfigError("expected a batch_size with auto_batch_size=False, got None")
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"expected batch_size of at least 1, got {batch_size}")
    adaptive = batch_size is None
    with torch.no_grad(), evaluating(policy):
        if batch_size is None:
            solutions = evaluation.solutions_per_instance(env.reset(instances[:1]))
            batch_size = max(1, min(max_batch_size, start_batch_size // solutions))
        started = time.perf_counter()
        rewards, actions = _run(evaluation, instances, batch_size, adaptive, progress, str(method))
        inference_time = time.perf_counter() - started
    if save_path is not None:
        results = TensorDict({"rewards": rewards, "actions": actions}, batch_size=[len(rewards)])
        save_tensordict_to_npz(results, save_path)
    return {
        "rewards": rewards,
        "actions": actions,
        "inference_time": inference_time,
        "avg_reward": rewards.mean(),
    }


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


def best_solutions(env: RL4COEnvBase, td: TensorDictBase, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards `[B]` and actions `[B, T]` of each instance's best solution.

    Args:
        env: Environment, which scores the solutions on the instances themselves.
        td: State after reset, batch `[B]`.
        actions: K solutions per instance `[K * B, T]`, row `k * B + b` is solution k of instance b.
    """
    batch = td.batch_size[0]
    copies = actions.shape[0] // batch
    actions = unbatchify(actions, copies)  # [B, K, T]
    state = {
        key: value.unsqueeze(1).expand(batch, copies, *value.shape[1:]) for key, value in td.items()
    }
    rewards, best = env.get_reward(state, actions).max(1)  # [B]
    index = best.view(-1, 1, 1).expand(-1, 1, actions.shape[-1])
    return rewards, actions.gather(1, index).squeeze(1)  # [B, T]


def pad_and_join(actions: Sequence[Tensor]) -> Tensor:
    """Solutions `[B, T]` of several batches as one, padded with zeros to the longest."""
    length = max(action.shape[-1] for action in actions)
    return torch.cat([nn.functional.pad(a, (0, length - a.shape[-1])) for a in actions])


def device_of(policy: nn.Module) -> torch.device:
    """Where the parameters of a policy are; the CPU if it has none."""
    return next((p.device for p in policy.parameters()), torch.device("cpu"))


def _run(
    evaluation: _Evaluation,
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
                reward, action = evaluation(instances[first : first + batch_size], first)
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


def _method(name: DecodeType, force_dihedral_8: bool) -> EvalMethod:
    if _is_own(name):
        return EvalMethod(name, type(get_decoding_strategy(name)).__name__)
    method = METHODS.get(str(name))
    if method is None:
        raise UnknownNameError("evaluation method", name, {*METHODS, *DECODING})
    if method.augment_fn == "dihedral8" and not force_dihedral_8:
        return dataclasses.replace(method, augment_fn="symmetric")
    return method


def _is_own(name: DecodeType) -> bool:
    """Whether it is a strategy of one's own, rather than one of the library's names."""
    return not isinstance(name, str) or name.removeprefix("multistart_") in DECODING


def _decoding(method: EvalMethod, name: object, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given; refuses those that this method would not look at."""
    given = {key: value for key, value in settings.items() if value is not None}
    if _is_own(method.decode_type):
        get_decoding_strategy(method.decode_type, **given)  # refuses what it does not know
        return given
    meaningful = {
        "num_starts": method.decode_type == "multistart_greedy",
        "beam_width": method.decode_type == "beam_search",
        "top_p": method.samples,
        "top_k": method.samples,
    }
    for key, has_meaning in meaningful.items():
        if key in given and not has_meaning:
            raise ConfigError(
                f"expected {key} only with a method that uses it, got {key}={given[key]!r} with "
                f"method {name!r}"
            )
    return given


def _temperature(temperature: float | None, softmax_temp: float | None) -> float | None:
    if temperature is not None and softmax_temp is not None and temperature != softmax_temp:
        raise ConfigError(
            f"expected temperature or softmax_temp, got {temperature} and {softmax_temp}"
        )
    return softmax_temp if temperature is None else temperature
