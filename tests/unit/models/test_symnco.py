"""Sym-NCO: its three losses by hand, the pairing of copies, metrics, and learning."""

from __future__ import annotations

import math

from typing import Any

import pytest
import torch

from torch import nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.ops import unbatchify
from rl4co.core.rng import derive_generator
from rl4co.data.augment import StateAugmentation
from rl4co.envs import ATSPEnv, CVRPEnv, TSPEnv
from rl4co.models import SymNCO, SymNCOPolicy
from rl4co.models.rl.losses import invariance_loss, shared_advantage
from tests.learning import cost_ratio, train_steps

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


@pytest.fixture(params=["tsp", "cvrp"])
def env(request):
    cls = {"tsp": TSPEnv, "cvrp": CVRPEnv}[request.param]
    return cls(generator_params={"num_loc": 6}, seed=11)


class FixedPolicy(nn.Module):
    """Returns given outputs, and remembers how it was called."""

    def __init__(self, **outputs: torch.Tensor) -> None:
        super().__init__()
        self.outputs = nn.ParameterDict(outputs)
        self.calls: list[dict[str, Any]] = []

    def forward(self, td, env, **kwargs):
        self.calls.append({"locs": td["locs"], **kwargs})
        out = {key: value + 0.0 for key, value in self.outputs.items()}
        return {**out, "reward": out["reward"].detach()}


# ---------------------------------------------------------------- losses by hand


def test_shared_advantage_by_hand():
    """One instance, copies (1, 5) and (6, 8): mean of all 5, means of the copies 3 and 7."""
    reward = torch.tensor([[[1.0, 5.0], [6.0, 8.0]]], requires_grad=True)  # [B, A, S]
    assert shared_advantage(reward, (1, 2)).tolist() == [[[-4.0, 0.0], [1.0, 3.0]]]
    assert shared_advantage(reward, 2).tolist() == [[[-2.0, 2.0], [-1.0, 1.0]]]
    assert not shared_advantage(reward, 2).requires_grad


def test_invariance_loss_by_hand():
    """Two instances of one node, three copies each, in the plane.

    First: (1, 0) against (3, 0) and (0, 2): cosines 1 and 0. Second: (0, 1) against (0, -2) and
    (1, 1): cosines -1 and 1 / sqrt 2. Mean (1 + 0 - 1 + 0.7071) / 4 = 0.17678.
    """
    projected = torch.tensor(
        [[[[1.0, 0.0]], [[3.0, 0.0]], [[0.0, 2.0]]], [[[0.0, 1.0]], [[0.0, -2.0]], [[1.0, 1.0]]]]
    )  # [B, A, N, D] = [2, 3, 1, 2]
    assert float(invariance_loss(projected)) == pytest.approx(-math.sqrt(0.5) / 4)


def test_invariance_loss_makes_copies_alike():
    """Descending its gradient raises the similarity; copies that are alike have loss -1."""
    torch.manual_seed(0)
    projected = torch.randn(3, 4, 5, 6, requires_grad=True)
    before = invariance_loss(projected)
    (gradient,) = torch.autograd.grad(before, projected)
    projected = projected.detach()
    assert invariance_loss(projected - 10.0 * gradient) < before
    alike = projected[:, :1].expand_as(projected)
    assert float(invariance_loss(alike)) == pytest.approx(-1.0)


@pytest.mark.parametrize("shape", [(3, 1, 5, 6), (12, 5, 6)])
def test_invariance_loss_needs_copies(shape):
    with pytest.raises(ConfigError, match="at least two copies"):
        invariance_loss(torch.zeros(shape))


def test_loss_by_hand():
    """Rows (s * A + a) * B + b of two instances, two copies, two starts.

    Rewards of b = 0: copies (1, 5) and (6, 8) as above; of b = 1: all 2, so no advantage.
    Log-likelihoods of b = 0: copies (.1, .2) and (.3, .4).
    L_ps = -(-4 * .1 + 0 * .2 + 1 * .3 + 3 * .4) / 8 = -1.1 / 8
    L_ss = -(-2 * .1 + 2 * .2 - 1 * .3 + 1 * .4) / 8 = -0.3 / 8
    L_inv: nodes of b = 0 are (1, 0) and (1, 0), cosine 1; those of b = 1 are (0, 2) and (1, 1),
    cosine sqrt 0.5. Pairs of different instances would have cosines 0 and sqrt 0.5.
    """
    env = TSPEnv(generator_params={"num_loc": 3})
    reward = torch.tensor([1.0, 2.0, 6.0, 2.0, 5.0, 2.0, 8.0, 2.0])
    log_likelihood = torch.tensor([0.1, 9.0, 0.3, 9.0, 0.2, 9.0, 0.4, 9.0])
    nodes = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 1.0]])  # rows a * B + b
    policy = FixedPolicy(
        reward=reward,
        log_likelihood=log_likelihood,
        proj_embeddings=nodes.unsqueeze(1).expand(4, 3, 2).clone(),
    )
    model = SymNCO(env, policy, num_augment=2, num_starts=2, alpha=0.5, beta=3.0)
    out = model.shared_step(env.generate(2), 0, "train")
    assert out["loss_ps"].item() == pytest.approx(-1.1 / 8)
    assert out["loss_ss"].item() == pytest.approx(-0.3 / 8)
    similarity = (1 + math.sqrt(0.5)) / 2
    assert out["loss_inv"].item() == pytest.approx(-similarity)
    assert out["loss"].item() == pytest.approx(-1.1 / 8 - 3 * 0.3 / 8 - 0.5 * similarity)
    (call,) = policy.calls
    assert call["num_starts"] == 2
    out["loss"].backward()
    # -(A_ps + 3 A_ss) / 8 for each solution of instance 0, nothing for instance 1.
    expected = -torch.tensor([-10.0, 0.0, -2.0, 0.0, 6.0, 0.0, 6.0, 0.0]) / 8
    torch.testing.assert_close(policy.outputs["log_likelihood"].grad, expected)


def test_copies_of_the_same_instance_are_paired(env):
    """Row a * B + b of the projections is copy a of instance b; the others change nothing."""
    model = SymNCO(env, policy_kwargs=TINY, num_augment=3, seed=1).eval()
    batch = env.generate(4)
    out = model.shared_step(batch, 0, "train")
    copies = model._augmentation("train", 0)(env.reset(batch))
    projected = model.policy.projection_head(model.policy.encoder(copies)[0])  # [A * B, N, D]
    cosines = [
        torch.nn.functional.cosine_similarity(projected[b, n], projected[a * 4 + b, n], dim=0)
        for a in (1, 2)
        for b in range(4)
        for n in range(projected.shape[1])
    ]
    assert float(out["loss_inv"].detach()) == pytest.approx(
        -float(torch.stack(cosines).mean().detach()), abs=1e-5
    )


@pytest.mark.parametrize(
    ("settings", "present"),
    [
        ({"num_starts": 0}, ("loss_ps", "loss_inv")),
        ({"num_starts": 1}, ("loss_ps", "loss_inv")),
        ({"num_starts": 3}, ("loss_ps", "loss_ss", "loss_inv")),
        ({"num_augment": 1, "num_starts": 3}, ("loss_ss",)),
        ({"num_augment": 1, "num_starts": None}, ("loss_ss",)),
        ({"alpha": 0.0}, ("loss_ps",)),
    ],
    ids=str,
)
def test_terms_of_the_loss(env, settings, present):
    """Each is there when there is something to compare, and their sum is the loss."""
    model = SymNCO(env, policy_kwargs=TINY, seed=1, beta=2.0, **settings)
    out = model.shared_step(env.generate(4), 0, "train")
    terms = {"loss_ps": 1.0, "loss_ss": 2.0, "loss_inv": model.alpha}
    assert {name for name in terms if float(out[name].detach()) != 0} == set(present)
    total = sum(weight * float(out[name].detach()) for name, weight in terms.items())
    assert float(out["loss"].detach()) == pytest.approx(total, abs=1e-6)


def test_gradients_reach_everything(env):
    """The projection head by the invariance loss alone, the decoder by the others."""
    model = SymNCO(env, policy_kwargs=TINY, num_starts=0, seed=1)
    model.shared_step(env.generate(4), 0, "train")["loss"].backward()
    assert all(bool(p.grad.any()) for p in model.policy.parameters())
    still = SymNCO(env, policy_kwargs=TINY, alpha=0.0, seed=1)
    still.shared_step(env.generate(4), 0, "train")["loss"].backward()
    assert all(p.grad is None for p in still.policy.projection_head.parameters())


def test_reward_scale_applies(env):
    """Half the advantage, half the loss."""
    losses = []
    for scale in (None, 2.0):
        torch.manual_seed(0)
        model = SymNCO(env, policy_kwargs=TINY, num_starts=2, reward_scale=scale, seed=1)
        out = model.shared_step(env.generator(4, rng=torch.Generator().manual_seed(1)), 0, "train")
        losses.append([float(out[name].detach()) for name in ("loss_ps", "loss_ss")])
    assert losses[0] == pytest.approx([2 * loss for loss in losses[1]], rel=1e-4)


# ---------------------------------------------------------------- copies and metrics


def test_copies_are_symmetric_and_repeat(env):
    """The first copy is the instance; the others keep all distances; the seed decides."""
    model, td = SymNCO(env, policy_kwargs=TINY, seed=7), env.reset(batch_size=3)
    locs = unbatchify(model._augmentation("train", 0)(td)["locs"], 4)  # [B, A, N, 2]
    assert torch.equal(locs[:, 0], td["locs"])
    for a in range(1, 4):
        torch.testing.assert_close(
            torch.cdist(locs[:, a], locs[:, a]), torch.cdist(td["locs"], td["locs"]),
            atol=1e-4, rtol=1e-4,
        )  # fmt: skip
        assert not torch.allclose(locs[:, a], td["locs"], atol=1e-2)
    again = model._augmentation("train", 0)(td)["locs"]
    other = model._augmentation("train", 1)(td)["locs"]
    assert torch.equal(unbatchify(again, 4), locs)
    assert not torch.allclose(unbatchify(other, 4), locs, atol=1e-2)


@torch.no_grad()
def test_validation_by_brute_force(env):
    """The same greedy solutions, one copy at a time."""
    model, batch = SymNCO(env, policy_kwargs=TINY, seed=3).eval(), env.generate(5)
    out = model.shared_step(batch, 0, "val")
    copies = model._augmentation("val", 0)(env.reset(batch))
    rewards = torch.stack(
        [model.policy(copies[a * 5 : (a + 1) * 5], env, phase="val")["reward"] for a in range(4)]
    )  # [A, B]
    assert float(out["max_reward"]) == pytest.approx(float(rewards[0].mean()), abs=1e-5)
    assert float(out["max_aug_reward"]) == pytest.approx(float(rewards.amax(0).mean()), abs=1e-5)
    assert float(out["reward"]) == pytest.approx(float(rewards.mean()), abs=1e-5)


# ---------------------------------------------------------------- policy


def test_policy_projects_encoded_nodes():
    """Not the init embeddings, in which no symmetry can show; in training only."""
    env = TSPEnv(generator_params={"num_loc": 5}, seed=1)
    policy, td = SymNCOPolicy(**TINY).eval(), env.reset(batch_size=3)
    out = policy(td, env, phase="train", return_hidden=True)
    hidden = policy.encoder(td)[0]
    first, _, second = policy.projection_head
    expected = (hidden @ first.weight.T + first.bias).relu() @ second.weight.T + second.bias
    torch.testing.assert_close(out["proj_embeddings"], expected)
    torch.testing.assert_close(out["hidden"], hidden)
    assert "hidden" not in policy(td, env, phase="train")
    assert "proj_embeddings" not in policy(td, env, phase="val")


def test_own_projection_head_or_none():
    env = TSPEnv(generator_params={"num_loc": 5}, seed=1)
    td = env.reset(batch_size=3)
    head = nn.Linear(16, 3)
    policy = SymNCOPolicy(**TINY, projection_head=head).eval()
    assert policy(td, env)["proj_embeddings"].shape == (3, 5, 3)
    bare = SymNCOPolicy(**TINY, use_projection_head=False).eval()
    out = bare(td, env, return_hidden=True)
    assert torch.equal(out["proj_embeddings"], out["hidden"])


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_augment": 0}, "num_augment"),
        ({"num_augment": -1}, "num_augment"),
        ({"num_starts": -1}, "num_starts"),
        ({"num_augment": 1}, "several copies or starts"),
        ({"num_augment": 1, "num_starts": 1}, "several copies or starts"),
        ({"baseline": "rollout"}, "'symnco' for SymNCO, got 'rollout'"),
        ({"augment_fn": "dihedral8", "num_augment": 9}, "1 to 8"),
    ],
    ids=str,
)
def test_bad_settings(env, settings, message):
    with pytest.raises(ConfigError, match=message):
        SymNCO(env, policy_kwargs=TINY, **settings)


def test_more_starts_than_nodes(env):
    model = SymNCO(env, policy_kwargs=TINY, num_starts=50)
    with pytest.raises(ConfigError, match="1 to 6 starts"):
        model.shared_step(env.generate(2), 0, "train")


def test_problems_without_coordinates():
    """At once for a problem that has none, in the step for an instance that has none."""
    with pytest.raises(UnsupportedError, match="none to rotate"):
        SymNCO(ATSPEnv(generator_params={"num_loc": 6}), policy_kwargs=TINY)
    assert not SymNCO.supports("atsp")
    env = TSPEnv(generator_params={"num_loc": 6})
    batch = env.generate(2)
    matrix = batch.exclude("locs").set("cost_matrix", torch.cdist(batch["locs"], batch["locs"]))
    with pytest.raises(UnsupportedError, match="an instance given by a matrix"):
        SymNCO(env, policy_kwargs=TINY).shared_step(matrix, 0, "train")


def test_only_supported_problems_are_suggested():
    """Every problem that the error lists has coordinates; the matrix problem is not among them."""
    with pytest.raises(UnsupportedError, match=r"expected one of cvrp, .* got 'atsp'"):
        SymNCO(ATSPEnv(generator_params={"num_loc": 6}), num_augment=1, num_starts=3)


def test_checkpoint(env, tmp_path):
    """The model comes back with its settings and the same solutions."""
    model = SymNCO(env, policy_kwargs=TINY, num_augment=3, alpha=0.7, num_starts=2)
    checkpoint = {"state_dict": model.state_dict(), "pytorch-lightning_version": "2"}
    model.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "last.ckpt")
    loaded = SymNCO.load_from_checkpoint(tmp_path / "last.ckpt")
    assert (loaded.num_augment, loaded.alpha, loaded.num_starts) == (3, 0.7, 2)
    assert loaded.run_seed == model.run_seed
    batch = env.generate(3)
    with torch.no_grad():
        expected = model.eval().shared_step(batch, 0, "val")
        out = loaded.shared_step(batch, 0, "val")
    assert {k: float(v) for k, v in out.items()} == {k: float(v) for k, v in expected.items()}


# ---------------------------------------------------------------- learning


@pytest.mark.learning
def test_training_improves(require):
    """Shorter tours, and embeddings that are more alike than before."""
    torch.manual_seed(0)
    env = TSPEnv(generator_params={"num_loc": 10})
    settings = {**TINY, "embed_dim": 32, "num_heads": 4, "normalization": "instance"}
    model = SymNCO(env, policy_kwargs=settings, seed=2)
    held_out = env.reset(env.generator(128, rng=derive_generator("held out")))
    rotated = StateAugmentation(4, rng=torch.Generator().manual_seed(0))(held_out)

    @torch.no_grad()
    def similarity() -> float:
        projected = model.policy.projection_head(model.policy.encoder(rotated)[0])
        return -float(invariance_loss(unbatchify(projected, 4)))

    unlike = similarity()
    ratio = cost_ratio(model, lambda: train_steps(model, 50, 32, 2e-3))
    require("cost after / before", ratio, below=0.9)
    require("gain of similarity", similarity() - unlike, above=0.0)
