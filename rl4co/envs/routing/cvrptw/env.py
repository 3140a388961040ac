"""Capacitated Vehicle Routing Problem with Time Windows."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.routing._parts import locs_with_depot, start_at_depot
from rl4co.envs.routing.cvrp.env import CVRPEnv
from rl4co.envs.routing.cvrptw.generator import CVRPTWGenerator
from rl4co.envs.routing.cvrptw.schedule import (
    service_starts,
    time_matrix,
    times_from,
    times_to_depot,
)

#: Slack on times as a share of the time at which the depot closes: what float32 sums along a route
#: may add to an arrival that is just in time. The check allows it twice, because the mask uses it
#: once.
TIME_TOLERANCE = 1e-5


@ENVS.register("cvrptw")
class CVRPTWEnv(CVRPEnv):
    """CVRP in which the service of each customer must begin within a time window.

    An instance is one of the CVRP with, depot first, service times `durations [N]` and
    `time_windows [N, 2]` (N = n + 1). Vehicles leave when the depot opens, wait at customers who
    are not ready, and return before the depot closes. Travel times are distances, unless a
    `duration_matrix [N, N]` replaces them; a `cost_matrix` replaces distances, and also travel
    times if it is the only matrix.

    State:
        That of the :class:`CVRPEnv`, and:

        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `durations` | float32 | `[*B, N]` | service times, 0 for the depot |
        | `time_windows` | float32 | `[*B, N, 2]` | first and last time to begin the service |
        | `horizon` | float32 | `[*B, 1]` | time at which the depot closes |
        | `latest_arrival` | float32 | `[*B, N]` | last arrival in time, also for the way back |
        | `current_time` | float32 | `[*B, 1]` | time at which the vehicle leaves the last node |
        | `arrival` | float32 | `[*B, N]` | arrival at each node if it is visited next |
        | `action_mask` | bool | `[*B, N]` | customers that fit in load and time; the depot |

    Constraints:
        Those of the CVRP; every service begins within the window of the customer; every vehicle is
        back before the depot closes.

    Finish condition:
        All nodes, the depot included, are visited; finished instances stay at the depot.

    Reward:
        Minus the total length of all routes, as in the CVRP; waiting costs nothing.

    Args:
        kwargs: See :class:`CVRPEnv`.
    """

    name = "cvrptw"
    generator_cls = CVRPTWGenerator  # type: ignore[assignment]  # another signature
    instance_shapes = {**CVRPEnv.instance_shapes, "durations": "n+1", "time_windows": "n+1 2"}
    optional_shapes = {**CVRPEnv.optional_shapes, "duration_matrix": "n+1 n+1"}
    integer_keys = (*CVRPEnv.integer_keys, "time_windows")

    def _init_state(self, instance: State) -> State:
        windows, durations = instance["time_windows"], instance["durations"]
        cvrp = super()._init_state(instance)
        state = {**instance, **cvrp}  # with the matrices
        opening, horizon = windows[..., 0, :1], windows[..., 0, 1:]  # [*B, 1]
        # In time for the window, and to return after the service.
        latest = torch.minimum(windows[..., 1], horizon - durations - times_to_depot(state))
        depot = start_at_depot(durations).unsqueeze(-1)  # [*B, 1]
        return {
            **cvrp,
            "durations": durations,
            "time_windows": windows,
            "horizon": horizon,
            "latest_arrival": latest + TIME_TOLERANCE * horizon,  # [*B, N]
            "current_time": opening,
            "arrival": opening + times_from(state, depot),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        node = action.unsqueeze(-1)  # [*B, 1]
        ready = state["time_windows"][..., 0].gather(-1, node)
        begin = torch.maximum(state["arrival"].gather(-1, node), ready)
        # A new route starts when the depot opens.
        leave = torch.where(node == 0, ready, begin + state["durations"].gather(-1, node))
        return {
            **super()._transition(state, action),
            "current_time": leave,
            "arrival": leave + times_from(state, node),
        }

    def _forbidden(self, state: State) -> Tensor:
        return super()._forbidden(state) | (state["arrival"] > state["latest_arrival"])

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        # All routes end at the depot, also the last one.
        stops = torch.cat([actions, torch.zeros_like(actions[..., :1])], -1)  # [*B, T + 1]
        begin = service_starts(state, stops)
        windows = state["time_windows"].double()
        slack = 2 * TIME_TOLERANCE * windows[..., 0, 1:]  # [*B, 1]
        late = begin > windows[..., 1].gather(-1, stops) + slack
        return {
            **super()._violations(state, actions),
            "every service begins within the time window": (late & (stops != 0)).any(-1),
            "every vehicle returns before the depot closes": (late & (stops == 0)).any(-1),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        windows, durations = instance["time_windows"], instance["durations"]
        state = {**instance, **locs_with_depot(instance)}
        opening, horizon = windows[..., 0, :1], windows[..., 0, 1:]  # [*B, 1]
        arrival = opening + times_from(state, start_at_depot(durations).unsqueeze(-1))  # [*B, N]
        back = torch.maximum(arrival, windows[..., 0]) + durations + times_to_depot(state)
        # Half of the mask's slack, so that the mask allows whatever is accepted here.
        slack = 0.5 * TIME_TOLERANCE * horizon
        key = time_matrix(state)
        travel = arrival if key is None else state[key].flatten(-2)
        return {
            **super()._instance_faults(instance),
            "durations is not negative, and 0 for the depot": (
                (durations < 0).any(-1) | (durations[..., 0] != 0)
            ),
            "time_windows is not negative, and the depot's ends after 0": (
                (windows < 0).flatten(-2).any(-1) | (horizon <= 0).squeeze(-1)
            ),
            "time_windows begins before it ends": (windows[..., 0] > windows[..., 1]).any(-1),
            "no travel time is negative (duration_matrix, or cost_matrix without one)": (
                (travel < 0).any(-1)
            ),
            "time_windows of every customer can be reached from the depot": (
                (arrival > windows[..., 1] + slack)[..., 1:].any(-1)
            ),
            "time_windows and durations of every customer leave time for the way back": (
                (back > horizon + slack)[..., 1:].any(-1)
            ),
        }

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        raise UnsupportedError(f"{self.name} has no local search: the CVRP's ignores time windows")
