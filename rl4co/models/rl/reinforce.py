"""REINFORCE with a baseline (Williams, 1992; Kool et al., 2019)."""

from __future__ import annotations

import functools

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.ops import gather_by_index, unbatchify
from rl4co.data.dataset import TensorDictDataset
from rl4co.decoding.strategies import is_multistart
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.base import RL4COLitModule
from rl4co.models.rl.baseline_records import BaselineOutput, EpochContext
from rl4co.models.rl.baselines import REINFORCEBaseline, get_reinforce_baseline
from rl4co.models.rl.checkpointing import MapLocation
from rl4co.models.rl.losses import best_anchored_loss, preference_loss, reinforce_loss
from rl4co.models.rl.reward_scaling import RewardScaler

R = TypeVar("R", bound="REINFORCE")


class REINFORCE(RL4COLitModule):
    """Policy gradient with a baseline.

    $$\\nabla L = -E\\left[(R(a, x) - b(x)) \\nabla \\log \\pi(a | x)\\right]$$

    Args:
        baseline: Baseline object, or its name (see :func:`get_reinforce_baseline`).
        baseline_kwargs: Arguments of a baseline that is chosen by name.
        reward_scale: None, a number to divide advantages by, "norm" or "scale".
        loss: "reinforce"; or, where each instance is solved several times, preferences among its
            solutions in place of a baseline: "po" (Pan et al., 2025) or "bopo" (Liao et al., 2025).
        preference_alpha: Strength $\\alpha$ of the preferences of "po".
        local_search_epochs: Number of last epochs in which "po" also prefers the best solution
            after the environment's local search to the one before it.
        kwargs: Further arguments, and those not listed here: see :class:`RL4COLitModule`.
    """

    #: Values of `loss` that the method's own loss supports.
    losses: ClassVar[tuple[str, ...]] = ("reinforce", "po", "bopo")

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        baseline: REINFORCEBaseline | str = "rollout",
        baseline_kwargs: Mapping[str, Any] | None = None,
        reward_scale: float | str | None = None,
        loss: str = "reinforce",
        preference_alpha: float = 0.05,
        local_search_epochs: int = 0,
        **kwargs: Any,
    ) -> None:
        if loss not in self.losses:
            raise UnknownNameError(f"loss of {type(self).__name__}", loss, self.losses)
        if not (preference_alpha > 0 and local_search_epochs >= 0):
            raise ConfigError(
                "expected preference_alpha > 0 and local_search_epochs >= 0, got "
                f"{preference_alpha} and {local_search_epochs}"
            )
        if local_search_epochs and loss != "po":
            raise ConfigError(f"expected loss='po' with local_search_epochs, got {loss!r}")
        super().__init__(env, policy, **kwargs)
        self.loss, self.preference_alpha = loss, preference_alpha
        self.local_search_epochs = local_search_epochs
        self._new_baseline: Callable[[], REINFORCEBaseline] | None = None
        if isinstance(baseline, str):
            self._new_baseline = functools.partial(
                get_reinforce_baseline, baseline, **(baseline_kwargs or {})
            )
            baseline = self._new_baseline()
        elif baseline_kwargs:
            raise ConfigError("expected baseline_kwargs with a baseline's name only, got an object")
        self.baseline = baseline
        self._set_up_baseline()
        self.advantage_scaler = RewardScaler(reward_scale)

    def _set_up_baseline(self) -> None:
        self.baseline.setup(
            self.policy,
            self.env,
            batch_size=self.val_batch_size,
            device=self.device,
            dataset_size=self.data_sizes["val"],
        )

    def wrap_dataset(self, dataset: TensorDictDataset) -> Any:
        """Instances with what the baseline knows about them in advance."""
        return self.baseline.wrap_dataset(
            dataset, self.env, batch_size=self.val_batch_size, device=self.device
        )

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Solves a batch; in training also computes the loss."""
        td = self.env.reset(batch)
        rng = self.action_rng(phase, batch_idx)
        out = self.policy(td, self.env, phase=phase, rng=rng, **self.decoding_options(phase))
        if phase == "train":
            # Several solutions per instance get a separate axis, as baselines expect.
            num_solutions = out["reward"].shape[0] // td.batch_size[0]
            axes = num_solutions if num_solutions > 1 else 0
            reward, log_likelihood = (
                unbatchify(out[key], axes) for key in ("reward", "log_likelihood")
            )
            self.calculate_loss(td, batch, out, reward, log_likelihood)
        return self.log_metrics(out, phase, dataloader_idx, batch_size=td.batch_size[0])

    def decoding_options(self, phase: str) -> dict[str, Any]:
        """Hook of methods: further settings of the policy's call, such as `num_samples`."""
        return {}

    def calculate_loss(
        self,
        td: TensorDictBase,
        batch: TensorDictBase,
        policy_out: dict[str, Any],
        reward: Tensor | None = None,
        log_likelihood: Tensor | None = None,
    ) -> dict[str, Any]:
        """Adds `loss`, its parts and `bl_val` to the policy's output.

        Args:
            td: State after reset, batch `[B]`.
            batch: The instances, with values under `extra` where the baseline has wrapped them.
            policy_out: Output of the policy. Its `auxiliary_loss`, if there is one (balance of
                experts, diversity of decoders), is part of the loss.
            reward: Replaces the output's reward, e.g. `[B, S]` for a shared baseline.
            log_likelihood: Replaces the output's log-likelihood, of the same shape.
        """
        reward = policy_out["reward"] if reward is None else reward
        log_likelihood = policy_out["log_likelihood"] if log_likelihood is None else log_likelihood
        if self.loss != "reinforce":
            return self._calculate_preference_loss(td, policy_out, reward, log_likelihood)
        if self.before_first_update:
            self.baseline.start(td, reward)
        value, baseline_loss = self._baseline_values(td, batch, reward)
        advantage = self.advantage_scaler(reward - value)
        policy_loss = reinforce_loss(advantage, log_likelihood)
        policy_out.update(
            loss=policy_loss + baseline_loss + policy_out.get("auxiliary_loss", 0.0),
            reinforce_loss=policy_loss,
            bl_loss=baseline_loss,
            bl_val=value,
        )
        return policy_out

    def _calculate_preference_loss(
        self,
        td: TensorDictBase,
        policy_out: dict[str, Any],
        reward: Tensor,
        log_likelihood: Tensor,
    ) -> dict[str, Any]:
        """Adds the loss of preferences among the solutions `[B, S]` of each instance."""
        if self.loss == "bopo":
            loss = best_anchored_loss(reward, log_likelihood, policy_out["actions"].shape[-1])
        else:
            loss = preference_loss(reward, log_likelihood, self.preference_alpha)
        policy_out["preference_loss"] = loss
        if self._is_refining():
            policy_out["local_search_loss"] = self._local_search_loss(td, policy_out, reward)
            loss = loss + policy_out["local_search_loss"]
        policy_out["loss"] = loss + policy_out.get("auxiliary_loss", 0.0)
        policy_out["bl_val"] = reward.mean(1)
        return policy_out

    def _is_refining(self) -> bool:
        """Whether this epoch is one of the last ones, with a local search."""
        if not self.local_search_epochs or self._trainer is None:
            return False
        return self.current_epoch >= (self.trainer.max_epochs or 0) - self.local_search_epochs

    def _local_search_loss(
        self, td: TensorDictBase, policy_out: dict[str, Any], reward: Tensor
    ) -> Tensor:
        """Preference of each instance's best solution after a local search to that before."""
        actions = unbatchify(policy_out["actions"], reward.shape[1])  # [B, S, T]
        best = gather_by_index(actions, reward.argmax(1))  # [B, T]
        with torch.no_grad():
            improved = self.env.local_search(td, best)
        length = max(best.shape[-1], improved.shape[-1])  # routes are padded by visits of the depot
        both = [F.pad(each, (0, length - each.shape[-1])) for each in (improved, best)]
        out = self.policy(
            td, self.env, phase="train", actions=torch.cat(both), decode_type="multistart_sampling"
        )
        rewards, log_likelihood = (unbatchify(out[key], 2) for key in ("reward", "log_likelihood"))
        return preference_loss(rewards, log_likelihood, self.preference_alpha)

    def _baseline_values(
        self, td: TensorDictBase, batch: TensorDictBase, reward: Tensor
    ) -> BaselineOutput:
        """What the baseline has said about a batch in advance, or says now."""
        _, value = self.baseline.unwrap_batch(batch)
        if value is None:
            return self.baseline(td, reward, self.env)
        value = value.to(reward)
        value = value.reshape(*value.shape, *(1,) * (reward.dim() - value.dim()))  # [B] or [B, 1]
        return BaselineOutput(value, reward.new_zeros(()))

    def after_epoch(self) -> None:
        """Lets the baseline look at the policy."""
        metrics = self.baseline.epoch_callback(
            EpochContext(
                policy=self.policy,
                env=self.env,
                epoch=self.current_epoch,
                batch_size=self.val_batch_size,
                seed=self.run_seed,
                device=self.device,
                draw=self.draw_instances,
                dataset_size=self.data_sizes["val"],
            )
        )
        self.log_dict(metrics, sync_dist=True)

    def set_decode_type_multistart(self, phase: str) -> None:
        """Lets the policy decode from distinct starts in a phase."""
        name = f"{phase}_decode_type"
        decode_type = getattr(self.policy, name)
        if not is_multistart(decode_type):
            setattr(self.policy, name, f"multistart_{decode_type}")

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls: type[R],
        checkpoint_path: str | Path | IO[bytes],
        env: RL4COEnvBase | None = None,
        policy: nn.Module | None = None,
        map_location: MapLocation = "cpu",
        strict: bool = True,
        load_baseline: bool = True,
        **kwargs: Any,
    ) -> R:
        """The model of a checkpoint, see :meth:`RL4COLitModule.load_from_checkpoint`.

        Args:
            checkpoint_path: Checkpoint written during training.
            env: Replaces the recorded environment.
            policy: Replaces the recorded policy.
            map_location: Device of the model.
            strict: Whether the weights must fit exactly.
            load_baseline: Whether to keep the baseline's state; False sets it up anew with the
                loaded policy.
            kwargs: Further constructor arguments that replace the recorded ones.
        """
        model = super().load_from_checkpoint(
            checkpoint_path, env, policy, map_location, strict, **kwargs
        )
        if not load_baseline:
            if model._new_baseline is None:
                raise ConfigError(
                    "expected a baseline chosen by name to set it up anew, got an object; "
                    "pass baseline=... with the object instead"
                )
            model.baseline = model._new_baseline().to(model.device)
            model._set_up_baseline()
        return model
