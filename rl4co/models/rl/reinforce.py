"""REINFORCE with a baseline (Williams, 1992; Kool et al., 2019)."""

from __future__ import annotations

import functools

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.ops import unbatchify
from rl4co.data.dataset import TensorDictDataset
from rl4co.decoding.strategies import is_multistart
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.base import RL4COLitModule
from rl4co.models.rl.baseline_records import BaselineOutput, EpochContext
from rl4co.models.rl.baselines import REINFORCEBaseline, get_reinforce_baseline
from rl4co.models.rl.checkpointing import MapLocation
from rl4co.models.rl.losses import reinforce_loss
from rl4co.models.rl.reward_scaling import RewardScaler

R = TypeVar("R", bound="REINFORCE")


class REINFORCE(RL4COLitModule):
    """Policy gradient with a baseline.

    $$\\nabla L = -E\\left[(R(a, x) - b(x)) \\nabla \\log \\pi(a | x)\\right]$$

    Args:
        baseline: Baseline object, or its name (see :func:`get_reinforce_baseline`).
        baseline_kwargs: Arguments of a baseline that is chosen by name.
        reward_scale: None, a number to divide advantages by, "norm" or "scale".
        kwargs: Further arguments, and those not listed here: see :class:`RL4COLitModule`.
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        baseline: REINFORCEBaseline | str = "rollout",
        baseline_kwargs: Mapping[str, Any] | None = None,
        reward_scale: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(env, policy, **kwargs)
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
