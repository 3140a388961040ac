"""DACT, N2S and NeuOpt step by step against outputs of the original code with the same weights."""

from __future__ import annotations

import importlib

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import FileFormatError
from rl4co.core.registry import MODELS
from rl4co.envs import PDPRuinRepairEnv, TSPkoptEnv
from rl4co.models.nn.scores import cauchy_score
from rl4co.models.policies.choices import ChoiceRule, Choices

LOG_PROBS, COSTS, VALUES = 3e-4, 2e-5, 1e-4


class Case(NamedTuple):
    """A method, its reference, and what goes with them."""

    method: str
    file: str
    env: Any
    actor: int
    critic: int


CASES = {
    "dact": Case("dact", "ref_dact_tsp20", TSPkoptEnv, 280_801, 155_137),
    "n2s": Case("n2s", "ref_n2s_pdp20", PDPRuinRepairEnv, 757_382, 140_033),
    "neuopt": Case("neuopt", "ref_neuopt_tsp20", TSPkoptEnv, 682_628, 140_033),
}


@pytest.fixture(scope="module")
def folder(shared_dir: Path) -> Path:
    place = shared_dir / "reference" / "improvement"
    if not place.is_dir():
        pytest.skip("no references of improvement methods")
    return place


def load(folder: Path, method: str) -> Any:
    module = importlib.import_module(f"rl4co.models.zoo.{method}")
    return module.load_original_weights(folder / f"weights_{method}.npz")


def make_env(case: Case) -> Any:
    return case.env(**MODELS[case.method].env_params)


def instances(env: Any, coords: np.ndarray) -> TensorDict:
    points = torch.tensor(coords)
    if "depot" in env.instance_shapes:
        parts = {"locs": points[:, 1:], "depot": points[:, 0]}
    else:
        parts = {"locs": points}
    return TensorDict(parts, batch_size=[len(points)])


def close(ours: torch.Tensor, theirs: np.ndarray, atol: float) -> None:
    torch.testing.assert_close(
        ours.detach().float(), torch.as_tensor(theirs).float(), atol=atol, rtol=0
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["sample", "greedy"])
@torch.no_grad()
def test_every_step(folder: Path, name: str, kind: str):
    """Solutions, costs, log-probabilities, values and embeddings of 30 moves of 20 instances.

    Of the greedy ones the first ten, which the policy has to find by itself.
    """
    num_steps = 30 if kind == "sample" else 10
    case = CASES[name]
    env, policy = make_env(case), load(folder, name)
    reference = np.load(folder / f"{case.file}.npz")
    rec = torch.tensor(reference["init_rec"])
    td = env.reset(instances(env, reference["coords"]), initial=rec)
    close(policy.encoder.pos_embedding.table(td["locs"], td["locs"].shape[1]),
          reference["cpe_pattern"], 1e-6)  # fmt: skip
    for step in range(num_steps):
        close(td["cost_current"], reference[f"{kind}_cost"][step], COSTS)
        close(td["cost_bsf"], reference[f"{kind}_best"][step], COSTS)
        assert np.array_equal(td["visited_time"], reference[f"{kind}_order"][step])
        action = torch.tensor(reference[f"{kind}_action"][step])
        out = policy(td, env, phase="test", actions=action, return_value=True, return_embeds=True)
        close(out["log_likelihood"], reference[f"{kind}_logp"][step], LOG_PROBS)
        close(out["value"], reference[f"{kind}_value"][step], VALUES)
        if kind == "sample" and step < 3:
            parts = [reference["enc_step0to2"][step]]
            if "enc_pos_step0to2" in reference:
                parts.append(reference["enc_pos_step0to2"][step])
            close(out["embeds"], np.concatenate(parts, -1), 1e-4)
        if kind == "greedy":
            best = policy(td, env, phase="test", decode_type="greedy")["actions"]
            assert torch.equal(best, action[:, : best.shape[1]].long())
        td["action"] = action
        td = env.step(td)["next"]
    assert np.array_equal(td["rec_current"], reference[f"{kind}_rec"][num_steps])
    env.check_solution_validity(td)


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_weights(folder: Path, name: str):
    policy, case = load(folder, name), CASES[name]
    critic = sum(p.numel() for p in policy.critic.parameters())
    assert sum(p.numel() for p in policy.parameters()) - critic == case.actor
    assert critic == case.critic
    assert not policy.training


def read(folder: Path, name: str) -> dict[str, torch.Tensor]:
    with np.load(folder / f"weights_{name}.npz") as file:
        return {key: torch.tensor(file[key]) for key in file.files}


def padded(weight: torch.Tensor, dim: int) -> torch.Tensor:
    """A weight with three zeros more along an axis."""
    shape = list(weight.shape)
    shape[dim] = 3
    return torch.cat([weight, weight.new_zeros(shape)], dim)


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_sizes_of_critics_are_read(folder: Path, name: str):
    """Heads and units that do nothing, and that no default has, leave values as they are."""
    module = importlib.import_module(f"rl4co.models.zoo.{name}")
    weights = read(folder, name)
    for key in [key for key in weights if key.startswith("critic.")]:
        # Heads, then units of the hidden layers, and what takes these in.
        if any(part in key for part in ("W_", "2.module.0.", "fc1", "fc2.bias")):
            weights[key] = padded(weights[key], 0)
        elif "2.module.2.weight" in key or "fc3.weight" in key:
            weights[key] = padded(weights[key], 1)
        elif "fc2.weight" in key:
            weights[key] = padded(padded(weights[key], 0), 1)
    policy = module.load_original_weights(weights)
    env = make_env(CASES[name])
    td = env.reset(batch_size=4)
    expected = load(folder, name).value(td)
    assert expected.std() > 1e-4
    close(policy.value(td), expected, VALUES)


@pytest.mark.parametrize("name", CASES)
def test_other_sources_of_weights(folder: Path, tmp_path: Path, name: str):
    """State dicts, with and without a critic, and checkpoints; other methods' are rejected."""
    module = importlib.import_module(f"rl4co.models.zoo.{name}")
    weights, expected = read(folder, name), load(folder, name).state_dict()
    parts: dict[str, Any] = {"optimizer": {}, "actor": {}, "critic": {}}
    for key, value in weights.items():
        part, _, inner = key.partition(".")
        parts[part][f"module.{inner}"] = value  # as trained on several devices
    torch.save(parts, tmp_path / "epoch-1.pt")
    state = module.load_original_weights(tmp_path / "epoch-1.pt").state_dict()
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    (tmp_path / "epoch-1.pt").rename(tmp_path / "epoch-1.npz")
    with pytest.raises(FileFormatError, match="foreign"):
        module.load_original_weights(tmp_path / "epoch-1.npz")
    actor = {key: value for key, value in weights.items() if key.startswith("actor.")}
    policy = module.load_original_weights(actor)
    assert policy.critic is None
    for other in CASES.keys() - {name}:
        with pytest.raises(FileFormatError, match="another method"):
            module.load_original_weights(folder / f"weights_{other}.npz")
    actor.pop(next(key for key in actor if "decoder" in key))
    with pytest.raises(FileFormatError, match="another method"):
        module.load_original_weights(actor)
    with pytest.raises(FileFormatError, match="keys 'actor"):
        module.load_original_weights({"weight": torch.zeros(2)})
    with pytest.raises(FileNotFoundError, match="no file"):
        module.load_original_weights(folder / "nothing.npz")


@torch.no_grad()
def test_tables_of_the_first_steps(folder: Path):
    """Whole distributions, not only the moves that were made."""
    recorded: list[torch.Tensor] = []

    class Records(Choices):
        def pick(self, logits, mask, given=None, active=None):
            clipped = (6 * logits.tanh()).masked_fill(~mask, -torch.inf)
            if active is not None:
                clipped = torch.where(active[:, None], clipped, torch.nan)
            recorded.append(clipped)
            return super().pick(logits, mask, given, active)

    for name, keys in (
        ("dact", ["logprob_table"]),
        ("n2s", ["removal_logprob", "reinsertion_logprob_table"]),
    ):
        case = CASES[name]
        env, policy = make_env(case), load(folder, name)
        reference = np.load(folder / f"{case.file}.npz")
        rec = torch.tensor(reference["init_rec"])
        td = env.reset(instances(env, reference["coords"]), initial=rec)
        for step in range(3):
            recorded.clear()
            state = dict(td.items())
            action = torch.tensor(reference["sample_action"][step]).long()
            choices = Records(ChoiceRule(tanh_clipping=6.0), None, False)
            policy.decoder(policy.encoder(state), state, env, choices, action, "test")
            for key, logits in zip(keys, recorded, strict=True):
                theirs = torch.tensor(reference[key][step]).flatten(1)
                ours = logits.log_softmax(-1)
                possible = theirs > -30
                assert torch.equal(possible, ours > -30), key
                assert float((ours - theirs)[possible].abs().max()) < LOG_PROBS, key
            td["action"] = action
            td = env.step(td)["next"]


@pytest.mark.parametrize("name", ["dact", "neuopt"])
def test_one_segment_of_ppo(folder: Path, name: str):
    """Log-probabilities, values, losses, gradient norms by group, and what the weights moved by."""
    case = CASES[name]
    reference = np.load(folder / f"ppo_{name}.npz")
    gamma, clip, lr_actor, lr_critic, max_norm, n_step, epochs = reference["hyper"].tolist()
    env, policy = make_env(case), load(folder, name)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    model = MODELS[name](
        env, policy, gamma=gamma, clip_range=clip, lr_policy=lr_actor, lr_critic=lr_critic,
        max_grad_norm=max_norm, n_step=int(n_step),
    )  # fmt: skip
    model.policy.eval()  # no dropout
    optimizer = torch.optim.Adam(model.trainable_parameters())
    rec = torch.tensor(reference["init_rec"])
    td = env.reset(instances(env, reference["coords"]), initial=rec)
    segment, final = model.roll_out(dict(td.items()), None, torch.tensor(reference["actions"]))
    close(segment.reward, reference["rewards"], COSTS)
    close(final["cost_bsf"], reference["cost_best"][-1], COSTS)
    assert np.array_equal(final["rec_current"], reference["rec_after"][-1])
    old = None
    for k in range(int(epochs)):
        replayed = model.replay(segment)
        out = model.calculate_loss(segment, replayed, old)
        old = replayed.detach() if old is None else old
        close(replayed.log_prob, reference["logp_k"][k], LOG_PROBS)
        close(replayed.value, reference["value_k"][k], VALUES)
        close(model.bootstrap(segment), reference["bootstrap_k"][k], VALUES)
        close(out["surrogate_loss"], reference["actor_loss_k"][k], 1e-4)
        close(out["value_loss"], reference["critic_loss_k"][k], 1e-4)
        optimizer.zero_grad()
        out["loss"].backward()
        for group, who in zip(optimizer.param_groups, ("actor", "critic"), strict=True):
            norm = torch.stack([p.grad.norm() for p in group["params"]]).norm()
            expected = float(reference[f"grad_norm_{who}_k"][k])
            assert float(norm) == pytest.approx(expected, rel=2e-3)
        model.on_before_optimizer_step(optimizer)
        optimizer.step()
    moved = {key: (policy.state_dict()[key] - before[key]).norm() ** 2 for key in before}
    for who in ("actor", "critic"):
        mine = [key for key in moved if key.startswith("critic.") == (who == "critic")]
        ours = sum(float(moved[key]) for key in mine)
        keys = [key for key in reference if key.startswith(f"delta_norm.{who}.")]
        theirs = sum(float(reference[key]) ** 2 for key in keys)
        assert ours == pytest.approx(theirs, rel=5e-3)


def test_scores_of_converted_policies(folder: Path) -> None:
    """Weights trained with another compatibility use it in the critic as well."""
    module = importlib.import_module("rl4co.models.zoo.dact")
    policy = module.load_original_weights(folder / "weights_dact.npz", score="cauchy")
    parts = (policy.encoder.layers[0].attention, policy.decoder.node_scores, policy.critic)
    assert all(part.score is cauchy_score for part in parts)
