"""Untrusted text: control sequences are shown on the terminal, not executed."""

from __future__ import annotations

import re

#: Characters that move the cursor, change colours or the direction of writing. A carriage return
#: would have the rest of a line written over its beginning; tabs and ends of lines stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with a question mark in place of each control character.

    Example:
        >>> printable("\\x1b[31mred")
        '?[31mred'
    """
    return _CONTROL.sub("?", text)
