"""MatNet for the flexible flow shop: stages, orders of machines, learning."""

from __future__ import annotations

import math

import pytest
import torch

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.decoding.rollout import random_policy
from rl4co.envs import ATSPEnv, FFSPEnv
from rl4co.models import MatNet, MultiStageFFSPPolicy
from tests.learning import cost_ratio, train_steps

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 2}


@pytest.fixture
def env() -> FFSPEnv:
    return FFSPEnv(generator_params={"num_stage": 2, "num_machine": 3, "num_job": 4})


@pytest.fixture
def policy() -> MultiStageFFSPPolicy:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MultiStageFFSPPolicy(2, **TINY).eval()


def test_logits_are_those_of_the_own_stage(env, policy):
    """A step by hand: the stage's weights, its machine as query, its jobs and waiting as keys."""
    td = env.reset(env.generator(5, rng=torch.Generator().manual_seed(1)))
    hidden, _ = policy.encoder(td)
    cache, stages = policy.decoder.prepare(hidden, td), set()
    for _ in range(7):
        state = {key: value.unsqueeze(1) for key, value in td.items()}
        logits = policy.decoder(state, cache)[:, 0]  # [B, J + 1]
        stages |= set(td["stage_idx"].tolist())
        for b in range(5):
            stage = policy.decoder.stages[int(td["stage_idx"][b])]
            jobs, machines = (part[b] for part in hidden[int(td["stage_idx"][b])])
            query = stage.project_query(machines[int(td["machine_idx"][b]) % 3])  # [D]
            nodes = torch.cat([jobs, stage.no_job.unsqueeze(0)])
            key, value, logit_key = stage.project_node_embeddings(nodes).chunk(3, -1)
            heads = []
            for h in range(2):
                part = slice(8 * h, 8 * h + 8)
                scores = key[:, part] @ query[part] / math.sqrt(8)
                scores = scores.masked_fill(~td["action_mask"][b], -torch.inf)
                heads.append(scores.softmax(0) @ value[:, part])
            glimpse = stage.pointer.project_out(torch.cat(heads))
            torch.testing.assert_close(logits[b], logit_key @ glimpse / 4, atol=1e-5, rtol=1e-4)
        td = env.step(random_policy(td))["next"]
    assert stages == {0, 1}


def test_solutions_in_different_orders_of_machines(env, policy):
    """Rewards are those of the orders; the first order is the usual one."""
    td = env.reset(env.generator(4, rng=torch.Generator().manual_seed(1)))
    rng = torch.Generator().manual_seed(2)
    how = {"decode_type": "sampling", "num_samples": 6, "rng": rng}
    out = policy(td, env, machine_orders=True, **how)
    permuted = env.permute_machines(td, 6)
    env.check_solution_validity(permuted, out["actions"])
    torch.testing.assert_close(out["reward"], env.get_reward(permuted, out["actions"]))
    assert torch.equal(out["reward"][:4], env.get_reward(td, out["actions"][:4]))
    again = policy(td, env, actions=out["actions"], machine_orders=True)
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"])
    torch.testing.assert_close(again["reward"], out["reward"])
    # The policy forgets the orders after the call.
    plain = policy(td, env, decode_type="greedy")
    torch.testing.assert_close(plain["reward"], env.get_reward(td, plain["actions"]))


def test_bad_arguments_raise(env, policy):
    with pytest.raises(ConfigError, match="stage_cnt"):
        MultiStageFFSPPolicy(0)
    with pytest.raises(ConfigError, match="num_stage"):
        MultiStageFFSPPolicy(4, **TINY)(env.reset(batch_size=2), env)
    with pytest.raises(UnsupportedError, match="machine_orders"):
        policy(ATSPEnv(generator_params={"num_loc": 4}).reset(batch_size=1), "atsp",
               machine_orders=True)  # fmt: skip


@pytest.mark.learning
def test_learns(env, require):
    torch.manual_seed(0)
    model = MatNet(env, policy_kwargs=TINY, seed=1)
    how = {"num_instances": 64, "num_samples": 6, "machine_orders": True}
    ratio = cost_ratio(model, lambda: train_steps(model, 50, 16, 3e-3), **how)
    require("makespan after / before", ratio, below=0.985)
