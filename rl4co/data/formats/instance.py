"""`BenchmarkInstance`: one instance of a routing problem in its original units."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import warnings

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from rl4co.core.errors import (
    ConfigError,
    FileFormatError,
    InvalidInstanceError,
    InvalidSolutionError,
)
from rl4co.data.formats.benchmark import Benchmark, one_solution
from rl4co.data.formats.distances import EdgeCosts, FloatArray, IntArray
from rl4co.data.formats.feasibility import TOLERANCE, find_violation
from rl4co.data.formats.possible import require_possible
from rl4co.data.formats.route_texts import WRITERS
from rl4co.data.formats.solutions import Solution, parse_solution, read_solution
from rl4co.data.formats.source import Source
from rl4co.data.layouts import RoutingLayout, routing_layout

#: One route or several, as sequences of nodes.
Routes = tuple[tuple[int, ...], ...]

#: Fields with one row per node, and the length of a row (0: a number).
_PER_NODE = {
    "coordinates": 2,
    "demand": 0,
    "backhaul_demand": 0,
    "time_windows": 2,
    "service_times": 0,
    "prizes": 0,
}

#: Fields of an instance without a best-known value or solution.
_NO_REFERENCE: dict[str, Any] = {
    "stated_best_known": None,
    "lower_bound": None,
    "solution_file": None,
    "solution": None,
}


@dataclasses.dataclass(frozen=True, eq=False)
class BenchmarkInstance(Benchmark):
    """A routing instance in original units and rounding, with its best-known value.

    Nodes are numbered as in the environment: node 0 is the depot (none in TSP and ATSP), pickups
    come before their deliveries. `labels` are the names that the file gives to them.

    Attributes:
        name: Name of the instance.
        problem: Name of the environment.
        edge_costs: Costs as a function of pairs of nodes, see :class:`EdgeCosts`.
        coordinates: `[N, 2]`; None for instances given by a matrix alone.
        demand: Amount delivered to each node, `[N]`; with `pairs`, the change of the load there.
        backhaul_demand: Amount picked up at each node, `[N]`.
        capacity: Capacity of every vehicle.
        time_windows: First and last time to begin the service, `[N, 2]`.
        service_times: `[N]`.
        duration_matrix: Travel times `[N, N]`, if they are not the costs.
        prizes: `[N]`; that of the depot is part of every solution's, but not of the environment's
            reward.
        max_length: Largest cost of a route.
        pairs: Pickups and their deliveries `[P, 2]`.
        fixed_edges: Edges that a tour must have `[E, 2]`.
        open_routes: Whether routes end at their last customer.
        vehicles: Most routes of a solution. Environments do not limit them: it is an option of
            solvers (:attr:`solver_options`), and :meth:`check` holds solutions to it.
        nominal_vehicles: A number of vehicles that limits nothing: Solomon's files give more than
            enough, and CVRPLIB's names (`-k5`) what the total demand needs.
        labels: Names of the nodes in the file `[N]`.
        comment: Comment of the file.
        source: The file.
        stated_best_known: Best-known value, if a table or the file has one.
        lower_bound: Value that no solution is below, if a table has one.
        solution_file: File with the best-known solution.
        needs_solution: Whether a fault of this file is an error; otherwise the file is ignored with
            a warning.
        solution: The best-known solution, if it is in the file itself.
    """

    name: str
    problem: str
    edge_costs: EdgeCosts
    coordinates: FloatArray | None = None
    demand: FloatArray | None = None
    backhaul_demand: FloatArray | None = None
    capacity: float | None = None
    time_windows: FloatArray | None = None
    service_times: FloatArray | None = None
    duration_matrix: FloatArray | None = None
    prizes: FloatArray | None = None
    max_length: float | None = None
    pairs: IntArray | None = None
    fixed_edges: IntArray | None = None
    open_routes: bool = False
    vehicles: int | None = None
    nominal_vehicles: int | None = None
    labels: tuple[str, ...] = ()
    comment: str = ""
    source: Path | None = None
    stated_best_known: float | None = None
    lower_bound: float | None = None
    solution_file: Path | None = None
    needs_solution: bool = True
    solution: Routes | None = None

    def __post_init__(self) -> None:
        for field, width in _PER_NODE.items():
            value = getattr(self, field)
            shape = (self.num_nodes, width) if width else (self.num_nodes,)
            if value is not None and value.shape != shape:
                raise InvalidInstanceError(
                    f"expected {field} of shape {list(shape)} (one row per node, the depot first), "
                    f"got {list(value.shape)}"
                )
        if self.capacity is not None and not self.capacity > 0:
            raise InvalidInstanceError(f"expected a positive capacity, got {self.capacity:g}")
        if self.vehicles is not None and self.vehicles < 1:
            raise InvalidInstanceError(f"expected at least 1 vehicle, got {self.vehicles}")
        if self.layout.single_route and (self.vehicles or 1) > 1:
            raise InvalidInstanceError(
                f"expected 1 vehicle in an instance of {self.problem}, whose solutions are one "
                f"route, got {self.vehicles} (several drive with a demand and a capacity)"
            )
        missing = [key for key in self.layout.requires if getattr(self, key) is None]
        if missing:
            raise InvalidInstanceError(
                f"expected {', '.join(self.layout.requires)} in an instance of {self.problem}, "
                f"got no {', '.join(missing)}"
            )

    def __repr__(self) -> str:
        return f"BenchmarkInstance({self.name!r}, problem={self.problem!r}, nodes={self.num_nodes})"

    # ---------------------------------------------------------------- facts

    @property
    def num_nodes(self) -> int:
        """Number of nodes N, the depot included."""
        return len(self.edge_costs.departure)

    @property
    @override
    def size(self) -> int:
        return self.num_nodes

    @property
    @override
    def size_text(self) -> str:
        return f"{self.num_nodes} nodes"

    @property
    @override
    def maximize(self) -> bool:
        return self.prizes is not None

    @property
    @override
    def value_name(self) -> str:
        return "prize" if self.maximize else "cost"

    @property
    @override
    def decimals(self) -> int | None:
        return None if self.maximize else self.edge_costs.decimals

    @property
    def layout(self) -> RoutingLayout:
        """The form of solutions and of the environment's instances."""
        return routing_layout(self.problem)

    @property
    @override
    def solver_options(self) -> dict[str, int]:
        if self.vehicles is None or self.layout.single_route:
            return {}
        return {"max_vehicles": self.vehicles}

    def name_of(self, node: int) -> str:
        """The name of a node for messages, or its numbers in solutions and in the file."""
        if self.layout.has_depot and node == 0:
            return "the depot"
        if self._has_names:
            return f"{'customer' if self.layout.has_depot else 'node'} {self.labels[node]}"
        is_same = not self.labels or self.labels[node] == str(node)
        return f"node {node}" if is_same else f"node {node} ({self.labels[node]} in the file)"

    @property
    def _has_names(self) -> bool:
        """Whether the file has names of nodes that are not just numbers."""
        return not all(label.isdigit() for label in self.labels)

    @functools.cached_property
    def costs(self) -> FloatArray:
        """All costs `[N, N]`, row to column, rounded by the rule of the instance.

        Computed on first use; :meth:`cost` does without it.
        """
        costs = self.edge_costs.all_pairs()
        costs.setflags(write=False)  # it is cached and shared by all callers
        return costs

    @functools.cached_property
    def scale(self) -> float:
        """Original units per unit of length, cost or time of the normalised instance.

        The longer side of the coordinates' bounding box, or the largest cost if costs are no
        distances between the coordinates.
        """
        if self.edge_costs.is_euclidean and self.coordinates is not None:
            return float(np.ptp(self.coordinates, axis=0).max()) or 1.0
        return float(np.abs(self.costs).max()) or 1.0

    @override
    def with_rounding(self, rounding: str) -> BenchmarkInstance:
        return dataclasses.replace(
            self, edge_costs=self.edge_costs.rounded(rounding), **_NO_REFERENCE
        )

    def with_vehicles(self, vehicles: int) -> BenchmarkInstance:
        """The same instance with another limit on routes.

        The best-known value and solution are dropped, unless the solution satisfies it.

        Args:
            vehicles: Most routes of a solution.
        """
        fits = self._reference is not None and len(self._reference.routes) <= vehicles
        return dataclasses.replace(self, vehicles=vehicles, **({} if fits else _NO_REFERENCE))

    # ---------------------------------------------------------------- solutions

    def as_routes(self, routes: Sequence[int] | Sequence[Sequence[int]]) -> Routes:
        """A solution as routes without the depot.

        Args:
            routes: Routes, or one flat sequence: a tour, or routes that the depot (0) separates.
        """
        has_depot = self.layout.has_depot
        split: list[list[int]] = [[]]
        for entry in routes:
            if not isinstance(entry, int) and np.ndim(entry):
                split += [[], *([*route] for route in self.as_routes(entry)), []]
            elif has_depot and entry == 0:
                split.append([])
            else:
                split[-1].append(int(entry))  # type: ignore[arg-type]
        return tuple(tuple(route) for route in split if route)

    def cost(self, routes: Sequence[int] | Sequence[Sequence[int]]) -> float:
        """Exact cost of a solution in the units of the instance, whether or not it is feasible.

        Args:
            routes: Routes without the depot, or one tour, or one sequence in which the depot (0)
                separates routes.
        """
        legs = [self._legs(route) for route in self.as_routes(routes)]
        if not legs:
            return 0.0
        nodes = np.concatenate(legs, axis=1)  # [2, edges]
        return self.edge_costs.total(nodes[0], nodes[1])

    @override
    def objective(self, routes: Sequence[int] | Sequence[Sequence[int]]) -> float:
        if self.prizes is None:
            return self.cost(routes)
        visited = [node for route in self.as_routes(routes) for node in route]
        return math.fsum(self.prizes[[0, *visited]])

    def check(
        self, routes: Sequence[int] | Sequence[Sequence[int]], tolerance: float = TOLERANCE
    ) -> None:
        """Raise :class:`InvalidSolutionError` unless a solution satisfies all constraints.

        Args:
            routes: Solution, as for :meth:`cost`.
            tolerance: Slack of loads, times and lengths, relative to their limits. The default
                covers rounding errors of float64 only. Environments allow about 1e-5, which
                makes a difference where distances are not rounded.
        """
        violation = find_violation(self, self.as_routes(routes), tolerance)
        if violation is not None:
            raise InvalidSolutionError(violation.rule_and_place, [0], 1)

    @functools.cached_property
    def best_known(self) -> float | None:
        """Best-known value: published, else that of the best-known solution; None if unknown."""
        if self.stated_best_known is not None:
            return self.stated_best_known
        reference = self._reference
        if reference is None:
            return None
        if reference.value is not None:
            return reference.value
        return self.objective(self._checked(reference))

    @functools.cached_property
    def best_solution(self) -> Routes | None:
        """Best-known solution; None if there is none.

        Raises:
            FileFormatError: The file with the solution is damaged, or the solution breaks a
                constraint (and the file is not one that merely lies beside the instance).
        """
        return None if self._reference is None else self._checked(self._reference)

    @override
    def read_solution(self, path: str | os.PathLike[str]) -> Routes:
        return read_solution(path, self).routes

    @property
    @override
    def suffixes(self) -> tuple[str, ...]:
        return (".sol", ".json") if self.layout.has_depot else (".tour", ".sol", ".json")

    @override
    def format_solution(self, routes: Routes, suffix: str) -> str:
        return WRITERS[suffix](self, self.as_routes(routes))

    def facts(self, routes: Routes) -> dict[str, str]:
        """Vehicles, if the file has a number of them: whether it is a limit, or only named."""
        nominal = self.nominal_vehicles
        if self.vehicles is not None:
            return {"vehicles": f"{len(routes)} of at most {self.vehicles}"}
        if nominal is None:
            return {}
        place = "name" if self.name.endswith(f"-k{nominal}") else "file"
        return {"vehicles": f"{len(routes)} ({nominal} in the {place}, which is no limit)"}

    @override
    def lines(self, routes: Routes) -> list[str]:
        named = not self.layout.has_depot or self._has_names
        texts = [" ".join(self.labels[n] if named else str(n) for n in route) for route in routes]
        if not self.layout.has_depot:
            return [f"Tour: {text}" for text in texts]
        return [f"Route #{number}: {text}" for number, text in enumerate(texts, start=1)]

    @override
    def record(self, routes: Routes) -> dict[str, Any]:
        record: dict[str, Any] = {"nodes": self.num_nodes, "cost": self.cost(routes)}
        if not self.layout.single_route:
            record |= {"vehicles": len(routes), "max_vehicles": self.vehicles}
        return {**record, "routes": routes}

    @functools.cached_property
    def _reference(self) -> Solution | None:
        """The best-known solution; warns if its file contradicts itself."""
        if self.solution is not None and self.source is not None:
            # Without its value: `best_known` of the same file may be better.
            return Solution(Source.read(self.source), self.solution, None)
        if self.solution_file is None:
            return None
        try:
            reference = parse_solution(Source.read(self.solution_file), self)
            if not self.needs_solution:
                reference.require_valid(self)
        except (FileFormatError, OSError) as error:
            if self.needs_solution:
                raise
            warnings.warn(f"{error}; this file is ignored", stacklevel=2)
            return None
        reference.note_contradiction(self)
        return reference

    def _checked(self, solution: Solution) -> Routes:
        solution.require_valid(self)
        return solution.routes

    # ---------------------------------------------------------------- the environment's view

    def to_tensordict(self, normalize: bool) -> TensorDict:
        """The instance for its environment, as a batch of one.

        With `normalize`, coordinates are moved and scaled into the unit square by one factor for
        both axes, costs and times are divided by :attr:`scale`, demands by the capacity, prizes by
        the largest; float32, as policies want it. A matrix of costs is included only where
        coordinates do not say enough: costs that are no Euclidean distances, or limits on times or
        lengths, which rounding decides. Get values in original units from the routes:
        `instance.objective(instance.from_actions(actions))`.

        Without, everything is in original units, with the matrix of costs, in float64: costs of the
        environment are exact then, for classical solvers and for checks. Above 5,000 nodes there is
        no matrix; distances are not rounded then.

        Args:
            normalize: Whether to scale.

        Raises:
            InvalidInstanceError: Some customer cannot be served, whatever the solution.
        """
        require_possible(self)
        arrays = self.layout.to_arrays(self, normalize)
        dtype = torch.float32 if normalize else torch.float64
        tensors = {}
        for key, value in arrays.items():
            tensor = torch.from_numpy(np.array(value))  # a copy: the environment may keep it
            tensors[key] = (tensor if tensor.dtype == torch.bool else tensor.to(dtype)).unsqueeze(0)
        return TensorDict(tensors, batch_size=[1])

    def from_actions(self, actions: Tensor | Sequence[int]) -> Routes:
        """Routes of a solution in the environment's encoding.

        Args:
            actions: `[T]` or `[1, T]`.
        """
        return self.as_routes(one_solution(actions).tolist())

    @override
    def to_actions(self, routes: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        actions: list[int] = []
        for route in self.as_routes(routes):
            actions += [*route, 0] if self.layout.returns else route
        return torch.tensor([actions or [0]], dtype=torch.int64)

    # ---------------------------------------------------------------- internals

    def _legs(self, route: Sequence[int]) -> IntArray:
        """Origins and destinations of a route `[2, edges]`, from the depot and back."""
        nodes = np.array(route, dtype=np.int64)
        outside = (nodes < 0) | (nodes >= self.num_nodes)
        if outside.any():
            raise ConfigError(
                f"expected nodes 0 to {self.num_nodes - 1} of {self.name}, got {nodes[outside][0]}"
            )
        if not self.layout.has_depot:
            return np.stack([nodes, np.roll(nodes, -1)])
        home = nodes[:0] if self.open_routes else np.zeros(1, dtype=np.int64)
        stops = np.concatenate([[0], nodes, home])
        return np.stack([stops[:-1], stops[1:]])
