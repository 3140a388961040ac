"""A stack of linear layers, as the improvement methods have them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rl4co.models.nn.heads import uniform_parameters_


class LinearStack(nn.Sequential):
    """Linear layers with ReLU between them, and dropout behind the first ReLU.

    Weights and biases begin in U(-s, s) with $s = 1 / \\sqrt{last axis}$.

    Args:
        sizes: Sizes of input, hidden layers and output.
        dropout: Probability of dropout.

    Shapes:
        `[*B, sizes[0]]` → `[*B, sizes[-1]]`
    """

    def __init__(self, sizes: Sequence[int], dropout: float = 0.0) -> None:
        layers: list[nn.Module] = []
        for index in range(len(sizes) - 1):
            layers.append(nn.Linear(sizes[index], sizes[index + 1]))
            if index < len(sizes) - 2:
                layers.append(nn.ReLU(inplace=True))
            if index == 0 and dropout > 0:
                layers.append(nn.Dropout(dropout))
        super().__init__(*layers)
        uniform_parameters_(self)

    @property
    def linear_layers(self) -> list[nn.Linear]:
        """The layers that have weights."""
        return [layer for layer in self if isinstance(layer, nn.Linear)]
