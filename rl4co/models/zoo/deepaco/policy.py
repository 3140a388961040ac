"""Policy of DeepACO: a graph network provides the heuristic of the ants (Ye et al., 2023).

Paper: https://arxiv.org/abs/2309.14032. Original code: henry-yeh/DeepACO.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.adapters import adapt
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.ops import batchify, flatten_starts, unbatchify
from rl4co.decoding.ant_colony import AntColony, ColonyConfig, ColonyResult
from rl4co.decoding.edges import Rule
from rl4co.decoding.strategies import DecodeType
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.nonautoregressive import EdgeWeights, Heuristic, NARGNNPolicy

#: Decode type of a search by ants.
ANTS = "ants"
_PHASES = ("train", "val", "test")
_SEARCH_OPTIONS = (
    "n_ants", "n_iterations", "max_runtime", "rng", "return_actions", "heuristic", "beta",
)  # fmt: skip


class DeepACOPolicy(NARGNNPolicy):
    """Weights of edges for ants.

    The decode type "ants", that of validation and test, searches with a colony and returns its best
    solution of each instance; all other decode types follow the weights alone.

    Args:
        n_ants: Ants per instance, a number or one for each phase.
        n_iterations: Iterations of the colony at validation and test, a number or one for each.
        aco_kwargs: Further settings of the colony, see :class:`ColonyConfig`.
        kwargs: Further arguments, and those not listed here: see :class:`NARGNNPolicy`.
    """

    def __init__(
        self,
        env_name: str = "tsp",
        rule: Rule = "nearest",
        n_ants: int | Mapping[str, int] | None = None,
        n_iterations: int | Mapping[str, int] | None = None,
        aco_kwargs: Mapping[str, Any] | None = None,
        val_decode_type: DecodeType = ANTS,
        test_decode_type: DecodeType = ANTS,
        **kwargs: Any,
    ) -> None:
        decode_types: dict[str, Any] = {
            "val_decode_type": val_decode_type,
            "test_decode_type": test_decode_type,
        }
        super().__init__(
            env_name=env_name,
            rule=rule,
            # Only this class knows ants.
            **{name: value for name, value in decode_types.items() if value != ANTS},
            **kwargs,
        )
        self.val_decode_type, self.test_decode_type = decode_types.values()
        self.n_ants = _by_phase("n_ants", n_ants, {"train": 30, "val": 20, "test": 48})
        self.n_iterations = _by_phase("n_iterations", n_iterations, {"val": 1, "test": 10})
        # The fewest ants of any search, so that no setting asks for more than there are.
        fewest = min(self.n_ants["val"], self.n_ants["test"])
        settings = {"rule": rule, **_colony_settings(aco_kwargs or {})}
        self.colony = ColonyConfig(n_ants=fewest, **settings)

    def forward(  # type: ignore[override]
        self,
        td: TensorDictBase,
        env: RL4COEnvBase | str | None = None,
        phase: str = "train",
        calc_reward: bool = True,
        *,
        decode_type: DecodeType | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Solutions; see :meth:`NonAutoregressivePolicy.forward`.

        With `decode_type="ants"` the options are `n_ants`, `n_iterations`, `max_runtime`, `rng`,
        `heuristic` and `beta`.
        """
        default = {"val": self.val_decode_type, "test": self.test_decode_type}.get(phase)
        searches = (default if decode_type is None else decode_type) == ANTS
        if not searches or kwargs.get("actions") is not None:
            return super().forward(td, env, phase, calc_reward, decode_type=decode_type, **kwargs)
        for name in kwargs:
            if name not in _SEARCH_OPTIONS:
                raise UnknownNameError("option of the decode type 'ants'", name, _SEARCH_OPTIONS)
        return_actions = kwargs.pop("return_actions", True)
        result = self.search(td, self.environment(env), phase, **kwargs)
        return {"reward": result.reward, **({"actions": result.actions} if return_actions else {})}

    @torch.no_grad()
    def search(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        phase: str = "test",
        n_ants: int | None = None,
        n_iterations: int | None = None,
        max_runtime: float | None = None,
        rng: torch.Generator | None = None,
        hidden: EdgeWeights | None = None,
        heuristic: Heuristic | None = None,
        beta: float | None = None,
    ) -> ColonyResult:
        """Search with an ant colony.

        Args:
            td: State after reset, batch `[B]`.
            env: Environment.
            phase: Selects the number of ants and iterations.
            n_ants: Replaces the number of ants.
            n_iterations: Replaces the number of iterations.
            max_runtime: Seconds after which no further iteration begins.
            rng: Random stream.
            hidden: From :meth:`edge_weights`, if it was called before.
            heuristic: Replaces the policy's weights.
            beta: Replaces the power of the heuristic; 1 / beta is a temperature.
        """
        if hidden is None:
            hidden = self.edge_weights(td, heuristic)
        elif heuristic is not None:
            raise ConfigError("expected hidden or heuristic, got both; leave hidden out")
        ants = self.n_ants.get(phase, self.n_ants["test"]) if n_ants is None else n_ants
        power = self.colony.beta if beta is None else float(beta)
        config = dataclasses.replace(self.colony, n_ants=ants, beta=power)
        seed: int | torch.Generator = 0 if rng is None else rng
        colony = AntColony(env, td, hidden.graph, hidden.weights, config, seed)
        count = self.n_iterations.get(phase, 1) if n_iterations is None else n_iterations
        return colony.run(count, max_runtime)

    @torch.no_grad()
    def improve(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        actions: Tensor,
        hidden: EdgeWeights,
        rounds: int = 0,
        **options: Any,
    ) -> Tensor:
        """Solutions after the problem's local search: `[B, A, T]` → `[B, A, T']`.

        Args:
            td: State after reset, batch `[B]`.
            env: Environment.
            actions: Solutions.
            hidden: From :meth:`edge_weights`, to guide perturbations.
            rounds: Number of guided perturbations (0: a plain search).
            options: Further options of `env.local_search`.
        """
        if rounds:
            heatmap = hidden.graph.dense(hidden.weights).cpu().numpy()
            options |= {"heatmap": heatmap, "rounds": rounds}
        rows = batchify(td, actions.shape[1])
        improved = env.local_search(rows, flatten_starts(actions), **options)
        return unbatchify(improved, actions.shape[1])


def _colony_settings(aco_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the colony, all of them known."""
    settings = adapt("ant_colony_settings", dict(aco_kwargs)) if aco_kwargs else {}
    # The number of ants depends on the phase: it is an argument of the policy.
    names = [field.name for field in dataclasses.fields(ColonyConfig) if field.name != "n_ants"]
    for name in settings:
        if name not in names:
            raise UnknownNameError("setting of the ant colony", name, names)
    return settings


def _by_phase(
    name: str, values: int | Mapping[str, int] | None, defaults: Mapping[str, int]
) -> dict[str, int]:
    """A number for each phase."""
    if values is not None and not isinstance(values, Mapping):
        values = dict.fromkeys(_PHASES, values)
    for phase, value in (values or {}).items():
        if phase not in _PHASES:
            raise UnknownNameError(f"phase in {name}", phase, _PHASES)
        if type(value) is not int or value < 1:
            raise ConfigError(
                f"expected {name} of at least 1, an integer, got {value!r} for {phase}"
            )
    return {**defaults, **(values or {})}
