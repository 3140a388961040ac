"""What a constructive policy is made of: an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.decoding.rollout import Rollout
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.policies.published_style import (
    answer_rows,
    has_published_forward,
    refuse_unused,
)


class ConstructiveEncoder(nn.Module):
    """Maps an instance to a latent representation, once per instance."""

    def forward(self, td: Mapping[str, Tensor]) -> tuple[Any, Tensor]:
        """Hidden representation and init embeddings `[B, N, D]`."""
        raise NotImplementedError


class NoEncoder(ConstructiveEncoder):
    """Of a policy that reads the state at every step: there is nothing to encode once."""

    def forward(self, td: Mapping[str, Tensor]) -> tuple[None, None]:  # type: ignore[override]
        """Nothing."""
        return None, None


class ConstructiveDecoder(nn.Module):
    """Maps a state and the cached latent representation to logits."""

    #: Whether :meth:`forward` is a published one, see :mod:`rl4co.models.policies.published_style`.
    takes_rows: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.takes_rows = has_published_forward(cls)
        if not cls.takes_rows:
            refuse_unused(cls)

    #: Whether :meth:`prepare` may be called for some of the instances (rows of a tensor `hidden`)
    #: with the same result for each, so that training takes a large batch in pieces.
    prepares_by_instance = False

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """State keys that :meth:`forward` reads, or None if it must follow the steps one by one."""
        return None

    def prepare(self, hidden: Any, state: Mapping[str, Tensor]) -> Any:
        """What can be computed once per instance."""
        return hidden

    def forward(self, state: Mapping[str, Tensor], cache: Any) -> Tensor:
        """Logits `[B, Q, N]` of a state with axes `[B, Q]`; neither clipped nor masked."""
        raise NotImplementedError

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As :meth:`forward`, or as published code asks: `(td, hidden, num_starts)` → logits, mask.

        With these three arguments the state has one batch axis, see
        :func:`~rl4co.models.policies.published_style.answer_rows`.
        """
        if self.takes_rows or len(given) + len(named) < 3:
            return super().__call__(*given, **named)
        return answer_rows(self, *given, **named)

    def pre_decoder_hook(
        self, td: TensorDictBase, env: RL4COEnvBase, hidden: Any, num_starts: int = 0
    ) -> tuple[TensorDictBase, RL4COEnvBase, Any]:
        """Called once if the decoder has the published `forward(td, hidden, num_starts)`.

        Args:
            td: State with one batch axis `[S * B]`, starts outermost.
            env: The environment.
            hidden: The encoder's result.
            num_starts: Solutions per instance; 0: one.
        """
        return td, env, hidden

    def roll_out(
        self,
        env: RL4COEnvBase,
        state: State,
        cache: Any,
        strategy: DecodingStrategy,
        starts: Tensor | None,
    ) -> Rollout | None:
        """Whole solutions without gradients, where there is a faster way than step by step.

        Args:
            env: The environment.
            state: Fresh state with axes `[B, S]`.
            cache: From :meth:`prepare`.
            strategy: How actions are chosen.
            starts: First actions `[B, S, K]` that are forced.

        Returns:
            Actions and log-probabilities; None (the default): the decode loop asks for every step.
        """
        return None

    # A recurrent decoder keeps a memory of the actions so far. It travels in the states of the
    # decode loop under keys of its own; :meth:`forward` finds it there.

    def start_memory(self, state: Mapping[str, Tensor], cache: Any) -> dict[str, Tensor]:
        """Memory `[B, S, ...]` of a fresh state with axes `[B, S]`. None by default."""
        return {}

    def update_memory(self, state: Mapping[str, Tensor], cache: Any) -> dict[str, Tensor]:
        """Memory `[B, S, ...]` after `state["action"]`: the keys that change."""
        return {}

    def recall(self, state: Mapping[str, Tensor], actions: Tensor, cache: Any) -> dict[str, Tensor]:
        """Memory before each step, for all steps at once and differentiable, for the replay.

        Args:
            state: The fresh state with its memory, axes `[B, S]`.
            actions: `[B, S, T]`.
            cache: From :meth:`prepare`.

        Returns:
            The keys of the memory that :meth:`forward` reads, `[B, S, T, ...]`.
        """
        return {}
