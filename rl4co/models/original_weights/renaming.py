"""Weights of the original code of improvement methods: reading files and renaming keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from torch import Tensor

from rl4co.core.errors import FileFormatError
from rl4co.models.original_weights.files import Weights, heads_in, heads_out, read_weights
from rl4co.models.policies.improvement import ImprovementPolicy

P = TypeVar("P", bound=ImprovementPolicy)
#: Our key → original key and what to do with the value.
Renaming = Mapping[str, tuple[str, Callable[[Tensor], Tensor]]]

_ACTOR, _CRITIC = "actor.", "critic."


def load_policy(
    policy_cls: Callable[..., P],
    method: str,
    source: str | Path | Mapping[str, Any],
    actor_layers: Callable[[int], Renaming],
    decoder: str,
    critic_names: tuple[str, str],
    critic_bias: bool = True,
    query: str = "encoder.0.MHA_sublayer.MHA.W_query",
    feedforward: str = "encoder.0.FFandNorm_sublayer.FF.0.weight",
    critic_kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> P:
    """A policy with original weights, in evaluation mode.

    Args:
        policy_cls: Class of the policy.
        method: Name of the method, for messages.
        source: See :func:`read_original`.
        actor_layers: Number of encoder layers → names of the actor's weights.
        decoder: A weight of the decoder that other methods do not have.
        critic_names: Original names of the critic's encoder layer, and of the MLP after it.
        critic_bias: Whether the projections of the critic's head have biases.
        query: Queries of the first encoder layer.
        feedforward: First linear layer of its feed-forward layers.
        critic_kwargs: Further settings of the critic, if the weights have one.
        settings: Further arguments of the policy.
    """
    actor, critic = read_original(source, method)
    require(actor, decoder, method)
    queries, hidden = (require(actor, key, method) for key in (query, feedforward))
    parts = {"": (actor, actor_layers(count_layers(actor)))}
    if critic is not None:
        sizes = critic_sizes(critic, *critic_names, method)
        settings["critic_kwargs"] = {**sizes, **(critic_kwargs or {})}
        parts["critic."] = (critic, critic_layers(*critic_names, critic_bias, dropout=True))
    policy = policy_cls(
        critic=critic is not None,
        embed_dim=queries.shape[1],
        num_heads=queries.shape[0],
        num_encoder_layers=count_layers(actor),
        feedforward_hidden=hidden.shape[0],
        **settings,
    )
    return fill_policy(policy, method, parts)


def read_original(
    source: str | Path | Mapping[str, Any], method: str
) -> tuple[Weights, Weights | None]:
    """Weights of the actor, and of the critic if there are any, by their original keys.

    Args:
        source: An `.npz` file or a state dict with keys `actor....` and, perhaps, `critic....`; or
            a checkpoint of the original code, which has one state dict under each of these names.
        method: Name of the method, for messages.
    """
    content = source if isinstance(source, Mapping) else read_weights(source, method)
    weights = {key: _as_weight(key, value, method) for key, value in _flatten(content).items()}
    actor = _strip(weights, _ACTOR)
    if not actor:
        raise FileFormatError(
            f"expected original weights of {method} with keys 'actor....', got "
            f"{sorted(weights)[:3]}; prefix the actor's state dict with 'actor.'"
        )
    return actor, _strip(weights, _CRITIC) or None


def fill_policy(policy: P, method: str, parts: Mapping[str, tuple[Weights, Renaming]]) -> P:
    """Puts original weights into a policy, all of them, and returns it in evaluation mode.

    Args:
        policy: Built with the sizes of the weights.
        method: Name of the method, for messages.
        parts: Name of a part of the policy (empty: all of it) → original weights and their names.
    """
    converted: Weights = {}
    for part, (weights, renaming) in parts.items():
        missing = sorted({theirs for theirs, _ in renaming.values()} - set(weights))
        unknown = sorted(set(weights) - {theirs for theirs, _ in renaming.values()})
        if missing or unknown:
            raise FileFormatError(
                f"expected original weights of {method}, got others (missing: "
                f"{missing[:3] or 'none'}, unknown: {unknown[:3] or 'none'}); is this a file of "
                "another method?"
            )
        joined: dict[str, list[Tensor]] = {}
        for ours, (theirs, change) in renaming.items():
            # Keys with a `#` are pieces of one weight, in their order.
            joined.setdefault(part + ours.partition("#")[0], []).append(change(weights[theirs]))
        converted |= {key: torch.cat(pieces) for key, pieces in joined.items()}
    try:
        policy.load_state_dict(converted)
    except RuntimeError as error:
        raise FileFormatError(
            f"expected original weights of {method} of matching sizes, got others: {error}"
        ) from error
    return policy.eval()


def require(weights: Weights, key: str, method: str) -> Tensor:
    """A weight whose shape tells the size of a network."""
    if key not in weights:
        raise FileFormatError(
            f"expected original weights of {method} with the key {key!r}, got "
            f"{sorted(weights)[:3]}; is this a file of another method?"
        )
    weight = weights[key]
    dims = 3 if ".W_" in key else 2  # of heads, or of a linear layer
    if weight.dim() != dims:
        raise FileFormatError(
            f"expected {key!r} of original {method} weights with {dims} axes, got shape "
            f"{list(weight.shape)}"
        )
    return weight


def count_layers(weights: Weights) -> int:
    """Encoder layers of an actor."""
    return len({key.split(".")[1] for key in weights if key.startswith("encoder.")})


def same(value: Tensor) -> Tensor:
    """As it is."""
    return value


def linear(ours: str, theirs: str, bias: bool = True) -> Renaming:
    """A linear layer."""
    return {
        f"{ours}.{name}": (f"{theirs}.{name}", same)
        for name in (("weight", "bias") if bias else ("weight",))
    }


def three_layers(ours: str, theirs: str, dropout: bool) -> Renaming:
    """An MLP of three layers, whose dropout counts as a layer of ours."""
    places = (0, 3, 5) if dropout else (0, 2, 4)
    renaming: dict[str, Any] = {}
    for place, name in zip(places, ("fc1", "fc2", "fc3"), strict=True):
        renaming |= linear(f"{ours}.{place}", f"{theirs}.{name}")
    return renaming


def synthesis_layers(count: int) -> Renaming:
    """The encoder layers of N2S and NeuOpt, and the scores of positions."""
    renaming: dict[str, Any] = {}
    for index in range(count):
        ours, theirs = f"encoder.layers.{index}", f"encoder.{index}"
        attention = f"{theirs}.MHA_sublayer.MHA"
        for name, key in (("query", "W_query"), ("key", "W_key"), ("value", "W_val")):
            renaming[f"{ours}.attention.{name}.weight"] = (f"{attention}.{key}", heads_in)
        renaming[f"{ours}.attention.out.weight"] = (f"{attention}.W_out", heads_out)
        renaming |= linear(f"{ours}.attention.mix_in", f"{attention}.score_aggr.0")
        renaming |= linear(f"{ours}.attention.mix_out", f"{attention}.score_aggr.2")
        for layer in (0, 2):
            renaming |= linear(
                f"{ours}.feedforward.{layer}", f"{theirs}.FFandNorm_sublayer.FF.{layer}", bias=False
            )
    for name, key in (("query", "W_query"), ("key", "W_key")):
        renaming[f"encoder.position_scores.{name}.weight"] = (f"pos_encoder.{key}", heads_in)
    return renaming


def critic_layers(encoder: str, head: str, bias: bool, dropout: bool) -> Renaming:
    """The critic: its encoder layer and its head.

    Args:
        encoder: Original prefix of the encoder layer.
        head: Original name of the head's MLP.
        bias: Whether the head's projections have biases.
        dropout: Whether our MLP has dropout.
    """
    renaming: dict[str, Any] = {
        f"{name}.weight": (f"{encoder}.0.module.{key}", change)
        for name, key, change in (
            ("query", "W_query", heads_in),
            ("key", "W_key", heads_in),
            ("value", "W_val", heads_in),
            ("out", "W_out", heads_out),
        )
    }
    for layer in (0, 2):
        renaming |= linear(f"feedforward.{layer}", f"{encoder}.2.module.{layer}")
    renaming |= linear("project_node", "value_head.project_node", bias)
    renaming |= linear("project_graph", "value_head.project_graph", bias)
    return renaming | dict(three_layers("network", f"value_head.{head}", dropout))


def critic_sizes(critic: Weights, encoder: str, head: str, method: str) -> dict[str, Any]:
    """Arguments of a :class:`~rl4co.models.nn.value.SolutionCritic` with the sizes of the weights.

    Args:
        critic: Original weights.
        encoder: Original prefix of the encoder layer.
        head: Original name of the head's MLP.
        method: Name of the method, for messages.
    """
    names = {
        "query": f"{encoder}.0.module.W_query",
        "feedforward": f"{encoder}.2.module.0.weight",
        "pooled": "value_head.project_node.weight",
        "first": f"value_head.{head}.fc1.weight",
        "second": f"value_head.{head}.fc2.weight",
    }
    shapes = {name: require(critic, key, method).shape for name, key in names.items()}
    return {
        "num_heads": shapes["query"][0],
        "head_dim": shapes["query"][-1],
        "feedforward_hidden": shapes["feedforward"][0],
        "pooled_dim": shapes["pooled"][0],
        "hidden": [shapes["first"][0], shapes["second"][0]],
    }


def _as_weight(key: str, value: Any, method: str) -> Tensor:
    is_float = (
        value.is_floating_point() if isinstance(value, Tensor)
        else isinstance(value, np.ndarray) and value.dtype.kind == "f"
    )  # fmt: skip
    if not is_float or not bool(torch.as_tensor(value).isfinite().all()):
        raise FileFormatError(
            f"expected tensors or arrays of finite floats as original {method} weights, got others "
            f"for {key!r}: {str(value)[:60]}"
        )
    return torch.as_tensor(value)


def _flatten(content: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of actor and critic in one mapping, whatever else a checkpoint holds."""
    if not isinstance(content.get("actor"), Mapping):
        return dict(content)
    return {
        f"{part}.{key}": value
        for part in ("actor", "critic")
        for key, value in (content.get(part) or {}).items()
    }


def _strip(weights: Weights, prefix: str) -> Weights:
    return {
        # Networks that trained on several devices have a `module.` in front.
        key.removeprefix(prefix).removeprefix("module."): value
        for key, value in weights.items()
        if key.startswith(prefix)
    }
