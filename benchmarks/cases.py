"""The list of cases of a comparison run: what is measured, at which sizes and batches."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PROBLEMS = ("tsp", "cvrp")
#: Problems of cases that have a list of their own: the routing problems of both packages.
OWN_PROBLEMS = {
    "env_rollout": (
        "tsp", "atsp", "cvrp", "sdvrp", "cvrptw", "svrp", "op", "pctsp", "spctsp", "pdp",
        "mdcpdp", "mtsp", "shpp", "mtvrp",
    ),
    "routing_am_train": ("sdvrp", "op", "pctsp", "pdp"),
    "routing_pomo_train": ("mtvrp",),
    "evaluate": ("cvrp",),
}  # fmt: skip
#: Rows of `methods_train`: label → class, problem, customers, batch and arguments in both packages.
METHODS: dict[str, tuple[str, str, int, int, dict[str, Any]]] = {
    "SymNCO, TSP 50": ("SymNCO", "tsp", 50, 64, {"num_augment": 4, "num_starts": 0}),
    "SymNCO, CVRP 50": ("SymNCO", "cvrp", 50, 64, {"num_augment": 4, "num_starts": 0}),
    "PolyNet, TSP 50": ("PolyNet", "tsp", 50, 32, {"k": 32}),
    "PolyNet, CVRP 50": ("PolyNet", "cvrp", 50, 32, {"k": 32}),
    "MVMoE-POMO, MTVRP 50": ("MVMoE_POMO", "mtvrp", 50, 32, {}),
    "HAM, PDP 50": ("HeterogeneousAttentionModel", "pdp", 50, 256, {"baseline": "mean"}),
    "MDAM, TSP 50": ("MDAM", "tsp", 50, 128, {"baseline": "mean"}),
    "AM with PPO, TSP 50": ("AMPPO", "tsp", 50, 256, {}),
    "AM with PPO, CVRP 50": ("AMPPO", "cvrp", 50, 256, {}),
    "Pointer Network, TSP 50": ("PointerNetwork", "tsp", 50, 256, {"baseline": "mean"}),
}
SIZES = (20, 50, 100)
NEW, PUBLISHED = "new", "published"

TITLES = {
    "am_train": "Attention Model: one training step (sampling, REINFORCE, Adam)",
    "pomo_train": "POMO: one training step (all starts, shared baseline, Adam)",
    "routing_am_train": "Attention Model on further problems: one training step",
    "routing_pomo_train": "POMO on all multi-task variants mixed: one training step",
    "greedy": "Greedy inference",
    "multistart_greedy": "Multi-start greedy inference (all starts)",
    "evaluate": "Evaluation of 100 instances: all starts under 8 augmentations",
    "methods_train": "Further methods: one training step",
    "latency": "Latency: one instance, greedy",
    "env_rollout": "Environment alone: rollout of a random policy",
    "peak_memory": "Peak memory of a POMO training step",
    "import_time": "Start-up: wall time of a fresh process",
}
BATCH = {
    "am_train": 512,
    "pomo_train": 64,
    "routing_am_train": 512,
    "routing_pomo_train": 64,
    "greedy": 512,
    "multistart_greedy": 64,
    "evaluate": 100,
    "latency": 1,
    "env_rollout": 512,
    "peak_memory": 64,
}
QUICK_BATCH = {**BATCH, "am_train": 64, "pomo_train": 8, "greedy": 64, "multistart_greedy": 8}
QUICK_BATCH |= {"env_rollout": 64, "peak_memory": 8}
QUICK_BATCH |= {"routing_am_train": 64, "routing_pomo_train": 8, "evaluate": 8}
KIND = {  # worker kind where it differs from the name
    "latency": "greedy",
    "peak_memory": "pomo_train",
    "routing_am_train": "am_train",
    "routing_pomo_train": "pomo_train",
    "methods_train": "method_train",
}
FIXED_SIZES = {
    "env_rollout": (50,),
    "peak_memory": (100,),
    "evaluate": (100,),
    "routing_am_train": (50,),
    "routing_pomo_train": (50,),
}
INNER = {"latency": 5}

# label -> arguments after the interpreter, or after the console script `rl4co`
IMPORT_COMMANDS: dict[str, list[str]] = {
    "import rl4co": ["-c", "import rl4co"],
    "from rl4co.envs import TSPEnv": ["-c", "from rl4co.envs import TSPEnv"],
    "import torchrl": ["-c", "import torchrl"],
    "rl4co --help": ["--help"],
    "rl4co list": ["list"],
}


@dataclass(frozen=True)
class Case:
    """One row of a table: the same work for both contenders."""

    name: str
    label: str
    problem: str = ""
    size: int = 0
    batch: int = 0
    # arguments that only the new package has; given to that contender alone
    new_policy_kwargs: dict[str, Any] = field(default_factory=dict)
    # class of a method, and its arguments
    method: str = ""
    method_kwargs: dict[str, Any] = field(default_factory=dict)

    def spec(self, contender: str) -> dict[str, Any]:
        """What the worker of a contender is asked to set up."""
        return {
            "kind": KIND.get(self.name, self.name),
            "problem": self.problem,
            "size": self.size,
            "batch": self.batch,
            "inner": INNER.get(self.name, 1),
            "policy_kwargs": self.new_policy_kwargs if contender == NEW else {},
            "method": self.method,
            "method_kwargs": self.method_kwargs,
        }

    def as_dict(self) -> dict[str, Any]:
        """Fields for the results file."""
        return asdict(self)


def plan(
    names: list[str],
    problems: list[str] | None = None,
    sizes: list[int] | None = None,
    replay_chunk: int = 16,
    quick: bool = False,
) -> list[Case]:
    """Cases of a run, in the order of the tables.

    Args:
        names: keys of `TITLES`.
        problems: names of problems; None means those of each case.
        sizes: numbers of customers; None means the default sizes of each case.
        replay_chunk: steps per chunk of the second peak-memory row (0: leave that row out).
        quick: one small size and small batches, to see that everything runs.
    """
    cases: list[Case] = []
    for name in names:
        if name == "import_time":
            cases += [Case(name, label) for label in IMPORT_COMMANDS]
            continue
        if name == "methods_train":
            cases += _method_cases(problems, quick)
            continue
        defaults = (20,) if quick else FIXED_SIZES.get(name, SIZES)
        batch = (QUICK_BATCH if quick else BATCH)[name]
        for problem in problems or OWN_PROBLEMS.get(name, PROBLEMS):
            for size in sizes or defaults:
                label = f"{problem.upper()} {size}"
                cases.append(Case(name, label, problem, size, batch))
                if name == "peak_memory" and replay_chunk:
                    chunk = {"replay_chunk": replay_chunk}
                    chunked = f"{label}, new with replay_chunk={replay_chunk}"
                    cases.append(Case(name, chunked, problem, size, batch, chunk))
    return cases


def _method_cases(problems: list[str] | None, quick: bool) -> list[Case]:
    """One row for each method and problem."""
    return [
        Case(
            "methods_train",
            label,
            problem,
            20 if quick else size,
            8 if quick else batch,
            method=method,
            method_kwargs=arguments,
        )
        for label, (method, problem, size, batch, arguments) in METHODS.items()
        if not problems or problem in problems
    ]
