"""What is written for code in the published style: it does what the names promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torch.utils.data import DataLoader

from rl4co.compat.finder import NoCounterpartError
from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.data.utils import check_extension, load_solomon_instance, load_solomon_solution
from rl4co.envs import CVRPEnv, FJSPEnv, JSSPEnv, MTVRPEnv, TSPEnv, TSPGenerator
from rl4co.envs.common.distribution_utils import Cluster, Gaussian_Mixture, Mix_Distribution
from rl4co.models import AttentionModel, AttentionModelPolicy, PointerNetworkPolicy
from rl4co.models.nn import attention, ops
from rl4co.models.nn.env_embeddings.context import EnvContext, VRPContext
from rl4co.models.nn.env_embeddings.dynamic import StaticEmbedding
from rl4co.models.nn.env_embeddings.edge import TSPEdgeEmbedding
from rl4co.models.nn.env_embeddings.init import VRPInitEmbedding
from rl4co.models.nn.graph.attnnet import GraphAttentionNetwork
from rl4co.models.nn.graph.gcn import GCNEncoder
from rl4co.models.nn.graph.hgnn import HetGNNEncoder
from rl4co.models.nn.graph.mpnn import MessagePassingEncoder
from rl4co.models.nn.mlp import MLP
from rl4co.models.zoo.l2d.actors import PointerActor
from rl4co.models.zoo.l2d.decoder import L2DDecoder
from rl4co.models.zoo.l2d.model import L2DPPOModel
from rl4co.models.zoo.l2d.policy import L2DPolicy, L2DPolicy4PPO
from rl4co.models.zoo.nargnn.encoder import NARGNNNodeEncoder
from rl4co.models.zoo.symnco import losses
from rl4co.tasks import eval as evaluation
from rl4co.utils import decoding, optim_helpers
from rl4co.utils import ops as tensor_ops
from rl4co.utils.lightning import get_lightning_device
from rl4co.utils.utils import merge_with_defaults


@pytest.fixture(scope="module")
def tsp() -> TSPEnv:
    return TSPEnv(TSPGenerator(num_loc=6))


@pytest.fixture(scope="module")
def policy() -> AttentionModelPolicy:
    torch.manual_seed(0)
    return AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2, num_encoder_layers=1)


# ---------------------------------------------------------------- evaluation


@pytest.mark.parametrize(
    ("make", "method"),
    [
        (lambda env: evaluation.GreedyEval(env, progress=False), "greedy"),
        (lambda env: evaluation.GreedyMultiStartEval(env, progress=False), "multistart_greedy"),
        (
            lambda env: evaluation.AugmentationEval(env, force_dihedral_8=True, progress=False),
            "augment_dihedral_8",
        ),
        (
            lambda env: evaluation.GreedyMultiStartAugmentEval(
                env, num_starts=6, force_dihedral_8=True, progress=False
            ),
            "multistart_greedy_augment_dihedral_8",
        ),
    ],
)
def test_evaluations_by_object_agree_with_those_by_name(make, method, tsp, policy):
    """The same solutions, batch by batch from a loader."""
    dataset = tsp.dataset(5, phase="test")
    loader = DataLoader(dataset, batch_size=2, collate_fn=dataset.collate_fn)
    found = make(tsp)(policy, loader)
    expected = evaluation.evaluate_policy(tsp, policy, dataset, method=method)
    assert torch.equal(found["actions"], expected["actions"])
    torch.testing.assert_close(found["rewards"], expected["rewards"])
    assert found["avg_reward"] == found["rewards"].mean()


def test_evaluation_by_sampling_and_of_one_s_own(tsp, policy):
    """Samples are at least as good as the first of them; a subclass says how a batch is solved."""
    torch.manual_seed(0)
    td = tsp.reset(tsp.dataset(3, phase="test").data)
    sampling = evaluation.SamplingEval(tsp, samples=16, progress=False)
    best = sampling(policy, [td.select("locs")])["rewards"]
    one = evaluation.SamplingEval(tsp, samples=1, progress=False)(policy, [td.select("locs")])
    assert (best >= one["rewards"] - 1e-6).all() and (best > one["rewards"]).any()

    class InOrder(evaluation.EvalBase):
        def _inner(self, policy, td):
            actions = torch.arange(6).expand(len(td), 6)
            return actions, self.env.get_reward(td, actions)

    result = InOrder(tsp, progress=False)(policy, [td.select("locs")])
    assert result["actions"].tolist() == [list(range(6))] * 3
    with pytest.raises(TypeError, match="sample"):
        evaluation.SamplingEval(tsp, sample=3)
    with pytest.raises(ConfigError, match="select_best"):
        evaluation.SamplingEval(tsp, samples=3, select_best=False)


# ---------------------------------------------------------------- tensors


def test_logits_and_random_actions():
    """Filters as in `process_logits`; random actions are allowed, and distinct if they can be."""
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    kept = decoding.modify_logits_for_top_k_filtering(logits, 2)
    assert kept.isfinite().tolist() == [[False, False, True, True]]
    kept = decoding.modify_logits_for_top_p_filtering(logits, 0.7)  # 0.64, then 0.88
    assert kept.isfinite().tolist() == [[False, False, True, True]]
    assert decoding.modify_logits_for_top_p_filtering(logits, 0.0) is logits
    td = {"action_mask": torch.tensor([[False, True, True, True], [True, True, True, True]])}
    drawn = tensor_ops.sample_n_random_actions(td, 3).view(3, 2)  # samples, instances
    assert sorted(drawn[:, 0].tolist()) == [1, 2, 3]
    assert len(set(drawn[:, 1].tolist())) == 3
    assert tensor_ops.sample_n_random_actions(td, 9).shape == (18,)


def test_complete_graph():
    assert tensor_ops.get_full_graph_edge_index(2).tolist() == [[0, 1], [1, 0]]


def test_losses_of_symnco():
    """As published: sums over copies, zero where there is nothing to compare."""
    aligned = torch.tensor([[[1.0, 0.0]]]).repeat(3, 1, 1)  # three copies of one instance
    assert losses.invariance_loss(aligned, 3).item() == pytest.approx(-2.0)
    reward, ll = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.5, 0.25]])
    # Advantages -1 and 1: (0.5 - 0.25) / 2.
    assert losses.problem_symmetricity_loss(reward, ll).item() == pytest.approx(0.125)
    assert losses.solution_symmetricity_loss(reward[:, :1], ll[:, :1]) == 0


# ---------------------------------------------------------------- data and configurations


SOLOMON = """TINY

VEHICLE
NUMBER     CAPACITY
  2         10

CUSTOMER
CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME
    0      0         0          0          0         100          0
    1      3         4          5          0          50         10
    2      6         8          5         10          60         10
"""


def test_solomon_files(tmp_path):
    """Arrays with the published keys; distances are exact; solutions with their cost."""
    (tmp_path / "TINY.txt").write_text(SOLOMON)
    (tmp_path / "TINY.sol").write_text("Route #1: 1 2\nCost 20\n")
    found = load_solomon_instance("TINY", tmp_path, edge_weights=True)
    assert found["vehicles"] == 2 and found["capacity"] == 10
    assert found["node_coord"].tolist() == [[0, 0], [3, 4], [6, 8]]
    assert found["time_window"].tolist() == [[0, 100], [0, 50], [10, 60]]
    assert found["service_time"].tolist() == [0, 10, 10]
    assert found["edge_weight"][0].tolist() == [0, 5, 10]
    assert "edge_weight" not in load_solomon_instance("TINY", tmp_path)
    assert load_solomon_solution("TINY", tmp_path) == {"routes": [[1, 2]], "cost": 20.0}
    with pytest.raises(FileNotFoundError):
        load_solomon_instance("NONE", tmp_path)
    assert check_extension("a") == check_extension("a.npz") == "a.npz"


def test_distributions_take_positional_arguments():
    """As objects of the published classes, in a generator."""
    for sampler in (Cluster(2), Gaussian_Mixture(3, 10), Mix_Distribution(2, 1)):
        locs = TSPGenerator(num_loc=9, loc_distribution=sampler)(4)["locs"]
        assert locs.shape == (4, 9, 2) and locs.min() >= 0 and locs.max() <= 1
    assert Cluster(2).n_cluster == 2


def test_training_helpers(tsp):
    """Optimizers by name, merged settings."""
    weights = [torch.nn.Parameter(torch.zeros(1))]
    optimizer = optim_helpers.create_optimizer(weights, "SGD", lr=0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5
    scheduler = optim_helpers.create_scheduler(optimizer, "StepLR", step_size=3)
    assert scheduler.step_size == 3
    with pytest.raises(UnknownNameError):
        optim_helpers.create_optimizer(weights, "Adamm")
    assert merge_with_defaults({"a": 1}, a=0, b=2) == {"a": 1, "b": 2}
    assert merge_with_defaults("x", a=0, b=2) == {"a": "x", "b": "x"}
    assert get_lightning_device(AttentionModel(tsp)).type == "cpu"


# ---------------------------------------------------------------- networks


def test_blocks_compute_what_they_are_called():
    """Sums, norms, perceptrons and attention between two sets."""
    x = torch.randn(2, 5, 8)
    double = ops.SkipConnection(torch.nn.Identity())
    assert torch.equal(double(x), 2 * x)
    torch.testing.assert_close(ops.Normalization(8, "instance")(x).mean(1), torch.zeros(2, 8))
    assert ops.TransformerFFN(8, 16)(x, x).shape == x.shape
    assert MLP(8, 3, [4])(x).shape == (2, 5, 3)
    with pytest.raises(ConfigError, match="dropout_probs"):
        MLP(8, 3, [4], dropout_probs=[0.1, 0.1])
    cross = attention.MultiHeadCrossAttention(8, 2)
    mask = torch.zeros(2, 5, 3, dtype=torch.bool)
    mask[..., 1] = True  # everybody looks at the second one
    other = torch.randn(2, 3, 8)
    only = cross.out_proj(cross.Wkv(other[:, 1:2]).chunk(2, -1)[1]).expand(2, 5, 8)
    torch.testing.assert_close(cross(x, other, mask), only)
    network = GraphAttentionNetwork(2, 8, 3)  # heads first, as published
    assert len(network.layers) == 3 and network(x).shape == x.shape


def test_positional_encoding():
    hidden = torch.zeros(1, 2, 4)
    encoded = ops.PositionalEncoding(4, dropout=0.0)(hidden, torch.tensor([[0, 1]]))
    np.testing.assert_allclose(encoded[0, 1, :2], [np.sin(1), np.cos(1)], atol=1e-6)


class NodesAndTime(EnvContext):
    """Current node and number of steps."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, embed_dim + 1)

    def _state_embedding(self, embeddings, td):
        return td["i"].float()


@pytest.mark.parametrize(
    "parts",
    [
        {"encoder": GCNEncoder("tsp", 16, 2, dropout=0.0, num_nodes=6)},
        {"encoder": MessagePassingEncoder("tsp", 16, num_nodes=6, num_layers=2)},
        {"encoder": NARGNNNodeEncoder(16, 2)},
        {"context_embedding": NodesAndTime(16), "dynamic_embedding": StaticEmbedding(16)},
    ],
    ids=["gcn", "mpnn", "nargnn", "context"],
)
def test_parts_of_policies_train(parts, tsp):
    """Each in an Attention Model: solutions, and gradients for all its weights."""
    policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2, **parts)
    out = policy(tsp.reset(batch_size=[4]), tsp, phase="train")
    out["log_likelihood"].sum().backward()
    part = next(iter(parts.values()))
    missing = [name for name, weight in part.named_parameters() if weight.grad is None]
    # What the last layer does to edges leads nowhere.
    assert all("layers.1." in name for name in missing), missing
    assert out["reward"].shape == (4,)


def test_complete_graph_convolution_is_a_mean(tsp):
    """On the complete graph with loops, the normalised adjacency is 1 / N everywhere."""
    encoder = GCNEncoder("tsp", 16, 1, residual=False, bias=False)
    hidden, init = encoder(tsp.reset(batch_size=[2]))
    expected = encoder.gcn_layers[0](init.mean(1, keepdim=True)).expand_as(hidden)
    torch.testing.assert_close(hidden, expected)


def test_embeddings_by_their_published_names(tsp):
    """Init embeddings of a state, edges as a sparse graph; a context in the wrong style is told."""
    env = CVRPEnv(generator_params={"num_loc": 5})
    assert VRPInitEmbedding(embed_dim=8)(env.reset(batch_size=[2])).shape == (2, 6, 8)
    graph = TSPEdgeEmbedding(8, k_sparse=2)(dict(tsp.reset(batch_size=[2]).items()))
    assert graph.edges.shape == (2, 12, 8)
    with pytest.raises(UnsupportedError, match="k_sparse"):
        TSPEdgeEmbedding(8, sparsify=False)
    with pytest.raises(NoCounterpartError, match="l2d"):
        from rl4co.models.nn.env_embeddings.context import SchedulingContext  # noqa: F401
    with pytest.raises(
        UnsupportedError, match="_state_embedding, which nothing calls; derive from"
    ):

        class Silent(VRPContext):
            def _state_embedding(self, embeddings, td):
                return td["used_capacity"]


def test_parts_of_shops():
    """The decoder of the published configurations, with encoder and actor of its own or given."""
    env = FJSPEnv(generator_params={"num_jobs": 3, "num_machines": 2}, stepwise_reward=True)
    decoders = [
        L2DDecoder(env_name="fjsp", embed_dim=16, stepwise=True),
        L2DDecoder(
            env_name="fjsp",
            embed_dim=16,
            feature_extractor=HetGNNEncoder(16, 1),
            actor=PointerActor(16, 2),
        ),
    ]
    for decoder in decoders:
        policy = L2DPolicy4PPO(decoder=decoder, embed_dim=16, env_name="fjsp")
        out = policy.act(env.reset(batch_size=[2]), env)
        assert out["logprobs"].shape == (2,) and out["value"].shape == (2,)


def test_shop_is_solved_by_encoder_and_decoder_alone():
    """As the published notebook on scheduling builds a schedule, which is the policy's own."""
    env = FJSPEnv(generator_params={"num_jobs": 3, "num_machines": 2}, seed=1)
    fresh = td = env.reset(batch_size=[2])
    operations = td["job_ops_adj"]  # [B, J, O]
    assert torch.equal(operations.sum(1), (~td["pad_mask"]).long())
    assert torch.equal(operations.sum(2), td["end_op_per_job"] - td["start_op_per_job"] + 1)
    encoder = HetGNNEncoder(embed_dim=16, num_layers=1).eval()
    decoder = L2DDecoder(env_name=env.name, embed_dim=16).eval()
    (op_emb, ma_emb), _ = encoder(td)
    assert op_emb.shape == (*td["pad_mask"].shape, 16) and ma_emb.shape == (2, 2, 16)
    actions = []
    while not td["done"].all():
        logits, mask = decoder(td, (op_emb, ma_emb), num_starts=0)
        assert torch.equal(mask, td["action_mask"])
        td["action"] = logits.masked_fill(~mask, -torch.inf).argmax(1)
        actions.append(td["action"])
        td = env.step(td)["next"]
    policy = L2DPolicy(encoder=encoder, decoder=decoder, embed_dim=16, env_name="fjsp").eval()
    out = policy(fresh, env, decode_type="greedy")
    assert torch.equal(out["actions"], torch.stack(actions, 1))
    assert env.render(td, 1).axes[0].get_title().endswith(f"makespan {td['time'][1]:g}")
    td = JSSPEnv(generator_params={"num_jobs": 3, "num_machines": 2}).reset(batch_size=[2])
    hidden = torch.zeros(2, 6, 16)
    assert L2DDecoder(embed_dim=16)(td, hidden, 0)[0].shape == (2, 4)


def test_decoders_answer_published_calls(tsp, policy):
    """Rows of states, starts outermost, one after the other as the policy takes them itself."""
    td = tsp.reset(batch_size=[2])
    policy = policy.eval()
    hidden, _ = policy.encoder(td)
    rows = tensor_ops.batchify(td, 3)
    rows["action"] = tsp.select_start_nodes(td, 3)
    actions, state = [rows["action"]], tsp.step(rows)["next"]
    state, _, hidden = policy.decoder.pre_decoder_hook(state, tsp, hidden, 3)
    while not state["done"].all():
        logits, mask = policy.decoder(state, hidden, 3)
        state["action"] = logits.masked_fill(~mask, -torch.inf).argmax(-1)
        actions.append(state["action"])
        state = tsp.step(state)["next"]
    out = policy(td, tsp, decode_type="multistart_greedy", num_starts=3)
    assert torch.equal(out["actions"], torch.stack(actions, 1))
    one, none_asked = (policy(td, tsp, decode_type="greedy", **k) for k in ({}, {"num_starts": 0}))
    assert torch.equal(one["actions"], none_asked["actions"])
    recurrent = PointerNetworkPolicy(env_name="tsp", embed_dim=8, hidden_dim=8)
    with pytest.raises(UnsupportedError, match="call the policy, which keeps the memory"):
        recurrent.decoder(td, recurrent.encoder(td)[0], num_starts=0)


def test_environments_of_variants_print_the_presets(capsys):
    MTVRPEnv.print_presets()
    assert "vrpb: " in capsys.readouterr().out


def test_stepwise_model_generates_and_empties():
    env = JSSPEnv(generator_params={"num_jobs": 3, "num_machines": 2}, stepwise_reward=True)
    policy = L2DPolicy4PPO(embed_dim=16, num_encoder_layers=1, env_name="jssp", het_emb=False)
    model = L2DPPOModel(env, policy=policy, batch_size=2, train_data_size=2, val_data_size=2)
    out = model.policy.generate(
        env.reset(batch_size=[2]), env=env, phase="test", decode_type="multistart_sampling",
        num_starts=3, select_best=True,
    )  # fmt: skip
    assert out["reward"].shape == (2,) and not out["reward"].requires_grad
    model.collect(env.generator(2), 0)
    assert len(model.rb) == 12
    model.rb.empty()
    assert len(model.rb) == 0
