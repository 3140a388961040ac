"""Untrusted files on the command line: rejected by name, at once, and never executed.

All commands run in processes of limited memory, see :mod:`tests.commands`.
"""

from __future__ import annotations

import json
import shutil
import zipfile

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.data.io import save_tensordict_to_npz
from rl4co.envs import TSPEnv, get_env
from rl4co.models import AttentionModel, AttentionModelPolicy
from rl4co.models.policies.pretrained import CONFIG_FILE, WEIGHTS_FILE
from rl4co.models.rl.checkpointing import RECORD_KEY, read_checkpoint
from rl4co.tasks.benchmark import run_benchmark
from rl4co.tasks.benchmark.parse import parse_spec
from rl4co.training import RL4COTrainer
from tests.commands import Commands
from tests.unit.instance_texts import TSP

POINTS = "NODE_COORD_SECTION\n1 0 0\n2 1 1\n3 1 0\nEOF\n"
MATRIX = "EDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {}\nEDGE_WEIGHT_SECTION\n0 1\n1 0\nEOF\n"

#: Headers that announce more than there is.
HUGE = {
    "points.tsp": f"NAME: a\nTYPE: TSP\nDIMENSION: 1e9\nEDGE_WEIGHT_TYPE: EUC_2D\n{POINTS}",
    "matrix.atsp": f"TYPE: ATSP\nDIMENSION: 1000000000\n{MATRIX.format('FULL_MATRIX')}",
    "triangle.tsp": f"TYPE: TSP\nDIMENSION: 1e300\n{MATRIX.format('UPPER_ROW')}",
    "digits.tsp": f"TYPE: TSP\nDIMENSION: {'9' * 5000}\nEDGE_WEIGHT_TYPE: EUC_2D\n{POINTS}",
    "jobs.fjs": "1000000000 2 1\n1 1 1 3\n1 1 2 4\n",
    "machines.fjs": "2 1000000000 1\n1 1 1 3\n1 1 2 4\n",
    "operations.fjs": "2 2 1\n1000000000 1 1 3\n1 1 2 4\n",
    "standard.jsp": "1000000000 1000000000\n0 3 1 4\n1 2 0 3\n",
    "median.txt": "1000000000 1 1\n1 2 3\n",
}

#: Red, a new title of the window, and a colour in the form of one byte.
ESCAPES = "\x1b[31m\x1b]0;owned\x07\x9b1m"

#: Nine lists of nine aliases each: a billion values.
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def flip(path: Path, place: int) -> None:
    """Changes one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def announce(path: Path, shape: tuple[int, ...]) -> None:
    """An archive with the header of an array, and hardly a number behind it."""
    with zipfile.ZipFile(path, "w") as archive, archive.open("locs.npy", "w") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        file.write(b"\0" * 64)


def save_models(folder: Path) -> tuple[Path, Path]:
    """A folder by `save_pretrained`, and a checkpoint."""
    tiny = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}
    saved = AttentionModelPolicy(env_name="tsp", **tiny).save_pretrained(folder / "saved")
    model = AttentionModel(
        TSPEnv(generator_params={"num_loc": 5}), policy_kwargs=tiny, baseline="mean",
        batch_size=2, train_data_size=2, val_data_size=2, test_data_size=2,
    )  # fmt: skip
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = RL4COTrainer(
        max_epochs=1,
        accelerator="cpu",
        enable_checkpointing=False,
        default_root_dir=folder,
        **quiet,
    )
    trainer.fit(model)
    trainer.save_checkpoint(folder / "saved.ckpt")
    return saved, folder / "saved.ckpt"


def absurd(folder: Path, saved: Path, checkpoint: Path) -> Iterator[Path]:
    """Models that ask for more numbers than there are, in memory."""
    config = json.loads((saved / CONFIG_FILE).read_text())
    config.pop("sha256")
    for name, sizes in (("wide", {"embed_dim": 10**9}), ("deep", {"num_encoder_layers": 10**9})):
        place = Path(shutil.copytree(saved, folder / name))
        arguments = {**config["arguments"], **sizes}
        (place / CONFIG_FILE).write_text(json.dumps({**config, "arguments": arguments}))
        yield place
    content = read_checkpoint(checkpoint)
    content[RECORD_KEY]["arguments"]["policy_kwargs"]["value"]["embed_dim"] = 10**9
    torch.save(content, folder / "wide.ckpt")
    yield folder / "wide.ckpt"


def with_targets(folder: Path, saved: Path, checkpoint: Path) -> list[Path]:
    """Untrusted models that name what to call, in every place of a file."""
    call = {"_target_": "os.mkdir", "path": str(folder / "called"), "_partial_": False}
    in_yaml = f"_target_: os.mkdir\npath: {folder / 'called'}\n"
    config = json.loads((saved / CONFIG_FILE).read_text())
    config.pop("sha256")
    untrusted = []
    for number, change in enumerate(
        (
            {"class": "os.mkdir", "arguments": {"path": call["path"]}},
            {"arguments": {**config["arguments"], "encoder": call}},
            {"arguments": call},
            {"_target_": "os.mkdir", "path": call["path"]},
        )
    ):
        model = folder / f"untrusted-{number}"
        model.mkdir()
        (model / CONFIG_FILE).write_text(json.dumps({**config, **change}))
        (model / WEIGHTS_FILE).write_bytes((saved / WEIGHTS_FILE).read_bytes())
        (model / "config.yaml").write_text(in_yaml)
        (model / "hparams.yaml").write_text(in_yaml)
        untrusted.append(model)
    content = read_checkpoint(checkpoint)
    record = content[RECORD_KEY]
    for number, entry in enumerate(
        ({"value": call}, {"object": {"class": "os.mkdir", "name": "mkdir", "arguments": {}}})
    ):
        arguments = {**record["arguments"], "policy": entry}
        torch.save(
            {**content, RECORD_KEY: {**record, "arguments": arguments}, "hyper_parameters": call},
            folder / f"untrusted-{number}.ckpt",
        )
        untrusted.append(folder / f"untrusted-{number}.ckpt")
    return untrusted


def test_untrusted_files(command: Commands, tmp_path: Path):
    """Sizes that are not there, texts that a terminal would obey, aliases without end."""
    for name, text in HUGE.items():
        (tmp_path / name).write_text(text)
    announce(tmp_path / "huge.npz", (1, 10**9, 2))
    named = TSP.replace("NAME : ", f"NAME : {ESCAPES}", 1)
    assert ESCAPES in named
    (tmp_path / "named.tsp").write_text(named, encoding="utf-8")
    (tmp_path / "named.json").write_text(
        json.dumps(
            {
                "name": ESCAPES,
                "coordinates": [[0, 0], [1, 0], [0, 1]],
                "nodes": ["depot", "over\rwritten", "two\nlines"],
            }
        )
    )
    broken = tmp_path / f"broken{ESCAPES}.tsp"
    broken.write_text("TYPE : TSP\n")
    (tmp_path / "bomb.yaml").write_text(f"{BOMB}methods: *a9\ninstances: *a9\n")
    solve, color = ["solve", "--solver", "nearest_neighbor"], {"FORCE_COLOR": "1"}
    huge = command(*solve, *HUGE, "--json")
    tsp = command(*solve, "named.tsp", env=color)
    own = command(*solve, "named.json", env=color)
    error = command(*solve, broken.name, env=color)
    table = command(*solve, broken.name, "named.tsp", env=color)
    bomb = command("benchmark", "--spec", "bomb.yaml")
    npz = command("benchmark", "huge.npz:env=tsp", "-m", "nearest_neighbor")
    results = {each["file"]: each["error"] for each in huge.json["results"]}
    assert huge.code == 1 and set(results) == set(HUGE)
    assert {each["type"] for each in results.values()} == {"FileFormatError"}
    for name in ("points.tsp", "matrix.atsp", "triangle.tsp"):
        assert "expected a number of nodes that the file has" in results[name]["message"]
    assert [each.code for each in (tsp, own, error, table)] == [0, 0, 2, 1]
    for answer in (tsp, own, error, table):
        text = answer.stdout + answer.stderr
        assert "?[31m?]0;owned" in text
        assert not any(raw in text for raw in ("\x1b]", "\x07", "\x9b"))
    assert "over?written" in own.stdout and "two?lines" in own.stdout
    assert bomb.code == 2 and "aliases that stand for more than" in bomb.stderr
    assert len(bomb.stderr) < 1000
    assert npz.code == 2 and "its header announces 8000000000 bytes" in npz.stderr


@pytest.mark.filterwarnings("ignore")
def test_damaged_and_hostile_models_and_results(command: Commands, tmp_path: Path):
    """One flipped bit, a value that somebody changed, and calls that a model asks for."""
    saved, checkpoint = save_models(tmp_path)
    content = {"methods": ["nearest_neighbor"], "instances": ["tsp:5:size=2"]}
    report = run_benchmark(parse_spec(content), tmp_path / "results")
    (results,) = (tmp_path / "results").glob("*.jsonl")
    value = json.dumps(report.rows[0].value)
    results.write_text(results.read_text().replace(value, "0.5", 1))
    (tmp_path / "target.yaml").write_text(
        "methods: [{_target_: os.mkdir, path: called, model: saved}]\ninstances: ['tsp:5']\n"
    )
    (tmp_path / "object.yaml").write_text("!!python/object/apply:os.mkdir [called]\n")
    flipped = Path(shutil.copytree(saved, tmp_path / "flipped"))
    flip(flipped / WEIGHTS_FILE, -40)
    flipped_checkpoint = Path(shutil.copy(checkpoint, tmp_path / "flipped.ckpt"))
    flip(flipped_checkpoint, checkpoint.stat().st_size // 2)
    models = [saved, checkpoint, flipped, flipped_checkpoint, *absurd(tmp_path, saved, checkpoint)]
    models += with_targets(tmp_path, saved, checkpoint)
    score = ["--size", "2", "--num-loc", "5", "--json"]
    folder, file, *damaged = [command("eval", model, *score) for model in models]
    assert (folder.code, file.code) == (0, 0)
    assert [answer.code for answer in damaged] == [2] * len(damaged)
    assert "digest differs" in damaged[0].error and "digest differs" in damaged[1].error
    for answer in damaged[2:5]:
        assert "damaged" in answer.error, answer
    tampered = command(
        "benchmark", "tsp:5:size=2", "-m", "nearest_neighbor", "-o", "results", "--json"
    )
    assert tampered.code == 2 and "line 2" in tampered.error and "digest differs" in tampered.error
    for spec in ("target.yaml", "object.yaml"):
        assert command("benchmark", "--spec", spec, "--json").code == 2
    assert not (tmp_path / "called").exists()


# ---------------------------------------------------------------- tensors


def test_untrusted_tensors(command: Commands):
    """Types, shapes and numbers that no instance has, in files that every command reads."""
    for problem, key, value in (
        ("ffsp", "run_time", lambda x: x.float() + 0.5),
        ("ffsp", "run_time", lambda x: x[..., 0]),
        ("jssp", "proc_times", lambda x: x * torch.inf),
        ("fjsp", "proc_times", lambda x: x.unsqueeze(1)),
        ("smtwtp", "job_weight", lambda x: x * torch.nan),
        ("smtwtp", "job_due_time", lambda x: x > 0),
        ("mtsp", "locs", lambda x: x * 1e30),
        ("mdcpdp", "locs", lambda x: x * 1e30),
    ):
        instances = get_env(problem).generate(2)
        assert key in instances.keys(), instances
        save_tensordict_to_npz(instances.set(key, value(instances[key])), "untrusted.npz")
        answer = command("benchmark", f"untrusted.npz:env={problem}", "-m", "random", "--json")
        text = answer.stdout + answer.stderr
        assert answer.code in (1, 2) and "Traceback" not in text, answer
        assert f"expected {problem} " in text and key in text, (problem, answer)


STEPS = """
import torch
from rl4co.core.errors import InvalidActionError
from rl4co.envs import get_env

for problem, actions in (("tsp", (3, -1, 20, 99)), ("cvrp", (0, -1, 99)), ("jssp", (-1, 99)),
                         ("fjsp", (-1, 9999)), ("ffsp", (-1, 99))):
    env = get_env(problem)
    td = env.reset(batch_size=[2])
    if problem == "tsp":
        td = env.step(td.set("action", torch.tensor([3, 3])))["next"]  # not twice
    for action in actions:
        try:
            env.step(td.set("action", torch.tensor([action, action])))
        except InvalidActionError as error:
            print(problem, action, error)
        else:
            raise SystemExit(f"{problem}: {action} was accepted")
"""


def test_steps_that_the_mask_forbids(command: Commands):
    """Masked and out-of-range actions, and -1, are rejected on a CPU by default."""
    answer = command.python(STEPS)
    assert answer.code == 0, answer
    assert answer.stdout.count("expected actions that the mask allows") == 13


# ---------------------------------------------------------------- memory and leftovers


def test_distances_of_many_nodes_are_not_computed(command: Commands):
    """Those of 60,000 nodes would take 27 GiB."""
    rng = np.random.default_rng(0)
    lines = "\n".join(
        f"{k + 1} {x} {y}" for k, (x, y) in enumerate(rng.integers(0, 9999, (60_000, 2)))
    )
    header = "TYPE : TSP\nDIMENSION : 60000\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n"
    Path("large.tsp").write_text(f"{header}{lines}\nEOF\n")
    answer = command("solve", "large.tsp", "--solver", "lkh", "--json")
    assert answer.code == 2 and "got 60,000" in answer.error, answer


def test_leftovers_of_killed_runs(command: Commands):
    """A file that a killed command was writing goes with the next one that is written there."""
    kill = "import os, signal; os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
    write = "from rl4co.cli import app; app(['generate', 'tsp', '--size', '2', '--out', 'a.npz'])"
    assert command.python(kill + write).code == -9
    assert [path.name.startswith(".a.npz.") for path in Path().iterdir()] == [True]
    assert command("generate", "tsp", "--size", "2", "--out", "b.npz").code == 0
    assert [path.name for path in Path().iterdir()] == ["b.npz"]


# ---------------------------------------------------------------- what needs no opt-in

PLUGIN = """
from rl4co.models import AttentionModel, AttentionModelPolicy

class PluginPolicy(AttentionModelPolicy):
    pass

class PluginModel(AttentionModel):
    pass
"""


def test_models_of_plugins(command: Commands, tmp_path: Path):
    """An installed package is what allows its classes; without it they are rejected by name."""
    package = tmp_path / "site" / "third_party-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: third_party\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[rl4co.models]\nplugin = third_party:PluginModel\n")
    (package.parent / "third_party.py").write_text(PLUGIN)
    installed = "import sys; sys.path.append('site')\n"
    tiny = "env_name='tsp', embed_dim=16, num_heads=2, num_encoder_layers=1"
    made = command.python(
        f"{installed}import third_party; third_party.PluginPolicy({tiny}).save_pretrained('plugin')"
    )
    assert made.code == 0, made
    score = ["eval", "plugin", "--size", "2", "--num-loc", "5", "--json"]
    rejected = command(*score)
    assert rejected.code == 2 and "PluginPolicy" in rejected.error
    allowed = command.python(f"{installed}from rl4co.cli import app; app({score})")
    assert allowed.code == 0 and allowed.json["instances"] == 2, allowed
