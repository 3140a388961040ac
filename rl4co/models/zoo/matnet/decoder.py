"""Decoder of MatNet: the Attention Model's, with queries from rows and keys from columns."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping

from torch import Tensor

from rl4co.models.zoo.am import AttentionModelDecoder, DecoderCache


class MatNetDecoder(AttentionModelDecoder):
    """The pointer of the Attention Model; a step goes from a row to a column.

    Arguments: see :class:`AttentionModelDecoder`.
    """

    def prepare(  # type: ignore[override]
        self, hidden: tuple[Tensor, Tensor], state: Mapping[str, Tensor]
    ) -> DecoderCache:
        """Contexts from the rows, everything else from the columns, `[B, N, D]` each."""
        rows, columns = hidden
        cache = super().prepare(columns, state)
        return dataclasses.replace(cache, context=self._prepare_context(rows))
