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
from rl4co.decoding.replay import replay
from rl4co.decoding.rollout import Rollout, decode, expand_solutions, refuse_dead_ends, walk
from rl4co.decoding.starts import behind_prefix, environment_starts, forced_actions
from rl4co.decoding.strategies import (
    BeamSearch,
    DecodingStrategy,
    Evaluate,
    get_decoding_strategy,
    is_multistart,
)
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.policies.entry import (
    forget_static_dynamics_,
    knows_its_problem,
    match_precision,
    remaining_steps,
    spares_autograd,
)
from rl4co.models.policies.modules import ConstructiveDecoder
from rl4co.models.policies.pretrained import PretrainedMixin

StartsFn = Callable[[TensorDictBase, RL4COEnvBase, int], Tensor]
_PHASES = ("train", "val", "test")


class ConstructivePolicy(PretrainedMixin, nn.Module):
    """A policy that constructs solutions from scratch.

    Args:
        encoder: Instance → latent representation.
        decoder: State and latent representation → logits.
        env_name: Environment used when none is passed to :meth:`forward`.
        temperature: Default softmax temperature.
        tanh_clipping: Bound of the tanh clipping of logits (0 = none).
        mask_logits: Whether forbidden actions are masked.
        train_decode_type: Decode type of the training phase.
        val_decode_type: Decode type of the validation phase.
        test_decode_type: Decode type of the test phase.
        replay_chunk: Steps per piece of the replay (None = all at once); bounds its memory.
        check_nan: Whether NaN log-likelihoods raise an error (one look per call).
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: ConstructiveDecoder,
        env_name: str = "tsp",
        temperature: float = 1.0,
        tanh_clipping: float = 0.0,
        mask_logits: bool = True,
        train_decode_type: str = "sampling",
        val_decode_type: str = "greedy",
        test_decode_type: str = "greedy",
        replay_chunk: int | None = None,
        check_nan: bool = True,
    ) -> None:
        super().__init__()
        if replay_chunk is not None and replay_chunk < 1:
            raise ConfigError(f"expected replay_chunk of at least 1 or None, got {replay_chunk}")
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
        decode_type: str | None = None,
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
            decode_type: greedy, sampling, multistart_greedy, multistart_sampling, beam_search or
                evaluate.
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
        if len(td.batch_size) != 1:
            raise ConfigError(
                f"expected a state with one batch axis, got batch {list(td.batch_size)}; "
                "flatten the batch, or unsqueeze(0) a single instance"
            )
        strategy = self._strategy(phase, decode_type, actions, td.batch_size[0], decoding)
        given: State = dict(td.items())
        left = remaining_steps(env, given, strategy.multistart, calc_reward)
        if left is not None:
            max_steps = left if max_steps is None else min(left, max_steps)
        td, exact = match_precision(td, self), td
        state = given if td is exact else dict(td.items())

        if hidden is None:
            hidden, init_embeds = self.encoder(td)
        elif return_init_embeds:
            raise ConfigError("expected return_init_embeds=False beside hidden, got True")
        cache = self.decoder.prepare(hidden, state)

        starts = None
        if isinstance(strategy, Evaluate):
            num_solutions = strategy.given().shape[1]
        elif strategy.multistart:
            num_solutions = strategy.num_starts or env.get_num_starts(td)
            choose = select_start_nodes_fn or environment_starts
            first = unbatchify(choose(td, env, num_solutions), num_solutions)  # [B, S]
            starts = behind_prefix(first, env.start_prefix(state))  # [B, S, K]
        else:
            num_solutions = strategy.num_samples
        solutions = expand_solutions(state, num_solutions)
        forget_static_dynamics_(self.decoder, solutions)
        solutions.update(self.decoder.start_memory(solutions, cache))

        try:
            rollout = self._decode(
                env, solutions, cache, strategy, starts, return_entropy, max_steps, num_steps,
                self._narrower(hidden, state),
            )  # fmt: skip
        except InvalidActionError:
            if self.check_nan:  # diverged weights lead nowhere, but they are the cause
                none = solutions["action_mask"][..., :0].long()  # [B, S, 0]
                self._refuse_nan(self.decoder(solutions, cache), env, solutions, none)
            raise
        out: dict[str, Any] = {}
        log_probs = rollout.log_probs
        if self.check_nan:  # without log-probabilities the first logits tell
            values = self.decoder(solutions, cache) if log_probs is None else log_probs
            self._refuse_nan(values, env, solutions, rollout.actions)
        if log_probs is not None:  # [B, S] or [B, S, T]
            out["log_likelihood"] = log_probs.sum(-1) if return_sum_log_likelihood else log_probs
        if calc_reward:
            width = rollout.actions.shape[1]
            as_given = state is given and width == num_solutions
            final = solutions if as_given else expand_solutions(given, width)
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

    # ---------------------------------------------------------------- internals

    def _decode(
        self,
        env: RL4COEnvBase,
        solutions: State,
        cache: Any,
        strategy: DecodingStrategy,
        starts: Tensor | None,
        with_entropy: bool,
        max_steps: int | None,
        num_steps: int | None,
        narrower: Callable[[Tensor], Any] | None = None,
    ) -> Rollout:
        def logits_fn(state: State) -> Tensor:
            return self.decoder(state, cache)

        def narrow(rows: Tensor) -> None:
            nonlocal cache
            cache = narrower(rows)  # type: ignore[misc]

        def memorise(state: State) -> State:
            return self.decoder.update_memory(state, cache)

        keys = self.decoder.replay_keys
        if isinstance(strategy, BeamSearch):
            return beam_search(
                env, solutions, logits_fn, strategy,
                memorise=memorise, num_steps=num_steps, max_steps=max_steps,
            )  # fmt: skip
        given = strategy.given() if isinstance(strategy, Evaluate) else None  # [B, S, T]
        if given is not None:
            num_steps = given.shape[-1]
            forced = forced_actions(env, solutions) if strategy.multistart else 0
            starts = given[..., :forced] if forced else None
        learns = keys is not None and (torch.is_grad_enabled() or given is not None)
        whole = None
        fresh = given is None and max_steps is None and num_steps is None
        if fresh and (learns or not (with_entropy or torch.is_grad_enabled())):
            note = learns and self.replay_chunk is None
            whole = self.decoder.roll_out(
                env, solutions, cache, strategy, starts=starts, record=note
            )
        if keys is None or not learns:
            if whole is not None:
                log_probs = whole[1] if strategy.log_probs else None
                return Rollout(whole[0], log_probs, entropy=None)
            return decode(
                env, solutions, logits_fn, strategy,
                starts=starts, memorise=memorise, narrow=None if narrower is None else narrow,
                with_log_probs=strategy.log_probs, with_entropy=with_entropy, max_steps=max_steps,
                num_steps=num_steps,
            )  # fmt: skip
        record = tuple(dict.fromkeys((*keys, "action_mask", *_ending(env, solutions, num_steps))))
        if given is not None:
            rollout = walk(env, solutions, given, record=record, forced=forced)
        elif whole is not None:
            forced = 0 if starts is None else starts.shape[-1]
            rollout = walk(env, solutions, whole[0], record=record, forced=forced)
            rollout.trace.update(whole[2])
        else:
            notes: dict[str, list[Tensor]] = {}

            def noting(state: State) -> Tensor:
                logits, by_products = self.decoder.annotate(state, cache)
                for key, value in by_products.items():
                    notes.setdefault(key, []).append(value)
                return logits

            with torch.no_grad():
                rollout = decode(
                    env, solutions, logits_fn if self.replay_chunk else noting, strategy,
                    starts=starts, memorise=memorise, record=record, with_log_probs=False,
                    max_steps=max_steps, num_steps=num_steps,
                )  # fmt: skip
            for key in list(notes):  # [B, S, T', ...]; one at a time, the lists are large
                rollout.trace[key] = torch.stack(notes.pop(key), 2)
        memory = self.decoder.recall(solutions, rollout.actions, cache)
        for key, value in memory.items():
            rollout.trace[key] = value[:, :, rollout.forced :]  # [B, S, T', ...]
        rollout.log_probs, rollout.entropy = replay(
            logits_fn, rollout, strategy, chunk=self.replay_chunk, with_entropy=with_entropy
        )
        return rollout

    def _narrower(self, hidden: Any, state: State) -> Callable[[Tensor], Any] | None:
        """Makes the decoder's cache for the instances that are left, if the decoder can do that."""
        # In training, what is drawn at random for each instance would be drawn again.
        if self.training or not self.decoder.can_narrow or not isinstance(hidden, Tensor):
            return None
        left = torch.arange(len(hidden), device=hidden.device)

        def prepare(rows: Tensor) -> Any:
            nonlocal left
            left = left[rows]
            return self.decoder.prepare(
                hidden[left], {key: value[left] for key, value in state.items()}
            )

        return prepare

    def _refuse_nan(
        self, values: Tensor, env: RL4COEnvBase, solutions: State, actions: Tensor
    ) -> None:
        """Raises if there are NaN: for a state without actions if there is one, else for them."""
        if bool(values.isnan().any()):
            refuse_dead_ends(env, solutions, actions)
            raise NotFiniteError(
                f"expected numbers from {type(self).__name__}, got NaN; lower the learning rate, "
                "clip gradients or use a higher precision"
            )

    def _strategy(
        self,
        phase: str,
        decode_type: str | None,
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
        given = {key: value for key, value in settings.items() if value is not None}
        return get_decoding_strategy(
            decode_type or getattr(self, f"{phase}_decode_type"), **{**defaults, **given}
        )

    def _environment(self, env: RL4COEnvBase | str | None) -> RL4COEnvBase:
        if isinstance(env, RL4COEnvBase):
            return env
        # Environments take their size from the instance, so a default one serves any.
        return _default_env(env or self.env_name)


@functools.cache
def _default_env(name: str) -> RL4COEnvBase:
    return ENVS[name]()


def _ending(env: RL4COEnvBase, state: State, num_steps: int | None) -> tuple[str, ...]:
    """The key by which the replay skips finished solutions, where they may differ in length."""
    fewest, most = env.step_bounds(state)
    return ("done",) if num_steps is None and fewest < most else ()


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
