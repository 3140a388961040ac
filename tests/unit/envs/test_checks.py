"""`check_env` passes correct environments and says in words what is wrong with broken ones.

Each broken environment below differs from a correct one by a single, plausible mistake.
"""

from __future__ import annotations

import functools
import random
import re

from typing import ClassVar

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, RL4COError
from rl4co.core.ops import get_tour_length
from rl4co.envs import (
    CVRPEnv,
    CVRPGenerator,
    MDCPDPEnv,
    OPEnv,
    SVRPEnv,
    TSPEnv,
    TSPGenerator,
    check_env,
)
from rl4co.envs.checks import EnvCheckError, find_faults
from rl4co.envs.contract import RULES
from rl4co.envs.starts import get_num_starts

SMALL = {"num_loc": 6}


@functools.cache
def faults_of(env_cls) -> dict[str, list[str]]:
    """Broken rules of an environment with the findings."""
    return find_faults(env_cls(generator_params=SMALL))


def findings(env) -> list[str]:
    """All sentences about an environment."""
    return [text for texts in find_faults(env).values() for text in texts]


# ---------------------------------------------------------------- wrong masks and endings


class ForgetsVisits(TSPEnv):
    """Nodes stay allowed after their visit."""

    def _transition(self, state, action):
        return {**super()._transition(state, action), "available": state["available"]}


class ForgetsCustomers(CVRPEnv):
    """Every customer that fits is allowed, visited or not."""

    def _action_mask(self, state):
        return super()._action_mask({**state, "visited": torch.zeros_like(state["visited"])})


class InvertedTours(TSPEnv):
    """True for what was visited."""

    def _init_state(self, instance):
        start = super()._init_state(instance)
        return {**start, "seen": torch.zeros_like(start["locs"][..., 0], dtype=torch.bool)}

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        return {**changes, "seen": state["seen"].scatter(-1, action.unsqueeze(-1), True)}

    def _action_mask(self, state):
        return state["seen"]


class InvertedRoutes(CVRPEnv):
    """True for what is forbidden."""

    def _action_mask(self, state):
        return ~super()._action_mask(state)


class LocksItselfOut(TSPEnv):
    """Node 0 is never allowed, so that the last step has nowhere to go."""

    def _action_mask(self, state):
        mask = state["available"].clone()
        mask[..., 0] = False
        return mask


class IgnoresCapacity(CVRPEnv):
    """Every customer is allowed, full vehicle or not."""

    def _action_mask(self, state):
        return super()._action_mask({**state, "demand": torch.zeros_like(state["demand"])})


class NoWayToWait(CVRPEnv):
    """A finished vehicle may go nowhere."""

    def _action_mask(self, state):
        return super()._action_mask(state) & ~state["visited"].all(-1, keepdim=True)


class AllowsNothing(TSPEnv):
    """No action is allowed, from the first step on."""

    def _action_mask(self, state):
        return torch.zeros_like(super()._action_mask(state))


class DoneWithoutAxis(TSPEnv):
    """One value per instance, without the last axis, which the mask needs."""

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        return {**changes, "done": changes["done"].squeeze(-1)}

    def _action_mask(self, state):
        done = state.get("done", torch.zeros_like(state["i"], dtype=torch.bool))
        return super()._action_mask(state) | done


class UndeclaredKey(CVRPEnv):
    """Demands of instances are not checked, since they are not declared."""

    instance_shapes: ClassVar = {
        key: shape for key, shape in CVRPEnv.instance_shapes.items() if key != "demand"
    }


class EndsInNothing(TSPEnv):
    """All tours end together, and then allow nothing."""

    def _action_mask(self, state):
        return super()._action_mask(state) & ~state.get("done", state["i"] < 0)


class MaskIsMemory(TSPEnv):
    """The mask of the state before says what is left."""

    def _transition(self, state, action):
        left = state["action_mask"].scatter(-1, action.unsqueeze(-1), False)
        changes = super()._transition(state, action)
        return {**changes, "available": left | (changes["available"] & changes["done"])}


class CountsOnItself(TSPEnv):
    """Keeps the number of steps on the object, where no rule reads it."""

    def _init_state(self, instance):
        self.counted = 0
        return super()._init_state(instance)

    def _transition(self, state, action):
        self.counted = self.counted + len(action)
        return super()._transition(state, action)


class CountsSteps(CVRPEnv):
    """Keeps the number of steps of the current episode on the object."""

    def _init_state(self, instance):
        self.steps = 0
        return super()._init_state(instance)

    def _transition(self, state, action):
        self.steps += 1
        return super()._transition(state, action)


class SearchesElsewhere(TSPEnv):
    """A local search that returns the tour of another instance's nodes."""

    def _local_search(self, state, actions, **options):
        return actions[..., 1:]


class SearchesWorse(TSPEnv):
    """A local search that keeps what it has tried last."""

    def _local_search(self, state, actions, **options):
        return torch.arange(actions.shape[-1]).expand(actions.shape).contiguous()


class TooFewSteps(CVRPEnv):
    """The upper bound forgets the returns to the depot."""

    def step_bounds(self, state):
        return super().step_bounds(state)[0], super().step_bounds(state)[0]


class BoundTooHigh(CVRPEnv):
    """The lower bound counts a return after every customer."""

    def step_bounds(self, state):
        most = super().step_bounds(state)[1]
        return most, most + 1


class DoneFlickers(CVRPEnv):
    """Done only while standing at a customer."""

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        return {**changes, "done": changes["done"] & (action != 0).unsqueeze(-1)}


class MaskFromElsewhere(CVRPEnv):
    """The mask in the state is not the one that the hook computes."""

    def advance(self, state, action):
        new_state = super().advance(state, action)
        return {**new_state, "action_mask": new_state["action_mask"] | state["done"]}


# ---------------------------------------------------------------- wrong data


class CountsInFloats(TSPEnv):
    """The step counter turns into a float at the first step."""

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        return {**changes, "i": changes["i"].float()}


class GrowingKey(TSPEnv):
    """A key that has another shape after each step."""

    def _init_state(self, instance):
        start = super()._init_state(instance)
        return {**start, "tour": start["current_node"].unsqueeze(-1)}

    def _transition(self, state, action):
        tour = torch.cat([state["tour"], action.unsqueeze(-1)], -1)
        return {**super()._transition(state, action), "tour": tour}


class ForgottenKey(CVRPEnv):
    """A key that appears only after the first step."""

    def _transition(self, state, action):
        return {**super()._transition(state, action), "last": action}


class CostsWithoutMinus(TSPEnv):
    """Long tours are the best."""

    def _objective(self, state, actions):
        return -super()._objective(state, actions)


class GainsWithMinus(OPEnv):
    """Prizes as costs, although the class says that they are gains."""

    def _objective(self, state, actions):
        return -super()._objective(state, actions) - 1.0


class SameForAll(TSPEnv):
    """Each step costs the same, whatever it does."""

    def _objective(self, state, actions):
        return -torch.full(actions.shape[:-1], float(actions.shape[-1]))


class LooksAtValues(TSPEnv):
    """A condition on a tensor in a step."""

    def _transition(self, state, action):
        if state["i"].max().item() < 0:
            return {}
        return super()._transition(state, action)


class BranchesOnTensors(CVRPEnv):
    """A tensor in an `if`, in the objective."""

    def _objective(self, state, actions):
        return super()._objective(state, actions) if actions.any() else None


class KeepsAxis(TSPEnv):
    """A reward of shape [B, 1]."""

    def _objective(self, state, actions):
        return super()._objective(state, actions).unsqueeze(-1)


class OneRewardForAll(TSPEnv):
    """The mean over the batch."""

    def _objective(self, state, actions):
        return super()._objective(state, actions).mean()


class IntegerReward(TSPEnv):
    """A rounded reward."""

    def _objective(self, state, actions):
        return super()._objective(state, actions).long()


class InfiniteReward(TSPEnv):
    """A reward that divides by zero."""

    def _objective(self, state, actions):
        return super()._objective(state, actions) / 0.0


class RewardFromState(CVRPEnv):
    """The reward depends on where the vehicle stands."""

    def _objective(self, state, actions):
        return super()._objective(state, actions) - state["i"].squeeze(-1)


# ---------------------------------------------------------------- wrong validity checks


class AcceptsAll(TSPEnv):
    """A validity check that never objects."""

    def _violations(self, state, actions):
        return {"fine": torch.zeros(actions.shape[:-1], dtype=torch.bool)}


class BlamesAll(TSPEnv):
    """A validity check that reduces over the batch as well."""

    def _violations(self, state, actions):
        return {k: v | v.any() for k, v in super()._violations(state, actions).items()}


class NoCheck(TSPEnv):
    """The hook is missing."""

    def _violations(self, state, actions):
        raise NotImplementedError


class StricterThanMask(CVRPEnv):
    """The mask fills vehicles beyond what the check accepts."""

    def _action_mask(self, state):
        return super()._action_mask({**state, "vehicle_capacity": 1.3 * state["vehicle_capacity"]})


# ---------------------------------------------------------------- side effects


class WritesInPlace(CVRPEnv):
    """Marks visits in the previous state's tensor."""

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        state["visited"].scatter_(-1, action.unsqueeze(-1), True)
        return changes


class ScalesInput(CVRPEnv):
    """Normalises the caller's demands on reset."""

    def _init_state(self, instance):
        instance["demand"] /= 2.0
        return super()._init_state(instance)


class RewardSortsInPlace(TSPEnv):
    """Scales the coordinates to compute the reward."""

    def _objective(self, state, actions):
        return super()._objective({**state, "locs": state["locs"].mul_(1.0)}, actions)


class SeedsTheWorld(TSPEnv):
    """Reseeds torch, NumPy and Python when it is built."""

    def __init__(self, *args, seed=None, **kwargs):
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        super().__init__(*args, seed=seed, **kwargs)


class GlobalGenerator(TSPGenerator):
    """Draws from torch's global generator whatever `rng` says."""

    def _generate(self, batch_size, rng):
        locs = torch.rand(*batch_size, self.num_loc, 2)
        return TensorDict({"locs": locs}, batch_size=batch_size)


class NoisySteps(TSPEnv):
    """Coordinates jitter at every step."""

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        return {**changes, "locs": state["locs"] + 0.01 * torch.rand_like(state["locs"])}


class Remembers(TSPEnv):
    """Keeps a counter of episodes on the object, and lets it leak into the state."""

    episodes = [0]

    def _init_state(self, instance):
        self.episodes[0] += 1
        start = super()._init_state(instance)
        return {**start, "first_node": start["first_node"] + self.episodes[0]}


# ---------------------------------------------------------------- wrong batches


class CapacityOfGenerator(CVRPEnv):
    """The vehicle's capacity comes from the generator instead of the instance."""

    def _init_state(self, instance):
        start = super()._init_state(instance)
        full = torch.full_like(start["vehicle_capacity"], self.generator.vehicle_capacity)
        return {**start, "vehicle_capacity": full}


class RelativeReward(TSPEnv):
    """The reward is relative to the batch."""

    def _objective(self, state, actions):
        reward = super()._objective(state, actions)
        return reward - reward.mean()


class FirstHorizon(CVRPEnv):
    """The first instance's capacity is used for all."""

    def _init_state(self, instance):
        capacity = instance["demand"].reshape(-1, instance["demand"].shape[-1])[0].max()
        start = super()._init_state(instance)
        return {**start, "vehicle_capacity": torch.ones_like(start["demand"][..., :1]) + capacity}


class CountsPadding(CVRPEnv):
    """Every step costs something, also those after the end."""

    def _objective(self, state, actions):
        return super()._objective(state, actions) - 0.1 * actions.shape[-1]


class BareSqueeze(TSPEnv):
    """Loses the batch axis when there is a single instance."""

    def _objective(self, state, actions):
        ordered = state["locs"].gather(-2, actions.unsqueeze(-1).expand(*actions.shape, 2))
        return -get_tour_length(ordered).squeeze()


class OneBatchAxis(TSPEnv):
    """Indexes the batch axis from the front."""

    def _objective(self, state, actions):
        rows = torch.arange(len(actions)).unsqueeze(-1)
        return -get_tour_length(state["locs"][rows, actions])


class RotatesBlocks(MDCPDPEnv):
    """Manhattan distances under any rotation."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, dist_mode="L1", **kwargs)

    def augmentations(self):
        return "dihedral8", "symmetric"


# ---------------------------------------------------------------- wrong starts, TorchRL


class StartsAtDepot(CVRPEnv):
    """Counts the depot among the starts."""

    def _count_starts(self, state):
        return super()._count_starts(state) + 1

    def _start_actions(self, state, num_starts):
        return super()._start_actions(state, num_starts) - 1


class RepeatedStarts(TSPEnv):
    """Offers more starts than there are."""

    def _count_starts(self, state):
        return 2 * super()._count_starts(state)

    def _start_actions(self, state, num_starts):
        return super()._start_actions(state, num_starts) % super()._count_starts(state)


class CountsForbiddenStarts(SVRPEnv):
    """Counts all nodes, of which the first technician can visit but some."""

    _count_starts = SVRPEnv._most_starts


class FloatStarts(TSPEnv):
    """Starts of the wrong type."""

    def _start_actions(self, state, num_starts):
        return super()._start_actions(state, num_starts).float()


class OneAxisOfStarts(TSPEnv):
    """Takes the first batch axis for the only one."""

    def _start_actions(self, state, num_starts):
        starts = super()._start_actions(state, num_starts)
        return starts.flatten(1).flip(-1).view_as(starts) if starts.dim() > 2 else starts


class HalfRewards(TSPEnv):
    """Step rewards that do not add up to the reward."""

    def _step_reward(self, state, action, changes):
        return torch.full(state["done"].shape, -0.5)


BROKEN = [
    (ForgetsVisits, "the mask forgets what was taken: it allows action"),
    (ForgetsCustomers, "forbid visited nodes in _action_mask, from a key that _transition updates"),
    (InvertedTours, "the mask is inverted"),
    (InvertedRoutes, "return True for allowed actions from _action_mask"),
    (CostsWithoutMinus, "but higher is better and maximizes is False; return minus the cost"),
    (GainsWithMinus, "but maximizes is True; return the gain from _objective"),
    (SameForAll, "get_reward is constant: other random solutions of the same instances"),
    (LooksAtValues, "_transition asks the device for a value: .item() in _transition (test_checks"),
    (BranchesOnTensors, "_objective asks the device for a value: a tensor in a condition"),
    (LocksItselfOut, "the mask allows no action in instances 0, 1, 2, 3, 4, 5, 6, 7 at step 5"),
    (IgnoresCapacity, "('no route exceeds the vehicle capacity', instances"),
    (NoWayToWait, "the mask allows no action in finished instances"),
    (EndsInNothing, "the mask allows no action in finished instances"),
    (AllowsNothing, "the mask allows no action in instances"),
    (DoneWithoutAxis, "add the last axis by .unsqueeze(-1)"),
    (UndeclaredKey, "the generator draws 'demand', which no instance is checked for"),
    (MaskIsMemory, "'available' after step 1 depend on the action_mask of the state before"),
    (CountsOnItself, "an episode changes the attributes 'counted' of the environment"),
    (CountsSteps, "an episode changes the attributes 'steps' of the environment"),
    (SearchesElsewhere, "local_search gives solutions that are not valid"),
    (SearchesWorse, "local_search makes solutions worse in instances"),
    (TooFewSteps, "are not done after 7 steps, the upper bound of step_bounds being 7"),
    (BoundTooHigh, "fewer than 11, the lower bound of step_bounds; lower the bound"),
    (DoneFlickers, "done turns from True to False in instances"),
    (MaskFromElsewhere, "get_action_mask differs from the action_mask in the state"),
    (CountsInFloats, "'i' after step 1 is torch.float32 of shape [8, 1], expected torch.int64"),
    (GrowingKey, "'tour' after step 1 is torch.int64 of shape [8, 2], expected torch.int64"),
    (ForgottenKey, "after step 1 lacks nothing and has 'last' on top of the declared keys"),
    (KeepsAxis, "get_reward gives torch.float32 of shape [8, 1], expected floating point of shape"),
    (IntegerReward, "get_reward gives torch.int64 of shape [8], expected floating point"),
    (InfiniteReward, "get_reward is not finite in instances 0, 1"),
    (RewardFromState, "get_reward differs between the initial and the final state"),
    (AcceptsAll, "check_solution_validity accepts all of 36 solutions"),
    (BlamesAll, "whose solutions are valid, for those of their batch mates"),
    (
        NoCheck,
        "expected that mutated solutions are rejected, got NotImplementedError in _violations",
    ),
    (StricterThanMask, "or their tolerances differ"),
    (WritesInPlace, "step changes 'visited' of the TensorDict it is given"),
    (ScalesInput, "reset changes 'demand' of the TensorDict it is given"),
    (RewardSortsInPlace, "get_reward changes 'locs' of the TensorDict it is given"),
    (SeedsTheWorld, "constructing the environment changes the global random state of torch, numpy"),
    (NoisySteps, "the same instances and actions give different 'locs' at step 1"),
    (NoisySteps, "an episode on given instances changes the global random state of torch"),
    (Remembers, "remember anything on the object"),
    (CapacityOfGenerator, "reads 'vehicle_capacity' from the generator; take it from the instance"),
    (RelativeReward, "the reward of instance 0 is [0.0] alone, in 6 steps"),
    (FirstHorizon, "changes with its place in the batch"),
    (FirstHorizon, "differs between a batch of one and a larger batch"),
    (CountsPadding, "steps after the end change the reward of a solution"),
    (CountsPadding, "count padded steps as nothing"),
    (BareSqueeze, "_objective must treat every instance alone"),
    (OneBatchAxis, "expected that any number of batch axes works, got "),
    (RotatesBlocks, "the augmentation 'symmetric' changes the reward of a solution; leave it out"),
    (StartsAtDepot, "a start action is forbidden by the mask in instances 0, 1"),
    (RepeatedStarts, "two of the 12 starts are equal; let _count_starts count the distinct"),
    (CountsForbiddenStarts, "two of the 7 starts are equal; let _count_starts count the distinct"),
    (FloatStarts, "start_actions gives torch.float32 of shape [8, 6], expected int64"),
    (OneAxisOfStarts, "select_start_nodes is wrong for batch size [2, 3]"),
    (HalfRewards, "the step rewards of a TorchRL rollout do not add up to get_reward"),
]


@pytest.mark.parametrize(
    ("env_cls", "sentence"),
    BROKEN,
    ids=[f"{cls.__name__}-{n}" for n, (cls, _) in enumerate(BROKEN)],
)
def test_broken_environment_is_described(env_cls, sentence):
    """The mistake is named in words, with a remedy behind the semicolon."""
    found = [text for texts in faults_of(env_cls).values() for text in texts]
    assert any(sentence in text for text in found), "\n".join(found) or "nothing found"
    assert all(";" in text or text.startswith("expected that") for text in found)


def test_every_rule_has_a_counterexample():
    """No rule is there only for show: leaving out any of them would miss a mistake above."""
    heard = {rule for env_cls, _ in BROKEN for rule in faults_of(env_cls)}
    assert {rule for rule, _ in RULES} - heard == {"the same seed gives the same instances"}
    assert "the same seed gives the same instances" in find_faults(TSPEnv(GlobalGenerator()))


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
@pytest.mark.parametrize("num_loc", [1, 2, 3, 6])
def test_correct_environments_pass(env_cls, num_loc):
    """No false alarm, down to a single node."""
    check_env(env_cls(generator_params={"num_loc": num_loc}))


@pytest.mark.parametrize(
    "options",
    [{"seed": 3}, {"_torchrl_mode": True}, {"check_action": True}, {"check_solution": False}],
)
def test_settings_do_not_matter(options):
    """Whatever the environment is configured to do, its contract is the same."""
    check_env(CVRPEnv(generator_params=SMALL, **options))


class RejectsAll(TSPEnv):
    def _violations(self, state, actions):
        return {"luck": torch.ones_like(actions[..., 0], dtype=torch.bool)}


class NoNumber(TSPEnv):
    def _objective(self, state, actions):
        return super()._objective(state, actions) * torch.nan


@pytest.mark.parametrize(
    ("env_cls", "sentence", "false"),
    [
        (RejectsAll, "rejects solutions that the mask allows", "batch mates"),
        (ForgetsVisits, "the mask forgets what was taken", "batch mates"),
        (ForgetsCustomers, "the mask forgets what was taken", "raise the bound"),
        (InvertedTours, "the mask is inverted", "the mask allows no action"),
        (NoNumber, "get_reward is not finite", "two equal calls"),
    ],
)
def test_a_mistake_is_not_described_as_another(env_cls, sentence: str, false: str):
    """A check that rejects everything names no single cause; NaN equals itself."""
    found = findings(env_cls(generator_params=SMALL))
    assert any(sentence in text for text in found)
    assert not any(false in text for text in found), "\n".join(found)


@pytest.mark.parametrize("env_cls", [KeepsAxis, OneRewardForAll])
def test_a_reward_of_the_wrong_shape_is_reported_once(env_cls):
    """With its shape, and not as different numbers that look equal."""
    (sentence,) = findings(env_cls(generator_params=SMALL))
    assert "get_reward gives torch.float32 of shape" in sentence


def test_a_mask_of_one_batch_axis_is_named():
    """The specs are made from one instance, on which `mask[:, 0]` fails."""

    class OneAxisMask(TSPEnv):
        def _action_mask(self, state):
            mask = super()._action_mask(state).clone()
            return torch.cat([mask[:, :1], mask[:, 1:]], 1)

    with pytest.raises(
        ConfigError, match=r"OneAxisMask .*IndexError in _action_mask .*\[\.\.\., 0\]"
    ):
        OneAxisMask(generator_params=SMALL)


def test_wrappers_are_no_environments():
    """An object that passes on attributes is not taken for an environment or a name."""

    class Wrapper:
        def __getattr__(self, name):
            return getattr(TSPEnv(generator_params=SMALL), name)

    for call in (check_env, lambda env: get_num_starts(TSPEnv().reset(batch_size=2), env)):
        with pytest.raises(ConfigError, match="got Wrapper"):
            call(Wrapper())


def test_generator_that_ignores_its_stream():
    """A generator must draw from the stream it is given."""
    found = findings(TSPEnv(GlobalGenerator(num_loc=5)))
    assert any("the generator gives different 'locs' for the same seed" in text for text in found)
    assert any("generating instances from a seed changes" in text for text in found)


def test_generator_of_one_batch_axis():
    """A generator that knows only one batch axis is told so."""

    class Flat(TSPGenerator):
        def _generate(self, batch_size, rng):
            size = batch_size[:1] or torch.Size([1])
            return super()._generate(size, rng)

    with pytest.raises(RL4COError):
        # Already the specs, made from a single instance, come out wrong.
        check_env(TSPEnv(Flat(num_loc=5)))


def test_infeasible_generator_is_reported():
    """Instances that the environment itself rejects end the check at once."""

    class Overloaded(CVRPGenerator):
        def _generate(self, batch_size, rng):
            td = super()._generate(batch_size, rng)
            return td.set("demand", td["demand"] * 100)

    (found,) = findings(CVRPEnv(Overloaded(num_loc=5)))
    assert "a random rollout fails with InvalidInstanceError" in found
    assert "demand fits the vehicle_capacity" in found


def test_crash_is_located():
    """An exception in a hook is reported with the hook's name and line."""

    class Typo(TSPEnv):
        def _transition(self, state, action):
            return {"curent_node": state["curent_node"]}

    (found,) = findings(Typo(generator_params=SMALL))
    assert "KeyError in _transition (test_checks.py:" in found


def test_loops_without_an_end_are_interrupted(monkeypatch):
    """Of a hook in a rollout, and of one that a rule calls; what comes after it is not asked."""

    class Endless(TSPEnv):
        def _transition(self, state, action):
            while True:
                pass

    finding = "expected an answer to {}.* in time, got none: OutOfTimeError in {}"
    (found,) = find_faults(Endless(generator_params=SMALL), max_seconds=0.5).values()
    assert re.match(finding.format("a random rollout", "_transition"), found[0])

    def loop(probe):
        Endless._transition(probe.env, {}, None)
        yield ""

    rules = (("it ends", loop), ("it is asked", lambda probe: iter(["never"])))
    monkeypatch.setattr("rl4co.envs.checks._rules", lambda env: rules)
    (found,) = find_faults(TSPEnv(generator_params=SMALL), 2, 1, max_seconds=3).values()
    assert re.match(finding.format("whether it ends", "_transition"), found[0])


def test_all_findings_are_listed():
    """One error carries everything, numbered."""

    class TwoMistakes(RelativeReward):
        def _start_actions(self, state, num_starts):
            return super()._start_actions(state, num_starts).float()

    with pytest.raises(EnvCheckError) as caught:
        check_env(TwoMistakes(generator_params=SMALL))
    found, message = caught.value.findings, str(caught.value)
    assert any("start_actions gives" in text for text in found)
    assert any("_objective must treat every instance alone" in text for text in found)
    assert len(found) == len(set(found))
    assert f"expected TwoMistakes to keep the contract of environments, got {len(found)}" in message
    assert all(f"  {n}. {text}" in message for n, text in enumerate(found, start=1))


def test_check_leaves_no_trace():
    """Neither the environment's stream nor a global one moves, even if the environment seeds it."""
    env = SeedsTheWorld(generator_params=SMALL, seed=1)
    before = env.rng.get_state(), torch.get_rng_state()
    numpy_state, python_state = np.random.get_state()[1].tolist(), random.getstate()
    assert findings(env)
    assert torch.equal(env.rng.get_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert np.random.get_state()[1].tolist() == numpy_state
    assert random.getstate() == python_state


@pytest.mark.parametrize("arguments", [{"batch_size": 1}, {"num_rollouts": 0}])
def test_bad_arguments_are_rejected(arguments):
    """A batch of one, or no rollout, shows nothing."""
    with pytest.raises(ConfigError, match="batch_size >= 2 and num_rollouts >= 1"):
        check_env(TSPEnv(), **arguments)


def test_error_is_an_assertion():
    """Test runners report it as a failure, and `except RL4COError` catches it."""
    assert issubclass(EnvCheckError, AssertionError)
    assert issubclass(EnvCheckError, RL4COError)
