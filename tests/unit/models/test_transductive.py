"""What all searches promise: incumbents, files, seeds, the policy left alone, Lightning."""

from __future__ import annotations

import pytest
import torch

from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError, UnsupportedError
from rl4co.envs import ATSPEnv, CVRPEnv, TSPEnv
from rl4co.models import (
    POMO,
    ActiveSearch,
    AttentionModelPolicy,
    EASEmb,
    EASLay,
    PointerNetworkPolicy,
    TransductiveModel,
)
from rl4co.models.rl import transductive
from rl4co.models.rl.search_record import SearchRecord
from rl4co.tasks.methods import SEARCHES
from rl4co.tasks.search import search
from rl4co.training.trainer import RL4COTrainer

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
METHODS = [ActiveSearch, EASEmb, EASLay]
#: Rates at which a few iterations make a difference.
FAST = {"lr": 0.02}


class NoStarts(TSPEnv):
    """A TSP whose first action is the policy's."""

    def _count_starts(self, state):
        raise UnsupportedError("no starts")

    _start_actions = _count_starts


@pytest.fixture(params=METHODS, ids=lambda cls: cls.__name__)
def method(request):
    return request.param


@pytest.fixture(params=["tsp", "cvrp"])
def env(request):
    return {"tsp": TSPEnv, "cvrp": CVRPEnv}[request.param](generator_params={"num_loc": 6})


@pytest.fixture
def tsp():
    return TSPEnv(generator_params={"num_loc": 6})


def make_policy(env, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return AttentionModelPolicy(env_name=env.name, **{**TINY, **kwargs})


def draw(env, number=2, seed=3):
    return env.generator(number, rng=torch.Generator().manual_seed(seed))


def make(method, env, data=None, policy=None, **kwargs) -> TransductiveModel:
    settings = {"max_iters": 4, "augment_size": 2, "seed": 5, "optimizer_kwargs": FAST, **kwargs}
    return method(env, policy or make_policy(env), draw(env) if data is None else data, **settings)


# ---------------------------------------------------------------- what is found


def test_incumbents_never_get_worse(method, env):
    """... and are solutions of the instances as they were given, with these rewards."""
    data = draw(env, 3)
    result = make(method, env, data, max_iters=6).search()
    assert result.history.shape == (3, 6)
    assert bool((result.history.diff(dim=1) >= 0).all())
    assert bool((result.history[:, -1] > result.history[:, 0]).any())
    assert torch.equal(result.history[:, -1], result.rewards)
    assert result.iterations.tolist() == [6, 6, 6]
    td = env.reset(data)
    env.check_solution_validity(td, result.actions)
    torch.testing.assert_close(env.get_reward(td, result.actions), result.rewards)


def test_an_instance_does_not_profit_from_those_before_it(method, env):
    """The second is searched as if it were alone: original weights, the same random numbers."""
    data = draw(env)
    both = make(method, env, data, batch_size=1).search()
    alone = make(method, env, data[1:], batch_size=1).search()
    assert torch.equal(both.history[1], alone.history[0])
    assert torch.equal(both.actions[1, : alone.actions.shape[1]], alone.actions[0])


def test_an_instance_does_not_depend_on_its_batch(method, env):
    """Together with two others, one finds what it finds alone (apart from rounding)."""
    data = draw(env, 3)
    together = make(method, env, data, batch_size=3).search()
    alone = make(method, env, data, batch_size=1).search()
    torch.testing.assert_close(together.history, alone.history, atol=1e-5, rtol=1e-5)


def test_policy_is_left_alone(method, tsp):
    """Weights, statistics, modes and gradients; in evaluation mode throughout."""
    policy = make_policy(tsp)
    policy.encoder.eval()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    modes = [module.training for module in policy.modules()]
    make(method, tsp, policy=policy).search()
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())
    assert [module.training for module in policy.modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in policy.parameters())


def test_parameters_change_and_begin_anew(method, env):
    """Every batch moves parameters of its own, which begin where those of the others began."""
    model = make(method, env, batch_size=1)
    begun, searches = [], []
    start = model.start_search

    def spy(td):
        searches.append(start(td))
        state = searches[-1].adapted.state_dict()
        begun.append({name: value.clone() for name, value in state.items()})
        return searches[-1]

    model.start_search = spy
    model.search()
    assert len(begun) == 2
    for first, second in zip(begun[0].values(), begun[1].values(), strict=True):
        assert torch.equal(first, second)
    for before, found in zip(begun, searches, strict=True):
        moved = [
            not torch.equal(value, before[name]) for name, value in found.adapted.named_parameters()
        ]
        # The Attention Model's placeholder of the first step is not used with starts.
        assert sum(moved) >= max(1, len(moved) - 1)


def test_seeds(method, tsp):
    first, again, other = (make(method, tsp, seed=s).search() for s in (5, 5, 6))
    assert torch.equal(first.history, again.history)
    assert torch.equal(first.actions, again.actions)
    assert not torch.equal(first.history, other.history)


def test_global_randomness_is_left_alone(method, tsp):
    state = torch.get_rng_state()
    make(method, tsp, max_iters=2).search()
    assert torch.equal(torch.get_rng_state(), state)


def test_random_symmetries_do_not_depend_on_the_batch(method):
    env = TSPEnv(generator_params={"num_loc": 7})
    settings = {"augment_dihedral": False, "augment_size": 3, "max_iters": 2}
    together = make(method, env, batch_size=2, **settings).search()
    alone = make(method, env, batch_size=1, **settings).search()
    torch.testing.assert_close(together.history, alone.history, atol=1e-5, rtol=1e-5)


def test_without_starts_solutions_are_sampled(method):
    """As many as there are actions, or as asked for."""
    env = NoStarts(generator_params={"num_loc": 7})
    model = make(method, env)
    copies = model.copies(env.reset(draw(env)))
    assert not copies.multistart
    assert copies.num_solutions == 7
    assert bool(model.search().rewards.isfinite().all())
    assert make(method, env, num_solutions=3).copies(env.reset(draw(env))).num_solutions == 3
    with pytest.raises(UnsupportedError, match="no starts"):
        make(method, env, decode_type="multistart_sampling").search()


def test_without_coordinates_nothing_is_augmented(method):
    env = ATSPEnv(generator_params={"num_loc": 6})
    model = make(method, env, augment_size=None)
    assert model.augment_size == 1
    assert bool(model.search().rewards.isfinite().all())


def test_runs_and_copies(method):
    """Two runs of two copies of three solutions: twelve solutions in each iteration."""
    env = TSPEnv(generator_params={"num_loc": 7})
    model = make(method, env, num_parallel_runs=2, num_solutions=3)
    seen = []
    start = model.start_search

    def spy(td):
        found = start(td)
        sample = found.sample

        def count(incumbent, rng):
            candidates = sample(incumbent, rng)
            seen.append(candidates.rewards.shape[1])
            return candidates

        found.sample = count
        return found

    model.start_search = spy
    model.search()
    assert set(seen) == {12}


@pytest.mark.learning
@pytest.mark.parametrize(("method", "rate"), [(ActiveSearch, 3e-3), (EASEmb, 0.1), (EASLay, 0.03)])
def test_searches_beat_sampling(method, rate, require):
    """The same number of solutions of the same copies by an untrained policy, without learning."""
    env = TSPEnv(generator_params={"num_loc": 20})
    policy = make_policy(env, embed_dim=32).eval()
    data, iterations = draw(env, 12), 28
    settings = {"batch_size": 12, "augment_size": 2, "seed": 1}
    settings |= {"max_iters": iterations, "optimizer_kwargs": {"lr": rate}}
    model = method(env, policy, data, **settings)
    found = model.search().rewards
    copies = model.copies(env.reset(data))
    with torch.no_grad():
        rewards = [
            copies.solve(policy, rng=torch.Generator().manual_seed(s)).rewards.flatten(1).amax(1)
            for s in range(iterations)
        ]
    sampled = torch.stack(rewards).amax(0)
    require("cost / that of samples", float(found.mean() / sampled.mean()), below=0.9)


# ---------------------------------------------------------------- files


class Killed(Exception):
    """What happens to the process."""


def test_a_killed_search_goes_on(method, env, tmp_path, monkeypatch):
    """It keeps what it had, and finds what it would have found."""
    monkeypatch.setattr(transductive, "_SAVE_INTERVAL", -1.0)
    data, path = draw(env, 3), tmp_path / "new" / "search.pt"
    settings = {"batch_size": 2, "max_iters": 6}
    whole = make(method, env, data, **settings).search()
    calls = []

    def kill(progress):
        calls.append(progress)
        if len(calls) == 9:  # in the second instance (or the second batch) of three
            raise Killed

    with pytest.raises(Killed):
        make(method, env, data, save_path=path, **settings).search(kill)
    kept = torch.load(path, weights_only=True)
    assert bool(kept["rewards"][:2].isfinite().all())
    assert sum(kept["iterations"].tolist()) > 6
    model = make(method, env, data, save_path=path, **settings)
    assert torch.equal(model.instance_rewards, kept["rewards"])
    again: list = []
    result = model.search(again.append)
    assert torch.equal(result.history, whole.history)
    assert torch.equal(result.actions, whole.actions)
    assert len(again) < len(calls) + 9, "finished instances are not searched again"
    assert [path.name for path in path.parent.iterdir()] == ["search.pt"], "no drafts are left"


def test_a_finished_search_is_read(method, tsp, tmp_path):
    path = tmp_path / "search.pt"
    result = make(method, tsp, save_path=path).search()
    model = make(method, tsp, save_path=path)
    model.start_search = None
    assert torch.equal(model.search().history, result.history)
    longer = make(method, tsp, save_path=path, max_iters=6).search()
    assert torch.equal(longer.history[:, :4], result.history)
    assert longer.iterations.tolist() == [6, 6]


def test_files_of_other_searches_raise(tsp, tmp_path):
    path = tmp_path / "search.pt"
    make(EASLay, tsp, save_path=path).search()
    others = {
        "instances": make(EASLay, tsp, draw(tsp, seed=4), save_path=path),
        "weights": make(EASLay, tsp, policy=make_policy(tsp, embed_dim=8), save_path=path),
        "policy": make(EASLay, tsp, policy=make_policy(tsp, num_heads=4), save_path=path),
        "method": make(EASEmb, tsp, save_path=path),
        "seed": make(EASLay, tsp, save_path=path, seed=6),
        "settings": make(EASLay, tsp, save_path=path, eas_lambda=0.1),
    }
    for model in others.values():
        with pytest.raises(ConfigError, match="expected the file of this search"):
            model.search()
    path.write_bytes(b"something else")
    with pytest.raises(FileFormatError, match="expected the file of a search"):
        make(EASLay, tsp, save_path=path).search()


def test_record_by_hand(tmp_path):
    """Two instances: the better of (1, 3) and (5, 2), then something worse, then longer ones."""
    record = SearchRecord(2, tmp_path / "record.pt", "me")
    batch = slice(0, 2)
    assert record.incumbents(batch) is None
    actions = torch.tensor([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    assert record.improve(batch, actions, torch.tensor([[1.0, 3.0], [5.0, 2.0]]))
    record.close_iteration(batch, 0.5)
    assert record.incumbents(batch).tolist() == [[3, 4], [5, 6]]
    assert not record.improve(batch, actions, torch.tensor([[0.0, 3.0], [5.0, 5.0]]))
    record.close_iteration(batch, 0.5)
    longer = torch.tensor([[[9, 9, 9]], [[0, 0, 0]]])
    assert record.improve(batch, longer, torch.tensor([[4.0], [-1.0]]))
    assert record.incumbents(batch).tolist() == [[9, 9, 9], [5, 6, -1]]
    assert record.result().actions.tolist() == [[9, 9, 9], [5, 6, 0]]
    record.close_iteration(slice(0, 1), 0.5)
    assert record.result().history.tolist() == [[3.0, 3.0, 4.0], [5.0, 5.0, 5.0]]
    record.save()
    loaded = SearchRecord(2, tmp_path / "record.pt", "me")
    assert loaded.incumbents(batch).tolist() == [[9, 9, 9], [5, 6, -1]]
    assert loaded.seconds.tolist() == [1.5, 1.0]


def test_time_limit(method, tsp):
    """At least one iteration, and none after the time is over."""
    result = make(method, tsp, batch_size=1, max_iters=1000, max_runtime=1e-6).search()
    assert result.iterations.tolist() == [1, 1]


# ---------------------------------------------------------------- Lightning and the one call


def make_trainer(folder, **kwargs):
    return RL4COTrainer(
        accelerator="cpu",
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        precision="32-true",
        **kwargs,
    )


@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_fit(method, env, tmp_path):
    """One epoch, one step per batch, the numbers of `search`; clipping does not get in the way."""
    data = draw(env, 3)
    plain = make(method, env, data, batch_size=2).search()
    model = make(method, env, data, batch_size=2, save_path=tmp_path / "found.pt")
    trainer = make_trainer(tmp_path, max_epochs=5, gradient_clip_val=1.0)
    trainer.fit(model)
    assert trainer.current_epoch == 1
    assert trainer.global_step == 2
    assert trainer.gradient_clip_val == 1.0
    assert torch.equal(model.instance_rewards, plain.rewards)
    assert torch.equal(model.instance_solutions, plain.actions)
    saved = torch.load(tmp_path / "found.pt", weights_only=True)
    assert torch.equal(saved["rewards"], plain.rewards)
    assert torch.equal(saved["solutions"], plain.actions)
    metrics = trainer.callback_metrics
    assert float(metrics["train/max_reward"]) == pytest.approx(float(plain.rewards.mean()))
    with torch.no_grad():
        greedy = model.policy.eval()(env.reset(data), env, phase="val")["reward"].mean()
    assert float(metrics["val/reward"]) == pytest.approx(float(greedy), abs=1e-5)
    (tested,) = trainer.test(model, verbose=False)
    assert tested["test/reward"] == pytest.approx(float(plain.rewards.mean()))
    (file,) = tmp_path.rglob("metrics.csv")
    header, *rows = file.read_text().splitlines()
    assert "search/max_reward" in header
    iterations = 4 * (3 if method is ActiveSearch else 2)
    assert len(rows) >= iterations, "every iteration is logged"
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    loaded = TransductiveModel.load_from_checkpoint(checkpoint, dataset=data)
    assert type(loaded) is method
    for ours, theirs in zip(loaded.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


class Interrupt(Callback):
    """Kills the run after some batches."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx + 1 == self.batches:
            raise InterruptedError


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("with_file", [False, True])
def test_a_resumed_run_finds_what_an_undisturbed_one_finds(method, tsp, tmp_path, with_file):
    """The instances after the interruption are searched with the seed of the first run."""
    data = draw(tsp, 4)
    expected = make(method, tsp, data, batch_size=1, seed=5).search()

    def fit(seed, *callbacks, **kwargs):
        path = tmp_path / "found.pt" if with_file else None
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = make(method, tsp, data, batch_size=1, save_path=path, seed=None)
        saver = ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=1, save_top_k=-1)
        trainer = make_trainer(tmp_path, callbacks=[saver, *callbacks], max_epochs=1, logger=False)
        trainer.fit(model, **kwargs)
        return model

    with pytest.raises(InterruptedError):
        fit(5, Interrupt(2))
    model = fit(6, ckpt_path=tmp_path / "last.ckpt")
    assert torch.equal(model.instance_rewards, expected.rewards)
    assert torch.equal(model.instance_solutions, expected.actions)


def test_testing_needs_a_search(tsp, tmp_path):
    model = make(EASLay, tsp)
    with pytest.raises(ConfigError, match="search them first"):
        make_trainer(tmp_path, logger=False).test(model, verbose=False)


def test_default_data_is_the_test_set():
    env = TSPEnv(generator_params={"num_loc": 5})
    model = EASLay(env, make_policy(env), test_data_size=3)
    torch.testing.assert_close(
        model._instances()["locs"], env.dataset(3, phase="test").data["locs"]
    )


@pytest.mark.parametrize("name", SEARCHES)
def test_one_call(name, tsp, capsys):
    """All names, with a progress bar; the numbers of the model."""
    data, policy = draw(tsp), make_policy(tsp)
    settings = {"augment_size": 2, "optimizer_kwargs": FAST, "batch_size": 2, "seed": 5}
    result = search(policy, tsp, data, name, iterations=3, progress=True, **settings)
    cls = {"active_search": ActiveSearch, "eas_emb": EASEmb, "eas_lay": EASLay}[name]
    expected = make(cls, tsp, data, policy, max_iters=3, batch_size=2).search()
    assert torch.equal(result.history, expected.history)
    assert "best -" in capsys.readouterr().err
    with pytest.raises(UnknownNameError, match="did you mean 'eas_lay'"):
        search(policy, tsp, data, "eas_layer")


@pytest.mark.parametrize("form", ["folder", "checkpoint"])
def test_policies_from_files(form, tmp_path):
    env = TSPEnv(generator_params={"num_loc": 5})
    policy = make_policy(env)
    path = tmp_path / "policy"
    if form == "folder":
        policy.save_pretrained(path)
    else:
        model = POMO(env, policy, batch_size=2, train_data_size=2, val_data_size=2)
        trainer = make_trainer(tmp_path, max_epochs=1, logger=False)
        trainer.fit(model)
        path = tmp_path / "model.ckpt"
        trainer.save_checkpoint(path)
    loaded = EASLay(env, path).policy
    for ours, theirs in zip(loaded.parameters(), policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


# ---------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iters": 0}, "max_iters of at least 1, got 0"),
        ({"max_iters": 1.5}, "max_iters of at least 1, got 1.5"),
        ({"augment_size": 0}, "augment_size of at least 1"),
        ({"augment_size": 9}, "num_augment from 1 to 8"),
        ({"num_parallel_runs": 0}, "num_parallel_runs of at least 1"),
        ({"num_solutions": 1}, "num_solutions of at least 2"),
        ({"max_runtime": 0}, "positive max_runtime"),
        ({"batch_size": 0}, "batch_size"),
        ({"lr_scheduler": "StepLR", "lr_scheduler_kwargs": {"step_size": 1}}, "no lr_scheduler"),
        ({"optimizer_kwargs": {"rate": 1.0}}, "expected arguments of Adam"),
    ],
)
def test_bad_settings(method, settings, message):
    with pytest.raises(ConfigError, match=message):
        make(method, TSPEnv(generator_params={"num_loc": 5}), **settings)


def test_bad_names(method):
    env = TSPEnv(generator_params={"num_loc": 5})
    with pytest.raises(UnknownNameError, match="multistart_sampling"):
        make(method, env, decode_type="greedy")
    with pytest.raises(UnknownNameError, match="optimizer"):
        make(method, env, optimizer="Adm")


def test_bad_data(method):
    env = TSPEnv(generator_params={"num_loc": 5})
    for data in (draw(env)[:0], draw(env)[0], 3):
        with pytest.raises(ConfigError, match="at least one instance with one batch axis"):
            make(method, env, data).search()


def test_bad_policies():
    env = TSPEnv(generator_params={"num_loc": 5})
    with pytest.raises(UnsupportedError, match="expected a constructive policy"):
        ActiveSearch(env, torch.nn.Linear(2, 2), draw(env))
    recurrent = PointerNetworkPolicy(env_name="tsp", embed_dim=16, hidden_dim=16)
    with pytest.raises(UnsupportedError, match="use ActiveSearch"):
        EASLay(env, recurrent, draw(env))
    found = ActiveSearch(env, recurrent, draw(env), max_iters=2, augment_size=2).search()
    assert bool(found.rewards.isfinite().all())
    frozen = make_policy(env).requires_grad_(False)
    with pytest.raises(ConfigError, match="parameters that learn"):
        ActiveSearch(env, frozen, draw(env)).search()
