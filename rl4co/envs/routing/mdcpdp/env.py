"""Multi-Depot Capacitated Pickup and Delivery Problem."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from torch import Tensor

from rl4co.core.errors import UnknownNameError
from rl4co.core.ops import any_true, gather_points
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import count_visits, leg_costs, sum_along_routes
from rl4co.envs.routing.mdcpdp.generator import MDCPDPGenerator

DistMode = Literal["L1", "L2"]
RewardMode = Literal["lateness", "lateness_square", "minmax", "minsum"]
ProblemMode = Literal["close", "open"]
StartMode = Literal["order", "random"]


@ENVS.register("mdcpdp")
class MDCPDPEnv(RL4COEnvBase):
    """Multi-Depot Capacitated Pickup and Delivery Problem: routes of several vehicles.

    One vehicle waits in each of k depots. Routes are built one after the other: action d < k sends
    out the vehicle of depot d, customers follow, and d again ends its route, whereupon another
    depot sends out its vehicle. A vehicle leaves once at most or stays at its depot; the last one
    that leaves serves all that is left, and its return is not a step.

    An instance has an even number of customers `locs [n, 2]`, pickups first, `depot [k, 2]`, the
    number of orders that each vehicle can carry at a time, `capacity [k]` (integers), and
    `lateness_weight [1]` (0 to 1). Of the N = k + n nodes, k + j is the pickup of the order that
    k + n/2 + j takes delivery of. Optional: a `cost_matrix [N, N]` that replaces distances; with
    it, coordinates may be missing.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates: depots, pickups, deliveries |
        | `capacity` | int64 | `[*B, k]` | orders that each vehicle can carry |
        | `lateness_weight` | float32 | `[*B, 1]` | share of lateness in the objective |
        | `available` | bool | `[*B, N]` | customers not visited yet, vehicles that have not left |
        | `to_deliver` | bool | `[*B, N]` | no pickup has to come first: all but open deliveries |
        | `current_node` | int64 | `[*B]` | last node visited |
        | `current_depot` | int64 | `[*B]` | depot of the current vehicle |
        | `current_capacity` | int64 | `[*B, 1]` | orders that the vehicle can carry, 0 at depots |
        | `current_carry` | int64 | `[*B, 1]` | orders on board |
        | `current_length` | float32 | `[*B, 1]` | length of the current route so far, 0 at depots |
        | `longest_length` | float32 | `[*B, 1]` | length of the longest route so far |
        | `num_unvisited` | int64 | `[*B, 1]` | customers not visited yet |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | customers that fit; depots unless pointless |

    Constraints:
        Every pickup and delivery is visited exactly once; every pickup precedes its delivery, on
        the same route; a vehicle never carries more orders than its capacity; every route starts
        and ends at the same depot; no vehicle leaves its depot twice.

    Finish condition:
        All customers are visited; finished instances stay at the current depot.

    Reward:
        Minus the cost. With route lengths $L_v$ and the length $t_j$ driven to delivery j: `minsum`
        $\\sum_v L_v$; `minmax` $\\max_v L_v$; `lateness` $(1 - w) \\sum_v L_v + w \\sum_j t_j$, w
        being the lateness weight; `lateness_square` the same with $t_j^2$.

    Args:
        dist_mode: `L2`, Euclidean distances, or `L1`, Manhattan distances.
        reward_mode: Objective, see above.
        problem_mode: `open` does not count the way from the last customer of a route back to the
            depot, `close` does, on every route.
        start_mode: Where the first decision, the choice of the first depot, is taken: `order` at
            depot 0, `random` at a depot drawn by a number of the instance, hence reproducible. This
            is what policies see; any depot may be chosen.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "mdcpdp"
    generator_cls = MDCPDPGenerator
    instance_shapes = {"locs": "n 2", "depot": "k 2", "capacity": "k", "lateness_weight": "1"}
    optional_shapes = {"cost_matrix": "m m"}
    substitutes = {"cost_matrix": ("locs", "depot")}

    def __init__(
        self,
        *args: Any,
        dist_mode: DistMode = "L2",
        reward_mode: RewardMode = "lateness",
        problem_mode: ProblemMode = "open",
        start_mode: StartMode = "order",
        **kwargs: Any,
    ) -> None:
        modes = {
            "dist_mode": (dist_mode, DistMode),
            "reward_mode": (reward_mode, RewardMode),
            "problem_mode": (problem_mode, ProblemMode),
            "start_mode": (start_mode, StartMode),
        }
        for name, (mode, choices) in modes.items():
            if mode not in get_args(choices):
                raise UnknownNameError(name, mode, get_args(choices))
        self.dist_mode, self.reward_mode = dist_mode, reward_mode
        self.problem_mode, self.start_mode = problem_mode, start_mode
        super().__init__(*args, **kwargs)

    # ---------------------------------------------------------------- steps

    def _init_state(self, instance: State) -> State:
        coordinates: State = {}
        if "locs" in instance and "depot" in instance:
            coordinates["locs"] = torch.cat([instance["depot"], instance["locs"]], -2)  # [*B, N, 2]
        nodes = coordinates["locs"] if coordinates else instance["cost_matrix"]  # [*B, N, ...]
        shape, capacity = nodes.shape[:-1], instance["capacity"]  # [*B, N], [*B, k]
        node = torch.arange(shape[-1], device=nodes.device).expand(shape)
        start = self._start_depot(nodes, capacity.shape[-1])  # [*B]
        none = torch.zeros_like(start).unsqueeze(-1)  # [*B, 1]
        return {
            **coordinates,
            "capacity": capacity,
            "lateness_weight": instance["lateness_weight"],
            "available": node >= 0,
            "to_deliver": node < _first_delivery(shape[-1], capacity.shape[-1]),
            "current_node": start,
            "current_depot": start,
            "current_capacity": none.to(capacity.dtype),
            "current_carry": none,
            "current_length": none.to(nodes.dtype),
            "longest_length": none.to(nodes.dtype),
            "num_unvisited": none + (shape[-1] - capacity.shape[-1]),
        }

    def _start_depot(self, nodes: Tensor, num_depots: int) -> Tensor:
        """Depot `[*B]` at which the first decision is taken; `nodes` is `[*B, N, ...]`."""
        number = nodes[..., -1, 0]
        if self.start_mode == "order":
            return torch.zeros_like(number, dtype=torch.int64)
        # Digits of a coordinate: irregular, but reproducible, as a function of the instance.
        fraction = (number.double() * 618.0339887).remainder(1.0)
        return (fraction * num_depots).long().clamp_max(num_depots - 1)

    def _transition(self, state: State, action: Tensor) -> State:
        node, capacity = action.unsqueeze(-1), state["capacity"]  # [*B, 1], [*B, k]
        num_depots, num_nodes = capacity.shape[-1], state["available"].shape[-1]
        half = (num_nodes - num_depots) // 2
        customer, delivery = node >= num_depots, node >= num_depots + half
        away = customer | (state["current_capacity"] == 0)  # otherwise it returns to its depot
        depot = torch.where(customer, state["current_depot"].unsqueeze(-1), node)
        # A pickup releases its delivery. Others map, modulo N, to a node released before.
        released = (node + half) % num_nodes
        driven = self._legs(state, state["current_node"].unsqueeze(-1), node)
        driven = driven + state["current_length"]
        length = driven * customer
        # The leg from one depot to the next belongs to no route.
        counted = length if self.problem_mode == "open" else driven * (customer | ~away)
        # Clamped, because forbidden actions, which TorchRL tries, must not make counts negative.
        unvisited = torch.add(state["num_unvisited"], customer, alpha=-1).clamp_min(0)
        carry = torch.add(state["current_carry"] + customer, delivery, alpha=-2).clamp_min(0)
        return {
            "available": state["available"].scatter(-1, node, False),
            "to_deliver": state["to_deliver"].scatter(-1, released, True),
            "current_node": action,
            "current_depot": depot.squeeze(-1),
            "current_capacity": capacity.gather(-1, depot) * away,
            "current_carry": carry,
            "current_length": length,
            "longest_length": torch.maximum(state["longest_length"], counted),
            "num_unvisited": unvisited,
            "done": unvisited == 0,
        }

    def _action_mask(self, state: State) -> Tensor:
        allowed = state["available"] & state["to_deliver"]  # [*B, N]
        num_depots = state["capacity"].shape[-1]
        split = _first_delivery(allowed.shape[-1], num_depots)
        capacity, carry, done = state["current_capacity"], state["current_carry"], state["done"]
        depot, node = state["current_depot"].unsqueeze(-1), state["current_node"].unsqueeze(-1)
        waiting = allowed[..., :num_depots]
        # A vehicle returns empty, after a customer, and only if another one can leave.
        another_waits = any_true(waiting)
        returns = ((carry == 0) & (node >= num_depots) & another_waits) | done  # [*B, 1]
        is_current = torch.arange(num_depots, device=depot.device) == depot  # [*B, k]
        depots = torch.where((capacity > 0) | done, is_current & returns, waiting)
        # At a depot the capacity is 0: no pickups until the next vehicle has left.
        pickups = allowed[..., num_depots:split] & (carry < capacity)  # [*B, n / 2]
        return torch.cat([depots, pickups, allowed[..., split:]], -1)

    def _legs(self, state: State, origin: Tensor, destination: Tensor) -> Tensor:
        """Length of each leg: `[*B, T], [*B, T]` → `[*B, T]`."""
        if self.dist_mode == "L2" or "cost_matrix" in state:
            return leg_costs(state, origin, destination)
        locs = state["locs"]
        return (gather_points(locs, origin) - gather_points(locs, destination)).abs().sum(-1)

    # ---------------------------------------------------------------- solutions

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        num_depots, num_nodes = state["capacity"].shape[-1], state["available"].shape[-1]
        customer = actions >= num_depots  # [*B, T]
        depot = _current_depot(actions, num_depots)
        before = torch.cat([actions[..., :1], actions[..., :-1]], -1)
        # Only legs to customers count, so depots behind the last customer (padding) cost nothing.
        legs = self._legs(state, before, actions) * customer
        lengths = legs
        if self.problem_mode == "close":
            after = torch.cat([customer[..., 1:], torch.zeros_like(customer[..., :1])], -1)
            lengths = legs + self._legs(state, actions, depot) * (customer & ~after)
        if self.reward_mode == "minmax":
            routes = torch.zeros_like(state["capacity"], dtype=lengths.dtype)
            return -routes.scatter_add(-1, depot, lengths).amax(-1)
        total = lengths.sum(-1)
        if self.reward_mode == "minsum":
            return -total
        arrival = sum_along_routes(legs, actions * customer)  # [*B, T]
        if self.reward_mode == "lateness_square":
            arrival = arrival.square()
        late = (arrival * (actions >= _first_delivery(num_nodes, num_depots))).sum(-1)
        weight = state["lateness_weight"].squeeze(-1)
        return -((1.0 - weight) * total + weight * late)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        num_depots, num_nodes = state["capacity"].shape[-1], state["available"].shape[-1]
        customer = actions >= num_depots  # [*B, T]
        steps = torch.arange(actions.shape[-1], device=actions.device).expand_as(actions)
        # Number of depot visits so far; odd: a vehicle is on its route.
        visits, depots = count_visits(actions, num_nodes), (~customer).cumsum(-1)
        out = depots % 2 == 1
        blank = torch.zeros_like(visits, dtype=torch.int64)  # [*B, N]
        when = blank.scatter(-1, actions, steps)[..., num_depots:].chunk(2, -1)
        route = blank.scatter(-1, actions, depots)[..., num_depots:].chunk(2, -1)

        depot = _current_depot(actions, num_depots)
        previous = torch.cat([depot[..., :1], depot[..., :-1]], -1)
        unfinished = customer.flip(-1).cumsum(-1).flip(-1) > 0  # what follows is padding
        elsewhere = ~customer & ~out & (actions != previous) & unfinished

        leaves = ~customer[..., :-1] & customer[..., 1:]  # [*B, T - 1]
        leaving = torch.zeros_like(state["capacity"]).scatter_add(
            -1, depot[..., :-1], leaves.to(state["capacity"].dtype)
        )  # [*B, k]

        delivery = actions >= _first_delivery(num_nodes, num_depots)
        change = customer.double() - 2.0 * delivery.double()
        load = sum_along_routes(change, actions * customer)
        return {
            "every pickup and delivery is visited exactly once": (
                visits[..., num_depots:] != 1
            ).any(-1),
            "every pickup precedes its delivery": (when[0] > when[1]).any(-1),
            "every route starts and ends at the same depot": ((customer & ~out) | elsewhere).any(
                -1
            ),
            "every order stays on one route": (route[0] != route[1]).any(-1),
            "no vehicle leaves its depot twice": (leaving > 1).any(-1),
            "no vehicle carries more orders than its capacity": (
                load > state["capacity"].gather(-1, depot)
            ).any(-1),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        capacity, weight = instance["capacity"], instance["lateness_weight"]
        num_depots = capacity.shape[-1]
        if "locs" in instance:
            num_nodes = num_depots + instance["locs"].shape[-2]
        else:
            num_nodes = instance["cost_matrix"].shape[-1]
        never = torch.zeros_like(capacity[..., 0], dtype=torch.bool)  # [*B]
        odd = num_nodes <= num_depots or bool((num_nodes - num_depots) % 2)
        faults = {
            "the number of nodes in locs (cost_matrix: without the depots) is even and not zero: "
            "pickups, then their deliveries in the same order": never | odd,
            "capacity is at least 1": (capacity < 1).any(-1),
            "lateness_weight is between 0 and 1": ((weight < 0) | (weight > 1)).any(-1),
        }
        if "cost_matrix" in instance:
            rule = "cost_matrix has a row for every depot, pickup and delivery"
            faults[rule] = never | (instance["cost_matrix"].shape[-1] != num_nodes)
        return faults

    def step_bounds(self, state: State) -> tuple[int, int]:
        """One vehicle for all at least; at most as many as there are, or as there are orders."""
        num_depots, num_nodes = state["capacity"].shape[-1], state["available"].shape[-1]
        customers = num_nodes - num_depots
        return customers + 1, customers + 2 * min(num_depots, customers // 2) - 1

    def augmentations(self) -> tuple[str, ...]:
        """Symmetries of the square keep Manhattan distances; other rotations do not."""
        return ("dihedral8",) if self.dist_mode == "L1" else super().augmentations()

    def _count_starts(self, state: State) -> int:
        return state["capacity"].shape[-1]

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        capacity = state["capacity"]
        depots = torch.arange(num_starts, device=capacity.device)
        return depots.expand(*capacity.shape[:-1], num_starts)

    def _render(self, state: State, actions: Tensor | None, **options: Any) -> Any:
        from rl4co.envs.routing.mdcpdp.render import render

        cost = None if actions is None else -float(self._objective(state, actions))
        closed = self.problem_mode == "close"
        return render(state, actions, **{"cost": cost, "closed": closed, **options})


def _first_delivery(num_nodes: int, num_depots: int) -> int:
    """Index of the first delivery: behind the depots and the pickups."""
    return num_depots + (num_nodes - num_depots) // 2


def _current_depot(actions: Tensor, num_depots: int) -> Tensor:
    """The last depot among the actions up to each step: `[*B, T]` → `[*B, T]`."""
    steps = torch.arange(actions.shape[-1], device=actions.device)
    last = torch.where(actions < num_depots, steps, 0).cummax(-1).values  # [*B, T]
    # In an invalid solution a customer may come first; clamping keeps the index valid.
    return actions.gather(-1, last).clamp_max(num_depots - 1)
