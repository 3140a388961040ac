"""The decode loop: the one place that steps an environment to the end.

State lives in a plain mapping of tensors with axes `[B, S]` (instances, solutions per instance);
TensorDict appears only in the public interface.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co import kernels
from rl4co.core.errors import ConfigError, InvalidActionError, format_indices
from rl4co.core.ops import any_true, gather_nodes
from rl4co.decoding.logits import sample_weights
from rl4co.envs.base import RL4COEnvBase, State

if TYPE_CHECKING:
    from rl4co.decoding.strategies import DecodingStrategy

LogitsFn = Callable[[State], Tensor]
#: State after an action → keys to change in it: the memory of a recurrent policy.
MemoryFn = Callable[[State], State]

#: Key of a trace: the actions that top-k or top-p kept. Recorded, because recomputing it would
#: move its border by rounding, and with it some chosen actions to probability zero.
SUPPORT = "support"


@dataclasses.dataclass
class Rollout:
    """The solutions that a strategy constructed.

    Attributes:
        actions: `[B, S, T]`.
        log_probs: Log-probabilities of the chosen actions `[B, S, T]` (None if not asked for). A
            forced start has log-probability 0.
        entropy: Entropy of the distribution at each step `[B, S, T]` (None if not asked for).
        state: Final state, axes `[B, S]`; empty if the solutions were not made step by step.
        trace: Recorded state keys, stacked over the steps chosen by the policy `[B, S, T', ...]`.
        forced: Number of leading actions that were forced (with multi-start usually 1).
        first_logits: Logits of the first chosen actions `[B, S]`, where `log_probs` is None.
    """

    actions: Tensor
    log_probs: Tensor | None = None
    entropy: Tensor | None = None
    state: State = dataclasses.field(default_factory=dict)
    trace: State = dataclasses.field(default_factory=dict)
    forced: int = 0
    first_logits: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class DecodingTask:
    """What a strategy decodes: initial states, the policy's logits, and the results wanted.

    Attributes:
        env: The environment.
        state: Initial state with axes `[B, S]`.
        logits: State → logits `[B, S, N]`.
        memorise: Called with the state after each action, forced ones included; the keys that it
            returns are carried along in the state. None: the policy has no memory.
        memory_keys: Keys of the state that belong to the policy's memory.
        starts: First actions that are forced, `[B, S]` each.
        record: State keys to keep for every step that the policy decides.
        with_log_probs: Whether log-probabilities of the chosen actions are wanted.
        with_entropy: Whether the entropy of each step is wanted.
        num_steps: Exact number of steps (`done` is never looked at), or None.
        max_steps: Raise an error after this many steps (default: the environment's bound).
    """

    env: RL4COEnvBase
    state: State
    logits: LogitsFn
    memorise: MemoryFn | None = None
    memory_keys: tuple[str, ...] = ()
    starts: tuple[Tensor, ...] = ()
    record: tuple[str, ...] = ()
    with_log_probs: bool = True
    with_entropy: bool = False
    num_steps: int | None = None
    max_steps: int | None = None

    def step_range(self) -> tuple[int, int]:
        """Fewest and most steps to take: exactly `num_steps`, or the environment's bounds."""
        if self.num_steps is not None:
            return self.num_steps, self.num_steps
        fewest, most = self.env.step_bounds(self.state)
        if self.max_steps is None:
            return fewest, most
        return min(fewest, self.max_steps), self.max_steps

    def advance(self, state: State, action: Tensor) -> State:
        """One step of the environment and, if there is one, of the policy's memory."""
        state = self.env.advance(state, action)
        if self.memorise is not None:
            state.update(self.memorise(state))  # `env.advance` returned a new mapping
        return state


def expand_solutions(state: State, num_solutions: int) -> State:
    """Adds an axis of solutions per instance without copying: `[B, ...]` → `[B, S, ...]`."""
    return {
        key: value.unsqueeze(1).expand(value.shape[0], num_solutions, *value.shape[1:])
        for key, value in state.items()
    }


def decode(task: DecodingTask, strategy: DecodingStrategy) -> Rollout:
    """Constructs solutions step by step.

    Args:
        task: What is decoded.
        strategy: Chooses the actions.
    """
    state, forced, end = task.state, len(task.starts), EndOfEpisode(task)
    actions: list[Tensor] = []  # [B, S] each
    log_probs: list[Any] = []
    entropies: list[Any] = []
    records: list[State] = []  # what the replay needs of each step
    first_logits = None
    for action in task.starts:
        actions.append(action)
        log_probs.append(torch.zeros(action.shape, device=action.device))
        entropies.append(log_probs[-1])
        state = task.advance(state, action)

    while not end.is_reached(len(actions), state):
        logits = task.logits(state)
        decision = strategy.decide(task, logits, len(actions), state)
        if first_logits is None and not task.with_log_probs:
            first_logits = gather_nodes(logits, decision.action)
        actions.append(decision.action)
        log_probs.append(decision.log_prob)
        entropies.append(decision.entropy)
        record = {key: state[key] for key in task.record}
        if decision.support is not None:
            record[SUPPORT] = decision.support
        records.append(record)
        state = task.advance(state, decision.action)

    last = len(actions) - end.surplus
    return Rollout(
        actions=torch.stack(actions[:last], -1),
        log_probs=torch.stack(log_probs[:last], -1) if task.with_log_probs else None,
        entropy=torch.stack(entropies[:last], -1) if task.with_entropy else None,
        state=state,
        trace=_stack_records(records[: last - forced], task.record, state),
        forced=forced,
        first_logits=first_logits,
    )


def follow(
    env: RL4COEnvBase, state: State, actions: Tensor, record: tuple[str, ...] = (), forced: int = 0
) -> Rollout:
    """Follows known actions through the environment and records what the policy would have seen.

    Args:
        env: The environment.
        state: Initial state with axes `[B, S]`.
        actions: `[B, S, T]`.
        record: State keys to keep for every step after the forced ones.
        forced: Number of leading actions that are forced.
    """
    records: list[State] = []
    for step, action in enumerate(actions.unbind(-1)):
        if step >= forced:
            records.append({key: state[key] for key in record})
        state = env.advance(state, action)
    return Rollout(
        actions, state=state, trace=_stack_records(records, record, state), forced=forced
    )


def _stack_records(records: list[State], keys: tuple[str, ...], final: State) -> State:
    """Recorded values of all steps `[B, S, T, ...]`; of none, tensors without steps."""
    if not records:
        return {key: final[key].unsqueeze(2)[:, :, :0] for key in keys if key in final}
    return {key: _stack_steps([record[key] for record in records]) for key in records[0]}


def _stack_steps(values: list[Tensor]) -> Tensor:
    """Values of all steps `[B, S, T, ...]`; what no step changed (a matrix, say) is not copied."""
    first = values[0]  # [B, S, ...]
    if all(value is first for value in values):
        return first.unsqueeze(2).expand(*first.shape[:2], len(values), *first.shape[2:])
    return torch.stack(values, 2)


class EndOfEpisode:
    """Decides when all solutions are complete.

    Looking at `done` waits for the device. Where that is slow, the loop looks at growing intervals,
    and the steps that it takes after the end are :attr:`surplus`.

    Args:
        task: What is decoded.
    """

    def __init__(self, task: DecodingTask) -> None:
        self.task = task
        self.fewest, self.most = task.step_range()
        self._next_look = self.fewest
        self._done_since_look: list[Tensor] = []

    def is_reached(self, step: int, state: State) -> bool:
        """Whether to stop before this step.

        Raises:
            InvalidActionError: If the last step was taken and some solution is not complete.
        """
        if self.fewest < self.most and step >= self.fewest:
            self._done_since_look.append(state["done"])
        if step >= self.most:
            if self.task.num_steps is None:
                require_finished(self.task.env, state, self.most)
            return True
        if step < self.fewest or self.fewest == self.most:
            return False
        if step < self._next_look and kernels.waits_for_device(state["done"]):
            return False
        if all_finished(self.task.env, state):
            return True
        self._next_look = step + max(1, self.fewest // 8, step - self.fewest)
        self._done_since_look.clear()
        return False

    @property
    def surplus(self) -> int:
        """Steps that were taken after all solutions were complete."""
        if len(self._done_since_look) < 2:
            return 0
        complete = torch.stack(self._done_since_look).flatten(1).all(1)  # [steps since the look]
        return max(int(complete.sum()) - 1, 0)


def rollout(
    env: RL4COEnvBase,
    td: TensorDictBase,
    policy: Callable[[TensorDictBase], TensorDictBase],
    max_steps: int | None = None,
) -> tuple[Tensor, TensorDictBase, Tensor]:
    """Runs any callable that writes `td["action"]`, for heuristics and random rollouts.

    Args:
        env: The environment.
        td: State after `env.reset`; not modified.
        policy: Maps a state to a state with an action.
        max_steps: Stop with an error after this many steps (default: the environment's bound).

    Returns:
        Reward `[*B]`, final state, actions `[*B, T]`.
    """
    initial = td
    td = td.copy()
    fewest, most = env.step_bounds(dict(td.items()))
    most = most if max_steps is None else max_steps
    actions: list[Tensor] = []
    while len(actions) < fewest or not all_finished(env, dict(td.items())):
        if len(actions) == most:
            require_finished(env, dict(td.items()), most)
            break
        td = policy(td)
        actions.append(td["action"])
        new_state = env.advance(dict(td.items()), td["action"])
        td.update({key: value for key, value in new_state.items() if td.get(key) is not value})
    sequence = torch.stack(actions, -1)
    return env.get_reward(td if env.scores_final_states else initial, sequence), td, sequence


def random_policy(td: TensorDictBase) -> TensorDictBase:
    """Writes an allowed action, drawn uniformly, to `td["action"]`."""
    if "action_mask" not in td.keys():
        raise ConfigError(
            "expected a state with an action_mask, got none; where solutions are improved, "
            "env.rand_action is a random policy"
        )
    return td.set("action", sample_weights(td["action_mask"].float()))


def all_finished(env: RL4COEnvBase, state: State) -> bool:
    """Whether every instance is done; raises for unfinished states that allow no action."""
    dead_end = is_dead_end(state)
    # One look at the device for both.
    finished, stuck = torch.stack([state["done"].all(), dead_end.any()]).tolist()
    if stuck:
        _reject_dead_ends(env, dead_end)
    return finished


def check_for_dead_ends(env: RL4COEnvBase, state: State, actions: Tensor) -> None:
    """Raises if allowed actions lead to an unfinished state that allows none.

    A rollout with a known number of steps does not check this; its logits are NaN then.

    Args:
        env: The environment.
        state: Initial state with axes `[B, S]`, the same for all solutions of an instance.
        actions: What was chosen, `[B, S', T]`.
    """
    width = actions.shape[1]
    state = {
        key: value[:, :1].expand(-1, width, *value.shape[2:])  # [B, S', ...]
        for key, value in state.items()
    }
    allowed = torch.ones_like(state["done"])  # [B, S', 1], whether all actions so far were
    _reject_dead_ends(env, is_dead_end(state))
    for action in actions.unbind(-1):
        allowed = allowed & (state["action_mask"].gather(-1, action.unsqueeze(-1)) | state["done"])
        if not bool(allowed.any()):  # chosen by NaN: later states are not the environment's fault
            return
        state = env.advance(state, action)
        _reject_dead_ends(env, is_dead_end(state) & allowed)


def is_dead_end(state: State) -> Tensor:
    """Unfinished states that allow no action: `[*B, 1]`."""
    return ~(any_true(state["action_mask"]) | state["done"])


def require_finished(env: RL4COEnvBase, state: State, steps: int) -> None:
    """Raises unless every instance is done after `steps` steps."""
    if not all_finished(env, state):
        raise InvalidActionError(
            f"expected all {env.name} instances to finish within {steps} steps, got unfinished "
            f"instances {_instances(~state['done'])}"
        )


def _reject_dead_ends(env: RL4COEnvBase, dead_end: Tensor) -> None:
    if bool(dead_end.any()):
        raise InvalidActionError(
            f"expected an allowed action in every unfinished {env.name} state, got none in "
            f"instances {_instances(dead_end)}; the instance is infeasible or the mask is wrong"
        )


def _instances(flags: Tensor) -> str:
    """Instances (rows of the batch) for which any solution is flagged."""
    flagged = flags.flatten(1).any(-1) if flags.dim() > 1 else flags
    return format_indices(flagged.nonzero().flatten().tolist())
