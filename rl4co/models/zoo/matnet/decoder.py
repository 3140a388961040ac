"""Decoder of MatNet: the Attention Model's, with queries from rows and keys from columns."""

from __future__ import annotations

from rl4co.models.zoo.am import AttentionModelDecoder


class MatNetDecoder(AttentionModelDecoder):
    """The pointer of the Attention Model; a step goes from a row to a column.

    Arguments: see :class:`AttentionModelDecoder`.
    """
