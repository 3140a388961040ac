"""Constructive policies: encode once, decode a solution step by step.

:class:`ConstructivePolicy` owns the road from a state to solutions, rewards and log-likelihoods.
Training takes the fast lane where the decoder allows it: actions are sampled without gradients,
then the log-probabilities of all steps are computed at once (:mod:`rl4co.decoding.replay`).
"""

from __future__ import annotations

import functools

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, InvalidActionError, NotFiniteError, UnknownNameError
from rl4co.core.ops import flatten_starts, unbatchify
from rl4co.core.registry import ENVS
from rl4co.decoding.beam import beam_search
from rl4co.decoding.hooked_rollout import decode_by_hooks
from rl4co.decoding.replay import replay
from rl4co.decoding.rollout import (
    LogitsFn,
    MemoryFn,
    Rollout,
    decode,
    expand_solutions,
    refuse_dead_ends,
    walk,
)
from rl4co.decoding.starts import behind_prefix, environment_starts, forced_actions
from rl4co.decoding.strategies import (
    BeamSearch,
    DecodeType,
    DecodingStrategy,
    Evaluate,
    complete_strategy,
    is_multistart,
)
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.policies.entry import (
    forget_static_dynamics_,
    in_own_precision,
    knows_its_problem,
    match_precision,
    remaining_steps,
    spares_autograd,
)
from rl4co.models.policies.modules import ConstructiveDecoder, NoEncoder
from rl4co.models.policies.pretrained import PretrainedMixin
from rl4co.models.policies.published_style import published_logits
from rl4co.models.policies.task import (
    DecodingTask,
    count_solutions,
    refuse_forbidden,
    refuse_impossible,
    require_one_batch_axis,
    smaller_limit,
)

StartsFn = Callable[[TensorDictBase, RL4COEnvBase, int], Tensor]
_PHASES = ("train", "val", "test")


class ConstructivePolicy(PretrainedMixin, nn.Module):
    """A policy that constructs solutions from scratch.

    Args:
        encoder: Instance → latent representation; None: the decoder reads the state alone.
        decoder: State and latent representation → logits.
        env_name: Environment used when none is passed to :meth:`forward`.
        temperature: Default softmax temperature.
        tanh_clipping: Bound of the tanh clipping of logits (0 = none).
        mask_logits: Whether forbidden actions are masked.
        train_decode_type: Decode type of the training phase: a name, or a class or object of
            :class:`~rl4co.decoding.strategies.DecodingStrategy`.
        val_decode_type: Decode type of the validation phase.
        test_decode_type: Decode type of the test phase.
        replay_chunk: Steps per piece of the replay; None: pieces are chosen by size.
        check_nan: Whether NaN log-likelihoods raise an error (one look per call).
    """

    def __init__(
        self,
        encoder: nn.Module | None,
        decoder: ConstructiveDecoder,
        env_name: str = "tsp",
        temperature: float = 1.0,
        tanh_clipping: float = 0.0,
        mask_logits: bool = True,
        train_decode_type: DecodeType = "sampling",
        val_decode_type: DecodeType = "greedy",
        test_decode_type: DecodeType = "greedy",
        replay_chunk: int | None = None,
        check_nan: bool = True,
    ) -> None:
        super().__init__()
        if replay_chunk is not None and replay_chunk < 1:
            raise ConfigError(f"expected replay_chunk of at least 1 or None, got {replay_chunk}")
        encoder = NoEncoder() if encoder is None else encoder
        for name, part in {"encoder": encoder, "decoder": decoder}.items():
            if not isinstance(part, nn.Module):
                raise ConfigError(
                    f"expected an nn.Module as {name}, got {part!r}; the name of an environment is "
                    "the argument env_name"
                )
        self.encoder, self.decoder, self.env_name = encoder, decoder, env_name
        self.temperature = temperature
        self.tanh_clipping = tanh_clipping
        self.mask_logits = mask_logits
        self.train_decode_type = train_decode_type
        self.val_decode_type = val_decode_type
        self.test_decode_type = test_decode_type
        self.replay_chunk = replay_chunk
        self.check_nan = check_nan
        for phase in _PHASES:  # refuses bad settings now, not in the first step
            self._strategy(phase, None, None, 1, {})

    @knows_its_problem
    @in_own_precision
    @spares_autograd
    def forward(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase | str | None = None,
        phase: str = "train",
        calc_reward: bool = True,
        return_actions: bool = True,
        return_entropy: bool = False,
        return_hidden: bool = False,
        return_init_embeds: bool = False,
        return_sum_log_likelihood: bool = True,
        actions: Tensor | None = None,
        decode_type: DecodeType | None = None,
        max_steps: int | None = None,
        num_steps: int | None = None,
        select_start_nodes_fn: StartsFn | None = None,
        hidden: Any = None,
        **decoding: Any,
    ) -> dict[str, Any]:
        """Constructs solutions.

        Networks and environment compute in the precision of the weights; rewards are those of the
        instances as they are given.

        A state may have steps behind it (`env.reset`, then a few `env.step`): the policy goes on
        from there and returns the remaining actions. Only a whole solution has a reward, so this
        takes `calc_reward=False`.

        Args:
            td: State after `env.reset`, batch `[B]`; not modified.
            env: Environment, its name, or None for the policy's own.
            phase: "train", "val" or "test"; selects the default decode type.
            calc_reward: Whether to evaluate the solutions.
            return_actions: Whether the output has `actions`.
            return_entropy: Whether the output has `entropy`.
            return_hidden: Whether the output has `hidden`.
            return_init_embeds: Whether the output has `init_embeds`.
            return_sum_log_likelihood: Sum log-probabilities over steps; otherwise `[rows, T]`.
            actions: Solutions `[B, T]` (or `[S * B, T]`) to evaluate instead of decoding. With a
                multi-start `decode_type` their first action counts as forced.
            decode_type: greedy, sampling, multistart_greedy, multistart_sampling, beam_search,
                evaluate or a registered name; or a strategy of one's own, class or object.
            max_steps: Refuse solutions that take longer (default: the environment's bound).
            num_steps: Take exactly this many steps without looking at `done`.
            select_start_nodes_fn: Replaces the environment's choice of starts.
            hidden: The encoder's result for `td` from an earlier call (`return_hidden`), to decode
                from it without encoding again.
            decoding: Settings of the decoding strategy: `num_starts`, `num_samples`,
                `temperature`, `top_k`, `top_p`, `beam_width`, `select_best`, `rng`, ...; without
                gradients, `log_probs=False` saves computing `log_likelihood`.

        Returns:
            `reward` `[rows]`, `log_likelihood` `[rows]`, `actions` `[rows, T]` and what was asked
            for. With S solutions per instance there are S · B rows, row `s * B + b` being solution
            s of instance b; `select_best` keeps B rows.
        """
        env = self._environment(env)
        require_one_batch_axis(td)
        strategy = self._strategy(phase, decode_type, actions, td.batch_size[0], decoding)
        given: State = dict(td.items())
        max_steps = smaller_limit(
            max_steps, remaining_steps(env, given, strategy.multistart, calc_reward)
        )
        td = match_precision(td, self)
        state = dict(td.items())

        if hidden is None:
            hidden, init_embeds = self.encoder(td)
        elif return_init_embeds:
            raise ConfigError("expected return_init_embeds=False beside hidden, got True")
        forget_static_dynamics_(self.decoder, expand_solutions(state, 1))
        cache = self.decoder.prepare(hidden, state)

        starts = None
        if isinstance(strategy, Evaluate):
            num_steps = strategy.given().shape[-1]
            if strategy.multistart:
                starts = strategy.given()[..., : forced_actions(env, state)]
        elif strategy.multistart:
            num_starts = strategy.num_starts or env.get_num_starts(td)
            choose = select_start_nodes_fn or environment_starts
            first = unbatchify(choose(td, env, num_starts), num_starts)  # [B, S]
            starts = behind_prefix(first, env.start_prefix(state))  # [B, S, K]
        solutions = expand_solutions(state, count_solutions(strategy, starts))
        memory = self.decoder.start_memory(solutions, cache)
        solutions.update(memory)

        task = DecodingTask(
            env, state, hidden, cache, solutions, strategy, starts,
            return_entropy, num_steps, max_steps,
        )  # fmt: skip
        rollout = self._decode(task)
        out: dict[str, Any] = {}
        if rollout.log_probs is not None:  # [B, S] or [B, S, T]
            values = rollout.log_probs
            out["log_likelihood"] = values.sum(-1) if return_sum_log_likelihood else values
        if calc_reward:
            width = rollout.actions.shape[1]  # not S after a beam search
            final = expand_solutions(given, width)
            # A decoder may have changed the states of solutions.
            if width == solutions["done"].shape[1]:
                final.update(memory)
            if env.scores_final_states and rollout.state:
                final = rollout.state
            out["reward"] = env.get_reward(final, rollout.actions)  # [B, S]
        if return_actions:
            out["actions"] = rollout.actions
        if return_entropy:
            out["entropy"] = _sum_steps(rollout.entropy)
        if strategy.select_best:
            out = _select_best(out)
        out = {key: flatten_starts(value) for key, value in out.items()}
        if return_hidden:
            out["hidden"] = hidden
        if return_init_embeds:
            out["init_embeds"] = init_embeds
        return out

    def evaluate(
        self,
        td: TensorDictBase,
        actions: Tensor,
        env: RL4COEnvBase | str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Log-likelihood, entropy and reward of given solutions, differentiable.

        Args:
            td: State after `env.reset`, batch `[B]`.
            actions: `[B, T]` or `[S * B, T]`.
            env: Environment, its name, or None for the policy's own.
            options: Further arguments of :meth:`forward`.
        """
        return self(td, env, actions=actions, return_entropy=True, **options)

    # ---------------------------------------------------------------- decoding

    def _decode(self, task: DecodingTask) -> Rollout:
        """Solutions and their log-probabilities, by one of four ways."""
        strategy = task.strategy
        known = isinstance(strategy, Evaluate)
        keys = self._replay_keys if strategy.replays else None
        try:
            if strategy.uses_hooks:
                rollout = self._follow_hooks(task)
            elif isinstance(strategy, BeamSearch):
                rollout = self._search(task, strategy)
            elif keys is not None and (known or torch.is_grad_enabled()):
                rollout = self._learn(task, keys)
            else:
                rollout = self._infer(task)
        except InvalidActionError:
            if self.check_nan:  # diverged weights lead nowhere, but they are the cause
                self._refuse_nan(task, self._logits_fn(task)(task.solutions))
            raise
        if self.check_nan:  # without log-probabilities the first logits tell
            values = rollout.log_probs
            if values is None:
                values = self._logits_fn(task)(task.solutions)
            self._refuse_nan(task, values, rollout.actions)
            if rollout.log_probs is not None and not (known and strategy.truncates):
                refuse_impossible(values)
        return rollout

    def _search(self, task: DecodingTask, strategy: BeamSearch) -> Rollout:
        """The most likely solutions."""
        return beam_search(
            task.env, task.solutions, self._logits_fn(task), strategy,
            memorise=self._memorise(task), num_steps=task.num_steps, max_steps=task.max_steps,
        )  # fmt: skip

    def _follow_hooks(self, task: DecodingTask) -> Rollout:
        """Solutions of a strategy in the published form, step by step as it says."""
        memory = tuple(key for key in task.solutions if key not in task.state)
        return decode_by_hooks(
            task.env, task.solutions, self._logits_fn(task), task.strategy, starts=task.starts,
            memory=memory, memorise=self._memorise(task), with_entropy=task.with_entropy,
            num_steps=task.num_steps, max_steps=task.max_steps,
        )  # fmt: skip

    def _infer(self, task: DecodingTask) -> Rollout:
        """Solutions step by step; with gradients through every step, if these are wanted."""
        if not (torch.is_grad_enabled() or task.with_entropy):
            rollout = self._roll_out(task)
            if rollout is not None:
                return rollout
        return decode(
            task.env, task.solutions, self._logits_fn(task), task.strategy,
            starts=task.starts, memorise=self._memorise(task),
            with_log_probs=task.strategy.log_probs or torch.is_grad_enabled(),
            with_entropy=task.with_entropy, max_steps=task.max_steps, num_steps=task.num_steps,
        )  # fmt: skip

    def _learn(self, task: DecodingTask, keys: tuple[str, ...]) -> Rollout:
        """Solutions without gradients, then the log-probabilities of all their steps at once."""
        env, solutions, strategy = task.env, task.solutions, task.strategy
        record = tuple(dict.fromkeys((*keys, "action_mask", *task.ending)))
        with torch.no_grad():
            if isinstance(strategy, Evaluate):
                rollout = walk(
                    env, solutions, strategy.given(), record=record, forced=task.num_forced
                )
            elif (found := self._roll_out(task)) is not None:
                rollout = walk(env, solutions, found.actions, record=record, forced=found.forced)
                refuse_forbidden(env, rollout)
            else:
                rollout = decode(
                    env, solutions, self._logits_fn(task), strategy,
                    starts=task.starts, memorise=self._memorise(task), record=record,
                    with_log_probs=False, max_steps=task.max_steps, num_steps=task.num_steps,
                )  # fmt: skip
        memory = self.decoder.recall(solutions, rollout.actions, task.cache)
        for key, value in memory.items():
            rollout.trace[key] = value[:, :, rollout.forced :]  # [B, S, T', ...]
        rollout.log_probs, rollout.entropy = replay(
            self._logits_fn(task), rollout, strategy,
            by_instance=self._by_instance(task), chunk=self.replay_chunk,
            with_entropy=task.with_entropy,
        )  # fmt: skip
        return rollout

    def _roll_out(self, task: DecodingTask) -> Rollout | None:
        """What the decoder has to offer in place of the decode loop."""
        if task.num_steps is not None or task.max_steps is not None:
            return None
        return self.decoder.roll_out(
            task.env, task.solutions, task.cache, task.strategy, task.starts
        )

    @property
    def _takes_rows(self) -> bool:
        """Whether the decoder is a published one; one that is wrapped into something is not."""
        return getattr(self.decoder, "takes_rows", False)

    @property
    def _replay_keys(self) -> tuple[str, ...] | None:
        """What the decoder reads of a state; not known of a published one."""
        return None if self._takes_rows else self.decoder.replay_keys

    def _logits_fn(self, task: DecodingTask) -> LogitsFn:
        if self._takes_rows:
            return published_logits(self.decoder, task.env, task.hidden)
        return lambda state: self.decoder(state, task.cache)

    def _memorise(self, task: DecodingTask) -> MemoryFn:
        return lambda state: self.decoder.update_memory(state, task.cache)

    def _by_instance(self, task: DecodingTask) -> Callable[[slice], LogitsFn] | None:
        """Some instances → their logits from a cache of their own, if the decoder can do that."""
        hidden, state, decoder = task.hidden, task.state, self.decoder
        if not decoder.prepares_by_instance or not isinstance(hidden, Tensor):
            return None

        def prepare(rows: slice) -> LogitsFn:
            cache = decoder.prepare(
                hidden[rows], {key: value[rows] for key, value in state.items()}
            )
            return lambda queries: decoder(queries, cache)

        return prepare

    def _refuse_nan(
        self, task: DecodingTask, values: Tensor, actions: Tensor | None = None
    ) -> None:
        """Raises if there are NaN: for a state without actions if there is one, else for them."""
        if bool(values.isnan().any()):
            if actions is None:
                actions = task.solutions["action_mask"][..., :0].long()  # [B, S, 0]
            refuse_dead_ends(task.env, task.solutions, actions)
            raise NotFiniteError(
                f"expected numbers from {type(self).__name__}, got NaN; lower the learning rate, "
                "clip gradients or use a higher precision"
            )

    # ---------------------------------------------------------------- settings

    def _strategy(
        self,
        phase: str,
        decode_type: DecodeType | None,
        actions: Tensor | None,
        batch: int,
        settings: Mapping[str, Any],
    ) -> DecodingStrategy:
        if phase not in _PHASES:
            raise UnknownNameError("phase", phase, _PHASES)
        if actions is not None:
            if actions.dim() != 2 or actions.shape[0] % batch:
                raise ConfigError(
                    f"expected actions of shape [S * {batch}, T], got {list(actions.shape)}"
                )
            # [S * B, T] -> [B, S, T]
            settings = {**settings, "actions": unbatchify(actions, actions.shape[0] // batch)}
            # Solutions of a multi-start decode type have a forced first action.
            multistart = decode_type is not None and is_multistart(decode_type)
            decode_type, settings["multistart"] = "evaluate", multistart
        defaults = {
            "temperature": self.temperature,
            "tanh_clipping": self.tanh_clipping,
            "mask_logits": self.mask_logits,
        }
        own: DecodeType = getattr(self, f"{phase}_decode_type")
        return complete_strategy(own if decode_type is None else decode_type, defaults, settings)

    def _environment(self, env: RL4COEnvBase | str | None) -> RL4COEnvBase:
        if isinstance(env, RL4COEnvBase):
            return env
        # Environments take their size from the instance, so a default one serves any.
        return _default_env(env or self.env_name)


@functools.cache
def _default_env(name: str) -> RL4COEnvBase:
    return ENVS[name]()


def _sum_steps(values: Tensor | None) -> Tensor:
    if values is None:
        raise ConfigError("expected values per step, got none; this decode type does not have them")
    return values.sum(-1)


def _select_best(out: dict[str, Any]) -> dict[str, Any]:
    """The best of each instance's solutions, as an axis of one: `[B, S, ...]` → `[B, 1, ...]`."""
    if "reward" not in out:
        raise ConfigError("expected calc_reward=True with select_best=True, got False")
    best = out["reward"].argmax(1, keepdim=True)  # [B, 1]

    def pick(value: Tensor) -> Tensor:
        index = best.view(*best.shape, *(1,) * (value.dim() - 2))  # [B, 1, ...]
        return value.gather(1, index.expand(-1, 1, *value.shape[2:]))  # [B, 1, ...]

    return {key: pick(value) for key, value in out.items()}
