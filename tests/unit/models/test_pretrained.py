"""Policies as a folder: what is written comes back, and nothing else is believed or executed."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import resource
import stat
import sys

from pathlib import Path

import pytest
import torch

from safetensors.torch import load_file, save_file
from torch import nn

from rl4co.core.errors import (
    ConfigError,
    FileFormatError,
    RL4COError,
    UnknownNameError,
    WriteError,
)
from rl4co.envs import CVRPEnv, TSPEnv, TSPGenerator
from rl4co.models import AttentionModelPolicy, AutoregressiveEncoder, load_pretrained
from rl4co.models.policies.custom_classes import library_class
from rl4co.models.policies.pretrained import CONFIG_FILE, WEIGHTS_FILE

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


@pytest.fixture
def policy() -> AttentionModelPolicy:
    return AttentionModelPolicy(env_name="tsp", tanh_clipping=7.0, **TINY)


@pytest.fixture
def folder(policy, tmp_path) -> Path:
    return policy.save_pretrained(tmp_path / "saved")


def edit_config(folder: Path, **changes) -> None:
    """Changes a configuration on purpose, as people do: without its digest."""
    path = folder / CONFIG_FILE
    config = {**json.loads(path.read_text()), **changes}
    config.pop("sha256", None)
    path.write_text(json.dumps(config))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- round trip


@pytest.mark.parametrize(
    ("env", "arguments"),
    [
        (TSPEnv(), {}),
        (CVRPEnv(), {"normalization": "instance", "use_graph_context": False}),
        (CVRPEnv(), {"normalization": None, "out_bias_pointer_attn": True, "temperature": 0.7}),
    ],
    ids=["tsp", "cvrp-pomo", "cvrp-other"],
)
def test_round_trip(env, arguments, tmp_path):
    """The same solutions and likelihoods, after training has moved weights and statistics."""
    policy = AttentionModelPolicy(env_name=env.name, **TINY, **arguments)
    td = env.reset(batch_size=3)
    policy(td, env, phase="train")["log_likelihood"].sum().backward()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.sub_(0.01 * parameter.grad)
    policy.eval()
    assert policy.save_pretrained(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    loaded = AttentionModelPolicy.from_pretrained(tmp_path / "a" / "b")
    assert not loaded.training
    assert loaded.temperature == policy.temperature
    for key, value in policy.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key
    with torch.no_grad():
        expected, out = policy(td, env, phase="test"), loaded(td, env, phase="test")
    assert torch.equal(out["actions"], expected["actions"])
    assert torch.equal(out["log_likelihood"], expected["log_likelihood"])
    anyone = load_pretrained(str(tmp_path / "a" / "b"))
    assert type(anyone) is AttentionModelPolicy
    assert anyone.state_dict().keys() == policy.state_dict().keys()


def test_loaded_policies_can_be_saved_again(folder, tmp_path):
    """The arguments travel on."""
    again = load_pretrained(folder).save_pretrained(tmp_path / "again")
    assert contents(again) == contents(folder)


def test_positional_arguments_are_remembered(tmp_path):
    policy = AttentionModelPolicy(None, None, 24, 1, 3)
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    assert loaded.decoder.project_node_embeddings.weight.shape == (72, 24)
    assert loaded.decoder.pointer.num_heads == 3


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_remember_their_arguments(policy, how, tmp_path):
    """A frozen copy (a baseline's, say) or one from a worker can be saved too."""
    twin = copy.deepcopy(policy) if how == "deepcopy" else pickle.loads(pickle.dumps(policy))
    loaded = load_pretrained(twin.save_pretrained(tmp_path))
    assert loaded.tanh_clipping == 7.0
    for key, value in policy.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)


def test_files_are_plain_json_and_safetensors(policy, folder):
    """Readable without this library."""
    assert set(contents(folder)) == {CONFIG_FILE, WEIGHTS_FILE}
    config = json.loads((folder / CONFIG_FILE).read_text())
    assert config["class"] == "AttentionModelPolicy"
    assert config["arguments"] == {"env_name": "tsp", "tanh_clipping": 7.0, **TINY}
    assert load_file(folder / WEIGHTS_FILE).keys() == policy.state_dict().keys()


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_files_can_be_read_by_others(policy, tmp_path):
    """As the user's umask says, not as private as a temporary file."""
    before = os.umask(0o022)
    try:
        folder = policy.save_pretrained(tmp_path / "shared")
    finally:
        os.umask(before)
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644, path.name


# ---------------------------------------------------------------- what cannot be saved


def test_arguments_that_are_not_plain(tmp_path):
    """Named in the message; nothing is written."""
    policy = AttentionModelPolicy(**TINY, init_embedding=nn.Linear(2, 16))
    with pytest.raises(ConfigError, match=r"init_embedding=Linear"):
        policy.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


class CustomEncoder(AutoregressiveEncoder):
    """Records its arguments, as all encoders do."""

    def __init__(self, width: int, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.project, self.inner = nn.Linear(2, width), inner

    def forward(self, td):
        hidden = self.project(td["locs"])
        return hidden, hidden


class CustomPolicy(AttentionModelPolicy):
    """A subclass with plain arguments."""

    def __init__(self, scale: float = 1.0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.scale = scale


PATH = f"{__name__}.CustomEncoder"


@pytest.mark.parametrize("allowed", [CustomEncoder, PATH])
def test_custom_parts_that_the_caller_allows(allowed, tmp_path):
    encoder = CustomEncoder(16, inner=CustomEncoder(3))
    policy = AttentionModelPolicy(encoder=encoder, **TINY).eval()
    policy.save_pretrained(tmp_path)
    for load in (load_pretrained, AttentionModelPolicy.from_pretrained):
        with pytest.raises(ConfigError, match=f"allow_classes=.*{PATH}"):
            load(tmp_path)
        loaded = load(tmp_path, allow_classes=[allowed])
        assert type(loaded.encoder) is type(loaded.encoder.inner) is CustomEncoder
        for key, value in policy.state_dict().items():
            assert torch.equal(loaded.state_dict()[key], value)


def test_custom_policies_that_the_caller_allows(tmp_path):
    policy = CustomPolicy(scale=2.0, **TINY)
    policy.save_pretrained(tmp_path)
    assert CustomPolicy.from_pretrained(tmp_path).scale == 2.0
    with pytest.raises(ConfigError, match=r"allow_classes=.*CustomPolicy"):
        load_pretrained(tmp_path)
    assert load_pretrained(tmp_path, allow_classes=[CustomPolicy]).scale == 2.0


def test_files_import_nothing_that_the_caller_did_not_name(policy, tmp_path, monkeypatch):
    """Neither a module in the file nor an allowed class that the file does not use."""
    (tmp_path / "trap_module.py").write_text("raise RuntimeError('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    folder = policy.save_pretrained(tmp_path / "saved")
    part = {"__class__": "trap_module.Encoder", "arguments": {}}
    edit_config(folder, arguments={**TINY, "encoder": part})
    with pytest.raises(ConfigError, match="allow_classes"):
        load_pretrained(folder, allow_classes=["trap_module.Other"])
    edit_config(folder, **{"class": "Strange", "module": "trap_module"})
    with pytest.raises(ConfigError, match="allow_classes"):
        load_pretrained(folder)
    for path in ("rl4co.core.lazy.Path", "rl4co.nothing.Encoder"):
        part = {"__class__": path, "arguments": {}}
        changes = {"class": "AttentionModelPolicy", "arguments": {**TINY, "encoder": part}}
        edit_config(folder, **changes)
        with pytest.raises(ConfigError, match="allow_classes"):
            load_pretrained(folder)


def test_wrong_entries_of_allow_classes(tmp_path):
    folder = CustomPolicy(**TINY).save_pretrained(tmp_path)
    for wrong in ("a.CustomPolicy", ["no_such_module.CustomPolicy"], ["CustomPolicy"]):
        with pytest.raises(ConfigError, match="allow_classes"):
            load_pretrained(folder, allow_classes=wrong)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64])
def test_weights_of_another_kind_are_rejected(dtype, folder):
    """Loading would convert them without a word."""
    weights = load_file(folder / WEIGHTS_FILE)
    weights = {key: value.to(dtype) for key, value in weights.items()}
    save_file(weights, folder / WEIGHTS_FILE)
    edit_config(folder)
    with pytest.raises(FileFormatError, match="floating-point"):
        load_pretrained(folder)


def test_weights_of_another_precision_are_accepted(policy, folder):
    policy.double().save_pretrained(folder)
    assert next(load_pretrained(folder).parameters()).dtype == torch.float32


def test_place_that_cannot_be_written(policy, tmp_path):
    """The file that was asked for, and what to do."""
    (tmp_path / "file").write_text("not a folder")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        message = f"expected to write {re.escape(str(target))}.*; choose a folder"
        with pytest.raises(WriteError, match=message):
            policy.save_pretrained(target)
    assert (tmp_path / "file").read_text() == "not a folder"


@pytest.mark.parametrize("victim", ["weights", "disk", "rename"])
def test_interrupted_writing_keeps_the_old_files(victim, policy, folder, monkeypatch):
    """Killed while writing either file: the folder is as before, without left-overs."""
    before = contents(folder)
    other = AttentionModelPolicy(env_name="cvrp", **{**TINY, "embed_dim": 32})

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    if victim == "weights":
        monkeypatch.setattr("safetensors.torch.save", interrupted)
    elif victim == "disk":
        monkeypatch.setattr(os, "fsync", interrupted)
    else:
        monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        other.save_pretrained(folder)
    monkeypatch.undo()
    assert contents(folder) == before
    assert load_pretrained(folder).env_name == "tsp"


def test_half_written_file_is_never_seen(policy, folder, monkeypatch):
    """The final name appears only when the content is complete."""
    before = contents(folder)

    def full(descriptor):
        assert {name: contents(folder)[name] for name in before} == before
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        policy.save_pretrained(folder)
    monkeypatch.undo()
    assert contents(folder) == before


# ---------------------------------------------------------------- invalid files


def test_unknown_class(folder):
    """An unknown class of the library is reported with the nearest name."""
    edit_config(folder, **{"class": "AttentionModelPolcy"})
    with pytest.raises(UnknownNameError, match="did you mean 'AttentionModelPolicy'"):
        load_pretrained(folder)


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "torch.nn.Linear", "object"])
def test_class_outside_the_library(name, folder):
    edit_config(folder, **{"class": name})
    with pytest.raises(UnknownNameError):
        load_pretrained(folder)


@pytest.mark.parametrize(
    "name", ["load_original_weights", "AttentionModel", "AttentionModelDecoder"]
)
def test_public_names_that_are_no_policies(name, folder):
    """Names of the library that cannot be loaded from a folder raise, and are not called."""
    edit_config(folder, **{"class": name})
    with pytest.raises(RL4COError):
        load_pretrained(folder)


def test_another_class_than_asked_for(folder):
    class Other(AttentionModelPolicy):
        pass

    with pytest.raises(FileFormatError, match=r"expected a Other.*got a AttentionModelPolicy"):
        Other.from_pretrained(folder)


def test_subclasses_load_their_own_files(tmp_path):
    """A class outside the library loads itself; only `load_pretrained` needs to know names."""

    class Mine(AttentionModelPolicy):
        pass

    folder = Mine(**TINY).save_pretrained(tmp_path)
    assert type(Mine.from_pretrained(folder)) is Mine
    with pytest.raises(ConfigError, match="Mine"):
        load_pretrained(folder)


def test_missing_files(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config.json.*save_pretrained"):
        load_pretrained(tmp_path / "nowhere")
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=WEIGHTS_FILE):
        load_pretrained(folder)


OURS = {"format": "rl4co-policy-1", "class": "AttentionModelPolicy", "arguments": {}}
FOREIGN = {
    "empty": "",
    "text": "not json",
    "list": "[]",
    "number": "3",
    "string": '"text"',
    "deep": "[" * 100_000,
    "endless number": f"[{'9' * 5000}]",
    "object": "{}",
    "another format": json.dumps({**OURS, "format": "other-1"}),
    "another library": json.dumps({"model_type": "bert", "hidden_size": 768}),
    "format only": json.dumps({"format": OURS["format"]}),
    "no arguments": json.dumps({"format": OURS["format"], "class": OURS["class"]}),
    "class is a list": json.dumps({**OURS, "class": ["AttentionModelPolicy"]}),
    "arguments are a list": json.dumps({**OURS, "arguments": [1]}),
    "unknown argument": json.dumps({**OURS, "arguments": {"x": 1}}),
    "argument of another type": json.dumps({**OURS, "arguments": {"embed_dim": "a"}}),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_configurations(kind, folder):
    """Any JSON that this library did not write raises `FileFormatError`, whatever is missing."""
    (folder / CONFIG_FILE).write_text(FOREIGN[kind])
    for load in (load_pretrained, AttentionModelPolicy.from_pretrained):
        with pytest.raises(FileFormatError):
            load(folder)


def test_configuration_in_another_encoding(folder):
    (folder / CONFIG_FILE).write_bytes(b'{"format": "\xff\xfe"}')
    with pytest.raises(FileFormatError, match="JSON"):
        load_pretrained(folder)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_weights(share, folder):
    """The digest tells; in older folders, which have none, the form of the file does."""
    path = folder / WEIGHTS_FILE
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileFormatError, match="digest differs"):
        load_pretrained(folder)
    edit_config(folder)
    with pytest.raises(FileFormatError, match="truncated or foreign"):
        load_pretrained(folder)


def test_one_flipped_byte_raises(policy, folder):
    """Anywhere in the weights, and wherever the configuration then says something else."""
    for name, step in ((WEIGHTS_FILE, 997), (CONFIG_FILE, 7)):
        path = folder / name
        content = path.read_bytes()
        for place in range(0, len(content), step):
            changed = bytearray(content)
            changed[place] ^= 1
            path.write_bytes(changed)
            with pytest.raises(RL4COError):
                load_pretrained(folder)
        path.write_bytes(content)
    assert load_pretrained(folder).state_dict().keys() == policy.state_dict().keys()
    edit_config(folder)  # as in earlier versions
    assert "sha256" not in json.loads((folder / CONFIG_FILE).read_text())
    assert load_pretrained(folder).state_dict().keys() == policy.state_dict().keys()


@pytest.mark.parametrize(
    "sizes",
    [
        {"embed_dim": 10**9, "num_heads": 1},
        {"embed_dim": 10**30},
        {"embed_dim": -2},
        {"num_encoder_layers": 10**9},
        {"num_encoder_layers": 10**6},
        {"embed_dim": 30_000, "num_heads": 1, "num_encoder_layers": 1000},
    ],
)
def test_absurd_sizes_raise_before_memory_is_taken(sizes, folder):
    """A configuration cannot ask for more numbers than the weights have."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
    config = json.loads((folder / CONFIG_FILE).read_text())
    edit_config(folder, arguments={**config["arguments"], **sizes})
    with pytest.raises(FileFormatError):
        load_pretrained(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 2**18


def test_weights_that_do_not_fit(policy, folder):
    """A missing, an additional, and a misshapen tensor; each is named."""
    weights = dict(policy.state_dict())
    edit_config(folder)
    name = "decoder.pointer.project_out.weight"
    for changed in (
        {key: value for key, value in weights.items() if key != name},
        {**weights, name: torch.zeros(2, 2)},
    ):
        save_file(changed, folder / WEIGHTS_FILE)
        with pytest.raises(FileFormatError, match=name):
            load_pretrained(folder)
    save_file({**weights, "unexpected": torch.zeros(1)}, folder / WEIGHTS_FILE)
    with pytest.raises(FileFormatError, match="unexpected"):
        load_pretrained(folder)


class Bomb:
    """Unpickling this creates a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("file", [CONFIG_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_code_in_a_file_is_not_run(file, form, folder, tmp_path):
    """Neither the configuration nor the weights are ever unpickled."""
    trap = tmp_path / "executed"
    if form == "pickle":
        (folder / file).write_bytes(pickle.dumps(Bomb(trap)))
    else:
        torch.save({"a": Bomb(trap)}, folder / file)
    with pytest.raises(FileFormatError):
        load_pretrained(folder)
    assert not trap.exists()


def test_files_import_networks_and_generators_alone():
    """A path to another module of the library, the command line say, is not imported."""
    assert library_class("rl4co.models.nn.transformer.FeedForward") is None  # records no arguments
    assert library_class("rl4co.envs.routing.tsp.generator.TSPGenerator") is TSPGenerator
    module = "rl4co.cli.__main__"
    assert library_class(f"{module}.main") is None
    assert module not in sys.modules
