"""Executable shape contracts in axis letters.

The glossary used throughout the library:

| letter | axis |
|---|---|
| B | batch of instances |
| A | augmentations of an instance |
| S | starts or samples of an instance |
| N | nodes (depot included, index 0) or actions |
| T | steps of a solution |
| D | embedding |
| H | attention heads |
| F | features |
"""

from __future__ import annotations

from torch import Tensor

from rl4co.core.errors import ConfigError


def check_shapes(**arguments: tuple[Tensor, str]) -> dict[str, int]:
    """Raises unless each tensor has the named axes; equal letters must agree across arguments.

    Args:
        arguments: name → (tensor, axes); axes are separated by spaces: a letter binds a size, a
            number fixes it, `*` in front allows any leading axes.

    Returns:
        The size bound to each letter.

    Example:
        >>> import torch
        >>> check_shapes(logits=(torch.zeros(4, 7), "B N"), actions=(torch.zeros(4), "B"))
        {'B': 4, 'N': 7}
    """
    sizes: dict[str, int] = {}
    for name, (tensor, axes) in arguments.items():
        letters = axes.split()
        open_front = bool(letters) and letters[0] == "*"
        letters = letters[1:] if open_front else letters
        shape = tuple(
            tensor.shape[len(tensor.shape) - len(letters) :] if open_front else tensor.shape
        )
        fits = len(shape) == len(letters) and all(
            size == (int(letter) if letter.isdigit() else sizes.setdefault(letter, size))
            for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            raise ConfigError(
                f"expected {name} of shape [{axes}] with {sizes}, got {list(tensor.shape)}"
            )
    return sizes
