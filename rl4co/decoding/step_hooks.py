"""Strategies in the published form: `_step`, and hooks before and after the steps.

A strategy of one's own is best written as `choose` (:mod:`rl4co.decoding.strategies`), which knows
nothing of batches and buffers. A class that overrides one of :data:`HOOKS` instead is run as the
published package did, step by step on a TensorDict with rows `s * B + b`
(:mod:`rl4co.decoding.hooked_rollout`); what these methods do unless overridden is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import batchify, gather_nodes, unbatchify, unbatchify_and_gather
from rl4co.decoding.logits import sample_weights

#: Methods of the published form. Whoever overrides one of them gets them all called.
HOOKS = ("pre_decoder_hook", "step", "_step", "post_decoder_hook", "_select_best")


class StepHooks:
    """The published methods of a decoding strategy, and the settings that they read."""

    #: Whether this class is run by its hooks.
    uses_hooks = False
    #: Whether :attr:`logprobs` has those of all actions rather than of the chosen ones.
    store_all_logp = False
    #: Replaces the environment's choice of starts, as the policy was told.
    select_start_nodes_fn: Callable[..., Tensor] | None = None

    multistart: bool
    num_starts: int | None
    num_samples: int
    select_best: bool
    filter: Callable[[Tensor, Tensor], Tensor]
    choose: Callable[[Tensor, int, Any], Tensor]
    #: Actions of the steps so far, `[R]` each.
    actions: Any
    #: Their log-probabilities, `[R]` each, or `[R, N]` with :attr:`store_all_logp`.
    logprobs: list[Tensor]

    def pre_decoder_hook(
        self, td: TensorDictBase, env: Any, action: Tensor | None = None
    ) -> tuple[TensorDictBase, Any, int]:
        """Rows for all solutions; with multi-start, after their first actions.

        Args:
            td: State after reset, batch `[B]`.
            env: The environment.
            action: First actions `[S * B]`; None: the environment's starts.

        Returns:
            State with S · B rows, the environment, and S (0 for one solution per instance).
        """
        if not self.multistart:
            count = self.num_samples if self.num_samples > 1 else 0
            return (batchify(td, count) if count else td), env, count
        count = self.num_starts or env.get_num_starts(td)
        if action is None:
            select = self.select_start_nodes_fn
            action = env.select_start_nodes(td, count) if select is None else select(td, env, count)
        prefix = env.start_prefix(dict(td.items()))  # [B, K], what all solutions begin with
        before = () if prefix is None else batchify(prefix, count).unbind(-1)
        td = batchify(td, count)
        for forced in (*before, action):
            td = env.step(td.set("action", forced))["next"]
            certain = td["action_mask"] if self.store_all_logp else forced
            self.logprobs.append(torch.zeros(certain.shape, device=forced.device))
            self.actions.append(forced)
        return td, env, count

    def step(
        self,
        logits: Tensor,
        mask: Tensor,
        td: TensorDictBase,
        action: Tensor | None = None,
        **kwargs: Any,
    ) -> TensorDictBase:
        """One decision: filters the logits, asks :meth:`_step` and keeps what it says.

        Args:
            logits: `[R, N]`.
            mask: Allowed actions `[R, N]`.
            td: State with R rows.
            action: Given to :meth:`_step`.
            kwargs: Given to :meth:`_step`.

        Returns:
            The state with its `action` `[R]`.
        """
        logprobs = self.filter(logits, mask).log_softmax(-1)
        logprobs, chosen, td = self._step(logprobs, mask, td, action=action, **kwargs)
        td.set("action", chosen)
        self.actions.append(chosen)
        self.logprobs.append(logprobs if self.store_all_logp else gather_nodes(logprobs, chosen))
        return td

    def _step(
        self,
        logprobs: Tensor,
        mask: Tensor,
        td: TensorDictBase,
        action: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor, TensorDictBase]:
        """Log-probabilities `[R, N]`, actions `[R]` and state of a step."""
        return logprobs, self.choose(logprobs, len(self.actions), td), td

    def post_decoder_hook(
        self, td: TensorDictBase, env: Any
    ) -> tuple[Tensor, Tensor, TensorDictBase, Any]:
        """Log-probabilities `[R, T]` or `[R, T, N]`, actions `[R, T]`, final state, environment."""
        logprobs, actions = torch.stack(self.logprobs, 1), torch.stack(self.actions, 1)
        if self.select_best and self.num_starts:
            return self._select_best(logprobs, actions, td, env)
        return logprobs, actions, td, env

    def _select_best(
        self, logprobs: Tensor, actions: Tensor, td: TensorDictBase, env: Any
    ) -> tuple[Tensor, Tensor, TensorDictBase, Any]:
        """The best solution of each instance: S · B rows → B rows."""
        count = self.num_starts or 1
        best = unbatchify(env.get_reward(td, actions), count).argmax(-1)  # [B]
        logprobs, actions, td = (
            unbatchify_and_gather(rows, best, count) for rows in (logprobs, actions, td)
        )
        return logprobs, actions, td, env

    @staticmethod
    def greedy(logprobs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The most likely action: `[R, N]` → `[R]`."""
        return logprobs.argmax(-1)

    @staticmethod
    def sampling(logprobs: Tensor, mask: Tensor | None = None) -> Tensor:
        """A draw from the distribution: `[R, N]` → `[R]`."""
        return sample_weights(logprobs.exp())


def refuse_unheard(cls: type[StepHooks], fixed: str | None) -> None:
    """Raises for a class with methods that nothing would call, before it is ever used.

    Args:
        cls: A class of strategies that was just defined.
        fixed: Name of the strategy that it varies, if that one makes its choices elsewhere.
    """
    own = vars(cls)
    if fixed is not None and (written := [name for name in (*HOOKS, "choose") if name in own]):
        raise ConfigError(
            f"expected no {written[0]} in {cls.__name__}, which is a {fixed}: its actions are not "
            "chosen one by one; derive from DecodingStrategy, or override filter"
        )
    for helper in ("greedy", "sampling"):
        if helper in own and not cls.uses_hooks:
            raise ConfigError(
                f"expected choose(logits, step, state) in {cls.__name__}, got {helper}, which "
                "is a helper that only _step calls; write choose"
            )
    if "choose" in own and "_step" in own:
        raise ConfigError(
            f"expected choose or _step in {cls.__name__}, got both; _step is asked where there is "
            "one, so leave out the other"
        )
