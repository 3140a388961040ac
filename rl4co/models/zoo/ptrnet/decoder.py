"""Decoder of the Pointer Network: an LSTM reads the chosen nodes, a glimpse, then a pointer.

In a rollout the LSTM makes one step per action, and its state travels in the states of the decode
loop. In training all chosen nodes are known, so it reads them in one go.
"""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import gather_points
from rl4co.models.nn.additive_attention import AdditiveAttention, AdditiveKeys
from rl4co.models.policies.autoregressive import AutoregressiveDecoder
from rl4co.models.zoo.ptrnet.encoder import Encoded

#: Keys of the memory: state of the LSTM.
HIDDEN, CELL = "ptrnet_hidden", "ptrnet_cell"
#: Key of what a rollout leaves for the replay: scores of all glimpses and of the pointer.


@dataclasses.dataclass
class PointerCache:
    """What is computed once per instance.

    Attributes:
        inputs: Embedded nodes `[B, N, D]`.
        glimpse_keys: Projected references `[B, N, H]`, keys and values of the glimpses.
        pointer_keys: Projected references `[B, N, H]`, keys of the pointer.
        hidden: Hidden state of the LSTM before the first action `[B, H]`.
        cell: Its cell state `[B, H]`.
    """

    inputs: Tensor
    glimpse_keys: AdditiveKeys
    pointer_keys: AdditiveKeys
    hidden: Tensor
    cell: Tensor


class PointerNetworkDecoder(AutoregressiveDecoder):
    """Recurrent pointer decoder.

    $$h_t, c_t = \\mathrm{LSTM}(x_{a_{t-1}}, h_{t-1}, c_{t-1}), \\qquad
      g_t = \\textstyle\\sum_n \\mathrm{softmax}(u^g(h_t) + M_t)_n \\, e^g_n, \\qquad
      z_t = u^p(g_t)$$

    with additive scores $u_n(q) = v^\\top \\tanh(W_q q + e_n)$, $e_n = W_r r_n$ of the encoder's
    references r. Before the first action the LSTM reads a learned input.

    Args:
        embed_dim: Size D of the embedded nodes.
        hidden_dim: Size H of the LSTM.
        num_glimpses: Glimpses before pointing; each is the query of the next.
        mask_inner: Whether glimpses look at allowed nodes only.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, N]`
    """

    def __init__(
        self,
        embed_dim: int = 128,
        hidden_dim: int = 128,
        num_glimpses: int = 1,
        mask_inner: bool = True,
    ) -> None:
        super().__init__()
        check_at_least(0, num_glimpses=num_glimpses)
        self.num_glimpses, self.mask_inner = num_glimpses, mask_inner
        self.lstm = nn.LSTM(embed_dim, hidden_dim, batch_first=True)
        self.glimpse = AdditiveAttention(hidden_dim) if num_glimpses else None
        self.pointer = AdditiveAttention(hidden_dim)
        bound = 1.0 / math.sqrt(embed_dim)
        self.first_input = nn.Parameter(torch.empty(embed_dim).uniform_(-bound, bound))

    @property
    def replay_keys(self) -> tuple[str, ...]:
        """None but the mask: all else is memory."""
        return ()

    def prepare(self, hidden: Encoded, state: Mapping[str, Tensor]) -> PointerCache:
        """Projects the references and lets the LSTM read its first input."""
        references = hidden.references
        num_nodes, num_actions = references.shape[1], state["action_mask"].shape[-1]
        if num_nodes != num_actions:
            raise UnsupportedError(
                f"expected as many actions as embedded nodes to point at, got {num_actions} "
                f"actions and {num_nodes} nodes; the Pointer Network is for problems whose actions "
                "are nodes"
            )
        first = self.first_input.expand(len(references), -1)  # [B, D]
        h, c = self._lstm_step(first, hidden.hidden, hidden.cell)
        pointer_keys = self.pointer.project(references)
        glimpse_keys = pointer_keys if self.glimpse is None else self.glimpse.project(references)
        return PointerCache(hidden.inputs, glimpse_keys, pointer_keys, h, c)

    def forward(self, state: Mapping[str, Tensor], cache: PointerCache) -> Tensor:
        """Logits `[B, Q, N]`, neither clipped nor masked."""
        query, mask = state[HIDDEN], state["action_mask"]
        for _ in range(self.num_glimpses):
            assert self.glimpse is not None  # as there are glimpses
            scores = self.glimpse(query, cache.glimpse_keys)  # [B, Q, N]
            visible = torch.where(mask, scores, -torch.inf) if self.mask_inner else scores
            query = torch.bmm(visible.softmax(-1), cache.glimpse_keys.keys)  # [B, Q, H]
        return self.pointer(query, cache.pointer_keys)

    # ---------------------------------------------------------------- memory

    def start_memory(self, state: Mapping[str, Tensor], cache: PointerCache) -> dict[str, Tensor]:
        """State of the LSTM before the first action, the same for all solutions."""
        if "action" in state and bool(state["i"].any()):
            raise UnsupportedError(
                "expected a state right after reset for the Pointer Network, got one with steps "
                "behind it; it remembers the nodes it has read, and a state does not tell them all"
            )
        shape = state["action_mask"].shape[:2]
        return {
            HIDDEN: cache.hidden.unsqueeze(1).expand(*shape, -1),  # [B, S, H]
            CELL: cache.cell.unsqueeze(1).expand(*shape, -1),
        }

    def update_memory(self, state: Mapping[str, Tensor], cache: PointerCache) -> dict[str, Tensor]:
        """State of the LSTM after reading the last action's node."""
        inputs = gather_points(cache.inputs, state["action"])  # [B, S, D]
        rows = (value.flatten(0, 1) for value in (inputs, state[HIDDEN], state[CELL]))
        hidden, cell = self._lstm_step(*rows)  # [B * S, H]
        shape = state[HIDDEN].shape
        return {HIDDEN: hidden.view(shape), CELL: cell.view(shape)}

    def recall(
        self, state: Mapping[str, Tensor], actions: Tensor, cache: PointerCache
    ) -> dict[str, Tensor]:
        """Hidden states `[B, S, T, H]` of the LSTM before each action, in one go."""
        batch, num_starts, num_steps = actions.shape
        first = state[HIDDEN].unsqueeze(2)  # [B, S, 1, H]
        if num_steps == 1:
            return {HIDDEN: first}
        read = actions[..., :-1].flatten(1)  # [B, S * (T - 1)]
        inputs = gather_points(cache.inputs, read)  # [B, S * (T - 1), D]
        sequences = inputs.view(batch * num_starts, num_steps - 1, -1)  # [B * S, T - 1, D]
        states = tuple(state[key].flatten(0, 1).unsqueeze(0) for key in (HIDDEN, CELL))
        hidden, _ = self.lstm(sequences, states)  # [B * S, T - 1, H]
        later = hidden.view(batch, num_starts, num_steps - 1, -1)
        return {HIDDEN: torch.cat([first, later], 2)}

    def _lstm_step(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step on rows: `[R, D], [R, H], [R, H]` → `[R, H], [R, H]`."""
        weights = (getattr(self.lstm, name) for name in _LSTM_WEIGHTS)
        return torch.lstm_cell(x, (hidden, cell), *weights)


_LSTM_WEIGHTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
