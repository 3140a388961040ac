"""Init and context embeddings against the formula written out."""

from __future__ import annotations

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import UnknownNameError, UnsupportedError
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models.embeddings import (
    ContextEmbedding,
    DynamicEmbedding,
    EmbeddingConfig,
    make_embeddings,
)

DIM = 6


def cvrp_instance(rng, batch: int = 3, units: float = 1.0) -> TensorDict:
    """Four customers; demands and vehicles in multiples of `units`."""
    instance = {
        "locs": torch.rand(batch, 4, 2, generator=rng),
        "depot": torch.rand(batch, 2, generator=rng),
        "demand": units * torch.tensor([0.1, 0.4, 0.3, 0.2]).expand(batch, -1),
        "capacity": torch.full((batch, 1), 30.0),
        "vehicle_capacity": torch.full((batch, 1), units),
    }
    return TensorDict(instance, batch_size=batch)


# ---------------------------------------------------------------- init


@pytest.mark.parametrize("bias", [True, False])
def test_tsp_init(bias, rng):
    """W (x, y) + b for every node."""
    init = make_embeddings("tsp", EmbeddingConfig(DIM, linear_bias=bias)).init
    locs = torch.rand(3, 5, 2, generator=rng)
    td = TSPEnv().reset(TensorDict({"locs": locs}, batch_size=3))
    out = init(td)
    weight = init.init_embed.weight
    for b in range(3):
        for n in range(5):
            expected = weight[:, 0] * locs[b, n, 0] + weight[:, 1] * locs[b, n, 1]
            expected = expected + (init.init_embed.bias if bias else 0.0)
            torch.testing.assert_close(out[b, n], expected)


@pytest.mark.parametrize("bias", [True, False])
def test_cvrp_init(bias, rng):
    """A map of its own for the depot, in front; (x, y, demand) for customers."""
    init = make_embeddings("cvrp", EmbeddingConfig(DIM, linear_bias=bias)).init
    instance = cvrp_instance(rng)
    out = init(CVRPEnv().reset(instance))
    assert out.shape == (3, 5, DIM)
    depot, customers = init.init_embed_depot, init.init_embed
    for b in range(3):
        expected = depot.weight @ instance["depot"][b] + (depot.bias if bias else 0.0)
        torch.testing.assert_close(out[b, 0], expected)
        for n in range(4):
            features = torch.cat([instance["locs"][b, n], instance["demand"][b, n : n + 1]])
            expected = customers.weight @ features + (customers.bias if bias else 0.0)
            torch.testing.assert_close(out[b, n + 1], expected)


@torch.no_grad()
def test_cvrp_does_not_depend_on_units(rng):
    """Demands in tonnes or kilograms: what the network sees is relative to the vehicle."""
    parts = make_embeddings("cvrp", EmbeddingConfig(DIM))
    env = CVRPEnv()
    states = []
    for units in (1.0, 250.0):
        td = env.reset(cvrp_instance(torch.Generator().manual_seed(0), units=units))
        td["action"] = torch.tensor([2, 1, 4])
        states.append(env.step(td)["next"])
    inits = [parts.init(td) for td in states]
    torch.testing.assert_close(*inits)
    queries = []
    for td, hidden in zip(states, inits, strict=True):
        state = {key: value.unsqueeze(1) for key, value in td.items()}  # [B, 1, ...]
        queries.append(parts.context(parts.context.prepare(hidden), state))
    torch.testing.assert_close(*queries)


@pytest.mark.parametrize("env", [TSPEnv(), CVRPEnv()], ids=["tsp", "cvrp"])
def test_matrix_only_instances_raise(env, rng):
    """The message names the problem and the remedy."""
    instance = {"cost_matrix": torch.rand(2, 5, 5, generator=rng)}
    if env.name == "cvrp":
        instance |= {"demand": torch.full((2, 4), 0.2), "capacity": torch.ones(2, 1)}
    td = env.reset(TensorDict(instance, batch_size=2))
    init = make_embeddings(env.name, EmbeddingConfig(DIM)).init
    for state in (td, dict(td.items())):
        with pytest.raises(UnsupportedError, match=rf"{env.name}.*`locs`.*init_embedding"):
            init(state)


# ---------------------------------------------------------------- context


def plain_query(context: ContextEmbedding, parts: list[torch.Tensor]) -> torch.Tensor:
    """W [parts] (+ b), without any of the shortcuts."""
    return context.project_context(torch.cat(parts, -1))


def test_tsp_context(rng):
    """[first, last] in this order; the placeholder, whatever the nodes say, at step 0."""
    context = make_embeddings("tsp", EmbeddingConfig(DIM)).context
    hidden = torch.randn(2, 5, DIM, generator=rng)
    first = torch.tensor([[1, 3, 0], [4, 2, 0]])  # [B, Q]
    last = torch.tensor([[2, 3, 0], [0, 1, 0]])
    step = torch.tensor([[[3], [1], [0]], [[2], [4], [0]]])  # [B, Q, 1]
    state = {"first_node": first, "current_node": last, "i": step}
    out = context(context.prepare(hidden), state)
    assert out.shape == (2, 3, DIM)
    for b in range(2):
        for q in range(2):
            expected = plain_query(context, [hidden[b, first[b, q]], hidden[b, last[b, q]]])
            torch.testing.assert_close(out[b, q], expected)
        torch.testing.assert_close(out[b, 2], plain_query(context, [context.W_placeholder]))


def test_cvrp_context(rng):
    """[last node, 1 - used / vehicle]."""
    context = make_embeddings("cvrp", EmbeddingConfig(DIM)).context
    hidden = torch.randn(2, 5, DIM, generator=rng)
    state = {
        "current_node": torch.tensor([[0, 3, 4], [2, 2, 1]]),
        "used_capacity": torch.tensor([[[0.0], [1.5], [0.5]], [[1.0], [2.0], [0.25]]]),
        "vehicle_capacity": torch.full((2, 3, 1), 2.0),
    }
    # 1 - used / 2
    free = [[1.0, 0.25, 0.75], [0.5, 0.0, 0.875]]
    out = context(context.prepare(hidden), state)
    for b in range(2):
        for q in range(3):
            node = hidden[b, state["current_node"][b, q]]
            expected = plain_query(context, [node, torch.tensor([free[b][q]])])
            torch.testing.assert_close(out[b, q], expected)


class Wide(ContextEmbedding):
    """Three nodes, two features and a bias: the general case."""

    state_keys = ("a", "b", "c", "x")

    def __init__(self) -> None:
        super().__init__(DIM, num_nodes=3, num_features=2, bias=True)

    def nodes(self, state):
        return state["a"], state["b"], state["c"]

    def features(self, state):
        return state["x"]


def test_any_number_of_nodes_and_features(rng):
    """Values and gradients of the general case against one large product."""
    context = Wide()
    hidden = torch.randn(2, 5, DIM, generator=rng, requires_grad=True)
    state = {key: torch.randint(5, (2, 4), generator=rng) for key in "abc"}
    state["x"] = torch.randn(2, 4, 2, generator=rng)
    out = context(context.prepare(hidden), state)
    rows = torch.arange(2).unsqueeze(-1)
    expected = plain_query(context, [*(hidden[rows, state[key]] for key in "abc"), state["x"]])
    torch.testing.assert_close(out, expected)
    weight = torch.randn(out.shape, generator=rng)
    parameters = (hidden, context.project_context.weight, context.project_context.bias)
    ours = torch.autograd.grad((weight * out).sum(), parameters)
    theirs = torch.autograd.grad((weight * expected).sum(), parameters)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("env", [TSPEnv(), CVRPEnv()], ids=["tsp", "cvrp"])
def test_declared_state_keys_are_sufficient(env):
    """A context reads nothing but what it declares: that is all a replay has."""
    context = make_embeddings(env.name, EmbeddingConfig(DIM)).context
    td = env.reset(batch_size=2)
    hidden = torch.randn(2, td["action_mask"].shape[-1], DIM)
    state = {key: td[key].unsqueeze(1) for key in context.state_keys}
    assert context(context.prepare(hidden), state).shape == (2, 1, DIM)


def test_dynamic_embedding_is_abstract():
    with pytest.raises(NotImplementedError):
        DynamicEmbedding()({})


def test_unknown_problem():
    with pytest.raises(UnknownNameError, match="did you mean 'cvrp'"):
        make_embeddings("cvpr", EmbeddingConfig(DIM))
