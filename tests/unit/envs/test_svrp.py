"""SVRP: exhaustive oracles, technicians, costs, starts, generated skills."""

from __future__ import annotations

import itertools

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import ConfigError
from rl4co.core.rng import derive_generator
from rl4co.envs import SVRPEnv, SVRPGenerator, get_env
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.testing import enumerate_solutions
from rl4co.models import POMO
from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from tests.unit.envs.routing_oracle import allowed_solutions, euclidean, first_violation, round_trip


class Plain:
    """An instance in NumPy, and what is true of it, told without tensors."""

    def __init__(self, num_loc: int, num_techs: int, seed: int, matrix: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.points = rng.random((num_loc + 1, 2))
        self.distances = euclidean(self.points)
        if matrix:
            self.distances = rng.uniform(0.1, 1, self.distances.shape)
            np.fill_diagonal(self.distances, 0)
        self.matrix = matrix
        # Whole levels, so that customers ask for exactly what a technician has.
        self.techs = np.sort(rng.integers(1, 5, num_techs))
        self.skills = rng.integers(0, self.techs[-1] + 1, num_loc)
        self.rates = rng.uniform(0.5, 3, num_techs)

    def tensors(self) -> TensorDict:
        fields = {
            "depot": self.points[0], "locs": self.points[1:], "techs": self.techs[:, None],
            "skills": self.skills[:, None], "tech_costs": self.rates,
        }  # fmt: skip
        if self.matrix:
            fields["cost_matrix"] = self.distances
        return TensorDict({k: torch.as_tensor(v).float() for k, v in fields.items()}, [])

    def able(self, routes: Sequence[Sequence[int]]) -> bool:
        return all(
            self.skills[node - 1] <= self.techs[tech]
            for tech, route in enumerate(routes)
            for node in route
        )

    def cost(self, routes: Sequence[Sequence[int]]) -> float:
        return sum(
            self.rates[tech] * round_trip(self.distances, route)
            for tech, route in enumerate(routes)
            if route
        )

    def solutions(self) -> Iterator[list[list[int]]]:
        """All assignments of customers to technicians, in all orders, that skills permit."""
        num_loc, num_techs = len(self.skills), len(self.techs)
        for assignment in itertools.product(range(num_techs), repeat=num_loc):
            groups = [
                [n + 1 for n in range(num_loc) if assignment[n] == t] for t in range(num_techs)
            ]
            if self.able(groups):
                for orders in itertools.product(*map(itertools.permutations, groups)):
                    yield [list(order) for order in orders]


def as_actions(routes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """As in episodes: up to the last customer, and home if the depot was not visited yet."""
    last = max(tech for tech, route in enumerate(routes) if route)
    actions = [node for route in routes[: last + 1] for node in (*route, 0)][:-1]
    return tuple(actions if last else [*actions, 0])


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("matrix", [False, True], ids=["coordinates", "matrix"])
@pytest.mark.parametrize(("num_loc", "num_techs"), [(1, 1), (1, 3), (3, 1), (3, 2), (3, 4), (4, 3)])
def test_mask_allows_what_skills_permit(num_loc: int, num_techs: int, matrix: bool):
    """Exactly the solutions of the oracle with their costs: technicians may stay at home."""
    env = SVRPEnv()
    for seed in range(3):
        plain = Plain(num_loc, num_techs, seed, matrix)
        expected = {as_actions(routes): -plain.cost(routes) for routes in plain.solutions()}
        assert allowed_solutions(env, plain.tensors()) == pytest.approx(
            expected, rel=1e-5, abs=1e-6
        )
        fewest, most = env.step_bounds(dict(env.reset(plain.tensors()).items()))
        assert fewest <= min(map(len, expected))
        assert max(map(len, expected)) <= most


@pytest.mark.parametrize(("num_techs", "lengths"), [(1, {5}), (2, {5}), (3, {5, 6}), (5, {5, 8})])
def test_step_bounds_are_reached(num_techs: int, lengths: set[int]):
    """All customers by the first technician, or by the last, if everybody can do everything."""
    plain = Plain(4, num_techs, seed=0)
    plain.skills[:] = 0
    env = SVRPEnv()
    td = env.reset(plain.tensors())
    found = set(map(len, enumerate_solutions(env, plain.tensors())))
    assert {min(found), max(found)} == lengths
    assert env.step_bounds(dict(td.items())) == (min(lengths), max(lengths))


def test_check_agrees_with_a_walk():
    """On random sequences with two to five depot visits: the same verdict for the same reason."""
    env, rng, verdicts = SVRPEnv(), np.random.default_rng(0), set()
    for seed in range(10):
        plain = Plain(5, 3, seed)
        td = env.reset(plain.tensors().unsqueeze(0))
        for _ in range(40):
            actions = rng.permutation([*range(1, 6), *[0] * rng.integers(1, 5)]).tolist()
            routes = [[]]
            for action in actions:
                routes[-1].append(action) if action else routes.append([])
            wrong = set()
            if any(routes[3:]):
                wrong.add("no more technicians set out than there are")
            if not plain.able(routes[:3]):
                wrong.add("every customer is within the skill of its technician")
            verdict = first_violation(env, td, actions)
            assert verdict in (wrong or {None})
            verdicts.add(verdict)
    assert len(verdicts) == 3


@given(
    num_loc=st.integers(1, 12), num_techs=st.integers(1, 5), seed=st.integers(0, 2**32),
    matrix=st.booleans(),
)  # fmt: skip
def test_random_rollouts(num_loc: int, num_techs: int, seed: int, matrix: bool):
    """They end, are valid, and cost what NumPy says, technician by technician."""
    env, plain = SVRPEnv(), Plain(num_loc, num_techs, seed, matrix)
    episode = record_episode(env, plain.tensors().expand(2, 2), derive_generator(seed))
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    for own, actions in zip(reward.flatten(), episode.actions.flatten(0, 1), strict=True):
        routes = [[]]
        for action in actions.tolist():
            routes[-1].append(action) if action else routes.append([])
        used = [route for route in routes if route]
        assert sorted(node for route in used for node in route) == list(range(1, num_loc + 1))
        assert plain.able(routes[:num_techs])
        assert float(own) == pytest.approx(-plain.cost(routes[:num_techs]), rel=1e-5)


# ---------------------------------------------------------------- stepping


def test_state_follows_the_technicians():
    """Who is on the way, whom they can serve, and when the depot is a choice."""
    instance = TensorDict(
        {
            "depot": torch.zeros(2),
            "locs": torch.rand(3, 2),
            "techs": torch.tensor([[1.0], [2.0], [3.0]]),
            "skills": torch.tensor([[1.0], [2.5], [0.0]]),
        },
        [],
    )
    env = SVRPEnv()
    td = env.reset(instance.unsqueeze(0))
    assert td["tech_costs"].tolist() == [[1.0, 2.0, 3.0]]
    assert td["action_mask"][0].tolist() == [True, True, False, True]
    script = [
        (3, 0, [True, True, False, False], False),
        (0, 1, [True, True, False, False], False),
        (0, 2, [False, True, True, False], False),  # the last one must not leave anyone out
        (2, 2, [False, True, False, False], False),
        (1, 2, [True, False, False, False], True),
        (0, 2, [True, False, False, False], True),  # done: no technician is sent out
    ]
    for action, tech, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["current_tech"].item() == tech
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done


def test_starts_are_within_the_skill_of_the_first():
    """All customers that are allowed, then the depot (the first stays at home), in turn."""
    plain = Plain(4, 3, seed=0)
    td = plain.tensors().expand(3).clone()
    td["techs"] = torch.tensor([[1.0], [2.0], [3.0]]).expand(3, 3, 1)
    skills = torch.tensor([[2.0, 1.0, 3.0, 0.0], [1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    td["skills"] = skills.unsqueeze(-1)
    env = SVRPEnv()
    state = env.reset(td)
    assert env.get_num_starts(state) == 5
    starts = env.start_actions(dict(state.items()), 5)
    assert starts.tolist() == [[2, 4, 0, 2, 4], [1, 2, 3, 4, 0], [0, 0, 0, 0, 0]]
    assert [env.get_num_starts(state[b : b + 1]) for b in range(3)] == [3, 5, 1]
    with pytest.raises(ConfigError, match="1 to 5 starts for svrp, got 6"):
        env.start_actions(dict(state.items()), 6)


def test_the_only_technician_does_not_stay_at_home():
    plain = Plain(3, 1, seed=0)
    env = SVRPEnv()
    state = env.reset(plain.tensors().unsqueeze(0))
    assert env.get_num_starts(state) == 3
    assert env.select_start_nodes(state, 3).tolist() == [1, 2, 3]


def test_starts_repeat_only_when_all_are_used():
    """Each instance has its own number of first actions; the batch takes the largest."""
    env = SVRPEnv(generator_params={"num_loc": 20}, seed=0)
    td = env.reset(batch_size=64)
    count, allowed = env.get_num_starts(td), td["action_mask"].sum(-1)
    assert count == allowed.max() < 21
    for starts, most in zip(env.start_actions(dict(td.items()), count), allowed, strict=True):
        assert len(set(starts.tolist())) == most


@pytest.mark.parametrize(("name", "options"), [("svrp", {}), ("op", {"max_length": 1.0})])
def test_pomo_takes_the_starts_of_each_batch(name: str, options: dict[str, float]):
    """Their number changes from batch to batch; training and validation go on."""
    env = get_env(name, generator_params={"num_loc": 8, **options}, seed=1)
    model = POMO(env, policy_kwargs={"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1})
    counts = set()
    for batch_idx in range(6):
        batch = env.generate(4)
        counts.add(env.get_num_starts(env.reset(batch)))
        out = model.shared_step(batch, batch_idx, "train")
        out["loss"].backward()
        with torch.no_grad():
            model.shared_step(batch, batch_idx, "val")
    assert len(counts) > 1
    assert all(bool(weight.grad.isfinite().all()) for weight in model.policy.decoder.parameters())


def test_context_knows_the_technician():
    """Skill and cost as shares of the largest, at every step of every solution."""
    plain = Plain(4, 3, seed=1)
    embeddings = make_embeddings("svrp", EmbeddingConfig(embed_dim=8))
    state = dict(SVRPEnv().reset(plain.tensors().unsqueeze(0)).items())
    state["current_tech"] = torch.tensor([0])
    for tech in range(3):
        queries = {k: v.unsqueeze(1).expand(1, 2, *v.shape[1:]) for k, v in state.items()}
        queries["current_tech"] = torch.tensor([[tech, 0]])
        features = embeddings.context.features(queries)
        expected = [
            [plain.techs[t] / plain.techs.max(), plain.rates[t] / plain.rates.max()]
            for t in (tech, 0)
        ]
        np.testing.assert_allclose(features[0].numpy(), expected, rtol=1e-5)


def test_plot_names_the_technicians():
    """A route and a line in the legend for each who sets out, in the colour of the technician."""
    plain = Plain(3, 3, seed=0)
    plain.skills[:] = 0
    env = SVRPEnv()
    td = env.reset(plain.tensors().unsqueeze(0))
    figure = env.render(td, torch.tensor([[1, 0, 0, 2, 3]]))
    ax = figure.axes[0]
    cost = plain.cost([[1], [], [2, 3]])
    assert ax.get_title() == f"3 customers · 2 of 3 technicians · cost {cost:.3f}"
    names = [text.get_text().split("\n")[0] for text in ax.get_legend().get_texts()]
    assert names == ["technician 1", "technician 3", "depot"]
    assert env.render(td).axes[0].get_title() == "3 customers · 3 technicians"


# ---------------------------------------------------------------- generator


def test_generated_instances():
    """Sorted skills of technicians, uniform on [1, 10]; customers ask for a share of the best."""
    generator = SVRPGenerator(num_loc=50)
    td = generator(500, rng=torch.Generator().manual_seed(0))
    assert td["locs"].shape == (500, 50, 2)
    assert td["depot"].shape == (500, 2)
    assert td["techs"].shape == (500, 3, 1)
    assert td["skills"].shape == (500, 50, 1)
    assert (td["tech_costs"] == torch.tensor([1.0, 2.0, 3.0])).all()
    techs = td["techs"].squeeze(-1)
    assert (techs.diff(dim=-1) >= 0).all()
    assert techs.min() >= 1
    assert techs.max() <= 10
    # Order statistics of three uniforms: quarters of the interval.
    np.testing.assert_allclose(techs.mean(0), 1 + 9 * np.array([0.25, 0.5, 0.75]), atol=0.3)
    share = td["skills"].squeeze(-1) / techs[:, -1:]
    assert share.min() >= 0
    assert share.max() <= 1
    assert float(share.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(share.var()) == pytest.approx(1 / 12, abs=0.005)
    SVRPEnv().check_instances(td)


def test_generator_settings():
    """Other technicians, other skills, a depot of its own."""
    generator = SVRPGenerator(
        num_loc=5, min_skill=2.0, max_skill=3.0, tech_costs=[4, 5], depot_distribution="corner"
    )
    td = generator([2, 3], rng=torch.Generator().manual_seed(0))
    assert td["techs"].shape == (2, 3, 2, 1)
    assert td["techs"].min() >= 2
    assert td["techs"].max() <= 3
    assert (td["tech_costs"] == torch.tensor([4.0, 5.0])).all()
    assert (td["depot"] == 0).all()
    again = generator([2, 3], rng=torch.Generator().manual_seed(0))
    assert all(torch.equal(td[key], again[key]) for key in td.keys())
