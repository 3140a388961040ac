"""Pretrained models: those that ship are as released, and what lookup, adding and cards say."""

from __future__ import annotations

import json
import shutil

from pathlib import Path

import pytest
import torch

from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.core.errors import ConfigError, FileFormatError, RL4COError, UnknownNameError
from rl4co.envs import TSPEnv
from rl4co.models import AttentionModelPolicy, MatNetPolicy, load_pretrained
from rl4co.pretrained import (
    VARIABLE,
    ModelSource,
    find_model,
    nearest_model,
    pretrained_models,
    read_collection,
)
from rl4co.tasks.benchmark.recipes import train
from rl4co.tasks.benchmark.spec import Recipe
from rl4co.tasks.cards import measure
from rl4co.tasks.cards.check import measure_check
from rl4co.tasks.cards.measure import CardOptions, measure_card
from rl4co.tasks.cards.text import card_text
from rl4co.tasks.release import add_model

SHIPPED = read_collection(Path(pretrained_models.__code__.co_filename).parent, "the package rl4co")
TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


# ---------------------------------------------------------------- what ships


def test_all_models_together_are_small():
    """At most 25 MB in the package, and nothing that is in no index."""
    folder = next(iter(SHIPPED.values())).path.parent
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 25e6
    assert {path.parent.name for path in folder.glob("*/*.safetensors")} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_model(name: str):
    """Files are as released, weights are float16, and the number of the card is measured again."""
    source = SHIPPED[name]
    source.verify()
    card = source.card()
    assert card["name"] == name and card["training"] and card["precision"] == "float16"
    assert (source.path / "model.safetensors").stat().st_size < 2.1 * card["parameters"] + 10_000
    assert card.get("results") and (source.path / "CARD.md").is_file()
    value = measure_check(load_pretrained(source), card["check"])
    assert value == pytest.approx(card["check"]["value"], rel=0.005)


# ---------------------------------------------------------------- lookup


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`$RL4CO_MODELS` with a tiny model, `tiny-tsp6`."""
    folder = tmp_path / "models"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        AttentionModelPolicy(**TINY).save_pretrained(tmp_path / "policy")
    add_model(tmp_path / "policy", "tiny-tsp6", folder, generator_params={"num_loc": 6})
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_names(collection: Path):
    """A name works wherever a folder does; the user's models come before those of the package."""
    source = find_model("tiny-tsp6")
    assert source.path == collection / "tiny-tsp6" and source.origin == f"${VARIABLE}"
    assert set(pretrained_models()) == {"tiny-tsp6", *SHIPPED}
    policy = AttentionModelPolicy.from_pretrained("tiny-tsp6")
    env = TSPEnv(generator_params={"num_loc": 6})
    assert policy(env.reset(batch_size=1), env, decode_type="greedy")["actions"].shape == (1, 6)
    assert str(nearest_model("tsp", 7)) == "tiny-tsp6"
    with pytest.raises(UnknownNameError, match="did you mean 'tiny-tsp6'"):
        find_model("tiny-tsp5")
    with pytest.raises(RL4COError, match="MatNetPolicy"):
        MatNetPolicy.from_pretrained("tiny-tsp6")
    with pytest.raises(UnknownNameError, match="problem 'ffsp'"):
        nearest_model("ffsp", None)


def test_folder_in_the_way(collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with a configuration wins over the name, another one loses; both warn."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-tsp6").mkdir()
    with pytest.warns(UserWarning, match=r"no config\.json"):
        assert find_model("tiny-tsp6").path == collection / "tiny-tsp6"
    shutil.copytree(tmp_path / "policy", tmp_path / "tiny-tsp6", dirs_exist_ok=True)
    with pytest.warns(UserWarning, match="used instead"):
        assert find_model("tiny-tsp6").path == Path("tiny-tsp6")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["longer", "exchanged", "missing"])
def test_damaged_files(collection: Path, file: str, damage: str):
    """Nothing is parsed before its digest is compared."""
    path = collection / "tiny-tsp6" / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content + b" " if damage == "longer" else content[:-1] + b"\x00")
    with pytest.raises((FileFormatError, FileNotFoundError), match=file.replace(".", r"\.")):
        load_pretrained("tiny-tsp6")
    result = CliRunner().invoke(app, ["models", "verify", "tiny-tsp6"])
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "JSON object"),
        ("{", "JSON"),
        ('{"format": "other", "models": {}}', "another version"),
        ('{"format": "rl4co-models-1", "models": {"Bad Name": {}}}', "Bad Name"),
        ('{"format": "rl4co-models-1", "models": {"tiny-tsp6": {}}}', "sha256"),
    ],
)
def test_damaged_index(collection: Path, index: str, message: str):
    (collection / "index.json").write_text(index)
    with pytest.raises((FileFormatError, ConfigError), match=message):
        pretrained_models()


def test_alias(collection: Path):
    """An entry of an index that is a name means the files of that model."""
    index = json.loads((collection / "index.json").read_text())
    index["models"]["tiny-tsp"] = "tiny-tsp6"
    (collection / "index.json").write_text(json.dumps(index))
    assert find_model("tiny-tsp").path == collection / "tiny-tsp6"


# ---------------------------------------------------------------- adding


def test_adding(collection: Path, tmp_path: Path):
    """Names are checked, nothing is replaced by accident, the index follows."""
    for name in ("Tiny", "tiny", "tiny/tsp6", "../tiny-tsp6"):
        with pytest.raises(ConfigError, match="pomo-tsp50"):
            add_model(tmp_path / "policy", name, collection)
    with pytest.raises(ConfigError, match="tiny-tsp6-v2"):
        add_model(tmp_path / "policy", "tiny-tsp6", collection)
    facts = {"hours": 1.5}
    source = add_model(tmp_path / "policy", "tiny-tsp6-v2", collection, training=facts)
    assert source.card()["training"] == facts and set(source.files) <= {
        path.name for path in source.path.iterdir()
    }


def test_adding_a_trained_recipe(tmp_path: Path):
    """The card has the recipe, its hours and the generator that it trained on."""
    overrides = {
        "trainer": "cpu", "env.generator_params.num_loc": 6, "model.batch_size": 2,
        "model.val_data_size": 2, "model.policy_kwargs": TINY,
    }  # fmt: skip
    folder = train(Recipe("routing/pomo", overrides, steps=1, seed=3), tmp_path)
    card = add_model(folder, "tiny-tsp6", tmp_path / "models").card()
    assert card["size"] == 6 and card["generator"]["num_loc"] == 6
    assert (card["training"]["steps"], card["training"]["seed"]) == (1, 3)
    assert card["training"]["recipe"]["experiment"] == "routing/pomo"


def test_card(collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Gaps, times and a solver at the same time, as JSON and as text."""
    monkeypatch.setattr(measure, "_CALLS", 2)
    source = pretrained_models()["tiny-tsp6"]
    options = CardOptions(
        instances=2, sizes=(6,), distributions=("uniform", "gaussian_mixture"), samples=2,
        cache=tmp_path, progress=False,
    )  # fmt: skip
    card = measure_card(source, options)
    ways = ["greedy", "starts × 8", "2 samples"]
    assert [entry["decoding"] for entry in card["results"]] == [*ways, *ways]
    assert all(entry["gap"] >= -1e-4 and entry["solved"] == 2 for entry in card["results"])
    assert {entry["solver"]["solved"] for entry in card["same_time"]} == {2}
    text = card_text(card)
    assert "# tiny-tsp6" in text and "| greedy |" in text and "Do not use it for" in text
    with pytest.raises(FileFormatError, match="bytes"):
        measure_card(_exchanged(source), options)


def _exchanged(source: ModelSource) -> ModelSource:
    with (source.path / "config.json").open("ab") as file:
        file.write(b"\n")
    return source


def test_commands(collection: Path, tmp_path: Path):
    """`rl4co models`, `list pretrained` and `solve --model auto` speak of the same models."""
    run = CliRunner().invoke
    listed = json.loads(run(app, ["models", "--json"]).stdout)
    assert "tiny-tsp6" in [record["name"] for record in listed]
    assert "tiny-tsp6" in run(app, ["list", "pretrained"]).stdout
    assert "AttentionModelPolicy" in run(app, ["models", "show", "tiny-tsp6"]).stdout
    town = {"problem": "tsp", "coordinates": [[0, 0], [0, 1], [1, 1], [1, 0], [2, 2]]}
    (tmp_path / "town.json").write_text(json.dumps(town))
    solved = run(app, ["solve", str(tmp_path / "town.json"), "--model", "auto", "--json"])
    assert solved.exit_code == 0 and "tiny-tsp6" in solved.stderr
