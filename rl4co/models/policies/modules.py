"""The parts of a constructive policy: an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from rl4co.core.adapters import adapt, extended
from rl4co.core.arguments import RecordsArguments
from rl4co.decoding.replay import evaluate_logits
from rl4co.decoding.rollout import LogitsFn
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase, State


class ConstructiveEncoder(RecordsArguments, nn.Module):
    """Maps an instance to a latent representation, once per instance."""

    def forward(self, td: Mapping[str, Tensor]) -> tuple[Any, Tensor]:
        """Hidden representation and init embeddings `[B, N, D]`."""
        raise NotImplementedError


class NoEncoder(ConstructiveEncoder):
    """The encoder of a policy that reads the state at every step: encodes nothing."""

    def forward(self, td: Mapping[str, Tensor]) -> tuple[None, None]:  # type: ignore[override]
        """Nothing."""
        return None, None


@extended("decoder")
class ConstructiveDecoder(RecordsArguments, nn.Module):
    """Maps a state and the cached latent representation to logits."""

    #: Whether :meth:`prepare` may be called for some of the instances (rows of a tensor `hidden`)
    #: with the same result for each, so that training replays a large batch in pieces.
    prepares_by_instance = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        adapt("decoder", cls)

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """State keys that :meth:`forward` reads, or None if it must follow the steps one by one."""
        return None

    @property
    def replay_hint(self) -> str:
        """What to add where `replay_keys` is None so that training can replay the steps."""
        return f"define replay_keys in {type(self).__name__}: the state keys that forward reads"

    def prepare(self, hidden: Any, state: Mapping[str, Tensor]) -> Any:
        """What can be computed once per instance."""
        return hidden

    def forward(self, state: Mapping[str, Tensor], cache: Any) -> Tensor:
        """Logits `[B, Q, N]` of a state with axes `[B, Q]`; neither clipped nor masked."""
        raise NotImplementedError

    def logits_fn(self, env: RL4COEnvBase, hidden: Any, cache: Any) -> LogitsFn:
        """:meth:`forward` as a function of the state alone.

        Args:
            env: The environment.
            hidden: The encoder's result.
            cache: From :meth:`prepare`.
        """
        return lambda state: self(state, cache)

    def is_fused(self, cache: Any, strategy: DecodingStrategy) -> bool:
        """Whether :meth:`log_probs` stores no logits for the backward pass."""
        return False

    def log_probs(
        self,
        cache: Any,
        state: State,
        actions: Tensor,
        strategy: DecodingStrategy,
        with_entropy: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities and entropies `[B, Q]` of actions `[B, Q]`, differentiable.

        Args:
            cache: From :meth:`prepare`.
            state: Axes `[B, Q]`.
            actions: The actions.
            strategy: Filters the logits.
            with_entropy: Whether entropies are wanted; otherwise None.
        """
        return evaluate_logits(self(state, cache), state, actions, strategy, with_entropy)

    # A recurrent decoder keeps a memory of the actions so far. It travels in the states of the
    # decode loop under keys of its own; :meth:`forward` reads it there.

    def start_memory(self, state: Mapping[str, Tensor], cache: Any) -> dict[str, Tensor]:
        """Memory `[B, S, ...]` of a state right after reset, axes `[B, S]`. None by default."""
        return {}

    def update_memory(self, state: Mapping[str, Tensor], cache: Any) -> dict[str, Tensor]:
        """Memory `[B, S, ...]` after `state["action"]`: the keys that change."""
        return {}

    def recall(self, state: Mapping[str, Tensor], actions: Tensor, cache: Any) -> dict[str, Tensor]:
        """Memory before each step, for all steps at once and differentiable, for the replay.

        Args:
            state: The state after reset with its memory, axes `[B, S]`.
            actions: `[B, S, T]`.
            cache: From :meth:`prepare`.

        Returns:
            The keys of the memory that :meth:`forward` reads, `[B, S, T, ...]`.
        """
        return {}
