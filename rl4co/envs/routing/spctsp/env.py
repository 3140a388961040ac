"""Stochastic Prize Collecting Travelling Salesman Problem."""

from __future__ import annotations

from torch import Tensor

from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.routing.pctsp.env import (
    CHECK_TOLERANCE,
    ENOUGH_PRIZE,
    PCTSPEnv,
    prize_required,
)
from rl4co.envs.routing.pctsp.generator import PCTSPGenerator

#: The rule that replaces it: a real prize is between 0 and twice the expected one.
POSSIBLE_PRIZE = (
    "prize_required (1 unless given) is at most twice what deterministic_prize adds up to, as real "
    "prizes are (lower it)"
)


@ENVS.register("spctsp")
class SPCTSPEnv(PCTSPEnv):
    """Stochastic Prize Collecting TSP: a customer's prize is known once it has been visited.

    Instances, state and reward are those of the :class:`PCTSPEnv`. In advance only the expected
    prize is known, `deterministic_prize [n]`; a visit earns `stochastic_prize [n]`. A policy may
    look at `expected_prize` and at what has been collected, never at `real_prize`.

    State:
        That of the :class:`PCTSPEnv`.

    Constraints:
        No customer is visited twice; the tour ends with the return to the depot; it collects
        `prize_required`, or visits every customer: real prizes may not add up to it.

    Finish condition:
        The return to the depot; finished instances stay there.

    Reward:
        Minus the length of the tour and the penalties of the customers that it leaves out.

    Paper: Kool et al. (2019), https://arxiv.org/abs/1803.08475

    Args:
        prize_tolerance: See :class:`PCTSPEnv`.
        kwargs: See :class:`~rl4co.envs.base.RL4COEnvBase`.
    """

    name = "spctsp"
    generator_cls = PCTSPGenerator
    prize_key = "stochastic_prize"
    substitutes = {"cost_matrix": ("locs", "depot")}

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        faults = super()._instance_faults(instance)
        del faults[ENOUGH_PRIZE]  # unknown in advance; visiting every customer is always enough
        most = 2.0 * instance["deterministic_prize"].double().sum(-1)  # [*B]
        required = prize_required(instance).double()
        return {**faults, POSSIBLE_PRIZE: most < required * (1.0 - CHECK_TOLERANCE)}
