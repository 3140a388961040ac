"""Which methods the contract tests try on which environments, from the registries."""

from __future__ import annotations

import functools

from collections.abc import Mapping
from typing import Any

import pytest

from rl4co.core.registry import ENVS, MODELS
from rl4co.models import TransductiveModel, n_step_PPO

#: Settings that make every method's default policy tiny.
TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
#: Arguments of small models where TINY does not fit.
#: The nodes of the last layer are not read, which leaves some of its weights unused.
_SMALL_GRAPHS = {"embed_dim": 8, "num_layers_graph_encoder": 5}
SMALL: dict[str, dict[str, Any]] = {
    "deepaco": {"policy_kwargs": {**_SMALL_GRAPHS, "n_ants": 4, "n_iterations": 2}},
    "glop": {"policy_kwargs": {**_SMALL_GRAPHS, "n_samples": 4}},
    "gfacs": {"policy_kwargs": {**_SMALL_GRAPHS, "n_ants": 4, "n_iterations": 2}},
    # Rows begin as zeros, so the first layer leaves some weights unused.
    "matnet": {"policy_kwargs": {**TINY, "num_encoder_layers": 3}},
    "polynet": {
        "k": 5,
        "val_num_solutions": 6,
        "policy_kwargs": {**TINY, "poly_layer_dim": 8},
    },
    "ptrnet": {"policy_kwargs": {"embed_dim": 16, "hidden_dim": 12}},
}
#: The method that is tested in all environments; the others are tested in one or two of them, and
#: train in all.
THOROUGH = "am"
REPRESENTATIVE = ("tsp", "cvrp")
#: A method with a policy for each of its environments.
TWO_POLICIES = {"matnet": ("atsp", "ffsp")}
#: Methods whose default policy is that of THOROUGH.
SAME_POLICY = ("amppo", "mtpomo", "pomo")


def tiny_arguments(model: str, **policy_kwargs: Any) -> dict[str, Any]:
    """Arguments of a small model."""
    arguments = SMALL.get(model, {"policy_kwargs": TINY})
    return {**arguments, "policy_kwargs": {**arguments["policy_kwargs"], **policy_kwargs}}


@functools.cache
def supported(model: str) -> tuple[str, ...]:
    """Environments of a constructive method; none for other methods.

    These are searches with a trained policy, and improvement methods.
    """
    cls = MODELS[model]
    if issubclass(cls, TransductiveModel | n_step_PPO):
        return ()
    return tuple(env for env in ENVS.names() if cls.supports(env))


def every_pair() -> list[object]:
    """All pairs of a method and an environment that it supports."""
    return [_param(model, env) for model in MODELS.names() for env in supported(model)]


def thorough_pairs() -> list[object]:
    """THOROUGH in all environments, each other policy in the representative ones."""
    return [
        _param(model, env)
        for model in MODELS.names()
        if model not in SAME_POLICY
        for env in _thorough_envs(model)
    ]


def policy_pairs(several: Mapping[str, tuple[str, ...]] = TWO_POLICIES) -> list[object]:
    """THOROUGH in all environments, each other policy in one, or in those of `several`."""
    others = [
        _param(model, env)
        for model in MODELS.names()
        if model not in (THOROUGH, *SAME_POLICY)
        for env in several.get(model, _thorough_envs(model)[:1])
    ]
    return [*(_param(THOROUGH, env) for env in supported(THOROUGH)), *others]


def loss_pairs() -> list[object]:
    """Each method in one environment; THOROUGH in the representative ones."""
    return [
        _param(model, env)
        for model in MODELS.names()
        for env in (REPRESENTATIVE if model == THOROUGH else _thorough_envs(model)[:1])
    ]


def _thorough_envs(model: str) -> tuple[str, ...]:
    envs = supported(model)
    if model == THOROUGH:
        return envs
    return tuple(env for env in REPRESENTATIVE if env in envs) or envs[:1]


def improvement_models() -> list[str]:
    """Methods that improve complete solutions."""
    return [model for model in MODELS.names() if issubclass(MODELS[model], n_step_PPO)]


def _param(model: str, env: str) -> object:
    return pytest.param((model, env), id=f"{model}-{env}")
