"""Numbers of short seeded runs, kept so that a change that moves results does not go unnoticed.

A failure here means that instances, initial weights, dynamics, decoding or the loss are not what
they were: either a mistake, or a change that **affects results** and renews the numbers below (the
message shows the new ones). Tolerances leave room for other machines: rounding may turn a single
action, which moves a mean over hundreds of solutions a little.
"""

from __future__ import annotations

import warnings

from typing import Any, NamedTuple

import pytest
import torch

from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import POMO

ENVIRONMENTS = {"tsp": TSPEnv, "cvrp": CVRPEnv}
TINY = {"embed_dim": 32, "num_heads": 4, "feedforward_hidden": 32, "num_encoder_layers": 2}
STEPS = 30


class Run(NamedTuple):
    """What a run of POMO leaves behind.

    Args:
        untrained: Mean greedy reward on the validation set before training.
        loss: Loss of the first step.
        sampled: Mean reward of the first step's samples.
        trained: Mean greedy reward after the last step.
    """

    untrained: float
    loss: float
    sampled: float
    trained: float


GOLDEN = {
    "tsp": Run(untrained=-3.6723, loss=-0.4467, sampled=-4.8975, trained=-3.1056),
    "cvrp": Run(untrained=-9.6785, loss=-0.2865, sampled=-8.4578, trained=-5.5270),
}
TOLERANCE = {
    "tsp": Run(untrained=2e-3, loss=1e-2, sampled=2e-3, trained=0.08),
    "cvrp": Run(untrained=5e-3, loss=3e-2, sampled=5e-3, trained=0.15),
}


def train(name: str) -> Run:
    """Thirty steps of POMO on ten nodes, without a trainer."""
    torch.manual_seed(1234)
    env: Any = ENVIRONMENTS[name](generator_params={"num_loc": 10})
    model = POMO(env, policy_kwargs=TINY, optimizer_kwargs={"lr": 1e-3}, seed=1)
    optimizer = model.configure_optimizers()
    validation = env.reset(env.dataset(256, phase="val")[:])
    rng = torch.Generator().manual_seed(3)

    @torch.no_grad()
    def greedy() -> float:
        model.policy.eval()
        reward = model.policy(validation, env, phase="val")["reward"].mean().item()
        model.policy.train()
        return reward

    untrained, first = greedy(), {}
    for step in range(STEPS):
        out = model.shared_step(env.generator(32, rng=rng), step, "train")
        first = first or {key: out[key].item() for key in ("loss", "reward")}
        optimizer.zero_grad()
        out["loss"].backward()
        optimizer.step()
    return Run(untrained, first["loss"], first["reward"], greedy())


@pytest.mark.fixed_seed
@pytest.mark.learning
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_run(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are trying to `self.log\\(\\)`")
        run = train(name)
    for field, value in run._asdict().items():
        expected, tolerance = getattr(GOLDEN[name], field), getattr(TOLERANCE[name], field)
        assert value == pytest.approx(expected, abs=tolerance), f"{name} {field}: {run}"


#: Coordinates of the first node of the first instance and of the last of the last; for the CVRP
#: also the last instance's depot and its first three demands.
INSTANCES = {
    ("tsp", "val"): [0.1255377, 0.5376683, 0.2369153, 0.5689332],
    ("tsp", "test"): [0.0289792, 0.4018986, 0.1685781, 0.4631240],
    ("cvrp", "val"): [0.6563869, 0.0365101, 0.6142706, 0.3699064, 0.5761308, 0.2843567, 2, 3, 9],
    ("cvrp", "test"): [0.2598442, 0.3666413, 0.7337303, 0.9234423, 0.6180506, 0.7788726, 8, 8, 9],
}


@pytest.mark.parametrize("phase", ["val", "test"])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_instances(name, phase):
    """The paper's validation and test sets: seeds 4321 and 1234, the same on every machine."""
    env = ENVIRONMENTS[name](generator_params={"num_loc": 20})
    data = env.dataset(100, phase=phase)[:]
    found = [*data["locs"][0, 0].tolist(), *data["locs"][99, 19].tolist()]
    if name == "cvrp":
        demand = data["demand"] * data["capacity"]
        found += [*data["depot"][99].tolist(), *demand[99, :3].tolist()]
    assert found == pytest.approx(INSTANCES[name, phase], abs=1e-6), found
