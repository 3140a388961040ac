"""Rules on what an environment must not do: remember, draw, write, look, or mix up instances."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import pickle
import random
import traceback

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensordict import TensorDictBase
from torch.overrides import TorchFunctionMode

from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.contract.evidence import (
    Episode,
    Findings,
    Probe,
    configured,
    differing_keys,
    each_episode,
    first_difference,
    is_close,
    quoted,
    record_episode,
    replay_actions,
)

# ---------------------------------------------------------------- pure functions


def generator_is_reproducible(probe: Probe) -> Findings:
    """The same seed gives the same instances."""
    first, second = (probe.env.generator(4, rng=probe.rng("twice")) for _ in range(2))
    if keys := differing_keys(first, second):
        yield (
            f"the generator gives different {quoted(keys)} for the same seed; draw every number "
            "from the rng argument of _generate"
        )


@each_episode
def steps_are_reproducible(probe: Probe, episode: Episode) -> Findings:
    """The same instances and actions give the same result."""
    again = replay_actions(probe.env, episode.instances, episode.actions)
    if diff := first_difference(episode.states, again):
        yield (
            f"the same instances and actions give different {quoted(diff[1])} at step "
            f"{diff[0]}; hooks must not draw random numbers or remember anything on the object"
        )
    if episode.complete:
        once, twice = (probe.reward(episode.initial, episode.actions) for _ in range(2))
        # Not a number is the same as not a number; that it is none is for `reward_is_float` to say.
        if not torch.equal(once.nan_to_num(torch.inf), twice.nan_to_num(torch.inf)):
            yield "get_reward differs between two equal calls; _objective must be a function"


def object_is_unchanged(probe: Probe) -> Findings:
    """Episodes leave nothing on the object: what one leaves, another changes."""
    if not probe.env.steps_by_hooks:  # the adapter of another style remembers shapes
        return
    records = []
    for episode in probe.episodes[:2]:
        # Other instances, rows and numbers of steps, so that no two episodes are alike.
        replay_actions(probe.env, episode.instances.flip(0), episode.actions.flip(0))
        records.append(_attributes(probe.env))
        replay_actions(probe.env, episode.instances[:1], episode.actions[:1, :1])
        records.append(_attributes(probe.env))
    changed = {
        name
        for before, after in itertools.pairwise(records)
        for name in after
        if name in before and before[name] != after[name]
    }
    if changed:
        yield (
            f"an episode changes the attributes {quoted(sorted(changed))} of the environment, "
            "which other episodes and copies share; return the state of an episode from "
            "_init_state and _transition"
        )


def _attributes(env: RL4COEnvBase) -> dict[str, bytes | int]:
    """Attributes of an environment as comparable values, random streams aside."""
    values = {name: value for name, value in vars(env).items() if name not in ("rng", "generator")}
    return {name: _comparable(value) for name, value in values.items()}


def _comparable(value: Any) -> bytes | int:
    try:
        return pickle.dumps(value)
    except Exception:  # an open file, a lambda: then its identity has to do
        return id(value)


def global_state_is_untouched(probe: Probe) -> Findings:
    """Global random states are left alone."""
    episode, env = probe.episodes[0], probe.env
    seeded = configured(env, rng=probe.rng("seeded"))
    calls_by_name: dict[str, Callable[[], Any]] = {
        "constructing the environment": partial(_construct, env),
        "constructing the environment with a seed": partial(_construct, env, seed=1),
        "generating instances from a seed": partial(env.generator, 4, rng=probe.rng("global")),
        "resetting an environment with a seed": partial(seeded.reset, batch_size=4),
        "an episode on given instances": partial(
            replay_actions, env, episode.instances, episode.actions
        ),
    }
    for call, act in calls_by_name.items():
        if changed := random_states_changed_by(act):
            yield (
                f"{call} changes the global random state of {', '.join(changed)}; draw from the "
                "given torch.Generator, and seed nothing"
            )


def random_states_changed_by(act: Callable[[], Any]) -> list[str]:
    """Libraries whose global random state a call changes."""
    # Each stream moves on first: setting it back to where it was would go unnoticed.
    torch.rand(())
    np.random.rand()
    random.random()
    before = _global_random_state()
    act()
    after = _global_random_state()
    return [library for library in before if before[library] != after[library]]


def _global_random_state() -> dict[str, bytes]:
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": pickle.dumps(np.random.get_state()),
        "Python": pickle.dumps(random.getstate()),
    }


def _construct(env: RL4COEnvBase, **arguments: Any) -> None:
    """Builds another environment of the same class, where its constructor allows."""
    arguments = {**env._init_arguments, **arguments}
    try:
        inspect.signature(type(env).__init__).bind(env, **arguments)
    except TypeError:
        return
    type(env)(**arguments)


def inputs_are_unchanged(probe: Probe) -> Findings:
    """Inputs are not modified, neither in value nor in place."""
    episode, env = probe.episodes[0], probe.env
    calls: list[tuple[str, TensorDictBase, Callable[[TensorDictBase], Any]]] = [
        ("reset", episode.instances.clone(), env.reset)
    ]
    for state, action in zip(episode.states, episode.actions.unbind(-1), strict=False):
        ready = state.clone().set("action", action.clone())
        calls += [("step", ready, env.step), ("get_action_mask", ready, env.get_action_mask)]
    for solved in probe.solved[:1]:
        # The actions ride along in the TensorDict, so that they are watched too.
        final = solved.initial.clone().set("solution", solved.actions.clone())
        calls += [
            ("get_reward", final, lambda td: probe.reward(td, td["solution"])),
            ("check_solution_validity", final, lambda td: probe.violation(td, td["solution"])),
        ]
    blamed: set[str] = set()
    for name, td, call in calls:
        before = td.clone()
        versions = {key: value._version for key, value in td.items()}
        call(td)
        written = {k for k, value in td.items() if versions.get(k) != value._version}
        written.update(differing_keys(before, td))
        if written and name not in blamed:
            blamed.add(name)
            yield (
                f"{name} changes {quoted(sorted(written))} of the TensorDict it is given; build "
                "new tensors (scatter instead of scatter_, torch.where instead of assignment)"
            )


class _GeneratorReadError(Exception):
    """The generator was asked for something while given instances were being solved."""


class _NoGenerator:
    def __getattr__(self, name: str) -> Any:
        raise _GeneratorReadError(name)


def instances_are_complete(probe: Probe) -> Findings:
    """An instance is complete without its generator."""
    episode = probe.episodes[0]
    blind = dataclasses.replace(probe, env=configured(probe.env, generator=_NoGenerator()))
    try:
        states = replay_actions(blind.env, episode.instances, episode.actions)
        blind.env.step_bounds(dict(states[0].items()))
        if episode.complete:
            blind.reward(states[0], episode.actions)
            blind.violation(states[0], episode.actions)
    except _GeneratorReadError as error:
        yield (
            f"an episode on given instances reads {str(error)!r} from the generator; take it from "
            "the instance, which may come from a file or another generator"
        )


# ---------------------------------------------------------------- the device

#: Methods of tensors that fetch values from the device.
_LOOKS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__")


class _Watch(TorchFunctionMode):
    """Notes the first line of a hook that asks a tensor for its value."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes and calls."""
        name = getattr(func, "__name__", "")
        if name in _LOOKS and self.seen is None:
            frame = next(f for f in reversed(traceback.extract_stack()[:-1]) if not _is_torch(f))
            call = {"__bool__": "a tensor in a condition"}.get(name, f".{name.strip('_')}()")
            self.seen = f"{call} in {frame.name} ({Path(frame.filename).name}:{frame.lineno})"
        return func(*args, **(kwargs or {}))


def _is_torch(frame: traceback.FrameSummary) -> bool:
    return str(Path(torch.__file__).parent) in frame.filename


def looks_at_values(env: RL4COEnvBase, calls: Mapping[str, tuple[Any, ...]]) -> Findings:
    """Hooks that ask the device for a value.

    Args:
        env: The environment.
        calls: Name of a hook → arguments to call it with.
    """
    for hook, arguments in calls.items():
        with _Watch() as watch:
            getattr(env, hook)(*arguments)
        if watch.seen:
            yield (
                f"{hook} asks the device for a value: {watch.seen}; that stalls a GPU in every "
                "step: compute with tensors (torch.where, gather, any) instead"
            )


def hooks_do_not_look_at_values(probe: Probe) -> Findings:
    """No hook asks the device for a value."""
    env = probe.env
    if not env.steps_by_hooks or type(env).advance is not RL4COEnvBase.advance:
        return
    episode = probe.episodes[0]
    state = dict(episode.initial.items())
    calls: dict[str, tuple[Any, ...]] = {
        "_init_state": (dict(episode.instances.items()),),
        "_action_mask": (state,),
    }
    if episode.actions.shape[-1]:
        calls["_transition"] = (state, episode.actions[..., 0])
    if episode.complete and not env.scores_final_states:  # which needs to know whether it is one
        calls |= dict.fromkeys(("_objective", "_violations"), (state, episode.actions))
    yield from looks_at_values(env, calls)


# ---------------------------------------------------------------- batches


@each_episode
def place_does_not_matter(probe: Probe, episode: Episode) -> Findings:
    """An instance does not depend on its place in the batch."""
    mirrored = replay_actions(probe.env, episode.instances.flip(0), episode.actions.flip(0))
    if diff := first_difference(episode.states, [state.flip(0) for state in mirrored]):
        yield (
            f"{quoted(diff[1])} of an instance at step {diff[0]} changes with its place in the "
            "batch; hooks must treat every instance alone"
        )


@each_episode
def batch_mates_do_not_matter(probe: Probe, episode: Episode) -> Findings:
    """An instance does not depend on its batch mates, nor on there being any."""
    lengths = episode.lengths
    for b in sorted({0, lengths.index(min(lengths)), lengths.index(max(lengths))}):
        steps = lengths[b]
        actions = episode.actions[b : b + 1, :steps]
        alone = replay_actions(probe.env, episode.instances[b : b + 1], actions)
        together = [state[b : b + 1] for state in episode.states[: steps + 1]]
        if diff := first_difference(together, alone):
            yield (
                f"{quoted(diff[1])} of instance {b} at step {diff[0]} differs between a batch "
                "of one and a larger batch; hooks must treat every instance alone, and keep batch "
                "axes of size one (no bare squeeze)"
            )
        if not episode.complete:
            continue
        single = probe.reward(alone[0], actions)
        batched = probe.reward(episode.initial, episode.actions)[b : b + 1]
        if not is_close(single, batched):
            yield (
                f"the reward of instance {b} is {single.flatten().tolist()} alone, in {steps} "
                f"steps, and {batched.flatten().tolist()} in a batch of "
                f"{episode.actions.shape[-1]} steps; _objective must treat every "
                "instance alone and count padded steps as nothing"
            )


def any_batch_axes(probe: Probe) -> Findings:
    """Any number of batch axes works."""
    env, rng = probe.env, probe.rng("axes")
    flat = record_episode(env, env.generator(6, rng=rng).to(env.device), rng)
    reshapes: dict[tuple[int, ...], Callable[[Any], Any]] = {
        (2, 3): lambda x: x.reshape(2, 3, *x.shape[1:]),
        (): lambda x: x[0],
    }
    for shape, reshape in reshapes.items():
        label = f"batch size {list(shape)}"
        if (generated := env.reset(batch_size=shape).batch_size) != shape:
            yield (
                f"reset with {label} gives {list(generated)}; let _generate put the whole "
                "batch_size in front of every key"
            )
        actions = reshape(flat.actions)
        states = replay_actions(env, reshape(flat.instances), actions)
        if diff := first_difference([reshape(state) for state in flat.states], states):
            yield (
                f"{quoted(diff[1])} at step {diff[0]} is wrong for {label}; index axes from the "
                "end (-1, -2), never from the front"
            )
        elif flat.complete:
            expected = reshape(probe.reward(flat.initial, flat.actions))
            if not is_close(expected, probe.reward(states[0], actions)):
                yield f"get_reward is wrong for {label}; index axes from the end (-1, -2)"
            valid = probe.violation(flat.initial, flat.actions) is None
            if valid and probe.violation(states[0], actions):
                yield f"check_solution_validity is wrong for {label}; index axes from the end"
