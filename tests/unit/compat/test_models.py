"""Embeddings, decoders, baselines and models in the published style take effect."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from torch import nn

from rl4co.core.errors import UnsupportedError
from rl4co.data import ExtraKeyDataset
from rl4co.envs import CVRPEnv, MTSPEnv, OPEnv, PCTSPEnv, PDPEnv, TSPEnv
from rl4co.models import (
    POMO,
    REINFORCE,
    AttentionModel,
    AttentionModelPolicy,
    AutoregressiveDecoder,
    AutoregressiveEncoder,
    AutoregressivePolicy,
    EASEmb,
)
from rl4co.models.rl.baselines import REINFORCEBaseline, RolloutBaseline, WarmupBaseline
from rl4co.models.zoo.am import AttentionModelDecoder
from rl4co.utils import RL4COTrainer
from rl4co.utils.ops import batchify, gather_by_index
from tests.compat import EMBED_DIM, DistanceEmbedding, RowContext, TourEnv, tour_policy

DECODING = {
    "greedy": {},
    "sampling": {"num_samples": 3},
    "multistart_greedy": {"num_starts": 4},
    "beam_search": {"beam_width": 3},
}
SIZES = {"batch_size": 8, "train_data_size": 16, "val_data_size": 8, "test_data_size": 8}


def trainer(**options):
    return RL4COTrainer(
        max_epochs=1,
        accelerator="cpu",
        precision="32-true",
        logger=None,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"enable_checkpointing": False, **options},
    )


def small_policy(env_name="tsp"):
    return AttentionModelPolicy(
        env_name=env_name, embed_dim=16, num_heads=2, num_encoder_layers=1, feedforward_hidden=16
    )


# ---------------------------------------------------------------- embeddings and decoders


def relaid(stock, customers=(), numbers=(), nodes=("current_node",)):
    """An environment of the library whose states have the published layout.

    Args:
        stock: Environment of the library.
        customers: Keys without a value for the depot.
        numbers: Keys without an axis of their own.
        nodes: Keys with an axis more.
    """

    def write(td):
        td.update({key: td[key][:, 1:] for key in customers})
        td.update({key: td[key].squeeze(-1) for key in numbers})
        return td.update({key: td[key].unsqueeze(-1) for key in nodes})

    def read(td):
        td.update({key: nn.functional.pad(td[key], (1, 0)) for key in customers})
        td.update({key: td[key].unsqueeze(-1) for key in numbers})
        return td.update({key: td[key].squeeze(-1) for key in nodes})

    class Relaid(stock):
        def _reset(self, td=None, batch_size=None):
            return write(super()._reset(td, batch_size))

        def _step(self, td):
            return write(super()._step(read(td)))

    return Relaid


@pytest.mark.parametrize(
    ("stock", "layout"),
    [
        (CVRPEnv, {"customers": ("demand",)}),
        (OPEnv, {"numbers": ("tour_length", "max_length", "i")}),
        (PCTSPEnv, {"customers": ("expected_prize",), "numbers": ("cur_total_prize", "i")}),
        (PDPEnv, {}),
        (TSPEnv, {"numbers": ("i",), "nodes": ("first_node", "current_node")}),
    ],
)
def test_embeddings_of_the_library_read_published_layouts(stock, layout):
    """The same weights find the same solutions, and learn from them alike."""
    ours = stock(generator_params={"num_loc": 6})
    theirs = relaid(stock, **layout)(generator_params={"num_loc": 6}, check_solution=False)
    instances = ours.generator(4, rng=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    policy = small_policy(ours.name).eval()
    for options in ({"decode_type": "greedy"}, {"decode_type": "multistart_greedy"}):
        expected, found = (
            policy(env.reset(instances), env, num_starts=3, **options) for env in (ours, theirs)
        )
        assert torch.equal(found["actions"], expected["actions"])
        torch.testing.assert_close(found["log_likelihood"], expected["log_likelihood"])
        torch.testing.assert_close(found["reward"], expected["reward"])


def test_a_key_that_embeddings_miss_is_named():
    class Unmeasured(MTSPEnv):
        def _reset(self, td=None, batch_size=None):
            return super()._reset(td, batch_size).exclude("way_home")

    env = Unmeasured(generator_params={"num_loc": 6})
    with pytest.raises(UnsupportedError, match=r"'way_home' in the states of Unmeasured.*_reset"):
        small_policy("mtsp")(env.reset(batch_size=[2]), env)


@pytest.mark.parametrize("decode_type", DECODING)
def test_contexts_know_one_batch_axis_or_two(decode_type):
    """One that knows solutions of an instance and one that does not give the same."""
    env = TourEnv()
    td, outs = env.reset(batch_size=3), []
    torch.manual_seed(0)
    first, second = tour_policy().eval(), tour_policy(RowContext).eval()
    second.load_state_dict(first.state_dict())
    for policy in (first, second):
        torch.manual_seed(1)
        outs.append(policy(td, env, decode_type=decode_type, **DECODING[decode_type]))
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    torch.testing.assert_close(outs[0]["log_likelihood"], outs[1]["log_likelihood"])


def test_dynamic_embeddings_count_in_every_solution():
    """Solutions of a multi-start are those that the policy finds likely one by one."""
    env = TourEnv()
    td = env.reset(batch_size=2)
    policy = tour_policy(dynamic=DistanceEmbedding(EMBED_DIM))
    out = policy(td, env, decode_type="multistart_sampling", num_starts=3)
    for start in range(3):
        rows = slice(2 * start, 2 * start + 2)
        alone = policy(td, env, actions=out["actions"][rows], decode_type="multistart_greedy")
        torch.testing.assert_close(alone["log_likelihood"], out["log_likelihood"][rows])
    out["log_likelihood"].sum().backward()
    assert policy.decoder.dynamic_embedding.projection.weight.grad.abs().sum() > 0


def test_adapted_embeddings_keep_names_and_copies():
    """Names of weights, the class's own `forward`, deep copies, pickles and a second policy."""
    context, dynamic = RowContext(EMBED_DIM), DistanceEmbedding(EMBED_DIM)
    names = list(context.state_dict())
    policy = tour_policy(lambda dim: context, dynamic)
    assert policy.decoder.context_embedding is context
    assert list(context.state_dict()) == names
    again = AttentionModelDecoder(
        EMBED_DIM, 2, context_embedding=context, dynamic_embedding=dynamic
    )
    assert again.dynamic_embedding is dynamic
    env = TourEnv()
    td = env.reset(batch_size=2)
    expected = policy.eval()(td, env, decode_type="greedy", num_starts=2)["actions"]
    for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert isinstance(twin.decoder.context_embedding, RowContext)
        assert torch.equal(twin(td, env, decode_type="greedy", num_starts=2)["actions"], expected)


class NodeEncoder(AutoregressiveEncoder):
    """Coordinates, embedded."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, 8)

    def forward(self, td):
        hidden = self.embed(td["locs"])
        return hidden, hidden


class NodeDecoder(AutoregressiveDecoder):
    """Products with the current node, in the published way: rows, hidden, number of starts."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)
        self.calls = []

    def pre_decoder_hook(self, td, env, hidden, num_starts=0):
        self.calls.append((len(td), env.name, num_starts))
        return td, env, batchify(hidden, num_starts) if num_starts > 1 else hidden

    def forward(self, td, hidden, num_starts=0):
        query = self.query(gather_by_index(hidden, td["current_node"]))
        return torch.einsum("bd,bnd->bn", query, hidden), td["action_mask"]


@pytest.mark.parametrize("decode_type", DECODING)
def test_a_decoder_with_a_hook_runs(decode_type):
    """It is called with rows, and the log-likelihood of its actions is what it says."""
    env = TSPEnv(generator_params={"num_loc": 5})
    td = env.reset(batch_size=2)
    policy = AutoregressivePolicy(NodeEncoder(), NodeDecoder(), env_name="tsp")
    width = max(DECODING[decode_type].values(), default=1)
    out = policy(td, env, decode_type=decode_type, **DECODING[decode_type])
    assert policy.decoder.calls[0] == (2 * width, "tsp", width if width > 1 else 0)
    if decode_type != "multistart_greedy":
        again = policy(td, env, actions=out["actions"])
        torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"])


def test_a_policy_needs_no_encoder():
    """A decoder that reads the state alone."""

    class Nearest(AutoregressiveDecoder):
        def forward(self, td, hidden, num_starts):
            assert hidden is None
            here = gather_by_index(td["locs"], td["current_node"])
            return -(td["locs"] - here[:, None]).norm(dim=-1), None

    env = TSPEnv(generator_params={"num_loc": 5})
    out = AutoregressivePolicy(None, Nearest())(env.reset(batch_size=2), env, phase="test")
    assert out["actions"].shape == (2, 5)


@pytest.mark.parametrize("name", ["pre_decoder_hook", "_compute_q"])
def test_decoder_methods_that_nothing_calls_raise(name):
    with pytest.raises(UnsupportedError, match=rf"beside {name}, got forward\(self, state"):
        type("Wrong", (AutoregressiveDecoder,), {name: lambda self, *args: None})


def test_a_decoder_leaves_the_state_alone():
    class Meddling(NodeDecoder):
        def pre_decoder_hook(self, td, env, hidden, num_starts=0):
            return td.clone(), env, hidden

    env = TSPEnv(generator_params={"num_loc": 5})
    policy = AutoregressivePolicy(NodeEncoder(), Meddling())
    with pytest.raises(UnsupportedError, match="to change `hidden` alone"):
        policy(env.reset(batch_size=2), env)


# ---------------------------------------------------------------- baselines


class PublishedBaseline(REINFORCEBaseline):
    """All that the published package calls, and what it was called with."""

    def __init__(self, *args, **kw):
        super().__init__()
        self.calls = {}

    def setup(self, policy, env, batch_size=64, device="cpu", dataset_size=None):
        self.calls["setup"] = (batch_size, dataset_size)

    def eval(self, td, reward, env=None):
        self.calls["eval"] = reward.shape
        return reward.mean() - 1.0, 0

    def epoch_callback(
        self, policy, env, batch_size=64, device="cpu", epoch=None, dataset_size=None
    ):
        self.calls["epoch"] = (env.name, batch_size, epoch, dataset_size)


class Lookup(PublishedBaseline):
    """Values that are computed in advance."""

    def wrap_dataset(self, dataset, env, batch_size=64, device="cpu", **kw):
        self.calls["wrap"] = (len(dataset), batch_size)
        return ExtraKeyDataset(dataset, torch.full((len(dataset),), 7.0))


class Packed(PublishedBaseline):
    """Values under a custom key."""

    def wrap_dataset(self, dataset, *args, **kw):
        return dataset.add_key("known", torch.full((len(dataset),), 5.0))

    def unwrap_batch(self, batch):
        return batch.exclude("known"), batch["known"]


def test_a_published_baseline_is_asked():
    """In training from setup to the end of the epoch, on an environment in the same style."""
    baseline = PublishedBaseline()
    model = REINFORCE(TourEnv(), tour_policy(), baseline, val_batch_size=4, **SIZES)
    trainer().fit(model)
    assert baseline.calls == {
        "setup": (4, 8),
        "eval": (8,),
        "epoch": ("tour", 4, 0, 8),
    }


@pytest.mark.parametrize(
    ("cls", "value"), [(PublishedBaseline, None), (Lookup, 7.0), (Packed, 5.0)]
)
def test_values_of_published_baselines_enter_the_loss(cls, value):
    """Those of `eval`, or what the data set was wrapped with."""
    env = TSPEnv(generator_params={"num_loc": 5})
    model = REINFORCE(env, small_policy(), cls(), **SIZES)
    seen = {}
    model.log_metrics = lambda out, *args, **kwargs: seen.update(out) or {}
    model.training_step(env.generator(4), 0)
    expected = seen["reward"].mean() - 1.0 if value is None else torch.full((4,), value)
    torch.testing.assert_close(seen["bl_val"], expected)
    advantage = (seen["reward"] - expected).detach()
    torch.testing.assert_close(seen["loss"], -(advantage * seen["log_likelihood"]).mean())


def test_published_and_own_baselines_call_each_other():
    """`super()` finds what it expects, on either side."""

    class Shifted(RolloutBaseline):
        def eval(self, td, reward, env=None):
            value, loss = super().eval(td, reward, env)
            return value + 1.0, loss

        def epoch_callback(self, policy, env, batch_size=64, device="cpu", epoch=None, **kw):
            return {**super().epoch_callback(policy, env, batch_size, device, epoch), "own": 1.0}

    env = TSPEnv(generator_params={"num_loc": 5})
    policy = small_policy()
    baseline = Shifted(dataset_size=4)
    model = REINFORCE(env, policy, WarmupBaseline(baseline), **SIZES)
    td = env.reset(batch_size=3)
    reward = torch.zeros(3)
    plain = RolloutBaseline(dataset_size=4)
    plain.setup(policy, env)
    torch.testing.assert_close(baseline(td, reward, env).value, plain(td, reward, env).value + 1.0)
    assert plain.eval(td, reward, env)[0].shape == (3,)
    assert plain.eval() is plain
    logged = {}
    model.log_dict = lambda metrics, **kwargs: logged.update(metrics)
    model.after_epoch()
    assert {"baseline/p_value", "own"} <= set(logged)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"eval": lambda self, td: (0, 0)}, r"write forward\(td, reward, env\)"),
        ({"eval": lambda *args: (0, 0), "forward": lambda *args: None}, "write forward alone"),
        ({"setup": lambda self, policy, env, other: None}, "write setup"),
    ],
)
def test_baselines_that_cannot_be_called_raise(body, says):
    with pytest.raises(UnsupportedError, match=says):
        type("Wrong", (REINFORCEBaseline,), body)


# ---------------------------------------------------------------- training


def test_pomo_trains_an_environment_and_embeddings_from_scratch():
    """Weights of all embeddings move, and validation has its reward."""
    policy = tour_policy(dynamic=DistanceEmbedding(EMBED_DIM))
    before = {name: weight.clone() for name, weight in policy.named_parameters()}
    model = POMO(TourEnv(), policy, num_augment=2, **SIZES)
    fit = trainer()
    fit.fit(model)
    assert fit.callback_metrics["val/reward"] < 0
    for part in ("init_embedding", "context_embedding", "dynamic_embedding"):
        moved = [not torch.equal(before[n], w) for n, w in policy.named_parameters() if part in n]
        assert any(moved)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A checkpoint of REINFORCE, without validation."""
    env = TSPEnv(generator_params={"num_loc": 5})
    model = REINFORCE(env, small_policy(), "exponential", **{**SIZES, "val_data_size": 0})
    fit = trainer(enable_checkpointing=True, default_root_dir=tmp_path_factory.mktemp("run"))
    fit.fit(model)
    path = tmp_path_factory.mktemp("checkpoint") / "last.ckpt"
    fit.save_checkpoint(path)
    return model, path


def test_a_checkpoint_of_reinforce_makes_an_attention_model(trained):
    model, path = trained
    loaded = AttentionModel.load_from_checkpoint(path, load_baseline=False)
    assert type(loaded) is AttentionModel
    weights = loaded.policy.state_dict()
    assert all(torch.equal(weights[key], value) for key, value in model.policy.state_dict().items())


def test_there_is_no_validation_without_data(trained):
    """But training has been, and tests have their set."""
    model, _ = trained
    assert model.val_dataloader() == []
    assert len(model.test_dataset) == 8


# ---------------------------------------------------------------- models without a trainer


def test_a_model_is_set_up_without_a_trainer():
    """One loader where there is one set; batches are instances that the model solves."""
    env = TSPEnv(generator_params={"num_loc": 5})
    model = AttentionModel(env, small_policy(), baseline="no", **SIZES)
    model.setup()
    batch = next(iter(model.test_dataloader()))
    assert batch.batch_size == (8,)
    assert len(model.train_dataset) == 16
    raw, reset = (model(td, phase="test", decode_type="greedy") for td in (batch, env.reset(batch)))
    assert torch.equal(raw["actions"], reset["actions"])
    assert next(iter(model.train_dataloader())).batch_size == (8,)
    sets = env.dataset(6, phase="test")
    assert next(iter(model._dataloader(sets, batch_size=4)))[:1].batch_size == (1,)
    assert [len(loader) for loader in model._dataloader({"a": sets, "b": sets}, 4)] == [2, 2]


def test_efficient_active_search_is_set_up_without_a_trainer(tmp_path):
    """As the notebook does, before it is searched; the file has the solutions."""
    env = TSPEnv(generator_params={"num_loc": 5})
    path = tmp_path / "eas.pt"
    model = EASEmb(env, small_policy(), env.dataset([2], "test"), max_iters=2, save_path=str(path))
    model.setup()
    trainer(gradient_clip_val=None).fit(model)
    assert torch.load(path)["solutions"].shape == (2, 5)


class OwnLoss(REINFORCE):
    """An algorithm in the published style: its step, its loss, its metrics."""

    def shared_step(self, batch, batch_idx, phase, dataloader_idx=None):
        td = self.env.reset(batch)
        out = self.policy(td, self.env, phase=phase, select_best=phase != "train")
        if phase == "train":
            out = self.calculate_loss(td, batch, out)
        metrics = self.log_metrics(out, phase, dataloader_idx=dataloader_idx)
        return {"loss": out.get("loss", None), **metrics}

    def calculate_loss(self, td, batch, policy_out, reward=None, log_likelihood=None):
        out = super().calculate_loss(td, batch, policy_out, reward, log_likelihood)
        return {**out, "loss": 2 * out["loss"], "half": out["loss"].detach()}

    def post_setup_hook(self):
        self.was_set_up = self.data_cfg["train_data_size"]
        self.set_decode_type_multistart("val")


def test_an_algorithm_in_the_published_style_trains():
    env = TSPEnv(generator_params={"num_loc": 5})
    model = OwnLoss(env, small_policy(), "mean", metrics={"train": ["loss", "half"]}, **SIZES)
    fit = trainer()
    fit.fit(model)
    logged = fit.callback_metrics
    assert model.was_set_up == 16
    assert model.policy.val_decode_type == "multistart_greedy"
    torch.testing.assert_close(logged["train/loss_epoch"], 2 * logged["train/half_epoch"])
    assert logged["val/reward"] < 0


# ---------------------------------------------------------------- instances


def test_a_capacity_may_come_without_an_axis():
    env = CVRPEnv(generator_params={"num_loc": 6})
    instances = env.generator(3)
    flat = instances.clone().set("capacity", instances["capacity"].squeeze(-1))
    given, ours = env.reset(flat), env.reset(instances)
    assert all(torch.equal(given[key], ours[key]) for key in ours.keys())
    assert flat["capacity"].shape == (3,)
