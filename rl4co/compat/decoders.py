"""Decoders in the published style: `forward(td, hidden, num_starts)` → logits and mask.

Such a decoder reads TensorDicts with one batch axis, row `s * B + b` being solution s of instance
b, and computes once per instance in `pre_decoder_hook(td, env, hidden, num_starts)`. Conversely,
published code may call the decoders of this library with these three arguments
(:func:`answer_rows`).
"""

from __future__ import annotations

import inspect

from collections.abc import Mapping
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import flatten_starts, unbatchify
from rl4co.decoding.rollout import LogitsFn
from rl4co.envs.base import RL4COEnvBase, State

#: Published methods of decoders that nothing calls here → what to write instead.
_WRITE_INSTEAD = {
    "pre_decoder_hook": "prepare(hidden, state)",
    "_precompute_cache": "prepare(hidden, state)",
    "_compute_q": "_query(state, cache), or a context_embedding",
    "_compute_kvl": "a dynamic_embedding",
}


def adapt(cls: Any) -> Any:
    """Gives a class of decoders with the published `forward` what the library calls.

    Args:
        cls: A subclass of :class:`~rl4co.models.policies.modules.ConstructiveDecoder`, right after
            its definition.
    """
    if not _has_published_forward(cls):
        _reject_unused_methods(cls)
        return cls
    cls.logits_fn = _logits_fn
    cls.replay_keys = None
    cls.replay_hint = "write forward(state, cache) with replay_keys instead of the published one"
    cls.__call__ = nn.Module.__call__
    return cls


def add_methods(base: Any) -> Any:
    """Gives all decoders the published `pre_decoder_hook`, and published calls of `forward`.

    Args:
        base: The base class of decoders.
    """
    base.__call__ = _call
    base.pre_decoder_hook = _pre_decoder_hook
    return base


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) + len(kwargs) < 3:
        return nn.Module.__call__(self, *args, **kwargs)
    return answer_rows(self, *args, **kwargs)


def _pre_decoder_hook(
    self: Any, td: TensorDictBase, env: RL4COEnvBase, hidden: Any, num_starts: int = 0
) -> tuple[TensorDictBase, RL4COEnvBase, Any]:
    """What a published decoder finds behind `super()`: nothing is prepared."""
    return td, env, hidden


def _has_published_forward(cls: Any) -> bool:
    """Whether `forward` of a class of decoders takes a state, hidden and the number of starts."""
    parameters = list(inspect.signature(cls.forward).parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in by_position for parameter in parameters) >= 4  # with self


def _reject_unused_methods(cls: Any) -> None:
    """Raises for published methods of a decoder that nothing calls without that `forward`."""
    for name, instead in _WRITE_INSTEAD.items():
        if name in vars(cls):
            raise UnsupportedError(
                f"expected {cls.__name__} to have the published forward(td, hidden, num_starts) "
                f"beside {name}, got forward{inspect.signature(cls.forward)}; "
                f"write that one, or {instead} in place of {name}"
            )


def _logits_fn(decoder: Any, env: RL4COEnvBase, hidden: Any, cache: Any) -> LogitsFn:
    """State with axes `[B, S]` → logits `[B, S, N]` of a published decoder."""
    prepared: dict[int, Any] = {}  # by the number of solutions, which a beam search changes

    def logits_fn(state: State) -> Tensor:
        num_solutions = state["done"].shape[1]
        rows = {key: flatten_starts(value) for key, value in state.items()}  # [S * B, ...]
        done = rows["done"]
        td = TensorDict(rows, batch_size=done.shape[:1], device=done.device)
        num_starts = num_solutions if num_solutions > 1 else 0
        if num_solutions not in prepared:
            prepared[num_solutions] = _prepare(decoder, env, hidden, td, num_starts)
        logits, mask = decoder(td, prepared[num_solutions], num_starts)
        if mask is not None and not torch.equal(mask.bool(), rows["action_mask"]):
            raise UnsupportedError(
                f"expected {type(decoder).__name__} to return the action_mask of the state, got "
                "another one; leave masking to the environment"
            )
        return unbatchify(logits, num_solutions)

    return logits_fn


def answer_rows(
    decoder: Any, td: Mapping[str, Tensor], hidden: Any, num_starts: int
) -> tuple[Tensor, Tensor]:
    """Logits and action mask `[S * B, N]` of a decoder that reads states with axes `[B, S]`.

    What the decoder prepares is prepared anew in every call, because the caller keeps the encoder's
    result alone.

    Args:
        decoder: The decoder.
        td: State with one batch axis `[S * B]`, starts outermost.
        hidden: The encoder's result for the instances `[B]`.
        num_starts: Solutions per instance S; 0: one.
    """
    state = {key: unbatchify(value, max(num_starts, 1)) for key, value in td.items()}  # [B, S, ...]
    cache = decoder.prepare(hidden, {key: value[:, 0] for key, value in state.items()})
    if decoder.start_memory(state, cache):
        raise UnsupportedError(
            f"expected a decoder without a memory of former actions, got {type(decoder).__name__}; "
            "call the policy, which keeps the memory from step to step"
        )
    return flatten_starts(decoder(state, cache)), td["action_mask"]


def _prepare(decoder: Any, env: RL4COEnvBase, hidden: Any, td: TensorDict, num_starts: int) -> Any:
    """What `pre_decoder_hook` makes of the encoder's result; the state must stay as it is."""
    keys = set(td.keys())
    state, same_env, prepared = decoder.pre_decoder_hook(td, env, hidden, num_starts)
    if state is not td or set(td.keys()) != keys or same_env is not env:
        raise UnsupportedError(
            f"expected pre_decoder_hook of {type(decoder).__name__} to change `hidden` alone, got "
            "another state or environment; put into the state what the environment computes, and "
            "into `hidden` what the decoder does"
        )
    return prepared
