"""The list of cases of a comparison run: what is measured, at which sizes and batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
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
    "colony": ("tsp",),
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
#: Environments of the scheduling problems: label → problem and its arguments in both packages.
SHOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "FJSP 10x5": ("fjsp", {"num_jobs": 10, "num_machines": 5}),
    "JSSP 6x6": ("jssp", {"num_jobs": 6, "num_machines": 6}),
    "FFSP 20": ("ffsp", {"num_stage": 3, "num_machine": 4, "num_job": 20}),
}
#: The same for the graph problems.
GRAPHS: dict[str, tuple[str, dict[str, Any]]] = {
    "FLP 100, 10 chosen": ("flp", {"num_loc": 100, "to_choose": 10}),
    "MCP 100, 10 chosen": ("mcp", {"num_sets": 100, "num_items": 200, "n_sets_to_choose": 10}),
}
#: Rows of `stepwise_ppo`: label → shop and encoder.
STEPWISE: dict[str, tuple[str, str]] = {
    "L2D (GCN), JSSP 6x6": ("JSSP 6x6", "gcn"),
    "HGNN, FJSP 10x5": ("FJSP 10x5", "hgnn"),
    "MatNet, FJSP 10x5": ("FJSP 10x5", "matnet"),
}
#: Rows of `eas_iteration` and `search_memory`: label → class.
SEARCHES = {"EAS-Emb": "EASEmb", "EAS-Lay": "EASLay"}
#: Rows of `improvement_steps` and `improvement_memory`: label → policy class, environment and its
#: arguments beside the size.
IMPROVEMENT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "DACT, TSP 50": ("DACTPolicy", "tsp_kopt", {}),
    "N2S, PDP 50": ("N2SPolicy", "pdp_ruin_repair", {}),
    "NeuOpt, TSP 50": ("NeuOptPolicy", "tsp_kopt", {"k_max": 4}),
}
#: Cases that measure memory instead of time.
MEMORY = ("peak_memory", "search_memory", "improvement_memory")
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
    "stepwise_ppo": "Stepwise PPO: collecting and updating on one batch",
    "eas_iteration": "Efficient active search: one iteration (8 augmentations, all starts)",
    "improvement_steps": "Improvement methods: 50 moves of a batch",
    "colony": "DeepACO: 20 ants with local search, 3 iterations",
    "latency": "Latency: one instance, greedy",
    "env_rollout": "Environment alone: rollout of a random policy",
    "scheduling_rollout": "Scheduling environment alone: rollout of a random policy",
    "graph_rollout": "Graph environment alone: rollout of a random policy",
    "peak_memory": "Peak memory of a POMO training step",
    "search_memory": "Peak memory of an iteration of efficient active search",
    "improvement_memory": "Peak memory of 50 moves of improvement methods",
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
    "scheduling_rollout": 512,
    "graph_rollout": 512,
    "stepwise_ppo": 64,
    "eas_iteration": 2,
    "peak_memory": 64,
    "search_memory": 2,
    "improvement_steps": 64,
    "improvement_memory": 64,
    "colony": 4,
}
QUICK_BATCH = {**BATCH, "am_train": 64, "pomo_train": 8, "greedy": 64, "multistart_greedy": 8}
QUICK_BATCH |= {"env_rollout": 64, "scheduling_rollout": 64, "stepwise_ppo": 8, "peak_memory": 8}
QUICK_BATCH |= {"graph_rollout": 64, "routing_am_train": 64, "routing_pomo_train": 8, "evaluate": 8}
KIND = {  # worker kind where it differs from the name
    "latency": "greedy",
    "peak_memory": "pomo_train",
    "routing_am_train": "am_train",
    "routing_pomo_train": "pomo_train",
    "methods_train": "method_train",
    "stepwise_ppo": "method_train",
    "eas_iteration": "search",
    "search_memory": "search",
    "improvement_steps": "improve",
    "improvement_memory": "improve",
    "scheduling_rollout": "env_rollout",
    "graph_rollout": "env_rollout",
}
FIXED_SIZES = {
    "env_rollout": (50,),
    "peak_memory": (100,),
    "evaluate": (100,),
    "colony": (200,),
    "routing_am_train": (50,),
    "routing_pomo_train": (50,),
}
#: Calls per repetition, where one is over in a blink: by case, and by size.
INNER = {"latency": 5}
INNER_BY_SIZE = {20: 3}

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
    # arguments of the environment in place of the size
    env_kwargs: dict[str, Any] = field(default_factory=dict)
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
            "inner": 1 if self.name in MEMORY else self._calls(),
            "policy_kwargs": self.new_policy_kwargs if contender == NEW else {},
            "env_kwargs": self.env_kwargs,
            "method": self.method,
            "method_kwargs": self.method_kwargs,
        }

    def _calls(self) -> int:
        return INNER.get(self.name, INNER_BY_SIZE.get(self.size, 1))

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
        if name in OWN_CASES:
            cases += OWN_CASES[name](problems, quick)
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


def _rollout_cases(
    name: str,
    rows: dict[str, tuple[str, dict[str, Any]]],
    problems: list[str] | None,
    quick: bool,
) -> list[Case]:
    """One row for each problem of an area, whose size is more than a number of customers."""
    batch = (QUICK_BATCH if quick else BATCH)[name]
    return [
        Case(name, label, problem, 0, batch, env_kwargs={"generator_params": size})
        for label, (problem, size) in rows.items()
        if not problems or problem in problems
    ]


def _stepwise_cases(problems: list[str] | None, quick: bool) -> list[Case]:
    """One row for each encoder."""
    batch = (QUICK_BATCH if quick else BATCH)["stepwise_ppo"]
    cases = []
    for label, (shop, encoder) in STEPWISE.items():
        problem, size = SHOPS[shop]
        if not problems or problem in problems:
            env_kwargs = {"generator_params": size, "stepwise_reward": True}
            kwargs = {"encoder": encoder, "mini_batch_size": 256, "reward_scale": "scale"}
            cases.append(
                Case(
                    "stepwise_ppo", label, problem, 0, batch,
                    env_kwargs=env_kwargs, method="L2DPPOModel", method_kwargs=kwargs,
                )
            )  # fmt: skip
    return cases


def _search_cases(name: str, problems: list[str] | None, quick: bool) -> list[Case]:
    """One row for each search and problem."""
    size = 20 if quick else 100
    return [
        Case(
            name, f"{label}, {problem.upper()} {size}", problem, size, BATCH[name], method=method
        )
        for label, method in SEARCHES.items()
        for problem in problems or PROBLEMS
    ]  # fmt: skip


def _improvement_cases(name: str, problems: list[str] | None, quick: bool) -> list[Case]:
    """One row for each improvement method."""
    size, batch = (20, 8) if quick else (50, BATCH[name])
    return [
        Case(
            name, label.replace("50", str(size)), problem, size, batch, method=policy,
            env_kwargs={"generator_params": {"num_loc": size}, **options},
        )
        for label, (policy, problem, options) in IMPROVEMENT.items()
        if not problems or problem in problems
    ]  # fmt: skip


#: Cases whose rows are not problems × sizes.
OWN_CASES: dict[str, Callable[[list[str] | None, bool], list[Case]]] = {
    "methods_train": _method_cases,
    "scheduling_rollout": partial(_rollout_cases, "scheduling_rollout", SHOPS),
    "graph_rollout": partial(_rollout_cases, "graph_rollout", GRAPHS),
    "stepwise_ppo": _stepwise_cases,
    "eas_iteration": partial(_search_cases, "eas_iteration"),
    "search_memory": partial(_search_cases, "search_memory"),
    "improvement_steps": partial(_improvement_cases, "improvement_steps"),
    "improvement_memory": partial(_improvement_cases, "improvement_memory"),
}
