"""`check_env`: tells the author of an environment, in words, what is wrong with it."""

from __future__ import annotations

import random

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rl4co.core.errors import ConfigError, EnvCheckError
from rl4co.core.rng import derive_generator, forked_rng
from rl4co.envs.arguments import check_is_environment
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.contract import CONSEQUENCES, RULES
from rl4co.envs.contract.evidence import Check, Probe, describe
from rl4co.envs.contract.improvement import IMPROVEMENT_RULES, ImprovementProbe
from rl4co.envs.contract.limits import OutOfTimeError, time_limit
from rl4co.envs.improvement import is_improvement

__all__ = ["EnvCheckError", "check_env", "find_faults", "rules_for"]


def check_env(
    env: RL4COEnvBase,
    batch_size: int = 8,
    num_rollouts: int = 3,
    seed: int = 0,
    max_seconds: float = 60.0,
) -> None:
    """Raises :class:`EnvCheckError` with all that is wrong with an environment, if anything is.

    Random rollouts are recorded on a private copy of the environment and held against every rule
    of its kind, which :func:`rules_for` lists: :data:`rl4co.envs.contract.RULES` for those that
    construct solutions, :data:`rl4co.envs.contract.improvement.IMPROVEMENT_RULES` for those that
    improve complete ones. Neither the environment nor any global random state is different
    afterwards.

    Args:
        env: The environment, with a generator of small instances (10 nodes, say).
        batch_size: Instances in each random rollout, at least 2.
        num_rollouts: Number of random rollouts.
        seed: Seed of instances and random actions.
        max_seconds: Time for each rule, and for the rollouts. An environment with a loop that does
            not end, for an action that its mask forbids say, is told so, and checked no further.

    Example:
        >>> from rl4co.envs import TSPEnv
        >>> check_env(TSPEnv(generator_params={"num_loc": 5}))
    """
    findings = find_faults(env, batch_size, num_rollouts, seed, max_seconds)
    if findings:
        sentences = [text for texts in findings.values() for text in texts]
        raise EnvCheckError(type(env).__name__, list(dict.fromkeys(sentences)))


def find_faults(
    env: RL4COEnvBase,
    batch_size: int = 8,
    num_rollouts: int = 3,
    seed: int = 0,
    max_seconds: float = 60.0,
) -> dict[str, list[str]]:
    """The findings of :func:`check_env` by broken rule, empty if there are none.

    Args:
        env: See :func:`check_env`.
        batch_size: See :func:`check_env`.
        num_rollouts: See :func:`check_env`.
        seed: See :func:`check_env`.
        max_seconds: See :func:`check_env`.
    """
    check_is_environment(env)
    if batch_size < 2 or num_rollouts < 1:
        raise ConfigError(
            f"expected batch_size >= 2 and num_rollouts >= 1, got {batch_size} and {num_rollouts}; "
            "a single instance cannot show whether instances of a batch disturb each other"
        )
    with _preserved_random_state(seed):
        kind: Any = ImprovementProbe if is_improvement(env) else Probe
        try:
            with time_limit(max_seconds):
                probe = kind.of(env, batch_size, num_rollouts, seed)
        except OutOfTimeError as error:
            return {"random rollouts work": [_without_answer("a random rollout", error)]}
        except Exception as error:
            cause = _shape_of_done(env, batch_size) or describe(error)
            finding = f"a random rollout fails with {cause}; nothing else was checked"
            return {"random rollouts work": [finding]}
        findings = {}
        for rule, check in _rules(env):
            try:
                with time_limit(max_seconds):
                    findings[rule] = list(_apply(rule, check, probe))
            except OutOfTimeError as error:
                findings[rule] = [_without_answer(f"whether {rule}", error)]
                break
    broken = {rule: texts for rule, texts in findings.items() if texts}
    follows = {other for rule in broken for other in CONSEQUENCES.get(rule, ())}
    return {rule: texts for rule, texts in broken.items() if rule not in follows}


def rules_for(env: RL4COEnvBase) -> list[str]:
    """What :func:`check_env` checks of an environment of this kind."""
    return [rule for rule, _ in _rules(env)]


def _rules(env: RL4COEnvBase) -> tuple[tuple[str, Check], ...]:
    return IMPROVEMENT_RULES if is_improvement(env) else RULES


def _apply(rule: str, check: Check, probe: Any) -> Iterator[str]:
    """What a check finds; that it cannot even be made is a finding too."""
    try:
        yield from check(probe)
    except Exception as error:
        yield f"expected that {rule}, got {describe(error)}"


def _without_answer(question: str, error: OutOfTimeError) -> str:
    """What to say of code that had to be interrupted."""
    return (
        f"expected an answer to {question} in time, got none: {describe(error)}; end every loop "
        "for any action, also for one that the mask forbids, or give check_env more max_seconds; "
        "nothing after this was checked"
    )


@contextmanager
def _preserved_random_state(seed: int) -> Iterator[None]:
    """Leaves all global random states as they are, also if the environment seeds them."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        with forked_rng(derive_generator(seed, "check_env")):
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)


def _shape_of_done(env: RL4COEnvBase, batch_size: int) -> str | None:
    """Whether `done` has a wrong shape, which shows as another error elsewhere."""
    try:
        state = env.reset(batch_size=batch_size)
        action = state["action_mask"].int().argmax(-1)
        done = env._transition(dict(state.items()), action)["done"]
    except Exception:
        return None
    if list(done.shape) == [batch_size, 1]:
        return None
    return (
        f"done of shape {list(done.shape)} from _transition, expected {[batch_size, 1]}; add the "
        "last axis by .unsqueeze(-1)"
    )
