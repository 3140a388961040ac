"""How each kind of evaluation method solves a batch of instances; used by `evaluate_policy`."""

from __future__ import annotations

import dataclasses
import inspect

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.ops import unbatchify
from rl4co.core.registry import SOLVERS
from rl4co.core.rng import derive_generator, derive_seed
from rl4co.data.augment import StateAugmentation
from rl4co.decoding.strategies import (
    BeamSearch,
    DecodeType,
    DecodingStrategy,
    get_decoding_strategy,
)
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.improvement import is_improvement
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.tasks.methods import (
    ANTS,
    GLOP,
    IMPROVE,
    LIBRARY_TYPES,
    EvalMethod,
    SearchMethod,
    SpecialMethod,
    find_method,
)

#: Options of the method "ants".
_ANT_OPTIONS = ("n_ants", "n_iterations", "max_runtime", "beta", "heuristic")
#: The heuristic of ants without a network.
_DISTANCE = "distance"
#: Smallest distance of two nodes for it.
_LEAST_DISTANCE = 1e-6
#: Arguments of `improve` and `search` that `evaluate_policy` passes itself.
_PASSED = {"policy", "env", "instances", "method", "num_augment", "seed", "progress", "batch_size"}


class Evaluator(Protocol):
    """Solves batches of instances with one method."""

    def solutions_per_instance(self, td: TensorDictBase) -> int:
        """How many solutions are computed for each instance of a state."""

    def __call__(self, instances: TensorDictBase, first: int) -> tuple[Tensor, Tensor]:
        """Best rewards `[B]` and their actions `[B, T]`.

        Args:
            instances: Batch of instances.
            first: Position of the batch in the data set, from which its randomness is derived.
        """


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Symmetries under which each instance is solved.

    Args:
        function: "dihedral8" or "symmetric", for methods that do not name one.
        copies: Copies of an instance.
        feats: Coordinate keys; None: chosen automatically.
        force_dihedral_8: False: random symmetries in place of the eight of the square.
    """

    function: str | None
    copies: int
    feats: Sequence[str] | None
    force_dihedral_8: bool

    def complete(self, method: EvalMethod) -> EvalMethod:
        """The method with its symmetries."""
        if self.function is not None and method.augment_fn is not None:
            raise ConfigError(
                f"expected augment_fn only with a method that names no symmetries, got "
                f"augment_fn={self.function!r} with {method.summary!r}"
            )
        if method.augment_fn == "dihedral8" and not self.force_dihedral_8:
            return dataclasses.replace(method, augment_fn="symmetric")
        if self.function is not None:
            return dataclasses.replace(method, augment_fn=self.function)
        return method


def make_evaluator(
    env: RL4COEnvBase,
    policy: nn.Module,
    method: DecodeType,
    named: Mapping[str, Any],
    options: Mapping[str, Any],
    augmentation: Augmentation,
    seed: int,
) -> Evaluator:
    """The evaluator of a method.

    Args:
        env: Environment.
        policy: The policy.
        method: Name, class or object, see :func:`~rl4co.tasks.evaluate.evaluate_policy`.
        named: Settings of decoding that are arguments of `evaluate_policy`.
        options: Further settings.
        augmentation: Symmetries.
        seed: Seed of all randomness.
    """
    if isinstance(method, str):
        known_method = find_method(method)
    else:
        known_method = EvalMethod(method, type(get_decoding_strategy(method)).__name__)
    if is_improvement(env) and method != IMPROVE:
        raise UnsupportedError(
            f"expected the method 'improve' for {env.name}, whose solutions are improved step by "
            f"step, got {method!r}; use method='improve', steps=..."
        )
    if isinstance(known_method, EvalMethod):
        complete = augmentation.complete(known_method)
        decoding = _decoding_settings(known_method, method, named, options)
        return _DecodingEvaluator(env, policy, complete, decoding, augmentation, seed)
    if augmentation.function is not None:
        raise ConfigError(
            f"expected augment_fn only with methods that decode, got {augmentation.function!r} "
            f"with {method!r}"
        )
    settings = {k: v for k, v in named.items() if v is not None and k != "num_samples"}
    if isinstance(known_method, SpecialMethod) and method == IMPROVE:
        return _ImprovementEvaluator(env, policy, {**settings, **options}, seed)
    if settings:
        name, value = next(iter(settings.items()))
        raise ConfigError(
            f"expected {name} only with a method that uses it, got {name}={value!r} with method "
            f"{method!r}"
        )
    if isinstance(known_method, SearchMethod):
        return _SearchEvaluator(env, policy, str(method), options, seed)
    if method == GLOP:
        return _PartitionEvaluator(env, policy, options, seed)
    return _AntEvaluator(env, policy, options, seed)


# ---------------------------------------------------------------- one class for each kind


@dataclasses.dataclass(frozen=True)
class _DecodingEvaluator:
    """Decodes solutions and keeps the best one of each instance."""

    env: RL4COEnvBase
    policy: nn.Module
    method: EvalMethod
    settings: Mapping[str, Any]
    augmentation: Augmentation
    seed: int

    @property
    def strategy(self) -> DecodingStrategy:
        """How the policy is asked to decode, apart from its own defaults."""
        return get_decoding_strategy(self.method.decode_type, **self.settings)

    def solutions_per_instance(self, td: TensorDictBase) -> int:
        starts, strategy = 1, self.strategy
        if strategy.multistart:
            starts = strategy.num_starts or self.env.get_num_starts(td)
        copies = self.augmentation.copies if self.method.augment_fn else 1
        width = strategy.beam_width if isinstance(strategy, BeamSearch) else strategy.num_samples
        return int(starts * copies * width)

    def __call__(self, instances: TensorDictBase, first: int) -> tuple[Tensor, Tensor]:
        device = device_of(self.policy)
        td = self.env.reset(instances).to(device)
        settings = dict(self.settings)
        if isinstance(self.policy, ConstructivePolicy):
            settings["log_probs"] = False
        if self.strategy.draws and self.strategy.rng is None:
            settings["rng"] = derive_generator(self.seed, "sampling", first, device=device)
        out = self.policy(
            self._augment(td, first),  # [A * B]
            self.env,
            phase="test",
            decode_type=self.method.decode_type,
            calc_reward=False,
            **settings,
        )
        return best_solutions(self.env, td, out["actions"])

    def _augment(self, td: TensorDict, first: int) -> TensorDict:
        if self.method.augment_fn is None:
            return td
        augment = StateAugmentation(
            num_augment=self.augmentation.copies,
            augment_fn=self.method.augment_fn,
            feats=self.augmentation.feats,
            rng=derive_generator(self.seed, "augment", first),
        )
        return augment(td)


class _AntEvaluator:
    """Searches with an ant colony that the policy guides."""

    def __init__(
        self, env: RL4COEnvBase, policy: nn.Module, options: Mapping[str, Any], seed: int
    ) -> None:
        if not hasattr(policy, "n_ants"):
            raise UnsupportedError(
                "expected a policy that guides ants (DeepACO, GFACS) with the method 'ants', got "
                f"{type(policy).__name__}"
            )
        _require_known(options, _ANT_OPTIONS, "option of the evaluation method 'ants'")
        self.env, self.policy, self.options, self.seed = env, policy, dict(options), seed
        if (heuristic := self.options.get("heuristic")) is not None:
            if heuristic != _DISTANCE:
                raise UnknownNameError("heuristic of ants", str(heuristic), [_DISTANCE])
            self.options["heuristic"] = _inverse_distances

    def solutions_per_instance(self, td: TensorDictBase) -> int:
        n_ants: Any = self.policy.n_ants
        return int(self.options.get("n_ants") or n_ants["test"])

    def __call__(self, instances: TensorDictBase, first: int) -> tuple[Tensor, Tensor]:
        td = self.env.reset(instances).to(device_of(self.policy))
        rng = derive_generator(self.seed, "ants", first)
        out = self.policy(td, self.env, phase="test", decode_type=ANTS, rng=rng, **self.options)
        return out["reward"], out["actions"]


def _inverse_distances(td: TensorDictBase) -> Tensor:
    """One over the distances of all nodes `[B, N, N]`."""
    return 1.0 / torch.cdist(td["locs"], td["locs"]).clamp_min(_LEAST_DISTANCE)


class _PartitionEvaluator:
    """Divides instances by a policy into tours, which a sub-solver orders."""

    def __init__(
        self, env: RL4COEnvBase, policy: nn.Module, options: Mapping[str, Any], seed: int
    ) -> None:
        if not hasattr(policy, "subprob_solver"):
            raise UnsupportedError(
                f"expected a policy that divides instances (GLOP) with the method {GLOP!r}, got "
                f"{type(policy).__name__}"
            )
        accepted = {"max_runtime", *SOLVERS[GLOP].options} - {"policy", "seed", "progress"}
        _require_known(options, accepted, f"option of the evaluation method {GLOP!r}")
        self.env, self.policy, self.options, self.seed = env, policy, dict(options), seed

    def solutions_per_instance(self, td: TensorDictBase) -> int:
        return int(self.options.get("n_samples", 1))

    def __call__(self, instances: TensorDictBase, first: int) -> tuple[Tensor, Tensor]:
        seed = derive_seed(self.seed, GLOP, first)
        settings = {"policy": self.policy, "seed": seed, "progress": False, **self.options}
        actions, costs = self.env.solve(instances, solver=GLOP, **settings)
        return -costs, actions


class _ImprovementEvaluator:
    """Improves first solutions step by step.

    Attributes:
        trajectories: Seconds and best costs after each step `[T + 1, B]`, of each batch.
    """

    def __init__(
        self, env: RL4COEnvBase, policy: nn.Module, options: Mapping[str, Any], seed: int
    ) -> None:
        from rl4co.tasks.improve import improve

        if not isinstance(policy, ImprovementPolicy):
            raise UnsupportedError(
                "expected an improvement policy with the method 'improve', got "
                f"{type(policy).__name__}"
            )
        decoding = ("decode_type", "temperature", "top_k", "top_p", "tanh_clipping")
        accepted = (*_arguments(improve), *decoding, "copies")
        _require_known(options, accepted, "option of the evaluation method 'improve'")
        self.env, self.policy, self.options, self.seed = env, policy, dict(options), seed
        self.copies = self.options.pop("copies", 1)
        self.trajectories: list[tuple[Tensor, Tensor]] = []

    def solutions_per_instance(self, td: TensorDictBase) -> int:
        return int(self.copies)

    def __call__(self, instances: TensorDictBase, first: int) -> tuple[Tensor, Tensor]:
        from rl4co.tasks.improve import improve

        seed = derive_seed(self.seed, "improve", first)
        assert isinstance(self.policy, ImprovementPolicy)
        result = improve(
            self.policy, self.env, instances, num_augment=self.copies, seed=seed, **self.options
        )
        if result.stopped == "interrupted":
            raise KeyboardInterrupt
        self.trajectories.append((result.times, result.incumbents))
        return -result.costs, result.actions


class _SearchEvaluator:
    """Adapts a copy of the policy to the instances."""

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        method: str,
        options: Mapping[str, Any],
        seed: int,
    ) -> None:
        self.env, self.policy, self.method = env, policy, method
        self.options, self.seed = dict(options), seed

    def solutions_per_instance(self, td: TensorDictBase) -> int:
        return 1  # the search itself limits how many instances it adapts to at the same time

    def __call__(self, instances: TensorDictBase, first: int) -> tuple[Tensor, Tensor]:
        from rl4co.tasks.search import search

        with torch.enable_grad():
            result = search(
                self.policy,
                self.env,
                instances,
                self.method,
                seed=derive_seed(self.seed, "search", first),
                **self.options,
            )
        return result.rewards, result.actions


# ---------------------------------------------------------------- parts


def best_solutions(env: RL4COEnvBase, td: TensorDictBase, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards `[B]` and actions `[B, T]` of each instance's best solution.

    Args:
        env: Environment, which scores the solutions on the instances themselves.
        td: State after reset, batch `[B]`.
        actions: K solutions per instance `[K * B, T]`, row `k * B + b` is solution k of instance b.
    """
    batch = td.batch_size[0]
    copies = actions.shape[0] // batch
    actions = unbatchify(actions, copies)  # [B, K, T]
    state = {
        key: value.unsqueeze(1).expand(batch, copies, *value.shape[1:]) for key, value in td.items()
    }
    rewards, best = env.get_reward(state, actions).max(1)  # [B]
    index = best.view(-1, 1, 1).expand(-1, 1, actions.shape[-1])
    return rewards, actions.gather(1, index).squeeze(1)  # [B, T]


def device_of(policy: nn.Module) -> torch.device:
    """Device of the parameters of a policy; the CPU if it has none."""
    return next((p.device for p in policy.parameters()), torch.device("cpu"))


def _decoding_settings(
    method: EvalMethod, name: object, named: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of the strategy; raises for those that the method does not use."""
    settings = {key: value for key, value in {**named, **options}.items() if value is not None}
    if not method.samples and "num_samples" not in options:
        settings.pop("num_samples", None)
    if method.decode_type in LIBRARY_TYPES:
        samples = method.samples or method.decode_type == "multistart_sampling"
        used = {
            "num_starts": str(method.decode_type).startswith("multistart_"),
            "beam_width": method.decode_type == "beam_search",
            "top_p": samples,
            "top_k": samples,
        }
        for key, is_used in used.items():
            if key in settings and not is_used:
                raise ConfigError(
                    f"expected {key} only with a method that uses it, got {key}={settings[key]!r} "
                    f"with method {name!r}"
                )
    get_decoding_strategy(method.decode_type, **settings)  # raises for unknown settings
    return settings


def _arguments(function: Callable[..., Any]) -> set[str]:
    """Names of the arguments that a user may pass on."""
    parameters = inspect.signature(function).parameters.values()
    names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    return names - _PASSED


def _require_known(options: Mapping[str, Any], valid: Collection[str], kind: str) -> None:
    for name in options:
        if name not in valid:
            raise UnknownNameError(kind, name, valid)
