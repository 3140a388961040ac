"""How TorchRL sees an environment: its specs, and stepping as its collectors and losses expect.

This file is the only one that knows TorchRL's specs. Two ways of stepping exist: the library's own
(`step` keeps no previous state) and TorchRL's (`_torchrl_mode=True`), which keeps the root state,
records the actions under `solution` and rewards an instance at the step that finishes it.
"""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, Unbounded
from torchrl.envs import EnvBase

from rl4co.core.rng import derive_generator
from rl4co.envs.hooks import ProblemHooks
from rl4co.envs.instances import InstanceSchema, number_kind

_DONE_KEYS = ("done", "terminated")


class TorchRLMode(ProblemHooks, EnvBase):
    """TorchRL's part of :class:`rl4co.envs.base.RL4COEnvBase`, on top of the problem's hooks."""

    _torchrl_mode: bool
    check_instance: bool
    schema: InstanceSchema
    seed: int | None
    rng: torch.Generator | None

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDict:
        """TorchRL's reset: a TensorDict with instance keys only is an instance to start from."""
        if tensordict is None:
            return self._torchrl_state(self.generate(self.batch_size))
        keys = set(tensordict.keys())
        if "i" not in keys and self.schema.required_keys(keys) <= keys:
            if self.check_instance:
                self.check_instances(tensordict)
            return self._torchrl_state(tensordict)
        return self._torchrl_state(self.generate(tensordict.batch_size))

    def _torchrl_state(self, td: TensorDictBase) -> TensorDict:
        """The initial state with room for the solution, and without a reward."""
        state = self.initial_state(td)
        steps = self.step_bounds(state)[1]
        del state["reward"]
        state["solution"] = torch.zeros(
            *td.batch_size, steps, dtype=torch.int64, device=self.device
        )
        return TensorDict(state, batch_size=td.batch_size, device=self.device)

    def _spec_instance(self) -> TensorDict:
        """An instance that specs are made from."""
        return self.generator([], rng=derive_generator("specs"))

    def _spec_state(self, instance: TensorDictBase) -> TensorDict:
        """A state that specs are made from; it must not touch any random stream in use."""
        return self._torchrl_state(instance)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        """TorchRL's step: records the action, and rewards a solution when it is finished."""
        state = dict(tensordict.exclude("next").items())
        new_state = self.advance(state, state["action"])
        new_state["terminated"] = new_state["done"]
        new_state.pop("action")
        new_state["solution"] = _write_step(state["solution"], state["i"], state["action"])
        if "reward" not in new_state or not self.has_dense_reward:
            final = self._objective(new_state, new_state["solution"]).unsqueeze(-1)  # [*B, 1]
            finished_now = new_state["done"] & ~state["done"]
            new_state["reward"] = torch.where(finished_now, final, torch.zeros_like(final))
        return TensorDict(new_state, batch_size=tensordict.batch_size, device=self.device)

    @property
    def has_dense_reward(self) -> bool:
        """Whether single steps are rewarded."""
        return type(self)._step_reward is not ProblemHooks._step_reward

    def _make_specs(self) -> None:
        """Specs from a generated state, so that declaration and data cannot drift apart."""
        instance = self._spec_instance()
        self.schema = InstanceSchema(
            problem=self.name,
            required=self.instance_shapes,
            optional=self.optional_shapes,
            substitutes=self.substitutes,
            unlimited=self.unlimited_keys,
            kinds={key: number_kind(value) for key, value in instance.items()},
            integer_keys=self.integer_keys,
        )
        td = self._spec_state(instance)
        leaves = {key: _leaf_spec(value) for key, value in td.items() if key not in _DONE_KEYS}
        self.observation_spec = Composite(leaves, shape=torch.Size([]), device=self.device)
        numbers = self._action_numbers(td)
        self.action_spec = (
            Categorical(n=td["action_mask"].shape[-1], shape=torch.Size([]), device=self.device)
            if numbers is None
            else MultiCategorical(nvec=numbers, device=self.device)
        )
        self.reward_spec = Unbounded(shape=torch.Size([1]), device=self.device)
        self.done_spec = Composite(
            {key: Binary(n=1, dtype=torch.bool, device=self.device) for key in _DONE_KEYS},
            device=self.device,
        )

    def _action_numbers(self, td: TensorDictBase) -> tuple[int, ...] | None:
        """How many values each number of an action has; None: an action is an index of the mask."""
        return None

    def _set_seed(self, seed: int | None) -> None:
        self.seed = seed
        self.rng = None if seed is None else derive_generator(seed)


def _leaf_spec(value: Tensor) -> Any:
    like: dict[str, Any] = {"shape": value.shape, "dtype": value.dtype, "device": value.device}
    if value.dtype == torch.bool:
        return Binary(n=value.shape[-1], **like)
    if value.dtype.is_floating_point:
        return Unbounded(**like)
    return Bounded(-1, torch.iinfo(value.dtype).max, **like)  # -1 stands for none


def _write_step(solution: Tensor, i: Tensor, action: Tensor) -> Tensor:
    """The solution so far with `action` at step `i` (steps past the end are dropped)."""
    position = i.clamp_max(solution.shape[-1] - 1)  # [*B, 1]
    inside = i < solution.shape[-1]
    value = torch.where(inside, action.unsqueeze(-1), solution.gather(-1, position))  # [*B, 1]
    return solution.scatter(-1, position, value)  # [*B, T]
