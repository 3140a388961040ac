"""The contract of improvement environments, whose steps change complete solutions.

Beside that of constructive ones (:data:`rl4co.envs.contract.RULES`): there is no end and no mask of
single indices; instead solutions stay valid under every allowed move, and costs, positions and
rewards stay true.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs.utils import check_env_specs

from rl4co.core.errors import InvalidSolutionError, RL4COError
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.contract.behaviour import quiet
from rl4co.envs.contract.evidence import (
    Findings,
    configured,
    describe,
    differing_keys,
    first_difference,
    is_close,
    quoted,
    take_action,
    where,
)
from rl4co.envs.contract.purity import (
    generator_is_reproducible,
    looks_at_values,
    random_states_changed_by,
)
from rl4co.envs.improvement import ImprovementEnvBase
from rl4co.envs.successors import order_from_successors

#: Moves of a recorded run.
NUM_STEPS = 12


@dataclasses.dataclass(frozen=True)
class Run:
    """Random allowed moves of a batch.

    Attributes:
        instances: What was reset.
        initial: First solutions `[B, N]` (successors).
        states: T + 1 states, the one after reset first.
        actions: T moves `[B, A]`.
    """

    instances: TensorDict
    initial: Tensor
    states: list[TensorDict]
    actions: list[Tensor]


@dataclasses.dataclass(frozen=True)
class ImprovementProbe:
    """Everything that the rules look at; see :class:`~rl4co.envs.contract.evidence.Probe`."""

    env: ImprovementEnvBase
    runs: list[Run]
    seed: int

    @classmethod
    def of(
        cls, env: RL4COEnvBase, batch_size: int, num_rollouts: int, seed: int
    ) -> ImprovementProbe:
        """Copies the environment and records random runs."""
        bare = cast(
            ImprovementEnvBase,
            configured(env, _torchrl_mode=False, check_instance=False, check_action=False),
        )
        runs = []
        for index in range(num_rollouts):
            rng = derive_generator(seed, "episode", index)
            instances = env.generator(batch_size, rng=rng).to(env.device)
            env.check_instances(instances)
            initial = bare.reset(instances, initial="random", rng=rng)["rec_current"]
            runs.append(_record(bare, instances, initial, rng))
        return cls(bare, runs, seed)

    def rng(self, purpose: str) -> torch.Generator:
        """A random stream."""
        return derive_generator(self.seed, purpose)


def _record(
    env: ImprovementEnvBase, instances: TensorDict, initial: Tensor, rng: torch.Generator
) -> Run:
    states, actions = [env.reset(instances, initial=initial)], list[Tensor]()
    for _ in range(NUM_STEPS):
        actions.append(env.random_action(dict(states[-1].items()), rng))
        states.append(take_action(env, states[-1], actions[-1]))
    return Run(instances, initial, states, actions)


def _replay(
    env: ImprovementEnvBase, run: Run, change: Callable[[Any], Any] = lambda x: x
) -> list[TensorDict]:
    """The states of the same moves on changed (sliced, reshaped) instances."""
    states = [env.reset(change(run.instances), initial=change(run.initial))]
    for action in run.actions:
        states.append(take_action(env, states[-1], change(action)))
    return states


def _violation_of(env: ImprovementEnvBase, state: TensorDictBase, successors: Tensor) -> str | None:
    try:
        env.check_solution_validity(state, successors)
    except InvalidSolutionError as error:
        return error.constraint
    return None


# ---------------------------------------------------------------- solutions


def moves_keep_solutions_valid(probe: ImprovementProbe) -> Findings:
    """Every allowed move gives a valid solution."""
    for run in probe.runs:
        for step, state in enumerate(run.states):
            for key in ("rec_current", "rec_best"):
                if broken := _violation_of(probe.env, state, state[key]):
                    yield (
                        f"{key} violates {broken!r} after {step} allowed moves; let _move keep "
                        "solutions valid, or forbid the move in the masks"
                    )
                    return


def positions_are_true(probe: ImprovementProbe) -> Findings:
    """`visited_time` has the positions of the current solution."""
    for run in probe.runs:
        for step, state in enumerate(run.states):
            order, _ = order_from_successors(state["rec_current"])
            if not torch.equal(order, state["visited_time"]):
                wrong = where((order != state["visited_time"]).any(-1))
                yield (
                    f"visited_time is not the walk along rec_current after {step} moves in {wrong};"
                    " let _move return positions with node 0 at 0"
                )
                return


def costs_are_true(probe: ImprovementProbe) -> Findings:
    """Costs are those of the solutions, and the best one is the smallest so far."""
    for run in probe.runs:
        best = run.states[0]["cost_current"]
        for step, state in enumerate(run.states):
            best = torch.minimum(best, state["cost_current"])
            for key, cost in (("rec_current", "cost_current"), ("rec_best", "cost_bsf")):
                reward = probe.env.get_reward(state, state[key], check_solution=False)
                if not is_close(-reward, state[cost]):
                    yield f"{cost} is not minus get_reward of {key} after {step} moves"
                    return
            if not is_close(best, state["cost_bsf"]):
                yield f"cost_bsf is not the smallest cost after {step} moves"
                return


def rewards_are_gains(probe: ImprovementProbe) -> Findings:
    """A step earns what it gains over the best cost so far."""
    for run in probe.runs:
        for step, (before, after) in enumerate(zip(run.states, run.states[1:], strict=False)):
            gain = (before["cost_bsf"] - after["cost_bsf"]).unsqueeze(-1)
            if not is_close(after["reward"], gain):
                yield f"the reward of step {step} is not the gain over the best cost so far"
                return


def there_is_no_end(probe: ImprovementProbe) -> Findings:
    """No state is done."""
    for run in probe.runs:
        if any(bool(state["done"].any()) for state in run.states):
            yield "a state is done; episodes of improvement do not terminate"
            return


def random_moves_are_allowed(probe: ImprovementProbe) -> Findings:
    """`random_action` gives moves that the checks allow, and other numbers are rejected."""
    strict = configured(probe.env, check_action=True)
    for run in probe.runs:
        for state, action in zip(run.states, run.actions, strict=False):
            try:
                take_action(strict, state, action)
            except RL4COError as error:
                yield f"a move of random_action is rejected: {describe(error)}"
                return
    run = probe.runs[0]
    for outside in (-1, run.initial.shape[-1]):
        try:
            take_action(strict, run.states[0], torch.full_like(run.actions[0], outside))
        except RL4COError:
            continue
        yield f"a move with the number {outside} passes check_action"


def first_solutions_are_kept(probe: ImprovementProbe) -> Findings:
    """A given first solution is the first state; named ones are valid."""
    for run in probe.runs:
        if not torch.equal(run.states[0]["rec_current"], run.initial):
            yield "reset changes the first solution that it is given"
            return
    for name in ("random", "greedy"):
        state = probe.env.reset(probe.runs[0].instances, initial=name, rng=probe.rng(name))
        if broken := _violation_of(probe.env, state, state["rec_current"]):
            yield f"{name} first solutions violate {broken!r}"


def broken_solutions_are_rejected(probe: ImprovementProbe) -> Findings:
    """Sub-tours and repeated nodes are rejected, also as first solutions."""
    run = probe.runs[0]
    for fault, mutant in _mutants(run.initial):
        if _violation_of(probe.env, run.states[0], mutant) is None:
            yield f"a solution with {fault} passes check_solution_validity"
            continue
        try:
            probe.env.reset(run.instances, initial=mutant)
        except InvalidSolutionError:
            continue
        yield f"a first solution with {fault} passes reset"


def _mutants(successors: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield (
        "a node that is its own successor",
        torch.arange(successors.shape[-1]).expand_as(successors).to(successors.device),
    )
    # Exchanging the successors of two nodes splits a tour in two.
    swapped = successors[..., [1, 0, *range(2, successors.shape[-1])]]
    yield "sub-tours", swapped
    yield "a node that is visited twice", torch.cat([successors[..., 1:2], successors[..., 1:]], -1)


# ---------------------------------------------------------------- pure functions


def steps_are_reproducible(probe: ImprovementProbe) -> Findings:
    """The same instances, first solutions and moves give the same states."""
    for run in probe.runs:
        if diff := first_difference(run.states, _replay(probe.env, run)):
            yield f"the same moves give different {quoted(diff[1])} at step {diff[0]}"
            return


def global_state_is_untouched(probe: ImprovementProbe) -> Findings:
    """Global random states are left alone by everything that is given a stream or a solution."""
    env, run = probe.env, probe.runs[0]
    calls_by_name: dict[str, Callable[[], Any]] = {
        "constructing the environment": lambda: type(env)(generator=env.generator),
        "a run on given solutions": lambda: _replay(env, run),
        "a random first solution from a stream": lambda: env.reset(
            run.instances, initial="random", rng=probe.rng("first")
        ),
    }
    for call, act in calls_by_name.items():
        if changed := random_states_changed_by(act):
            yield f"{call} changes the global random state of {', '.join(changed)}"


def inputs_are_unchanged(probe: ImprovementProbe) -> Findings:
    """Neither `reset` nor `step` writes into what it is given."""
    env, run = probe.env, probe.runs[0]
    instances = run.instances.clone()
    env.reset(instances, initial=run.initial)
    if keys := differing_keys(instances, run.instances):
        yield f"reset changes {quoted(keys)} of the TensorDict it is given"
    for state, action in zip(run.states, run.actions, strict=False):
        ready = state.clone().set("action", action)
        before = ready.clone()
        versions = {key: value._version for key, value in ready.items()}
        env.step(ready)
        written = {k for k, value in ready.items() if versions.get(k) != value._version}
        if written or differing_keys(before, ready):
            yield f"step changes {quoted(sorted(written))} of the TensorDict it is given"
            return


def hooks_do_not_look_at_values(probe: ImprovementProbe) -> Findings:
    """No hook of a move asks the device for a value."""
    run = probe.runs[0]
    call = (dict(run.states[0].items()), run.actions[0])
    yield from looks_at_values(probe.env, dict.fromkeys(("_move", "_is_allowed"), call))


def batch_mates_do_not_matter(probe: ImprovementProbe) -> Findings:
    """An instance alone does what it does in a batch."""
    for run in probe.runs:
        alone = _replay(probe.env, run, lambda x: x[1:2])
        if diff := first_difference([state[1:2] for state in run.states], alone):
            yield (
                f"{quoted(diff[1])} of instance 1 at step {diff[0]} differs between a batch of "
                "one and a larger batch; hooks must treat every instance alone"
            )
            return


def any_batch_axes(probe: ImprovementProbe) -> Findings:
    """Any number of batch axes works."""
    run = probe.runs[0]
    shapes: dict[str, Callable[[Any], Any]] = {
        "[2, 1]": lambda x: x[:2].reshape(2, 1, *x.shape[1:]),
        "[]": lambda x: x[0],
    }
    for shape, change in shapes.items():
        states = _replay(probe.env, run, change)
        if diff := first_difference([change(state) for state in run.states], states):
            yield f"{quoted(diff[1])} at step {diff[0]} is wrong for batch size {shape}"


def torchrl_agrees(probe: ImprovementProbe) -> Findings:
    """TorchRL can use the environment."""
    env = configured(probe.env, _torchrl_mode=True)
    try:
        with quiet("torchrl"):
            check_env_specs(env)
    except Exception as error:
        yield f"TorchRL's check_env_specs stops with {describe(error)}"


#: The contract: what must hold, and the function that looks for counterexamples.
IMPROVEMENT_RULES: tuple[tuple[str, Callable[[Any], Findings]], ...] = (
    ("every allowed move gives a valid solution", moves_keep_solutions_valid),
    ("positions are those of the current solution", positions_are_true),
    ("costs are those of the solutions", costs_are_true),
    ("a step earns what it gains over the best so far", rewards_are_gains),
    ("there is no end", there_is_no_end),
    ("random moves are allowed, others rejected", random_moves_are_allowed),
    ("first solutions are kept and valid", first_solutions_are_kept),
    ("sub-tours and repeated nodes are rejected", broken_solutions_are_rejected),
    ("the same seed gives the same instances", generator_is_reproducible),
    ("the same moves give the same states", steps_are_reproducible),
    ("global random states are left alone", global_state_is_untouched),
    ("inputs are not modified", inputs_are_unchanged),
    ("no hook asks the device for a value", hooks_do_not_look_at_values),
    ("an instance does not depend on its batch mates", batch_mates_do_not_matter),
    ("any number of batch axes works", any_batch_axes),
    ("TorchRL can use the environment", torchrl_agrees),
)
