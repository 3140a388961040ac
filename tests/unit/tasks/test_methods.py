"""One registry of evaluation methods: for Python, the command line, benchmarks and lists."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys

from pathlib import Path

import pytest
import torch

from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.core.errors import ConfigError, RL4COError, UnknownNameError, UnsupportedError
from rl4co.core.registry import DECODING
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs import get_env
from rl4co.models import AttentionModel, AttentionModelPolicy, DeepACOPolicy, NeuOptPolicy
from rl4co.tasks.benchmark import parse_spec, run_benchmark
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.methods import METHODS, SEARCHES, SPECIAL_METHODS, find_method, method_names
from rl4co.training import RL4COTrainer
from tests.unit.instance_texts import TSP

SIZE = {"num_loc": 8}


@dataclasses.dataclass(frozen=True)
class Mixed(DecodingStrategy):
    """Greedy, but for a share of random actions."""

    epsilon: float = 0.0
    draws = True

    def choose(self, logits, step, state):
        random = torch.rand(logits.shape, generator=self.rng).masked_fill(logits.isinf(), -1)
        explore = torch.rand(logits.shape[:-1], generator=self.rng) < self.epsilon
        return torch.where(explore, random.argmax(-1), logits.argmax(-1))


@pytest.fixture(autouse=True)
def _register(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(DECODING._entries, "mixed", Mixed)


def small(env_name: str = "tsp") -> AttentionModelPolicy:
    torch.manual_seed(0)
    return AttentionModelPolicy(env_name=env_name, embed_dim=16, num_heads=2, num_encoder_layers=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small().save_pretrained(tmp_path_factory.mktemp("methods") / "am")


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_custom_strategies_take_their_options():
    """A registered name evaluates like the object, with the settings of its class."""
    env, policy = get_env("tsp", generator_params=SIZE), small()
    instances = env.generator(4)
    by_name = evaluate_policy(env, policy, instances, "mixed", epsilon=0.3, num_samples=3)
    by_object = evaluate_policy(env, policy, instances, Mixed(epsilon=0.3, num_samples=3))
    assert torch.equal(by_name["actions"], by_object["actions"])
    greedy = evaluate_policy(env, policy, instances, "mixed", epsilon=0.0)
    assert torch.equal(greedy["actions"], evaluate_policy(env, policy, instances)["actions"])
    with pytest.raises(UnknownNameError, match="epsilon"):
        evaluate_policy(env, policy, instances, "mixed", epsilom=0.3)
    with pytest.raises(UnknownNameError, match="epsilon"):
        evaluate_policy(env, policy, instances, "greedy", epsilon=0.3)


def test_custom_strategies_can_be_augmented():
    """With eight symmetries, a greedy strategy equals the library's augmented method."""
    env, policy = get_env("tsp", generator_params=SIZE), small()
    instances = env.generator(4)
    expected = evaluate_policy(env, policy, instances, "augment_dihedral_8")["rewards"]
    for method, settings in {
        "mixed_augment_dihedral_8": {},
        "mixed": {"augment_fn": "dihedral8"},
        Mixed: {"augment_fn": "dihedral8"},
    }.items():
        rewards = evaluate_policy(env, policy, instances, method, **settings)["rewards"]
        torch.testing.assert_close(rewards, expected)
    starts = evaluate_policy(env, policy, instances, "multistart_mixed_augment_dihedral_8")
    same = evaluate_policy(env, policy, instances, "multistart_greedy_augment_dihedral_8")
    torch.testing.assert_close(starts["rewards"], same["rewards"])
    with pytest.raises(ConfigError, match="augment_fn"):
        evaluate_policy(env, policy, instances, "augment", augment_fn="dihedral8")


def test_ants():
    """The colony's solutions; only policies that guide ants have them."""
    env = get_env("tsp", generator_params=SIZE)
    policy = DeepACOPolicy(
        "tsp", embed_dim=8, num_layers_graph_encoder=1, num_layers_heatmap_generator=1
    )
    instances = env.generator(3)
    result = evaluate_policy(env, policy, instances, "ants", n_ants=4, n_iterations=2)
    again = evaluate_policy(env, policy, instances, "ants", n_ants=4, n_iterations=2)
    assert torch.equal(result["actions"], again["actions"])
    expected = env.get_reward(env.reset(instances), result["actions"], check_solution=True)
    torch.testing.assert_close(result["rewards"], expected)
    with pytest.raises(UnknownNameError, match="n_ants"):
        evaluate_policy(env, policy, instances, "ants", ants=4)
    with pytest.raises(UnsupportedError, match="AttentionModelPolicy"):
        evaluate_policy(env, small(), instances, "ants")


def test_improvement():
    """Steps of an improvement policy; the solutions are those of the constructive problem."""
    policy = NeuOptPolicy(embed_dim=8, num_heads=2, num_encoder_layers=1)
    env = get_env("tsp_kopt", generator_params=SIZE, **policy.env_params)
    instances = env.generator(3)
    first = evaluate_policy(env, policy, instances, "improve", steps=1)
    later = evaluate_policy(env, policy, instances, "improve", steps=20, copies=2)
    assert (later["rewards"] >= first["rewards"]).all()
    tsp = get_env("tsp", generator_params=SIZE)
    expected = tsp.get_reward(tsp.reset(instances), later["actions"], check_solution=True)
    torch.testing.assert_close(later["rewards"], expected)
    with pytest.raises(UnsupportedError, match="improve"):
        evaluate_policy(env, policy, instances, "greedy")
    with pytest.raises(UnknownNameError, match="steps"):
        evaluate_policy(env, policy, instances, "improve", step=3)
    with pytest.raises(UnsupportedError, match="AttentionModelPolicy"):
        evaluate_policy(tsp, small(), instances, "improve", steps=1)


def test_searches():
    """A search adapts a copy: it is not worse than a greedy solution of few iterations."""
    env, policy = get_env("tsp", generator_params=SIZE), small()
    instances = env.generator(2)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    result = evaluate_policy(env, policy, instances, "eas_lay", iterations=2)
    expected = env.get_reward(env.reset(instances), result["actions"], check_solution=True)
    torch.testing.assert_close(result["rewards"], expected)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_the_command_evaluates_any_method(model: Path, tmp_path: Path):
    """`rl4co eval` knows them all, with their options."""
    arguments = ["eval", str(model), "--size", "2", "--num-loc", "8", "--json"]
    result = run(*arguments, "--method", "mixed_augment", "--option", "epsilon=0.2")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["method"] == "mixed_augment"
    result = run(*arguments, "--method", "mixed", "--option", "epsilom=0.2")
    assert result.exit_code == 2 and "epsilon" in result.output
    result = run(*arguments, "--method", "eas_emb", "--option", "iterations=1")
    assert result.exit_code == 0, result.output
    policy = NeuOptPolicy(embed_dim=8, num_heads=2, num_encoder_layers=1)
    arguments[1] = str(policy.save_pretrained(tmp_path))
    result = run(*arguments, "--method", "improve", "--option", "steps=2")
    assert result.exit_code == 0, result.output


def test_modules_are_imported_for_what_they_register(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`--import` makes a strategy of a user's file known; a missing module is named."""
    (tmp_path / "my_decoding.py").write_text(
        "from rl4co.core.registry import DECODING\n"
        "from rl4co.decoding.strategies import Greedy\n"
        "@DECODING.register('of_the_user')\nclass OfTheUser(Greedy):\n    '''Greedy.'''\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    arguments = ["eval", str(model), "--size", "2", "--num-loc", "8", "-m", "of_the_user"]
    assert run(*arguments).exit_code == 2
    result = run(*arguments, "--import", "my_decoding")
    assert result.exit_code == 0, result.output
    DECODING._entries.pop("of_the_user")
    assert "no_such_module" in run(*arguments, "--import", "no_such_module").output


@pytest.mark.parametrize("model", ["model", "model.ckpt"])
@pytest.mark.parametrize("command", ["eval", "solve", "benchmark"])
def test_custom_classes_are_used_on_request(
    command: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A folder or checkpoint with a custom class of a policy: the error says how to allow it."""
    (tmp_path / "my_policy.py").write_text(
        "from rl4co.models import AttentionModelPolicy\n"
        "class MyPolicy(AttentionModelPolicy):\n    '''A custom policy.'''\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    cls = importlib.import_module("my_policy").MyPolicy
    policy = cls(env_name="tsp", embed_dim=16, num_heads=2, num_encoder_layers=1)
    if model == "model":
        policy.save_pretrained(model)
    else:
        trainer = RL4COTrainer(accelerator="cpu", precision="32-true", logger=False)
        trainer.strategy.connect(AttentionModel(get_env("tsp"), policy=policy, baseline="no"))
        trainer.save_checkpoint(model)
    Path("long.tsp").write_text(TSP)
    arguments = {
        "eval": [model, "--size", "2", "--num-loc", "8"],
        "solve": ["long.tsp", "--model", model],
        "benchmark": ["tsp:8:size=2", "-m", model, "--no-plots"],
    }[command]
    result = run(command, *arguments)
    assert result.exit_code != 0 and "my_policy.MyPolicy" in result.output.replace("\n", "")
    again = ["--retry-errors"] if command == "benchmark" else []
    result = run(command, *arguments, *again, "--allow-class", "my_policy.MyPolicy")
    assert result.exit_code == 0, result.output


def test_benchmarks_run_any_method(model: Path, tmp_path: Path):
    """Strategies with options, searches, ants and improvement, side by side."""
    ants = DeepACOPolicy(
        "tsp", embed_dim=8, num_layers_graph_encoder=1, num_layers_heatmap_generator=1
    ).save_pretrained(tmp_path / "ants")
    neuopt = NeuOptPolicy(embed_dim=8, num_heads=2, num_encoder_layers=1)
    neuopt.save_pretrained(tmp_path / "neuopt")
    methods = [
        f"{model}:mixed_augment:epsilon=0.1",
        f"{model}:eas_lay:iterations=1",
        f"{ants}:ants:n_ants=3:n_iterations=1",
        f"{tmp_path}/neuopt:improve:steps=2",
    ]
    spec = parse_spec({"methods": methods, "instances": ["tsp:8:size=2"]})
    report = run_benchmark(spec, tmp_path / "out")
    assert [row.error for row in report.rows] == [None] * 8
    assert all(method.is_random for method in spec.methods)


def test_lists_have_every_method():
    """Also registered strategies."""
    listed = {
        entry["name"] for entry in json.loads(run("list", "methods", "--json").stdout)["methods"]
    }
    assert listed == {*METHODS, *SPECIAL_METHODS, *SEARCHES, *DECODING.names()}
    assert listed == set(method_names())
    assert {"mixed", "sgbs"} <= listed


def test_lists_import_modules_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`--import` lists what a module in the working folder registers."""
    (tmp_path / "listed_strategies.py").write_text(
        "from rl4co.core.registry import DECODING\n"
        "from rl4co.decoding.strategies import Greedy\n"
        "DECODING._entries['listed'] = type('Listed', (Greedy,), {})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(DECODING, "_entries", dict(DECODING._entries))
    assert "listed" not in run("list", "methods").stdout
    result = run("list", "methods", "--import", "listed_strategies")
    assert result.exit_code == 0 and "listed" in result.stdout


@pytest.mark.parametrize("name", ["gredy", "mixd", "greedy_augmented", "multistart_", "_augment"])
def test_unknown_methods(name: str):
    with pytest.raises(RL4COError, match="no evaluation method"):
        find_method(name)
