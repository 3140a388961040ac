"""Scheduling: dispatching rules against plain Python, CP-SAT against all schedules there are."""

from __future__ import annotations

import copy
import importlib
import itertools
import math
import pickle
import time

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    StoppedError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import SOLVERS
from rl4co.decoding.rollout import rollout
from rl4co.envs import get_env
from rl4co.solvers._cancellation import CancelToken, converting_incumbents
from rl4co.solvers.dispatching import dispatching_policy

#: A shop: the operations of each job, machine → processing time.
Jobs = list[list[dict[int, float]]]

needs_ortools = pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="no ortools")

#: Small shops of each kind.
SHOPS: dict[str, dict[str, Any]] = {
    "jssp": {"generator_params": {"num_jobs": 4, "num_machines": 3}},
    "fjsp": {"generator_params": {"num_jobs": 4, "num_machines": 3, "min_ops_per_job": 2,
                                  "max_ops_per_job": 3}},
    "ffsp": {"generator_params": {"num_stage": 2, "num_machine": 2, "num_job": 5}},
}  # fmt: skip


def make(name: str, **settings: Any):
    return get_env(name, **{**SHOPS.get(name, {}), **settings})


def draw(env, batch: int, seed: int = 0) -> TensorDict:
    return env.generator(batch, rng=torch.Generator().manual_seed(seed))


def jobs_of(env, td: TensorDict) -> Jobs:
    """The operations of one instance (a state without batch axis)."""
    if "run_time" in td.keys():
        stages = td["schedule"].shape[-2]
        size = td["run_time"].shape[-1] // stages
        return [
            [{m: row[m] for m in range(s * size, (s + 1) * size)} for s in range(stages)]
            for row in td["run_time"].tolist()
        ]
    times = td["proc_times"].tolist()
    return [
        [{m: row[op] for m, row in enumerate(times) if row[op] > 0} for op in range(a, b + 1)]
        for a, b in zip(td["start_op_per_job"].tolist(), td["end_op_per_job"].tolist(), strict=True)
        if not td["pad_mask"][a]
    ]


# ---------------------------------------------------------------- dispatching in plain Python


class Queue:
    """What a rule knows about a job that can start: in plain numbers."""

    def __init__(self, job: int, left: list[dict[int, float]], arrival: float, time: float) -> None:
        self.job, self.arrival, self.time = job, arrival, time
        self.operations = len(left)
        self.work = sum(sum(op.values()) / len(op) for op in left)


KEYS: dict[str, Callable[[Queue], float]] = {
    "spt": lambda q: q.time,
    "lpt": lambda q: -q.time,
    "fifo": lambda q: q.arrival,
    "lifo": lambda q: -q.arrival,
    "mor": lambda q: -q.operations,
    "lor": lambda q: q.operations,
    "mwkr": lambda q: -round(q.work, 9),
    "lwkr": lambda q: round(q.work, 9),
}


def dispatch_job_shop(jobs: Jobs, rule: str) -> float:
    """Makespan if at any time the first job by the rule starts, on its fastest free machine."""
    machines = {m for job in jobs for op in job for m in op}
    until = dict.fromkeys(machines, 0.0)
    ready, place = [0.0] * len(jobs), [0] * len(jobs)
    now = 0.0
    while any(place[j] < len(job) for j, job in enumerate(jobs)):
        queue = []
        for j, job in enumerate(jobs):
            if place[j] == len(job) or ready[j] > now:
                continue
            free = [t for m, t in job[place[j]].items() if until[m] <= now]
            if free:
                queue.append(Queue(j, job[place[j] :], ready[j], min(free)))
        if not queue:
            now = min(t for t in [*until.values(), *ready] if t > now)
            continue
        job = min(queue, key=lambda q: (KEYS[rule](q), q.job)).job
        free = {m: t for m, t in jobs[job][place[job]].items() if until[m] <= now}
        machine = min(free, key=lambda m: (free[m], m))
        ready[job] = until[machine] = now + free[machine]
        place[job] += 1
    return max(ready)


def dispatch_flow_shop(jobs: Jobs, rule: str) -> float:
    """Makespan if each machine, in turn, takes the first job by the rule."""
    machines = sorted({m for op in jobs[0] for m in op})
    stage_of = {m: s for s, op in enumerate(jobs[0]) for m in op}
    until = dict.fromkeys(machines, 0)
    ready, place = [0] * len(jobs), [0] * len(jobs)
    for now in range(10**6):
        for m in machines:
            queue = [
                Queue(j, job[place[j] :], ready[j], job[place[j]][m])
                for j, job in enumerate(jobs)
                if place[j] == stage_of[m] and ready[j] <= now and until[m] <= now
            ]
            if queue:
                job = min(queue, key=lambda q: (KEYS[rule](q), q.job)).job
                ready[job] = until[m] = now + jobs[job][place[job]][m]
                place[job] += 1
        if min(place) == len(jobs[0]):
            return max(ready)
    raise AssertionError("never ends")


@pytest.mark.parametrize("rule", KEYS)
@pytest.mark.parametrize("name", ["jssp", "fjsp"])
@pytest.mark.parametrize("mask_no_ops", [True, False])
def test_job_shops(name, rule, mask_no_ops):
    """Makespans of eight instances, whether waiting is allowed or not: no job waits."""
    env = make(name, mask_no_ops=mask_no_ops)
    instances = draw(env, 8)
    actions, costs = env.solve(instances, solver="dispatching", rule=rule)
    td = env.reset(instances)
    assert torch.equal(costs, -env.get_reward(td, actions))
    for b in range(8):
        expected = dispatch_job_shop(jobs_of(env, td[b]), rule)
        assert float(costs[b]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rule", ["spt", "lpt", "fifo", "lifo", "mwkr", "lwkr"])
def test_flow_shops(rule):
    """The same for machines that are asked in turn."""
    env = make("ffsp")
    td = env.reset(draw(env, 8))
    _, costs = env.solve(td, solver="dispatching", rule=rule)
    assert costs.tolist() == [dispatch_flow_shop(jobs_of(env, td[b]), rule) for b in range(8)]


def single_machine_order(td: TensorDict, rule: str, lookahead: float = 2.0) -> list[int]:
    """The order of jobs by a rule, in plain Python."""
    keys = ("job_due_time", "job_weight", "job_process_time")
    due, weight, process = (td[key].double().tolist() for key in keys)
    left, now, order = list(range(1, len(due))), 0.0, []
    while left:
        mean = sum(process[j] for j in left) / len(left)

        def key(j: int, now: float = now, mean: float = mean) -> float:
            slack = max(due[j] - process[j] - now, 0.0)
            return {
                "spt": process[j],
                "lpt": -process[j],
                "edd": due[j],
                "mdd": max(due[j], now + process[j]),
                "wspt": -weight[j] / process[j],
                "atc": -weight[j] / process[j] * math.exp(-slack / (lookahead * mean)),
            }[rule]

        job = min(left, key=key)
        left.remove(job)
        order.append(job)
        now += process[job]
    return order


@pytest.mark.parametrize("rule", ["spt", "lpt", "edd", "mdd", "wspt", "atc"])
def test_single_machine(rule):
    env = get_env("smtwtp", generator_params={"num_job": 9})
    td = env.reset(draw(env, 6))
    actions, _ = env.solve(td, solver="dispatching", rule=rule)
    assert actions.tolist() == [single_machine_order(td[b], rule) for b in range(6)]


def test_lookahead_of_the_apparent_tardiness_cost():
    """A short sight goes by due dates, a long one by weight per time."""
    env = get_env("smtwtp", generator_params={"num_job": 9})
    td = env.reset(draw(env, 6))
    for lookahead in (0.5, 8.0):
        actions, _ = env.solve(td, solver="dispatching", rule="atc", lookahead=lookahead)
        expected = [single_machine_order(td[b], "atc", lookahead) for b in range(6)]
        assert actions.tolist() == expected
    blind, _ = env.solve(td, solver="dispatching", rule="atc", lookahead=1e9)
    assert torch.equal(blind, env.solve(td, solver="dispatching", rule="wspt")[0])
    with pytest.raises(ConfigError, match="lookahead"):
        env.solve(td, solver="dispatching", rule="atc", lookahead=0.0)


def test_jobs_without_weight_come_last():
    """The logarithm of a weight of zero is no trouble."""
    env = get_env("smtwtp", generator_params={"num_job": 5})
    instances = draw(env, 1)
    instances["job_weight"][:, [2, 4]] = 0.0
    actions, _ = env.solve(instances, solver="dispatching", rule="atc")
    assert actions[0, -2:].tolist() == [2, 4]


@pytest.mark.parametrize("name", ["jssp", "fjsp", "ffsp", "smtwtp"])
def test_rules_as_policies(name):
    """`rollout` with a rule is `solve` with it; batch mates do not matter."""
    env = make(name)
    td = env.reset(draw(env, 5))
    reward, _, actions = rollout(env, td, dispatching_policy(env, "spt"))
    solved, costs = env.solve(td, solver="dispatching")
    assert torch.equal(solved, actions) and torch.equal(costs, -reward)
    for b in range(5):
        assert torch.equal(env.solve(td[b : b + 1], solver="dispatching")[1], costs[b : b + 1])


@pytest.mark.parametrize("name", ["jssp", "fjsp"])
def test_remaining_work_is_summed_once_per_episode(name, monkeypatch: pytest.MonkeyPatch):
    """A policy that is used again sees instances that were modified in place."""
    env = make(name)
    td = env.reset(draw(env, 3))
    sums = []
    cumsum = torch.Tensor.cumsum

    def counting(x: torch.Tensor, dim: int) -> torch.Tensor:
        sums.append(x.dtype == torch.float64)
        return cumsum(x, dim)

    monkeypatch.setattr(torch.Tensor, "cumsum", counting)
    policy = dispatching_policy(env, "mwkr")
    rollout(env, td.clone(False), policy)
    assert sum(sums) == 1
    td["proc_times"].mul_(1 + torch.arange(td["proc_times"].shape[-1]) % 3)
    td = env.reset(td.select(*env.instance_shapes))
    again = rollout(env, td.clone(False), policy)[2]
    assert sum(sums) == 2
    assert torch.equal(again, rollout(env, td.clone(False), dispatching_policy(env, "mwkr"))[2])


@pytest.mark.parametrize("name", ["jssp", "fjsp", "ffsp", "smtwtp"])
def test_random_dispatching(name):
    """A seed fixes it and leaves the global generator alone; the default is not always the same."""
    env = make(name)
    td = env.reset(draw(env, 16))
    state = torch.get_rng_state()
    first, second, other = (
        env.solve(td, solver="dispatching", rule="random", seed=seed)[1] for seed in (0, 0, 1)
    )
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    free = [env.solve(td, solver="dispatching", rule="random", seed=None)[1] for _ in range(2)]
    assert not torch.equal(free[0], free[1])


def test_other_names():
    """Shortest and longest remaining processing time."""
    env = make("jssp")
    td = env.reset(draw(env, 4))
    for name, other in {"lrpt": "mwkr", "srpt": "lwkr"}.items():
        ours, theirs = (env.solve(td, solver="dispatching", rule=r)[0] for r in (name, other))
        assert torch.equal(ours, theirs)


def test_unknown_rules_and_problems():
    """Rules that mean nothing in a problem are not there: the message lists those that are."""
    env = make("ffsp")
    with pytest.raises(UnknownNameError, match="mwkr"):
        env.solve(env.generate(1), solver="dispatching", rule="mor")
    with pytest.raises(UnknownNameError, match="did you mean 'edd'"):
        dispatching_policy(get_env("smtwtp"), "ed")
    with pytest.raises(UnsupportedError, match="tsp"):
        dispatching_policy(get_env("tsp"), "spt")
    with pytest.raises(UnsupportedError, match="dispatching"):
        get_env("tsp").solve(get_env("tsp").generate(1), solver="dispatching")


# ---------------------------------------------------------------- CP-SAT


def best_makespan(jobs: Jobs) -> float:
    """Shortest makespan of all orders of operations and choices of machines."""
    letters = sorted(j for j, job in enumerate(jobs) for _ in job)
    operations = [(j, k) for j, job in enumerate(jobs) for k in range(len(job))]
    best = math.inf
    for machines in itertools.product(*(jobs[j][k] for j, k in operations)):
        chosen = dict(zip(operations, machines, strict=True))
        for order in set(itertools.permutations(letters)):
            ready, until, place = [0.0] * len(jobs), {}, [0] * len(jobs)
            for j in order:
                machine = chosen[j, place[j]]
                end = max(ready[j], until.get(machine, 0.0)) + jobs[j][place[j]][machine]
                ready[j] = until[machine] = end
                place[j] += 1
            best = min(best, max(ready))
    return best


TINY: dict[str, dict[str, Any]] = {
    "jssp": {"generator_params": {"num_jobs": 3, "num_machines": 2}, "mask_no_ops": False},
    "fjsp": {"generator_params": {"num_jobs": 2, "num_machines": 3, "min_ops_per_job": 2,
                                  "max_ops_per_job": 3}, "mask_no_ops": False},
    "ffsp": {"generator_params": {"num_stage": 2, "num_machine": 2, "num_job": 3}},
    "smtwtp": {"generator_params": {"num_job": 5}},
}  # fmt: skip


def brute_force(env, td: TensorDict) -> float:
    """The cost of the best solution of one instance."""
    if env.name != "smtwtp":
        return best_makespan(jobs_of(env, td))
    size = td["job_weight"].shape[-1]
    orders = torch.tensor(list(itertools.permutations(range(1, size))))
    states = env.reset(td.select(*env.instance_shapes).expand(len(orders)))
    return -float(env.get_reward(states, orders).max())


@needs_ortools
@pytest.mark.solvers
@pytest.mark.parametrize("name", TINY)
def test_cpsat_finds_and_proves_optima(name):
    """Costs of brute force, actions of the environment, bounds that meet them."""
    env = get_env(name, **TINY[name])
    instances = draw(env, 4)
    solutions = env.solve(instances, solver="cpsat", num_workers=1)
    actions, costs = solutions
    td = env.reset(instances)
    assert torch.equal(env.get_reward(td, actions, check_solution=True), -costs)
    expected = torch.tensor([brute_force(env, td[b]) for b in range(4)], dtype=torch.float64)
    torch.testing.assert_close(costs.double(), expected, rtol=1e-5, atol=1e-6)
    assert solutions.optimal.tolist() == [True] * 4
    assert bool((solutions.bounds <= costs.double() + 1e-6).all())
    torch.testing.assert_close(solutions.bounds, expected, rtol=1e-3, atol=1e-6)
    if name != "smtwtp":
        assert torch.equal(solutions.bounds, costs.double())  # whole numbers are exact


@needs_ortools
@pytest.mark.solvers
@pytest.mark.parametrize("name", ["ffsp", "fjsp"])
def test_large_shops_in_a_short_time(name):
    """A solution no worse than any rule's, and an honest bound."""
    params = {
        "ffsp": {"num_stage": 3, "num_machine": 4, "num_job": 40},
        "fjsp": {"num_jobs": 25, "num_machines": 8},
    }
    more = {"mask_no_ops": False} if name == "fjsp" else {}
    env = get_env(name, generator_params=params[name], **more)
    instances = draw(env, 1)
    rules = [env.solve(instances, solver="dispatching", rule=r)[1] for r in ("spt", "mwkr", "fifo")]
    solutions = env.solve(instances, solver="cpsat", max_runtime=0.5, num_workers=1)
    assert float(solutions.costs) <= max(map(float, rules))
    assert 0 < float(solutions.bounds) <= float(solutions.costs)
    assert bool(solutions.optimal) == bool(solutions.bounds == solutions.costs.double())


@needs_ortools
@pytest.mark.solvers
def test_time_limit():
    """The worker's function, in this process; seconds of computing, which pauses do not add to."""
    from rl4co.solvers._cpsat_worker import solve_shop

    jobs = [
        [{m: 1 + (7 * j + 3 * m + s) % 9 for m in range(6)} for s in range(5)] for j in range(60)
    ]
    order = [(j, s, 0) for j in range(60) for s in range(5)]
    began = time.process_time()
    _, bound, optimal = solve_shop(jobs, order, (1.0, 1, 0, 1.0))
    assert time.process_time() - began < 10
    assert bound > 0 and not optimal


@needs_ortools
@pytest.mark.solvers
def test_progress_of_the_search():
    """Better and better solutions are noted while it goes on."""
    from rl4co.solvers._worker_pool import WorkerPool

    env = get_env("ffsp", generator_params={"num_stage": 3, "num_machine": 2, "num_job": 8})
    with WorkerPool() as pool, pool.running() as reports:
        _, costs = env.solve(draw(env, 1), solver="cpsat", max_runtime=5.0, num_workers=1)
    (report,) = reports
    noted = [cost for _, cost in report.incumbents]
    assert len(noted) > 1 and noted == sorted(noted, reverse=True)
    assert noted[-1] == float(costs)


@needs_ortools
@pytest.mark.solvers
@pytest.mark.parametrize("name", TINY)
def test_initial_solutions(name):
    """It goes on from them; the result is never worse."""
    env = get_env(name, **TINY[name])
    instances = draw(env, 3, seed=5)
    first, first_costs = env.solve(instances, solver="random")
    settings: dict[str, Any] = {"num_workers": 1, "max_runtime": 2.0}
    _, costs = env.solve(instances, solver="cpsat", initial=first, **settings)
    assert bool((costs <= first_costs).all())
    best, best_costs = env.solve(instances, solver="cpsat", **settings)
    again = env.solve(instances, solver="cpsat", initial=best, **settings)
    assert torch.equal(again.costs, best_costs) and again.optimal.all()


@needs_ortools
@pytest.mark.solvers
def test_one_instance_several_processes_and_sizes():
    """Processes do not change the proven optima; instances of different sizes go together."""
    env = get_env("fjsp", **TINY["fjsp"])
    instances = draw(env, 5, seed=2)
    one = env.solve(instances, solver="cpsat", num_workers=1, num_procs=1)
    two = env.solve(instances, solver="cpsat", num_workers=1, num_procs=2)
    assert torch.equal(one.costs, two.costs) and one.optimal.all() and two.optimal.all()
    alone = env.solve(instances[3:4], solver="cpsat", num_workers=1)
    assert torch.equal(alone.costs, one.costs[3:4])


@needs_ortools
@pytest.mark.solvers
def test_times_that_are_not_whole():
    """Rounding down keeps bounds below the costs, which are the environment's own."""
    env = get_env("jssp", **TINY["jssp"])
    instances = draw(env, 3)
    instances["proc_times"] = instances["proc_times"] / 7.3
    solutions = env.solve(instances, solver="cpsat", num_workers=1)
    td = env.reset(instances)
    expected = torch.tensor([brute_force(env, td[b]) for b in range(3)])
    torch.testing.assert_close(solutions.costs, expected, rtol=1e-5, atol=1e-5)
    assert bool((solutions.bounds <= expected + 1e-4).all())
    torch.testing.assert_close(solutions.bounds.float(), expected, rtol=1e-4, atol=1e-4)


@needs_ortools
@pytest.mark.solvers
def test_cpsat_with_another_order_of_machines():
    """A state that asks machines in another order gets actions for that order."""
    env = get_env("ffsp", **TINY["ffsp"])
    td = env.reset(draw(env, 2))
    permuted = env.permute_machines(td)
    costs = env.solve(permuted, solver="cpsat", num_workers=1).costs
    assert torch.equal(costs[:2], costs[2:])


@needs_ortools
@pytest.mark.solvers
@pytest.mark.parametrize(("number", "optimum"), [(28, 15), (52, 0)])
def test_optimum_of_the_or_library(shared_dir, number, optimum):
    """Instances of forty jobs whose optima are published, in whole numbers."""
    file = shared_dir / "data" / "smtwtp" / "wt40.txt"
    if not file.is_file():
        pytest.skip("no instances of the OR-Library")
    env = get_env("smtwtp")
    instance = env.load_data(file)[number - 1 : number]
    solutions = env.solve(instance, solver="cpsat", max_runtime=30.0, num_workers=1)
    assert solutions.optimal and float(solutions.costs) == float(solutions.bounds) == optimum


@needs_ortools
def test_first_solutions_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch):
    """Slow dispatching rules leave less time to CP-SAT, and only the first one always runs."""
    module = importlib.import_module("rl4co.solvers.cpsat")
    dispatch, run = module.dispatching, module.map_instances
    rules, limits = [], []

    def slow_dispatching(env, td, rule):
        rules.append(rule)
        time.sleep(0.5)
        return dispatch(env, td, rule=rule)

    def map_instances(target, jobs, *args, max_runtime, **kwargs):
        limits.append((max_runtime, jobs[0][-1][0]))
        return run(target, jobs, *args, max_runtime=max_runtime, **kwargs)

    monkeypatch.setattr(module, "dispatching", slow_dispatching)
    monkeypatch.setattr(module, "map_instances", map_instances)
    env = get_env("jssp", generator_params={"num_jobs": 3, "num_machines": 3})
    env.solve(env.generate(1), solver="cpsat", max_runtime=1.0)
    assert rules == ["mwkr"] and limits[0][0] == limits[0][1] < 0.5


@needs_ortools
def test_a_late_result_of_cpsat_is_the_one_reported(monkeypatch: pytest.MonkeyPatch):
    """Where time ends while the result is read back, it still counts, rather than a first one."""
    env = get_env("jssp", generator_params={"num_jobs": 4, "num_machines": 3})
    instances, token = env.generate(1), CancelToken()
    seen = []
    module = importlib.import_module("rl4co.solvers.cpsat")

    def interrupted(*args: object) -> None:
        seen.append(token.incumbent())
        raise StoppedError("too late")

    monkeypatch.setattr(module, "_never_worse", interrupted)
    with (
        token.active(),
        converting_incumbents(lambda actions: -env.get_reward(env.reset(instances), actions)),
        pytest.raises(StoppedError),
    ):
        env.solve(instances, solver="cpsat", max_runtime=5.0, num_workers=1)
    monkeypatch.undo()
    best = env.solve(instances, solver="cpsat", max_runtime=5.0, num_workers=1).costs
    assert torch.equal(seen[0], best)


# ---------------------------------------------------------------- arguments and results


@needs_ortools
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_workers": 0}, "num_workers"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_arguments(arguments, message):
    env = get_env("ffsp")
    with pytest.raises(ConfigError, match=message):
        env.solve(env.generate(1), solver="cpsat", **arguments)


@needs_ortools
@pytest.mark.parametrize("name", ["jssp", "fjsp"])
def test_environments_whose_agents_may_not_wait(name):
    """Optimal schedules may, and are the same in both."""
    eager, patient = (make(name, mask_no_ops=masks) for masks in (True, False))
    instances = draw(eager, 4)
    costs = [env.solve(instances, solver="cpsat", num_workers=1).costs for env in (eager, patient)]
    assert torch.equal(*costs)


def test_result_is_a_pair():
    """... that unpacks, copies and pickles like any other, with more to ask it for."""
    env = get_env("smtwtp")
    solutions = env.solve(draw(env, 3), solver="dispatching", rule="edd")
    actions, costs = solutions
    assert len(solutions) == 2 and isinstance(solutions, tuple)
    assert solutions.actions is actions and solutions.costs is costs
    assert solutions.bounds is None and solutions.optimal is None
    for twin in (copy.copy(solutions), pickle.loads(pickle.dumps(solutions))):
        assert torch.equal(twin.costs, costs) and twin.bounds is None
    assert SOLVERS["cpsat"].warm_start and not SOLVERS["dispatching"].warm_start
