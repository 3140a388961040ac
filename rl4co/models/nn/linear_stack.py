"""A stack of linear layers, as the improvement methods have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.models.nn.heads import uniform_parameters_


class LinearStack(nn.Sequential):
    """Linear layers with ReLU between them, and dropout after the first ReLU.

    Weights and biases begin in U(-s, s) with $s = 1 / \\sqrt{last axis}$.

    Args:
        sizes: Sizes of input, hidden layers and output.
        dropout: Probability of dropout.

    Shapes:
        `[*B, sizes[0]]` → `[*B, sizes[-1]]`
    """

    #: Class of the first layer.
    first_layer: ClassVar[type[nn.Linear]] = nn.Linear

    def __init__(self, sizes: Sequence[int], dropout: float = 0.0) -> None:
        layers: list[nn.Module] = []
        for index in range(len(sizes) - 1):
            layer = nn.Linear if index else self.first_layer
            layers.append(layer(sizes[index], sizes[index + 1]))
            if index < len(sizes) - 2:
                layers.append(nn.ReLU(inplace=True))
            if index == 0 and dropout > 0:
                layers.append(nn.Dropout(dropout))
        super().__init__(*layers)
        uniform_parameters_(self)


class PairLinear(nn.Linear):
    """A linear layer over all pairs of rows, which falls apart in a part of each row.

    $$y_{jk} = W [a_j, b_k] + c = W_a a_j + W_b b_k + c$$

    Shapes:
        a `[*B, N, P]`, b `[*B, M, P]` → `[*B, N, M, out]`, with `in_features` 2P
    """

    def forward(self, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        """The layer, without a table of all pairs as input."""
        of_a, of_b = self.weight.chunk(2, 1)  # [out, P] each
        rows = F.linear(a, of_a, self.bias).unsqueeze(-2)  # [*B, N, 1, out]
        return rows + F.linear(b, of_b).unsqueeze(-3)


class PairStack(LinearStack):
    """A stack of linear layers over all pairs of rows.

    Shapes:
        a `[*B, N, P]`, b `[*B, M, P]` → `[*B, N, M, sizes[-1]]`, with `sizes[0]` 2P
    """

    first_layer = PairLinear

    def forward(self, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        """Applies the layers; the first reads both inputs."""
        first, *further = self
        x = first(a, b)
        for layer in further:
            x = layer(x)
        return x
