"""Two processes train like one with the joint batch, on disjoint data."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rl4co.data import GeneratedDataset

PROGRAM = Path(__file__).with_name("distributed.py")


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training_distributed", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Case → what each of the two processes saw, from one real run of both."""
    folder = tmp_path_factory.mktemp("ddp")
    # Lightning starts the second process itself and passes its rank on in the environment.
    clean = {key: value for key, value in os.environ.items() if key not in ("LOCAL_RANK", "RANK")}
    result = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env={**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    cases = {path.name.rsplit("-", 1)[0] for path in folder.glob("*.pt")}
    return {
        case: [torch.load(folder / f"{case}-{rank}.pt", weights_only=True) for rank in (0, 1)]
        for case in cases
    }


def joint_gradients(program: ModuleType, case: str, batches: list[torch.Tensor]) -> Any:
    """Gradients of one process on the batches of both."""
    model = program.make_model(case)
    model.log = lambda *args, **kwargs: None
    td = model.env.reset(
        model.env.generator(sum(map(len, batches))).set("locs", torch.cat(batches))
    )
    out = model.policy(td, model.env, phase="train")
    model.baseline.start(td, out["reward"])
    model.calculate_loss(td, td, out)["loss"].backward()
    return {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", ["no", "mean", "exponential", "rollout", "critic"])
def test_gradients_are_those_of_the_joint_batch(
    case: str, program: ModuleType, seen: dict[str, list[Any]]
) -> None:
    """After the first backward pass both processes hold the gradient of one big batch."""
    first, second = seen[case]
    expected = joint_gradients(program, case, [first["batches"][0], second["batches"][0]])
    assert {n for n, g in first["gradients"].items() if g.any()} == {
        n for n, g in expected.items() if g.any()
    }
    for name, gradient in expected.items():
        for process in (first, second):
            torch.testing.assert_close(process["gradients"][name], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["no", "mean", "exponential", "rollout", "critic", "pomo"])
def test_processes_stay_together(case: str, seen: dict[str, list[Any]]) -> None:
    """Weights, baselines and running statistics are the same in both processes at the end."""
    first, second = (process["weights"] for process in seen[case])
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=1e-6, msg=name)


@pytest.mark.slow
def test_training_data_is_disjoint(program: ModuleType, seen: dict[str, list[Any]]) -> None:
    """Each process generates its own half: 24 instances are 2 batches of 6 in either process."""
    model = program.make_model("no")
    for rank, process in enumerate(seen["no"]):
        shard = GeneratedDataset(
            model.env.generator, size=24, batch_size=6, seed=5, epoch=0, rank=rank, world_size=2
        )
        assert len(process["batches"]) == len(shard) == 2
        for index, batch in enumerate(process["batches"]):
            assert torch.equal(batch, shard[index]["locs"])
    everything = torch.cat([batch for process in seen["no"] for batch in process["batches"]])
    assert len(everything.flatten(1).unique(dim=0)) == 24


@pytest.mark.slow
def test_validation_data_is_split(program: ModuleType, seen: dict[str, list[Any]]) -> None:
    """Together the processes validate every instance once, and report the mean of all."""
    everything = torch.cat([batch for process in seen["no"] for batch in process["validation"]])
    expected = program.make_model("no").env.dataset(20, phase="val").data["locs"]
    assert torch.equal(everything, expected)
    rewards = [process["reward"] for process in seen["no"]]
    assert rewards[0] == rewards[1]
    model = program.make_model("no")
    model.load_state_dict(seen["no"][0]["weights"])
    td = model.env.reset(model.env.dataset(20, phase="val").data)
    mean = model.policy.eval()(td, model.env, phase="val")["reward"].mean()
    assert rewards[0] == pytest.approx(float(mean), abs=1e-5)
