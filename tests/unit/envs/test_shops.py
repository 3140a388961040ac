"""What the two job shops share, against plain Python code: dynamics, optima, checks, schedules."""

from __future__ import annotations

import random

from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    InvalidInstanceError,
    InvalidSolutionError,
    UnknownNameError,
)
from rl4co.core.rng import derive_generator
from rl4co.data import save_tensordict_to_npz
from rl4co.data.formats.shop import ShopInstance, batch_instances
from rl4co.envs import FJSPEnv, JSSPEnv, get_env
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.scheduling import _parts as parts
from rl4co.envs.scheduling.fjsp.cases import PASS, TWO
from rl4co.envs.scheduling.jssp.parser import write
from rl4co.envs.testing import enumerate_solutions
from tests.unit.envs import shop_oracle as oracle

NAMES = ("fjsp", "jssp")
WAITING = pytest.mark.parametrize("may_wait", [False, True], ids=["eager", "waiting"])
BOTH = pytest.mark.parametrize("name", NAMES)


def shop_env(name: str, may_wait: bool = False, **kwargs: Any) -> Any:
    return get_env(name, mask_no_ops=not may_wait, **kwargs)


def random_shop(name: str, seed: int, lengths: tuple[int, ...], num_machines: int) -> ShopInstance:
    """A shop with given numbers of operations; few different times, so that events coincide."""
    rnd = random.Random(f"{name} {seed}")
    count = 1 if name == "jssp" else num_machines
    jobs = tuple(
        tuple(
            {
                machine: rnd.randint(1, 4)
                for machine in rnd.sample(range(num_machines), rnd.randint(1, count))
            }
            for _ in range(length)
        )
        for length in lengths
    )
    return ShopInstance("random", num_machines, jobs)


def as_choice(env: Any, action: int, shop: Any, num_machines: int) -> tuple[int, int] | None:
    """Job and machine of an action, None for waiting."""
    if action == 0:
        return None
    if env.name == "fjsp":
        return divmod(action - 1, num_machines)
    job = action - 1
    turn = min(len(shop.runs[job]), len(shop.jobs[job]) - 1)
    return job, next(iter(shop.jobs[job][turn]))


# ---------------------------------------------------------------- dynamics


@BOTH
@WAITING
def test_every_state_of_random_rollouts(name: str, may_wait: bool):
    """Clock, mask, schedule and bookkeeping are those of the plain shop floor, at every step."""
    env = shop_env(name, may_wait)
    shapes = [((2, 3, 1), 2), ((1, 1, 1, 1), 3), ((4, 2), 3), ((3, 3, 3), 2)]
    shops = [random_shop(name, k, *shape) for k, shape in enumerate(shapes * 2)]
    batch = batch_instances(shops)  # jobs, machines and operations of padding
    num_machines = batch["proc_times"].shape[-2]
    episode = record_episode(env, batch, derive_generator(7))
    assert episode.complete
    rewards = env.get_reward(episode.initial, episode.actions)
    for row, shop in enumerate(shops):
        floor = oracle.Shop([list(job) for job in shop.jobs], num_machines, may_wait)
        for step, td in enumerate(episode.states):
            compare_state(env, td[row], floor, num_machines)
            if step < episode.actions.shape[-1]:
                action = int(episode.actions[row, step])
                floor.act(as_choice(env, action, floor, num_machines))
        assert float(rewards[row]) == -floor.makespan


def compare_state(env: Any, td: TensorDict, floor: Any, num_machines: int) -> None:
    num_jobs = len(floor.jobs)
    choices = {
        as_choice(env, action, floor, num_machines)
        for action in td["action_mask"].nonzero().flatten().tolist()
    }
    assert choices == floor.allowed()
    assert bool(td["done"]) == floor.done
    assert float(td["time"]) == floor.time
    assert td["busy_until"].tolist() == floor.machine_free
    column = 0
    for job, operations in enumerate(floor.jobs):
        runs, free = floor.runs[job], floor.job_free(job)
        assert float(td["job_busy_until"][job]) == free
        assert bool(td["job_in_process"][job]) == (free > floor.time)
        assert bool(td["job_done"][job]) == (len(runs) == len(operations) and free <= floor.time)
        assert int(td["next_op"][job]) == column + min(len(runs), len(operations) - 1)
        for place in range(len(operations)):
            started = place < len(runs)
            assert int(td["ops_job_map"][column]) == job
            assert int(td["ops_sequence_order"][column]) == place
            assert bool(td["op_scheduled"][column]) == started
            ready = not started and place == len(runs) and free <= floor.time
            assert bool(td["is_ready"][column]) == ready
            if started:
                start, end, machine = runs[place]
                assert float(td["start_times"][column]) == start
                assert float(td["finish_times"][column]) == float(td["lbs"][column]) == end
                assert int(td["ma_assignment"][column]) == machine
            else:
                assert float(td["finish_times"][column]) == torch.inf
            column += 1
    assert td["job_done"][num_jobs:].all()
    assert td["op_scheduled"][column:].all()
    assert not td["is_ready"][column:].any()
    assert (td["lbs"][column:] == 0).all()


@BOTH
@WAITING
def test_step_bounds_hold_and_are_reached(name: str, may_wait: bool):
    """Eager solutions have a step per operation; two jobs in turn need a wait per operation."""
    # Machine 0 for job 0 only; job 1 waits through all of it.
    chain = tuple({0: 1} for _ in range(4))
    td = batch_instances([ShopInstance("chain", 2, (chain, ({1: 1},)))])
    env = shop_env(name, may_wait)
    state = env.reset(td)
    fewest, most = env.step_bounds(dict(state.items()))
    assert (fewest, most) == (1, 9 if may_wait else 5)
    longest = max(map(len, enumerate_solutions(env, td[0])))
    assert longest == (9 if may_wait else 5)


# ---------------------------------------------------------------- estimates and step rewards


@pytest.mark.parametrize("bound", ["mean", "min"])
@BOTH
def test_estimates_by_hand(name: str, bound: str):
    """`lbs` after every step: the next operation by machine, then the others' typical times."""
    env = shop_env(name, True, bound=bound)
    shop = random_shop(name, 3, (3, 2, 3), 3)
    td = batch_instances([shop])
    episode = record_episode(env, td, derive_generator(3))
    floor = oracle.Shop([list(job) for job in shop.jobs], 3, True)
    typical = min if bound == "min" else lambda values: sum(values) / len(values)
    for step, state in enumerate(episode.states):
        expected = []
        for job, operations in enumerate(floor.jobs):
            end = 0.0
            for place, operation in enumerate(operations):
                if place < len(floor.runs[job]):
                    end = floor.runs[job][place][1]
                elif place == len(floor.runs[job]):
                    ready = max(floor.job_free(job), floor.time)
                    end = typical(
                        [max(ready, floor.machine_free[m]) + t for m, t in operation.items()]
                    )
                else:
                    end += typical(list(operation.values()))
                expected.append(end)
        torch.testing.assert_close(state["lbs"][0], torch.tensor(expected))
        if step < episode.actions.shape[-1]:
            floor.act(as_choice(env, int(episode.actions[0, step]), floor, 3))


@BOTH
def test_smallest_times_give_lower_bounds(name: str):
    """No solution ends before the bound of any state on its way (and JSSP's mean is the same)."""
    env = shop_env(name, True, bound="min")
    for seed in range(3):
        td = batch_instances([random_shop(name, seed, (2, 2), 2)])
        for solution in enumerate_solutions(env, td[0])[::7]:
            state = dict(env.reset(td).items())
            makespan = -float(env.get_reward(TensorDict(state, [1]), torch.tensor([solution]))[0])
            before = 0.0
            for action in solution:
                now = float(state["lbs"].max())
                assert before <= now <= makespan
                before = now
                state = env.advance(state, torch.tensor([action]))


@BOTH
def test_step_rewards_add_up(name: str):
    """Each step earns the decrease of the largest estimate; all, the first minus the makespan."""
    env = shop_env(name, stepwise_reward=True)
    state = env.reset(batch_size=[2, 3])
    total, largest = torch.zeros(2, 3), state["lbs"].amax(-1)
    first = largest
    rng = derive_generator(1)
    while not state["done"].all():
        weights = torch.rand(state["action_mask"].shape, generator=rng) * state["action_mask"]
        state = env.step(state.set("action", weights.argmax(-1)))["next"]
        torch.testing.assert_close(state["reward"][..., 0], largest - state["lbs"].amax(-1))
        total, largest = total + state["reward"][..., 0], state["lbs"].amax(-1)
    torch.testing.assert_close(total, first - state["time"])
    assert env.has_dense_reward
    plain = shop_env(name)
    fresh = plain.reset(batch_size=2)
    after = plain.step(fresh.set("action", fresh["action_mask"].long().argmax(-1)))["next"]
    assert not plain.has_dense_reward and (after["reward"] == 0).all()


# ---------------------------------------------------------------- optima


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_all_schedules_of_tiny_shops(name: str, seed: int):
    """Waiting reaches every semi-active schedule; not waiting, exactly the non-delay ones."""
    shape = [((2, 2), 2), ((1, 2, 1), 2), ((3, 1), 3), ((2, 1, 1), 2)][seed]
    shop = random_shop(name, seed, *shape)
    jobs, instance = [list(job) for job in shop.jobs], shop.to_tensordict()
    semi_active = oracle.semi_active_schedules(jobs)
    best = min(semi_active.values())
    built = {may_wait: built_schedules(name, may_wait, instance) for may_wait in (True, False)}
    assert set(semi_active) <= set(built[True])
    assert min(built[True].values()) == best
    non_delay = {placed for placed in semi_active if oracle.is_non_delay(jobs, placed)}
    assert set(built[False]) == non_delay
    assert all(built[True][placed] == value for placed, value in semi_active.items())


def built_schedules(name: str, may_wait: bool, instance: TensorDict) -> dict[Any, float]:
    """All schedules that the mask allows, with their makespans by `get_reward`."""
    env = shop_env(name, may_wait)
    solutions = enumerate_solutions(env, instance)
    longest = max(map(len, solutions))
    actions = torch.tensor([[*s, *[0] * (longest - len(s))] for s in solutions])
    td = env.reset(instance.expand(len(solutions)))
    makespans = (-env.get_reward(td, actions, check_solution=True)).tolist()
    schedule = env.get_schedule(td, actions)
    rows = zip(schedule.start_times.tolist(), schedule.machines.tolist(), makespans, strict=True)
    return {tuple(zip(starts, places, strict=True)): end for starts, places, end in rows}


def test_the_best_schedule_may_need_waiting():
    """Worked out in `cases.py`: 14 with waiting, 23 without."""
    instance = TensorDict({key: torch.tensor(value) for key, value in PASS.items()}, [])
    assert min(built_schedules("jssp", True, instance).values()) == 14
    assert set(built_schedules("jssp", False, instance).values()) == {23}


# ---------------------------------------------------------------- the check of solutions


@BOTH
@WAITING
def test_mutated_solutions_are_judged_by_the_rules(name: str, may_wait: bool):
    """Random changes to solutions: rejected if and only if the plain shop floor rejects them."""
    env, rnd = shop_env(name, may_wait), random.Random(0)
    verdicts = set()
    for seed in range(6):
        shop = random_shop(name, seed, (2, 3, 1), 2)
        td = env.reset(batch_instances([shop]))
        episode = record_episode(env, td.select(*env.instance_shapes), derive_generator(seed))
        solution = episode.actions[0].tolist()
        for _ in range(25):
            mutant = list(solution)
            for _ in range(rnd.randint(1, 2)):
                mutant[rnd.randrange(len(mutant))] = rnd.randrange(td["action_mask"].shape[-1])
            valid = is_valid(env, shop, mutant, may_wait)
            verdicts.add(valid)
            try:
                env.check_solution_validity(td, torch.tensor([mutant]))
            except InvalidSolutionError:
                assert not valid, mutant
            else:
                assert valid, mutant
    assert verdicts == {True, False}


def is_valid(env: Any, shop: ShopInstance, actions: list[int], may_wait: bool) -> bool:
    floor = oracle.Shop([list(job) for job in shop.jobs], shop.num_machines, may_wait)
    for action in actions:
        choice = as_choice(env, action, floor, shop.num_machines)
        if choice not in floor.allowed():
            return False
        floor.act(choice)
    return floor.done


@BOTH
def test_times_that_are_not_whole(name: str):
    """Rounded sums neither block events that coincide nor make solutions invalid."""
    for may_wait in (False, True):
        env = shop_env(name, may_wait)
        td = env.generate(16)
        td["proc_times"] = td["proc_times"] / 7
        episode = record_episode(env, td, derive_generator(5))
        reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
        torch.testing.assert_close(reward, -episode.states[-1]["time"])


# ---------------------------------------------------------------- schedules


@BOTH
@WAITING
def test_schedules_of_rollouts(name: str, may_wait: bool):
    """`get_schedule` is what stepping builds, it passes the check, and is built again."""
    env = shop_env(name, may_wait)
    episode = record_episode(env, env.generate([2, 2]), derive_generator(11))
    initial, final = episode.initial, episode.states[-1]
    schedule = env.get_schedule(initial, episode.actions)
    torch.testing.assert_close(schedule.start_times, final["start_times"])
    torch.testing.assert_close(schedule.finish_times, final["finish_times"])
    real = ~final["pad_mask"]
    assert torch.equal(schedule.machines[real], final["ma_assignment"][real])
    env.check_schedule(initial, *schedule[::2], schedule.finish_times)
    again = env.actions_from_schedule(initial, schedule.start_times, schedule.machines)
    rewards = env.get_reward(initial, episode.actions), env.get_reward(initial, again)
    assert (rewards[1] >= rewards[0]).all()
    if not may_wait:
        assert torch.equal(*rewards)


@BOTH
def test_every_semi_active_schedule_is_built_again(name: str):
    """Start times and machines, exactly, also where it takes waiting; delayed ones get no worse."""
    shop = random_shop(name, {"fjsp": 1, "jssp": 5}[name], (2, 2, 1), 2)
    found = oracle.semi_active_schedules([list(job) for job in shop.jobs])
    starts = torch.tensor([[start for start, _ in placed] for placed in found])
    machines = torch.tensor([[machine for _, machine in placed] for placed in found])
    td = batch_instances([shop] * len(found))
    env = shop_env(name, may_wait=True)
    actions = env.actions_from_schedule(td, starts, machines)
    state = env.reset(td)
    schedule = env.get_schedule(state, actions)
    assert torch.equal(schedule.start_times, starts)
    assert torch.equal(schedule.machines, machines)
    assert (-env.get_reward(state, actions)).tolist() == list(found.values())

    late = env.actions_from_schedule(td, 2 * starts + 5, machines)
    assert (env.get_reward(state, late) >= -torch.tensor(list(found.values()))).all()

    delayed = [not oracle.is_non_delay([list(job) for job in shop.jobs], p) for p in found]
    assert any(delayed) and not all(delayed)
    eager = shop_env(name)  # its agents may not wait, but solutions may
    assert torch.equal(eager.actions_from_schedule(td, starts, machines), actions)
    assert (-eager.get_reward(eager.reset(td), actions)).tolist() == list(found.values())
    assert eager.mask_no_ops
    keep = ~torch.tensor(delayed)
    prompt = eager.actions_from_schedule(td[keep], starts[keep], machines[keep])
    assert torch.equal(eager.get_schedule(state[keep], prompt).start_times, starts[keep])


SCHEDULE_FAULTS = {
    "once": (lambda s, m: (s.index_fill(-1, torch.tensor(0), torch.inf), m), parts.ONCE),
    "nan": (lambda s, m: (s.index_fill(-1, torch.tensor(0), torch.nan), m), parts.ONCE),
    "machine": (lambda s, m: (s, m.index_fill(-1, torch.tensor(1), 0)), parts.ELIGIBLE),
    "no machine": (lambda s, m: (s, m.index_fill(-1, torch.tensor(1), 7)), parts.ELIGIBLE),
    "begin": (lambda s, m: (s - 1, m), parts.BEGIN),
    "order": (lambda s, m: (s - torch.tensor([0.0, 1, 0, 0]), m), parts.ORDER),
    "capacity": (lambda s, m: (s + torch.tensor([0.0, 0, 0, 1]), m), None),
    "overlap": (lambda s, m: (s + torch.tensor([2.0, 2, 0, 0]), m), parts.CAPACITY),
}


@pytest.mark.parametrize("fault", SCHEDULE_FAULTS)
def test_check_of_schedules(fault: str):
    """Job 0 on machine 0 0-2 and 1 2-5, job 1 on machine 1 0-2 and 0 2-4; with one fault."""
    td = TensorDict({key: torch.tensor(value) for key, value in TWO.items()}, []).expand(3)
    starts, machines = torch.tensor([0.0, 2, 0, 2]), torch.tensor([0, 1, 1, 0])
    env = FJSPEnv()
    env.check_schedule(td, starts.expand(3, 4), machines.expand(3, 4))
    change, constraint = SCHEDULE_FAULTS[fault]
    wrong = change(starts, machines)
    rows = [
        torch.stack([good, bad, good]) for good, bad in zip((starts, machines), wrong, strict=True)
    ]
    if constraint is None:
        env.check_schedule(td, *rows)
        return
    with pytest.raises(InvalidSolutionError) as caught:
        env.check_schedule(td, *rows)
    assert caught.value.constraint == constraint
    assert caught.value.instances == [1]
    with pytest.raises(InvalidSolutionError, match=constraint):
        env.actions_from_schedule(td, *rows)


def test_check_of_durations_and_shapes():
    td = JSSPEnv().generate(2)
    env = JSSPEnv()
    episode = record_episode(env, td, derive_generator(0))
    schedule = env.get_schedule(episode.initial, episode.actions)
    env.check_schedule(td, schedule.start_times, finish_times=schedule.finish_times)
    longer = schedule.finish_times + torch.tensor([[0.0], [0.5]])
    with pytest.raises(InvalidSolutionError) as caught:
        env.check_schedule(td, schedule.start_times, finish_times=longer)
    assert caught.value.constraint == parts.DURATION and caught.value.instances == [1]
    with pytest.raises(ConfigError, match=r"start_times of shape \[2, 36\]"):
        env.check_schedule(td, schedule.start_times[:, 1:])
    with pytest.raises(ConfigError, match="give machines"):
        FJSPEnv().check_schedule(FJSPEnv().generate(2), torch.zeros(2, 60))


# ---------------------------------------------------------------- batches, starts, settings


@BOTH
def test_padding_changes_nothing(name: str):
    """Shops of different sizes in one batch earn what each one earns alone."""
    env = shop_env(name)
    shops = [random_shop(name, k, *s) for k, s in enumerate([((3, 2), 2), ((1, 4, 2, 2), 3)])]
    episode = record_episode(env, batch_instances(shops), derive_generator(2))
    rewards = env.get_reward(episode.initial, episode.actions)
    wide = episode.initial["busy_until"].shape[-1]
    for row, shop in enumerate(shops):
        alone = env.reset(batch_instances([shop]))
        floor = oracle.Shop([list(job) for job in shop.jobs], wide, False)
        actions = []
        for action in episode.actions[row].tolist():
            choice = as_choice(env, action, floor, wide)
            floor.act(choice)
            if choice is not None:
                fjsp = 1 + choice[0] * shop.num_machines + choice[1]
                actions.append(fjsp if name == "fjsp" else 1 + choice[0])
        assert len(actions) == shop.num_ops
        assert torch.equal(env.get_reward(alone, torch.tensor([actions])), rewards[row : row + 1])


@BOTH
def test_starts(name: str):
    """Each job once, feasible; padded jobs repeat others. FJSP takes the fastest machine."""
    env = shop_env(name)
    shops = [random_shop(name, k, *s) for k, s in enumerate([((3, 2), 2), ((1, 4, 2, 2), 3)])]
    td = env.reset(batch_instances(shops))
    assert env.get_num_starts(td) == 4
    starts = env.start_actions(dict(td.items()), 4)  # [2, 4]
    assert td["action_mask"].gather(-1, starts).all()
    width = 3 if name == "fjsp" else 1
    assert ((starts - 1) // width).tolist() == [[0, 1, 0, 1], [0, 1, 2, 3]]
    if name == "fjsp":
        for row, shop in enumerate(shops):
            for job, operations in enumerate(shop.jobs):
                machine = (int(starts[row, job]) - 1) % 3
                assert operations[0][machine] == min(operations[0].values())
    with pytest.raises(ConfigError, match="1 to 4 starts"):
        env.start_actions(dict(td.items()), 5)


@BOTH
def test_bad_settings(name: str):
    with pytest.raises(UnknownNameError, match="no bound 'max'"):
        get_env(name, bound="max")
    with pytest.raises(ConfigError, match="got both"):
        get_env(name, generator=get_env(name).generator, generator_params={"num_jobs": 3})
    with pytest.raises(TypeError, match="num_job"):
        get_env(name, generator_params={"num_job": 3})


@BOTH
def test_check_mask(name: str):
    """A state without a way on is rejected, with the instance; sound ones pass."""
    env = shop_env(name, check_mask=True, check_instance=False)
    td = env.generate(3)
    record_episode(env, td, derive_generator(0))
    state = env.reset(td)
    # With a broken clock nothing can start any more.
    broken = torch.tensor([0.0, torch.nan, 0.0])
    blocked = {**dict(state.items()), "time": broken}
    with pytest.raises(InvalidActionError, match=r"instances 1;"):
        env.advance(blocked, state["action_mask"].long().argmax(-1))


def test_faults_name_job_and_operation_in_batches():
    """The first faulty instance of a batch of any shape is taken apart."""
    env = JSSPEnv()
    td = env.generate([2, 2])
    td["proc_times"] = td["proc_times"].clone()
    td["proc_times"][1, 0, :, 8] = 0
    with pytest.raises(InvalidInstanceError, match="in instance 2: operation 2 of job 1 has no"):
        env.reset(td)
    td["proc_times"][1, 0, 3, 8] = torch.nan
    place = r"proc_times is finite.*; in instance 2: operation 2 of job 1 takes nan on machine 3"
    with pytest.raises(InvalidInstanceError, match=place):
        env.reset(td)


def with_time(time: float) -> list[list[float]]:
    """The processing times of two jobs with another one for the first operation of job 1."""
    first, *others = TWO["proc_times"]
    return [[*first[:2], time, *first[3:]], *others]


#: Faults of the two jobs (operations 0 and 1, and 2 and 3): what is changed, and what is said.
PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "padding with a time": (
        {"end_op_per_job": [1, 2], "pad_mask": [False, False, False, True]},
        "operation 3 of the row, behind job 1, is padding and takes 2 on machine 0",
    ),
    "an operation without a job": (
        {"end_op_per_job": [1, 2]},
        "operation 3 of the row, behind job 1, belongs to no job",
    ),
    "a padded job of two operations": (
        {"pad_mask": [False, False, True, True]},
        "job 1 is padding and goes from operation 2 to 3 of the row",
    ),
    "padding only": ({"pad_mask": [True] * 4}, "job 0 is padding, as operation 0 of the row is"),
    "padding inside a job": (
        {"pad_mask": [False, False, False, True]},
        "operation 1 of job 1 is padding",
    ),
    "a job behind padding": (
        {
            "start_op_per_job": [0, 3, 2],
            "end_op_per_job": [1, 3, 2],
            "pad_mask": [False, False, False, True],
        },
        "job 2 (operation 2 of the row) follows job 1, a padded one",
    ),
    "jobs that overlap": (
        {"start_op_per_job": [0, 1]},
        "job 1 begins at operation 1 of the row, and not at 2, right behind job 0",
    ),
    "a late beginning": (
        {"start_op_per_job": [1, 2]},
        "job 0 begins at operation 1 of the row, and not at 0, right behind no job",
    ),
    "not a number": (
        {"proc_times": with_time(float("nan"))},
        "operation 0 of job 1 takes nan on machine 0",
    ),
    "infinite": (
        {"proc_times": with_time(float("inf"))},
        "operation 0 of job 1 takes inf on machine 0",
    ),
    "minus infinite": (
        {"proc_times": with_time(-float("inf"))},
        "operation 0 of job 1 takes -inf on machine 0",
    ),
}


@pytest.mark.parametrize("fault", PLACES)
def test_every_fault_names_job_and_operation(fault: str):
    changes, place = PLACES[fault]
    faulty = {key: torch.tensor([{**TWO, **changes}[key]]) for key in TWO}
    with pytest.raises(InvalidInstanceError) as caught:
        FJSPEnv().reset(TensorDict(faulty, batch_size=[1]))
    assert f"; in instance 0: {place}" in str(caught.value)


def test_a_choice_of_machines_names_job_and_operation():
    """Job shops have none; the flexible ones may."""
    td = TensorDict({key: torch.tensor([TWO[key]]) for key in TWO}, batch_size=[1])
    FJSPEnv().reset(td)
    place = "use fjsp for several.*; in instance 0: operation 0 of job 0 has 2 eligible machines"
    with pytest.raises(InvalidInstanceError, match=place):
        JSSPEnv().reset(td)


def test_folder_is_a_data_set(tmp_path: Path):
    """A name of a folder below `data_dir`; an `.npz` file of that name goes first."""
    env = JSSPEnv(generator_params={"num_jobs": 2, "num_machines": 2})
    instances = env.generator(3)
    write(tmp_path / "2j_2m", instances)
    reading = JSSPEnv(env.generator, data_dir=str(tmp_path), test_file="2j_2m")
    found = reading.dataset(2, phase="test").data
    assert torch.equal(found["proc_times"], instances["proc_times"][:2])
    save_tensordict_to_npz(instances[2:], tmp_path / "2j_2m.npz")
    assert len(reading.dataset(phase="test")) == 1
