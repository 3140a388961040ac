"""Decoding strategies: settings, how actions are chosen, and how a decoding task is run.

A custom strategy is a subclass of :class:`DecodingStrategy` that defines `choose`. A policy accepts
it as a class, as an object, or by the name under which `@DECODING.register` registers it.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co import kernels
from rl4co.core.adapters import adapt, hint
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.ops import gather_nodes, step_entropy, unbatchify
from rl4co.core.registry import DECODING
from rl4co.decoding.beam import beam_search
from rl4co.decoding.logits import filter_logits, sample_actions
from rl4co.decoding.rollout import DecodingTask, Rollout, decode, follow
from rl4co.envs.base import RL4COEnvBase

S = TypeVar("S", bound="DecodingStrategy")

#: (state, environment, number of starts S) → first actions `[S * B]`.
StartsFn = Callable[[TensorDictBase, RL4COEnvBase, int], Tensor]


class Decision(NamedTuple):
    """The actions of one step, and what the task wants to know about them.

    Attributes:
        action: Actions `[*B]`.
        log_prob: Their log-probabilities `[*B]`, or None.
        entropy: Entropy of the distribution `[*B]`, or None.
        support: Actions that top-k or top-p kept `[*B, N]`, or None.
    """

    action: Tensor
    log_prob: Tensor | None = None
    entropy: Tensor | None = None
    support: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class DecodingStrategy:
    """Settings of a decoding strategy. Subclasses choose the action.

    The distribution of a step is the softmax of :meth:`filter`, and log-likelihoods are those of
    this distribution, however :meth:`choose` picks from it. A strategy that is more than a choice
    in every step (beam search, say) overrides :meth:`run`.

    Args:
        temperature: Divides the logits.
        top_k: Keep this many actions (0 = all).
        top_p: Keep the nucleus of this probability (0 = all).
        tanh_clipping: Bound of the tanh clipping (0 = none).
        mask_logits: Whether forbidden actions are masked.
        multistart: Whether the first action is forced to distinct starts.
        num_starts: Starts per instance (None or 0 = as many as the environment offers).
        num_samples: Solutions per instance, all actions chosen by the policy.
        select_best: Keep only the best solution of each instance.
        rng: Random stream of sampling (None = torch's global one).
        log_probs: Whether log-probabilities are wanted where there are no gradients.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    tanh_clipping: float = 0.0
    mask_logits: bool = True
    multistart: bool = False
    num_starts: int | None = None
    num_samples: int = 1
    select_best: bool = False
    rng: torch.Generator | None = None
    log_probs: bool = True

    #: Whether actions are drawn at random.
    draws: ClassVar[bool] = False
    #: Name of a strategy that does not call :meth:`choose`; subclasses must not override it then.
    fixed_choice: ClassVar[str | None] = None
    #: Whether the actions are known in advance.
    has_actions: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.fixed_choice and "choose" in vars(cls) and "fixed_choice" not in vars(cls):
            raise ConfigError(
                f"expected no choose in {cls.__name__}: the actions of {cls.fixed_choice} are not "
                "chosen one by one; derive from DecodingStrategy, or override filter"
            )
        adapt("strategy", cls)

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ConfigError(f"expected a positive temperature, got {self.temperature}")
        if self.top_k < 0:
            raise ConfigError(f"expected top_k of at least 0, got {self.top_k}")
        if not 0.0 <= self.top_p <= 1.0:
            raise ConfigError(f"expected top_p in [0, 1], got {self.top_p}")
        if not self.tanh_clipping >= 0:
            raise ConfigError(f"expected tanh_clipping of at least 0, got {self.tanh_clipping}")
        if self.num_samples < 1:
            raise ConfigError(f"expected num_samples of at least 1, got {self.num_samples}")
        if self.num_starts == 0:  # as many as the environment offers
            object.__setattr__(self, "num_starts", None)
        if self.num_starts is not None and self.num_starts < 1:
            raise ConfigError(f"expected num_starts of at least 1, got {self.num_starts}")
        if self.multistart and self.num_samples > 1:
            raise ConfigError(
                f"expected starts or samples, got multi-start with num_samples={self.num_samples}; "
                "use num_starts, or the strategy without multistart"
            )

    @property
    def can_replay(self) -> bool:
        """Whether the distributions of all steps can be computed at once, after the rollout."""
        return type(self).filter is DecodingStrategy.filter

    @property
    def is_softmax(self) -> bool:
        """Whether the distribution is a softmax of clipped, masked logits without truncation."""
        return self.can_replay and not self.truncates

    @property
    def filters(self) -> dict[str, Any]:
        """The settings of this softmax."""
        return {
            "mask_logits": self.mask_logits,
            "temperature": self.temperature,
            "tanh_clipping": self.tanh_clipping,
        }

    @property
    def truncates(self) -> bool:
        """Whether actions that the mask allows may get probability zero."""
        return self.top_k > 0 or self.top_p > 0

    def without_truncation(self) -> DecodingStrategy:
        """The same strategy for logits whose support is already known."""
        return self.with_settings(top_k=0, top_p=0.0)

    def with_settings(self: S, **settings: Any) -> S:
        """A copy with other settings, whatever arguments its constructor accepts."""
        if not settings:
            return self
        strategy = copy.copy(self)
        vars(strategy).update(settings)
        strategy.__post_init__()
        return strategy

    def forced_starts(
        self, env: RL4COEnvBase, td: TensorDictBase, select_start_nodes_fn: StartsFn | None = None
    ) -> Tensor | None:
        """Forced first actions `[B, S, K]` of multi-start; None if the policy chooses all actions.

        Args:
            env: The environment.
            td: State right after reset, batch `[B]`.
            select_start_nodes_fn: Replaces the environment's choice of starts.
        """
        if not self.multistart:
            return None
        num_starts = self.num_starts or env.get_num_starts(td)
        if select_start_nodes_fn is None:
            first = env.select_start_nodes(td, num_starts)
        else:
            first = select_start_nodes_fn(td, env, num_starts)
        starts = unbatchify(first, num_starts).unsqueeze(-1)  # [B, S, 1]
        prefix = env.start_prefix(dict(td.items()))  # [B, K - 1], before the start itself
        if prefix is None:
            return starts
        return torch.cat([prefix.unsqueeze(1).expand(-1, num_starts, -1), starts], -1)

    def count_solutions(self, starts: Tensor | None) -> int:
        """Solutions S per instance.

        Args:
            starts: First actions `[B, S, K]` that are forced, or None.
        """
        return self.num_samples if starts is None else starts.shape[1]

    def run(self, task: DecodingTask) -> Rollout:
        """Constructs solutions; step by step unless overridden."""
        return decode(task, self)

    def decide(
        self, task: DecodingTask, logits: Tensor, step: int, state: Mapping[str, Tensor]
    ) -> Decision:
        """The actions of a step: filters the logits and chooses.

        Args:
            task: Says which results are wanted.
            logits: Logits of the policy `[*B, N]`.
            step: Number of the step.
            state: State of the environment with batch `*B`.
        """
        filtered = self.filter(logits, state["action_mask"])
        action = self.choose(filtered, step, state)
        support = filtered > -torch.inf if task.record and self.truncates else None
        if not (task.with_log_probs or task.with_entropy):
            return Decision(action, support=support)
        log_probs = filtered.log_softmax(-1)  # [*B, N]
        entropy = step_entropy(log_probs) if task.with_entropy else None
        return Decision(action, gather_nodes(log_probs, action), entropy, support)

    def _is_fused(self, task: DecodingTask, logits: Tensor) -> bool:
        """Whether the fused kernel may choose from these logits."""
        return kernels.pointer.applies(logits) and self.is_softmax and not task.with_entropy

    def filter(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Filtered logits `[*B, N]`; their softmax is the distribution over actions."""
        return filter_logits(
            logits,
            mask if self.mask_logits else None,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            tanh_clipping=self.tanh_clipping,
        )

    def choose(self, logits: Tensor, step: int, state: Mapping[str, Tensor]) -> Tensor:
        """The actions of a step.

        Args:
            logits: Filtered logits `[*B, N]`; minus infinity for forbidden actions.
            step: Number of the step, counted from 0 and including forced starts.
            state: State of the environment with batch `*B`; it must not be changed.

        Returns:
            Actions `[*B]`, int64.
        """
        raise NotImplementedError(f"define choose(logits, step, state) in {type(self).__name__}")


@dataclasses.dataclass(frozen=True)
class Greedy(DecodingStrategy):
    """The most likely action."""

    def decide(
        self, task: DecodingTask, logits: Tensor, step: int, state: Mapping[str, Tensor]
    ) -> Decision:
        """As any strategy, or by the fused kernel."""
        if type(self) is Greedy and self._is_fused(task, logits):
            fused = kernels.pointer.select(logits, state["action_mask"], **self.filters)
            if fused is not None:
                return Decision(*fused)
        return super().decide(task, logits, step, state)

    def choose(self, logits: Tensor, step: int, state: Mapping[str, Tensor]) -> Tensor:
        """Argmax; the first index on ties."""
        return logits.argmax(-1)


@dataclasses.dataclass(frozen=True)
class Sampling(DecodingStrategy):
    """An action drawn from the distribution."""

    draws: ClassVar[bool] = True

    def decide(
        self, task: DecodingTask, logits: Tensor, step: int, state: Mapping[str, Tensor]
    ) -> Decision:
        """As any strategy, or by the fused kernel with the same random numbers."""
        if type(self) is Sampling and self._is_fused(task, logits):
            uniform = torch.rand(*logits.shape[:-1], 1, generator=self.rng)
            mask = state["action_mask"]
            fused = kernels.pointer.select(logits, mask, uniform=uniform, **self.filters)
            if fused is not None:
                return Decision(*fused)
        return super().decide(task, logits, step, state)

    def choose(self, logits: Tensor, step: int, state: Mapping[str, Tensor]) -> Tensor:
        """A draw from the softmax."""
        return sample_actions(logits, self.rng)


@dataclasses.dataclass(frozen=True)
class Evaluate(DecodingStrategy):
    """Given actions `[B, S, T]`, to compute their likelihood.

    With `multistart` the first action counts as forced, as it was when the actions were decoded.
    """

    actions: Tensor | None = None

    fixed_choice: ClassVar[str | None] = "evaluate"
    has_actions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_samples > 1 or self.num_starts is not None:
            raise ConfigError(
                f"expected actions alone to say how many solutions there are, got "
                f"num_samples={self.num_samples} and num_starts={self.num_starts}"
            )

    def forced_starts(
        self, env: RL4COEnvBase, td: TensorDictBase, select_start_nodes_fn: StartsFn | None = None
    ) -> Tensor | None:
        """The first of the known actions, if they were decoded with starts."""
        if not self.multistart:
            return None
        prefix = env.start_prefix(dict(td.items()))  # [B, K - 1]
        return self.known_actions[..., : 1 if prefix is None else 1 + prefix.shape[-1]]

    def count_solutions(self, starts: Tensor | None) -> int:
        """As many as there are actions for."""
        return self.known_actions.shape[1]

    def run(self, task: DecodingTask) -> Rollout:
        """Follows the actions; asks the policy at every step only if nothing is recorded."""
        if not task.record:
            return decode(task, self)
        return follow(task.env, task.state, self.known_actions, task.record, len(task.starts))

    def choose(self, logits: Tensor, step: int, state: Mapping[str, Tensor]) -> Tensor:
        """The known action of this step."""
        return self.known_actions[..., step]

    @property
    def known_actions(self) -> Tensor:
        """The actions to evaluate, `[B, S, T]`."""
        if self.actions is None:
            raise ConfigError("expected actions to evaluate, got None; pass actions=...")
        return self.actions


@dataclasses.dataclass(frozen=True)
class BeamSearch(DecodingStrategy):
    """Keeps the `beam_width` most likely partial solutions (see :mod:`rl4co.decoding.beam`)."""

    beam_width: int = 10

    fixed_choice: ClassVar[str | None] = "beam search"
    can_replay = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_width < 1:
            raise ConfigError(f"expected beam_width of at least 1, got {self.beam_width}")
        if self.num_samples > 1 or self.num_starts is not None or self.multistart:
            raise ConfigError(
                f"expected beam_width alone for beam search, got num_samples={self.num_samples}, "
                f"num_starts={self.num_starts}, multistart={self.multistart}"
            )

    def run(self, task: DecodingTask) -> Rollout:
        """Searches all beams together."""
        return beam_search(task, self)


_STRATEGIES: dict[str, tuple[type[DecodingStrategy], dict[str, Any]]] = {
    "greedy": (Greedy, {}),
    "sampling": (Sampling, {}),
    "multistart_greedy": (Greedy, {"multistart": True}),
    "multistart_sampling": (Sampling, {"multistart": True}),
    "beam_search": (BeamSearch, {}),
    "evaluate": (Evaluate, {}),
}


#: What a policy accepts as `decode_type`: a name, a class or an object.
DecodeType: TypeAlias = str | type[DecodingStrategy] | DecodingStrategy


def get_decoding_strategy(decode_type: DecodeType, **settings: Any) -> DecodingStrategy:
    """The strategy for a decode type; settings that are None keep their defaults.

    Args:
        decode_type: greedy, sampling, multistart_greedy, multistart_sampling, beam_search,
            evaluate, a registered name (the prefix `multistart_` forces starts), a class, or an
            object, which keeps its settings where none are passed.
        settings: Settings of the strategy; unknown ones raise an error.
    """
    settings = {key: value for key, value in settings.items() if value is not None}
    cls, preset = _look_up(decode_type)
    _check_settings(cls, decode_type, settings)
    # A number of starts asks for multi-start decoding, whatever the strategy is called.
    if settings.get("num_starts", 0) > 1 and cls.fixed_choice is None:
        preset = {"multistart": True}
    settings = {**preset, **settings}
    if isinstance(decode_type, DecodingStrategy):
        return decode_type.with_settings(**settings)
    arguments = {k: value for k, value in settings.items() if k in _constructor_arguments(cls)}
    others = {key: value for key, value in settings.items() if key not in arguments}
    return cls(**arguments).with_settings(**others)


_cached_strategy = functools.lru_cache(maxsize=256)(get_decoding_strategy)


def complete_strategy(
    decode_type: DecodeType, defaults: Mapping[str, Any], settings: Mapping[str, Any]
) -> DecodingStrategy:
    """The strategy for a decode type, with a policy's preferences where settings are missing.

    Args:
        decode_type: See :func:`get_decoding_strategy`. Strategies of the library are built once
            per set of settings.
        defaults: Preferences of the policy; of an object they replace settings left at defaults.
        settings: Settings of the caller.
    """
    if isinstance(decode_type, DecodingStrategy):
        unset = {field.name: field.default for field in dataclasses.fields(DecodingStrategy)}
        defaults = {
            key: value for key, value in defaults.items() if getattr(decode_type, key) == unset[key]
        }
    settings = {**defaults, **{key: value for key, value in settings.items() if value is not None}}
    if not isinstance(decode_type, str) or decode_type not in _STRATEGIES:
        return get_decoding_strategy(decode_type, **settings)
    # What differs from call to call is no part of the cache.
    per_call = {"rng": settings.pop("rng")} if "rng" in settings else {}
    if decode_type == "evaluate" and "actions" in settings:
        per_call["actions"] = settings.pop("actions")
    return _cached_strategy(decode_type, **settings).with_settings(**per_call)


def is_multistart(decode_type: DecodeType) -> bool:
    """Whether a strategy forces its first actions to distinct starts."""
    if isinstance(decode_type, DecodingStrategy):
        return decode_type.multistart
    _, preset = _look_up(decode_type)
    return bool(preset.get("multistart", False))


def multistart_type(decode_type: DecodeType) -> DecodeType:
    """The same strategy with first actions forced to distinct starts."""
    if isinstance(decode_type, str):
        return f"multistart_{decode_type.removeprefix('multistart_')}"
    return get_decoding_strategy(decode_type, multistart=True)


def _look_up(decode_type: DecodeType) -> tuple[type[DecodingStrategy], dict[str, Any]]:
    """Class and preset settings of a decode type."""
    if isinstance(decode_type, DecodingStrategy):
        return type(decode_type), {}
    if isinstance(decode_type, type) and issubclass(decode_type, DecodingStrategy):
        return decode_type, {}
    if not isinstance(decode_type, str):
        raise ConfigError(
            f"expected a decode type by name, or a class or object of DecodingStrategy, got "
            f"{decode_type!r}; derive from rl4co.utils.decoding.DecodingStrategy"
        )
    if decode_type in _STRATEGIES:
        return _STRATEGIES[decode_type]
    name = decode_type.removeprefix("multistart_")
    if name not in DECODING:
        raise UnknownNameError("decode type", decode_type, {*_STRATEGIES, *DECODING})
    return DECODING[name], {} if name == decode_type else {"multistart": True}


def _check_settings(
    cls: type[DecodingStrategy], decode_type: DecodeType, settings: Iterable[str]
) -> None:
    """Raises for a setting that is neither a field nor an argument of the constructor."""
    names = _field_names(cls) | _constructor_arguments(cls)
    for key in settings:
        if key not in names:
            name = decode_type if isinstance(decode_type, str) else cls.__name__
            raise UnknownNameError(
                f"setting of decode type {name!r}", key, names, hint("decoding setting", key)
            )


def _field_names(cls: type[DecodingStrategy]) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def _constructor_arguments(cls: type[DecodingStrategy]) -> set[str]:
    """Names that the constructor accepts; with `**kwargs`, those of all settings as well."""
    parameters = inspect.signature(cls).parameters.values()
    names = {parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names |= _field_names(cls)
    return names
