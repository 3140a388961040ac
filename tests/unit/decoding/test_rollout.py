"""The decode loop against a plain loop in Python, and its errors."""

from __future__ import annotations

import math

import pytest
import torch

from tensordict import TensorDict

from rl4co import kernels
from rl4co.core.errors import InvalidActionError
from rl4co.core.ops import step_entropy
from rl4co.decoding.rollout import (
    DecodingTask,
    expand_solutions,
    follow,
    random_policy,
    rollout,
)
from rl4co.decoding.strategies import Evaluate, Greedy, Sampling
from rl4co.envs import CVRPEnv, TSPEnv


def decode(env, state, logits_fn, strategy, **options):
    """Runs a strategy on a state with axes `[B, S]`."""
    return strategy.run(DecodingTask(env, state, logits_fn, **options))


def reference_solution(table, demand, choose, start=None):
    """One instance, solved in plain Python.

    Args:
        table: Logits by current node, nested lists.
        demand: Units of 1/10 of a vehicle per node (0 for the depot), or None for a TSP.
        choose: Function of {allowed action: probability} and the step.
        start: Forced first action.

    Returns:
        Actions and the log-probability of each (0 for a forced one).
    """
    num_nodes = len(table)
    actions, log_probs = [], []
    current, load, visited = 0, 0, set()
    while len(visited) < num_nodes:
        if demand is None:
            allowed = [n for n in range(num_nodes) if n not in visited]
        else:
            allowed = [
                n for n in range(1, num_nodes) if n not in visited and load + demand[n] <= 10
            ]
            if current != 0 or not allowed:
                allowed.insert(0, 0)
        total = sum(math.exp(table[current][n]) for n in allowed)
        probability = {n: math.exp(table[current][n]) / total for n in allowed}
        forced = start is not None and not actions
        action = start if forced else choose(probability, len(actions))
        actions.append(action)
        log_probs.append(0.0 if forced else math.log(probability[action]))
        current = action
        visited.add(action)
        load = 0 if action == 0 else load + (demand[action] if demand else 0)
    return actions, log_probs


def most_likely(probability, step):
    return max(probability, key=probability.get)


@pytest.fixture(params=["tsp", "cvrp"])
def problem(request, rng):
    """Environment, state, logits table and integer demands of three instances with five nodes."""
    table = torch.randn(3, 5, 5, generator=rng)
    locs = torch.rand(3, 5, 2, generator=rng)
    if request.param == "tsp":
        env = TSPEnv()
        return env, env.reset(TensorDict({"locs": locs}, batch_size=3)), table, [None] * 3
    # The three need 2, 1 and 4 vehicles, so their solutions differ in length.
    units = [[3, 5, 4, 2], [2, 2, 2, 2], [6, 7, 8, 9]]
    instance = {
        "locs": locs[:, 1:],
        "depot": locs[:, 0],
        "demand": torch.tensor(units) / 10,
        "capacity": torch.full((3, 1), 10.0),
    }
    env = CVRPEnv()
    state = env.reset(TensorDict(instance, batch_size=3))
    return env, state, table, [[0, *row] for row in units]


def solutions_of(td, number):
    return expand_solutions(dict(td.items()), number)


def padded(actions, length):
    return actions + [0] * (length - len(actions))


def test_greedy_decoding(problem, table_logits):
    """Actions and log-probabilities of every step; finished instances add nothing."""
    env, td, table, demands = problem
    out = decode(env, solutions_of(td, 1), table_logits(table), Greedy())
    expected = [reference_solution(table[b].tolist(), demands[b], most_likely) for b in range(3)]
    length = max(len(actions) for actions, _ in expected)
    assert out.actions.shape == (3, 1, length)
    assert out.forced == 0
    for b, (actions, log_probs) in enumerate(expected):
        assert out.actions[b, 0].tolist() == padded(actions, length)
        want = torch.tensor(log_probs + [0.0] * (length - len(log_probs)))
        torch.testing.assert_close(out.log_probs[b, 0], want)
    assert bool(out.state["done"].all())


def test_forced_starts(problem, table_logits):
    """All starts at once are the same solutions as one start at a time."""
    env, td, table, demands = problem
    starts = env.start_actions(dict(td.items()), env.get_num_starts(td))  # [B, S]
    out = decode(
        env,
        solutions_of(td, starts.shape[1]),
        table_logits(table),
        Greedy(),
        starts=(starts,),
    )
    assert out.forced == 1
    length = out.actions.shape[-1]
    for b in range(3):
        for s, start in enumerate(starts[b].tolist()):
            actions, log_probs = reference_solution(
                table[b].tolist(), demands[b], most_likely, start
            )
            assert out.actions[b, s].tolist() == padded(actions, length)
            assert float(out.log_probs[b, s].sum()) == pytest.approx(sum(log_probs), abs=1e-5)


def test_samples_follow_the_policy(problem, table_logits, rng):
    """Log-probabilities of sampled actions are those of the reference for the same actions."""
    env, td, table, demands = problem
    out = decode(env, solutions_of(td, 6), table_logits(table), Sampling(rng=rng))
    assert len({tuple(row) for row in out.actions[0].tolist()}) > 1
    for b in range(3):
        for s in range(6):
            sampled = out.actions[b, s].tolist()
            actions, log_probs = reference_solution(
                table[b].tolist(), demands[b], lambda _, step, sampled=sampled: sampled[step]
            )
            assert sampled == padded(actions, len(sampled))
            assert float(out.log_probs[b, s].sum()) == pytest.approx(sum(log_probs), abs=1e-5)


def test_padding_of_finished_instances_has_log_probability_zero(problem, table_logits):
    """... at each single step, not only in the sum."""
    env, td, table, demands = problem
    out = decode(env, solutions_of(td, 1), table_logits(table), Greedy(), with_entropy=True)
    length = out.actions.shape[-1]
    ends = [
        len(reference_solution(table[b].tolist(), demands[b], most_likely)[0]) for b in range(3)
    ]
    if demands[0] is not None:
        assert min(ends) < length, "this test needs instances of different lengths"
    for b, end in enumerate(ends):
        assert out.log_probs[b, 0, end:].tolist() == [0.0] * (length - end)
        assert out.entropy[b, 0, end:].tolist() == [0.0] * (length - end)


def test_entropy_of_each_step(problem, table_logits):
    """The entropy of the masked distribution at the states that greedy decoding visits."""
    env, td, table, demands = problem
    out = decode(env, solutions_of(td, 1), table_logits(table), Greedy(), with_entropy=True)
    for b in range(3):
        entropies = []

        def remember(probability, step, entropies=entropies):
            entropies.append(-sum(p * math.log(p) for p in probability.values()))
            return most_likely(probability, step)

        reference_solution(table[b].tolist(), demands[b], remember)
        seen = out.entropy[b, 0, : len(entropies)]
        torch.testing.assert_close(seen, torch.tensor(entropies), atol=1e-6, rtol=1e-5)


def test_step_entropy_by_hand():
    """1/2, 1/4, 1/4: 1.5 bits = 1.5 ln 2. A certain action: 0."""
    log_probs = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0]]).log()
    torch.testing.assert_close(step_entropy(log_probs), torch.tensor([1.5 * math.log(2), 0.0]))


@pytest.mark.parametrize("forced", [0, 1])
def test_walk_records_what_the_policy_saw(problem, table_logits, forced):
    """Following the actions of a rollout gives its trace and its final state."""
    env, td, table, _ = problem
    keys = ("current_node", "action_mask", "i", "locs")
    starts = (env.start_actions(dict(td.items()), 3),) if forced else ()
    made = decode(
        env, solutions_of(td, 3), table_logits(table), Greedy(), starts=starts, record=keys
    )
    walked = follow(env, solutions_of(td, 3), made.actions, keys, forced)
    steps = made.actions.shape[-1] - forced
    for key in keys:
        assert made.trace[key].shape[:3] == (3, 3, steps)
        assert torch.equal(walked.trace[key], made.trace[key])
        assert torch.equal(walked.state[key], made.state[key])
    # Before step t the policy stood where action t - 1 led.
    assert torch.equal(made.trace["current_node"][:, :, 1:], made.actions[..., forced:-1])
    # What no step changes is there once.
    assert made.trace["locs"].data_ptr() == walked.trace["locs"].data_ptr() == td["locs"].data_ptr()


def test_evaluate_strategy_gives_the_log_probabilities_of_its_actions(problem, table_logits, rng):
    env, td, table, _ = problem
    made = decode(env, solutions_of(td, 4), table_logits(table), Sampling(rng=rng))
    again = decode(env, solutions_of(td, 4), table_logits(table), Evaluate(actions=made.actions))
    assert torch.equal(again.actions, made.actions)
    torch.testing.assert_close(again.log_probs, made.log_probs)


def test_log_probabilities_on_request_only(problem, table_logits):
    env, td, table, _ = problem
    out = decode(env, solutions_of(td, 1), table_logits(table), Greedy(), with_log_probs=False)
    assert out.log_probs is None
    assert out.entropy is None
    assert out.trace == {}


# ---------------------------------------------------------------- bounds and dead ends


def vehicles(*demands: float) -> tuple[CVRPEnv, TensorDict]:
    """Instances with three customers each, all of the same demand within an instance."""
    env = CVRPEnv(check_instance=False)
    batch = len(demands)
    instance = {
        "locs": torch.rand(batch, 3, 2),
        "depot": torch.rand(batch, 2),
        "demand": torch.tensor(demands).unsqueeze(-1).expand(-1, 3),
        "capacity": torch.ones(batch, 1),
    }
    return env, env.reset(TensorDict(instance, batch_size=batch))


def avoid_depot(state):
    """Logits of a policy that goes home only if it must."""
    logits = torch.zeros(state["action_mask"].shape)
    logits[..., 0] = -50.0
    return logits


def test_max_steps_names_the_unfinished_instances():
    """Demand 0.2: three customers and the depot, 4 steps. Demand 0.6: 1 0 2 0 3, 5 steps."""
    env, td = vehicles(0.2, 0.6, 0.2, 0.6)
    state = solutions_of(td, 2)
    assert decode(env, state, avoid_depot, Greedy()).actions.shape == (4, 2, 5)
    with pytest.raises(InvalidActionError, match=r"within 4 steps.*instances 1, 3"):
        decode(env, state, avoid_depot, Greedy(), max_steps=4)
    with pytest.raises(InvalidActionError, match=r"within 2 steps.*instances 0, 1, 2, 3"):
        decode(env, state, avoid_depot, Greedy(), max_steps=2)
    assert decode(env, state, avoid_depot, Greedy(), max_steps=9).actions.shape == (4, 2, 5)


def test_infeasible_instance_ends_with_an_error():
    """A demand above the capacity never fits: the loop stops at the bound and names it."""
    env, td = vehicles(0.2, 1.5)
    with pytest.raises(InvalidActionError, match=r"unfinished instances 1$"):
        decode(env, solutions_of(td, 1), avoid_depot, Greedy())


def test_exact_number_of_steps():
    """`num_steps` neither stops early nor complains."""
    env, td = vehicles(0.2, 0.2)
    assert decode(env, solutions_of(td, 1), avoid_depot, Greedy()).actions.shape[-1] == 4
    longer = decode(env, solutions_of(td, 1), avoid_depot, Greedy(), num_steps=7)
    assert longer.actions[..., 4:].tolist() == [[[0, 0, 0]]] * 2
    assert longer.log_probs[..., 4:].tolist() == [[[0.0, 0.0, 0.0]]] * 2
    shorter = decode(env, solutions_of(td, 1), avoid_depot, Greedy(), num_steps=2)
    assert shorter.actions.shape[-1] == 2
    assert not bool(shorter.state["done"].any())


def test_the_loop_looks_at_done_as_rarely_as_possible(monkeypatch):
    """Not before the shortest solution can end, then once per step; never with `num_steps`."""
    import rl4co.decoding.rollout as module

    env, td = vehicles(0.6)
    looks = []
    original = module.all_finished
    monkeypatch.setattr(module, "all_finished", lambda *args: looks.append(1) or original(*args))
    decode(env, solutions_of(td, 1), avoid_depot, Greedy())
    # Fewest 4, most 5: a look before step 5, and one at the end.
    assert len(looks) == 2
    looks.clear()
    decode(env, solutions_of(td, 1), avoid_depot, Greedy(), num_steps=5)
    assert not looks


def test_rare_looks_at_done_change_nothing(make_env, make_policy):
    """As on a GPU: steps after the end of all solutions are taken, and dropped."""
    env, policy = make_env("cvrp", 20), make_policy("cvrp")
    td = env.reset(batch_size=4)
    for seed in range(3):
        with torch.no_grad():
            every = policy(td, env, decode_type="sampling", rng=torch.Generator().manual_seed(seed))
            with kernels.disabled():
                rng = torch.Generator().manual_seed(seed)
                rare = policy(td, env, decode_type="sampling", rng=rng)
        assert torch.equal(every["actions"], rare["actions"])
        torch.testing.assert_close(every["log_likelihood"], rare["log_likelihood"])


@pytest.mark.parametrize("slack", range(8))
def test_steps_after_the_end_are_dropped_at_the_limit(slack):
    """Also where the limit ends the loop before the next look at `done`."""
    env = CVRPEnv(generator_params={"num_loc": 20}, seed=1)
    state = solutions_of(env.reset(batch_size=4), 3)
    expected = decode(env, state, lambda state: state["action_mask"].float(), Greedy()).actions
    with kernels.disabled():
        task = DecodingTask(
            env,
            state,
            lambda state: state["action_mask"].float(),
            max_steps=expected.shape[-1] + slack,
        )
        assert torch.equal(Greedy().run(task).actions, expected)


class DeadEnd(CVRPEnv):
    """After `since` steps, instances with a marked first customer allow nothing at all."""

    since = 0

    def _action_mask(self, state):
        marked = (state["locs"][..., 1, 0] == 0.5).unsqueeze(-1)
        stuck = marked & (state["i"] >= self.since) & ~state["done"]
        return super()._action_mask(state) & ~stuck


@pytest.mark.parametrize("strategy", [Greedy(), Sampling()], ids=["greedy", "sampling"])
@pytest.mark.parametrize("since", [0, 2, 4])
def test_dead_end_is_an_error_that_names_the_instance(strategy, since):
    """Whether it opens before or after the shortest possible solution."""
    env = DeadEnd()
    env.since = since
    _, td = vehicles(0.2, 0.6, 0.6)
    td["locs"] = td["locs"].clone()
    td["locs"][1, 1, 0] = 0.5
    with pytest.raises(InvalidActionError, match=r"allowed action.*instances 1;.*infeasible"):
        decode(env, solutions_of(td, 2), avoid_depot, strategy)


# ---------------------------------------------------------------- rollout() and random_policy


@pytest.mark.parametrize("name", ["tsp", "cvrp"])
@pytest.mark.parametrize("batch", [[4], [1], [2, 3], []], ids=str)
def test_random_rollout(name, batch, make_env, unchanged):
    """Valid solutions, their rewards, and the caller's state as it was."""
    env = make_env(name, 6)
    td = env.reset(batch_size=batch)
    with unchanged(td):
        reward, final, actions = rollout(env, td, random_policy)
    assert reward.shape == torch.Size(batch)
    assert bool(final["done"].all())
    env.check_solution_validity(td, actions)
    torch.testing.assert_close(reward, env.get_reward(td, actions))
    assert torch.equal(final["current_node"], actions[..., -1])


def test_random_policy_is_uniform_over_allowed_actions(make_env):
    """From 3 of 4 nodes, each a third of the time: 9000 draws, standard deviation 45."""
    env = make_env("tsp", 4)
    td = env.reset(batch_size=9000)
    td["action"] = torch.zeros(9000, dtype=torch.int64)
    td = env.step(td)["next"]
    counts = torch.bincount(random_policy(td)["action"], minlength=4).tolist()
    assert counts[0] == 0
    assert all(abs(count - 3000) < 200 for count in counts[1:])


def test_rollout_takes_any_callable(make_env):
    """Nearest neighbour, checked against a loop over nodes."""
    env = make_env("tsp", 7)
    td = env.reset(batch_size=3)

    def nearest(td):
        here = td["locs"].gather(1, td["current_node"].view(-1, 1, 1).expand(-1, 1, 2))
        distance = (td["locs"] - here).norm(dim=-1)
        return td.set("action", distance.masked_fill(~td["action_mask"], math.inf).argmin(-1))

    _, _, actions = rollout(env, td, nearest)
    for b in range(3):
        points, tour = td["locs"][b], [0]
        while len(tour) < 7:
            left = [n for n in range(7) if n not in tour]
            tour.append(min(left, key=lambda n: float((points[n] - points[tour[-1]]).norm())))
        assert actions[b].tolist() == tour


def test_rollout_rejects_more_than_max_steps(make_env):
    env = make_env("tsp", 6)
    td = env.reset(batch_size=2)
    with pytest.raises(InvalidActionError, match=r"within 5 steps.*instances 0, 1"):
        rollout(env, td, random_policy, max_steps=5)
    assert rollout(env, td, random_policy, max_steps=6)[2].shape == (2, 6)


def test_rollout_checks_solutions(make_env):
    """A heuristic that cheats is found out by the environment's own check."""
    from rl4co.core.errors import InvalidSolutionError

    env = make_env("tsp", 5)
    td = env.reset(batch_size=2)
    with pytest.raises(InvalidSolutionError, match="exactly once"):
        rollout(env, td, lambda td: td.set("action", torch.zeros(2, dtype=torch.int64)))
