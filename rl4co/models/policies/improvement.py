"""Improvement policies: a look at a complete solution, then a move that changes it."""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    NotFiniteError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.hooks import State
from rl4co.envs.improvement import ImprovementEnvBase
from rl4co.models.nn.value import SolutionCritic
from rl4co.models.policies.choices import ChoiceRule, Choices
from rl4co.models.policies.precision import match_precision, weights_precision
from rl4co.models.policies.pretrained import PretrainedMixin

_PHASES = ("train", "val", "test")
#: Pairs of nodes that are worked on together on a CPU: tables over pairs then stay in its cache.
_PAIRS_AT_ONCE = 3 * 2**14


class ImprovementEncoder(nn.Module):
    """Maps an instance with its current solution to embeddings of the nodes."""

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Embeddings `[B, N, D]`, in the order of the nodes."""
        raise NotImplementedError


class ImprovementDecoder(nn.Module):
    """Maps embeddings of the nodes to a move."""

    #: Kind of moves that it makes, as environments call it.
    moves: ClassVar[str]

    def num_choices(self, env: Any) -> int:
        """How many choices make up a move."""
        raise NotImplementedError

    def forward(
        self,
        embeddings: Tensor,
        state: State,
        env: Any,
        choices: Choices,
        fixed_move: Tensor | None,
        phase: str,
    ) -> Tensor:
        """A move `[B, A]`, by one call of `choices.pick` for each choice.

        Args:
            embeddings: From the encoder `[B, N, D]`.
            state: The state.
            env: The environment, whose masks say what is allowed.
            choices: Chooses each part of the move.
            fixed_move: Move to evaluate `[B, A]`; None: choose one.
            phase: "train", "val" or "test".
        """
        raise NotImplementedError


class ImprovementPolicy(PretrainedMixin, nn.Module):
    """A policy that improves complete solutions.

    Args:
        encoder: State → embeddings.
        decoder: Embeddings → move.
        critic: Embeddings and best cost so far → value `[B]`; None: no values.
        env_name: Environment used when none is passed to :meth:`forward`.
        env_params: Arguments of that environment.
        tanh_clipping: Bound of the tanh clipping of logits (0 = none).
        temperature: Softmax temperature.
        train_decode_type: "sampling" or "greedy", in the training phase.
        val_decode_type: In the validation phase.
        test_decode_type: In the test phase. Improvement methods sample there as well: a greedy one
            soon goes in circles.
        check_nan: Whether log-likelihoods that are no finite numbers raise an error (one look per
            call).
    """

    #: Settings of the method in use (`augment`, `restart_after`), see
    #: :func:`rl4co.tasks.improve.improve`.
    inference: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        encoder: nn.Module,
        decoder: ImprovementDecoder,
        critic: nn.Module | None = None,
        env_name: str = "tsp_kopt",
        env_params: Mapping[str, Any] | None = None,
        tanh_clipping: float = 6.0,
        temperature: float = 1.0,
        train_decode_type: str = "sampling",
        val_decode_type: str = "sampling",
        test_decode_type: str = "sampling",
        check_nan: bool = True,
    ) -> None:
        super().__init__()
        for name, part in {"encoder": encoder, "decoder": decoder, "critic": critic}.items():
            if not isinstance(part, nn.Module) and not (name == "critic" and part is None):
                raise ConfigError(f"expected an nn.Module as {name}, got {part!r}")
        if not isinstance(getattr(decoder, "moves", None), str):
            raise ConfigError(
                f"expected a decoder that names its kind of moves, got a {type(decoder).__name__}; "
                "derive it from ImprovementDecoder and set `moves`"
            )
        self.encoder, self.decoder, self.critic = encoder, decoder, critic
        self.env_name, self.env_params = env_name, dict(env_params or {})
        self.tanh_clipping, self.temperature = tanh_clipping, temperature
        self.decode_types = {
            "train": train_decode_type, "val": val_decode_type, "test": test_decode_type,
        }  # fmt: skip
        self.check_nan = check_nan
        for phase in _PHASES:  # bad settings raise now, not in the first step
            self._rule(phase, None, {})

    # ---------------------------------------------------------------- one move

    def forward(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase | str | None = None,
        phase: str = "train",
        return_actions: bool = True,
        return_entropy: bool = False,
        return_embeds: bool = False,
        return_value: bool = False,
        actions: Tensor | None = None,
        decode_type: str | None = None,
        rng: torch.Generator | None = None,
        **decoding: Any,
    ) -> dict[str, Tensor]:
        """One move of each instance.

        Args:
            td: State, batch `[B]`; not modified. Set `td["action"]` to the move and call
                `env.step(td)["next"]` to make it.
            env: Environment, its name, or None for the policy's own.
            phase: "train", "val" or "test"; selects the decode type.
            return_actions: Whether the output has `actions`.
            return_entropy: Whether the output has `entropy`, summed over the choices of a move.
            return_embeds: Whether the output has `embeds`.
            return_value: Whether the output has `value`, by the policy's critic.
            actions: Moves `[B, A]` to evaluate instead of choosing any.
            decode_type: "sampling" or "greedy"; default: that of the phase.
            rng: Random stream of sampling; None draws from torch's global one.
            decoding: `temperature`, `top_k`, `top_p`, `tanh_clipping`.

        Returns:
            `log_likelihood [B]`, `cost_bsf [B]`, and what was asked for: `actions [B, A]`,
            `entropy [B]`, `embeds [B, N, D]`, `value [B]`.
        """
        if td.batch_dims != 1:
            raise ConfigError(
                f"expected states with one batch axis, got batch size {list(td.batch_size)}"
            )
        if phase not in _PHASES:
            raise UnknownNameError("phase", phase, _PHASES)
        chosen_env = self.environment(env)
        rule = self._rule(phase, decode_type, decoding)
        state = dict(match_precision(td, self).items())
        _check_state(state, chosen_env)
        fixed_move = None
        if actions is not None:
            chosen_env.check_moves(td, actions)
            fixed_move = chosen_env.read_action(state, actions)
        uniform = None
        if fixed_move is None and rule.decode_type == "sampling":
            source = td.device or state["locs"].device
            size = (td.batch_size[0], self.decoder.num_choices(chosen_env))
            device = source if rng is None else rng.device
            uniform = torch.rand(size, generator=rng, device=device).to(state["locs"].device)
        wanted = {
            "actions": return_actions,
            "entropy": return_entropy,
            "embeds": return_embeds,
            "value": return_value,
        }
        with weights_precision(self):
            out = self._in_chunks(state, chosen_env, rule, uniform, fixed_move, phase, wanted)
        if self.check_nan:
            self._check_finite(out["log_likelihood"], fixed_move is not None)
        return {"cost_bsf": td["cost_bsf"], **out}

    def evaluate(
        self,
        td: TensorDictBase,
        actions: Tensor,
        env: RL4COEnvBase | str | None = None,
        phase: str = "train",
        return_value: bool = False,
    ) -> dict[str, Tensor]:
        """Log-likelihood and entropy of given moves `[B, A]`; see :meth:`forward`."""
        return self(td, env, phase, actions=actions, return_entropy=True, return_value=return_value)

    def value(self, td: TensorDictBase) -> Tensor:
        """Values of states `[B]`: the discounted gains to come, as the critic estimates them."""
        state = dict(match_precision(td, self).items())
        with weights_precision(self):
            return self._value(self.encoder(state), state)

    def check_decoding(self, decode_type: str | None = None, **decoding: Any) -> None:
        """Raises for arguments of decoding that :meth:`forward` does not take."""
        self._rule("test", decode_type, decoding)

    def environment(self, env: RL4COEnvBase | str | None) -> ImprovementEnvBase:
        """The environment meant, if its moves are those of this policy."""
        if env is None:
            env = self.env_name
        if isinstance(env, str):
            env = ENVS[env](**(self.env_params if env == self.env_name else {}))
        if not isinstance(env, ImprovementEnvBase) or env.moves != self.decoder.moves:
            name, kind = getattr(env, "name", env), getattr(env, "moves", "whole solutions")
            raise UnsupportedError(
                f"expected an environment with moves of the kind {self.decoder.moves!r}, which "
                f"this {type(self).__name__} makes, got {name} with {kind!r}; use "
                f"{self.env_name} with {self.env_params or 'its defaults'}, or another policy"
            )
        return env

    # ---------------------------------------------------------------- internals

    def _in_chunks(
        self,
        state: State,
        env: ImprovementEnvBase,
        rule: ChoiceRule,
        uniform: Tensor | None,
        fixed_move: Tensor | None,
        phase: str,
        wanted: Mapping[str, bool],
    ) -> dict[str, Tensor]:
        """The move of :meth:`_move`, for so many instances at a time as a CPU does best."""
        batch, size = state["visited_time"].shape
        num_chunks = 1
        if state["locs"].device.type == "cpu" and not self._needs_whole_batch():
            num_chunks = max(1, math.ceil(batch * size**2 / _PAIRS_AT_ONCE))
        rows = math.ceil(batch / num_chunks)  # of all chunks, so that none is much smaller
        if rows >= batch:
            choices = Choices(rule, uniform, wanted["entropy"])
            return self._move(state, env, choices, fixed_move, phase, wanted)
        parts = []
        for start in range(0, batch, rows):
            part = slice(start, start + rows)
            choices = Choices(rule, None if uniform is None else uniform[part], wanted["entropy"])
            some = {key: value[part] for key, value in state.items()}
            move = None if fixed_move is None else fixed_move[part]
            parts.append(self._move(some, env, choices, move, phase, wanted))
        return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}

    def _needs_whole_batch(self) -> bool:
        """Whether statistics of the batch are learned from, by layers of a user's own."""
        kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)
        return self.training and any(isinstance(part, kinds) for part in self.modules())

    def _move(
        self,
        state: State,
        env: ImprovementEnvBase,
        choices: Choices,
        fixed_move: Tensor | None,
        phase: str,
        wanted: Mapping[str, bool],
    ) -> dict[str, Tensor]:
        embeddings = self.encoder(state)
        action = self.decoder(embeddings, state, env, choices, fixed_move, phase)
        out: dict[str, Any] = {"log_likelihood": choices.log_prob}
        if wanted["actions"]:
            out["actions"] = action
        if wanted["entropy"]:
            out["entropy"] = choices.entropy
        if wanted["embeds"]:
            out["embeds"] = embeddings
        if wanted["value"]:
            out["value"] = self._value(embeddings, state)
        return out

    def _value(self, embeddings: Tensor, state: State) -> Tensor:
        if self.critic is None:
            raise UnsupportedError(
                f"expected a critic for values, got a {type(self).__name__} without one; build it "
                "with critic=True or a custom critic"
            )
        return self.critic(embeddings, state["cost_bsf"])

    def _rule(self, phase: str, decode_type: str | None, decoding: Mapping[str, Any]) -> ChoiceRule:
        names = ("temperature", "top_k", "top_p", "tanh_clipping")
        for name in decoding:
            if name not in names:
                raise UnknownNameError("argument of decoding", name, names)
        settings = {"temperature": self.temperature, "tanh_clipping": self.tanh_clipping}
        return ChoiceRule(decode_type or self.decode_types[phase], **{**settings, **decoding})

    def _check_finite(self, log_likelihood: Tensor, is_known: bool) -> None:
        if bool(log_likelihood.isfinite().all()):
            return
        if is_known and not bool(log_likelihood.isnan().any()):
            raise InvalidActionError(
                "expected moves that the environment allows, got some of probability zero; "
                "evaluate moves in the states in which they were made"
            )
        raise NotFiniteError(
            f"expected finite log-likelihoods of {type(self).__name__}, got NaN; the training may "
            "have diverged, or an instance has coordinates that are not finite"
        )


def own_critic(
    critic: nn.Module | bool, critic_kwargs: Mapping[str, Any] | None, **defaults: Any
) -> nn.Module | None:
    """The critic meant by the arguments of a method's policy.

    Args:
        critic: True: the method's own; False: none; or a module.
        critic_kwargs: Settings of the method's own, in place of its defaults.
        defaults: Its settings, see :class:`SolutionCritic`.
    """
    if critic is True:
        return SolutionCritic(**{**defaults, **(critic_kwargs or {})})
    if critic_kwargs is not None:
        raise ConfigError(
            f"expected no critic_kwargs without critic=True, got {dict(critic_kwargs)} beside "
            f"{critic!r}; they are for the method's own critic"
        )
    return critic or None


def reject_beside_encoder(encoder: nn.Module | None, **parts: object) -> None:
    """Raises for arguments of the method's own encoder beside another one: they have no effect."""
    for name, value in parts.items():
        if encoder is not None and value is not None:
            raise ConfigError(
                f"expected no {name} beside an encoder, which is not made of it, got {value!r}; "
                "pass it to the encoder"
            )


def _check_state(state: State, env: ImprovementEnvBase) -> None:
    """Raises for a state of another environment, by its last move and its keys."""
    others = {key for cls in ImprovementEnvBase.__subclasses__() for key in cls.memory}
    wrong = [key for key in others if (key in state) != (key in env.memory)]
    if wrong:
        raise ConfigError(
            f"expected a state of {env.name}, got one {'with' if wrong[0] in state else 'without'} "
            f"{wrong[0]!r}; pass the environment that made the state"
        )
    last = state.get("last_action")
    width = len(env.action_sizes(state["locs"].shape[-2]))
    if last is None or last.shape[-1] != width:
        got = "none" if last is None else f"one of {last.shape[-1]}"
        raise ConfigError(
            f"expected a state of {env.name}, with a last move of {width} numbers, got {got}; pass "
            "the environment that made the state"
        )
