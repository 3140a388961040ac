"""SPCTSP: real prizes are paid, expected ones are seen; luck is uniform."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import InvalidInstanceError
from rl4co.core.rng import derive_generator
from rl4co.envs import PCTSPGenerator, SPCTSPEnv
from rl4co.envs.contract.evidence import record_episode
from rl4co.models import AttentionModelPolicy
from tests.unit.envs.routing_oracle import allowed_solutions

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


def make_instance(expected: list[float], real: list[float], seed: int = 0) -> TensorDict:
    rng = derive_generator(seed)
    instance = {
        "depot": torch.rand(2, generator=rng),
        "locs": torch.rand(len(real), 2, generator=rng),
        "penalty": torch.rand(len(real), generator=rng),
        "deterministic_prize": torch.tensor(expected),
        "stochastic_prize": torch.tensor(real),
    }
    return TensorDict(instance, batch_size=[])


@pytest.mark.parametrize(
    "real",
    [[0.6, 0.1, 0.5, 0.35], [0.0, 0.0, 1.2, 0.0], [0.2, 0.2, 0.2, 0.2], [1.0, 1.0, 1.0, 1.0]],
)
def test_mask_allows_exactly_the_tours_worth_enough(real: list[float]):
    """By what is really earned, against exhaustive search; all customers are always enough."""
    customers = range(1, len(real) + 1)
    expected = {
        (*order, 0)
        for count in range(len(real) + 1)
        for order in itertools.permutations(customers, count)
        if sum(real[node - 1] for node in order) >= 1 or count == len(real)
    }
    assert set(allowed_solutions(SPCTSPEnv(), make_instance([0.4] * 4, real))) == expected


def test_a_prize_that_no_realisation_reaches_is_rejected():
    """Real prizes are at most twice the expected ones, here 2 · 3 · 0.5 = 3."""
    env = SPCTSPEnv()
    instances = torch.stack([make_instance([0.5] * 3, [0.25] * 3) for _ in range(3)])
    instances["prize_required"] = torch.tensor([3.0, 1.5, 1.0])
    env.reset(instances)
    instances["prize_required"] = torch.tensor([3.0, 3.1, 1.0])
    with pytest.raises(InvalidInstanceError, match=r"at most twice .*\(instances 1\)"):
        env.reset(instances)
    with pytest.raises(InvalidInstanceError, match="1 unless given"):
        env.reset(make_instance([0.2, 0.2], [0.2, 0.2]).unsqueeze(0))


def test_prizes_are_revealed_by_visits():
    env = SPCTSPEnv()
    td = env.reset(make_instance([0.5, 0.5, 0.5], [0.25, 0.125, 0.875]).unsqueeze(0))
    assert td["expected_prize"][0].tolist() == [0.0, 0.5, 0.5, 0.5]
    for node, collected, enough in ((1, 0.25, False), (2, 0.375, False), (3, 1.25, True)):
        td = env.step(td.set("action", torch.tensor([node])))["next"]
        assert td["cur_total_prize"].item() == collected
        assert td["action_mask"][0, 0].item() is enough


def test_policy_does_not_see_real_prizes():
    """Other luck, same first step: only what has been collected changes the policy's mind."""
    torch.manual_seed(0)
    env, policy = SPCTSPEnv(), AttentionModelPolicy(env_name="spctsp", **TINY).eval()
    lucky = make_instance([0.3] * 6, [0.3, 0.6, 0.0, 0.1, 0.6, 0.2])
    unlucky = lucky.clone().set("stochastic_prize", torch.full((6,), 0.01))
    starts = torch.tensor([[1, 2, 3, 4, 5, 6, 0]])
    steps = [
        policy(
            env.reset(instance.unsqueeze(0)), env, actions=starts, return_sum_log_likelihood=False
        )["log_likelihood"][0]
        for instance in (lucky, unlucky)
    ]
    assert steps[0][0] == steps[1][0]
    assert not torch.allclose(steps[0][1:4], steps[1][1:4])


def test_luck_is_uniform():
    """Between nothing and twice what is expected, whatever that is."""
    td = PCTSPGenerator(num_loc=50)(2000, rng=derive_generator(5))
    ratio = (td["stochastic_prize"] / td["deterministic_prize"]).flatten()
    assert ratio.min() >= 0
    assert ratio.max() <= 2 + 1e-6
    quantiles = torch.quantile(ratio, torch.linspace(0, 1, 11)).numpy()
    np.testing.assert_allclose(quantiles, np.linspace(0, 2, 11), atol=0.02)
    # Luck has nothing to do with the expected prize.
    together = torch.corrcoef(torch.stack([ratio, td["deterministic_prize"].flatten()]))
    assert abs(together[0, 1].item()) < 0.02


def test_real_prizes_that_are_not_enough_are_accepted():
    """Real prizes are unknown; visiting every customer ends the tour; negative ones raise."""
    env = SPCTSPEnv()
    td = make_instance([0.2] * 4, [0.05] * 4).expand(2).clone()
    episode = record_episode(env, td, derive_generator(0))
    assert episode.lengths == [5, 5]
    env.check_solution_validity(episode.initial, episode.actions)
    td["stochastic_prize"][1, 0] = -0.1
    with pytest.raises(InvalidInstanceError, match=r"prizes are not negative.*instances 1\)"):
        env.reset(td)


def test_plot():
    """Discs by expected prize, the sum by what was earned."""
    env = SPCTSPEnv()
    td = env.reset(make_instance([0.75, 0.25, 0.5], [0.5, 0.75, 0.0]).unsqueeze(0))
    axes = env.render(td, torch.tensor([[1, 2, 0]])).axes[0]
    assert any("prize 1.250 of 1" in text.get_text() for text in axes.texts)
    sizes = next(c for c in axes.collections if c.get_zorder() == 4).get_sizes()
    assert sizes[1] < sizes[2] < sizes[0]
