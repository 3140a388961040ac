"""Random episodes recorded step by step: the evidence that the checks of environments look at.

Policies decode elsewhere (:mod:`rl4co.decoding.rollout`), without keeping states; here every state
is kept, and an episode that goes wrong is returned as far as it got.
"""

from __future__ import annotations

import copy
import dataclasses
import traceback

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import InvalidSolutionError, format_indices
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase

# Files that no fault of an environment comes from.
_CHECKERS = (str(Path(__file__).parent), str(Path(__file__).parents[1] / "checks.py"))

# Sums in another order, as in a batch of another size, differ by rounding.
_RTOL, _ATOL = 1e-4, 1e-5


@dataclasses.dataclass(frozen=True)
class Episode:
    """A random rollout of a batch.

    Attributes:
        instances: What was reset.
        states: T + 1 states, the one after reset first.
        actions: `[B, T]`.
        bounds: `env.step_bounds` of the initial state.
    """

    instances: TensorDict
    states: list[TensorDict]
    actions: Tensor
    bounds: tuple[int, int]

    @property
    def initial(self) -> TensorDict:
        """State after reset."""
        return self.states[0]

    @property
    def complete(self) -> bool:
        """Whether every instance is done."""
        return bool(self.states[-1]["done"].all())

    @property
    def lengths(self) -> list[int]:
        """Steps until each instance is done for the first time; T if it never is."""
        done = torch.stack([state["done"].squeeze(-1) for state in self.states], -1)  # [B, T + 1]
        first = done.long().argmax(-1)
        return torch.where(done.any(-1), first, done.shape[-1] - 1).tolist()


def record_episode(env: RL4COEnvBase, instances: TensorDict, rng: torch.Generator) -> Episode:
    """Random allowed actions until all instances are done, stuck, or out of steps."""
    state = env.reset(instances)
    bounds = env.step_bounds(dict(state.items()))
    states, actions = [state], list[Tensor]()
    while len(actions) < bounds[1] and not (state["done"].all() or is_stuck(state).any()):
        actions.append(random_action(state["action_mask"], rng))
        state = take_action(env, state, actions[-1])
        states.append(state)
    empty = torch.empty(*instances.batch_size, 0, dtype=torch.int64, device=instances.device)
    return Episode(instances, states, torch.stack(actions, -1) if actions else empty, bounds)


def replay_actions(
    env: RL4COEnvBase, instances: TensorDictBase, actions: Tensor
) -> list[TensorDict]:
    """The states along given actions `[*B, T]`."""
    states = [env.reset(instances)]
    for action in actions.unbind(-1):
        states.append(take_action(env, states[-1], action))
    return states


def take_action(env: RL4COEnvBase, state: TensorDictBase, action: Tensor) -> TensorDict:
    """The state after an action `[*B]`; the given state is not touched."""
    return env.step(state.copy().set("action", action))["next"]


def random_action(mask: Tensor, rng: torch.Generator) -> Tensor:
    """A random allowed action per row (0 where there is none): `[*B, N]` → `[*B]`."""
    score = torch.rand(mask.shape, generator=rng).to(mask.device)
    return score.masked_fill(~mask.bool(), -1.0).argmax(-1)


def is_stuck(state: TensorDictBase) -> Tensor:
    """Unfinished instances without an allowed action: `[*B]`."""
    return ~state["action_mask"].bool().any(-1) & ~state["done"].bool().squeeze(-1)


def is_close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and values (floats up to rounding)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(a, b, rtol=_RTOL, atol=_ATOL, equal_nan=True)


def differing_keys(a: TensorDictBase, b: TensorDictBase) -> list[str]:
    """Keys that only one side has or whose values differ; the action itself does not count."""
    ours, theirs = dict(a.items()), dict(b.items())
    keys = sorted({*ours, *theirs} - {"action"})
    return [k for k in keys if k not in ours or k not in theirs or not is_close(ours[k], theirs[k])]


def first_difference(
    ours: Sequence[TensorDictBase], theirs: Sequence[TensorDictBase]
) -> tuple[int, list[str]] | None:
    """First step at which two recordings disagree, with the keys on which they do."""
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if keys := differing_keys(a, b):
            return step, keys
    return None


@dataclasses.dataclass(frozen=True)
class Probe:
    """Everything that the rules look at.

    Attributes:
        env: Private copy of the environment that steps in the library's way and checks nothing.
        episodes: Random rollouts of different instances.
        seed: Seed of everything random.
    """

    env: RL4COEnvBase
    episodes: list[Episode]
    seed: int

    @classmethod
    def of(cls, env: RL4COEnvBase, batch_size: int, num_rollouts: int, seed: int) -> Probe:
        """Copies the environment and records random rollouts."""
        bare = configured(
            env, _torchrl_mode=False, check_solution=False, check_instance=False, check_action=False
        )
        episodes = []
        for index in range(num_rollouts):
            rng = derive_generator(seed, "episode", index)
            instances = env.generator(batch_size, rng=rng).to(env.device)
            env.check_instances(instances)
            episodes.append(record_episode(bare, instances, rng))
        return cls(bare, episodes, seed)

    @property
    def solved(self) -> list[Episode]:
        """Episodes with complete solutions; the rule `ends` reports the others."""
        return [episode for episode in self.episodes if episode.complete]

    def rng(self, purpose: str) -> torch.Generator:
        """A random stream."""
        return derive_generator(self.seed, purpose)

    def reward(self, state: TensorDictBase, actions: Tensor) -> Tensor:
        """Reward without a validity check."""
        return self.env.get_reward(state, actions, check_solution=False)

    def violation(self, state: TensorDictBase, actions: Tensor) -> InvalidSolutionError | None:
        """What the validity check says against solutions, if anything."""
        try:
            self.env.check_solution_validity(state, actions)
        except InvalidSolutionError as error:
            return error
        return None


def configured(env: RL4COEnvBase, **settings: Any) -> RL4COEnvBase:
    """A copy of the environment with other settings."""
    twin = copy.copy(env)
    for name, value in settings.items():
        setattr(twin, name, value)
    return twin


Findings: TypeAlias = Iterator[str]
Check: TypeAlias = Callable[[Probe], Findings]
EpisodeCheck: TypeAlias = Callable[[Probe, Episode], Findings]


def each_episode(check: EpisodeCheck) -> Check:
    """A rule on single episodes, applied to all; one counterexample is enough."""

    def run(probe: Probe) -> Findings:
        for episode in probe.episodes:
            finding = next(check(probe, episode), None)
            if finding is not None:
                yield finding
                return

    return run


def each_solution(check: EpisodeCheck) -> Check:
    """A rule on complete solutions, applied to all; one counterexample is enough."""

    def run(probe: Probe) -> Findings:
        return each_episode(check)(dataclasses.replace(probe, episodes=probe.solved))

    return run


def where(flags: Tensor) -> str:
    """The flagged instances: `[*B]` or `[*B, 1]` → text."""
    return f"instances {format_indices(flags.flatten().nonzero().flatten().tolist())}"


def quoted(keys: Iterable[str]) -> str:
    """Keys as text."""
    return ", ".join(repr(key) for key in keys) or "nothing"


def describe(error: BaseException) -> str:
    """An exception in one line, with the place in the environment's code from which it came."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith(_CHECKERS)
    ]
    place = ""
    if frames:
        place = f" in {frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}{place}" + (f": {text[0]}" if text else "")
