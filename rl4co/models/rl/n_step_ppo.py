"""n-step proximal policy optimization with a curriculum, for improvement policies.

Papers: Ma et al. (2021), https://arxiv.org/abs/2110.02544, algorithm 1, and the papers of N2S and
NeuOpt. A batch of solutions is improved for `T_train` moves; after each `n_step` of them the policy
learns from these. As moves and states are known then, the n states are replayed in one forward pass
instead of keeping the graph of the rollout, or stepping again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torch.optim import Optimizer

from rl4co.core.errors import ConfigError
from rl4co.core.modes import evaluating
from rl4co.core.rng import derive_generator, forked_rng
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.hooks import State
from rl4co.envs.improvement import ImprovementEnvBase
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.models.rl.curriculum import Curriculum
from rl4co.models.rl.inner_loop import InnerLoop
from rl4co.models.rl.losses import (
    clipped_surrogate_loss,
    clipped_value_loss,
    n_step_returns,
    probability_ratio,
)
from rl4co.models.rl.ppo import mean_metrics, policy_shift


class Segment(NamedTuple):
    """n moves of each instance of a batch.

    Attributes:
        states: The states in which they were made, batch `[n * B]`, moves outermost.
        last: The state after them, batch `[B]`.
        actions: `[n * B, A]`.
        reward: `[n, B]`.
    """

    states: TensorDict
    last: TensorDict
    actions: Tensor
    reward: Tensor


class Replayed(NamedTuple):
    """What the networks say about a segment: `[n, B]` each."""

    log_prob: Tensor
    value: Tensor

    def detach(self) -> Replayed:
        """The same as constants."""
        return Replayed(self.log_prob.detach(), self.value.detach())


class n_step_PPO(InnerLoop):
    """n-step proximal policy optimization with a curriculum.

    $$L = -E\\left[\\min\\left(\\rho A,
      \\mathrm{clip}(\\rho, 1 - \\epsilon, 1 + \\epsilon) A\\right)\\right] + \\lambda_V L_V,$$
    $$ R_t = r_t + \\gamma R_{t+1}, \\quad A_t = R_t - v(s_t)$$

    The bootstrap $R_{t+n} = v(s_{t+n})$ and the values are computed anew in each of the inner
    epochs. From the second on, the value loss is clipped: the larger one of the squared errors of
    the value and of the value that has moved by $\\epsilon$ at most. The gradients of actor and
    critic are clipped separately.

    Args:
        env: Improvement environment.
        policy: Improvement policy.
        critic: Critic that replaces the policy's default, see
            :class:`~rl4co.models.nn.value.SolutionCritic`.
        clip_range: $\\epsilon$.
        ppo_epochs: Inner epochs.
        vf_lambda: Weight $\\lambda_V$ of the value loss.
        gamma: Discount of later gains.
        n_step: Moves n between updates.
        T_train: Moves of a training batch; a multiple of n.
        T_test: Moves in validation and test.
        lr_policy: Learning rate of the actor.
        lr_critic: Learning rate of the critic.
        max_grad_norm: Largest norm of the gradient of the actor, and of that of the critic; None
            does not clip.
        curriculum: "linear", "sigmoid" or "none", see :class:`Curriculum`.
        CL_scalar: Its scale.
        CL_epochs: Epochs of the training, for the sigmoid curriculum.
        CL_best: Whether training begins with the best solutions of the warm-up, rather than its
            last ones.
        batch_size: Instances per batch.
        train_data_size: Instances per epoch (default: 20 batches).
        lr_scheduler: Learning-rate scheduler.
        lr_scheduler_kwargs: Its arguments (default for ExponentialLR: 0.985 per epoch).
        kwargs: See :class:`~rl4co.models.rl.base.RL4COLitModule`.
    """

    default_metrics = {
        "train": (
            "reward", "loss", "surrogate_loss", "value_loss", "gain", "warmup_steps",
            "clip_fraction", "approx_kl",
        ),
        "val": ("reward", "cost_init", "cost_bsf"),
        "test": ("reward", "cost_init", "cost_bsf"),
    }  # fmt: skip
    #: Arguments of the environments that a method is made for, where the defaults are others.
    env_params: Mapping[str, Any] = {}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        critic: nn.Module | None = None,
        clip_range: float = 0.1,
        ppo_epochs: int = 3,
        vf_lambda: float = 1.0,
        gamma: float = 0.999,
        n_step: int = 5,
        T_train: int = 250,
        T_test: int = 1000,
        lr_policy: float = 8e-5,
        lr_critic: float = 2e-5,
        max_grad_norm: float | None = 0.05,
        curriculum: str = "linear",
        CL_scalar: float = 2.0,
        CL_epochs: int = 200,
        CL_best: bool = False,
        batch_size: int = 512,
        train_data_size: int | None = None,
        lr_scheduler: Any = "ExponentialLR",
        lr_scheduler_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if lr_scheduler == "ExponentialLR" and lr_scheduler_kwargs is None:
            lr_scheduler_kwargs = {"gamma": 0.985}
        super().__init__(
            env, policy, max_grad_norm, batch_size=batch_size,
            train_data_size=20 * batch_size if train_data_size is None else train_data_size,
            lr_scheduler=lr_scheduler, lr_scheduler_kwargs=lr_scheduler_kwargs, **kwargs,
        )  # fmt: skip
        _check_settings(clip_range, ppo_epochs, vf_lambda, gamma, n_step, T_train, T_test)
        if not isinstance(policy, ImprovementPolicy):
            raise ConfigError(
                f"expected an ImprovementPolicy, got a {type(policy).__name__}; PPO trains "
                "policies that construct solutions"
            )
        policy.environment(env)  # raises for the environment of another problem
        if critic is not None:
            policy.critic = critic
        if policy.critic is None:
            raise ConfigError(
                "expected a policy with a critic, or a critic beside it, got neither; build the "
                "policy with critic=True"
            )
        self.clip_range, self.ppo_epochs, self.vf_lambda = clip_range, ppo_epochs, vf_lambda
        self.gamma, self.n_step = gamma, n_step
        self.T_train, self.T_test = T_train, T_test
        self.lr_policy, self.lr_critic = lr_policy, lr_critic
        self.curriculum = Curriculum(curriculum, CL_scalar, CL_epochs)
        self.CL_best = CL_best

    @property
    def _env(self) -> ImprovementEnvBase:
        """The environment, for type checkers."""
        return cast(ImprovementEnvBase, self.env)

    # ---------------------------------------------------------------- steps

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Improves a batch; in training only the first segment, with its loss before any update."""
        rng = self.action_rng(phase, batch_idx)
        state = self.first_state(batch, rng)
        if phase == "train":
            segment, final = self.roll_out(state, rng)
            loss = self.calculate_loss(segment, self.replay(segment))
            out = {**loss, "reward": -final["cost_bsf"]}
        else:
            final = self.improve(state, self.T_test, rng, phase)
            out = {"cost_init": state["cost_bsf"], "cost_bsf": final["cost_bsf"]}
            out["reward"] = -final["cost_bsf"]
        return self.log_metrics(out, phase, dataloader_idx, batch_size=batch.batch_size[0])

    def learn(self, batch: TensorDictBase, batch_idx: int) -> dict[str, Any]:
        """Warms a batch up, then learns from its moves, segment by segment."""
        rng = self.action_rng("train", batch_idx)
        key = (self.run_seed, "dropout", self.current_epoch, batch_idx, self.global_rank)
        # Dropout draws from torch's global stream, which a resumed run would find elsewhere.
        with forked_rng(derive_generator(*key)):
            return self._learn(self.first_state(batch, rng, is_learning=True), rng)

    def first_state(
        self, batch: TensorDictBase, rng: torch.Generator, is_learning: bool = False
    ) -> State:
        """The state with the first solutions of a batch.

        Args:
            batch: Instances, batch `[B]`.
            rng: Random stream of the solutions.
            is_learning: Whether something may be learned from making them; nothing is, here.
        """
        return dict(self._env.reset(batch, rng=rng).items())

    def _learn(self, state: State, rng: torch.Generator | None) -> dict[str, Any]:
        warmup = self.curriculum.steps(self.current_epoch)
        state = self.warm_up(state, warmup, rng)
        start = state["cost_bsf"]
        metrics: list[dict[str, Tensor]] = []
        for _ in range(self.T_train // self.n_step):
            segment, state = self.roll_out(state, rng)
            old: Replayed | None = None
            for _ in range(self.ppo_epochs):
                replayed = self.replay(segment)
                out = self.calculate_loss(segment, replayed, old)
                old = replayed.detach() if old is None else old
                self.update_weights(out["loss"])
                metrics.append({key: value.detach() for key, value in out.items()})
        return {
            **mean_metrics(metrics),
            "reward": -state["cost_bsf"],
            "gain": start - state["cost_bsf"],
            "warmup_steps": torch.tensor(float(warmup)),
        }

    def warm_up(self, state: State, steps: int, rng: torch.Generator | None) -> State:
        """Improves solutions; the result counts as the best so far, whatever was met on the way."""
        state = self.improve(state, steps, rng, "train")
        if self.CL_best:
            state = self._env.restart_from_best(state)
        return self._env.forget_best(state)

    @torch.no_grad()
    def improve(self, state: State, steps: int, rng: torch.Generator | None, phase: str) -> State:
        """The state after some moves of the policy in evaluation mode."""
        batch = state["cost_bsf"].shape
        with evaluating(self.policy):
            for _ in range(steps):
                td = TensorDict(state, batch_size=batch)
                action = self.policy(td, self._env, phase=phase, rng=rng)["actions"]
                state = self._env.advance(state, action)
        return state

    @torch.no_grad()
    def roll_out(
        self, state: State, rng: torch.Generator | None, actions: Tensor | None = None
    ) -> tuple[Segment, State]:
        """n moves from a state, and the state after them.

        Args:
            state: Batch `[B]`.
            rng: Random stream of the moves.
            actions: The moves `[n, B, A]`, if they are known.
        """
        batch = state["cost_bsf"].shape
        states, moves = [state], []
        for step in range(self.n_step if actions is None else len(actions)):
            if actions is None:
                td = TensorDict(states[-1], batch_size=batch)
                moves.append(self.policy(td, self._env, phase="train", rng=rng)["actions"])
            else:
                moves.append(self._env.read_action(states[-1], actions[step]))
            states.append(self._env.advance(states[-1], moves[-1]))
        final = states.pop()
        rewards = [later["reward"].squeeze(-1) for later in [*states[1:], final]]
        stacked = {key: torch.cat([s[key] for s in states]) for key in state if key != "action"}
        flat = TensorDict(stacked, batch_size=[len(states) * batch[0]])
        last = TensorDict(final, batch_size=batch)
        return Segment(flat, last, torch.cat(moves), torch.stack(rewards)), final

    def replay(self, segment: Segment) -> Replayed:
        """Log-probabilities of the moves and values of the states, differentiable."""
        out = self.policy(
            segment.states, self._env, phase="train", actions=segment.actions,
            return_actions=False, return_value=True,
        )  # fmt: skip
        shape = segment.reward.shape
        return Replayed(out["log_likelihood"].view(shape), out["value"].view(shape))

    @torch.no_grad()
    def bootstrap(self, segment: Segment) -> Tensor:
        """Value of the state after the moves `[B]`, by the networks as they are now."""
        return cast(ImprovementPolicy, self.policy).value(segment.last)

    def calculate_loss(
        self, segment: Segment, replayed: Replayed, old: Replayed | None = None
    ) -> dict[str, Tensor]:
        """`loss`, its parts, and how far the policy has moved away from the one that acted.

        Args:
            segment: The moves.
            replayed: What the networks say about them now.
            old: What they said in the first inner epoch; None: this is it.
        """
        returns = n_step_returns(segment.reward, self.bootstrap(segment), self.gamma)  # [n, B]
        first = replayed if old is None else old
        advantage = returns - replayed.value.detach()
        ratio = probability_ratio(replayed.log_prob, first.log_prob)
        surrogate_loss = clipped_surrogate_loss(ratio, advantage, self.clip_range)
        value_loss = clipped_value_loss(
            replayed.value, returns, first.value.detach(), self.clip_range
        )
        return {
            "loss": surrogate_loss + self.vf_lambda * value_loss,
            "surrogate_loss": surrogate_loss,
            "value_loss": value_loss,
            **policy_shift(ratio, self.clip_range),
        }

    # ---------------------------------------------------------------- optimization

    def trainable_parameters(self) -> list[Any]:
        """The weights of actor and critic, each with its learning rate."""
        critic = cast(nn.Module, cast(ImprovementPolicy, self.policy).critic)
        critic_ids = {id(weight) for weight in critic.parameters()}
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        return [
            {"params": [w for w in weights if id(w) not in critic_ids], "lr": self.lr_policy},
            {"params": [w for w in weights if id(w) in critic_ids], "lr": self.lr_critic},
        ]

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Clips the gradients of actor and critic, each by its own norm.

        Together, the critic's would leave nothing to the actor: at the start its norm is up to
        twenty times as large.
        """
        if self.max_grad_norm is not None:
            for group in optimizer.param_groups:
                nn.utils.clip_grad_norm_(group["params"], self.max_grad_norm)


def _check_settings(
    clip_range: float,
    ppo_epochs: int,
    vf_lambda: float,
    gamma: float,
    n_step: int,
    T_train: int,
    T_test: int,
) -> None:
    """Raises for settings with which nothing is learned, or the wrong thing."""
    if not clip_range > 0:
        raise ConfigError(f"expected a positive clip_range, got {clip_range}")
    if not vf_lambda >= 0:
        raise ConfigError(f"expected vf_lambda of at least 0, got {vf_lambda}")
    if not 0.0 <= gamma <= 1.0:
        raise ConfigError(f"expected gamma in [0, 1], got {gamma}")
    counts = {"ppo_epochs": ppo_epochs, "n_step": n_step, "T_train": T_train, "T_test": T_test}
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"expected {name} to be an integer of at least 1, got {count!r}")
    if T_train % n_step:
        raise ConfigError(
            f"expected T_train to be a multiple of n_step, got {T_train} and {n_step}; use "
            f"{T_train - T_train % n_step or n_step}"
        )
