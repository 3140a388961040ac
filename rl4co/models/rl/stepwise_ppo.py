"""Proximal policy optimization of single steps, for environments with dense rewards.

Every step is one action, with its own state, reward and advantage. Policies that look at
the state afresh in every step (L2D and its relatives) are trained this way, and so can others be.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
import torch.distributed as dist

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.rl.inner_loop import InnerLoop
from rl4co.models.rl.losses import (
    clipped_surrogate_loss,
    critic_loss,
    generalized_advantages,
    probability_ratio,
    standardize,
)
from rl4co.models.rl.ppo import PPO_METRICS, check_ppo, mean_metrics, policy_shift
from rl4co.models.rl.processes import num_processes
from rl4co.models.rl.reward_scaling import RewardScaler
from rl4co.models.rl.stepwise_policy import StepwiseConstructivePolicy
from rl4co.models.rl.transitions import INSTANCE, TransitionBuffer

#: Keys of a transition that are not part of its state; the last one is TorchRL mode's record of
#: actions, which the decode loop does not fill.
_OUTCOME = ("action", "reward", "solution")
_BUFFER_KEY = "transitions"


class StepwisePolicy(Protocol):
    """What :class:`StepwisePPO` requires of a policy: to act in a state, and to evaluate an action.

    A policy for it is an `nn.Module` with these methods. Both see one state per row, which may
    come from any step of any instance, so they must compute everything from the state itself:
    nothing may be kept between the steps of a rollout. Their log-probabilities must be those of
    the same distribution.
    """

    def act(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        phase: str = "train",
        rng: torch.Generator | None = None,
    ) -> TensorDictBase:
        """Chooses an action in each state; called without gradients.

        Args:
            td: States, batch `[B]`. It is a shallow copy: keys may be set, tensors must not be
                written into.
            env: The environment.
            phase: "train" samples, "val" and "test" may choose the best.
            rng: Random stream of sampling.

        Returns:
            A TensorDict (it may be `td`) with `action [B]` and, in training, `logprobs [B]`, the
            log-probability of the action, and `value [B]`, the estimate of the rewards to come.
            Without `value`, :meth:`evaluate` is asked for it.
        """
        ...

    def evaluate(self, td: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        """Evaluates the actions in `td`, differentiable.

        Args:
            td: States with `action [B]`.

        Returns:
            Log-probability of the action, value of the state, entropy of the distribution over
            actions: `[B]` each.
        """
        ...

    def __call__(self, td: TensorDictBase, env: RL4COEnvBase, **options: Any) -> dict[str, Any]:
        """Solves reset instances, for validation and test: a dict with `reward`, as all policies.

        The decode loop of constructive policies serves, or :func:`solve_by_acting`.
        """
        ...


@torch.no_grad()
def solve_by_acting(
    policy: StepwisePolicy,
    td: TensorDictBase,
    env: RL4COEnvBase,
    phase: str = "test",
    rng: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Solutions by calls of `act` alone: `reward [B]` and `actions [B, T]`."""

    def act(state: TensorDictBase) -> TensorDictBase:
        return state.set("action", policy.act(state.copy(), env, phase=phase, rng=rng)["action"])

    reward, _, actions = rollout(env, td, act)
    return {"reward": reward, "actions": actions}


class StepwisePPO(InnerLoop):
    """Proximal policy optimization of single steps.

    $$L = -E_t\\left[\\min\\left(r_t A_t, \\mathrm{clip}(r_t, 1 - \\epsilon, 1 + \\epsilon) A_t
      \\right)\\right] + \\lambda_V E_t\\left[(V(s_t) - G_t)^2\\right] - \\lambda_H E_t[H_t],
      \\qquad r_t = \\frac{\\pi(a_t | s_t)}{\\pi_{old}(a_t | s_t)}$$

    with generalized advantages $A_t$ and $G_t = A_t + V_{old}(s_t)$. Steps in which a finished
    instance waits for its batch mates are left out.

    Args:
        env: Environment with dense rewards.
        policy: Policy with `act` and `evaluate`, see :class:`StepwisePolicy`, or a constructive
            policy, which becomes a :class:`StepwiseConstructivePolicy`.
        clip_range: $\\epsilon$.
        update_timestep: Batches that are solved before an update. An epoch's last batch is always
            followed by one.
        buffer_size: Most transitions to hold until an update.
        ppo_epochs: Inner epochs.
        batch_size: Instances per batch.
        mini_batch_size: Transitions per update: a number, or a share of all.
        vf_lambda: Weight $\\lambda_V$ of the value's loss.
        entropy_lambda: Weight $\\lambda_H$ of the entropy.
        max_grad_norm: Largest norm of the gradient; None does not clip.
        buffer_storage_device: Device that holds the transitions; None or "gpu": that of training.
        reward_scale: None, a number to divide rewards by, "norm" or "scale" (running statistics).
        gamma: Discount of later rewards; 0: a step counts by its own reward alone.
        gae_lambda: Weight of longer estimates of the advantage.
        normalize_adv: Whether the advantages of a mini-batch are standardised.
        kwargs: See :class:`~rl4co.models.rl.base.RL4COLitModule`.
    """

    default_metrics = {"train": ("reward", *PPO_METRICS)}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        clip_range: float = 0.2,
        update_timestep: int = 1,
        buffer_size: int = 100_000,
        ppo_epochs: int = 2,
        batch_size: int = 256,
        mini_batch_size: int | float = 256,
        vf_lambda: float = 0.5,
        entropy_lambda: float = 0.01,
        max_grad_norm: float | None = 0.5,
        buffer_storage_device: str | None = None,
        reward_scale: float | str | None = None,
        gamma: float = 1.0,
        gae_lambda: float = 0.95,
        normalize_adv: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(policy, ConstructivePolicy) and not hasattr(policy, "act"):
            policy = StepwiseConstructivePolicy(policy)
        super().__init__(env, policy, max_grad_norm, batch_size=batch_size, **kwargs)
        check_ppo(clip_range, ppo_epochs, mini_batch_size, vf_lambda, entropy_lambda)
        if update_timestep < 1:
            raise ConfigError(f"expected update_timestep of at least 1, got {update_timestep}")
        if not (0.0 <= gamma <= 1.0 and 0.0 <= gae_lambda <= 1.0):
            raise ConfigError(
                f"expected gamma and gae_lambda in [0, 1], got {gamma} and {gae_lambda}"
            )
        for method in ("act", "evaluate"):
            if not callable(getattr(policy, method, None)):
                raise ConfigError(
                    f"expected a stepwise policy with methods act and evaluate, got "
                    f"{type(policy).__name__} without {method}; see StepwisePolicy"
                )
        self.clip_range, self.ppo_epochs = clip_range, ppo_epochs
        self.update_timestep, self.mini_batch_size = update_timestep, mini_batch_size
        self.vf_lambda, self.entropy_lambda = vf_lambda, entropy_lambda
        self.gamma, self.gae_lambda, self.normalize_adv = gamma, gae_lambda, normalize_adv
        self.scaler = RewardScaler(reward_scale)
        device = None if buffer_storage_device == "gpu" else buffer_storage_device
        self.buffer = TransitionBuffer(buffer_size, device)
        self._rewards: list[Tensor] = []
        self._restored: list[dict[str, Any]] | None = None

    @property
    def rb(self) -> TransitionBuffer:
        """The same as `buffer`."""
        return self.buffer

    @property
    def _stepwise(self) -> StepwisePolicy:
        """The policy, for type checkers."""
        return cast(StepwisePolicy, self.policy)

    # ---------------------------------------------------------------- steps

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Solves a batch; in training also the loss of all its steps, before any update."""
        if phase == "train":
            reward = self.collect(batch, batch_idx)
            every_row = torch.arange(len(self.buffer), device=self.device)
            out = self.calculate_loss(self.buffer.get(every_row, self.device))
            out = {**out, "reward": reward}
            self.buffer.clear()
        else:
            td, rng = self.env.reset(batch), self.action_rng(phase, batch_idx)
            out = self.policy(td, self.env, phase=phase, rng=rng)
        return self.log_metrics(out, phase, dataloader_idx, batch_size=batch.batch_size[0])

    def learn(self, batch: TensorDictBase, batch_idx: int) -> dict[str, Any]:
        """Collects the transitions of a batch; updates if it is time. No metrics otherwise."""
        self._restore_transitions()
        self._rewards.append(self.collect(batch, batch_idx))
        if (batch_idx + 1) % self.update_timestep and not self.trainer.is_last_batch:
            return {}
        metrics: list[dict[str, Tensor]] = []
        for inner_epoch in range(self.ppo_epochs):
            size = self.mini_batch_size
            for rows in self.split_rows(len(self.buffer), size, batch_idx, inner_epoch):
                out = self.calculate_loss(self.buffer.get(rows, self.device))
                self.update_weights(out["loss"])
                metrics.append({key: value.detach() for key, value in out.items()})
        reward = torch.cat(self._rewards)
        self.buffer.clear()
        self._rewards.clear()
        return {**mean_metrics(metrics), "reward": reward}

    @torch.no_grad()
    def collect(self, batch: TensorDictBase, batch_idx: int) -> Tensor:
        """Solves a batch and adds its transitions to the buffer; returns the rewards `[B]`."""
        if not self.env.has_dense_reward:
            raise UnsupportedError(
                f"expected an environment with a reward at every step, got {self.env.name}; use "
                "tsp_dense, a scheduling problem with stepwise_reward=True, or PPO"
            )
        rng = self.action_rng("train", batch_idx)
        states: list[State] = []
        choices: list[TensorDictBase] = []

        def act(td: TensorDictBase) -> TensorDictBase:
            states.append(dict(td.items()))
            choices.append(self._stepwise.act(td.copy(), self.env, phase="train", rng=rng))
            return td.set("action", choices[-1]["action"])

        td = self.env.reset(batch)
        total, final, _ = rollout(self.env, td, act)
        rewards = [*(state["reward"] for state in states[1:]), final["reward"]]
        first = states[0]
        moving = [
            key
            for key in first
            if key not in _OUTCOME and any(state[key] is not first[key] for state in states)
        ]
        steps = {key: torch.stack([state[key] for state in states]) for key in moving}  # [T, B, ..]
        steps["action"] = torch.stack([choice["action"] for choice in choices])
        steps["logprobs"] = torch.stack([choice["logprobs"] for choice in choices])
        instances = {k: v for k, v in first.items() if k not in (*moving, *_OUTCOME)}
        reward = torch.stack(rewards).squeeze(-1)  # [T, B]
        done = torch.stack([state["done"] for state in states]).squeeze(-1)  # [T, B]
        reward = torch.zeros_like(reward).masked_scatter(~done, self.scaler(reward[~done]))
        value = self._values(choices, steps, instances)  # [T, B]
        advantage = generalized_advantages(reward, value, done, self.gamma, self.gae_lambda)
        steps |= {"advantage": advantage, "target": advantage + value}
        steps[INSTANCE] = torch.arange(len(total), device=total.device).expand_as(reward)
        self.buffer.add({key: moved[~done] for key, moved in steps.items()}, instances)
        return total

    def _values(self, choices: list[TensorDictBase], steps: State, instances: State) -> Tensor:
        """Values `[T, B]` of all states: those that came with the actions, or asked for now."""
        if "value" in choices[0].keys():
            return torch.stack([choice["value"] for choice in choices]).float()
        values = []
        for step in range(len(choices)):
            state = {**instances, **{key: moved[step] for key, moved in steps.items()}}
            td = TensorDict(state, batch_size=steps["action"].shape[1:])
            values.append(self._stepwise.evaluate(td)[1].float())
        return torch.stack(values)

    def calculate_loss(self, td: TensorDictBase) -> dict[str, Tensor]:
        """`loss`, its parts, and how far the policy has moved away from the one that acted."""
        log_prob, value, entropy = self._stepwise.evaluate(td)
        advantage, target = td["advantage"], td["target"]
        if self.normalize_adv:
            advantage = standardize(advantage)
        ratio = probability_ratio(log_prob, td["logprobs"])  # [B]
        surrogate_loss = clipped_surrogate_loss(ratio, advantage, self.clip_range)
        value_loss = critic_loss(value.to(target.dtype), target)
        entropy_bonus = self.entropy_lambda * entropy.mean()
        return {
            "loss": surrogate_loss + self.vf_lambda * value_loss - entropy_bonus,
            "surrogate_loss": surrogate_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            **policy_shift(ratio, self.clip_range),
        }

    # ---------------------------------------------------------------- checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the transitions that wait for an update, of all processes."""
        super().on_save_checkpoint(checkpoint)
        mine = {"buffer": self.buffer.state_dict(), "rewards": [r.cpu() for r in self._rewards]}
        every: list[Any] = [mine]
        if num_processes() > 1:
            every = [None] * num_processes()
            dist.all_gather_object(every, mine)
        checkpoint[_BUFFER_KEY] = every

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the transitions until training goes on."""
        super().on_load_checkpoint(checkpoint)
        self._restored = checkpoint.get(_BUFFER_KEY)

    def _restore_transitions(self) -> None:
        if self._restored is None:
            return
        waiting = any(record["rewards"] for record in self._restored)
        if waiting and len(self._restored) != self.trainer.world_size:
            raise ConfigError(
                f"expected {len(self._restored)} processes to go on with, between two updates, got "
                f"{self.trainer.world_size}; resume with as many, or from another checkpoint"
            )
        if waiting:
            record = self._restored[self.global_rank]
            self.buffer.load_state_dict(record["buffer"], self.device)
            self._rewards = [reward.to(self.device) for reward in record["rewards"]]
        self._restored = None
