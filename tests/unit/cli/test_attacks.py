"""Files of strangers, given to the command line: refused by name, at once, and never obeyed.

All commands run in one process of limited memory, as importing torch takes longer than they do.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import zipfile

from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.envs import TSPEnv
from rl4co.models import AttentionModel, AttentionModelPolicy
from rl4co.models.policies.pretrained import CONFIG_FILE, WEIGHTS_FILE
from rl4co.models.rl.checkpointing import RECORD_KEY, read_checkpoint
from rl4co.tasks.benchmark import run_benchmark
from rl4co.tasks.benchmark.parse import parse_spec
from rl4co.training import RL4COTrainer
from tests.unit.instance_texts import TSP

REPOSITORY = Path(__file__).resolve().parents[3]

#: Runs commands one after the other; a line with the exit code ends each one's output.
PROGRAM = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
from rl4co.cli import app
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments)
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            print(f"\\n<exit {end.code or 0}>", file=stream, flush=True)
"""

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


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command answered: exit code and output."""

    code: int
    stdout: str
    stderr: str


def run_all(*commands: list[str], cwd: Path) -> list[Answer]:
    """Commands in one process."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        cwd=cwd,
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "400", "FORCE_COLOR": "1"},
    )
    assert process.returncode == 0, process.stderr[-2000:]
    out, errors = (
        text.decode().split("\n<exit ")[: len(commands) + 1]
        for text in (process.stdout, process.stderr)
    )
    codes = [int(part.split(">", 1)[0]) for part in out[1:]]
    texts = [[part.split(">\n", 1)[-1] for part in each] for each in (out, errors)]
    return [Answer(*answer) for answer in zip(codes, texts[0], texts[1], strict=False)]


def flip(path: Path, place: int) -> None:
    """Changes one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def announce(path: Path, shape: tuple[int, ...]) -> Path:
    """An archive with the header of an array, and hardly a number behind it."""
    with zipfile.ZipFile(path, "w") as archive, archive.open("locs.npy", "w") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        file.write(b"\0" * 64)
    return path


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


def with_targets(folder: Path, saved: Path, checkpoint: Path) -> list[Path]:
    """Models of a stranger that name what to call, in all the places there are."""
    call = {"_target_": "os.mkdir", "path": str(folder / "called"), "_partial_": False}
    in_yaml = f"_target_: os.mkdir\npath: {folder / 'called'}\n"
    config = json.loads((saved / CONFIG_FILE).read_text())
    config.pop("sha256")
    strangers = []
    for number, change in enumerate(
        (
            {"class": "os.mkdir", "arguments": {"path": call["path"]}},
            {"arguments": {**config["arguments"], "encoder": call}},
            {"arguments": call},
            {"_target_": "os.mkdir", "path": call["path"]},
        )
    ):
        stranger = folder / f"stranger-{number}"
        stranger.mkdir()
        (stranger / CONFIG_FILE).write_text(json.dumps({**config, **change}))
        (stranger / WEIGHTS_FILE).write_bytes((saved / WEIGHTS_FILE).read_bytes())
        (stranger / "config.yaml").write_text(in_yaml)
        (stranger / "hparams.yaml").write_text(in_yaml)
        strangers.append(stranger)
    content = read_checkpoint(checkpoint)
    record = content[RECORD_KEY]
    for number, entry in enumerate(
        ({"value": call}, {"object": {"class": "os.mkdir", "name": "mkdir", "arguments": {}}})
    ):
        arguments = {**record["arguments"], "policy": entry}
        torch.save(
            {**content, RECORD_KEY: {**record, "arguments": arguments}, "hyper_parameters": call},
            folder / f"stranger-{number}.ckpt",
        )
        strangers.append(folder / f"stranger-{number}.ckpt")
    return strangers


def test_files_of_strangers(tmp_path: Path):
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
    solve = ["solve", "--solver", "nearest_neighbor"]
    huge, tsp, own, error, table, bomb, npz = run_all(
        [*solve, *HUGE, "--json"],
        [*solve, "named.tsp"],
        [*solve, "named.json"],
        [*solve, broken.name],
        [*solve, broken.name, "named.tsp"],
        ["benchmark", "--spec", "bomb.yaml"],
        ["benchmark", "huge.npz:env=tsp", "-m", "nearest_neighbor"],
        cwd=tmp_path,
    )
    results = {each["file"]: each["error"] for each in json.loads(huge.stdout)["results"]}
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
def test_damaged_and_hostile_models_and_results(tmp_path: Path):
    """One flipped bit, a value that somebody changed, and calls that a model asks for."""
    saved, checkpoint = save_models(tmp_path)
    strangers = with_targets(tmp_path, saved, checkpoint)
    content = {"methods": ["nearest_neighbor"], "instances": ["tsp:5:size=2"]}
    report = run_benchmark(parse_spec(content), tmp_path / "results")
    (results,) = (tmp_path / "results").glob("*.jsonl")
    value = json.dumps(report.rows[0].value)
    results.write_text(results.read_text().replace(value, "0.5", 1))
    (tmp_path / "target.yaml").write_text(
        "methods: [{_target_: os.mkdir, path: called, model: saved}]\ninstances: ['tsp:5']\n"
    )
    (tmp_path / "object.yaml").write_text("!!python/object/apply:os.mkdir [called]\n")
    score = ["--size", "2", "--num-loc", "5", "--json"]
    flipped = Path(shutil.copytree(saved, tmp_path / "flipped"))
    flip(flipped / WEIGHTS_FILE, -40)
    flipped_checkpoint = Path(shutil.copy(checkpoint, tmp_path / "flipped.ckpt"))
    flip(flipped_checkpoint, checkpoint.stat().st_size // 2)
    folder, file, *damaged = run_all(
        ["eval", str(saved), *score],
        ["eval", str(checkpoint), *score],
        ["eval", str(flipped), *score],
        ["eval", str(flipped_checkpoint), *score],
        ["benchmark", "tsp:5:size=2", "-m", "nearest_neighbor", "-o", "results", "--json"],
        ["benchmark", "--spec", "target.yaml", "--json"],
        ["benchmark", "--spec", "object.yaml", "--json"],
        *(["eval", str(stranger), *score] for stranger in strangers),
        cwd=tmp_path,
    )
    assert (folder.code, file.code) == (0, 0)
    messages = [json.loads(answer.stdout)["error"]["message"] for answer in damaged]
    assert [answer.code for answer in damaged] == [2] * len(damaged)
    assert "digest differs" in messages[0] and "digest differs" in messages[1]
    assert "line 2" in messages[2] and "digest differs" in messages[2]
    assert not (tmp_path / "called").exists()
