"""Single embeddings of a problem by its name, for custom policies."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.errors import UnknownNameError, UnsupportedError
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings._base import EmbeddingConfig, EnvEmbeddings


def env_init_embedding(env_name: str, config: Mapping[str, Any]) -> nn.Module:
    """Instance → node embeddings of the environment called `env_name`.

    Args:
        env_name: Name of the environment.
        config: Fields of :class:`EmbeddingConfig`: `embed_dim`, `linear_bias`.
    """
    return _build(env_name, config).init


def env_context_embedding(env_name: str, config: Mapping[str, Any]) -> nn.Module:
    """State → query; arguments as for :func:`env_init_embedding`."""
    return _build(env_name, config).context


def env_dynamic_embedding(env_name: str, config: Mapping[str, Any]) -> nn.Module | None:
    """State → changes of keys and values, None for problems in which these never change.

    Arguments are those of :func:`env_init_embedding`.
    """
    return _build(env_name, config).dynamic


def env_edge_embedding(env_name: str, config: Mapping[str, Any]) -> nn.Module:
    """Instance → edge features of a sparse graph; arguments as for :func:`env_init_embedding`."""
    edge = _build(env_name, config).edge  # a class, built here
    if edge is None:
        raise UnsupportedError(
            f"expected an environment with an edge embedding, got {env_name!r}, which has none; "
            "set `edge` in its EnvEmbeddings record"
        )
    return edge(_config(config))


def _build(env_name: str, config: Mapping[str, Any]) -> EnvEmbeddings:
    return EMBEDDINGS[env_name](_config(config))


def _config(config: Mapping[str, Any]) -> EmbeddingConfig:
    settings = {field.name for field in dataclasses.fields(EmbeddingConfig)}
    for key in config:
        if key not in settings:
            raise UnknownNameError("embedding setting", key, settings)
    return EmbeddingConfig(**config)
