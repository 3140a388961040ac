"""Original Attention Model weights for OP, PCTSP, SPCTSP and SDVRP, against a model in NumPy.

The weights of the original code for these problems are not at hand. Random ones under the original
names are, and so is the description of the original network and of its states: both are written
down here once more, in NumPy and without a line of the library. The network computes in float64,
the states in float32, as the original ones do.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import FileFormatError
from rl4co.envs import OPEnv, PCTSPEnv, SDVRPEnv, SPCTSPEnv
from rl4co.models import load_original_weights

DIM, HEADS, SIZE, LAYERS, HIDDEN = 128, 8, 16, 3, 512
INSTANCES, CUSTOMERS, CAPACITY = 100, 20, 30
FEATURES = {"op": 3, "pctsp": 4, "spctsp": 4, "sdvrp": 3}
NUM_KEYS = {"op": 56, "pctsp": 56, "spctsp": 56, "sdvrp": 57}
F32 = np.float32
# Weights with which no instance is a close call.
SEEDS = {"op": 6, "pctsp": 33, "spctsp": 33, "sdvrp": 30}


# ---------------------------------------------------------------- network


def random_weights(problem: str, seed: int) -> dict[str, np.ndarray]:
    """Random arrays under the keys, and in the shapes, of an original checkpoint."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "init_embed.weight": (DIM, FEATURES[problem]),
        "init_embed.bias": (DIM,),
        "init_embed_depot.weight": (DIM, 2),
        "init_embed_depot.bias": (DIM,),
        "project_node_embeddings.weight": (3 * DIM, DIM),
        "project_fixed_context.weight": (DIM, DIM),
        "project_step_context.weight": (DIM, DIM + 1),
        "project_out.weight": (DIM, DIM),
    }
    if problem == "sdvrp":
        shapes["project_node_step.weight"] = (3 * DIM, 1)
    for layer in range(LAYERS):
        prefix = f"embedder.layers.{layer}"
        for part in ("query", "key", "val"):
            shapes[f"{prefix}.0.module.W_{part}"] = (HEADS, DIM, SIZE)
        shapes[f"{prefix}.0.module.W_out"] = (HEADS, SIZE, DIM)
        shapes[f"{prefix}.2.module.0.weight"] = (HIDDEN, DIM)
        shapes[f"{prefix}.2.module.0.bias"] = (HIDDEN,)
        shapes[f"{prefix}.2.module.2.weight"] = (DIM, HIDDEN)
        shapes[f"{prefix}.2.module.2.bias"] = (DIM,)
        for norm in (1, 3):
            for part in ("weight", "bias", "running_mean", "running_var"):
                shapes[f"{prefix}.{norm}.normalizer.{part}"] = (DIM,)
    weights = {}
    for key, shape in shapes.items():
        if key.endswith(("running_var", "normalizer.weight")):
            value = 0.5 + rng.random(shape)
        elif key.endswith(("bias", "running_mean")):
            value = 0.2 * rng.normal(size=shape)
        else:
            value = rng.normal(size=shape) / np.sqrt(shape[1] if len(shape) == 2 else DIM)
        weights[key] = value.astype(F32)
    # Positions around the middle, features that decide something, logits that tanh does not cut.
    weights["init_embed.weight"] *= np.array([2, 2] + [2 if problem == "op" else 10] * 2, F32)[
        : FEATURES[problem]
    ]
    weights["init_embed.bias"] -= weights["init_embed.weight"][:, :2].mean(-1)
    weights["project_step_context.weight"][:, -1] *= 5.0
    weights["project_out.weight"] *= 0.01
    return weights


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Network:
    """The original network for a batch of instances."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.w = {key: value.astype(np.float64) for key, value in weights.items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0.0)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        mean, var = (self.w[f"{name}.normalizer.running_{part}"] for part in ("mean", "var"))
        scale, shift = (self.w[f"{name}.normalizer.{part}"] for part in ("weight", "bias"))
        return (x - mean) / np.sqrt(var + 1e-5) * scale + shift

    def encode(self, depot: np.ndarray, customers: np.ndarray) -> None:
        """`[B, 2]` and features `[B, n, f]` → what all steps share."""
        first = self.linear("init_embed_depot", depot.astype(np.float64))[:, None]
        h = np.concatenate([first, self.linear("init_embed", customers.astype(np.float64))], 1)
        for layer in range(LAYERS):
            name = f"embedder.layers.{layer}"
            q, k, v = (
                np.einsum("bnd,hde->bhne", h, self.w[f"{name}.0.module.W_{part}"])
                for part in ("query", "key", "val")
            )
            heads = softmax(q @ k.swapaxes(-2, -1) / np.sqrt(SIZE)) @ v
            update = np.einsum("bhne,hed->bnd", heads, self.w[f"{name}.0.module.W_out"])
            h = self.norm(f"{name}.1", h + update)
            hidden = np.maximum(self.linear(f"{name}.2.module.0", h), 0.0)
            h = self.norm(f"{name}.3", h + self.linear(f"{name}.2.module.2", hidden))
        self.h = h
        self.fixed = self.linear("project_fixed_context", h.mean(1))
        self.projected = self.linear("project_node_embeddings", h)

    def log_probs(
        self,
        previous: np.ndarray,
        feature: np.ndarray,
        forbidden: np.ndarray,
        demand: np.ndarray | None = None,
    ) -> np.ndarray:
        """Log-probabilities `[B, N]` of one step."""
        batch = np.arange(len(previous))
        context = np.concatenate([self.h[batch, previous], feature[:, None].astype(float)], -1)
        query = self.fixed + self.linear("project_step_context", context)
        nodes = self.projected
        if demand is not None:
            nodes = nodes + self.linear("project_node_step", demand[..., None].astype(float))
        keys, values, logit_keys = np.split(nodes, 3, axis=-1)
        split = (len(batch), -1, HEADS, SIZE)
        scores = np.einsum("bhe,bnhe->bhn", query.reshape(-1, HEADS, SIZE), keys.reshape(split))
        scores = np.where(forbidden[:, None], -np.inf, scores / np.sqrt(SIZE))
        heads = np.einsum("bhn,bnhe->bhe", softmax(scores), values.reshape(split))
        glimpse = self.linear("project_out", heads.reshape(-1, DIM))
        logits = 10.0 * np.tanh(np.einsum("bd,bnd->bn", glimpse, logit_keys) / np.sqrt(DIM))
        logits = np.where(forbidden, -np.inf, logits)
        shifted = logits - logits.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# ---------------------------------------------------------------- states


class State:
    """What the original states have in common: True in `forbidden` is masked."""

    demand: np.ndarray | None = None

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.data = data
        self.coords = np.concatenate([data["depot"][:, None], data["locs"]], 1)  # [B, N, 2]
        self.rows = np.arange(len(self.coords))
        self.previous = np.zeros(len(self.coords), dtype=np.int64)
        self.visited = np.zeros(self.coords.shape[:2], dtype=bool)
        self.steps = 0

    def distances(self, node: np.ndarray) -> np.ndarray:
        """From one node of each instance to all, float32."""
        difference = self.coords - self.coords[self.rows, node][:, None]
        return np.sqrt((difference * difference).sum(-1))

    def move(self, action: np.ndarray) -> None:
        self.visited[self.rows, action] = True
        self.previous = action
        self.steps += 1

    def tour_length(self, actions: np.ndarray) -> np.ndarray:
        walk = np.pad(actions, ((0, 0), (1, 1)))
        points = self.coords[self.rows[:, None], walk].astype(np.float64)
        return np.sqrt((np.diff(points, axis=1) ** 2).sum(-1)).sum(-1)

    def finished(self) -> bool:
        return self.steps > 0 and not self.previous.any()


class OP(State):
    def __init__(self, data: dict[str, np.ndarray]) -> None:
        super().__init__(data)
        self.limit = data["max_length"][:, None] - self.distances(self.previous) - F32(1e-6)
        self.length = np.zeros(len(self.rows), dtype=F32)

    def customers(self) -> np.ndarray:
        return np.concatenate([self.data["locs"], self.data["prize"][..., None]], -1)

    def feature(self) -> np.ndarray:
        return self.limit[:, 0] - self.length

    def forbidden(self) -> np.ndarray:
        too_long = self.length[:, None] + self.distances(self.previous) > self.limit
        mask = self.visited | self.visited[:, :1] | too_long
        mask[:, 0] = False
        return mask

    def move(self, action: np.ndarray) -> None:
        self.length = self.length + self.distances(self.previous)[self.rows, action]
        super().move(action)

    def cost(self, actions: np.ndarray) -> np.ndarray:
        prize = np.pad(self.data["prize"].astype(np.float64), ((0, 0), (1, 0)))
        return -prize[self.rows[:, None], actions].sum(-1)


class PCTSP(State):
    paid = "deterministic_prize"

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        super().__init__(data)
        self.prize = np.pad(data[self.paid], ((0, 0), (1, 0)))
        self.collected = np.zeros(len(self.rows), dtype=F32)

    def customers(self) -> np.ndarray:
        features = (self.data["deterministic_prize"], self.data["penalty"])
        return np.concatenate([self.data["locs"], np.stack(features, -1)], -1)

    def feature(self) -> np.ndarray:
        return np.maximum(F32(1) - self.collected, 0)

    def forbidden(self) -> np.ndarray:
        mask = self.visited | self.visited[:, :1]
        mask[:, 0] = (self.collected < 1) & ~self.visited[:, 1:].all(-1)
        return mask

    def move(self, action: np.ndarray) -> None:
        self.collected = self.collected + self.prize[self.rows, action]
        super().move(action)

    def cost(self, actions: np.ndarray) -> np.ndarray:
        penalty = np.pad(self.data["penalty"].astype(np.float64), ((0, 0), (1, 0)))
        left_out = np.where(self.visited, 0.0, penalty).sum(-1)
        return self.tour_length(actions) + left_out


class SPCTSP(PCTSP):
    paid = "stochastic_prize"


class SDVRP(State):
    """Demands and loads in float32 fractions of a vehicle, compared without tolerance."""

    full: float = 1.0
    scale: float = 1.0

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        super().__init__(data)
        self.left = np.pad(self.units(), ((0, 0), (1, 0)))
        self.used = np.zeros_like(self.left[:, 0])

    def units(self) -> np.ndarray:
        return self.data["demand"]

    def customers(self) -> np.ndarray:
        return np.concatenate([self.data["locs"], self.data["demand"][..., None]], -1)

    def feature(self) -> np.ndarray:
        return (self.full - self.used) / self.scale

    @property
    def demand(self) -> np.ndarray:  # type: ignore[override]
        return self.left / self.scale

    def forbidden(self) -> np.ndarray:
        mask = (self.left == 0) | (self.used >= self.full)[:, None]
        mask[:, 0] = (self.previous == 0) & ~mask[:, 1:].all(-1)
        return mask

    def move(self, action: np.ndarray) -> None:
        delivered = np.minimum(self.left[self.rows, action], self.full - self.used)
        self.used = np.where(action == 0, np.zeros_like(self.used), self.used + delivered)
        self.left[self.rows, action] -= delivered
        super().move(action)

    def finished(self) -> bool:
        return self.steps >= self.left.shape[1] and not (self.left > 0).any()

    def cost(self, actions: np.ndarray) -> np.ndarray:
        return self.tour_length(actions)


class ExactSDVRP(SDVRP):
    """The same rules in whole units: no remainder is a matter of rounding."""

    full, scale = CAPACITY, CAPACITY

    def units(self) -> np.ndarray:
        return self.data["units"]


def decode(network: Network, state: State) -> dict[str, np.ndarray]:
    """Greedy solutions of all instances, with cost and log-likelihood."""
    network.encode(state.data["depot"], state.customers())
    actions, likelihood = [], np.zeros(len(state.rows))
    margin = np.full(len(state.rows), np.inf)
    while not state.finished():
        log_probs = network.log_probs(
            state.previous, state.feature(), state.forbidden(), state.demand
        )
        best = log_probs.argmax(-1)
        likelihood += log_probs[state.rows, best]
        ranked = np.sort(log_probs, -1)
        margin = np.minimum(margin, ranked[:, -1] - ranked[:, -2])
        actions.append(best)
        state.move(best)
    solution = np.stack(actions, -1)
    return {
        "actions": solution,
        "cost": state.cost(solution),
        "log_likelihood": likelihood,
        "margin": margin,
    }


# ---------------------------------------------------------------- comparison


def make_data(problem: str, seed: int = 1) -> dict[str, np.ndarray]:
    """Instances as the original code draws them."""
    rng = np.random.default_rng(seed)
    shape = (INSTANCES, CUSTOMERS)
    data = {"depot": rng.random((INSTANCES, 2)), "locs": rng.random((*shape, 2))}
    if problem == "op":
        distance = np.sqrt(((data["locs"] - data["depot"][:, None]) ** 2).sum(-1))
        data["prize"] = (1 + np.floor(distance / distance.max(-1, keepdims=True) * 99)) / 100
        data["max_length"] = np.full(INSTANCES, 2.0)
    elif problem in ("pctsp", "spctsp"):
        data["penalty"] = rng.random(shape) * 3 * 2.0 / CUSTOMERS
        data["deterministic_prize"] = rng.random(shape) * 4 / CUSTOMERS
        data["stochastic_prize"] = rng.random(shape) * 2 * data["deterministic_prize"]
    data = {key: value.astype(F32) for key, value in data.items()}
    if problem == "sdvrp":
        data["units"] = rng.integers(1, 10, shape)
        data["demand"] = data["units"].astype(F32) / F32(CAPACITY)
    return data


def as_instances(data: dict[str, np.ndarray]) -> TensorDict:
    tensors = {key: torch.from_numpy(value) for key, value in data.items() if key != "units"}
    if "units" in data:
        tensors["capacity"] = torch.full((len(data["locs"]), 1), float(CAPACITY))
    return TensorDict(tensors, batch_size=len(data["locs"]))


CASES = {
    "op": (OPEnv, {}, OP),
    "pctsp": (PCTSPEnv, {}, PCTSP),
    "spctsp": (SPCTSPEnv, {}, SPCTSP),
    "sdvrp": (SDVRPEnv, {}, ExactSDVRP),
    "sdvrp, float32": (SDVRPEnv, {"capacity_tolerance": 0.0}, SDVRP),
}


@functools.cache
@torch.inference_mode()
def solve(case: str) -> dict[str, np.ndarray]:
    """What the library makes of the weights, under the names of :func:`decode`."""
    problem = case.partition(",")[0]
    env_cls, settings, _ = CASES[case]
    env = env_cls(**settings)
    policy = load_original_weights(random_weights(problem, SEEDS[problem]), problem)
    out = policy(env.reset(as_instances(make_data(problem))), env, phase="test")
    return {
        "actions": out["actions"].numpy(),
        "cost": -out["reward"].numpy(),
        "log_likelihood": out["log_likelihood"].numpy(),
    }


@functools.cache
def decode_again(problem: str, state_cls: type[State]) -> dict[str, np.ndarray]:
    weights = random_weights(problem, SEEDS[problem])
    assert len(weights) == NUM_KEYS[problem]
    return decode(Network(weights), state_cls(make_data(problem)))


def same_actions(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which rows are equal, up to stays at the depot in the end: `[B]`."""
    steps = max(a.shape[1], b.shape[1])
    a, b = (np.pad(x, ((0, 0), (0, steps - x.shape[1]))) for x in (a, b))
    return (a == b).all(-1)


@pytest.mark.parametrize("case", CASES)
def test_greedy_solutions(case: str):
    """The same actions, costs and log-likelihoods for every instance."""
    ours, theirs = solve(case), decode_again(case.partition(",")[0], CASES[case][2])
    assert theirs["margin"].min() > 1e-4
    assert theirs["log_likelihood"].max() < -0.5, "no instance is solved without a choice"
    assert len(np.unique(theirs["actions"], axis=0)) > 90, "instances are solved differently"
    assert same_actions(ours["actions"], theirs["actions"]).all()
    np.testing.assert_allclose(ours["cost"], theirs["cost"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(ours["log_likelihood"], theirs["log_likelihood"], atol=5e-4, rtol=0)


# ---------------------------------------------------------------- the comparison can fail


class BlindOP(OP):
    """Does not know how much length is left."""

    def feature(self) -> np.ndarray:
        return self.data["max_length"]


class OneWayOP(OP):
    """Forgets the way back."""

    def forbidden(self) -> np.ndarray:
        too_long = self.length[:, None] + self.distances(self.previous) > self.limit[:, :1]
        mask = super().forbidden() & (self.visited | self.visited[:, :1] | too_long)
        return mask


class SwappedPCTSP(PCTSP):
    """Penalty before prize."""

    def customers(self) -> np.ndarray:
        return super().customers()[..., [0, 1, 3, 2]]


class OverdrawnPCTSP(PCTSP):
    """Counts below zero what is still to be collected."""

    def feature(self) -> np.ndarray:
        return F32(1) - self.collected


class ClairvoyantSPCTSP(SPCTSP):
    """The network sees what a visit will earn."""

    def customers(self) -> np.ndarray:
        features = (self.data["stochastic_prize"], self.data["penalty"])
        return np.concatenate([self.data["locs"], np.stack(features, -1)], -1)


class StaticSDVRP(ExactSDVRP):
    """The network does not see what has been delivered."""

    @property
    def demand(self) -> np.ndarray:  # type: ignore[override]
        return np.pad(self.units(), ((0, 0), (1, 0))) / self.scale


WRONG = {
    "op": (BlindOP, OneWayOP),
    "pctsp": (SwappedPCTSP, OverdrawnPCTSP, SPCTSP),
    "spctsp": (ClairvoyantSPCTSP, PCTSP),
    "sdvrp": (StaticSDVRP, SDVRP),
    "sdvrp, float32": (ExactSDVRP,),
}


@pytest.mark.parametrize("case", WRONG)
def test_details_matter(case: str):
    """A state that is wrong in one of its details gives other solutions or likelihoods."""
    ours = solve(case)
    for wrong in WRONG[case]:
        theirs = decode_again(case.partition(",")[0], wrong)
        same = same_actions(ours["actions"], theirs["actions"])
        same &= np.abs(ours["log_likelihood"] - theirs["log_likelihood"]) < 5e-4
        assert same.sum() < 0.95 * INSTANCES, wrong.__name__


def test_weights_of_another_problem():
    """Shapes and keys tell most problems apart, and the message says so."""
    for problem, other in (("op", "pctsp"), ("pctsp", "op"), ("op", "sdvrp"), ("sdvrp", "op")):
        with pytest.raises(FileFormatError, match=f"weights for {other}.*another problem"):
            load_original_weights(random_weights(problem, 0), other)
