"""Evaluation by objects, as in the published `rl4co.tasks.eval`.

`rl4co.tasks.eval.evaluate_policy` does the same by name. A custom evaluation derives from
:class:`EvalBase` and solves a batch in `_inner`.
"""

from __future__ import annotations

import time

from collections.abc import Iterable, Mapping, Sequence
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


class _DecodingEval(EvalBase):
    """The best solution of each instance, decoded with fixed settings, perhaps of several copies.

    Attributes:
        decoding: Settings of the policy's call.
        augmentation: Symmetries under which instances are solved, or None.
        num_starts: Starts of each instance, where there are several; None: all that it has.
    """

    decoding: Mapping[str, Any] = {}
    augmentation: StateAugmentation | None = None
    num_starts: int | None = None

    def _inner(self, policy: nn.Module, td: TensorDict) -> tuple[Tensor, Tensor]:
        decoding = dict(self.decoding)
        if self.name.startswith("multistart"):
            decoding["num_starts"] = self.num_starts or self.env.get_num_starts(td)
        seen = td if self.augmentation is None else self.augmentation(td)  # [A * B]
        out = policy(seen, self.env, phase="test", calc_reward=False, **decoding)
        rewards, actions = best_solutions(self.env, td, out["actions"])
        return actions, rewards


class GreedyEval(_DecodingEval):
    """One greedy solution per instance; arguments: see :class:`EvalBase`."""

    name = "greedy"
    decoding = {"decode_type": "greedy"}


class SamplingEval(_DecodingEval):
    """The best of several samples.

    Args:
        env: See :class:`EvalBase`.
        samples: Samples per instance.
        softmax_temp: Older name of `temperature`, which it replaces.
        select_best: Only True is supported: the best sample counts.
        temperature: Softmax temperature.
        top_p: Nucleus; 0: all actions.
        top_k: Number of actions to choose from; 0: all.
        progress: See :class:`EvalBase`.
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
        self.decoding = {
            "decode_type": "sampling",
            "num_samples": samples,
            "temperature": temperature if softmax_temp is None else softmax_temp,
            "top_p": top_p,
            "top_k": top_k,
        }


class AugmentationEval(_DecodingEval):
    """The best of greedy solutions under several symmetries.

    Args:
        env: See :class:`EvalBase`.
        num_augment: Copies of an instance.
        force_dihedral_8: Whether the symmetries are those of the square, or random.
        feats: Coordinate keys; None: those that are there.
        progress: See :class:`EvalBase`.
    """

    name = "augmentation"
    decoding = {"decode_type": "greedy"}

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


class GreedyMultiStartEval(_DecodingEval):
    """The best of greedy solutions from several starts.

    Args:
        env: See :class:`EvalBase`.
        num_starts: Starts per instance; None: all that it has.
        progress: See :class:`EvalBase`.
    """

    name = "multistart_greedy"
    decoding = {"decode_type": "multistart_greedy"}

    def __init__(
        self, env: RL4COEnvBase, num_starts: int | None = None, progress: bool = True
    ) -> None:
        super().__init__(env, progress)
        self.num_starts = num_starts


class GreedyMultiStartAugmentEval(AugmentationEval):
    """The best of greedy solutions from several starts under several symmetries.

    Args:
        env: See :class:`EvalBase`.
        num_starts: See :class:`GreedyMultiStartEval`.
        args: See :class:`AugmentationEval`.
        kwargs: See :class:`AugmentationEval`.
    """

    name = "multistart_greedy_augment"
    decoding = {"decode_type": "multistart_greedy"}

    def __init__(
        self, env: RL4COEnvBase, num_starts: int | None = None, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(env, *args, **kwargs)
        self.num_starts = num_starts
