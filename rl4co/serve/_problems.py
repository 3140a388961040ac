"""The problems of the playground: what the page needs to edit and to draw their instances."""

from __future__ import annotations

from rl4co.serve.schemas import Key, Option, Problem

_PLACES = Key(name="coordinates", shape="N 2", title="Coordinates", required=True)
_DEMAND = Key(name="demand", shape="N", title="Demand", required=True)
_CAPACITY = Key(name="capacity", shape="", title="Capacity of a vehicle", required=True)
_NODES = "The node that is visited next."
_DEPOT = "The node that is visited next; 0, the depot, ends a route."

#: Variants of the multi-task VRP (checked against the environment by a test).
VARIANTS = (
    "cvrp", "ovrp", "vrpb", "vrpl", "vrptw", "ovrptw", "ovrpb", "ovrpl",
    "vrpbl", "vrpbtw", "vrpltw", "ovrpbl", "ovrpbtw", "ovrpltw", "vrpbltw", "ovrpbltw",
)  # fmt: skip


def _key(name: str, shape: str, title: str, required: bool = True) -> Key:
    return Key(name=name, shape=shape, title=title, required=required)


def _windows(required: bool) -> list[Key]:
    return [
        _key("time_windows", "N 2", "First and last time to begin the service", required),
        _key("service_times", "N", "Time of the service", False),
    ]


def _routing(
    name: str,
    title: str,
    keys: list[Key],
    size_name: str = "customers",
    size_range: tuple[int, int] = (2, 1000),
    actions: str = _DEPOT,
    options: list[Option] | None = None,
    maximize: bool = False,
) -> Problem:
    return Problem(
        name=name,
        title=title,
        area="routing",
        size_name=size_name,
        size_range=size_range,
        default_size=20,
        value_name="prize" if maximize else "cost",
        maximize=maximize,
        options=options or [],
        keys=[_PLACES, *keys],
        actions=actions,
    )


PROBLEMS: tuple[Problem, ...] = (
    _routing("tsp", "Traveling salesman", [], "cities", (3, 1000), _NODES),
    _routing("cvrp", "Vehicle routing", [_DEMAND, _CAPACITY]),
    _routing("cvrptw", "Vehicle routing with time windows", [_DEMAND, _CAPACITY, *_windows(True)]),
    _routing(
        "mtvrp",
        "Multi-task vehicle routing",
        [
            _DEMAND,
            _key("backhaul_demand", "N", "Amount picked up", False),
            _CAPACITY,
            *_windows(False),
            _key("max_length", "", "Longest route", False),
            _key("open_routes", "", "Whether routes end at their last customer", False),
        ],
        options=[
            Option(
                name="variant",
                title="Variant",
                kind="choice",
                default="ovrpbltw",
                values=list(VARIANTS),
            )
        ],
    ),
    _routing(
        "op",
        "Orienteering",
        [_key("prizes", "N", "Prize"), _key("max_length", "", "Longest route")],
        maximize=True,
    ),
    _routing(
        "pdp",
        "Pickup and delivery",
        [_key("pairs", "P 2", "Pickups and their deliveries")],
        size_range=(2, 1000),
        actions=_NODES,
    ),
    Problem(
        name="jssp",
        title="Job shop",
        area="scheduling",
        size_name="jobs",
        size_range=(1, 100),
        default_size=6,
        value_name="makespan",
        maximize=False,
        options=[
            Option(
                name="machines", title="Machines", kind="integer", default=6, minimum=1, maximum=100
            )
        ],
        keys=[
            _key("jobs", "J", "Jobs: lists of operations [machine, time] in their order"),
            _key("machines", "", "Number of machines", False),
        ],
        actions="0 waits until an operation ends; j + 1 starts the next operation of job j.",
    ),
    Problem(
        name="flp",
        title="Facility location",
        area="graph",
        size_name="locations",
        size_range=(2, 1000),
        default_size=50,
        value_name="cost",
        maximize=False,
        options=[
            Option(
                name="facilities",
                title="Facilities",
                kind="integer",
                default=5,
                minimum=1,
                maximum=1000,
            )
        ],
        keys=[_PLACES, _key("facilities", "", "Number of facilities")],
        actions="The location of the next facility.",
    ),
)
