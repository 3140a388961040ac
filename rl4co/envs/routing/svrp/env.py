"""Skill Vehicle Routing Problem."""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.core.ops import all_true, any_true
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import (
    allowed_starts,
    count_allowed_starts,
    count_visits,
    leg_costs,
    locs_with_depot,
    pad_depot,
    start_at_depot,
    unvisited,
)
from rl4co.envs.routing.svrp.generator import SVRPGenerator


@ENVS.register("svrp")
class SVRPEnv(RL4COEnvBase):
    """Skill VRP: technicians of different skill and cost visit customers that ask for some skill.

    Paper: Cappanera, Gouveia and Scutellà (2011), The skill vehicle routing problem.

    An instance has customers `locs [n, 2]`, a `depot [2]`, the skills of technicians `techs [t, 1]`
    in ascending order, and those that customers ask for, `skills [n, 1]`. Optional: the cost of a
    unit of length for each technician, `tech_costs [t]` (default 1, 2, ..., t), and a
    `cost_matrix [N, N]` over depot and customers (N = n + 1) that replaces Euclidean distances;
    with it, coordinates may be missing.

    Technicians set out one after the other, the least skilled first: each visit of the depot sends
    out the next. Technicians may stay at the depot.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates, depot first |
        | `techs` | float32 | `[*B, t]` | skills of the technicians, ascending |
        | `tech_costs` | float32 | `[*B, t]` | their cost of a unit of length |
        | `skills` | float32 | `[*B, N]` | skills asked for, 0 for the depot |
        | `current_tech` | int64 | `[*B]` | current technician (starts with 0) |
        | `visited` | bool | `[*B, N]` | nodes visited so far |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | customers within the skill; the depot |

    Constraints:
        Every customer is visited exactly once, by a technician with the skill that it asks for;
        each technician sets out at most once.

    Finish condition:
        All nodes, the depot included, are visited; finished instances stay at the depot.

    Reward:
        Minus the cost of all routes, $-\\sum_k c_k \\ell_k$ with the length $\\ell_k$ of the route
        of technician k.
    """

    name = "svrp"
    generator_cls = SVRPGenerator
    instance_shapes = {"locs": "n 2", "depot": "2", "techs": "t 1", "skills": "n 1"}
    optional_shapes = {"tech_costs": "t", "cost_matrix": "n+1 n+1"}
    substitutes = {"cost_matrix": ("locs", "depot")}

    def _init_state(self, instance: State) -> State:
        techs = instance["techs"].squeeze(-1)  # [*B, t]
        skills = pad_depot(instance["skills"].squeeze(-1))  # [*B, N]
        costs = torch.arange(1, techs.shape[-1] + 1, dtype=techs.dtype, device=techs.device)
        return {
            **locs_with_depot(instance),
            "techs": techs,
            "tech_costs": instance.get("tech_costs", costs.expand_as(techs)),
            "skills": skills,
            "current_tech": start_at_depot(techs),
            "visited": unvisited(skills),
            "current_node": start_at_depot(skills),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        visited = state["visited"].scatter(-1, action.unsqueeze(-1), True)
        last = state["techs"].shape[-1] - 1
        return {
            # After the end no further technician sets out.
            "current_tech": (state["current_tech"] + (action == 0)).clamp_max(last),
            "visited": visited,
            "current_node": action,
            "done": all_true(visited),
        }

    def _action_mask(self, state: State) -> Tensor:
        tech = state["current_tech"].unsqueeze(-1)  # [*B, 1]
        too_hard = state["skills"] > state["techs"].gather(-1, tech)  # [*B, N]
        customers = ~(state["visited"] | too_hard)[..., 1:]  # [*B, N - 1]
        # The last technician has the skill for all customers and must serve those that are left.
        none_left = ~any_true(customers)
        depot = (tech < state["techs"].shape[-1] - 1) | none_left
        return torch.cat([depot, customers], -1)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        depot = torch.zeros_like(actions[..., :1])
        origin, destination = torch.cat([depot, actions], -1), torch.cat([actions, depot], -1)
        length = leg_costs(state, origin, destination)  # [*B, T + 1]
        tech = torch.cat([depot, (actions == 0).cumsum(-1)], -1)  # [*B, T + 1]
        rate = state["tech_costs"].gather(-1, tech.clamp_max(state["techs"].shape[-1] - 1))
        return -(length * rate).sum(-1)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        visits = count_visits(actions, state["skills"].shape[-1])
        at_depot, num_techs = actions == 0, state["techs"].shape[-1]
        tech = at_depot.cumsum(-1)  # [*B, T], technician of each step
        skill = state["techs"].gather(-1, tech.clamp_max(num_techs - 1))
        return {
            "every customer is visited exactly once": (visits[..., 1:] != 1).any(-1),
            "every customer is within the skill of its technician": (
                state["skills"].gather(-1, actions) > skill
            ).any(-1),
            "no more technicians set out than there are": (~at_depot & (tech >= num_techs)).any(-1),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        techs, skills = instance["techs"].squeeze(-1), instance["skills"].squeeze(-1)
        costs = instance.get("tech_costs", torch.ones_like(techs))
        return {
            "techs is not negative and not all 0": (techs < 0).any(-1) | (techs <= 0).all(-1),
            "techs is ascending (sort it, and tech_costs with it)": (techs.diff(dim=-1) < 0).any(
                -1
            ),
            "skills is not negative": (skills < 0).any(-1),
            "skills is within the best of techs": (skills > techs[..., -1:]).any(-1),
            "tech_costs is not negative and not all 0": (costs < 0).any(-1) | (costs <= 0).all(-1),
        }

    def step_bounds(self, state: State) -> tuple[int, int]:
        """Every customer, and from one depot visit to one before each further technician."""
        num_customers, num_techs = state["skills"].shape[-1] - 1, state["techs"].shape[-1]
        return num_customers + 1, num_customers + max(num_techs - 1, 1)

    # Starts are the customers within the skill of the first technician, who may stay at the depot.

    def _count_starts(self, state: State) -> int:
        return count_allowed_starts(state["action_mask"], depot=True)

    def _most_starts(self, state: State) -> int:
        return state["skills"].shape[-1]

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return allowed_starts(state["action_mask"], num_starts, depot=True)
