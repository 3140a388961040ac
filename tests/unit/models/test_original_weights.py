"""Weights of the original Attention Model code: the published numbers, instance by instance.

Where the reference set is absent, random weights in the original format are compared with a small
NumPy implementation of the original model.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile

from pathlib import Path

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import FileFormatError, UnknownNameError
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import load_original_weights

SETS = ("tsp_20", "tsp_50", "cvrp_20", "cvrp_50")


# ---------------------------------------------------------------- the reference set


@pytest.fixture(scope="module")
def reference(shared_dir: Path) -> Path:
    folder = shared_dir / "reference" / "attention_model"
    if not folder.is_dir():
        pytest.skip(f"no reference results in {folder}")
    return folder


def instances(data) -> TensorDict:
    """The reference's instances in the library's keys."""
    keys = {key: torch.from_numpy(data[key]) for key in ("locs", "depot", "demand") if key in data}
    if "capacity" in data:
        keys["capacity"] = torch.from_numpy(data["capacity"]).float().unsqueeze(-1)
    return TensorDict(keys, batch_size=len(data["locs"]))


def assert_reproduces(out, data, suffix: str = "", rows=slice(None)) -> None:
    """Equal actions (up to padding), costs to 1e-5, log-likelihoods to 5e-4, on the given rows."""
    expected = torch.from_numpy(data[f"actions{suffix}"])[rows]
    actions = out["actions"][rows]
    length = max(expected.shape[1], actions.shape[1])
    padded = [torch.nn.functional.pad(x, (0, length - x.shape[1])) for x in (actions, expected)]
    assert torch.equal(*padded)
    cost = torch.from_numpy(data[f"cost{suffix}"])[rows]
    torch.testing.assert_close(-out["reward"][rows].double(), cost, atol=1e-5, rtol=0)
    likelihood = torch.from_numpy(data[f"log_likelihood{suffix}"])[rows]
    torch.testing.assert_close(out["log_likelihood"][rows].double(), likelihood, atol=5e-4, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize("name", SETS)
def test_reference_results(name, reference):
    """All 256 instances of each set.

    The original code rejects some vehicles that are exactly full, by float32 rounding: with the
    tolerance of the default environment the results are those of exact capacities; without it, or
    where rounding plays no role, they are the original ones.
    """
    problem = name.split("_")[0]
    data = np.load(reference / f"{name}.npz", allow_pickle=False)
    policy = load_original_weights(reference / "weights" / f"{name}.npz", problem)
    assert not policy.training
    if problem == "tsp":
        env = TSPEnv()
        out = policy(env.reset(instances(data)), env, phase="test")
        assert len(out["reward"]) == 256
        assert_reproduces(out, data)
        return
    env = CVRPEnv()
    out = policy(env.reset(instances(data)), env, phase="test")
    assert_reproduces(out, data, "_exactcap")
    unflagged = torch.from_numpy(~data["mask_differs_from_exact"])
    assert 0 < int(unflagged.sum()) < 256
    assert_reproduces(out, data, rows=unflagged)
    strict = CVRPEnv(capacity_tolerance=0.0)
    assert_reproduces(policy(strict.reset(instances(data)), strict, phase="test"), data)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["tsp_20", "cvrp_20"])
def test_every_source_gives_the_same_policy(name, reference, tmp_path):
    """An `.npz`, a state dict, arrays, and a `.pt` in the structure of the original code."""
    problem = name.split("_")[0]
    archive = reference / "weights" / f"{name}.npz"
    with np.load(archive, allow_pickle=False) as arrays:
        numpy_dict = dict(arrays)
    state_dict = {key: torch.from_numpy(value) for key, value in numpy_dict.items()}
    checkpoint = tmp_path / "epoch-99.pt"
    torch.save({"model": state_dict}, checkpoint)
    bare = tmp_path / "bare.pt"
    torch.save(state_dict, bare)
    expected = load_original_weights(archive, problem).state_dict()
    for source in (str(archive), numpy_dict, state_dict, checkpoint, bare):
        found = load_original_weights(source, problem).state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_weights_of_another_problem(reference):
    """TSP weights are not CVRP weights, and the message says what does not fit."""
    weights = reference / "weights"
    for file, problem in (("tsp_20", "cvrp"), ("cvrp_20", "tsp")):
        with pytest.raises(FileFormatError, match=f"weights for {problem}.*another problem"):
            load_original_weights(weights / f"{file}.npz", problem)


# ---------------------------------------------------------------- random weights, NumPy model

DIM, HEADS, SIZE, LAYERS = 128, 8, 16, 3


def random_weights(problem: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays under the keys, and in the shapes, of an original checkpoint."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "init_embed.weight": (DIM, 2 if problem == "tsp" else 3),
        "init_embed.bias": (DIM,),
        "project_node_embeddings.weight": (3 * DIM, DIM),
        "project_fixed_context.weight": (DIM, DIM),
        "project_step_context.weight": (DIM, 2 * DIM if problem == "tsp" else DIM + 1),
        "project_out.weight": (DIM, DIM),
    }
    if problem == "tsp":
        shapes["W_placeholder"] = (2 * DIM,)
    else:
        shapes |= {"init_embed_depot.weight": (DIM, 2), "init_embed_depot.bias": (DIM,)}
    for layer in range(LAYERS):
        prefix = f"embedder.layers.{layer}"
        for part in ("query", "key", "val"):
            shapes[f"{prefix}.0.module.W_{part}"] = (HEADS, DIM, SIZE)
        shapes[f"{prefix}.0.module.W_out"] = (HEADS, SIZE, DIM)
        shapes[f"{prefix}.2.module.0.weight"] = (512, DIM)
        shapes[f"{prefix}.2.module.0.bias"] = (512,)
        shapes[f"{prefix}.2.module.2.weight"] = (DIM, 512)
        shapes[f"{prefix}.2.module.2.bias"] = (DIM,)
        for norm in (1, 3):
            for part in ("weight", "bias", "running_mean", "running_var"):
                shapes[f"{prefix}.{norm}.normalizer.{part}"] = (DIM,)
    weights = {}
    for key, shape in shapes.items():
        inputs = shape[1] if len(shape) == 2 else DIM
        value = rng.normal(size=shape) / np.sqrt(inputs)
        if "running_var" in key or key.endswith("normalizer.weight"):
            value = 0.5 + rng.random(shape)
        weights[key] = value.astype(np.float32)
    return weights


class OriginalModel:
    """The original model in NumPy and double precision, one instance at a time."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.w = {key: value.astype(np.float64) for key, value in weights.items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0.0)

    def batch_norm(self, name: str, x: np.ndarray) -> np.ndarray:
        w = {part: self.w[f"{name}.normalizer.{part}"] for part in
             ("weight", "bias", "running_mean", "running_var")}  # fmt: skip
        scaled = (x - w["running_mean"]) / np.sqrt(w["running_var"] + 1e-5)
        return scaled * w["weight"] + w["bias"]

    def encode(self, h: np.ndarray) -> np.ndarray:
        """`[N, D]` → `[N, D]`."""
        for layer in range(LAYERS):
            name = f"embedder.layers.{layer}"
            update = np.zeros_like(h)
            for k in range(HEADS):
                q, key, v = (
                    h @ self.w[f"{name}.0.module.W_{p}"][k] for p in ("query", "key", "val")
                )
                update += (
                    softmax(q @ key.T / np.sqrt(SIZE)) @ v @ self.w[f"{name}.0.module.W_out"][k]
                )
            h = self.batch_norm(f"{name}.1", h + update)
            hidden = np.maximum(self.linear(f"{name}.2.module.0", h), 0.0)
            h = self.batch_norm(f"{name}.3", h + self.linear(f"{name}.2.module.2", hidden))
        return h

    def log_probs(self, h: np.ndarray, context: np.ndarray, forbidden: np.ndarray) -> np.ndarray:
        """Log-probabilities `[N]` of one step."""
        fixed = self.linear("project_fixed_context", h.mean(0))
        key, value, logit_key = np.split(self.linear("project_node_embeddings", h), 3, axis=-1)
        query = fixed + self.linear("project_step_context", context)
        heads = []
        for k in range(HEADS):
            part = slice(k * SIZE, (k + 1) * SIZE)
            scores = key[:, part] @ query[part] / np.sqrt(SIZE)
            heads.append(softmax(np.where(forbidden, -np.inf, scores)) @ value[:, part])
        glimpse = self.linear("project_out", np.concatenate(heads))
        logits = 10.0 * np.tanh(logit_key @ glimpse / np.sqrt(DIM))
        return np.log(softmax(np.where(forbidden, -np.inf, logits)) + 1e-300)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def tsp_steps(model: OriginalModel, locs: np.ndarray, actions: list[int]):
    """Log-probabilities of all actions at each step of a tour."""
    h = model.encode(model.linear("init_embed", locs))
    visited = np.zeros(len(locs), dtype=bool)
    for t, action in enumerate(actions):
        context = (
            model.w["W_placeholder"]
            if t == 0
            else np.concatenate([h[actions[0]], h[actions[t - 1]]])
        )
        yield model.log_probs(h, context, visited)
        visited[action] = True


def cvrp_steps(model: OriginalModel, locs, depot, units, capacity, actions: list[int]):
    """The same for routes; loads are counted in whole units."""
    features = np.concatenate([locs, units[:, None] / capacity], -1)
    first = model.linear("init_embed_depot", depot[None])
    h = model.encode(np.concatenate([first, model.linear("init_embed", features)]))
    demand = np.concatenate([[0], units])
    visited, used, previous = np.zeros(len(demand), dtype=bool), 0, 0
    for action in actions:
        forbidden = visited | (demand + used > capacity)
        forbidden[0] = False
        forbidden[0] = previous == 0 and not forbidden[1:].all()
        context = np.concatenate([h[previous], [1.0 - used / capacity]])
        yield model.log_probs(h, context, forbidden)
        visited[action] = action != 0
        used = 0 if action == 0 else used + demand[action]
        previous = action


@torch.inference_mode()
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_random_weights_against_numpy(problem):
    """Each action is the most likely one, and its log-probability is that of the original."""
    weights = random_weights(problem)
    policy = load_original_weights(weights, problem).double()  # these weights amplify rounding
    model = OriginalModel(weights)
    rng = np.random.default_rng(1)
    batch, n, capacity = 3, 9, 20
    locs = rng.random((batch, n, 2)).astype(np.float32)
    depot = rng.random((batch, 2)).astype(np.float32)
    units = rng.integers(1, 10, (batch, n))
    instance = {"locs": torch.from_numpy(locs)}
    if problem == "cvrp":
        instance |= {
            "depot": torch.from_numpy(depot),
            "demand": torch.from_numpy((units / capacity).astype(np.float32)),
            "capacity": torch.full((batch, 1), float(capacity)),
        }
    env = TSPEnv() if problem == "tsp" else CVRPEnv()
    td = env.reset(TensorDict(instance, batch_size=batch))
    out = policy(td, env, phase="test", return_sum_log_likelihood=False)
    for b in range(batch):
        actions = out["actions"][b].tolist()
        steps = (
            tsp_steps(model, locs[b], actions)
            if problem == "tsp"
            else cvrp_steps(model, locs[b], depot[b], units[b], capacity, actions)
        )
        for t, log_probs in enumerate(steps):
            ours = float(out["log_likelihood"][b, t])
            assert ours == pytest.approx(log_probs[actions[t]], abs=1e-4)
            assert log_probs[actions[t]] >= log_probs.max() - 1e-4
        assert float(out["log_likelihood"][b].sum()) < -1.0, "the policy is not certain"


def test_batch_norm_counters_are_not_needed():
    """Original files have none; everything else must be there."""
    weights = random_weights("tsp")
    assert not any("num_batches_tracked" in key for key in weights)
    load_original_weights(weights, "tsp")


def test_double_precision_weights_are_accepted():
    weights = {key: value.astype(np.float64) for key, value in random_weights("tsp").items()}
    policy = load_original_weights(weights, "tsp")
    assert {p.dtype for p in policy.parameters()} == {torch.float32}


# ---------------------------------------------------------------- wrong files


def test_unknown_problem():
    with pytest.raises(UnknownNameError, match="did you mean 'cvrp'"):
        load_original_weights(random_weights("tsp"), "cvpr")


def test_random_weights_of_another_problem():
    for problem, other in (("tsp", "cvrp"), ("cvrp", "tsp")):
        with pytest.raises(FileFormatError, match=f"weights for {other}"):
            load_original_weights(random_weights(problem), other)


def test_missing_file(tmp_path):
    for name in ("none.pt", "none.npz"):
        with pytest.raises(FileNotFoundError, match=name):
            load_original_weights(tmp_path / name, "tsp")
    with pytest.raises(FileNotFoundError, match="no file"):
        load_original_weights(tmp_path, "tsp")


@pytest.mark.parametrize("missing", ["W_placeholder", "embedder.layers.1.0.module.W_key"])
def test_incomplete_weights(missing):
    weights = random_weights("tsp")
    del weights[missing]
    with pytest.raises(FileFormatError, match=missing.split(".")[-1]):
        load_original_weights(weights, "tsp")


def test_weights_of_another_shape():
    weights = random_weights("tsp")
    weights["init_embed.weight"] = weights["init_embed.weight"][:64]
    with pytest.raises(FileFormatError, match=r"init_embed\.weight"):
        load_original_weights(weights, "tsp")


CONTENTS = {
    "a tensor": torch.ones(3),
    "a list": [torch.ones(3)],
    "a number under model": {"model": 3},
    "a Lightning checkpoint": {"state_dict": {"a": torch.ones(1)}, "epoch": 3, "hparams": {}},
    "another network": {"model": {"layer.weight": torch.ones(2, 2)}},
    "nothing": {},
    "strange layers": {"embedder.layers.x.0": torch.ones(1)},
}


@pytest.mark.parametrize("content", CONTENTS)
def test_foreign_checkpoints(content, tmp_path):
    """Any other `.pt` file raises an error that says so."""
    path = tmp_path / "foreign.pt"
    torch.save(CONTENTS[content], path)
    with pytest.raises(FileFormatError, match="original"):
        load_original_weights(path, "tsp")


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_truncated_files(suffix, share, tmp_path):
    """A download that broke off, at any point."""
    path = tmp_path / f"weights{suffix}"
    weights = random_weights("tsp")
    if suffix == ".npz":
        np.savez(path, **weights)
    else:
        torch.save({"model": {k: torch.from_numpy(v) for k, v in weights.items()}}, path)
    load_original_weights(path, "tsp")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileFormatError, match="original"):
        load_original_weights(path, "tsp")


@pytest.mark.parametrize("legacy", [False, True])
def test_truncated_checkpoints_of_both_formats(legacy, tmp_path):
    """Torch raises almost anything, an OSError without a file name among them."""
    path = tmp_path / "weights.pt"
    weights = {k: torch.from_numpy(v) for k, v in random_weights("tsp").items()}
    torch.save({"model": weights}, path, _use_new_zipfile_serialization=not legacy)
    content = path.read_bytes()
    for size in [*range(7, 400, 21), *range(400, len(content), len(content) // 40)]:
        path.write_bytes(content[:size])
        with pytest.raises(FileFormatError, match=r"weights\.pt, which is truncated.*; download"):
            load_original_weights(path, "tsp")


def test_files_that_are_no_archive(tmp_path):
    """Rejected without NumPy's advice to run the code that might be inside."""
    for name in ("text.pt", "text.npz"):
        path = tmp_path / name
        path.write_text("epoch,cost\n1,3.8\n")
        with pytest.raises(FileFormatError, match=name) as caught:
            load_original_weights(path, "tsp")
        assert "allow_pickle" not in str(caught.value)


class Bomb:
    """Unpickling this creates a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("form", ["torch", "plain pickle", "npz object array"])
def test_code_in_a_file_is_not_run(form, tmp_path):
    """The file raises an error before anything in it is executed."""
    trap = tmp_path / "executed"
    if form == "npz object array":
        path = tmp_path / "bomb.npz"
        buffer = io.BytesIO()
        np.save(buffer, np.array([Bomb(trap)], dtype=object), allow_pickle=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("init_embed.weight.npy", buffer.getvalue())
    else:
        path = tmp_path / "bomb.pt"
        if form == "torch":
            torch.save({"model": Bomb(trap)}, path)
        else:
            path.write_bytes(pickle.dumps({"model": Bomb(trap)}, protocol=2))
    with pytest.raises(FileFormatError):
        load_original_weights(path, "tsp")
    assert not trap.exists()
