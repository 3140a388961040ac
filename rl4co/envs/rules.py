"""The contract of environments: one small function per rule, collected in the table `RULES`.

Each function looks for counterexamples in recorded random episodes and yields a sentence for each,
with a remedy. :func:`rl4co.envs.checks.check_env` runs them all.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import pickle
import random

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import check_env_specs, step_mdp

from rl4co.core.errors import UnsupportedError, format_indices
from rl4co.core.ops import flatten_starts
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.episodes import (
    Episode,
    Probe,
    configured,
    describe,
    differing_keys,
    first_difference,
    is_close,
    is_stuck,
    random_action,
    record_episode,
    replay_actions,
    take_action,
)

Findings: TypeAlias = Iterator[str]


Check: TypeAlias = Callable[[Probe], Findings]
EpisodeCheck: TypeAlias = Callable[[Probe, Episode], Findings]


def each_episode(check: EpisodeCheck) -> Check:
    """A rule on single episodes, applied to all; one counterexample is enough."""

    def run(probe: Probe) -> Findings:
        findings = (next(check(probe, episode), None) for episode in probe.episodes)
        yield from [text for text in findings if text is not None][:1]

    return run


def each_solution(check: EpisodeCheck) -> Check:
    """A rule on complete solutions, applied to all; one counterexample is enough."""

    def run(probe: Probe) -> Findings:
        return each_episode(check)(dataclasses.replace(probe, episodes=probe.solved))

    return run


def _where(flags: Tensor) -> str:
    """The flagged instances: `[*B]` or `[*B, 1]` → text."""
    return f"instances {format_indices(flags.flatten().nonzero().flatten().tolist())}"


def _quoted(keys: Iterable[str]) -> str:
    return ", ".join(repr(key) for key in keys) or "nothing"


# ---------------------------------------------------------------- rules: episodes


@each_episode
def _ends(probe: Probe, episode: Episode) -> Findings:
    last, steps = episode.states[-1], len(episode.states) - 1
    fewest, most = episode.bounds
    stuck = is_stuck(last)
    if stuck.any():
        yield (
            f"the mask allows no action in {_where(stuck)} at step {steps} although they are not "
            "done; let _action_mask leave a way on until done, or set done earlier"
        )
    if not episode.complete:
        yield (
            f"{_where(~last['done'])} are not done after {steps} steps, the upper bound of "
            f"step_bounds being {most}; let _transition set done, or raise the bound"
        )
    if min(episode.lengths) < fewest:
        yield (
            f"an instance is done after {min(episode.lengths)} steps, fewer than {fewest}, the "
            "lower bound of step_bounds; lower the bound"
        )


@each_episode
def _done_is_final(probe: Probe, episode: Episode) -> Findings:
    for step in range(1, len(episode.states)):
        undone = episode.states[step - 1]["done"] & ~episode.states[step]["done"]
        if undone.any():
            yield (
                f"done turns from True to False in {_where(undone)} at step {step}; a finished "
                "instance must stay done whatever action it gets"
            )


@each_solution
def _padding_is_free(probe: Probe, episode: Episode) -> Findings:
    if episode.bounds[0] == episode.bounds[1]:
        return  # all instances end together, so none is ever stepped on
    rng, state, padded = probe.rng("padding"), episode.states[-1], episode.actions
    for _ in range(2):
        idle = ~state["action_mask"].bool().any(-1)
        if idle.any():
            yield (
                f"the mask allows nothing in finished {_where(idle)}; allow an action that changes "
                "nothing (the depot, say), since batch mates may need more steps"
            )
        action = random_action(state["action_mask"], rng)
        state = take_action(probe.env, state, action)
        padded = torch.cat([padded, action.unsqueeze(-1)], -1)
    if not state["done"].all():
        yield (
            f"{_where(~state['done'])} are done, then not done two allowed actions later; allow "
            "only actions that change nothing once an instance is done"
        )
    plain = probe.reward(episode.initial, episode.actions)
    if not is_close(plain, probe.reward(episode.initial, padded)):
        yield (
            "steps after the end change the reward of a solution; allow only actions that cost "
            "nothing once an instance is done, and let _objective count them as nothing"
        )


@each_episode
def _mask_agrees(probe: Probe, episode: Episode) -> Findings:
    for step, state in enumerate(episode.states):
        if not torch.equal(probe.env.get_action_mask(state), state["action_mask"]):
            yield (
                f"get_action_mask differs from the action_mask in the state at step {step}; "
                "compute the mask in _action_mask alone, from keys that _transition returns"
            )


# ---------------------------------------------------------------- rules: data


@each_episode
def _keys_keep_their_type(probe: Probe, episode: Episode) -> Findings:
    batch = episode.instances.batch_size
    specs = {key: spec for key, spec in probe.env.observation_spec.items() if key != "solution"}
    expected = {
        **{key: ((*batch, *spec.shape), spec.dtype) for key, spec in specs.items()},
        "done": ((*batch, 1), torch.bool),
        "terminated": ((*batch, 1), torch.bool),
        "reward": ((*batch, 1), torch.float32),
    }
    for step, state in enumerate(episode.states):
        when = f"step {step}" if step else "reset"
        keys = set(state.keys()) - {"action"}
        if keys != set(expected):
            yield (
                f"the state after {when} lacks {_quoted(sorted(set(expected) - keys))} and has "
                f"{_quoted(sorted(keys - set(expected)))} on top of the declared keys; return "
                "every key from _init_state, and none but those from _transition"
            )
        for key, (shape, dtype) in expected.items():
            value = state[key]
            if tuple(value.shape) != shape or value.dtype != dtype:
                yield (
                    f"{key!r} after {when} is {value.dtype} of shape {list(value.shape)}, expected "
                    f"{dtype} of shape {list(shape)}; a key keeps its shape and dtype from reset "
                    "to the end"
                )
    if state["action_mask"].dtype != torch.bool:
        yield (
            f"action_mask is {state['action_mask'].dtype}, expected torch.bool, True = allowed; "
            "return a comparison from _action_mask"
        )


@each_solution
def _reward_is_float(probe: Probe, episode: Episode) -> Findings:
    reward = probe.reward(episode.initial, episode.actions)
    batch = list(episode.instances.batch_size)
    if not reward.is_floating_point() or list(reward.shape) != batch:
        yield (
            f"get_reward gives {reward.dtype} of shape {list(reward.shape)}, expected floating "
            f"point of shape {batch}; return one number per instance from _objective"
        )
    if not reward.isfinite().all():
        yield f"get_reward is not finite in {_where(~reward.isfinite())}; check _objective"
    if not is_close(reward, probe.reward(episode.states[-1], episode.actions)):
        yield (
            "get_reward differs between the initial and the final state; let _objective read only "
            "the actions and what belongs to the instance"
        )


# ---------------------------------------------------------------- rules: solutions


@each_solution
def _allowed_is_valid(probe: Probe, episode: Episode) -> Findings:
    for name, state in (("initial", episode.initial), ("final", episode.states[-1])):
        if error := probe.refused(state, episode.actions):
            yield (
                f"check_solution_validity, given the {name} state, refuses solutions that the mask "
                f"allows ({error.constraint!r}, instances {format_indices(error.instances)}); "
                "_action_mask or _violations is wrong, or their tolerances differ"
            )


def _mutants_are_refused(probe: Probe) -> Findings:
    rng = probe.rng("mutants")
    verdicts = []
    for episode in probe.solved:
        for mutant in _mutants(episode.actions, rng):
            error = probe.refused(episode.initial, mutant)
            verdicts.append(error is not None)
            if error and (blamed := _wrongly_blamed(probe, episode, mutant, error.instances)):
                yield (
                    f"check_solution_validity blames instances {format_indices(blamed)}, whose "
                    "solutions are valid, for those of their batch mates; let _violations reduce "
                    "over the axis of the actions only"
                )
                return
    # Some mutants are valid (a tour with two nodes exchanged), but hardly all of them.
    if verdicts and not any(verdicts):
        yield (
            f"check_solution_validity accepts all of {len(verdicts)} solutions with a repeated, "
            "dropped or exchanged action; let _violations notice what is missing or there twice"
        )


def _mutants(actions: Tensor, rng: torch.Generator, count: int = 4) -> Iterator[Tensor]:
    """Solutions with an action that is repeated, dropped or exchanged with another."""
    num_steps = actions.shape[-1]
    for _ in range(count if num_steps > 1 else 0):
        i, j = torch.randperm(num_steps, generator=rng)[:2].tolist()
        order = torch.arange(num_steps)
        yield actions[..., order.index_fill(0, torch.tensor(i), j)]
        yield actions[..., order[order != i]]
        order[i], order[j] = j, i
        yield actions[..., order]


def _wrongly_blamed(
    probe: Probe, episode: Episode, mutant: Tensor, refused: list[int]
) -> list[int]:
    """Instances that are refused although only others, every second of `refused`, are mutated."""
    if mutant.shape != episode.actions.shape:
        return []
    mutated = torch.zeros(len(mutant), 1, dtype=torch.bool, device=mutant.device)
    mutated[refused[::2]] = True
    error = probe.refused(episode.initial, torch.where(mutated, mutant, episode.actions))
    return [b for b in error.instances if b not in refused[::2]] if error else []


# ---------------------------------------------------------------- rules: pure functions


def _generator_is_reproducible(probe: Probe) -> Findings:
    first, second = (probe.env.generator(4, rng=probe.rng("twice")) for _ in range(2))
    if keys := differing_keys(first, second):
        yield (
            f"the generator gives different {_quoted(keys)} for the same seed; draw every number "
            "from the rng argument of _generate"
        )


@each_episode
def _steps_are_reproducible(probe: Probe, episode: Episode) -> Findings:
    again = replay_actions(probe.env, episode.instances, episode.actions)
    if found := first_difference(episode.states, again):
        yield (
            f"the same instances and actions give different {_quoted(found[1])} at step "
            f"{found[0]}; hooks must not draw random numbers or remember anything on the object"
        )
    if episode.complete:
        once, twice = (probe.reward(episode.initial, episode.actions) for _ in range(2))
        if not torch.equal(once, twice):
            yield "get_reward differs between two equal calls; _objective must be a function"


def _global_state_is_untouched(probe: Probe) -> Findings:
    episode, env = probe.episodes[0], probe.env
    seeded = configured(env, rng=probe.rng("seeded"))
    doings: dict[str, Callable[[], Any]] = {
        "constructing the environment": partial(_construct, env),
        "constructing the environment with a seed": partial(_construct, env, seed=1),
        "generating instances from a seed": partial(env.generator, 4, rng=probe.rng("global")),
        "resetting an environment with a seed": partial(seeded.reset, batch_size=4),
        "an episode on given instances": partial(
            replay_actions, env, episode.instances, episode.actions
        ),
    }
    for doing, act in doings.items():
        # Each stream moves on first: setting it back to where it was would go unnoticed.
        torch.rand(())
        np.random.rand()
        random.random()
        before = _global_random_state()
        act()
        after = _global_random_state()
        if changed := [library for library in before if before[library] != after[library]]:
            yield (
                f"{doing} changes the global random state of {', '.join(changed)}; draw from the "
                "given torch.Generator, and seed nothing"
            )


def _global_random_state() -> dict[str, bytes]:
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": pickle.dumps(np.random.get_state()),
        "Python": pickle.dumps(random.getstate()),
    }


def _construct(env: RL4COEnvBase, **arguments: Any) -> None:
    """Builds another environment of the same class, where its constructor allows."""
    arguments = {"generator": env.generator, **arguments}
    try:
        inspect.signature(type(env).__init__).bind(env, **arguments)
    except TypeError:
        return
    type(env)(**arguments)


def _inputs_are_unchanged(probe: Probe) -> Findings:
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
            ("check_solution_validity", final, lambda td: probe.refused(td, td["solution"])),
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
                f"{name} changes {_quoted(sorted(written))} of the TensorDict it is given; build "
                "new tensors (scatter instead of scatter_, torch.where instead of assignment)"
            )


class _GeneratorReadError(Exception):
    """The generator was asked for something while given instances were being solved."""


class _NoGenerator:
    def __getattr__(self, name: str) -> Any:
        raise _GeneratorReadError(name)


def _instances_are_complete(probe: Probe) -> Findings:
    episode = probe.episodes[0]
    blind = dataclasses.replace(probe, env=configured(probe.env, generator=_NoGenerator()))
    try:
        states = replay_actions(blind.env, episode.instances, episode.actions)
        blind.env.step_bounds(dict(states[0].items()))
        if episode.complete:
            blind.reward(states[0], episode.actions)
            blind.refused(states[0], episode.actions)
    except _GeneratorReadError as error:
        yield (
            f"an episode on given instances reads {str(error)!r} from the generator; take it from "
            "the instance, which may come from a file or another generator"
        )


# ---------------------------------------------------------------- rules: batches


@each_episode
def _place_does_not_matter(probe: Probe, episode: Episode) -> Findings:
    mirrored = replay_actions(probe.env, episode.instances.flip(0), episode.actions.flip(0))
    if found := first_difference(episode.states, [state.flip(0) for state in mirrored]):
        yield (
            f"{_quoted(found[1])} of an instance at step {found[0]} changes with its place in the "
            "batch; hooks must treat every instance alone"
        )


@each_episode
def _batch_mates_do_not_matter(probe: Probe, episode: Episode) -> Findings:
    lengths = episode.lengths
    for b in sorted({0, lengths.index(min(lengths)), lengths.index(max(lengths))}):
        steps = lengths[b]
        actions = episode.actions[b : b + 1, :steps]
        alone = replay_actions(probe.env, episode.instances[b : b + 1], actions)
        together = [state[b : b + 1] for state in episode.states[: steps + 1]]
        if found := first_difference(together, alone):
            yield (
                f"{_quoted(found[1])} of instance {b} at step {found[0]} differs between a batch "
                "of one and a larger batch; hooks must treat every instance alone, and keep batch "
                "axes of size one (no bare squeeze)"
            )
        if not episode.complete:
            continue
        own = probe.reward(alone[0], actions)
        shared = probe.reward(episode.initial, episode.actions)[b : b + 1]
        if not is_close(own, shared):
            yield (
                f"the reward of instance {b} is {own.flatten().tolist()} alone, in {steps} steps, "
                f"and {shared.flatten().tolist()} in a batch of {episode.actions.shape[-1]} steps; "
                "_objective must treat every instance alone and count padded steps as nothing"
            )


def _any_batch_axes(probe: Probe) -> Findings:
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
        if found := first_difference([reshape(state) for state in flat.states], states):
            yield (
                f"{_quoted(found[1])} at step {found[0]} is wrong for {label}; index axes from the "
                "end (-1, -2), never from the front"
            )
        elif flat.complete:
            expected = reshape(probe.reward(flat.initial, flat.actions))
            if not is_close(expected, probe.reward(states[0], actions)):
                yield f"get_reward is wrong for {label}; index axes from the end (-1, -2)"
            valid = probe.refused(flat.initial, flat.actions) is None
            if valid and probe.refused(states[0], actions):
                yield f"check_solution_validity is wrong for {label}; index axes from the end"


# ---------------------------------------------------------------- rules: starts, TorchRL


def _starts_are_distinct(probe: Probe) -> Findings:
    state = probe.episodes[0].initial
    try:
        count = probe.env.get_num_starts(state)
        starts = probe.env.start_actions(dict(state.items()), count)  # [B, S]
    except UnsupportedError:
        return
    if starts.shape != (*state.batch_size, count) or starts.dtype != torch.int64:
        yield (
            f"start_actions gives {starts.dtype} of shape {list(starts.shape)}, expected int64 of "
            f"shape {[*state.batch_size, count]}; return one action per start from _start_actions"
        )
        return
    allowed = state["action_mask"].gather(-1, starts)
    if not allowed.all():
        yield (
            f"a start action is forbidden by the mask in {_where(~allowed.all(-1))}; offer only "
            "feasible first actions in _start_actions, and count only those in _count_starts"
        )
    if (starts.sort(-1).values.diff(dim=-1) == 0).any():
        yield (
            f"two of the {count} starts are equal; let _count_starts count the distinct first "
            "actions of the instance"
        )
    if not torch.equal(probe.env.select_start_nodes(state, count), flatten_starts(starts)):
        yield "select_start_nodes is not start_actions in rows s * B + b; override _start_actions"


def _torchrl_agrees(probe: Probe) -> Findings:
    env = configured(probe.env, _torchrl_mode=True)
    try:
        with _quiet("torchrl"):
            check_env_specs(env)
    except Exception as error:
        yield (
            f"TorchRL's check_env_specs stops with {describe(error)}; keys, shapes and dtypes "
            "must be the same after reset and after every step, whatever the action"
        )
        return
    for episode in probe.solved:
        given = episode.instances.clone()
        td = env.reset(given)
        if keys := differing_keys(given, episode.instances):
            yield f"reset in TorchRL mode changes {_quoted(keys)} of its input; pass on a copy"
        total = torch.zeros(td.batch_size, device=env.device)
        for action in episode.actions.unbind(-1):
            td = env.step(td.set("action", action))
            total = total + td["next", "reward"].squeeze(-1)
            td = step_mdp(td)
        if not is_close(total, probe.reward(episode.initial, episode.actions)):
            yield (
                "the step rewards of a TorchRL rollout do not add up to get_reward; let "
                "_step_reward share out the same objective, and let action 0 after the end of a "
                "solution cost nothing"
            )
            return


@contextmanager
def _quiet(logger_name: str) -> Iterator[None]:
    """Without the messages of a library that reports success as well."""
    logger = logging.getLogger(logger_name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


#: The contract: what must hold, and the function that looks for counterexamples.
RULES: tuple[tuple[str, Check], ...] = (
    ("random rollouts end within step_bounds and never get stuck", _ends),
    ("a finished instance stays done", _done_is_final),
    ("steps after the end change nothing", _padding_is_free),
    ("get_action_mask gives the mask of the state", _mask_agrees),
    ("every key keeps its declared shape and dtype", _keys_keep_their_type),
    ("get_reward gives one finite float per instance", _reward_is_float),
    ("every solution that the mask allows is valid", _allowed_is_valid),
    ("mutated solutions are refused", _mutants_are_refused),
    ("the same seed gives the same instances", _generator_is_reproducible),
    ("the same instances and actions give the same result", _steps_are_reproducible),
    ("global random states are left alone", _global_state_is_untouched),
    ("inputs are not modified", _inputs_are_unchanged),
    ("an instance is complete without its generator", _instances_are_complete),
    ("an instance does not depend on its place in the batch", _place_does_not_matter),
    ("an instance does not depend on its batch mates", _batch_mates_do_not_matter),
    ("any number of batch axes works", _any_batch_axes),
    ("start actions are feasible and distinct", _starts_are_distinct),
    ("TorchRL can use the environment", _torchrl_agrees),
)
