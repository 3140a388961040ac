"""Decoding strategies in the published style: `_step`, and hooks before and after the steps.

A published strategy works on a TensorDict with rows `s * B + b`, and may repeat, reorder or drop
rows between steps. So every step goes through the environment's `step`, with gradients where these
are wanted, and nothing is compiled or replayed. :class:`StepHooks` has the methods that such a
class finds behind `super()`.
"""

from __future__ import annotations

import copy

from collections.abc import Callable
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import (
    batchify,
    flatten_starts,
    gather_nodes,
    step_entropy,
    unbatchify,
    unbatchify_and_gather,
)
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.rollout import DecodingTask, EndOfEpisode, Rollout, expand_solutions
from rl4co.envs.base import State

#: Methods of the published style. If a class overrides one of them, all are called.
HOOKS = ("pre_decoder_hook", "step", "_step", "post_decoder_hook", "_select_best")


def adapt(cls: Any) -> Any:
    """Makes a class of strategies that overrides published methods run by them.

    Args:
        cls: A subclass of :class:`~rl4co.decoding.strategies.DecodingStrategy`, right after its
            definition.
    """
    _check_overrides(cls)
    if any(name in vars(cls) for name in HOOKS) and not issubclass(cls, StepHooks):
        cls.__bases__ = (StepHooks, *cls.__bases__)
    return cls


def _check_overrides(cls: Any) -> None:
    """Raises for a class with methods that would never be called."""
    overrides = vars(cls)
    if cls.fixed_choice and "fixed_choice" not in overrides:
        for name in HOOKS:
            if name in overrides:
                raise ConfigError(
                    f"expected no {name} in {cls.__name__}: the actions of {cls.fixed_choice} are "
                    "not chosen one by one; derive from DecodingStrategy, or override filter"
                )
    hooked = issubclass(cls, StepHooks) or any(name in overrides for name in HOOKS)
    for helper in ("greedy", "sampling"):
        if helper in overrides and not hooked:
            raise ConfigError(
                f"expected choose(logits, step, state) in {cls.__name__}, got {helper}, which "
                "is a helper that only _step calls; define choose"
            )
    if "choose" in overrides and "_step" in overrides:
        raise ConfigError(
            f"expected choose or _step in {cls.__name__}, got both; where there is a _step, choose "
            "is not called, so remove one of them"
        )


class StepHooks:
    """The published methods of a decoding strategy, and the settings that they read.

    :func:`adapt` puts it in front of the bases of a class that overrides one of :data:`HOOKS`.
    """

    can_replay = False
    #: Whether :attr:`logprobs` has those of all actions rather than of the chosen ones.
    store_all_logp = False
    #: Replaces the environment's choice of starts, as the policy was told.
    select_start_nodes_fn: Callable[..., Tensor] | None = None

    multistart: bool
    fixed_choice: str | None
    num_starts: int | None
    num_samples: int
    select_best: bool
    filter: Callable[[Tensor, Tensor], Tensor]
    choose: Callable[[Tensor, int, Any], Tensor]
    #: Actions of the steps so far, `[R]` each.
    actions: Any
    #: Their log-probabilities, `[R]` each, or `[R, N]` with :attr:`store_all_logp`.
    logprobs: list[Tensor]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Published strategies keep their buffers as attributes, so they are not frozen."""
        setattr(cls, "__setattr__", object.__setattr__)  # noqa: B010
        return super().__new__(cls)

    def run(self, task: DecodingTask) -> Rollout:
        """Constructs solutions by the hooks."""
        return decode_by_hooks(task, self)

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


def decode_by_hooks(task: DecodingTask, strategy: Any) -> Rollout:
    """Constructs solutions by `pre_decoder_hook`, `step` and `post_decoder_hook`.

    Args:
        task: What is decoded.
        strategy: The strategy; a copy of it runs, with its own buffers.
    """
    env, state, batch = task.env, task.state, len(task.state["done"])
    first = {k: value[:, 0] for k, value in state.items() if k not in task.memory_keys}  # [B, ...]
    run = _copy_to_run(strategy)
    run.store_all_logp = task.with_entropy
    if task.starts:
        start = flatten_starts(task.starts[-1])  # [S * B]
        run.select_start_nodes_fn = lambda td, env, num_starts: start
    td: TensorDictBase = TensorDict(first, batch_size=[batch])
    td, env, run.num_starts = run.pre_decoder_hook(td, env)
    if task.memory_keys:
        td.update(_memory_of(task, run.actions, td.batch_size[0] // batch))

    end = EndOfEpisode(task)
    while not end.is_reached(len(run.actions), dict(td.items())):
        logits = flatten_starts(task.logits(_by_instance(td, batch)))  # [R, N]
        td = run.step(logits, td["action_mask"], td)
        td = env.step(td)["next"]
        if task.memorise is not None and task.memory_keys:
            changed = task.memorise(_by_instance(td, batch))
            td.update({key: flatten_starts(value) for key, value in changed.items()})
    logprobs, actions, td, _ = run.post_decoder_hook(td, env)
    last = actions.shape[1] - end.surplus
    logprobs, actions = logprobs[:, :last], actions[:, :last]
    return _to_rollout(logprobs, actions, _by_instance(td, batch), task.with_entropy)


def _copy_to_run(strategy: Any) -> Any:
    """A copy with its own buffers and collections, so that a run leaves no trace."""
    run = copy.copy(strategy)
    collections = {k: v for k, v in vars(run).items() if isinstance(v, list | dict | set)}
    vars(run).update({key: copy.copy(value) for key, value in collections.items()})
    vars(run).update(actions=[], logprobs=[])
    return run


def _memory_of(task: DecodingTask, actions: list[Tensor], width: int) -> State:
    """The policy's memory `[S * B, ...]` after the actions of the first hook."""
    state = task.state
    if state["done"].shape[1] != width:  # the hook made other rows than the settings say
        state = expand_solutions({key: value[:, 0] for key, value in state.items()}, width)
    for action in actions:
        state = task.advance(state, unbatchify(action, width))
    return {key: flatten_starts(state[key]) for key in task.memory_keys}


def _by_instance(td: TensorDictBase, batch: int) -> State:
    """Rows by instance: `[S * B, ...]` → `[B, S, ...]`."""
    rows = td.batch_size[0]
    if rows % batch:
        raise ConfigError(
            f"expected as many rows for each of {batch} instances from the hooks of a decoding "
            f"strategy, got {rows} rows; keep row s * {batch} + b for solution s of instance b"
        )
    return {key: unbatchify(value, rows // batch) for key, value in td.items()}


def _to_rollout(logprobs: Tensor, actions: Tensor, state: State, with_entropy: bool) -> Rollout:
    """From rows `[R, T]` (or `[R, T, N]`) to axes `[B, S, T]`."""
    width = state["done"].shape[1]
    entropy = None
    if logprobs.dim() == 3:
        entropy = unbatchify(step_entropy(logprobs), width) if with_entropy else None
        logprobs = gather_nodes(logprobs, actions)
    return Rollout(
        actions=unbatchify(actions, width),
        log_probs=unbatchify(logprobs, width),
        entropy=entropy,
        state=state,
    )
