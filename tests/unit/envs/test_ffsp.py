"""FFSP: plain-Python simulations and exhaustive oracles, waiting, orders of machines, schedules."""

from __future__ import annotations

import itertools

from collections.abc import Callable

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import ConfigError, InvalidInstanceError, InvalidSolutionError
from rl4co.core.ops import batchify
from rl4co.core.rng import derive_generator
from rl4co.decoding.rollout import random_policy, rollout
from rl4co.envs import FFSPEnv, FFSPGenerator
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.testing import enumerate_solutions

Times = list[list[int]]


def random_times(jobs: int, machines: int, seed: int, longest: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, longest + 1, (jobs, machines))


def as_instance(times: np.ndarray | Times) -> TensorDict:
    return TensorDict({"run_time": torch.as_tensor(np.asarray(times))}, batch_size=[])


class Shop:
    """A flow shop that goes through time unit by unit and asks machines in order.

    Args:
        times: Processing times by job and machine.
        num_stages: Number of stages.
        impatient: Ask a machine that has waited at every unit of time (Kwon et al., 2021), instead
            of after the next job has ended.
    """

    def __init__(self, times: np.ndarray, num_stages: int, impatient: bool) -> None:
        self.times, self.num_stages, self.impatient = times, num_stages, impatient
        self.per_stage = times.shape[1] // num_stages

    def questions(self, answer: Callable[..., int | None]) -> list[tuple[int, int, int, int]]:
        """Operations (job, machine, start, end) if `answer(time, machine, jobs, to come)` decides.

        A job or None (wait) is expected; `to come` is whether more jobs come to the stage.
        """
        jobs, machines = self.times.shape
        stage = [0] * jobs  # where each job goes next
        job_until, machine_until = [0] * jobs, [0] * machines
        has_waited = [False] * machines
        operations = []
        time = 0
        while min(stage) < self.num_stages:
            if self.impatient or time in job_until:
                has_waited = [False] * machines
            for machine in range(machines):
                here = machine // self.per_stage
                ready = [j for j in range(jobs) if stage[j] == here and job_until[j] <= time]
                if machine_until[machine] > time or not ready or has_waited[machine]:
                    continue
                to_come = any(
                    stage[j] < here or (stage[j] == here and job_until[j] > time)
                    for j in range(jobs)
                )
                job = answer(time, machine, ready, to_come)
                if job is None:
                    has_waited[machine] = True
                    continue
                assert job in ready
                end = time + int(self.times[job, machine])
                stage[job] += 1
                job_until[job] = machine_until[machine] = end
                operations.append((job, machine, time, end))
                if min(stage) == self.num_stages:
                    break
            time += 1
        return operations


def replay(times: np.ndarray, num_stages: int, actions: list[int]) -> list[tuple[int, ...]]:
    """Operations of given actions; the last action number waits."""
    queue = iter(actions)

    def answer(time: int, machine: int, ready: list[int], to_come: bool) -> int | None:
        action = next(queue)
        return None if action == len(times) else action

    return Shop(times, num_stages, impatient=False).questions(answer)


def makespan(operations: list[tuple[int, ...]]) -> int:
    return max(end for *_, end in operations)


def best_of_the_paper(times: np.ndarray, num_stages: int) -> int:
    """Smallest makespan over all answers to all questions that are asked at every unit of time."""
    best = 10**9
    pending: list[list[int | None]] = [[]]
    while pending:
        script = Script(pending.pop())
        try:
            operations = Shop(times, num_stages, impatient=True).questions(script.answer)
            best = min(best, makespan(operations))
        except StopIteration:
            pending += [[*script.answers, option] for option in script.options]
    return best


class Script:
    """Answers that are given in advance; the first question without one ends the game."""

    def __init__(self, answers: list[int | None]) -> None:
        self.answers, self.step, self.options = answers, 0, []

    def answer(self, time: int, machine: int, ready: list[int], to_come: bool) -> int | None:
        if self.step == len(self.answers):
            self.options = [*ready, *([None] if to_come else [])]
            raise StopIteration
        self.step += 1
        return self.answers[self.step - 1]


def optimum(times: np.ndarray, num_stages: int) -> int:
    """Smallest makespan of all schedules without needless delay, by trying all."""
    jobs, machines = times.shape
    per_stage = machines // num_stages
    sequences = set(itertools.permutations(sorted(list(range(jobs)) * num_stages)))
    choices = [
        range(s * per_stage, (s + 1) * per_stage) for _ in range(jobs) for s in range(num_stages)
    ]
    best = 10**9
    for assignment in itertools.product(*choices):
        for sequence in sequences:
            stage, job_until, until = [0] * jobs, [0] * jobs, [0] * machines
            for job in sequence:
                machine = assignment[job * num_stages + stage[job]]
                end = max(job_until[job], until[machine]) + int(times[job, machine])
                stage[job] += 1
                job_until[job] = until[machine] = end
            best = min(best, max(job_until))
    return best


def random_actions(env: FFSPEnv, batch: int, seed: int) -> tuple[TensorDict, torch.Tensor]:
    """States after reset, and random solutions of them."""
    rng = derive_generator("ffsp", seed)
    episode = record_episode(env, env.generator(batch, rng=rng), rng)
    assert episode.complete
    return episode.initial, episode.actions


# ---------------------------------------------------------------- oracles


@given(
    jobs=st.integers(1, 5),
    stages=st.integers(1, 3),
    machines=st.integers(1, 3),
    seed=st.integers(0, 2**20),
    free_waiting=st.booleans(),
)
def test_rewards_and_schedules_against_plain_python(jobs, stages, machines, seed, free_waiting):
    """Every operation has the time and the machine that a clock in unit steps gives it."""
    params = {"num_stage": stages, "num_machine": machines, "num_job": jobs, "min_time": 1}
    env = FFSPEnv(generator_params=params, free_waiting=free_waiting)
    td, actions = random_actions(env, 3, seed)
    reward = env.get_reward(td, actions, check_solution=True)
    schedule = env.get_schedule(td, actions)
    for b in range(3):
        times, own = td["run_time"][b].numpy(), actions[b].tolist()
        operations = replay(times, stages, own)
        assert float(reward[b]) == -makespan(operations)
        works = schedule.job[b] < jobs
        columns = (schedule.job, schedule.machine, schedule.start, schedule.end)
        traced = list(zip(*(column[b][works].tolist() for column in columns), strict=True))
        assert traced == operations


@pytest.mark.parametrize("seed", range(4))
def test_without_waiting_the_clock_of_the_paper_agrees(seed):
    """Asking at every unit of time makes no difference if no machine ever waits."""
    env = FFSPEnv(generator_params={"num_stage": 3, "num_machine": 2, "num_job": 6})

    def never_wait(td):
        mask = td["action_mask"].clone()
        mask[..., -1] &= td["done"].squeeze(-1)
        return td.set("action", mask.long().argmax(-1))  # the first job

    td = env.reset(env.generator(4, rng=derive_generator("eager", seed)))
    reward, _, actions = rollout(env, td, never_wait)
    assert actions.shape[-1] == 18
    for b in range(4):
        shop = Shop(td["run_time"][b].numpy(), 3, impatient=True)
        operations = shop.questions(lambda time, machine, ready, to_come: ready[0])
        assert [job for job, *_ in operations] == actions[b].tolist()
        assert float(reward[b]) == -makespan(operations)


SIZES = [(1, 1, 2), (2, 1, 2), (3, 1, 2), (2, 2, 1), (3, 2, 1), (2, 2, 2), (2, 3, 1)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_nothing_is_lost_by_asking_less_often(size, seed):
    """The best solution that the mask allows is as good as the best one of the paper's clock."""
    jobs, stages, per_stage = size
    times = random_times(jobs, stages * per_stage, seed, longest=4)
    env = FFSPEnv(num_stage=stages)
    assert best_reward(env, times) == -best_of_the_paper(times, stages)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [*SIZES, (3, 2, 2)], ids=str)
def test_free_waiting_reaches_the_optimum(size, seed):
    """... of all schedules, which the rule of the paper misses now and then."""
    jobs, stages, per_stage = size
    times = random_times(jobs, stages * per_stage, seed)
    best = -best_reward(FFSPEnv(num_stage=stages, free_waiting=True), times)
    assert best == optimum(times, stages)
    assert -best_reward(FFSPEnv(num_stage=stages), times) >= best


def best_reward(env: FFSPEnv, times: np.ndarray) -> float:
    """Best reward of all solutions that the mask allows; all of them must be valid."""
    instance = as_instance(times)
    solutions = enumerate_solutions(env, instance)
    longest, wait = max(map(len, solutions)), len(times)
    padded = torch.tensor([s + [wait] * (longest - len(s)) for s in solutions])
    best = -np.inf
    for part in padded.split(4096):
        td = env.reset(instance.expand(len(part)))
        best = max(best, float(env.get_reward(td, part, check_solution=True).max()))
    return best


def test_the_rule_of_the_paper_misses_schedules():
    """One job, a slow and a fast machine: the slow one must take it, unless it may wait."""
    times = np.array([[4, 1]])
    assert best_reward(FFSPEnv(num_stage=1), times) == -4
    assert best_reward(FFSPEnv(num_stage=1, free_waiting=True), times) == -1
    # The other order of machines finds it, too.
    env = FFSPEnv(num_stage=1)
    td = env.permute_machines(env.reset(as_instance(times).unsqueeze(0)))
    assert env.get_reward(td, torch.zeros(2, 1, dtype=torch.int64)).tolist() == [-4.0, -1.0]


# ---------------------------------------------------------------- waiting, bounds


@pytest.mark.parametrize("free_waiting", [False, True])
@pytest.mark.parametrize("size", [(6, 3, 2), (4, 2, 3), (5, 1, 3), (1, 3, 2), (3, 4, 1)], ids=str)
def test_waiting_whenever_allowed_ends_within_the_bounds(size, free_waiting):
    """The mask lets no machine wait for ever, and `step_bounds` bounds the waiting."""
    jobs, stages, per_stage = size
    params = {"num_stage": stages, "num_machine": per_stage, "num_job": jobs}
    env = FFSPEnv(generator_params=params, free_waiting=free_waiting)

    def wait(td):
        mask = td["action_mask"]
        last = mask.shape[-1] - 1 - mask.flip(-1).long().argmax(-1)  # waiting if possible
        return td.set("action", last)

    td = env.reset(env.generator(16, rng=derive_generator("patient")))
    reward, _, actions = rollout(env, td, wait)
    fewest, most = env.step_bounds(dict(td.items()))
    assert fewest == jobs * stages <= actions.shape[-1] <= most
    if stages == 1 and not free_waiting:
        assert fewest == most
    assert bool(reward.isfinite().all())


def test_waiting_without_reason_goes_round_in_circles():
    """Time stands still while all wait for nothing; the solution goes on where it was."""
    env = FFSPEnv(num_stage=2)
    td = env.reset(as_instance([[3, 2], [1, 4]]).unsqueeze(0))
    # Machine 0 is asked three times at time 0. Then job 1 runs at 0-1 and 1-5, job 0 at 1-4, 5-7.
    actions = torch.tensor([[2, 2, 1, 0, 1, 0]])
    assert env.get_reward(td, actions).tolist() == [-7.0]


def test_state_follows_the_shop():
    """Two jobs through two machines: 3 and 2 for job 0, 1 and 4 for job 1."""
    env = FFSPEnv(num_stage=2)
    td = env.reset(as_instance([[3, 2], [1, 4]]).unsqueeze(0))

    def step(action: int) -> TensorDict:
        return env.step(td.set("action", torch.tensor([action])))["next"]

    td = step(1)  # machine 0 runs job 1 until 1; at time 1 it is asked again
    assert (td["time_idx"].item(), td["machine_idx"].item(), td["stage_idx"].item()) == (1, 0, 0)
    assert td["job_location"].tolist() == [[0, 1, 2]]
    td = step(0)  # machine 0 runs job 0 until 4; machine 1 may take job 1 or wait for job 0
    assert (td["time_idx"].item(), td["machine_idx"].item(), td["stage_idx"].item()) == (1, 1, 1)
    assert td["action_mask"].tolist() == [[False, True, True]]
    assert td["machine_wait_step"].tolist() == [[3, 0]]
    assert td["job_wait_step"].tolist() == [[3, 0, 0]]
    td = step(2)  # it waits, until job 0 has left stage 0
    assert (td["time_idx"].item(), td["machine_idx"].item()) == (4, 1)
    assert td["action_mask"].tolist() == [[True, True, False]]
    td = step(1)
    assert td["time_idx"].item() == 8
    assert td["schedule"].tolist() == [[[1, 0, 0], [0, 4, 0]]]


# ---------------------------------------------------------------- orders of machines


def test_orders_of_machines_are_those_of_permuted_columns():
    """Asking machines in another order is the same as exchanging their columns."""
    env = FFSPEnv(generator_params={"num_stage": 3, "num_machine": 4, "num_job": 5})
    td = env.reset(env.generator(2, rng=derive_generator("orders")))
    permuted = env.permute_machines(td)
    assert permuted.batch_size == (48,)
    tables = permuted["machine_table"].unflatten(0, (24, 2))  # [S, B, P]
    assert torch.equal(tables[:, 0], tables[:, 1])
    assert len(set(map(tuple, tables[:, 0].tolist()))) == 24
    assert tables[0, 0].tolist() == list(range(12))
    for table in tables[:, 0].view(24, 3, 4):  # the same permutation in every stage
        local = table - torch.tensor([[0], [4], [8]])
        assert sorted(local[0].tolist()) == [0, 1, 2, 3]
        assert bool((local == local[0]).all())
    reward, _, actions = rollout(env, permuted, random_policy)
    columns = permuted["machine_table"].unsqueeze(-2).expand_as(permuted["run_time"])
    exchanged = TensorDict({"run_time": permuted["run_time"].gather(-1, columns)}, [48])
    assert torch.equal(env.get_reward(env.reset(exchanged), actions), reward)
    # The first machine that is asked is the first of the order.
    assert torch.equal(permuted["machine_idx"], permuted["machine_table"][:, 0])


def test_orders_with_an_axis_of_solutions():
    """`[B, S]` as in the decode loop gives the same states as rows."""
    env = FFSPEnv(generator_params={"num_stage": 2, "num_machine": 3, "num_job": 4})
    td = env.reset(batch_size=5)
    state = {key: v.unsqueeze(1).expand(5, 6, *v.shape[1:]) for key, v in td.items()}
    ordered, rows = env.order_machines(state), env.permute_machines(td, 6)
    for key, value in ordered.items():
        assert torch.equal(value.transpose(0, 1).flatten(0, 1), rows[key]), key
    few = env.permute_machines(td, 2)
    assert torch.equal(few["machine_table"], rows["machine_table"][:10])


def test_more_orders_than_there_are():
    """Two machines have two orders; a state with steps behind it cannot change its mind."""
    env = FFSPEnv(generator_params={"num_stage": 2, "num_machine": 2, "num_job": 4})
    td = env.reset(batch_size=3)
    with pytest.raises(ConfigError, match="1 to 2 solutions"):
        env.permute_machines(td, 3)
    later = env.step(td.set("action", torch.zeros(3, dtype=torch.int64)))["next"]
    with pytest.raises(ConfigError, match="steps behind it"):
        env.permute_machines(later, 2)


@pytest.mark.parametrize("flatten", [True, False])
def test_numbers_of_machines_for_policies(flatten):
    """Distinct over all stages, or from 0 in each stage; also in other orders."""
    params = {"num_stage": 2, "num_machine": 3, "num_job": 4, "flatten_stages": flatten}
    env = FFSPEnv(generator_params=params)
    td = env.permute_machines(env.reset(batch_size=2))
    while not td["done"].all():
        expected = td["machine_idx"] if flatten else td["machine_idx"] % 3
        assert torch.equal(td["stage_machine_idx"], expected)
        assert torch.equal(td["stage_idx"], td["machine_idx"] // 3)
        td = env.step(random_policy(td))["next"]


# ---------------------------------------------------------------- schedules and actions


@pytest.mark.parametrize("seed", range(5))
def test_actions_of_a_schedule(seed):
    """From actions in any order of machines to a schedule, and back to actions in the first one."""
    env = FFSPEnv(generator_params={"num_stage": 3, "num_machine": 2, "num_job": 5, "min_time": 1})
    td = env.reset(env.generator(6, rng=derive_generator("schedules", seed)))
    permuted = env.permute_machines(td)
    reward, _, actions = rollout(env, permuted, random_policy)
    start, machine = table_of(env, permuted, actions)
    again = batchify(td, 2)
    found = env.actions_from_schedule(again, start, machine)
    # Waits may have been needless, so it can only get better.
    better = env.get_reward(again, found, check_solution=True)
    assert bool((better >= reward).all())
    early, same = table_of(env, again, found)
    assert torch.equal(same, machine) and bool((early <= start).all())
    assert torch.equal(env.actions_from_schedule(again, early, same), found)


def table_of(env: FFSPEnv, td: TensorDict, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Starts and machines `[B, J, S]` of solutions."""
    jobs, stages = td["run_time"].shape[-2], td["schedule"].shape[-2]
    return env.get_schedule(td, actions).by_job(jobs, stages)


def test_schedule_by_hand():
    """One machine per stage: starts 0, 3 / 3, 5 are needlessly late by 1 each."""
    env = FFSPEnv(num_stage=2)
    td = env.reset(as_instance([[3, 2], [1, 4]]).unsqueeze(0))
    start, machine = torch.tensor([[[1, 5], [4, 9]]]), torch.tensor([[[0, 1], [0, 1]]])
    actions = env.actions_from_schedule(td, start, machine)
    assert actions.tolist() == [[0, 1, 0, 1]]
    assert env.get_reward(td, actions).tolist() == [-9.0]


@pytest.mark.parametrize(
    ("start", "machine", "message"),
    [
        ([[0, 3], [3, 5]], [[1, 1], [0, 1]], "a machine of each stage"),
        ([[0, 3], [3, 5]], [[0, 2], [0, 1]], "a machine of each stage"),
        ([[-1, 3], [3, 5]], [[0, 1], [0, 1]], "before time 0"),
        ([[0, 2], [3, 5]], [[0, 1], [0, 1]], "left the one before"),
        ([[0, 3], [2, 5]], [[0, 1], [0, 1]], "one job at a time"),
        ([[0, 3], [3, 4]], [[0, 1], [0, 1]], "one job at a time"),
    ],
)
def test_schedules_that_break_a_constraint(start, machine, message):
    env = FFSPEnv(num_stage=2)
    td = env.reset(as_instance([[3, 2], [1, 4]]).expand(2))
    good = torch.tensor([[0, 3], [3, 5]]), torch.tensor([[0, 1], [0, 1]])
    starts, machines = (
        torch.stack([a, torch.tensor(b)]) for a, b in zip(good, (start, machine), strict=True)
    )
    with pytest.raises(InvalidSolutionError, match=message) as caught:
        env.actions_from_schedule(td, starts, machines)
    assert caught.value.instances == [1]
    with pytest.raises(ConfigError, match="start_times of shape"):
        env.actions_from_schedule(td, starts[..., 0], machines)


# ---------------------------------------------------------------- instances


def test_defaults_and_distribution_of_the_generator():
    """Two stages of three machines, four jobs, times 2 ... 9, each as likely as the others."""
    generator = FFSPGenerator()
    assert (generator.num_stage, generator.num_machine, generator.num_job) == (2, 3, 4)
    assert generator.num_machine_total == 6
    times = generator(2000, rng=torch.Generator().manual_seed(0))["run_time"]
    assert times.shape == (2000, 4, 6) and times.dtype == torch.int64
    counts = torch.bincount(times.flatten(), minlength=11)
    assert counts[:2].sum() == 0 and counts[10:].sum() == 0
    assert bool(((counts[2:10] / times.numel() - 1 / 8).abs() < 0.01).all())


def test_stages_come_from_somewhere():
    """A generator that does not know them needs an environment that does."""

    class Plain(FFSPGenerator):
        def __init__(self) -> None:
            super().__init__()
            del self.num_stage

    with pytest.raises(ConfigError, match="num_stage"):
        FFSPEnv(Plain())
    env = FFSPEnv(Plain(), num_stage=3)
    assert env.reset(batch_size=2)["schedule"].shape == (2, 3, 5)


def test_a_state_carries_its_stages():
    """An environment with other defaults goes on in the same way: policies have such a one."""
    env = FFSPEnv(
        generator_params={"num_stage": 3, "num_machine": 2, "num_job": 5, "flatten_stages": False}
    )
    other = FFSPEnv()
    assert other.num_stage != env.num_stage
    td = env.reset(batch_size=4)
    state = dict(td.items())
    assert other.step_bounds(state) == env.step_bounds(state)
    reward, final, actions = rollout(env, td, random_policy)
    assert torch.equal(other.get_reward(td, actions), reward)
    for action in actions.unbind(-1):
        state = other.advance(state, action)
    for key, value in final.items():
        assert torch.equal(state[key], value), key


def test_message_names_job_machine_and_instance():
    env = FFSPEnv()
    instances = env.generate(4)
    instances["run_time"][2, 3, 4] = -5
    message = "job 3 in stage 1 takes -5 on machine 4 in instance 2"
    with pytest.raises(InvalidInstanceError, match=message):
        env.reset(instances)


def test_sizes_come_from_the_instance():
    """More jobs and machines than the generator makes."""
    env = FFSPEnv()
    td = env.reset(as_instance(random_times(9, 8, seed=0)).unsqueeze(0))
    assert env.get_num_starts(td) == 9
    assert td["action_mask"].shape == (1, 10)
    reward, _, actions = rollout(env, td, random_policy)
    assert float(reward) == -makespan(replay(td["run_time"][0].numpy(), 2, actions[0].tolist()))


def test_dead_ends_do_not_exist() -> None:
    """The mask is never empty before the end, over many small shops of many shapes."""
    for jobs, stages, machines in itertools.product((1, 2, 7), (1, 2, 4), (1, 2, 3)):
        for longest in (2, 30):
            params = {"num_stage": stages, "num_machine": machines, "num_job": jobs}
            env = FFSPEnv(generator_params={**params, "min_time": 1, "max_time": longest})
            td = env.reset(env.generator(64, rng=derive_generator(jobs, stages, machines)))
            rollout(env, td, random_policy)  # raises if it gets stuck


def test_figures():
    """A bar for each operation where and when it runs; a row for each job without a solution."""
    env = FFSPEnv(generator_params={"num_stage": 3, "num_machine": 2, "num_job": 5})
    td = env.permute_machines(env.reset(batch_size=2), 2)
    reward, _, actions = rollout(env, td, random_policy)
    schedule = env.get_schedule(td, actions)
    for index in range(4):
        axes = env.render(td, actions, index=index).axes[0]
        works = schedule.job[index] < 5
        columns = (schedule.machine, schedule.start, schedule.end)
        expected = zip(*(column[index][works].tolist() for column in columns), strict=True)
        drawn = [
            (round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_x() + bar.get_width())
            for container in axes.containers
            for bar in container
        ]
        assert sorted(drawn) == sorted(expected)
        assert f"makespan {-reward[index]:g}" in axes.get_title()
    plain = env.render(td).axes[0]
    assert [label.get_text() for label in plain.get_yticklabels()] == [f"job {j}" for j in range(5)]
