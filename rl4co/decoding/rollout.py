"""The decode loop: the one place that steps an environment to the end.

State lives in a plain mapping of tensors with axes `[B, S]` (instances, solutions per instance);
TensorDict appears only at the public border.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Callable, Sequence

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, InvalidActionError, format_indices
from rl4co.core.ops import any_true, gather_nodes, step_entropy
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase, State

LogitsFn = Callable[[State], Tensor]
#: State after an action → keys to change in it: what a recurrent policy remembers.
MemoryFn = Callable[[State], State]

#: Key of a trace: the actions that top-k or top-p left over. Recorded, because recomputing it would
#: move its border by rounding, and with it some chosen actions to probability zero.
SUPPORT = "support"


@dataclasses.dataclass
class Rollout:
    """What a rollout leaves behind.

    Attributes:
        actions: `[B, S, T]`.
        log_probs: Log-probabilities of the chosen actions `[B, S, T]` (None if not asked for). A
            forced start has log-probability 0.
        entropy: Entropy of the distribution at each step `[B, S, T]` (None if not asked for).
        state: Final state, axes `[B, S]`; empty if the solutions were not made step by step.
        trace: Recorded state keys, stacked over the steps chosen by the policy `[B, S, T', ...]`.
        forced: Number of leading actions that were forced (with multi-start usually 1).
    """

    actions: Tensor
    log_probs: Tensor | None
    entropy: Tensor | None
    state: State = dataclasses.field(default_factory=dict)
    trace: State = dataclasses.field(default_factory=dict)
    forced: int = 0


def expand_solutions(state: State, num_solutions: int) -> State:
    """Adds an axis of solutions per instance without copying: `[B, ...]` → `[B, S, ...]`."""
    return {
        key: value.unsqueeze(1).expand(value.shape[0], num_solutions, *value.shape[1:])
        for key, value in state.items()
    }


def step_range(
    env: RL4COEnvBase, state: State, num_steps: int | None, max_steps: int | None
) -> tuple[int, int]:
    """Fewest and most steps to take: exactly `num_steps`, or the environment's bounds."""
    if num_steps is not None:
        return num_steps, num_steps
    fewest, most = env.step_bounds(state)
    return (fewest, most) if max_steps is None else (min(fewest, max_steps), max_steps)


def decode(
    env: RL4COEnvBase,
    state: State,
    logits_fn: LogitsFn,
    strategy: DecodingStrategy,
    *,
    starts: Tensor | None = None,
    memorise: MemoryFn | None = None,
    record: Sequence[str] = (),
    with_log_probs: bool = True,
    with_entropy: bool = False,
    num_steps: int | None = None,
    max_steps: int | None = None,
) -> Rollout:
    """Constructs solutions step by step.

    Args:
        env: The environment.
        state: Initial state with axes `[B, S]`.
        logits_fn: State → logits `[B, S, N]`.
        strategy: Filters the logits and chooses actions.
        starts: First actions `[B, S, K]` forced upon the policy.
        memorise: Called with the state after each action, forced ones included; what it returns is
            carried along in the state.
        record: State keys to keep for every step that the policy decides.
        with_log_probs: Compute log-probabilities of the chosen actions.
        with_entropy: Compute the entropy of each step.
        num_steps: Exact number of steps; skips all looks at `done`.
        max_steps: Stop with an error after this many steps (default: the environment's bound).
    """
    fewest, most = step_range(env, state, num_steps, max_steps)
    actions: list[Tensor] = []
    log_probs: list[Tensor] = []
    entropies: list[Tensor] = []
    trace: dict[str, list[Tensor]] = {key: [] for key in record}
    if record and strategy.truncates:
        trace[SUPPORT] = []

    for action in () if starts is None else starts.unbind(-1):
        actions.append(action)
        log_probs.append(torch.zeros(action.shape, device=action.device))
        entropies.append(log_probs[0])
        state = advance(env, state, action, memorise)

    for step in range(len(actions), most):
        # Looking at `done` synchronises with the device: not before the shortest solution ends.
        if step >= fewest and fewest < most and all_finished(env, state):
            break
        logits = strategy.filter(logits_fn(state), state["action_mask"])
        action = strategy.choose(logits, step, state)
        actions.append(action)
        for key, values in trace.items():
            values.append(logits > -torch.inf if key == SUPPORT else state[key])
        if with_log_probs or with_entropy:
            normalised = logits.log_softmax(-1)
            log_probs.append(gather_nodes(normalised, action))
            if with_entropy:
                entropies.append(step_entropy(normalised))
        state = advance(env, state, action, memorise)
    else:
        if num_steps is None:
            require_finished(env, state, most)

    return Rollout(
        actions=torch.stack(actions, -1),  # [B, S, T]
        log_probs=torch.stack(log_probs, -1) if with_log_probs else None,
        entropy=torch.stack(entropies, -1) if with_entropy else None,
        state=state,
        trace=_stack(trace, state),
        forced=0 if starts is None else starts.shape[-1],
    )


def advance(env: RL4COEnvBase, state: State, action: Tensor, memorise: MemoryFn | None) -> State:
    """One step of the environment and, if there is one, of the policy's memory."""
    state = env.advance(state, action)
    if memorise is not None:
        state.update(memorise(state))  # `advance` returned a mapping of its own
    return state


def _stack(trace: dict[str, list[Tensor]], state: State) -> State:
    """Stacks recorded values over steps; without any step, tensors without steps."""
    if not all(trace.values()):
        return {key: state[key].unsqueeze(2)[:, :, :0] for key in trace if key in state}
    return {key: _stack_steps(values) for key, values in trace.items()}


def _stack_steps(values: list[Tensor]) -> Tensor:
    """Values of all steps `[B, S, T, ...]`; what no step changed (a matrix, say) is not copied."""
    first = values[0]  # [B, S, ...]
    if all(value is first for value in values):
        return first.unsqueeze(2).expand(*first.shape[:2], len(values), *first.shape[2:])
    return torch.stack(values, 2)


def walk(
    env: RL4COEnvBase,
    state: State,
    actions: Tensor,
    *,
    record: Sequence[str] = (),
    forced: int = 0,
) -> Rollout:
    """Follows given actions through the environment, to record what the policy would have seen.

    Args:
        env: The environment.
        state: Initial state with axes `[B, S]`.
        actions: `[B, S, T]`.
        record: State keys to keep for every step after the forced ones.
        forced: Number of leading actions that the policy does not answer for.
    """
    trace: dict[str, list[Tensor]] = {key: [] for key in record}
    for step, action in enumerate(actions.unbind(-1)):
        if step >= forced:
            for key, values in trace.items():
                values.append(state[key])
        state = env.advance(state, action)
    return Rollout(
        actions=actions,
        log_probs=None,
        entropy=None,
        state=state,
        trace=_stack(trace, state),
        forced=forced,
    )


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
    """Whether every instance is done; refuses states from which there is no way on."""
    if bool(state["done"].all()):
        return True
    _refuse_stuck(env, is_stuck(state))
    return False


def refuse_dead_ends(env: RL4COEnvBase, state: State, actions: Tensor) -> None:
    """Raises if allowed actions lead to an unfinished state that allows none.

    What a rollout with a known number of steps does not look for; NaN logits are what it leaves.

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
    _refuse_stuck(env, is_stuck(state))
    for action in actions.unbind(-1):
        allowed = allowed & (state["action_mask"].gather(-1, action.unsqueeze(-1)) | state["done"])
        if not bool(allowed.any()):  # chosen by NaN: what follows is nobody's fault
            return
        state = env.advance(state, action)
        _refuse_stuck(env, is_stuck(state) & allowed)


def is_stuck(state: State) -> Tensor:
    """Unfinished states that allow no action: `[*B, 1]`."""
    return ~(any_true(state["action_mask"]) | state["done"])


def require_finished(env: RL4COEnvBase, state: State, steps: int) -> None:
    """Raises unless every instance is done after `steps` steps."""
    if not all_finished(env, state):
        raise InvalidActionError(
            f"expected all {env.name} instances to finish within {steps} steps, got unfinished "
            f"instances {_instances(~state['done'])}"
        )


def _refuse_stuck(env: RL4COEnvBase, stuck: Tensor) -> None:
    if bool(stuck.any()):
        raise InvalidActionError(
            f"expected an allowed action in every unfinished {env.name} state, got none in "
            f"instances {_instances(stuck)}; the instance is infeasible or the mask is wrong"
        )


def _instances(flags: Tensor) -> str:
    """Instances (rows of the batch) for which any solution is flagged."""
    flagged = flags.flatten(1).any(-1) if flags.dim() > 1 else flags
    return format_indices(flagged.nonzero().flatten().tolist())
