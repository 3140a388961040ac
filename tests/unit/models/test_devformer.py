"""DevFormer: what its embeddings see, what its query says, and that it learns."""

from __future__ import annotations

import copy

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.envs import DPPEnv, MDPPEnv, TSPEnv
from rl4co.models import PPO, DevFormer, DevFormerContext, DevFormerInitEmbedding, DevFormerPolicy
from rl4co.models.embeddings._placement import port_distances, port_weights
from tests.learning import paired_t

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


def make_state(cls):
    """A board of 3 x 3 cells with ports in two corners (or one) and a keep-out in the middle."""
    params = {"grid_size": 3, "num_keepout_max": 2, "max_decaps": 2}
    env = cls(generator_params={**params, **({"num_probes_max": 2} if cls is MDPPEnv else {})})
    cells = torch.arange(9)
    corners = (cells == 0) | (cells == 8)
    probe = corners if cls is MDPPEnv else torch.tensor([0])
    locs = env.generator(1)["locs"]
    td = TensorDict(
        {"locs": locs, "probe": probe.unsqueeze(0), "action_mask": (cells != 4).unsqueeze(0)},
        batch_size=[1],
    )
    return env, env.reset(td)


def test_distances_are_those_to_the_nearest_port():
    _, single = make_state(DPPEnv)
    _, several = make_state(MDPPEnv)
    third = torch.tensor(1 / 3)
    assert torch.allclose(port_distances(single)[0, :, 0][[0, 1, 4, 8]],
                          third * torch.tensor([0, 1, 2**0.5, 8**0.5]))  # fmt: skip
    assert torch.allclose(port_distances(several)[0, :, 0][[0, 1, 4, 8, 7]],
                          third * torch.tensor([0, 1, 2**0.5, 0, 1]))  # fmt: skip
    assert port_weights(several)[0].tolist() == [0.5, *[0.0] * 7, 0.5]


def test_node_embedding_knows_kinds():
    """Free cells are 0, keep-outs 1, ports 2."""
    _, state = make_state(DPPEnv)
    embedding = DevFormerInitEmbedding(4)
    with torch.no_grad():
        for layer in (embedding.init_embed, embedding.init_embed_probe_distance):
            layer.weight.zero_()
            layer.bias.zero_()
        embedding.init_embed.weight[0, 2] = 1.0
    assert embedding(state)[0, :, 0].tolist() == [2, 0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("cls", [DPPEnv, MDPPEnv])
def test_query(cls):
    """Ports and last decap by their own networks; before the first, the placeholder."""
    env, td = make_state(cls)
    context, hidden = DevFormerContext(8), torch.randn(1, 9, 8)
    ports = [0, 8] if cls is MDPPEnv else [0]
    port_part = context.embed_ports(hidden[0, ports]).mean(0)
    cache = context.prepare(hidden)

    def query(state):
        return context(cache, {key: value.unsqueeze(1) for key, value in state.items()})[0, 0]

    first = port_part + context.embed_placed(context.placeholder)
    torch.testing.assert_close(query(td), first)
    after = env.step(td.set("action", torch.tensor([5])))["next"]
    torch.testing.assert_close(query(after), port_part + context.embed_placed(hidden[0, 5]))


def test_structure_and_support():
    policy = DevFormerPolicy(env_name="mdpp", **TINY)
    assert policy.decoder.project_fixed_context is None
    assert isinstance(policy.encoder.init_embedding, DevFormerInitEmbedding)
    with pytest.raises(UnsupportedError, match="probing ports"):
        DevFormer(TSPEnv())


def test_fewer_decaps_than_trained_with():
    """A policy is not tied to a number of decaps, or to one number for all instances."""
    policy = DevFormerPolicy(env_name="dpp", **TINY).eval()
    for params in ({"max_decaps": 3}, {"max_decaps": 5, "min_decaps": 2}):
        env = DPPEnv(generator_params=params)
        out = policy(env.reset(batch_size=4), env, decode_type="sampling")
        assert out["actions"].shape[-1] <= params["max_decaps"]
        assert bool(out["log_likelihood"].isfinite().all())


@pytest.mark.parametrize("cls", [DPPEnv, MDPPEnv])
def test_likelihoods_do_not_depend_on_batch_mates(cls):
    """An instance with fewer decaps waits for the others without taking chances."""
    env = cls(generator_params={"grid_size": 5, "max_decaps": 6, "min_decaps": 1})
    instances = env.generator(3, rng=torch.Generator().manual_seed(0))
    td = env.reset(instances.set("max_decaps", torch.tensor([[2], [6], [4]])))
    policy = DevFormerPolicy(env_name=env.name, **TINY).eval()
    whole = policy(td, env, decode_type="greedy")
    alone = [policy(td[b : b + 1], env, decode_type="greedy") for b in range(3)]
    for key in ("log_likelihood", "reward"):
        torch.testing.assert_close(whole[key], torch.cat([out[key] for out in alone]))


def losses(model, batch, step):
    """The losses of a training step: two of PPO on the same solutions, one of REINFORCE."""
    if not isinstance(model, PPO):
        yield model.shared_step(batch, step, "train")["loss"]
        return
    solutions = model.solve(batch, step)
    for _ in range(2):
        yield model.calculate_loss(solutions)["loss"]


@pytest.mark.learning
@pytest.mark.parametrize("algorithm", ["rollout", "critic", "ppo"])
def test_training_improves(algorithm, require):
    """Clearly better than the untrained policy on the same instances, with REINFORCE and PPO."""
    torch.manual_seed(0)
    params = {"grid_size": 6, "max_decaps": 4}
    env = MDPPEnv(generator_params=params, reward_type="maxsum")
    policy = DevFormerPolicy(env_name="mdpp", **{**TINY, "normalization": "instance"})
    untrained = copy.deepcopy(policy)
    model = (
        PPO(env, policy, normalize_adv=True)
        if algorithm == "ppo"
        else DevFormer(env, policy, baseline=algorithm, reward_scale="norm")
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    for step in range(30):
        batch = env.generator(64, rng=derive_generator("devformer", step))
        for loss in losses(model, batch, step):
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    td = env.reset(env.generator(128, rng=derive_generator("judged")))
    rewards = []
    for judged in (policy, untrained):
        rng = derive_generator("samples")
        with torch.no_grad():
            out = judged.eval()(td, env, decode_type="sampling", num_samples=4, rng=rng)
        rewards.append(out["reward"].unflatten(0, (4, 128)).mean(0))
    gain = rewards[0] - rewards[1]
    require("t of the gain", paired_t(gain), above=4.0)
