"""What a card measures: sets of instances, ways to decode and reference solvers of each problem."""

from __future__ import annotations

import dataclasses
import inspect

from collections.abc import Mapping, Sequence
from typing import Any

from rl4co.core.errors import RL4COError
from rl4co.core.registry import ENVS, FORMULATIONS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.tasks.benchmark.spec import GeneratedSource
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.methods import ANTS, IMPROVE

SIZES = (20, 50, 100, 200)
DISTRIBUTIONS = ("uniform", "cluster", "mixed", "gaussian_mixture")
#: Settings of distributions that have no defaults.
_SETTINGS = {"gaussian_mixture": {"loc_num_modes": 3, "loc_cdist": 10}}
#: Jobs and machines of shops.
SHOPS: Mapping[str, Sequence[tuple[int, int]]] = {
    "jssp": ((6, 6), (10, 10), (15, 15), (20, 20)),
    "fjsp": ((10, 5), (20, 5), (15, 10), (20, 10)),
}
#: Seed of all instances.
SEED = 1234
#: Solvers that stop as soon as their solution is proven, or after a fixed effort.
_STOP_THEMSELVES = ("lkh", "highs", "scip", "greedy")
#: Seconds per instance of the others: for each node or operation, and at least.
_SECONDS_PER_NODE, _LEAST_SECONDS = 0.01, 0.2
_MOST_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Decoding:
    """A way to decode.

    Args:
        label: Its name in tables.
        method: Evaluation method.
        options: Settings of the method.
    """

    label: str
    method: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class CardSet:
    """A set of instances.

    Args:
        size: Number of nodes, operations or items, or a text such as "10x5".
        kind: Distribution of the locations or variant of the problem; "" if there is one only.
        source: The instances.
    """

    size: int | str
    kind: str
    source: GeneratedSource

    @property
    def num_nodes(self) -> int:
        """Number of nodes or operations."""
        params = self.source.params
        jobs = params.get("num_jobs", 1) * params.get("num_machines", 1)
        return self.size if isinstance(self.size, int) else jobs


def card_sets(
    card: Mapping[str, Any],
    instances: int,
    sizes: Sequence[int] = SIZES,
    distributions: Sequence[str] = DISTRIBUTIONS,
) -> list[CardSet]:
    """The sets of a model: all sizes with all distributions, and variants of its size.

    Sets without a size of their own (chips) are one; shops have the sizes of their benchmarks.

    Args:
        card: What is known about the model.
        instances: Instances of each set.
        sizes: Sizes; that of the training comes on top.
        distributions: Distributions of the locations; the first one is that of the variants.
    """
    problem = str(card["problem"])
    generator = ENVS[problem].generator_cls
    accepted, size_name = inspect.signature(generator).parameters, generator.size_name()
    changed = {size_name, "loc_distribution", "variant_preset", "min_size", "max_size"}
    base = {
        key: value
        for key, value in card.get("generator", {}).items()
        if key not in changed and not key.startswith("loc_") and value is not None
    }

    def make(size: int | str, kind: str, params: Mapping[str, Any]) -> CardSet:
        name = " ".join(filter(None, [problem, str(size), kind]))
        settings = {**base, **params}
        return CardSet(size, kind, GeneratedSource(problem, name, instances, SEED, settings))

    if problem in SHOPS:
        return [
            make(f"{jobs}x{machines}", "", {"num_jobs": jobs, "num_machines": machines})
            for jobs, machines in SHOPS[problem]
            if jobs * machines == card.get("size") or tuple(sizes) == SIZES
        ]
    trained = card.get("size")
    if size_name not in ("num_loc", "num_sets") or not isinstance(trained, int):
        return [make(trained or "", "", {} if size_name is None else {size_name: trained})]
    found: list[CardSet] = []
    variants = "variant_preset" in accepted
    plain = {"variant_preset": "cvrp"} if variants else {}
    for size in sorted({*sizes, trained}):
        params = {**plain, size_name: size}
        if size_name == "num_sets":
            params["num_items"] = 2 * size
        if "loc_distribution" not in accepted:
            found.append(make(size, "", params))
            continue
        for kind in distributions:
            settings = {**params, "loc_distribution": kind, **_SETTINGS.get(kind, {})}
            found.append(make(size, kind, settings))
    if variants:
        from rl4co.envs.routing.mtvrp.variants import VARIANTS

        others = [variant for variant in VARIANTS if variant != "cvrp"]
        found += [
            make(trained, each, {"variant_preset": each, size_name: trained}) for each in others
        ]
    return found


def training_set(card: Mapping[str, Any], sets: Sequence[CardSet]) -> CardSet:
    """The set that is nearest to the instances of the training."""
    trained = card.get("size")
    same = [each for each in sets if each.num_nodes == trained]
    wanted = card.get("generator", {}).get("loc_distribution", "uniform")
    return next((each for each in same if each.kind == wanted), (same or list(sets))[0])


def decodings(policy: Any, env: RL4COEnvBase, samples: int = 128) -> list[Decoding]:
    """The ways to decode that a policy supports, the cheapest one first.

    Args:
        policy: The policy.
        env: Its environment.
        samples: Solutions of sampling.
    """
    if isinstance(policy, ImprovementPolicy):
        return [Decoding(f"{steps} steps", IMPROVE, {"steps": steps}) for steps in (100, 1000)]
    greedy = Decoding("greedy", "greedy")
    if hasattr(policy, "n_ants"):
        return [
            greedy,
            *(Decoding(f"ants × {n}", ANTS, {"n_iterations": n}) for n in (1, 10)),
        ]
    best = (
        Decoding("starts × 8", "multistart_greedy_augment_dihedral_8"),
        Decoding("greedy × 8", "augment_dihedral_8"),
        Decoding("starts", "multistart_greedy"),
    )
    probe = env.generator(2)
    supported = [each for each in best if _is_supported(each, policy, env, probe)][:1]
    return [greedy, *supported, Decoding(f"{samples} samples", "sampling", {"samples": samples})]


def _is_supported(decoding: Decoding, policy: Any, env: RL4COEnvBase, instances: Any) -> bool:
    try:
        evaluate_policy(env, policy, instances, decoding.method, batch_size=len(instances))
    except RL4COError:
        return False
    return True


def reference_seconds(solver: str, num_nodes: int, per_node: float | None = None) -> float:
    """Seconds per instance of a reference solver.

    Args:
        solver: Name of the solver.
        num_nodes: Number of nodes or operations.
        per_node: Seconds for each of them; None: the default.
    """
    if solver in _STOP_THEMSELVES:
        return _MOST_SECONDS
    seconds = (_SECONDS_PER_NODE if per_node is None else per_node) * num_nodes
    return round(max(_LEAST_SECONDS, seconds), 2)


def reference_solver(problem: str) -> str:
    """The classical solver that a problem's formulation prefers."""
    return str(FORMULATIONS[problem].solvers[0])
