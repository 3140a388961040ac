"""How actions are chosen: a validated record of settings and a choice rule per strategy.

A strategy of one's own is a subclass of :class:`DecodingStrategy` with `choose`. It is given to a
policy as it is (class or object), or by the name under which `@DECODING.register` files it.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias, TypeVar

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.registry import DECODING
from rl4co.decoding.logits import filter_logits, sample_actions
from rl4co.decoding.step_hooks import HOOKS, StepHooks, refuse_unheard

S = TypeVar("S", bound="DecodingStrategy")


@dataclasses.dataclass(frozen=True)
class DecodingStrategy(StepHooks):
    """Settings of a decoding strategy. Subclasses choose the action.

    The distribution of a step is the softmax of :meth:`filter`, and log-likelihoods are those of
    this distribution, however :meth:`choose` picks from it.

    A subclass in the published form (`_step`, `pre_decoder_hook`, ...) runs step by step instead,
    see :mod:`rl4co.decoding.step_hooks`.

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
    #: The strategy's name where actions are not chosen by :meth:`choose`, so that none may be.
    fixed_choice: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.uses_hooks = cls.uses_hooks or any(name in vars(cls) for name in HOOKS)
        refuse_unheard(cls, None if "fixed_choice" in vars(cls) else cls.fixed_choice)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An object with hooks keeps what happens on it; others never change."""
        if cls.uses_hooks:
            setattr(cls, "__setattr__", object.__setattr__)  # noqa: B010
        return super().__new__(cls)

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
        if self.num_starts == 0:  # published for: not asked for
            object.__setattr__(self, "num_starts", None)
        if self.num_starts is not None and self.num_starts < 1:
            raise ConfigError(f"expected num_starts of at least 1, got {self.num_starts}")
        if self.multistart and self.num_samples > 1:
            raise ConfigError(
                f"expected starts or samples, got multi-start with num_samples={self.num_samples}; "
                "use num_starts, or the strategy without multistart"
            )

    @property
    def replays(self) -> bool:
        """Whether the distributions of all steps can be had at once, after the fact."""
        return type(self).filter is DecodingStrategy.filter

    @property
    def truncates(self) -> bool:
        """Whether actions that the mask allows may get probability zero."""
        return self.top_k > 0 or self.top_p > 0

    def without_truncation(self) -> DecodingStrategy:
        """The same strategy for logits whose support is known already."""
        return self.with_settings(top_k=0, top_p=0.0)

    def with_settings(self: S, **settings: Any) -> S:
        """The same strategy with other settings, whatever its constructor takes."""
        twin = copy.copy(self)
        vars(twin).update(settings)
        twin.__post_init__()
        return twin

    def filter(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Filtered logits `[*B, N]`; their softmax is the distribution of the actions."""
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
            logits: What :meth:`filter` left, `[*B, N]`; minus infinity for forbidden actions.
            step: Number of the step, counted from 0 and with forced starts.
            state: State of the environment with batch `*B`; not to be changed.

        Returns:
            Actions `[*B]`, int64.
        """
        raise NotImplementedError(f"write choose(logits, step, state) in {type(self).__name__}")


@dataclasses.dataclass(frozen=True)
class Greedy(DecodingStrategy):
    """The most likely action."""

    def choose(self, logits: Tensor, step: int, state: Mapping[str, Tensor]) -> Tensor:
        """Argmax; the first index on ties."""
        return logits.argmax(-1)


@dataclasses.dataclass(frozen=True)
class Sampling(DecodingStrategy):
    """An action drawn from the distribution."""

    draws: ClassVar[bool] = True

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_samples > 1 or self.num_starts is not None:
            raise ConfigError(
                f"expected actions alone to say how many solutions there are, got "
                f"num_samples={self.num_samples} and num_starts={self.num_starts}"
            )

    def choose(self, logits: Tensor, step: int, state: Mapping[str, Tensor]) -> Tensor:
        """The given action of this step."""
        return self.given()[..., step]

    def given(self) -> Tensor:
        """The actions to evaluate, `[B, S, T]`."""
        if self.actions is None:
            raise ConfigError("expected actions to evaluate, got None; pass actions=...")
        return self.actions


@dataclasses.dataclass(frozen=True)
class BeamSearch(DecodingStrategy):
    """Keeps the `beam_width` most likely partial solutions (see :mod:`rl4co.decoding.beam`)."""

    beam_width: int = 10

    fixed_choice: ClassVar[str | None] = "beam search"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_width < 1:
            raise ConfigError(f"expected beam_width of at least 1, got {self.beam_width}")
        if self.num_samples > 1 or self.num_starts is not None or self.multistart:
            raise ConfigError(
                f"expected beam_width alone for beam search, got num_samples={self.num_samples}, "
                f"num_starts={self.num_starts}, multistart={self.multistart}"
            )


_STRATEGIES: dict[str, tuple[type[DecodingStrategy], dict[str, Any]]] = {
    "greedy": (Greedy, {}),
    "sampling": (Sampling, {}),
    "multistart_greedy": (Greedy, {"multistart": True}),
    "multistart_sampling": (Sampling, {"multistart": True}),
    "beam_search": (BeamSearch, {}),
    "evaluate": (Evaluate, {}),
}


#: Settings of the published package that have no counterpart → what to write.
_PUBLISHED_SETTINGS = {
    "multisample": "leave it out, num_samples says the same;",
    "store_all_logp": "use return_entropy=True, or return_sum_log_likelihood=False;",
    "improvement_method_mode": "leave it out, improvement policies choose by themselves;",
    "softmax_temp": "write temperature;",
}

#: What a policy takes as `decode_type`: a name, a class or an object.
DecodeType: TypeAlias = str | type[DecodingStrategy] | DecodingStrategy


def get_decoding_strategy(decode_type: DecodeType, **settings: Any) -> DecodingStrategy:
    """The strategy that is meant; settings that are None keep their defaults.

    Args:
        decode_type: greedy, sampling, multistart_greedy, multistart_sampling, beam_search,
            evaluate, a registered name (`multistart_` in front forces starts), a class or an
            object, whose settings are kept where none are given.
        settings: Settings of the strategy; unknown ones are refused.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    cls, preset = _strategy(decode_type)
    _refuse_unknown(cls, decode_type, given)
    # A number of starts asks for multi-start decoding, whatever the strategy is called.
    if given.get("num_starts", 0) > 1 and cls.fixed_choice is None:
        preset = {"multistart": True}
    chosen = {**preset, **given}
    if isinstance(decode_type, DecodingStrategy):
        return decode_type.with_settings(**chosen)
    taken = {key: value for key, value in chosen.items() if key in _constructor_arguments(cls)}
    others = {key: value for key, value in chosen.items() if key not in taken}
    return cls(**taken).with_settings(**others)


def complete_strategy(
    decode_type: DecodeType, defaults: Mapping[str, Any], settings: Mapping[str, Any]
) -> DecodingStrategy:
    """The strategy with what a policy prefers, where neither the caller nor the object says more.

    Args:
        decode_type: See :func:`get_decoding_strategy`.
        defaults: Preferences of the policy; of an object they replace what was left unset.
        settings: What the caller asks for.
    """
    if isinstance(decode_type, DecodingStrategy):
        unset = {field.name: field.default for field in dataclasses.fields(DecodingStrategy)}
        defaults = {
            key: value for key, value in defaults.items() if getattr(decode_type, key) == unset[key]
        }
    given = {key: value for key, value in settings.items() if value is not None}
    return get_decoding_strategy(decode_type, **{**defaults, **given})


def is_multistart(decode_type: DecodeType) -> bool:
    """Whether a strategy forces its first actions to distinct starts."""
    if isinstance(decode_type, DecodingStrategy):
        return decode_type.multistart
    _, preset = _strategy(decode_type)
    return bool(preset.get("multistart", False))


def multistart_type(decode_type: DecodeType) -> DecodeType:
    """The same strategy with first actions forced to distinct starts."""
    if isinstance(decode_type, str):
        return f"multistart_{decode_type.removeprefix('multistart_')}"
    return get_decoding_strategy(decode_type, multistart=True)


def _strategy(decode_type: DecodeType) -> tuple[type[DecodingStrategy], dict[str, Any]]:
    """Class and settings of the strategy that is meant."""
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
    plain = decode_type.removeprefix("multistart_")
    if plain not in DECODING:
        raise UnknownNameError("decode type", decode_type, {*_STRATEGIES, *DECODING})
    return DECODING[plain], {} if plain == decode_type else {"multistart": True}


def _refuse_unknown(
    cls: type[DecodingStrategy], decode_type: DecodeType, given: Mapping[str, Any]
) -> None:
    """Raises for a setting that is neither a field nor an argument of the constructor."""
    known = {field.name for field in dataclasses.fields(cls)} | _constructor_arguments(cls)
    for key in given:
        if key not in known:
            name = decode_type if isinstance(decode_type, str) else cls.__name__
            hint = _PUBLISHED_SETTINGS.get(key, "")
            raise UnknownNameError(f"setting of decode type {name!r}", key, known, hint)


def _constructor_arguments(cls: type[DecodingStrategy]) -> set[str]:
    """Names that the constructor takes; with `**kwargs`, those of all settings as well."""
    parameters = inspect.signature(cls).parameters.values()
    names = {parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names |= {field.name for field in dataclasses.fields(cls)}
    return names
