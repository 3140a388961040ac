"""The command line: what it prints, what it loads, how it fails."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from typer.testing import CliRunner

import rl4co

from rl4co.cli import app
from rl4co.core.registry import DECODING, EMBEDDINGS, ENVS, MODELS, SOLVERS
from rl4co.data import load_npz_to_tensordict
from rl4co.decoding.strategies import _STRATEGIES
from rl4co.envs import get_env
from rl4co.models import AttentionModelPolicy
from rl4co.models.rl.baselines import BASELINES
from rl4co.pretrained import pretrained_models
from rl4co.tasks.catalogue import CATALOGUE
from rl4co.tasks.eval import evaluate_policy
from rl4co.tasks.methods import method_names

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "tensordict", "torchrl", "lightning", "hydra", "omegaconf", "numpy", "matplotlib")


def run(*arguments: str):
    """A command inside this process."""
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def run_json(*arguments: str):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def run_process(*arguments: str, code: str = "from rl4co.cli import main; main()"):
    """A command in a process of its own."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved, untrained policy."""
    torch.manual_seed(0)
    policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2, num_encoder_layers=1)
    return policy.save_pretrained(tmp_path_factory.mktemp("policy"))


# ---------------------------------------------------------------- light commands


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["list"]]
    + [[command, "--help"] for command in ("eval", "generate", "solve")]
    + [["list", kind] for kind in CATALOGUE],
)
def test_light_commands_load_nothing_heavy(arguments: list[str]):
    """Help and lists answer at once because they import none of the large libraries."""
    code = (
        "import sys, typer\n"
        "from rl4co.cli import app\n"
        "app(standalone_mode=False)\n"
        f"print('loaded:', sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    result = run_process(*arguments, code=code)
    assert result.returncode == 0, result.stderr
    assert "loaded: []" in result.stderr
    assert result.stdout.strip()


def test_version():
    """The version of the package."""
    assert run("--version").stdout == f"rl4co {rl4co.__version__}\n"


def test_lists_agree_with_the_registries():
    """What is read from the sources is what the library knows."""
    listed = {
        kind: {entry["name"] for entry in entries} for kind, entries in run_json("list").items()
    }
    experiments = listed.pop("experiments")
    assert listed == {
        "envs": set(ENVS.names()),
        "models": set(MODELS.names()),
        "embeddings": set(EMBEDDINGS.names()),
        "solvers": set(SOLVERS.names()),
        "baselines": set(BASELINES),
        "decoding": {*_STRATEGIES, *DECODING.names()},
        "methods": set(method_names()),
        "kernels": {"pointer"},
        "pretrained": set(pretrained_models()),
    }
    assert {"example", "quick", "routing/am", "routing/pomo"} <= experiments


def test_every_name_is_described():
    """No entry without a sentence."""
    for kind, entries in run_json("list").items():
        for entry in entries:
            assert entry["description"], f"{kind}: {entry['name']}"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("routing/mdpom", ["routing/mdpomo"]), ("qu*", ["quick"]), ("nothing", [])],
)
def test_list_pattern(pattern: str, expected: list[str]):
    """A part of the name, or a pattern."""
    entries = run_json("list", "experiments", pattern)["experiments"]
    assert [entry["name"] for entry in entries] == expected
    assert (pattern in run("list", "experiments", pattern).output) is (pattern != "qu*")


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["list", "envz"], "UnknownNameError", "did you mean 'envs'"),
        (["generate", "tpsx"], "UnknownNameError", "no environment 'tpsx'"),
        (["generate", "tsp", "--phase", "train"], "UnknownNameError", "known: test, val"),
        (["generate", "tsp", "--phase", "val", "--seed", "1"], "ConfigError", "--seed or --phase"),
        (["generate", "tsp", "--size", "0"], "ConfigError", "--size"),
        (["generate", "tsp", "--param", "oops"], "ConfigError", "KEY=VALUE"),
        (["generate", "cvrp", "-p", "capcity=3"], "UnknownArgumentError", "mean 'capacity'"),
        (["eval", "nowhere.ckpt"], "FileNotFoundError", "nowhere.ckpt"),
        (["eval", "nowhere.ckpt", "--method", "gredy"], "UnknownNameError", "mean 'greedy'"),
        (["eval", "x", "--data", "y.npz", "--num-loc", "5"], "ConfigError", "--data or --num-loc"),
        (["eval", "x", "--device", "gpu0"], "ConfigError", "'gpu0'"),
        (["eval", "x", "--max-runtime", "3"], "ConfigError", "--solver with --max-runtime"),
        (["eval", "x", "--solver", "lkh", "--max-runtime", "0"], "ConfigError", "got 0"),
    ],
)
def test_errors(arguments: list[str], kind: str, message: str):
    """One line on stderr and exit code 2; JSON on stdout if asked for; traceback with --debug."""
    plain = run(*arguments)
    assert plain.exit_code == 2
    assert message in plain.stderr and "Traceback" not in plain.output
    assert plain.stdout == ""
    machine = run(*arguments, "--json")
    assert machine.exit_code == 2
    error = json.loads(machine.stdout)["error"]
    assert error["type"] == kind and message in error["message"]
    debug = run(*arguments, "--debug")
    assert type(debug.exception).__name__ == kind


def test_errors_end_the_process_with_code_2():
    """The same as seen by a shell."""
    result = run_process("list", "envz")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "envs" in result.stderr


# ---------------------------------------------------------------- generate


def test_generate_writes_the_instances_of_the_paper(tmp_path: Path):
    """The default is the test set; the file holds what the environment's test set is."""
    out = run_json("generate", "tsp", "--size", "5", "--num-loc", "7", "--out", str(tmp_path / "a"))
    assert out == {
        "file": str(tmp_path / "a.npz"),
        "env": "tsp",
        "seed": 1234,
        "shapes": {"locs": [5, 7, 2]},
    }
    env = get_env("tsp", generator_params={"num_loc": 7})
    expected = env.dataset(5, phase="test").data["locs"]
    assert torch.equal(load_npz_to_tensordict(out["file"])["locs"], expected)


def test_generate_chooses_a_name_and_keeps_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The name says problem, size, phase and seed; an existing file is not replaced unasked."""
    monkeypatch.chdir(tmp_path)
    arguments = ["generate", "cvrp", "--size", "2", "--num-loc", "5", "--phase", "val"]
    assert run(*arguments).exit_code == 0
    file = tmp_path / "data" / "cvrp" / "cvrp5_val_seed4321.npz"
    assert file.is_file()
    rejected = run(*arguments)
    assert rejected.exit_code == 2 and "--overwrite" in rejected.stderr
    assert run(*arguments, "--overwrite").exit_code == 0


def test_generate_into_what_is_no_folder(tmp_path: Path):
    """Names the file and what to do."""
    (tmp_path / "file").write_text("not a folder")
    out = tmp_path / "file" / "a.npz"
    rejected = run("generate", "tsp", "--size", "2", "--out", str(out))
    assert rejected.exit_code == 2
    assert f"expected to write {out}" in rejected.stderr and "choose a folder" in rejected.stderr


def test_generate_passes_parameters(tmp_path: Path):
    """`--param` reaches the generator; values are read as YAML."""
    out = run_json(
        "generate", "tsp", "--size", "3", "--seed", "7", "-p", "num_loc=4", "-p", "max_loc=5.0",
        "--out", str(tmp_path / "b.npz"),
    )  # fmt: skip
    assert out["shapes"] == {"locs": [3, 4, 2]}
    assert load_npz_to_tensordict(out["file"])["locs"].max() > 1


# ---------------------------------------------------------------- eval


def test_eval_of_a_folder(folder: Path):
    """The summary is that of evaluate_policy on the same instances."""
    out = run_json("eval", str(folder), "--num-loc", "8", "--size", "6", "--solver", "random")
    env = get_env("tsp", generator_params={"num_loc": 8})
    policy = AttentionModelPolicy.from_pretrained(folder)
    expected = evaluate_policy(env, policy, 6)
    assert out["avg_reward"] == pytest.approx(float(expected["avg_reward"]), abs=1e-6)
    assert (out["env"], out["instances"], out["method"]) == ("tsp", 6, "greedy")
    costs = env.solve(env.dataset(6, phase="test").data, solver="random")[1]
    gap = float(((-expected["rewards"] - costs) / costs).mean())
    assert out["gap"] == pytest.approx(gap, abs=1e-6)


def test_eval_on_another_problem(folder: Path):
    """Names both problems, without traceback."""
    result = run("eval", str(folder), "--env", "cvrp", "--size", "2")
    assert result.exit_code == 2
    assert "a state of tsp, which this AttentionModelPolicy was made for" in result.stderr
    assert "got one of cvrp" in result.stderr and "Traceback" not in result.output


def test_eval_of_a_file_with_options(folder: Path, tmp_path: Path):
    """Instances of a file, several options, results saved, table for people."""
    data = tmp_path / "data.npz"
    run("generate", "tsp", "--size", "4", "--num-loc", "6", "--out", str(data))
    saved = tmp_path / "results.npz"
    result = run(
        "eval", str(folder), "--data", str(data), "--method", "sampling", "--samples", "3",
        "--temperature", "0.8", "--top-k", "2", "--batch-size", "3", "--device", "cpu",
        "--save", str(saved),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "avg reward" in result.stdout and "sampling" in result.stdout
    assert load_npz_to_tensordict(saved)["actions"].shape == (4, 6)


def test_eval_of_a_checkpoint(tmp_path: Path):
    """A checkpoint of training brings its own environment; its size can be changed."""
    from rl4co.tasks.train import load_config
    from rl4co.tasks.train import run as train

    cfg = load_config(
        ["debug=default", "env.generator_params.num_loc=7", "model.baseline=mean",
         "model.policy_kwargs={embed_dim: 16, num_heads: 2, num_encoder_layers: 1}",
         "test=false", f"paths.output_dir={tmp_path}"]
    )  # fmt: skip
    _, objects = train(cfg)
    path = tmp_path / "model.ckpt"
    objects["trainer"].save_checkpoint(path)
    out = run_json("eval", str(path), "--size", "5", "--method", "multistart_greedy")
    expected = evaluate_policy(objects["env"], objects["model"].policy, 5, "multistart_greedy")
    assert out["avg_reward"] == pytest.approx(float(expected["avg_reward"]), abs=1e-6)
    larger = run_json("eval", str(path), "--size", "5", "--num-loc", "12")
    assert larger["avg_reward"] < out["avg_reward"]


def test_further_processes_start_the_training_alone(monkeypatch: pytest.MonkeyPatch):
    """Lightning starts them like `__main__`, which `python -m rl4co.cli` needs a subcommand for."""
    subprocess_script = pytest.importorskip(
        "lightning.fabric.strategies.launchers.subprocess_script"
    )
    task = importlib.import_module("rl4co.tasks.train")
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("rl4co.cli.__main__", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["rl4co", "train", "experiment=quick"])
    monkeypatch.setattr(task, "main", lambda resume: None)
    assert run("train", "experiment=quick").exit_code == 0
    command = subprocess_script._basic_subprocess_cmd()
    assert command == [sys.executable, task.__file__, "experiment=quick"]
