"""Rules on what an environment does: episodes, states, solutions, starts, TorchRL."""

from __future__ import annotations

import logging

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch import Tensor
from torchrl.envs.utils import check_env_specs, step_mdp

from rl4co.core.errors import UnsupportedError, format_indices
from rl4co.core.ops import batchify, flatten_starts
from rl4co.data.augment import StateAugmentation, has_coordinates
from rl4co.envs.contract.evidence import (
    Episode,
    Findings,
    Probe,
    configured,
    describe,
    differing_keys,
    each_episode,
    each_solution,
    is_close,
    is_stuck,
    quoted,
    random_action,
    take_action,
    where,
)

# ---------------------------------------------------------------- episodes


@each_episode
def ends(probe: Probe, episode: Episode) -> Findings:
    """Random rollouts end within `step_bounds` and never get stuck."""
    last, steps = episode.states[-1], len(episode.states) - 1
    fewest, most = episode.bounds
    stuck = is_stuck(last)
    if stuck.any():
        yield (
            f"the mask allows no action in {where(stuck)} at step {steps} although they are not "
            "done; let _action_mask leave a way on until done, or set done earlier"
        )
    if not episode.complete:
        yield (
            f"{where(~last['done'])} are not done after {steps} steps, the upper bound of "
            f"step_bounds being {most}; let _transition set done, or raise the bound"
        )
    if min(episode.lengths) < fewest:
        yield (
            f"an instance is done after {min(episode.lengths)} steps, fewer than {fewest}, the "
            "lower bound of step_bounds; lower the bound"
        )


@each_episode
def done_is_final(probe: Probe, episode: Episode) -> Findings:
    """A finished instance stays done."""
    for step in range(1, len(episode.states)):
        undone = episode.states[step - 1]["done"] & ~episode.states[step]["done"]
        if undone.any():
            yield (
                f"done turns from True to False in {where(undone)} at step {step}; a finished "
                "instance must stay done whatever action it gets"
            )


@each_episode
def finished_may_go_on(probe: Probe, episode: Episode) -> Findings:
    """A finished instance allows an action."""
    if _end_together(probe):
        return  # none is ever stepped on
    for step, state in enumerate(episode.states):
        idle = ~state["action_mask"].bool().any(-1) & state["done"].bool().squeeze(-1)
        if idle.any():
            yield (
                f"the mask allows no action in finished {where(idle)} at step {step}; allow an "
                "action that changes nothing (the depot or the last node, say), since batch mates "
                "may need more steps"
            )


@each_solution
def padding_is_free(probe: Probe, episode: Episode) -> Findings:
    """Steps after the end change nothing."""
    if episode.bounds[0] == episode.bounds[1] or _end_together(probe):
        return  # none is ever stepped on
    rng, state, padded = probe.rng("padding"), episode.states[-1], episode.actions
    for _ in range(2):
        action = random_action(state["action_mask"], rng)
        state = take_action(probe.env, state, action)
        padded = torch.cat([padded, action.unsqueeze(-1)], -1)
    if not state["done"].all():
        yield (
            f"{where(~state['done'])} are done, then not done two allowed actions later; allow "
            "only actions that change nothing once an instance is done"
        )
    plain = probe.reward(episode.initial, episode.actions)
    if not is_close(plain, probe.reward(episode.initial, padded)):
        yield (
            "steps after the end change the reward of a solution; allow only actions that cost "
            "nothing once an instance is done, and let _objective count them as nothing"
        )


def _end_together(probe: Probe) -> bool:
    """Whether all instances take as long in an environment whose step bounds are approximate."""
    lengths = {length for episode in probe.episodes for length in episode.lengths}
    return not probe.env.steps_by_hooks and len(lengths) == 1


@each_episode
def mask_agrees(probe: Probe, episode: Episode) -> Findings:
    """`get_action_mask` gives the mask of the state."""
    for step, state in enumerate(episode.states):
        if not torch.equal(probe.env.get_action_mask(state), state["action_mask"]):
            yield (
                f"get_action_mask differs from the action_mask in the state at step {step}; "
                "compute the mask in _action_mask alone, from keys that _transition returns"
            )


@each_episode
def mask_is_derived(probe: Probe, episode: Episode) -> Findings:
    """Steps do not read the mask of the state."""
    if not probe.env.steps_by_hooks:
        return
    for step, (state, action) in enumerate(
        zip(episode.states, episode.actions.unbind(-1), strict=False)
    ):
        nothing_allowed = torch.zeros_like(state["action_mask"])
        expected = take_action(probe.env, state, action)
        other = take_action(probe.env, state.copy().set("action_mask", nothing_allowed), action)
        if keys := differing_keys(expected, other):
            yield (
                f"{quoted(keys)} after step {step + 1} depend on the action_mask of the state "
                "before; keep what is left to visit under a key of its own and derive the mask "
                "from it in _action_mask, so that a subclass may narrow the mask"
            )


# ---------------------------------------------------------------- states and rewards


@each_episode
def keys_keep_their_type(probe: Probe, episode: Episode) -> Findings:
    """Every key keeps its declared shape and dtype."""
    batch = episode.instances.batch_size
    if not probe.env.steps_by_hooks:  # its specs are approximate
        declared = {
            key: (tuple(value.shape), value.dtype) for key, value in episode.initial.items()
        }
    else:
        specs = {key: spec for key, spec in probe.env.observation_spec.items() if key != "solution"}
        declared = {key: ((*batch, *spec.shape), spec.dtype) for key, spec in specs.items()}
    expected = {
        **declared,
        "done": ((*batch, 1), torch.bool),
        "terminated": ((*batch, 1), torch.bool),
        "reward": ((*batch, 1), torch.float32),
    }
    for step, state in enumerate(episode.states):
        when = f"step {step}" if step else "reset"
        keys = set(state.keys()) - {"action"}
        if keys != set(expected):
            yield (
                f"the state after {when} lacks {quoted(sorted(set(expected) - keys))} and has "
                f"{quoted(sorted(keys - set(expected)))} on top of the declared keys; return "
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


def instance_keys_are_declared(probe: Probe) -> Findings:
    """The keys of generated instances are declared, so that their shapes and values are checked."""
    declared = {**probe.env.instance_shapes, **probe.env.optional_shapes}
    unknown = sorted(set(probe.episodes[0].instances.keys()) - set(declared))
    if declared and unknown:
        yield (
            f"the generator draws {quoted(unknown)}, which no instance is checked for; add the "
            "axes to instance_shapes, or to optional_shapes if an instance may lack them"
        )


@each_solution
def reward_is_float(probe: Probe, episode: Episode) -> Findings:
    """`get_reward` gives one finite float per instance, from any state of an episode."""
    reward = probe.reward(episode.initial, episode.actions)
    batch = list(episode.instances.batch_size)
    if not reward.is_floating_point() or list(reward.shape) != batch:
        yield (
            f"get_reward gives {reward.dtype} of shape {list(reward.shape)}, expected floating "
            f"point of shape {batch}; return one number per instance from _objective"
        )
        return
    if not reward.isfinite().all():
        yield f"get_reward is not finite in {where(~reward.isfinite())}; check _objective"
    if not is_close(reward, probe.reward(episode.states[-1], episode.actions)):
        yield (
            "get_reward differs between the initial and the final state; let _objective read only "
            "the actions and what belongs to the instance"
        )


# ---------------------------------------------------------------- solutions


@each_solution
def allowed_is_valid(probe: Probe, episode: Episode) -> Findings:
    """Every solution that the mask allows is valid."""
    for name, state in (("initial", episode.initial), ("final", episode.states[-1])):
        if error := probe.violation(state, episode.actions):
            yield (
                f"check_solution_validity, given the {name} state, rejects solutions that the mask "
                f"allows ({error.constraint!r}, instances {format_indices(error.instances)}); "
                "_action_mask or _violations is wrong, or their tolerances differ"
            )


def mutants_are_rejected(probe: Probe) -> Findings:
    """Mutated solutions are rejected, and only those."""
    rng = probe.rng("mutants")
    verdicts = []
    for episode in probe.solved:
        # Whom a check blames says nothing if it rejects the solution as it is (`allowed_is_valid`).
        sound = probe.violation(episode.initial, episode.actions) is None
        for mutant in _mutants(episode.actions, rng):
            error = probe.violation(episode.initial, mutant)
            verdicts.append(error is not None)
            if not error or not sound:
                continue
            if blamed := _wrongly_blamed(probe, episode, mutant, error.instances):
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
    probe: Probe, episode: Episode, mutant: Tensor, rejected: list[int]
) -> list[int]:
    """Instances that are rejected although only others, every second of `rejected`, are mutated."""
    if mutant.shape != episode.actions.shape:
        return []
    mutated = torch.zeros(len(mutant), 1, dtype=torch.bool, device=mutant.device)
    mutated[rejected[::2]] = True
    error = probe.violation(episode.initial, torch.where(mutated, mutant, episode.actions))
    return [b for b in error.instances if b not in rejected[::2]] if error else []


@each_solution
def augmentations_keep_rewards(probe: Probe, episode: Episode) -> Findings:
    """A solution is worth the same on every augmented copy of its instance."""
    if not has_coordinates(episode.instances.keys()):
        return
    reward = probe.reward(episode.initial, episode.actions)
    for name in probe.env.augmentations():
        augment = StateAugmentation(8, name, rng=probe.rng(name))
        state = probe.env.reset(augment(episode.instances))  # [8 * B]
        if not is_close(probe.reward(state, batchify(episode.actions, 8)), batchify(reward, 8)):
            yield (
                f"the augmentation {name!r} changes the reward of a solution; leave it out in "
                "augmentations"
            )


def custom_local_search_improves(probe: Probe) -> Findings:
    """A custom local search keeps the rule; the library's own compile for long, and are tested."""
    if not type(probe.env)._local_search.__module__.startswith("rl4co."):
        yield from local_search_improves(probe)


@each_solution
def local_search_improves(probe: Probe, episode: Episode) -> Findings:
    """Local search returns valid solutions of the same instances that are not worse."""
    env, td, batch = probe.env, episode.initial, episode.instances.batch_size
    try:
        improved = env.local_search(td, episode.actions)
    except UnsupportedError:
        return
    if improved.shape[:-1] != batch or improved.dtype != torch.int64:
        yield (
            f"local_search gives {improved.dtype} of shape {list(improved.shape)}, expected int64 "
            f"of shape {[*batch, 'T']}; return one solution for each row from _local_search"
        )
        return
    if error := probe.violation(td, improved):
        yield f"local_search gives solutions that are not valid ({error}); check _local_search"
        return
    before, after = probe.reward(td, episode.actions), probe.reward(td, improved)
    worse = after < before - before.abs() * 1e-4 - 1e-4
    if worse.any():
        yield f"local_search makes solutions worse in {where(worse)}; keep the better one"
    # Two solutions of each instance: [2 * B, T], with the state of each row.
    twice = env.local_search(td, batchify(episode.actions, 2))
    if not is_close(probe.reward(batchify(td, 2), twice), batchify(after, 2)):
        yield (
            "local_search of two equal solutions for each instance gives other rewards than of "
            "one; let _local_search treat row b of the actions as a solution of row b of the state"
        )


# ---------------------------------------------------------------- starts, TorchRL


def starts_are_distinct(probe: Probe) -> Findings:
    """Start actions are feasible and distinct."""
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
    # Starts are taken where all solutions have begun in the same way.
    current = dict(state.items())
    prefix = probe.env.start_prefix(current)
    for action in () if prefix is None else prefix.unbind(-1):
        current = probe.env.advance(current, action)
    mask = current["action_mask"]  # [*B, N]
    allowed = mask.gather(-1, starts)
    if not allowed.all():
        yield (
            f"a start action is forbidden by the mask in {where(~allowed.all(-1))}; offer only "
            "feasible first actions in _start_actions, and count only those in _count_starts"
        )
    repeats = (starts.sort(-1).values.diff(dim=-1) == 0).any(-1)  # [*B]
    # An instance whose mask forbids some may repeat the others, but not all instances may; going
    # home is none to miss.
    missed = mask.scatter(-1, starts, False)[..., 1:].any(-1)
    if (repeats & (missed | mask.all(-1))).any() or repeats.all():
        yield (
            f"two of the {count} starts are equal; let _count_starts count the distinct first "
            "actions of the instance"
        )
    if not torch.equal(probe.env.select_start_nodes(state, count), flatten_starts(starts)):
        yield "select_start_nodes is not start_actions in rows s * B + b; override _start_actions"


def starts_in_any_batch(probe: Probe) -> Findings:
    """Starts are those of the single instances, starts outermost, whatever the batch axes."""
    env = probe.env
    instances = env.generator(6, rng=probe.rng("starts")).to(env.device)
    try:
        count = env.get_num_starts(env.reset(instances))
    except UnsupportedError:
        return
    for shape, reshaped in (((2, 3), instances.reshape(2, 3)), ((), instances[0])):
        flat = reshaped.reshape(-1)
        alone = [env.select_start_nodes(env.reset(one), count) for one in flat.unsqueeze(1)]
        expected = torch.stack(alone, 1).flatten()  # [S, B] -> [S * B]
        starts = env.select_start_nodes(env.reset(reshaped), count)
        if not torch.equal(starts, expected):
            yield (
                f"select_start_nodes is wrong for batch size {list(shape)}: expected start s of "
                f"instance b in row s * {len(flat)} + b; index axes from the end in _start_actions"
            )


def torchrl_agrees(probe: Probe) -> Findings:
    """TorchRL can use the environment, and sums up the same reward."""
    if not probe.env.steps_by_hooks:  # its specs are approximate
        return
    env = configured(probe.env, _torchrl_mode=True)
    try:
        with quiet("torchrl"):
            check_env_specs(env)
    except Exception as error:
        yield (
            f"TorchRL's check_env_specs stops with {describe(error)}; keys, shapes and dtypes "
            "must be the same after reset and after every step, whatever the action"
        )
        return
    for episode in probe.solved:
        instances = episode.instances.clone()
        td = env.reset(instances)
        if keys := differing_keys(instances, episode.instances):
            yield f"reset in TorchRL mode changes {quoted(keys)} of its input; pass on a copy"
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
def quiet(logger_name: str) -> Iterator[None]:
    """Without the messages of a library that reports success as well."""
    logger = logging.getLogger(logger_name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
