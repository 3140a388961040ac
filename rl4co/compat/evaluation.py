"""Evaluation by objects, as in the published `rl4co.tasks.eval`.

`rl4co.tasks.eval.evaluate_policy` does the same by name. A custom evaluation derives from
:class:`EvalBase` and solves a batch in `_inner`.
"""

from __future__ import annotations

import time

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rich.console import Console
from rich.progress import track
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.modes import evaluating
from rl4co.data.augment import StateAugmentation
from rl4co.envs.base import RL4COEnvBase
from rl4co.tasks.evaluate import best_solutions, device_of, pad_and_join


class EvalBase:
    """Evaluates policies on batches of instances.

    Args:
        env: Environment.
        progress: Whether to show a progress bar.
    """

    name = "base"

    def __init__(self, env: RL4COEnvBase, progress: bool = True) -> None:
        self.env, self.progress = env, progress

    def __call__(
        self, policy: nn.Module, dataloader: Iterable[TensorDictBase], **options: Any
    ) -> dict[str, Any]:
        """Solves all batches; the result is that of `evaluate_policy`.

        Args:
            policy: Policy; solved on its device, in evaluation mode.
            dataloader: Batches of instances.
            options: Arguments of :meth:`_inner`.
        """
        rewards: list[Tensor] = []
        actions: list[Tensor] = []
        started = time.perf_counter()
        bar = track(dataloader, self.name, console=Console(stderr=True), disable=not self.progress)
        with torch.no_grad(), evaluating(policy):
            for batch in bar:
                td = self.env.reset(batch).to(device_of(policy))
                solved, reward = self._inner(policy, td, **options)
                actions.append(solved.cpu())
                rewards.append(reward.cpu())
        joined = torch.cat(rewards)
        return {
            "actions": pad_and_join(actions),
            "rewards": joined,
            "inference_time": time.perf_counter() - started,
            "avg_reward": joined.mean(),
        }

    def _inner(self, policy: nn.Module, td: TensorDict) -> tuple[Tensor, Tensor]:
        """Actions `[B, T]` and rewards `[B]` of a batch that was reset."""
        raise NotImplementedError

    def _solve(
        self, policy: nn.Module, td: TensorDict, seen: TensorDict, **decoding: Any
    ) -> tuple[Tensor, Tensor]:
        """The best solutions of instances `td [B]`, which the policy sees as `seen [A * B]`."""
        out = policy(seen, self.env, phase="test", calc_reward=False, **decoding)
        rewards, actions = best_solutions(self.env, td, out["actions"])
        return actions, rewards


class GreedyEval(EvalBase):
    """One greedy solution per instance."""

    name = "greedy"

    def _inner(self, policy: nn.Module, td: TensorDict) -> tuple[Tensor, Tensor]:
        return self._solve(policy, td, td, decode_type="greedy")


class SamplingEval(EvalBase):
    """The best of several samples.

    Args:
        env: Environment.
        samples: Samples per instance.
        softmax_temp: Older name of `temperature`, which it replaces.
        select_best: Only True is supported: the best sample counts.
        temperature: Softmax temperature.
        top_p: Nucleus; 0: all actions.
        top_k: Number of actions to choose from; 0: all.
        progress: Whether to show a progress bar.
    """

    name = "sampling"

    def __init__(
        self,
        env: RL4COEnvBase,
        samples: int,
        softmax_temp: float | None = None,
        select_best: bool = True,
        temperature: float = 1.0,
        top_p: float = 0.0,
        top_k: int = 0,
        progress: bool = True,
    ) -> None:
        super().__init__(env, progress)
        if not select_best:
            raise ConfigError(
                "expected select_best=True, got False; for all samples call "
                "policy(td, env, decode_type='sampling', num_samples=...)"
            )
        self.samples, self.top_p, self.top_k = samples, top_p, top_k
        self.temperature = temperature if softmax_temp is None else softmax_temp

    def _inner(self, policy: nn.Module, td: TensorDict) -> tuple[Tensor, Tensor]:
        return self._solve(
            policy,
            td,
            td,
            decode_type="sampling",
            num_samples=self.samples,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
        )


class AugmentationEval(EvalBase):
    """The best of greedy solutions under several symmetries.

    Args:
        env: Environment.
        num_augment: Copies of an instance.
        force_dihedral_8: Whether the symmetries are those of the square, or random.
        feats: Coordinate keys; None: those that are there.
        progress: Whether to show a progress bar.
    """

    name = "augmentation"

    def __init__(
        self,
        env: RL4COEnvBase,
        num_augment: int = 8,
        force_dihedral_8: bool = False,
        feats: Sequence[str] | None = None,
        progress: bool = True,
    ) -> None:
        super().__init__(env, progress)
        symmetries = "dihedral8" if force_dihedral_8 else "symmetric"
        self.augmentation = StateAugmentation(num_augment, symmetries, feats=feats)

    @property
    def num_augment(self) -> int:
        """Copies of an instance."""
        return self.augmentation.num_augment

    def _inner(self, policy: nn.Module, td: TensorDict) -> tuple[Tensor, Tensor]:
        return self._solve(policy, td, self.augmentation(td), decode_type="greedy")


class GreedyMultiStartEval(EvalBase):
    """The best of greedy solutions from several starts.

    Args:
        env: Environment.
        num_starts: Starts per instance; None: all that it has.
        progress: Whether to show a progress bar.
    """

    name = "multistart_greedy"

    def __init__(
        self, env: RL4COEnvBase, num_starts: int | None = None, progress: bool = True
    ) -> None:
        super().__init__(env, progress)
        self.num_starts = num_starts

    def _inner(self, policy: nn.Module, td: TensorDict) -> tuple[Tensor, Tensor]:
        starts = self.num_starts or self.env.get_num_starts(td)
        return self._solve(policy, td, td, decode_type="multistart_greedy", num_starts=starts)


class GreedyMultiStartAugmentEval(AugmentationEval):
    """The best of greedy solutions from several starts under several symmetries.

    Args:
        env: Environment.
        num_starts: Starts per instance; None: all that it has.
        num_augment: Copies of an instance.
        force_dihedral_8: See :class:`AugmentationEval`.
        feats: Coordinate keys; None: those that are there.
        progress: Whether to show a progress bar.
    """

    name = "multistart_greedy_augment"

    def __init__(
        self,
        env: RL4COEnvBase,
        num_starts: int | None = None,
        num_augment: int = 8,
        force_dihedral_8: bool = False,
        feats: Sequence[str] | None = None,
        progress: bool = True,
    ) -> None:
        super().__init__(env, num_augment, force_dihedral_8, feats, progress)
        self.num_starts = num_starts

    def _inner(self, policy: nn.Module, td: TensorDict) -> tuple[Tensor, Tensor]:
        starts = self.num_starts or self.env.get_num_starts(td)
        seen = self.augmentation(td)
        return self._solve(policy, td, seen, decode_type="multistart_greedy", num_starts=starts)
