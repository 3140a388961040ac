"""Non-autoregressive policies: original weights, trajectory balance, bad input, learning."""

from __future__ import annotations

import copy
import math

from pathlib import Path

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    FileFormatError,
    NotFiniteError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.decoding.edges import edge_log_likelihood
from rl4co.decoding.pheromone import deposit
from rl4co.envs import CVRPEnv, TSPEnv, get_env
from rl4co.models import GFACS, DeepACO, DeepACOPolicy, GFACSPolicy, NARGNNPolicy
from rl4co.models.nn.env_embeddings import env_edge_embedding
from rl4co.models.zoo import deepaco, gfacs
from rl4co.models.zoo.gfacs.balance import (
    log_backward_of_routes,
    log_backward_of_tours,
    ramp,
    trajectory_balance_loss,
)
from tests.learning import paired_t

SETS = {
    "deepaco_nls_tsp100": ("tsp", deepaco),
    "gfacs_tsp200": ("tsp", gfacs),
    "deepaco_nls_cvrp100": ("cvrp", deepaco),
}


class OriginalCVRP(CVRPEnv):
    """Compares what is left of the vehicle, in float64 and without tolerance."""

    def _forbidden(self, state):
        free = state["vehicle_capacity"] - state["used_capacity"]
        return state["visited"] | (state["demand"] > free)


@pytest.fixture(scope="module", params=SETS)
def reference(request, shared_dir: Path):
    """Reference arrays, policy, environment and state."""
    folder = shared_dir / "reference" / "nonautoregressive"
    if not folder.is_dir():
        pytest.skip(f"no reference results in {folder}")
    problem, method = SETS[request.param]
    data = np.load(folder / f"{request.param}.npz", allow_pickle=False)
    policy = method.load_original_weights(
        folder / "weights" / f"{request.param}.npz", problem, k_sparse=int(data["k"])
    )
    locs = torch.from_numpy(data["locs"])
    if problem == "tsp":
        env, td = get_env("tsp"), TensorDict({"locs": locs}, [len(locs)])
    else:
        demand = torch.from_numpy(data["demand_raw"][:, 1:].astype(np.float64))
        capacity = torch.full((len(locs), 1), float(data["capacity"]), dtype=torch.float64)
        env = OriginalCVRP(capacity_tolerance=0.0)
        keys = {"locs": locs[:, 1:].double(), "depot": locs[:, 0].double()}
        td = TensorDict({**keys, "demand": demand / capacity, "capacity": capacity}, [len(locs)])
    return data, policy, env, env.reset(td)


def original_heatmap(data, mode: str, row: int) -> torch.Tensor:
    size = data["locs"].shape[1]
    heat = torch.zeros(size, size)
    heat[tuple(torch.from_numpy(data["edge_index"][row].astype(np.int64)))] = torch.from_numpy(
        data[f"heu_{mode}"][row]
    )
    return heat


@torch.no_grad()
def test_original_heatmaps(reference):
    """In evaluation mode all at once; with statistics of one graph, one by one."""
    data, policy, _, td = reference
    assert not policy.training
    heat = policy.heatmap(td)
    for row in range(len(td)):
        expected = original_heatmap(data, "eval", row)
        torch.testing.assert_close(heat[row], expected, atol=4e-5, rtol=0)
        assert torch.equal(heat[row] > 0, expected > 0)
        training = copy.deepcopy(policy).train()
        torch.testing.assert_close(
            training.heatmap(td[row : row + 1])[0],
            original_heatmap(data, "train", row), atol=4e-4, rtol=0,
        )  # fmt: skip


@torch.no_grad()
def test_original_log_partition(reference):
    data, policy, _, td = reference
    if "logZ_eval" not in data:
        pytest.skip("a method without")
    found = policy.log_z(policy.edge_weights(td))
    torch.testing.assert_close(found, torch.from_numpy(data["logZ_eval"]), atol=1.2e-4, rtol=0)


@torch.no_grad()
def test_original_likelihoods_losses_and_pheromone(reference):
    """Of instance 0, by the original rule of what to do without candidates."""
    data, policy, env, td = reference
    hidden = policy.edge_weights(td[:1])
    state, has_depot = dict(td[:1].items()), env.name == "cvrp"

    def likelihood(key: str) -> torch.Tensor:
        tours = torch.from_numpy(data[key].astype(np.int64)).unsqueeze(0)
        actions = tours[..., 1:] if has_depot else tours
        found = edge_log_likelihood(env, state, hidden.graph, hidden.weights, actions, "uniform")
        # DeepACO begins at node 0 and does not count that.
        start = math.log(tours.shape[-1]) if "reinforce_loss" in data else 0.0
        return found + start

    expected = torch.from_numpy(data["tours_logp"])
    found = likelihood("tours")
    torch.testing.assert_close(found[0], expected.to(found.dtype), atol=1e-4, rtol=0)
    cost = torch.from_numpy(data["tours_cost"]).double()
    if not has_depot:
        improved = torch.from_numpy(data["nls_train_cost"]).double()
        energies = [x - x.mean() for x in (improved, cost)]
    if "reinforce_loss" in data:
        mixed = 0.95 * energies[0] + 0.05 * energies[1]
        loss = float((mixed * found[0]).mean())
        assert loss == pytest.approx(float(data["reinforce_loss"]), abs=1e-5)
    if "tb_loss_on" in data:
        after = likelihood("nls_train_tours")
        assert float((after[0] - torch.from_numpy(data["nls_train_tours_logp"])).abs().max()) < 1e-4
        log_z, beta, w = policy.log_z(hidden), float(data["tb_beta"]), float(data["tb_cost_w"])
        backward = log_backward_of_tours(torch.zeros(1, 8, 200))
        mixed = (w * energies[0] + (1 - w) * energies[1]).unsqueeze(0)
        on = trajectory_balance_loss(log_z[:, 0], found, backward, mixed, beta)
        off = trajectory_balance_loss(log_z[:, 1], after, backward, energies[0].unsqueeze(0), beta)
        assert float(on) == pytest.approx(float(data["tb_loss_on"]), rel=1e-4)
        assert float(off) == pytest.approx(float(data["tb_loss_off"]), rel=1e-4)
    _compare_pheromone(data, hidden, has_depot, "tb_loss_on" in data)


def _compare_pheromone(data, hidden, has_depot: bool, balanced: bool) -> None:
    tours = data["tours"][:, 1:] if has_depot else data["nls_tours"]
    amount = 1.0 / torch.from_numpy(data["tours_cost" if has_depot else "nls_cost"]).double()
    if balanced:
        amount = amount - amount.mean() + 0.1 * tours.shape[1] / (2 * len(tours))
    base = torch.full_like(hidden.weights, float(data["pheromone_base"]))
    actions = torch.from_numpy(tours.astype(np.int64)).unsqueeze(0)
    found = hidden.graph.dense(
        deposit(hidden.graph, base, actions, amount.unsqueeze(0), symmetric=not has_depot)
    )[0]
    edges = tuple(torch.from_numpy(data[f"pheromone_{side}"].astype(np.int64)) for side in "uv")
    candidate = found[edges] > 0
    assert float(candidate.float().mean()) > 0.9
    expected = torch.from_numpy(data["pheromone_val"])
    torch.testing.assert_close(
        found[edges][candidate].float(), expected[candidate], atol=3e-6, rtol=0
    )


def test_foreign_weights_raise(tmp_path: Path):
    policy = DeepACOPolicy(embed_dim=8, num_layers_graph_encoder=2)
    with pytest.raises(FileFormatError, match="DeepACO or GFACS"):
        deepaco.load_original_weights({"a": torch.zeros(2)}, "tsp")
    with pytest.raises(FileFormatError, match="other"):
        gfacs.load_original_weights(original_keys(policy), "tsp")  # no log Z
    with pytest.raises(FileFormatError, match="another problem"):
        deepaco.load_original_weights(original_keys(policy), "cvrp")
    with pytest.raises(UnknownNameError, match="cvrp, tsp"):
        deepaco.load_original_weights({}, "op")
    with pytest.raises(FileNotFoundError):
        deepaco.load_original_weights(tmp_path / "none.npz", "tsp")
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match="truncated"):
        gfacs.load_original_weights(tmp_path / "broken.npz", "tsp")


def original_keys(policy: DeepACOPolicy) -> dict[str, torch.Tensor]:
    """A policy's weights under the original names."""
    names = {
        "encoder.edge_embedding.node_embed": "emb_net.v_lin0",
        "encoder.edge_embedding.edge_embed": "emb_net.e_lin0",
    }
    parts = {
        "own": "v_lins1", "message": "v_lins2", "origin": "v_lins3", "destination": "v_lins4",
        "edge": "e_lins0", "norm_nodes": "v_bns", "norm_edges": "e_bns",
    }  # fmt: skip
    found = {}
    for key, value in policy.state_dict().items():
        module, _, kind = key.rpartition(".")
        words = module.split(".")
        if module in names:
            name = names[module]
        elif "net" in words:
            wrapped = ".module" if "norm" in words[4] else ""
            name = f"emb_net.{parts[words[4]]}.{words[3]}{wrapped}"
        else:
            name = f"par_net_heu.lins.{words[3]}"
        found[f"{name}.{kind}"] = value
    return found


def test_round_trip_through_original_names():
    policy = DeepACOPolicy(embed_dim=8, num_layers_graph_encoder=3, k_sparse=4).eval()
    again = deepaco.load_original_weights(original_keys(policy), "tsp", k_sparse=4)
    env = get_env("tsp")
    td = env.reset(batch_size=2)
    assert torch.equal(again.heatmap(td), policy.heatmap(td))


# ---------------------------------------------------------------- pieces


def test_backward_probabilities_by_hand():
    """Routes 1-2, 3 and 4-5: six orders, two of them in two directions; tours of five: ten ways."""
    routes = torch.tensor([[[1, 2, 0, 3, 0, 4, 5, 0, 0]]])
    assert float(log_backward_of_routes(routes)) == pytest.approx(-math.log(6 * 4))
    assert float(log_backward_of_routes(torch.tensor([[[3, 0]]]))) == pytest.approx(0.0)
    assert float(log_backward_of_tours(torch.zeros(1, 1, 5))) == pytest.approx(-math.log(10))


def test_backward_probability_does_not_depend_on_padding():
    short, padded = torch.tensor([[[1, 2, 0, 3]]]), torch.tensor([[[1, 2, 0, 3, 0, 0, 0]]])
    assert torch.equal(log_backward_of_routes(short), log_backward_of_routes(padded))


def test_trajectory_balance_by_hand():
    """(1 - 2 + 3 + 10 * 0.5)^2 = 49 and (1 - 4 + 3 - 5)^2 = 25."""
    loss = trajectory_balance_loss(
        torch.tensor([1.0]), torch.tensor([[-2.0, -4.0]]), torch.tensor([[-3.0, -3.0]]),
        torch.tensor([[0.5, -0.5]]), 10.0,
    )  # fmt: skip
    assert float(loss) == pytest.approx(37.0)


def test_log_z_is_of_each_instance_alone():
    policy = GFACSPolicy(embed_dim=8, num_layers_graph_encoder=2).eval()
    env = get_env("tsp")
    td = env.reset(batch_size=4)
    together = policy.log_z(policy.edge_weights(td))
    alone = torch.cat([policy.log_z(policy.edge_weights(td[b : b + 1])) for b in range(4)])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-6)
    assert float(together.detach().std(0).min()) > 1e-6, "instances differ"


def test_ramps():
    """From the first epoch to the fifth before the end."""
    assert ramp(1.0, 2.0, 1, 50) == 1.0 and ramp(1.0, 2.0, 50, 50) == 2.0
    assert ramp(200.0, 1000.0, 1, 50, logarithmic=True) == 200.0
    assert ramp(200.0, 1000.0, 45, 50, logarithmic=True) == pytest.approx(1000.0)
    assert ramp(0.0, 1.0, 1, 1) == 0.0


def test_bad_settings_raise():
    env = get_env("tsp", generator_params={"num_loc": 8})
    td = env.reset(batch_size=2)
    with pytest.raises(ConfigError, match="1 to 7 candidate edges"):
        NARGNNPolicy(k_sparse=8).heatmap(td)
    for k_sparse in (0, 2.5, "3"):
        with pytest.raises(ConfigError, match="k_sparse"):
            NARGNNPolicy(k_sparse=k_sparse)
    policy = NARGNNPolicy(num_layers_graph_encoder=1)
    with pytest.raises(ConfigError, match="positive temperature"):
        policy.sample(td, env, 2, policy.edge_weights(td), temperature=0.0)
    with pytest.raises(ConfigError, match="n_ants"):
        DeepACOPolicy(n_ants=0)
    for n_ants in (2.5, True, {"train": "3"}):
        with pytest.raises(ConfigError, match="an integer"):
            DeepACOPolicy(n_ants=n_ants)
    with pytest.raises(UnknownNameError, match="n_ants"):
        DeepACOPolicy(aco_kwargs={"n_ants": 3})
    assert DeepACOPolicy(n_ants=48, aco_kwargs={"n_improved": 30}).colony.n_improved == 30
    with pytest.raises(ConfigError, match="1 to 5 ants to improve"):
        DeepACOPolicy(n_ants=5, aco_kwargs={"n_improved": 10})
    with pytest.raises(UnknownNameError, match="decay"):
        DeepACOPolicy(aco_kwargs={"decai": 0.9})
    with pytest.raises(UnsupportedError, match="edge embedding"):
        NARGNNPolicy(env_name="pdp")
    with pytest.raises(UnsupportedError, match="edge embedding"):
        DeepACO(get_env("pdp"))
    with pytest.raises(UnknownNameError, match="coordinates"):
        NARGNNPolicy(edge_options={"nodes": "colours"})
    with pytest.raises(ConfigError, match="alpha_min"):
        GFACS(env, alpha_min=0.9, alpha_max=0.5)
    broken = NARGNNPolicy(num_layers_graph_encoder=1).eval()
    broken.encoder.head.layers[0].bias.data.fill_(torch.nan)
    with pytest.raises(NotFiniteError, match="weights of edges"):
        broken.heatmap(td)


def test_edge_embeddings_by_name():
    """The published way to build one."""
    embedding = env_edge_embedding("cvrp", {"embed_dim": 4, "k_sparse": 3})
    env = get_env("cvrp", generator_params={"num_loc": 6})
    embedded = embedding(env.reset(batch_size=2))
    assert embedded.nodes.shape == (2, 7, 4)
    assert embedded.edges.shape == (2, 6 * 4 + 6, 4)


def test_ants_are_a_decode_type():
    env = get_env("cvrp", generator_params={"num_loc": 15}, seed=0)
    td = env.reset(batch_size=3)
    policy = DeepACOPolicy(env_name="cvrp", embed_dim=8, num_layers_graph_encoder=2).eval()
    out = policy(td, env, decode_type="ants", n_ants=5, n_iterations=2)
    env.check_solution_validity(td, out["actions"])
    greedy = policy(td, env, decode_type="greedy")["reward"]
    assert bool((out["reward"] >= greedy).all())
    with pytest.raises(UnknownNameError, match="n_ants"):
        policy(td, env, decode_type="ants", ants=5)
    # As published: ants at validation and test, unless something else is asked for.
    own = policy(td, env, phase="test", n_ants=5, n_iterations=2, return_actions=False)
    assert torch.equal(own["reward"], out["reward"])
    assert "actions" not in own
    given = policy(td, env, phase="test", actions=out["actions"])
    assert torch.allclose(given["reward"], out["reward"])
    assert given["log_likelihood"].shape == (3,)


def test_published_settings_of_the_colony():
    published = {"use_local_search": True, "use_nls": True, "n_perturbations": 3,
                 "local_search_params": {"max_iterations": 5}}  # fmt: skip
    colony = DeepACOPolicy(aco_kwargs=published).colony
    assert (colony.use_local_search, colony.guided_rounds) == (True, 3)
    assert colony.local_search_kwargs == {"max_iterations": 5}
    assert DeepACOPolicy(aco_kwargs={"n_perturbations": 3}).colony.guided_rounds == 0
    with pytest.raises(UnknownNameError, match="decay"):
        DeepACOPolicy(aco_kwargs={"evaporation": 0.1})


# ---------------------------------------------------------------- custom weights


def by_distance(td):
    """One over the distances, `[B, N, N]`."""
    distances = torch.cdist(td["locs"], td["locs"])
    return 1.0 / (distances + torch.eye(distances.shape[-1])).clamp_min(1e-6)


class ByDistance(DeepACOPolicy):
    calls = 0

    def heatmap(self, td):
        self.calls += 1
        return by_distance(td)


class Sharpened(DeepACOPolicy):
    def heatmap(self, td):
        return super().heatmap(td) ** 2


SMALL = {"embed_dim": 8, "num_layers_graph_encoder": 2, "n_ants": 4, "n_iterations": 1}


def weights_of(policy, td):
    with torch.no_grad():
        return policy.edge_weights(td)


def test_an_overridden_heatmap_takes_effect_everywhere():
    env = get_env("tsp", generator_params={"num_loc": 12}, seed=0)
    td = env.reset(batch_size=3)
    policy = ByDistance(**SMALL).eval()
    hidden = weights_of(policy, td)
    assert torch.equal(hidden.weights, hidden.graph.gather(by_distance(td)))
    for settings in ({"decode_type": "greedy"}, {"phase": "test"}):
        before = policy.calls
        actions = policy(td, env, **settings)["actions"]
        assert policy.calls > before
        env.check_solution_validity(td, actions)
    # Likelihoods are those of the new weights.
    expected = edge_log_likelihood(
        env, dict(td.items()), hidden.graph, hidden.weights, actions.unsqueeze(1)
    )
    found = policy.evaluate(td, actions, env)["log_likelihood"]
    torch.testing.assert_close(found, expected.squeeze(1))


@pytest.mark.parametrize("method", [DeepACO, GFACS])
def test_training_uses_an_overridden_heatmap(method):
    """Gradients of the network pass through it."""
    env = get_env("tsp", generator_params={"num_loc": 12}, seed=0)
    base = GFACSPolicy if method is GFACS else DeepACOPolicy

    class Scaled(base):
        calls = 0

        def heatmap(self, td):
            self.calls += 1
            return super().heatmap(td) ** 2

    policy = Scaled(**SMALL)
    model = method(env, policy, train_with_local_search=False)
    model.shared_step(env.generator(2), 0, "train")["loss"].backward()
    assert policy.calls == 1
    assert policy.encoder.head.layers[0].weight.grad.abs().sum() > 0
    model.shared_step(env.generator(2), 0, "test")
    assert policy.calls == 2


def test_a_patched_heatmap_takes_effect(monkeypatch):
    env = get_env("tsp", generator_params={"num_loc": 12}, seed=0)
    td = env.reset(batch_size=3)
    expected = weights_of(ByDistance(**SMALL).eval(), td).weights
    policy = DeepACOPolicy(**SMALL).eval()
    policy.heatmap = by_distance
    assert torch.equal(weights_of(policy, td).weights, expected)
    monkeypatch.setattr(NARGNNPolicy, "heatmap", lambda self, td: by_distance(td))
    assert torch.equal(weights_of(DeepACOPolicy(**SMALL).eval(), td).weights, expected)


def test_an_override_may_change_the_weights_of_the_network():
    env = get_env("cvrp", generator_params={"num_loc": 12}, seed=0)
    td = env.reset(batch_size=3)
    policy = Sharpened(env_name="cvrp", **SMALL).eval()
    plain = DeepACOPolicy(env_name="cvrp", **SMALL).eval()
    plain.load_state_dict(policy.state_dict())
    sharp, base = weights_of(policy, td), weights_of(plain, td)
    torch.testing.assert_close(sharp.weights, base.weights**2)
    env.check_solution_validity(td, policy(td, env, decode_type="sampling")["actions"])


def test_a_heuristic_replaces_the_weights():
    env = get_env("tsp", generator_params={"num_loc": 12}, seed=0)
    td = env.reset(batch_size=3)
    reference = ByDistance(**SMALL).eval()
    policy = DeepACOPolicy(heuristic=by_distance, **SMALL).eval()
    for heuristic in (by_distance(td), by_distance, weights_of(reference, td).weights):
        torch.testing.assert_close(
            weights_of(policy, td).weights, policy.edge_weights(td, heuristic).weights
        )
        out = policy(td, env, phase="test", heuristic=heuristic)
        assert torch.equal(out["reward"], reference(td, env, phase="test")["reward"])
    assert torch.equal(
        policy(td, env, decode_type="greedy")["actions"],
        reference(td, env, decode_type="greedy")["actions"],
    )
    with pytest.raises(ConfigError, match="shape"):
        policy.edge_weights(td, torch.ones(3, 5))
    with pytest.raises(ConfigError, match="finite"):
        policy.edge_weights(td, torch.full((3, 12, 12), -1.0))


class CountsRows(TSPEnv):
    """Its search, also the public one, needs a state for every solution."""

    def local_search(self, td, actions, **options):
        assert len(td) == len(actions)
        return super().local_search(td, actions, **options)

    def _local_search(self, state, actions, **options):
        assert len(state["locs"]) == len(actions)
        return super()._local_search(state, actions, **options)


@pytest.mark.parametrize("method", [DeepACO, GFACS])
@pytest.mark.parametrize("rounds", [0, 2])
def test_searches_of_training_get_a_state_for_every_solution(method, rounds):
    env = CountsRows(generator_params={"num_loc": 12}, seed=0)
    model = method(env, policy_kwargs=SMALL, guided_rounds=rounds, seed=1)
    out = model.shared_step(env.generator(3), 0, "train")
    assert bool((out["improved_reward"] >= out["reward"].mean() - 5).all())
    plain = method(get_env("tsp", generator_params={"num_loc": 12}, seed=0), model.policy,
                   guided_rounds=rounds, seed=1)  # fmt: skip
    expected = plain.shared_step(plain.env.generator(3), 0, "train")
    assert out["improved_reward"].shape == expected["improved_reward"].shape


# ---------------------------------------------------------------- learning


def learn(model, steps: int, lr: float) -> None:
    optimizer = torch.optim.AdamW(model.policy.parameters(), lr=lr)
    model.train()
    for step in range(steps):
        batch = model.env.generator(8, rng=derive_generator("learning", step))
        optimizer.zero_grad()
        model.shared_step(batch, step, "train")["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.policy.parameters(), 3.0)
        optimizer.step()


@torch.no_grad()
def mean_ant(model) -> torch.Tensor:
    """Mean reward `[B]` of ants without any search."""
    td = model.env.reset(model.env.generator(32, rng=derive_generator("judged")))
    policy = model.policy.eval()
    hidden = policy.edge_weights(td)
    actions = policy.sample(td, model.env, 20, hidden, derive_generator("ants"))
    return deepaco.ant_rewards(model.env, td, actions).mean(1)


@pytest.mark.learning
@pytest.mark.parametrize(
    ("method", "problem"),
    [("deepaco", "cvrp"), ("deepaco", "op"), ("gfacs", "tsp"), ("gfacs", "pctsp")],
)
def test_seconds_of_training_help(method: str, problem: str, require):
    """The mean ant of a trained network is clearly better: paired over instances."""
    torch.manual_seed(0)
    env = get_env(problem, generator_params={"num_loc": 20})
    settings = {"embed_dim": 16, "num_layers_graph_encoder": 4, "n_ants": 12}
    if method == "deepaco":
        model = DeepACO(env, policy_kwargs=settings, train_with_local_search=False, seed=1)
        learn(model, 40, 3e-3)
    else:
        model = GFACS(env, policy_kwargs=settings, beta_min=20.0, beta_max=20.0, seed=1)
        learn(model, 60, 3e-3)
    after = mean_ant(model)
    torch.manual_seed(0)
    untrained = type(model)(env, policy_kwargs=settings, seed=1)
    gain = after - mean_ant(untrained)
    require("t of the gain", paired_t(gain), above=4.0)
