"""PolyNet: strategies by loops, the loss of the best by hand, starting from a trained model."""

from __future__ import annotations

import copy
import math

from typing import Any

import pytest
import torch

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.ops import unbatchify
from rl4co.core.rng import derive_generator
from rl4co.envs import ATSPEnv, CVRPEnv, SDVRPEnv, TSPEnv
from rl4co.models import (
    POMO,
    AttentionModel,
    AttentionModelPolicy,
    PointerNetworkPolicy,
    PolyNet,
    PolyNetPolicy,
)
from rl4co.models.rl.losses import best_of_advantage
from tests.learning import cost_ratio, train_steps
from tests.numerics import assert_same_gradients

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
SMALL = {**TINY, "poly_layer_dim": 8}


@pytest.fixture(params=["tsp", "cvrp", "sdvrp"])
def env(request):
    cls = {"tsp": TSPEnv, "cvrp": CVRPEnv, "sdvrp": SDVRPEnv}[request.param]
    return cls(generator_params={"num_loc": 6}, seed=11)


def make_model(env: Any, k: int = 5, **kwargs: Any) -> PolyNet:
    torch.manual_seed(3)
    return PolyNet(env, k=k, policy_kwargs=SMALL, **{"val_num_solutions": 7, "seed": 5, **kwargs})


def save(model: Any, path: Any) -> Any:
    """A checkpoint as Lightning writes it."""
    checkpoint = {"state_dict": model.state_dict(), "pytorch-lightning_version": "2"}
    model.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, path)
    return path


# ---------------------------------------------------------------- the decoder


@pytest.mark.parametrize(
    ("k", "digits"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (128, 7), (129, 8)]
)
def test_binary_vectors(k, digits):
    """The numbers 0 to k - 1, all different, with no digit too many."""
    vectors = PolyNetPolicy(k=k, **SMALL).decoder.binary_vectors
    assert vectors.shape == (k, digits)
    numbers = [int("".join(str(int(digit)) for digit in row) or "0", 2) for row in vectors]
    assert numbers == list(range(k))


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
def test_logits_by_hand(bias):
    """Glimpse, residual layers and scores as the paper writes them, for one query at a time."""
    env = TSPEnv(generator_params={"num_loc": 5}, seed=1)
    settings = {"out_bias_pointer_attn": bias, "linear_bias_decoder": bias}
    policy = PolyNetPolicy(k=3, **SMALL, **settings).eval()
    decoder, td = policy.decoder, env.reset(batch_size=2)
    td = env.step(td.update({"action": torch.tensor([1, 4])}))["next"]
    hidden, _ = policy.encoder(td)
    state = {key: value.unsqueeze(1).expand(2, 3, *value.shape[1:]) for key, value in td.items()}
    cache = decoder.prepare(hidden, state)
    state = {**state, **decoder.start_memory(state, cache)}
    logits = decoder(state, cache)
    project, context = decoder.project_node_embeddings, decoder.context_embedding
    for b in range(2):
        key, value, logit_key = project(hidden[b]).chunk(3, -1)  # [N, D] each
        node = hidden[b, td["current_node"][b]]
        query = context.project_context(torch.cat([node, node]))
        allowed = td["action_mask"][b]
        heads = []
        for head in range(2):
            part = slice(8 * head, 8 * head + 8)
            score = key[:, part] @ query[part] / math.sqrt(8)
            score[~allowed] = -torch.inf
            heads.append(score.softmax(0) @ value[:, part])
        glimpse = decoder.pointer.project_out(torch.cat(heads))
        for s, digits in enumerate([(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)]):
            layer = decoder.poly_layer_1(torch.cat([glimpse, torch.tensor(digits)])).relu()
            expected = logit_key @ (glimpse + decoder.poly_layer_2(layer)) / math.sqrt(16)
            torch.testing.assert_close(logits[b, s], expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_solutions_follow_strategies_in_turn(env):
    """Solution s is the greedy one of strategy s modulo k, as asked for one by one."""
    torch.manual_seed(0)
    policy, td = PolyNetPolicy(k=3, env_name=env.name, **SMALL).eval(), env.reset(batch_size=4)
    # Louder strategies, so that they lead to different solutions.
    policy.decoder.poly_layer_1.weight[:, 16:].mul_(30.0)
    policy.decoder.poly_layer_2.weight.mul_(30.0)
    out = policy(td, env, decode_type="greedy", num_samples=4)
    reward = unbatchify(out["reward"], 4)  # [B, S]
    for s in range(4):
        chosen = td.copy().update({"strategy": torch.full((4,), s % 3)})
        alone = policy(chosen, env, decode_type="greedy")
        torch.testing.assert_close(alone["reward"], reward[:, s])
    assert torch.equal(reward[:, 0], reward[:, 3])
    assert not torch.equal(reward[:, 0], reward[:, 1])


def test_given_strategies_are_replayed(env):
    """Likelihoods of strategy 2, chosen per instance, are those of the third of k solutions."""
    policy, td = PolyNetPolicy(k=4, env_name=env.name, **SMALL), env.reset(batch_size=3)
    with torch.no_grad():
        out = policy(td, env, decode_type="sampling", num_samples=4)
    rows = slice(6, 9)  # solution 2 of all three instances
    chosen = td.copy().update({"strategy": torch.full((3,), 2)})
    again = policy.evaluate(chosen, out["actions"][rows], env)["log_likelihood"]
    torch.testing.assert_close(again, out["log_likelihood"][rows], atol=1e-5, rtol=1e-5)
    first = policy.evaluate(td, out["actions"][rows], env)["log_likelihood"]
    assert not torch.allclose(first, again, atol=1e-4)


def test_decoding_from_what_is_encoded(env, monkeypatch):
    """`hidden` of an earlier call spares the encoder, and nothing else changes."""
    policy, td = PolyNetPolicy(k=4, env_name=env.name, **SMALL), env.reset(batch_size=3)
    out = policy(td, env, decode_type="greedy", return_hidden=True)
    monkeypatch.setattr(policy.encoder, "forward", None)
    again = policy(td, env, decode_type="greedy", hidden=out["hidden"])
    assert torch.equal(again["actions"], out["actions"])
    assert torch.equal(again["log_likelihood"], out["log_likelihood"])
    with pytest.raises(ConfigError, match="return_init_embeds"):
        policy(td, env, hidden=out["hidden"], return_init_embeds=True)


# ---------------------------------------------------------------- the loss


def test_best_of_advantage_by_hand():
    """(1, 4, 1) has mean 2 and best 4 at 1; (-6, -2, -1) mean -3 and best -1 at 2; ties: first."""
    reward = torch.tensor([[1.0, 4.0, 1.0], [-6.0, -2.0, -1.0], [5.0, 5.0, 5.0]])
    advantage, best = best_of_advantage(reward.requires_grad_())
    assert advantage.tolist() == [2.0, 2.0, 0.0]
    assert best.tolist() == [1, 2, 0]
    assert not advantage.requires_grad


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_best_of_advantage_needs_several_solutions(shape):
    with pytest.raises(ConfigError, match="at least two solutions"):
        best_of_advantage(torch.zeros(shape))


@pytest.mark.numerical
def test_loss_is_that_of_the_best(env):
    """All k solutions with gradients, and all but the best masked: the same loss and gradients."""
    model = make_model(env)
    batch = env.generate(4)
    out = model.shared_step(batch, 0, "train")
    out["loss"].backward()
    twin = copy.deepcopy(model.policy)
    twin.zero_grad()
    found = twin(
        env.reset(batch), env, phase="train", num_samples=5, rng=model.action_rng("train", 0)
    )
    reward, likelihood = (unbatchify(found[key], 5) for key in ("reward", "log_likelihood"))
    loss = 0.0
    for b in range(4):
        s = int(reward[b].argmax())
        loss = loss - (reward[b, s] - reward[b].mean()) * likelihood[b, s] / 4
    loss.backward()
    assert out["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
    assert float(out["max_reward"]) == pytest.approx(float(reward.amax(1).mean()), abs=1e-5)
    assert float(out["bl_val"]) == pytest.approx(float(reward.mean()), abs=1e-5)
    assert_same_gradients(model.policy, twin)


def test_one_strategy_cannot_learn(env):
    """There is nothing to compare its solution with; solving is fine."""
    model = make_model(env, k=1)
    with pytest.raises(ConfigError, match="at least two solutions"):
        model.shared_step(env.generate(2), 0, "train")
    with torch.no_grad():
        assert float(model.shared_step(env.generate(2), 0, "val")["reward"]) < 0


def test_reward_scale_applies(env):
    losses = []
    for scale in (None, 4.0):
        model = make_model(env, reward_scale=scale)
        batch = env.generator(4, rng=torch.Generator().manual_seed(0))
        losses.append(float(model.shared_step(batch, 0, "train")["loss"].detach()))
    assert losses[0] == pytest.approx(4 * losses[1], rel=1e-4)


# ---------------------------------------------------------------- validation


class Numbered(nn.Module):
    """Rewards that tell copy, instance and solution: 100 a + 10 b + s, negated for odd b."""

    k, val_decode_type, test_decode_type = 4, "sampling", "sampling"

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, td, env, num_samples, **kwargs):
        copy, self.calls = self.calls, self.calls + 1
        solution = torch.arange(num_samples).repeat_interleave(len(td["locs"]))
        instance = torch.arange(len(td["locs"])).repeat(num_samples)
        value = (100 * copy + 10 * instance + solution).float()
        return {"reward": torch.where(instance % 2 == 1, -value, value)}


def test_metrics_by_hand():
    """Two instances, two copies, three solutions.

    b = 0: copy 0 (0, 1, 2), copy 1 (100, 101, 102). b = 1: copy 0 (-10, -11, -12), copy 1
    (-110, -111, -112). Best of the original: 2 and -10, mean -4. Best of all: 102 and -10, mean 46.
    Mean of all: (1 + 101 - 11 - 111) / 4 = -5.
    """
    env = TSPEnv(generator_params={"num_loc": 4})
    settings = {"k": 4, "val_num_solutions": 3, "num_augment": 2}
    out = PolyNet(env, Numbered(), **settings).shared_step(env.generate(2), 0, "test")
    assert float(out["max_reward"]) == -4.0
    assert float(out["max_aug_reward"]) == 46.0
    assert float(out["reward"]) == -5.0
    # Without the original the best of both copies count alike: (2 + 102) / 2 and (-10 - 110) / 2.
    model = PolyNet(env, Numbered(), first_aug_identity=False, **settings)
    assert float(model.shared_step(env.generate(2), 0, "val")["max_reward"]) == -4.0


@torch.no_grad()
def test_validation_draws_many_solutions(env):
    """More than strategies, reproducibly; without augmentation the best of all is the best."""
    model, batch = make_model(env, num_augment=1, val_num_solutions=12).eval(), env.generate(3)
    out, again = (model.shared_step(batch, 0, "val") for _ in range(2))
    assert float(out["max_reward"]) == float(out["max_aug_reward"]) == float(again["max_reward"])
    assert float(out["max_reward"]) > float(out["reward"])
    fewer = make_model(env, num_augment=1, val_num_solutions=1).eval()
    assert float(fewer.shared_step(batch, 0, "val")["max_reward"]) < float(out["max_reward"])


# ---------------------------------------------------------------- starting from a trained model


@torch.no_grad()
@pytest.mark.parametrize("kind", [POMO, AttentionModel])
@pytest.mark.parametrize("how", ["checkpoint", "folder"])
def test_start_from_a_base_model(env, kind, how, tmp_path):
    """Settings and weights are taken over; every strategy begins as the base."""
    base = kind(env, policy_kwargs=TINY).eval()
    path = save(base, tmp_path / "base.ckpt") if how == "checkpoint" else tmp_path / "policy"
    if how == "folder":
        base.policy.save_pretrained(path)
    model = PolyNet(env, k=4, base_model_checkpoint_path=path, seed=1).eval()
    td = env.reset(batch_size=5)
    expected = base.policy(td, env, decode_type="greedy")
    out = model.policy(td, env, decode_type="greedy", num_samples=4)
    for s in range(4):
        rows = slice(5 * s, 5 * s + 5)
        torch.testing.assert_close(out["reward"][rows], expected["reward"])
        torch.testing.assert_close(
            out["log_likelihood"][rows], expected["log_likelihood"], atol=1e-5, rtol=1e-5
        )
    with torch.enable_grad():
        model.train().shared_step(env.generate(8), 0, "train")["loss"].backward()
    assert bool(model.policy.decoder.poly_layer_2.weight.grad.any()), "strategies can come apart"


def test_checkpoint_does_not_need_the_base(tmp_path):
    """A model that started from a file is loaded when that file is gone."""
    env = TSPEnv(generator_params={"num_loc": 6}, seed=1)
    base = save(POMO(env, policy_kwargs=TINY), tmp_path / "base.ckpt")
    model = PolyNet(env, k=4, base_model_checkpoint_path=base, val_num_solutions=3)
    with torch.no_grad():
        model.policy.decoder.poly_layer_2.bias.add_(1.0)
    path = save(model, tmp_path / "poly.ckpt")
    base.unlink()
    loaded = PolyNet.load_from_checkpoint(path)
    assert (loaded.k, loaded.val_num_solutions) == (4, 3)
    assert len(loaded.policy.encoder.net.layers) == 1
    batch = env.generate(3)
    with torch.no_grad():
        outs = [m.eval().shared_step(batch, 0, "val") for m in (model, loaded)]
    assert float(outs[0]["max_reward"]) == float(outs[1]["max_reward"])


def test_bases_that_do_not_fit(tmp_path):
    env = TSPEnv(generator_params={"num_loc": 6})
    with pytest.raises(UnsupportedError, match="of an Attention Model or of POMO"):
        PolyNetPolicy.from_base(PointerNetworkPolicy(embed_dim=8))
    with pytest.raises(UnsupportedError, match="of an Attention Model or of POMO"):
        PolyNetPolicy.from_base(PolyNetPolicy(k=2, **SMALL))
    with pytest.raises(ConfigError, match="fit the weights"):
        PolyNetPolicy.from_base(AttentionModelPolicy(**TINY), k=2, embed_dim=8)
    path = save(POMO(env, policy_kwargs=TINY), tmp_path / "base.ckpt")
    cvrp = CVRPEnv(generator_params={"num_loc": 6})
    with pytest.raises(ConfigError, match="for cvrp, got one for tsp"):
        PolyNet(cvrp, k=4, base_model_checkpoint_path=path)
    with pytest.raises(ConfigError, match="got both"):
        PolyNet(env, PolyNetPolicy(k=4, **SMALL), k=4, base_model_checkpoint_path=path)
    with pytest.raises(FileNotFoundError):
        PolyNet(env, k=4, base_model_checkpoint_path=tmp_path / "none.ckpt")


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "expected k"),
        ({"k": -3}, "of at least 1, got -3"),
        ({"val_num_solutions": 0}, "of at least 1"),
        ({"num_augment": 0}, "of at least 1"),
        ({"baseline": "rollout"}, "'shared' for PolyNet"),
        ({"policy_kwargs": {**SMALL, "val_decode_type": "greedy"}}, "at most k=128"),
        ({"policy_kwargs": {**SMALL, "k": 3}}, "expected k=3"),
    ],
    ids=str,
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        PolyNet(TSPEnv(), **{"policy_kwargs": SMALL, **settings})


def test_bad_policies():
    env = TSPEnv()
    with pytest.raises(ConfigError, match="expected k"):
        PolyNetPolicy(k=0)
    with pytest.raises(UnsupportedError, match="no strategies"):
        PolyNet(env, AttentionModelPolicy(**TINY))
    with pytest.raises(UnknownNameError, match="did you mean 'MatNet'"):
        PolyNet(env, encoder_type="matnet")
    with pytest.raises(UnsupportedError, match="experts"):
        PolyNetPolicy(**SMALL, moe_kwargs={"encoder": {}})


def test_matnet_encoder():
    """Replaces the encoder of a problem given by a matrix; contexts are rows, keys are columns."""
    env = ATSPEnv(generator_params={"num_loc": 6}, seed=1)
    torch.manual_seed(0)
    model = make_model(env, encoder_type="MatNet")
    out = model.shared_step(env.generate(4), 0, "train")
    out["loss"].backward()
    decoder, td = model.policy.decoder, env.reset(batch_size=2)
    rows, columns = model.policy.encoder(td)[0]
    state = {key: value.unsqueeze(1) for key, value in td.items()}
    cache = decoder.prepare((rows, columns), state)
    same = decoder.prepare(columns, state)
    assert torch.equal(cache.glimpse_key, same.glimpse_key)
    contexts = (cache.context, decoder.prepare(rows, state).context)
    for ours, theirs in zip(*map(tree_leaves, contexts), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(UnsupportedError, match="by a matrix"):
        PolyNet(TSPEnv(), encoder_type="MatNet")
    with pytest.raises(ConfigError, match="attention_bias"):
        PolyNetPolicy(env_name="atsp", encoder_type="MatNet", attention_bias=True)


def test_greedy_validation():
    """One solution per strategy, up to k of them."""
    env = TSPEnv(generator_params={"num_loc": 6}, seed=1)
    policy = PolyNetPolicy(k=4, **SMALL, val_decode_type="greedy", test_decode_type="greedy")
    model = PolyNet(env, policy, k=4, val_num_solutions=4).eval()
    with torch.no_grad():
        assert float(model.shared_step(env.generate(2), 0, "val")["reward"]) < 0


def test_defaults():
    """Those of the paper; no augmentation where there are no coordinates."""
    model = PolyNet(TSPEnv())
    assert (model.k, model.val_num_solutions, model.augment.num_augment) == (128, 800, 8)
    assert model.policy.decoder.poly_layer_1.in_features == 128 + 7
    assert len(model.policy.encoder.net.layers) == 6
    assert make_model(ATSPEnv(generator_params={"num_loc": 6})).augment is None


# ---------------------------------------------------------------- learning


@pytest.mark.learning
def test_training_improves_and_strategies_differ(require):
    """Eight strategies get better, and the first is not the best of them everywhere."""
    torch.manual_seed(0)
    env = TSPEnv(generator_params={"num_loc": 10})
    settings = {**SMALL, "embed_dim": 32, "num_heads": 4, "poly_layer_dim": 32}
    model = PolyNet(env, k=8, policy_kwargs=settings, seed=2)
    ratio = cost_ratio(model, lambda: train_steps(model, 80, 64, 3e-3), num_samples=8)
    require("cost after / before", ratio, below=0.9)
    held_out = env.reset(env.generator(256, rng=derive_generator("held out")))

    @torch.no_grad()
    def best_of_eight(state) -> Tensor:
        out = model.policy(state, env, decode_type="greedy", num_samples=8)
        return unbatchify(out["reward"], 8).amax(1)

    one = held_out.copy().update({"strategy": torch.zeros(256, dtype=torch.int64)})
    better = best_of_eight(held_out) > best_of_eight(one) + 1e-4
    require("share of instances that other strategies solve better", float(better.float().mean()),
            above=0.03)  # fmt: skip
