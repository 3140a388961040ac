"""Decoders of MDAM: several pointers with separate weights, decoded as one batch.

The rows of a batch are paths × instances, row `p * B + b`. Keys and values are computed per path;
from then on a step is one computation for all rows.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.models.policies.autoregressive import AutoregressiveDecoder
from rl4co.models.zoo.am import AttentionModelDecoder, DecoderCache
from rl4co.models.zoo.mdam.encoder import MDAMHidden

#: State key: the nodes that were visible at the last embedding glimpse.
VISIBLE = "glimpse_visible"


@dataclasses.dataclass
class MDAMCache:
    """What is computed once per instance, or once per embedding glimpse.

    Attributes:
        hidden: The encoder's result.
        paths: Caches of the single paths, rows `[B]` each.
        joint: Keys and values of all paths, rows `[P * B]`, or None, see :func:`_join`.
        at_first: Nodes that were allowed at first `[P * B, 1, N]`.
        steps: Steps taken.
        seen: The visible nodes for which `glimpse` was computed.
        glimpse: Paths and joint cache after the last embedding glimpse.
    """

    hidden: MDAMHidden
    paths: list[DecoderCache]
    joint: DecoderCache | None
    at_first: Tensor
    steps: int = 0
    seen: Tensor | None = None
    glimpse: MDAMCache | None = None


class MDAMDecoder(AutoregressiveDecoder):
    """Several pointer decoders.

    Args:
        num_paths: Decoders P.
        eg_step_gap: Steps from one embedding glimpse to the next; None: there is none.
        kwargs: See :class:`AttentionModelDecoder`, of which each path is one.

    Shapes:
        state with axes `[P * B, Q]` → logits `[P * B, Q, N]`
    """

    def __init__(self, num_paths: int = 5, eg_step_gap: int | None = 200, **kwargs: Any) -> None:
        super().__init__()
        check_at_least(1, num_paths=num_paths, eg_step_gap=eg_step_gap)
        self.num_paths, self.eg_step_gap = num_paths, eg_step_gap
        self.paths = nn.ModuleList(AttentionModelDecoder(**kwargs) for _ in range(num_paths))
        #: Whether solutions may be long enough for an embedding glimpse; set by the policy.
        self.glimpses = False

    @property
    def first(self) -> AttentionModelDecoder:
        """The first path. A step needs no weights but those of the contexts, so it serves all."""
        return self._all_paths()[0]

    def _all_paths(self) -> list[AttentionModelDecoder]:
        return [path for path in self.paths if isinstance(path, AttentionModelDecoder)]

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """State keys of the paths; None if embeddings change on the way."""
        return None if self.glimpses else self.first.replay_keys

    def prepare(self, hidden: MDAMHidden, state: Mapping[str, Tensor]) -> MDAMCache:
        """Keys and values of all paths; the state has `P * B` rows, `hidden` B."""
        return self._cache(hidden, [hidden.nodes] * self.num_paths, state["action_mask"])

    def _cache(self, hidden: MDAMHidden, nodes: list[Tensor], mask: Tensor) -> MDAMCache:
        """Caches of embeddings that may differ between paths."""
        caches = [path.prepare(h, {}) for path, h in zip(self._all_paths(), nodes, strict=True)]
        return MDAMCache(hidden, caches, _join(caches), mask.unsqueeze(1))

    def forward(self, state: Mapping[str, Tensor], cache: MDAMCache) -> Tensor:
        """Logits `[P * B, Q, N]`, neither clipped nor masked."""
        visible = state.get(VISIBLE) if self.glimpses else None
        if visible is not None and cache.steps >= (self.eg_step_gap or 0):
            return self._after_glimpse(visible, state, cache)
        if cache.joint is None:
            each = zip(self._all_paths(), self._each(state, cache), strict=True)
            return torch.cat([path(*its_own) for path, its_own in each])
        return self.first.point(self._queries(state, cache), state, cache.joint)

    def _queries(self, state: Mapping[str, Tensor], cache: MDAMCache) -> Tensor:
        """Queries of all paths `[P * B, Q, D]`."""
        each = zip(self._all_paths(), self._each(state, cache), strict=True)
        return torch.cat([path._query(*its_own) for path, its_own in each])

    def _each(
        self, state: Mapping[str, Tensor], cache: MDAMCache
    ) -> list[tuple[dict[str, Tensor], DecoderCache]]:
        """State and cache of each path."""
        pieces = {key: state[key].chunk(self.num_paths) for key in self._read(state)}
        states = [{key: piece[p] for key, piece in pieces.items()} for p in range(self.num_paths)]
        return list(zip(states, cache.paths, strict=True))

    def _read(self, state: Mapping[str, Tensor]) -> list[str]:
        """Keys of a state that a path reads; all, if it has no `replay_keys`."""
        keys = self.first.replay_keys
        read = state if keys is None else dict.fromkeys((*keys, "action_mask"))
        return [key for key in read if key in state and key != VISIBLE]

    # ---------------------------------------------------------------- embedding glimpse

    def start_memory(self, state: Mapping[str, Tensor], cache: MDAMCache) -> dict[str, Tensor]:
        """All nodes are visible at first `[P * B, S, N]`."""
        if not self.glimpses:
            return {}
        return {VISIBLE: torch.ones_like(state["action_mask"])}

    def update_memory(self, state: Mapping[str, Tensor], cache: MDAMCache) -> dict[str, Tensor]:
        """Every few steps, the nodes that are allowed become the visible ones.

        Nodes that were not allowed at first (depots) stay visible.
        """
        cache.steps += 1
        if not self.glimpses or self.eg_step_gap is None or cache.steps % self.eg_step_gap:
            return {}
        return {VISIBLE: state["action_mask"] | ~cache.at_first}

    def _after_glimpse(
        self, visible: Tensor, state: Mapping[str, Tensor], cache: MDAMCache
    ) -> Tensor:
        """Logits from embeddings over the visible nodes `[P * B, S, N]`, each solution's own."""
        solutions = visible.shape[1]
        if cache.seen is not visible or cache.glimpse is None:
            by_path = visible.unflatten(0, (self.num_paths, -1)).transpose(1, 2)  # [P, S, B, N]
            nodes = cache.hidden.glimpse(by_path.flatten(0, 2))  # [P * S * B, N, D]
            each = list(nodes.chunk(self.num_paths))  # P times [S * B, N, D]
            cache.glimpse = self._cache(cache.hidden, each, by_path.flatten(0, 2))
            cache.seen = visible
        # Every solution is a row of its own: [P * B, S, ...] -> [P * S * B, 1, ...]
        rows = {
            key: state[key].unflatten(0, (self.num_paths, -1)).transpose(1, 2).flatten(0, 2)
            for key in self._read(state)
        }
        rows = {key: value.unsqueeze(1) for key, value in rows.items()}
        logits = self(rows, cache.glimpse)  # [P * S * B, 1, N]
        by_path = logits.squeeze(1).unflatten(0, (self.num_paths, solutions, -1))
        return by_path.transpose(1, 2).flatten(0, 1)  # [P * B, S, N]


def _join(caches: list[DecoderCache]) -> DecoderCache | None:
    """One cache of all paths' keys and values; contexts and queries stay with the paths.

    None where a path has more weights to multiply with than are in its keys.
    """
    folded = [cache.folded_key for cache in caches if cache.folded_key is not None]
    if len(folded) < len(caches):
        return None
    return DecoderCache(
        context=None,
        graph_context=None,
        glimpse_key=torch.cat([cache.glimpse_key for cache in caches]),
        glimpse_value=torch.cat([cache.glimpse_value for cache in caches]),
        logit_key=torch.cat([cache.logit_key for cache in caches]),
        folded_key=torch.cat(folded),
    )
