"""Decision traces: what a policy considers at every step of the construction of a solution.

    decisions = decision_trace(policy, td, env)                            # greedy
    decisions = decision_trace(policy, td, env, actions=solution)          # of a known solution
    decisions = decision_trace(policy, td, env, forced=[0, 7], forbidden=[5])  # what if

The trace is recorded by a decoding strategy, in the decode loop of the library.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, InvalidActionError, UnsupportedError
from rl4co.core.modes import evaluating
from rl4co.core.ops import gather_nodes
from rl4co.core.rng import derive_generator
from rl4co.data.formats import Benchmark
from rl4co.decoding.rollout import DecodingTask
from rl4co.decoding.strategies import (
    Decision,
    DecodeType,
    DecodingStrategy,
    Greedy,
    get_decoding_strategy,
)
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.tasks.approaches import Answer, ByModel
from rl4co.tasks.evaluators import device_of
from rl4co.tasks.methods import EvalMethod, find_method


@dataclasses.dataclass(frozen=True)
class TracedDecision:
    """One step of the construction of a solution.

    Attributes:
        step: Number of the step, from 0.
        action: The action that was taken.
        log_prob: Its log-probability.
        probabilities: Probability of every action `[N]`.
        mask: Which actions the environment allows `[N]`.
        forced: Whether the policy did not choose the action.
    """

    step: int
    action: int
    log_prob: float
    probabilities: Tensor
    mask: Tensor
    forced: bool = False

    def candidates(self, count: int = 10) -> list[tuple[int, float]]:
        """The most likely actions with their probabilities, the best first.

        Args:
            count: How many; fewer if others are impossible.
        """
        best = self.probabilities.topk(min(count, len(self.probabilities)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [(action, probability) for action, probability in pairs if probability > 0]


class Trace(NamedTuple):
    """The decisions that led to a solution.

    Attributes:
        problem: Problem of the model, which may be more general than that of the instance.
        decisions: One for each step.
    """

    problem: str
    decisions: list[TracedDecision]


@dataclasses.dataclass(frozen=True)
class _RecordingStrategy(DecodingStrategy):
    """Chooses as another strategy and records every decision.

    Args:
        inner: The other strategy.
        prefix: First actions, which are taken as they are.
        num_forced: How many of them count as forced.
        forbidden: Actions that are not chosen in the step after the prefix.
        decisions: Receives the decisions.
    """

    inner: DecodingStrategy = dataclasses.field(default_factory=Greedy)
    prefix: Sequence[int] = ()
    num_forced: int = 0
    forbidden: Sequence[int] = ()
    decisions: list[TracedDecision] = dataclasses.field(default_factory=list)

    def filter(self, logits: Tensor, mask: Tensor) -> Tensor:
        return self.inner.filter(logits, mask)

    def decide(
        self, task: DecodingTask, logits: Tensor, step: int, state: Mapping[str, Tensor]
    ) -> Decision:
        mask = state["action_mask"]  # [1, 1, N]
        if mask[..., 0].numel() != 1:
            raise UnsupportedError(
                "expected a policy that constructs one solution at a time to trace its decisions, "
                f"got one that constructs {mask[..., 0].numel()}; trace another policy"
            )
        if step < len(self.prefix):
            _require_allowed(mask, self.prefix[step], step)
            filtered = self.filter(logits, mask)
            action = torch.full_like(mask[..., 0], self.prefix[step], dtype=torch.int64)
        else:
            filtered = self.filter(logits, self._without_forbidden(mask, step))
            action = self.inner.choose(filtered, step, state)
        log_prob = gather_nodes(filtered.log_softmax(-1), action)
        self.decisions.append(
            TracedDecision(
                step,
                int(action),
                float(log_prob),
                filtered.softmax(-1).flatten().float().cpu(),
                mask.flatten().cpu(),
                step < self.num_forced,
            )
        )
        return Decision(action, log_prob)

    def _without_forbidden(self, mask: Tensor, step: int) -> Tensor:
        """The mask of this step without forbidden actions."""
        if step != len(self.prefix) or not self.forbidden:
            return mask
        for action in self.forbidden:
            _require_action(mask, action)
        allowed = mask.clone()
        allowed[..., list(self.forbidden)] = False
        if not bool(allowed.any()):
            raise InvalidActionError(
                f"expected an action that is left in step {step}, got all allowed ones forbidden: "
                f"{mask.flatten().nonzero().flatten().tolist()}; forbid fewer"
            )
        return allowed


def _require_action(mask: Tensor, action: int) -> None:
    if not 0 <= action < mask.shape[-1]:
        raise InvalidActionError(
            f"expected an action from 0 to {mask.shape[-1] - 1}, got {action}; give another one"
        )


def _require_allowed(mask: Tensor, action: int, step: int) -> None:
    _require_action(mask, action)
    if not bool(mask[..., action].all()):
        allowed = mask.flatten().nonzero().flatten().tolist()
        raise InvalidActionError(
            f"expected an allowed action in step {step}, got {action}; choose one of {allowed}"
        )


def decision_trace(
    policy: nn.Module,
    td: TensorDictBase,
    env: RL4COEnvBase | str | None = None,
    *,
    actions: Sequence[int] | None = None,
    forced: Sequence[int] = (),
    forbidden: Sequence[int] = (),
    decode_type: DecodeType = "greedy",
    **settings: Any,
) -> list[TracedDecision]:
    """The decisions by which a policy constructs one solution.

    Args:
        policy: A constructive policy.
        td: State after `env.reset` of one instance, batch `[1]`.
        env: Environment, its name, or None for the policy's default.
        actions: A known solution, whose decisions are traced; None: the policy decides.
        forced: Actions that are taken first, whatever the policy prefers. With `actions`, the first
            of them that the policy did not choose.
        forbidden: Actions that the policy must not choose in the step after these.
        decode_type: How the policy chooses: greedy, sampling or a custom strategy.
        settings: Settings of the strategy: `temperature`, `top_k`, `rng`, ...

    Returns:
        One decision for each step.

    Raises:
        InvalidActionError: A forced action is not allowed, or all allowed ones are forbidden.
        UnsupportedError: The policy or the strategy does not decide step by step.
    """
    if not isinstance(policy, ConstructivePolicy):
        raise UnsupportedError(
            "expected a policy that constructs solutions to trace its decisions, got a "
            f"{type(policy).__name__}"
        )
    if td.batch_size != torch.Size([1]):
        raise ConfigError(
            f"expected the state of one instance, batch [1], got {list(td.batch_size)}"
        )
    if actions is not None and forbidden:
        raise ConfigError("expected actions or forbidden ones, got both; leave out one of them")
    strategy = policy.resolve_strategy("test", decode_type, None, 1, settings)
    decides = type(strategy).run is DecodingStrategy.run and strategy.fixed_choice is None
    if not decides or strategy.multistart or strategy.num_samples > 1:
        raise UnsupportedError(
            f"expected a strategy that decides one solution step by step, got {decode_type!r}; "
            "use greedy or sampling, or pass the actions of its best solution"
        )
    prefix = forced if actions is None else actions
    recording = _RecordingStrategy(
        inner=strategy, prefix=prefix, num_forced=len(forced), forbidden=forbidden
    )
    with torch.no_grad(), evaluating(policy):
        out = policy(td, env, phase="test", decode_type=recording, calc_reward=False)
    return recording.decisions[: out["actions"].shape[-1]]


@dataclasses.dataclass(frozen=True)
class ByTracedModel(ByModel):
    """Solutions by a trained policy, with the decisions that lead to them as their trace.

    With `forced` or `forbidden` actions, the method is greedy or sampling of one solution.

    Args:
        policy: See :class:`~rl4co.tasks.approaches.ByModel`.
        env: See :class:`~rl4co.tasks.approaches.ByModel`.
        method: See :class:`~rl4co.tasks.approaches.ByModel`.
        options: See :class:`~rl4co.tasks.approaches.ByModel`.
        forced: See :func:`decision_trace`.
        forbidden: See :func:`decision_trace`.
    """

    forced: Sequence[int] = ()
    forbidden: Sequence[int] = ()
    _decisions: list[TracedDecision] = dataclasses.field(default_factory=list, repr=False)

    def __call__(self, instance: Benchmark) -> Answer:
        """See :class:`~rl4co.tasks.approaches.ByModel`."""
        recording = dataclasses.replace(self, _decisions=[])
        answer = super(ByTracedModel, recording).__call__(instance)
        return answer._replace(trace=Trace(self.env.name, recording._decisions))

    def decode(self, td: TensorDictBase, answer: Callable[[Tensor], Answer]) -> Tensor:
        """See :class:`~rl4co.tasks.approaches.ByModel`."""
        state = self.env.reset(td).to(device_of(self.policy))
        if self.forced or self.forbidden:
            decisions = self._what_if(state)
            actions = torch.tensor([[decision.action for decision in decisions]])
        else:
            actions = super().decode(td, answer)
            decisions = decision_trace(
                self.policy,
                state,
                self.env,
                actions=actions[0].tolist(),
                forced=actions[0, : self._count_starts(state)].tolist(),
            )
        self._decisions.extend(decisions)
        return actions

    def _what_if(self, state: TensorDictBase) -> list[TracedDecision]:
        options = dict(self.options)
        samples = options.pop("samples", 1)
        seed = options.pop("seed", 1234)
        if self.method not in ("greedy", "sampling") or samples != 1:
            raise ConfigError(
                "expected greedy or one sample with forced or forbidden actions, got "
                f"{self.method} with samples={samples}; use the method greedy"
            )
        if self.method == "sampling":
            options["rng"] = derive_generator(seed, "sampling", 0, device=device_of(self.policy))
        return decision_trace(
            self.policy,
            state,
            self.env,
            forced=self.forced,
            forbidden=self.forbidden,
            decode_type=self.method,
            **options,
        )

    def _count_starts(self, state: TensorDictBase) -> int:
        """How many first actions the method forces."""
        method = find_method(self.method)
        if not isinstance(method, EvalMethod):
            return 0
        starts = get_decoding_strategy(method.decode_type).forced_starts(self.env, state)
        return 0 if starts is None else starts.shape[-1]
