"""Encoders of job shops: the state of an instance → embeddings of operations and machines."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.arguments import RecordsArguments
from rl4co.core.errors import UnknownNameError
from rl4co.models.nn.gcn import DisjunctiveGCN
from rl4co.models.nn.hgnn import HeterogeneousGNN
from rl4co.models.nn.masked_norm import (
    MaskedInstanceNorm,
    masked_max,
    masked_mean,
    normalize,
)
from rl4co.models.nn.matnet import MatNetLayers
from rl4co.models.policies.autoregressive import AutoregressiveEncoder
from rl4co.models.zoo.l2d.features import NUM_MACHINE, NUM_OPERATION, Shop


@dataclasses.dataclass
class ShopEmbeddings:
    """Output of an encoder.

    Attributes:
        operations: `[B, O, D]`; padding has any value.
        machines: `[B, M, D]`, or None if the encoder knows operations only.
        pooled: Summary of what is no padding: `[B, D]`, or `[B, 2 D]` with machines.
    """

    operations: Tensor
    machines: Tensor | None
    pooled: Tensor

    @classmethod
    def of(cls, hidden: ShopEmbeddings | Tensor | tuple[Tensor, ...], shop: Shop) -> ShopEmbeddings:
        """The output of an encoder as a record.

        Args:
            hidden: Embeddings; operations `[B, O, D]`; or these with machines `[B, M, D]`. Tensors
                are summarised without what went into their network.
            shop: The instances.
        """
        if isinstance(hidden, ShopEmbeddings):
            return hidden
        tensors = hidden if isinstance(hidden, tuple) else (hidden,)
        operations, machines = tensors[0], tensors[1] if len(tensors) > 1 else None
        pooled = [_pool(operations, operations, shop.real)]
        if machines is not None:
            pooled.append(_pool(machines, machines, shop.real_machines))
        return cls(operations, machines, torch.cat(pooled, -1))


class ShopEncoder(AutoregressiveEncoder):
    """Base class: features → linear maps → a network that subclasses have.

    Args:
        embed_dim: Embedding size D.
        scaling_factor: Unit of time; None: each instance's mean processing time.
        init_embedding: Replaces the linear map of features: state, shop → operations `[B, O, D]`
            and machines `[B, M, D]`.

    Shapes:
        state with batch `[B]` → embeddings, operations before the network
    """

    #: Whether the encoder embeds machines, too.
    has_machines = True

    def __init__(
        self,
        embed_dim: int,
        scaling_factor: float | None = None,
        init_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.scaling_factor = scaling_factor
        self.init_embedding = init_embedding or ShopInitEmbedding(embed_dim, self.has_machines)

    def forward(self, td: Mapping[str, Tensor]) -> tuple[ShopEmbeddings, Tensor]:
        """Embeddings of states with batch `[B]`, and operations before the network."""
        shop = Shop.of(td, self.scaling_factor)
        operations, machines = self.init_embedding(td, shop)
        embeddings = self.encode(shop, operations, machines)
        return embeddings, operations

    def encode(self, shop: Shop, operations: Tensor, machines: Tensor | None) -> ShopEmbeddings:
        """The network."""
        raise NotImplementedError


class ShopInitEmbedding(RecordsArguments, nn.Module):
    """Linear maps of the features of operations and machines.

    Args:
        embed_dim: Embedding size D.
        with_machines: Whether machines are embedded.
        normalize_features: Whether each feature is normalised over the operations (machines) of an
            instance first.
    """

    def __init__(
        self, embed_dim: int, with_machines: bool = True, normalize_features: bool = False
    ) -> None:
        super().__init__()
        self.normalize_features = normalize_features
        self.operations = nn.Linear(NUM_OPERATION, embed_dim)
        self.machines = nn.Linear(NUM_MACHINE, embed_dim) if with_machines else None

    def forward(self, state: Mapping[str, Tensor], shop: Shop) -> tuple[Tensor, Tensor | None]:
        """Operations `[B, O, D]` and machines `[B, M, D]`, zero where they are padding."""
        features = self._normalized(shop.operation_features(state), shop.real)
        operations = self.operations(features) * shop.real.unsqueeze(-1)
        if self.machines is None:
            return operations, None
        features = self._normalized(shop.machine_features(state), shop.real_machines)
        return operations, self.machines(features) * shop.real_machines.unsqueeze(-1)

    def _normalized(self, features: Tensor, real: Tensor) -> Tensor:
        """Features `[B, N, F]` as they are, or without mean and scale of their instance."""
        if not self.normalize_features:
            return features
        norm = MaskedInstanceNorm(features.shape[-1], affine=False)
        return normalize(norm, features, real)


class GCNEncoder(ShopEncoder):
    """Graph convolutions over the disjunctive graph (Zhang et al., 2020).

    Args:
        embed_dim: Embedding size D.
        num_layers: Layers.
        scaling_factor: See :class:`ShopEncoder`.
        init_embedding: See :class:`ShopEncoder`.
    """

    has_machines = False

    def __init__(
        self,
        embed_dim: int = 64,
        num_layers: int = 2,
        scaling_factor: float | None = None,
        init_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__(embed_dim, scaling_factor, init_embedding)
        self.network = DisjunctiveGCN(embed_dim, num_layers)

    def encode(self, shop: Shop, operations: Tensor, machines: Tensor | None) -> ShopEmbeddings:
        """Operations only."""
        hidden = self.network(operations, shop.times > 0, shop.follows)
        return ShopEmbeddings(hidden, None, _pool(operations, hidden, shop.real))


class HGNNEncoder(ShopEncoder):
    """Heterogeneous graph neural network (Song et al., 2022).

    Args:
        embed_dim: Embedding size D.
        num_layers: Layers.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the layers' networks.
        scaling_factor: See :class:`ShopEncoder`.
        init_embedding: See :class:`ShopEncoder`.
    """

    def __init__(
        self,
        embed_dim: int = 64,
        num_layers: int = 2,
        normalization: str | None = "instance",
        feedforward_hidden: int | None = None,
        scaling_factor: float | None = None,
        init_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__(embed_dim, scaling_factor, init_embedding)
        self.network = HeterogeneousGNN(embed_dim, num_layers, feedforward_hidden, normalization)

    def encode(self, shop: Shop, operations: Tensor, machines: Tensor | None) -> ShopEmbeddings:
        """Operations and machines."""
        assert machines is not None
        real = (shop.real, shop.real_machines)
        hidden = self.network(operations, machines, shop.times.mT, shop.edges, shop.follows, real)
        return _both_sides((operations, machines), hidden, shop)


class MatNetShopEncoder(ShopEncoder):
    """MatNet with operations as rows, machines as columns and processing times as entries.

    Args:
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        num_layers: Layers.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the feed-forward layers.
        self_attention: Whether operations also attend to operations and machines to machines;
            otherwise there is cross-attention alone, as in the original.
        bias: Whether the attention projections have biases.
        scaling_factor: See :class:`ShopEncoder`.
        init_embedding: See :class:`ShopEncoder`.
    """

    def __init__(
        self,
        embed_dim: int = 64,
        num_heads: int = 8,
        num_layers: int = 2,
        normalization: str | None = "instance",
        feedforward_hidden: int | None = None,
        self_attention: bool = True,
        bias: bool = False,
        scaling_factor: float | None = None,
        init_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__(embed_dim, scaling_factor, init_embedding)
        hidden = feedforward_hidden or 2 * embed_dim
        self.network = MatNetLayers(
            num_layers, embed_dim, num_heads, hidden, normalization, bias, self_attention
        )

    def encode(self, shop: Shop, operations: Tensor, machines: Tensor | None) -> ShopEmbeddings:
        """Operations and machines."""
        assert machines is not None
        hidden = self.network(
            operations, machines, shop.times.mT, shop.edges, shop.real, shop.real_machines
        )
        return _both_sides((operations, machines), hidden, shop)


class NoEncoder(AutoregressiveEncoder):
    """Gives nothing: the decoder encodes each state by itself."""

    def forward(self, td: Mapping[str, Tensor]) -> tuple[None, None]:  # type: ignore[override]
        """Nothing."""
        return None, None


#: Encoders by name, values of the policies' argument `encoder`.
ENCODERS = ("gcn", "hgnn", "matnet")


def make_encoder(
    name: str,
    embed_dim: int,
    num_layers: int,
    num_heads: int,
    normalization: str | None,
    feedforward_hidden: int | None,
    self_attention: bool,
    scaling_factor: float | None,
    init_embedding: nn.Module | None,
) -> ShopEncoder:
    """The encoder called `name`; settings that it does not have are left out."""
    common: dict[str, Any] = {
        "scaling_factor": scaling_factor,
        "init_embedding": init_embedding,
    }
    if name == "gcn":
        return GCNEncoder(embed_dim, num_layers, **common)
    if name == "hgnn":
        return HGNNEncoder(embed_dim, num_layers, normalization, feedforward_hidden, **common)
    if name == "matnet":
        return MatNetShopEncoder(
            embed_dim,
            num_heads,
            num_layers,
            normalization,
            feedforward_hidden,
            self_attention,
            **common,
        )
    raise UnknownNameError("encoder", name, ENCODERS)


def _both_sides(
    initial: tuple[Tensor, Tensor], hidden: tuple[Tensor, Tensor], shop: Shop
) -> ShopEmbeddings:
    pooled = [
        _pool(initial[0], hidden[0], shop.real),
        _pool(initial[1], hidden[1], shop.real_machines),
    ]
    return ShopEmbeddings(*hidden, torch.cat(pooled, -1))


def _pool(initial: Tensor, hidden: Tensor, real: Tensor) -> Tensor:
    """Summary of an instance: `[B, N, D], [B, N, D], [B, N]` → `[B, D]`.

    Instance normalisation makes the mean of what comes out of a network the same for all instances,
    so it averages the inputs and takes the maximum of the outputs.
    """
    return masked_mean(initial, real) + masked_max(hidden, real)
