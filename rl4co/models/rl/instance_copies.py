"""Instances, their copies under symmetries, and the solutions that a policy finds for the copies.

A symmetry changes coordinates but no distances: a solution of a copy is a solution of the instance,
and it is scored there. Copies are the outermost axis of the rows, as everywhere: row `k * B + b` is
copy k of instance b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import batchify, unbatchify
from rl4co.envs.base import RL4COEnvBase

#: A policy's call: reset instances, environment and settings → output by name.
PolicyFn = Callable[..., dict[str, Any]]


class CopySolutions(NamedTuple):
    """Solutions of all copies of all instances.

    Attributes:
        actions: `[B, K, S, T]`.
        rewards: On the original instances `[B, K, S]`.
        log_likelihood: `[B, K, S]`.
    """

    actions: Tensor
    rewards: Tensor
    log_likelihood: Tensor


class InstanceCopies:
    """A batch of instances and K copies of each.

    Args:
        env: Environment.
        td: Reset instances, batch `[B]`.
        augment: One instance `[1]` → its copies `[K]`, the same call for each of them; None: the
            instance itself.
        num_runs: How often the copies are repeated.
        multistart: Whether solutions begin with distinct starts; None: where there are any.
        num_solutions: Solutions per copy; None: as many as there are starts or, without starts,
            actions.
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        td: TensorDictBase,
        augment: Callable[[TensorDictBase], TensorDictBase] | None = None,
        num_runs: int = 1,
        multistart: bool | None = None,
        num_solutions: int | None = None,
    ) -> None:
        self.env, self.originals = env, dict(td.items())
        self.batch = td.batch_size[0]
        self.td: TensorDict = batchify(_augmented(td, augment), num_runs)  # [K * B]
        self.num_copies = self.td.batch_size[0] // self.batch
        self.multistart = _has_starts(env, td) if multistart is None else multistart
        offered = env.get_num_starts(td) if self.multistart else td["action_mask"].shape[-1]
        self.num_solutions = num_solutions or offered

    def solve(
        self, policy: PolicyFn, incumbent: Tensor | None = None, **settings: Any
    ) -> CopySolutions:
        """Samples solutions of all copies.

        Args:
            policy: Policy.
            incumbent: Solutions `[B, T]` of the instances that the policy follows with one more
                solution, the last one; -1 after their ends.
            settings: Further settings of the policy's call.
        """
        count = self.num_solutions
        if incumbent is not None:
            count += 1
            settings["incumbent"] = batchify(incumbent, self.num_copies)  # [K * B, T]
        if self.multistart:
            settings |= {
                "decode_type": "multistart_sampling",
                "num_starts": count,
                "select_start_nodes_fn": self._choose_starts(settings.get("incumbent")),
            }
        else:
            settings |= {"decode_type": "sampling", "num_samples": count}
        out = policy(self.td, self.env, phase="train", calc_reward=False, **settings)
        actions = self._by_instance(out["actions"], count)  # [B, K, S, T]
        return CopySolutions(
            actions, self._score(actions), self._by_instance(out["log_likelihood"], count)
        )

    def decode(self, policy: PolicyFn, **settings: Any) -> tuple[Tensor, Tensor]:
        """One solution of each copy, `[B, K, T]`, and its reward on the instance `[B, K]`.

        Args:
            policy: Policy.
            settings: Further settings of the policy's call.
        """
        out = policy(self.td, self.env, phase="test", calc_reward=False, **settings)
        actions = self._by_instance(out["actions"], 1)  # [B, K, 1, T]
        return actions.squeeze(2), self._score(actions).squeeze(2)

    def _choose_starts(self, incumbent: Tensor | None) -> Callable[..., Tensor]:
        """The environment's starts and, last, that of the incumbent `[K * B, T]`."""

        def choose(td: TensorDictBase, env: RL4COEnvBase, _: int) -> Tensor:
            starts = env.select_start_nodes(td, self.num_solutions)  # [S * K * B]
            if incumbent is not None:
                prefix = env.start_prefix(dict(td.items()))
                first = incumbent[:, 0 if prefix is None else prefix.shape[-1]]  # [K * B]
                starts = torch.cat([starts, first])
            return starts

        return choose

    def _by_instance(self, rows: Tensor, count: int) -> Tensor:
        """The policy's rows `[S * K * B, ...]` → `[B, K, S, ...]`."""
        return unbatchify(rows, (self.num_copies, count))

    def _score(self, actions: Tensor) -> Tensor:
        """Rewards `[B, K, S]` on the instances as they were passed."""
        shape = actions.shape[1:3]
        state = {
            key: value[:, None, None].expand(-1, *shape, *value.shape[1:])
            for key, value in self.originals.items()
        }
        # Samples keep to the mask; those that matter, the incumbents, are checked.
        return self.env.get_reward(state, actions, check_solution=False)


def _has_starts(env: RL4COEnvBase, td: TensorDictBase) -> bool:
    try:
        return env.get_num_starts(td) > 1
    except UnsupportedError:
        return False


def _augmented(
    td: TensorDictBase, augment: Callable[[TensorDictBase], TensorDictBase] | None
) -> TensorDictBase:
    """All copies `[K * B]`; each instance gets the same random symmetries, whatever its batch."""
    if augment is None:
        return td
    copies = [augment(td[b : b + 1]) for b in range(td.batch_size[0])]
    return torch.stack(copies, 1).flatten(0, 1)  # [K, B] -> [K * B]
