"""Constructive policies: encode once, decode a solution step by step.

:meth:`ConstructivePolicy.forward` leads from a state to solutions, rewards and log-likelihoods:

    plan → encode → roll out → replay (where gradients are wanted) → score

In training, actions are sampled without gradients; then :mod:`rl4co.decoding.replay` computes the
log-probabilities of all steps at once, where the decoder allows it.
"""

from __future__ import annotations

import dataclasses
import functools
import logging

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rl4co.core.errors import ConfigError, InvalidActionError, UnknownNameError
from rl4co.core.ops import flatten_starts, unbatchify
from rl4co.core.registry import ENVS
from rl4co.decoding.replay import LogProbFn, replay
from rl4co.decoding.rollout import DecodingTask, Rollout, expand_solutions
from rl4co.decoding.strategies import (
    DecodeType,
    DecodingStrategy,
    Evaluate,
    StartsFn,
    complete_strategy,
    is_multistart,
)
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.policies.diagnostics import check_finite, explained_errors, reject_nan
from rl4co.models.policies.modules import ConstructiveDecoder, NoEncoder
from rl4co.models.policies.precision import is_autocast_on, match_precision, weights_precision
from rl4co.models.policies.pretrained import PretrainedMixin

_PHASES = ("train", "val", "test")

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What a policy call returns.

    Attributes:
        reward: Rewards of the solutions.
        actions: Their actions.
        entropy: Their entropy, summed over steps.
        hidden: The encoder's result.
        init_embeds: The init embeddings.
        summed: Log-likelihoods are summed over steps.
    """

    reward: bool = True
    actions: bool = True
    entropy: bool = False
    hidden: bool = False
    init_embeds: bool = False
    summed: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one call of a policy does.

    Attributes:
        env: The environment.
        td: The instances' state in the precision of the network, batch `[B]`.
        state: The same as a plain mapping.
        exact: The same state as it was passed, for rewards.
        strategy: How solutions are decoded.
        starts: First actions `[B, S, K]` that are forced, or None.
        num_solutions: Solutions S per instance.
        num_steps: Exact number of steps, or None.
        max_steps: Limit of the steps, or None for the environment's bound.
        replay_keys: State keys with which the log-probabilities of all steps are computed at once,
            after the rollout; None: they are computed step by step.
        outputs: What is returned.
    """

    env: RL4COEnvBase
    td: TensorDictBase
    state: State
    exact: State
    strategy: DecodingStrategy
    starts: Tensor | None
    num_solutions: int
    num_steps: int | None
    max_steps: int | None
    replay_keys: tuple[str, ...] | None
    outputs: Outputs


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The result of the encoder, and what the decoder prepared from it.

    Attributes:
        hidden: The encoder's result.
        init_embeds: Init embeddings `[B, N, D]`, or None if `hidden` was passed.
        cache: What the decoder computes once per instance.
        task: What the strategy decodes: this policy's logits on the states of all solutions.
    """

    hidden: Any
    init_embeds: Tensor | None
    cache: Any
    task: DecodingTask


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
        check_nan: Whether NaN log-likelihoods raise an error (one look at the device per call).
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
        for phase in _PHASES:  # bad settings raise now, not in the first step
            self.resolve_strategy(phase, None, None, 1, {})

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
        instances as they are passed.

        A state may be partially built (`env.reset`, then a few `env.step`): the policy continues
        from there and returns the remaining actions. Only a whole solution has a reward, so this
        needs `calc_reward=False`.

        Args:
            td: State after `env.reset`, batch `[B]`; not modified.
            env: Environment, its name, or None for the policy's default.
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
                evaluate or a registered name; or a custom strategy, class or object.
            max_steps: Raise an error for solutions that take more steps (default: the
                environment's bound).
            num_steps: Take exactly this many steps without looking at `done`.
            select_start_nodes_fn: Replaces the environment's choice of starts.
            hidden: The encoder's result for `td` from an earlier call (`return_hidden`), to decode
                from it without encoding again.
            decoding: Settings of the decoding strategy: `num_starts`, `num_samples`,
                `temperature`, `top_k`, `top_p`, `beam_width`, `select_best`, `rng`, ...; without
                gradients, `log_probs=False` saves computing `log_likelihood`.

        Returns:
            `reward` `[rows]`, `log_likelihood` `[rows]`, `actions` `[rows, T]` and the other
            outputs that were requested. With S solutions per instance there are S · B rows, row
            `s * B + b` being solution s of instance b; `select_best` keeps B rows.
        """
        env = self.environment(env)
        # Without gradients, no operation does autograd bookkeeping: a step of one instance takes
        # about a fifth less time. Autocast keeps converted weights, which may need gradients later.
        device = next(iter(td.values())).device
        inference = not torch.is_grad_enabled() and not is_autocast_on(device.type)
        outputs = Outputs(
            calc_reward, return_actions, return_entropy, return_hidden, return_init_embeds,
            return_sum_log_likelihood,
        )  # fmt: skip
        with (
            explained_errors(self, td, env),
            weights_precision(self),
            torch.inference_mode(inference),
        ):
            strategy = self.resolve_strategy(phase, decode_type, actions, len(td), decoding)
            plan = self.plan(
                td, env, strategy, outputs, num_steps, max_steps, select_start_nodes_fn
            )
            encoding = self.encode(plan, hidden)
            rollout = self.roll_out(plan, encoding)
            if plan.replay_keys is not None:
                rollout = self.replay(plan, encoding, rollout)
            out = self.score(plan, encoding, rollout)
        # Copies of tensors made in inference mode can be used with gradients.
        return tree_map_only(Tensor, Tensor.clone, out) if inference else out

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
            env: Environment, its name, or None for the policy's default.
            options: Further arguments of :meth:`forward`.
        """
        return self(td, env, actions=actions, return_entropy=True, **options)

    # ---------------------------------------------------------------- the five steps

    def plan(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        strategy: DecodingStrategy,
        outputs: Outputs,
        num_steps: int | None = None,
        max_steps: int | None = None,
        select_start_nodes_fn: StartsFn | None = None,
    ) -> Plan:
        """Step 1: validates a call and settles starts, limits and how gradients are computed.

        Arguments are those of :meth:`forward`.
        """
        if len(td.batch_size) != 1:
            raise ConfigError(
                f"expected a state with one batch axis, got batch {list(td.batch_size)}; "
                "flatten the batch, or unsqueeze(0) a single instance"
            )
        exact = dict(td.items())
        # A state right after `reset` has no `action`, so it costs no look at the device.
        if "action" in exact and bool(exact["i"].any()):
            most = _limit_rest(env, exact, strategy.multistart, outputs.reward)
            max_steps = most if max_steps is None else min(most, max_steps)
        td = match_precision(td, self)
        if isinstance(strategy, Evaluate):
            num_steps = strategy.known_actions.shape[-1]
        starts = strategy.forced_starts(env, td, select_start_nodes_fn)
        replay_keys = None
        if strategy.can_replay and (strategy.has_actions or torch.is_grad_enabled()):
            replay_keys = self.decoder.replay_keys
            if replay_keys is None:
                _log_once(
                    f"{type(self).__name__} follows the steps one by one in training; to "
                    f"replay them all at once, {self.decoder.replay_hint}"
                )
        return Plan(
            env, td, dict(td.items()), exact, strategy, starts, strategy.count_solutions(starts),
            num_steps, max_steps, replay_keys, outputs,
        )  # fmt: skip

    def encode(self, plan: Plan, hidden: Any = None) -> Encoding:
        """Step 2: encodes the instances, unless `hidden` is passed, and prepares the decoder."""
        init_embeds = None
        if hidden is None:
            hidden, init_embeds = self.encoder(plan.td)
        elif plan.outputs.init_embeds:
            raise ConfigError("expected return_init_embeds=False beside hidden, got True")
        decoder = self.decoder
        cache = decoder.prepare(hidden, plan.state)
        state = expand_solutions(plan.state, plan.num_solutions)
        memory = decoder.start_memory(state, cache)  # [B, S, ...]; most decoders have none
        replays, record = plan.replay_keys is not None, plan.replay_keys or ()
        if replays:
            fewest, most = plan.env.step_bounds(plan.exact)
            # Finished solutions need no replay, where lengths may differ.
            ending = ("done",) if plan.num_steps is None and fewest < most else ()
            record = tuple(dict.fromkeys((*record, "action_mask", *ending)))
        task = DecodingTask(
            plan.env,
            {**state, **memory},
            decoder.logits_fn(plan.env, hidden, cache),
            memorise=(lambda state: decoder.update_memory(state, cache)) if memory else None,
            memory_keys=tuple(memory),
            starts=() if plan.starts is None else plan.starts.unbind(-1),
            record=record,
            with_log_probs=not replays and (plan.strategy.log_probs or torch.is_grad_enabled()),
            with_entropy=not replays and plan.outputs.entropy,
            num_steps=plan.num_steps,
            max_steps=plan.max_steps,
        )
        return Encoding(hidden, init_embeds, cache, task)

    def roll_out(self, plan: Plan, encoding: Encoding) -> Rollout:
        """Step 3: the strategy constructs solutions; without gradients, if they are replayed."""
        task = encoding.task
        with torch.set_grad_enabled(torch.is_grad_enabled() and plan.replay_keys is None):
            try:
                rollout = plan.strategy.run(task)
            except InvalidActionError:
                if self.check_nan:  # weights that are NaN lead to dead ends
                    reject_nan(self, task, task.logits(task.state))
                raise
        if self.check_nan and plan.replay_keys is None:
            check_finite(self, task, rollout, plan.strategy)
        return rollout

    def replay(self, plan: Plan, encoding: Encoding, rollout: Rollout) -> Rollout:
        """Step 4: log-probabilities and entropies of all steps at once, differentiable."""
        task = encoding.task
        memory = self.decoder.recall(task.state, rollout.actions, encoding.cache)
        for key, value in memory.items():
            rollout.trace[key] = value[:, :, rollout.forced :]  # [B, S, T', ...]
        rollout.log_probs, rollout.entropy = replay(
            functools.partial(self.decoder.log_probs, encoding.cache),
            rollout,
            plan.strategy,
            by_instance=self._by_instance(plan, encoding),
            chunk=self.replay_chunk,
            with_entropy=plan.outputs.entropy,
            fused=self.decoder.is_fused(encoding.cache, plan.strategy),
        )
        if self.check_nan:
            check_finite(self, task, rollout, plan.strategy)
        return rollout

    def score(self, plan: Plan, encoding: Encoding, rollout: Rollout) -> dict[str, Any]:
        """Step 5: evaluates the solutions and puts the outputs into rows `s * B + b`."""
        wanted = plan.outputs
        out: dict[str, Any] = {}
        if rollout.log_probs is not None:  # [B, S, T]
            out["log_likelihood"] = (
                rollout.log_probs.sum(-1) if wanted.summed else rollout.log_probs
            )
        if wanted.reward:
            out["reward"] = self._reward(plan, encoding, rollout)  # [B, S]
        if wanted.actions:
            out["actions"] = rollout.actions
        if wanted.entropy:
            out["entropy"] = _sum_steps(rollout.entropy)
        if plan.strategy.select_best:
            out = _select_best(out)
        out = {key: flatten_starts(value) for key, value in out.items()}
        if wanted.hidden:
            out["hidden"] = encoding.hidden
        if wanted.init_embeds:
            out["init_embeds"] = encoding.init_embeds
        return out

    # ---------------------------------------------------------------- parts of the steps

    def _by_instance(self, plan: Plan, encoding: Encoding) -> Callable[[slice], LogProbFn] | None:
        """Some instances → their log-probabilities, if the decoder can prepare these alone."""
        hidden, state, decoder = encoding.hidden, plan.state, self.decoder
        if not decoder.prepares_by_instance or not isinstance(hidden, Tensor):
            return None

        def prepare(rows: slice) -> LogProbFn:
            part = {key: value[rows] for key, value in state.items()}
            return functools.partial(decoder.log_probs, decoder.prepare(hidden[rows], part))

        return prepare

    def _reward(self, plan: Plan, encoding: Encoding, rollout: Rollout) -> Tensor:
        """Rewards `[B, S]` of the solutions, for the instances in their original precision."""
        if plan.env.scores_final_states and rollout.state:
            return plan.env.get_reward(rollout.state, rollout.actions)
        width = rollout.actions.shape[1]  # not S after a beam search
        state = expand_solutions(plan.exact, width)
        if width == plan.num_solutions:  # a decoder may have changed the states of solutions
            state.update({key: encoding.task.state[key] for key in encoding.task.memory_keys})
        return plan.env.get_reward(state, rollout.actions)

    # ---------------------------------------------------------------- settings

    def resolve_strategy(
        self,
        phase: str,
        decode_type: DecodeType | None,
        actions: Tensor | None,
        batch: int,
        settings: Mapping[str, Any],
    ) -> DecodingStrategy:
        """The decoding strategy of a call, with the policy's preferences.

        Args:
            phase: Its default decode type is used if `decode_type` is None.
            decode_type: See :meth:`forward`.
            actions: Actions to evaluate, or None.
            batch: Number of instances B.
            settings: Settings of the strategy.
        """
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
        if decode_type is None:
            decode_type = getattr(self, f"{phase}_decode_type")
        preferences = {
            "temperature": self.temperature,
            "tanh_clipping": self.tanh_clipping,
            "mask_logits": self.mask_logits,
        }
        return complete_strategy(decode_type, preferences, settings)

    def environment(self, env: RL4COEnvBase | str | None) -> RL4COEnvBase:
        """The environment of a call: the one passed, or the default one of a name."""
        if env is None or isinstance(env, str):
            # Environments take their size from the instance, so the default one serves any.
            return _default_env(env or self.env_name)
        is_env = hasattr(env, "advance") and hasattr(env, "get_reward")
        if isinstance(env, type) or not is_env:
            raise ConfigError(
                f"expected an environment, its name or None as env, got {env!r}; derive from "
                "RL4COEnvBase, or wrap an environment and forward its attributes"
            )
        return env


def _limit_rest(env: RL4COEnvBase, state: State, multistart: bool, calc_reward: bool) -> int:
    """Most steps that partially built solutions need.

    Raises for what cannot work on them: a start, or the reward of the remaining actions.
    """
    if bool(state["done"].all()):
        raise ConfigError(
            f"expected {env.name} instances with something left to decide, got finished ones only"
        )
    if multistart:
        raise ConfigError(
            f"expected a {env.name} state right after reset for multi-start, got one in which "
            "steps were taken; starts are first actions, so use greedy, sampling or beam_search"
        )
    if calc_reward:
        raise ConfigError(
            f"expected calc_reward=False for partially built {env.name} solutions, got True; the "
            "returned actions are the remaining ones, and only a whole solution has a reward: "
            "env.get_reward(td, torch.cat([earlier_actions, out['actions']], -1))"
        )
    return env.steps_left(state)[1]


@functools.cache
def _default_env(name: str) -> RL4COEnvBase:
    return ENVS[name]()


@functools.cache
def _log_once(message: str) -> None:
    _log.info(message)


def _sum_steps(values: Tensor | None) -> Tensor:
    if values is None:
        raise ConfigError("expected entropies of every step, got none; this decode type has none")
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
