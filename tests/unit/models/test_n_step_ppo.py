"""n_step_PPO: losses by hand, curriculum, segments against the environment, resuming, learning."""

from __future__ import annotations

import copy

from typing import Any

import pytest
import torch

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.envs import PDPRuinRepairEnv, TSPkoptEnv
from rl4co.models import DACT, N2S, AttentionModelPolicy, NeuOpt, n_step_PPO
from rl4co.models.nn.value import SolutionCritic
from rl4co.models.rl.curriculum import Curriculum
from rl4co.models.rl.losses import clipped_value_loss, n_step_returns
from tests.learning import paired_t
from tests.trainers import fit

TINY = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}
SIZES = {"batch_size": 4, "train_data_size": 12, "val_data_size": 4, "test_data_size": 4}
STEPS = {"n_step": 2, "T_train": 4, "T_test": 3}


def make_model(cls: Any = DACT, size: int = 6, **options: Any) -> Any:
    torch.manual_seed(0)
    env_cls = PDPRuinRepairEnv if cls is N2S else TSPkoptEnv
    env = env_cls(generator_params={"num_loc": size}, **cls.env_params)
    if "policy" not in options:
        options.setdefault("policy_kwargs", TINY)
    return cls(env, **{**SIZES, **STEPS, "seed": 5, **options})


# ---------------------------------------------------------------- losses


def test_returns_by_hand():
    """With discount 1/2: R_1 = 3 + 8/2 = 7, R_0 = 1 + 7/2 = 4.5; and 2 + 0/2 = 2, 0 + 2/2 = 1."""
    returns = n_step_returns(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([8.0, 0.0]), 0.5)
    torch.testing.assert_close(returns, torch.tensor([[4.5, 1.0], [7.0, 2.0]]))
    with pytest.raises(ConfigError, match="same shape"):
        n_step_returns(torch.zeros(2, 3), torch.zeros(3, 1), 0.5)


def test_clipped_value_loss_by_hand():
    """Old 0, clip 0.1, target 1: value 0.05 costs 0.95², value 0.5 as if it were 0.1: 0.9².

    A value beyond the target is not excused: -1 costs 2² rather than 1.1².
    """
    value = torch.tensor([0.05, 0.5, -1.0], requires_grad=True)
    loss = clipped_value_loss(value, torch.ones(3), torch.zeros(3), 0.1)
    assert float(loss.detach()) == pytest.approx((0.95**2 + 0.9**2 + 2.0**2) / 3)
    loss.backward()
    # The clipped one does not pull any more.
    expected = torch.tensor([-2 * 0.95, 0.0, -2 * 2.0]) / 3
    torch.testing.assert_close(value.grad, expected)


# ---------------------------------------------------------------- curriculum


def test_curriculum():
    """One move more every two epochs; nearly linear from 0 to 0.25 * 200 along the sigmoid."""
    assert [Curriculum("linear", 2.0).steps(e) for e in (0, 1, 2, 5, 199)] == [0, 0, 1, 2, 99]
    assert [Curriculum("linear", 0.25).steps(e) for e in (0, 1, 3)] == [0, 4, 12]
    sigmoid = [Curriculum("sigmoid", 0.25, 200).steps(e) for e in range(201)]
    assert (sigmoid[0], sigmoid[100], sigmoid[200]) == (0, 25, 50)
    assert sigmoid == sorted(sigmoid)
    assert {Curriculum("none").steps(e) for e in range(9)} == {0}
    with pytest.raises(UnknownNameError, match="no curriculum 'liner'; did you mean 'linear'"):
        Curriculum("liner")
    with pytest.raises(ConfigError, match="positive CL_scalar"):
        Curriculum("linear", 0.0)


@pytest.mark.parametrize("best", [True, False])
def test_warm_up(best: bool):
    """The best cost is that of the solution with which training begins, whatever was met before."""
    model = make_model(CL_best=best)
    state = dict(model.env.reset(batch_size=8, rng=derive_generator(0)).items())
    warm = model.warm_up(state, 10, derive_generator(1))
    assert torch.equal(warm["cost_bsf"], warm["cost_current"])
    assert torch.equal(warm["rec_best"], warm["rec_current"])
    assert bool((warm["i"] == 10).all())
    final = model.improve(state, 10, derive_generator(1), "train")
    expected = final["cost_bsf"] if best else final["cost_current"]
    assert torch.equal(warm["cost_current"], expected)
    assert not torch.equal(final["cost_bsf"], final["cost_current"])


# ---------------------------------------------------------------- segments


@pytest.mark.parametrize("cls", [DACT, N2S, NeuOpt])
def test_replay_is_step_by_step(cls):
    """Log-probabilities and values of all states at once are those of the single steps."""
    model = make_model(cls)
    model.policy.eval()
    td = model.env.reset(batch_size=3, rng=derive_generator(0))
    segment, final = model.roll_out(dict(td.items()), derive_generator(1))
    replayed = model.replay(segment)
    actions = segment.actions.unflatten(0, (model.n_step, 3))
    for step in range(model.n_step):
        out = model.policy(td, model.env, actions=actions[step], return_value=True)
        torch.testing.assert_close(replayed.log_prob[step], out["log_likelihood"])
        torch.testing.assert_close(replayed.value[step], out["value"])
        before = td["cost_bsf"]
        td = model.env.step(td.set("action", actions[step]))["next"]
        torch.testing.assert_close(segment.reward[step], before - td["cost_bsf"])
    assert torch.equal(td["rec_current"], final["rec_current"])
    torch.testing.assert_close(model.bootstrap(segment), model.policy.value(td))


def test_the_first_inner_epoch_is_on_policy():
    """Ratio one, also with dropout; nothing of the value loss is clipped."""
    model = make_model()
    state = dict(model.env.reset(batch_size=3, rng=derive_generator(0)).items())
    segment, _ = model.roll_out(state, derive_generator(1))
    replayed = model.replay(segment)
    out = model.calculate_loss(segment, replayed)
    returns = n_step_returns(segment.reward, model.bootstrap(segment), model.gamma)
    assert float(out["approx_kl"]) == float(out["clip_fraction"]) == 0.0
    model.policy.eval()  # two looks at the bootstrap agree without dropout only
    out = model.calculate_loss(segment, replayed)
    returns = n_step_returns(segment.reward, model.bootstrap(segment), model.gamma)
    advantage = returns - replayed.value.detach()
    assert float(out["surrogate_loss"]) == pytest.approx(-float(advantage.mean()), abs=1e-5)
    assert float(out["value_loss"]) == pytest.approx(float(advantage.square().mean()), rel=1e-4)


def test_gradients_are_clipped_by_group():
    """A critic with large gradients leaves the actor's alone."""
    model = make_model(max_grad_norm=0.05)
    optimizer = torch.optim.SGD(model.trainable_parameters())
    actor, critic = optimizer.param_groups
    assert {id(p) for p in critic["params"]} == {id(p) for p in model.policy.critic.parameters()}
    assert len(actor["params"]) + len(critic["params"]) == len(list(model.parameters()))
    for group, size in ((actor, 1e-6), (critic, 1e3)):
        for parameter in group["params"]:
            parameter.grad = torch.full_like(parameter, size)
    model.on_before_optimizer_step(optimizer)
    assert all(bool((p.grad == 1e-6).all()) for p in actor["params"])
    norm = torch.stack([p.grad.norm() for p in critic["params"]]).norm()
    assert float(norm) == pytest.approx(0.05, rel=1e-4)


# ---------------------------------------------------------------- with the trainer


class Weights(Callback):
    """Remembers the warm-up and the learning rates of each epoch."""

    def __init__(self) -> None:
        self.warmup: list[float] = []
        self.rates: list[list[float]] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.warmup.append(float(trainer.callback_metrics["train/warmup_steps"]))
        self.rates.append([g["lr"] for g in trainer.optimizers[0].param_groups])


def test_training_with_the_trainer(tmp_path):
    """Weights move; actor and critic have their rates, which decay; the curriculum advances."""
    model = make_model(CL_scalar=0.5, curriculum="linear")
    before = copy.deepcopy(model.policy.state_dict())
    watch = Weights()
    trainer = fit(model, tmp_path, max_epochs=3, callbacks=[watch])
    # 3 epochs of 3 batches with 2 segments of 3 inner epochs.
    assert trainer.global_step == 3 * 3 * 2 * 3
    moved = [
        key
        for key, value in model.policy.state_dict().items()
        if not torch.equal(value, before[key])
    ]
    assert len(moved) > 0.9 * len(before)
    assert watch.warmup == [0.0, 2.0, 4.0]
    assert watch.rates[0] == pytest.approx([1e-4 * 0.985, 3e-5 * 0.985])
    assert watch.rates[2] == pytest.approx([1e-4 * 0.985**3, 3e-5 * 0.985**3])
    metrics = trainer.callback_metrics
    assert {"train/loss", "train/reward", "train/gain", "val/reward", "val/cost_bsf"} <= set(
        metrics
    )
    assert float(metrics["val/cost_bsf"]) <= float(metrics["val/cost_init"])


class Kill(Callback):
    """Ends the run at a batch, as a kill would: nothing is saved any more."""

    def __init__(self, epoch: int, batch: int) -> None:
        self.where = (epoch, batch)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if (trainer.current_epoch, batch_idx) == self.where:
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.parametrize("cls", [DACT, N2S])
def test_a_killed_run_is_bit_equal(tmp_path, cls):
    """From the checkpoint in the middle of an epoch, with dropout and a curriculum under way."""
    settings = {"CL_scalar": 0.5, "curriculum": "linear"}
    whole = make_model(cls, **settings)
    fit(whole, tmp_path / "whole", max_epochs=3)
    saving = ModelCheckpoint(tmp_path / "ckpt", save_last=True, every_n_train_steps=6)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(make_model(cls, **settings), tmp_path, max_epochs=3, callbacks=[saving, Kill(1, 2)])
    resumed = make_model(cls, **settings)
    torch.manual_seed(99)
    fit(resumed, tmp_path, tmp_path / "ckpt" / "last.ckpt", max_epochs=3)
    for (key, ours), theirs in zip(
        whole.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), key
    loaded = cls.load_from_checkpoint(tmp_path / "ckpt" / "last.ckpt")
    assert loaded.curriculum == resumed.curriculum


# ---------------------------------------------------------------- bad input


def test_bad_settings():
    for name in ("n_step", "T_train", "T_test", "ppo_epochs"):
        with pytest.raises(ConfigError, match=f"{name} to be an integer of at least 1"):
            make_model(**{name: 0})
    with pytest.raises(ConfigError, match="multiple of n_step, got 5 and 2; use 4"):
        make_model(T_train=5)
    with pytest.raises(ConfigError, match="gamma"):
        make_model(gamma=1.5)
    with pytest.raises(ConfigError, match="clip_range"):
        make_model(clip_range=0.0)
    with pytest.raises(ConfigError, match="vf_lambda"):
        make_model(vf_lambda=-1.0)
    with pytest.raises(UnknownNameError, match="no curriculum"):
        make_model(curriculum="steep")
    env = TSPkoptEnv()
    with pytest.raises(ConfigError, match="expected an ImprovementPolicy"):
        n_step_PPO(env, AttentionModelPolicy(env_name="tsp"))
    with pytest.raises(ConfigError, match="policy with a critic"):
        make_model(policy_kwargs={**TINY, "critic": False})
    with pytest.raises(UnsupportedError, match="'k_opt'"):
        NeuOpt(TSPkoptEnv(k_max=2), policy_kwargs=TINY)


def test_another_critic():
    """... replaces the policy's own, and is trained."""
    critic = SolutionCritic(32, num_heads=2)
    model = make_model(critic=critic, policy_kwargs={**TINY, "critic": False})
    assert model.policy.critic is critic
    assert {id(p) for p in model.trainable_parameters()[1]["params"]} == {
        id(p) for p in critic.parameters()
    }


# ---------------------------------------------------------------- learning

#: What a method needs to become clearly better: nodes, instances per batch, batches.
LEARNING = {DACT: (10, 64, 20), NeuOpt: (10, 64, 12), N2S: (8, 32, 32)}


def train(model: Any, batch_size: int, batches: int) -> None:
    """Batches of fresh instances, without the trainer and what it costs to start it."""
    optimizer = torch.optim.Adam(model.trainable_parameters())

    def update(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        model.on_before_optimizer_step(optimizer)
        optimizer.step()

    model.update_weights = update
    for batch in range(batches):
        rng = derive_generator("learning", batch)
        instances = model.env.generator(batch_size, rng=rng)
        model._learn(dict(model.env.reset(instances, rng=rng).items()), rng)


def best_costs(model: Any) -> Tensor:
    """Best costs `[B]` of 20 moves from fixed random solutions of fixed instances."""
    instances = model.env.generator(512, rng=derive_generator("judged"))
    state = dict(model.env.reset(instances, rng=derive_generator("first")).items())
    return model.improve(state, 20, derive_generator("moves"), "test")["cost_bsf"]


@pytest.mark.learning
@pytest.mark.parametrize("cls", LEARNING)
def test_training_improves(cls, require):
    """Costs are lower than those of the untrained policy, instance by instance."""
    size, batch_size, batches = LEARNING[cls]
    model = make_model(
        cls, size, n_step=4, T_train=16, lr_policy=1e-3, lr_critic=1e-3, gamma=0.99,
        max_grad_norm=0.2,
        policy_kwargs={"embed_dim": 32, "num_heads": 4, "num_encoder_layers": 1, "dropout": 0.0},
    )  # fmt: skip
    before = best_costs(model)
    train(model, batch_size, batches)
    gained = before - best_costs(model)
    require("t of the gain", paired_t(gained), above=2.0)
