"""How actions are chosen: a validated record of settings and a choice rule per strategy."""

from __future__ import annotations

import dataclasses

from typing import Any, ClassVar

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.decoding.logits import filter_logits, sample_actions


@dataclasses.dataclass(frozen=True)
class DecodingStrategy:
    """Settings of a decoding strategy. Subclasses choose the action.

    Args:
        temperature: Divides the logits.
        top_k: Keep this many actions (0 = all).
        top_p: Keep the nucleus of this probability (0 = all).
        tanh_clipping: Bound of the tanh clipping (0 = none).
        mask_logits: Whether forbidden actions are masked.
        multistart: Whether the first action is forced to distinct starts.
        num_starts: Starts per instance (None = as many as the environment offers).
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
        if self.num_starts is not None and self.num_starts < 1:
            raise ConfigError(f"expected num_starts of at least 1, got {self.num_starts}")
        if self.multistart and self.num_samples > 1:
            raise ConfigError(
                f"expected starts or samples, got multi-start with num_samples={self.num_samples}; "
                "use num_starts, or the strategy without multistart"
            )

    @property
    def only_clips(self) -> bool:
        """Whether the distribution is that of tanh-clipped, masked logits and nothing else."""
        filtered = self.temperature != 1.0 or self.top_k > 0 or self.top_p > 0
        return self.mask_logits and self.tanh_clipping > 0 and not filtered

    @property
    def truncates(self) -> bool:
        """Whether actions that the mask allows may get probability zero."""
        return self.top_k > 0 or self.top_p > 0

    def without_truncation(self) -> DecodingStrategy:
        """The same strategy for logits whose support is known already."""
        return dataclasses.replace(self, top_k=0, top_p=0.0)

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

    def choose(self, logits: Tensor, step: int) -> Tensor:
        """Actions `[*B]` for filtered logits `[*B, N]` at a step counted from 0."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Greedy(DecodingStrategy):
    """The most likely action."""

    def choose(self, logits: Tensor, step: int) -> Tensor:
        """Argmax; the first index on ties."""
        return logits.argmax(-1)


@dataclasses.dataclass(frozen=True)
class Sampling(DecodingStrategy):
    """An action drawn from the distribution."""

    draws: ClassVar[bool] = True

    def choose(self, logits: Tensor, step: int) -> Tensor:
        """A draw from the softmax."""
        return sample_actions(logits, self.rng)


@dataclasses.dataclass(frozen=True)
class Evaluate(DecodingStrategy):
    """Given actions `[B, S, T]`, to compute their likelihood.

    With `multistart` the first action counts as forced, as it was when the actions were decoded.
    """

    actions: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_samples > 1 or self.num_starts is not None:
            raise ConfigError(
                f"expected actions alone to say how many solutions there are, got "
                f"num_samples={self.num_samples} and num_starts={self.num_starts}"
            )

    def choose(self, logits: Tensor, step: int) -> Tensor:
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


def get_decoding_strategy(name: str, **settings: Any) -> DecodingStrategy:
    """The strategy called `name`; settings that are None keep their defaults.

    Args:
        name: greedy, sampling, multistart_greedy, multistart_sampling, beam_search or evaluate.
        settings: Fields of the strategy; unknown ones are refused.
    """
    cls, preset = _strategy(name)
    given = {key: value for key, value in settings.items() if value is not None}
    known = {field.name for field in dataclasses.fields(cls)}
    for key in given:
        if key not in known:
            raise UnknownNameError(f"setting of decode type {name!r}", key, known)
    # A number of starts asks for multi-start decoding, whatever the strategy is called.
    if given.get("num_starts", 0) > 1 and cls in (Greedy, Sampling):
        preset = {"multistart": True}
    return cls(**{**preset, **given})


def is_multistart(name: str) -> bool:
    """Whether the strategy called `name` forces its first actions to distinct starts."""
    _, preset = _strategy(name)
    return bool(preset.get("multistart", False))


def _strategy(name: str) -> tuple[type[DecodingStrategy], dict[str, Any]]:
    """Class and settings of the strategy called `name`."""
    if name not in _STRATEGIES:
        raise UnknownNameError("decode type", name, _STRATEGIES)
    return _STRATEGIES[name]
