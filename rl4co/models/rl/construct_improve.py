"""Construction and improvement in one training.

Improvement policies are usually trained from random solutions and then used on those of a
constructive policy, which look different. Here both learn side by side: what one constructs, the
other improves.
"""

from __future__ import annotations

import functools

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.modes import evaluating
from rl4co.core.ops import unbatchify, unbatchify_and_gather
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.hooks import State
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.models.rl.losses import reinforce_loss
from rl4co.models.rl.n_step_ppo import n_step_PPO


class ConstructAndImprove(n_step_PPO):
    """A constructive and an improvement policy that learn alternately from the same instances.

    Of each batch, the constructive policy makes a solution from every start and learns by
    REINFORCE, with their mean as baseline, as POMO does. The improvement policy begins with the
    best of them and learns by n-step PPO, without warm-up moves unless asked for. Validation and
    test construct greedily from every start.

    Args:
        env: Improvement environment; solutions are constructed in its `constructive_env`.
        constructor: Constructive policy of the same problem.
        lr_constructor: Its learning rate.
        curriculum: See :class:`n_step_PPO`; solutions that were constructed are hard to improve
            from the beginning.
        kwargs: Further arguments, and those not listed here: see :class:`n_step_PPO`.
    """

    default_metrics = {
        **n_step_PPO.default_metrics,
        "train": (*n_step_PPO.default_metrics["train"], "constructed"),
    }

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        constructor: nn.Module,
        lr_constructor: float = 1e-4,
        curriculum: str = "none",
        **kwargs: Any,
    ) -> None:
        super().__init__(env, policy, curriculum=curriculum, **kwargs)
        if isinstance(constructor, ImprovementPolicy) or not isinstance(constructor, nn.Module):
            raise ConfigError(
                "expected a constructor that makes solutions from nothing, got a "
                f"{type(constructor).__name__}; use for example an AttentionModelPolicy"
            )
        problem = self._env.constructive_env.name
        if getattr(constructor, "env_name", problem) != problem:
            raise ConfigError(
                f"expected a constructor for {problem}, whose solutions {env.name} improves, got "
                f"one for {constructor.env_name}"
            )
        self.constructor, self.lr_constructor = constructor, lr_constructor

    def first_state(
        self, batch: TensorDictBase, rng: torch.Generator, is_learning: bool = False
    ) -> State:
        """The state with constructed solutions, from which the constructor may learn."""
        initial = functools.partial(self.construct, rng=rng, is_learning=is_learning)
        return dict(self._env.reset(batch, initial=initial, rng=rng).items())

    def construct(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        phase: str,
        rng: torch.Generator,
        is_learning: bool,
    ) -> dict[str, Tensor]:
        """The `actions` of the best start of each instance `[B, T]`; a first solution for `reset`.

        Args:
            td: Reset state of the constructive environment.
            env: That environment.
            phase: Not looked at; `reset` says "test".
            rng: Random stream of the actions.
            is_learning: Whether to sample and learn, rather than to be greedy.
        """
        starts = env.get_num_starts(td)
        decoding = {"num_starts": starts, "rng": rng}
        if is_learning:
            sampled = {"phase": "train", "decode_type": "multistart_sampling"}
            with torch.enable_grad():  # first solutions are otherwise made without
                out = self.constructor(td, env, **sampled, **decoding)
                reward = unbatchify(out["reward"], starts)  # [B, S]
                advantage = reward - reward.mean(1, keepdim=True)
                self.update_weights(
                    reinforce_loss(advantage, unbatchify(out["log_likelihood"], starts))
                )
        else:
            with torch.no_grad(), evaluating(self.constructor):
                greedy = {"phase": "test", "decode_type": "multistart_greedy"}
                out = self.constructor(td, env, **greedy, **decoding)
            reward = unbatchify(out["reward"], starts)
        return {"actions": unbatchify_and_gather(out["actions"], reward.argmax(1), starts)}

    def _learn(self, state: State, rng: torch.Generator | None) -> dict[str, Any]:
        return {**super()._learn(state, rng), "constructed": -state["cost_bsf"]}

    def trainable_parameters(self) -> list[Any]:
        """The weights of actor, critic and constructor, each with its learning rate."""
        constructor_ids = {id(weight) for weight in self.constructor.parameters()}
        actor, critic = super().trainable_parameters()
        actor["params"] = [
            weight for weight in actor["params"] if id(weight) not in constructor_ids
        ]
        constructor_weights = [
            weight for weight in self.constructor.parameters() if weight.requires_grad
        ]
        return [actor, critic, {"params": constructor_weights, "lr": self.lr_constructor}]
