"""Checkpoint files: atomic writing, early errors, reading without running code."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import warnings
import zipfile

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning.pytorch.callbacks import Callback, ModelCheckpoint

import rl4co.models

from rl4co.core.errors import ConfigError, FileFormatError, RL4COError
from rl4co.core.processes import own_mark
from rl4co.models.rl import checkpointing
from rl4co.models.rl.base import RL4COLitModule
from rl4co.models.rl.checkpointing import read_checkpoint
from rl4co.training.checkpoint import AtomicCheckpointIO, require_writable, write_atomically
from rl4co.training.folder_lock import FolderLock
from tests.unit.training import runs


def saving(folder: Path, **options: Any) -> ModelCheckpoint:
    return ModelCheckpoint(dirpath=folder, filename="last", enable_version_counter=False, **options)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The checkpoint of a run of one epoch."""
    runs.make_trainer(tmp_path, max_epochs=1, callbacks=[saving(tmp_path)]).fit(runs.make_model())
    return tmp_path / "last.ckpt"


# ---------------------------------------------------------------- writing


def test_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.ckpt"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_full_disk_leaves_the_previous_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    """A limit on file sizes simulates a full disk: the error says what to do."""
    before = checkpoint.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    trainer = runs.make_trainer(tmp_path, max_epochs=2, callbacks=[saving(tmp_path)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(OSError, match="earlier checkpoints are intact"):
            trainer.fit(runs.make_model(), ckpt_path=checkpoint)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoint.read_bytes() == before
    assert not list(tmp_path.glob(".*.tmp"))


def test_kill_during_writing_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    """The process dies between writing the bytes and renaming the file."""
    path = tmp_path / "a.ckpt"
    write_atomically(path, b"previous")
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from rl4co.training.checkpoint import write_atomically\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(Path(sys.argv[1]), b'x' * 1000)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"previous"
    # What it left behind goes with the next file that is written there; nothing else does.
    (left,) = tmp_path.glob(".a.ckpt.*.tmp")
    running = left.with_name(re.sub(r"\.\d+-", f".{os.getpid()}-", left.name))
    earlier, foreign = tmp_path / f".b.ckpt.{'0' * 32}.tmp", tmp_path / ".notes.tmp"
    for file in (running, earlier, foreign):
        file.touch()
        os.utime(file, (0, 0) if file == foreign else None)
    write_atomically(tmp_path / "b.ckpt", b"next")
    assert not left.exists() and running.exists() and earlier.exists() and foreign.exists()
    for file in (running, earlier):
        os.utime(file, (0, 0))
    write_atomically(tmp_path / "b.ckpt", b"next")
    assert {file.name for file in tmp_path.iterdir()} == {"a.ckpt", "b.ckpt", ".notes.tmp"}


def test_interruption_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.ckpt", b"new")
    assert not list(tmp_path.iterdir())


def test_unwritable_folder_is_rejected_before_training(tmp_path: Path) -> None:
    """Not after the first epoch, as Lightning does."""
    blocked = tmp_path / "file"
    blocked.write_text("a file, not a folder")
    steps: list[int] = []

    class Steps(Callback):
        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            steps.append(batch_idx)

    trainer = runs.make_trainer(tmp_path, callbacks=[Steps(), saving(blocked / "checkpoints")])
    with pytest.raises(ConfigError, match=re.escape(f"got {blocked / 'checkpoints'}")):
        trainer.fit(runs.make_model())
    assert steps == []


def test_unwritable_root_is_rejected_before_training(tmp_path: Path) -> None:
    """Metrics go there, too, and Lightning would fail on them in the system's words."""
    blocked = tmp_path / "file"
    blocked.write_text("a file, not a folder")
    trainer = runs.make_trainer(blocked / "root", logger=None)
    with pytest.raises(ConfigError, match=r"a folder for metrics .*root.*default_root_dir"):
        trainer.fit(runs.make_model())


def test_second_training_in_a_folder_is_warned(tmp_path: Path) -> None:
    """If the first is still running; the note is taken back at the end, also after an error."""
    note = tmp_path / FolderLock(tmp_path).path.name
    other = subprocess.Popen(["sleep", "60"])
    mark = own_mark().replace(str(os.getpid()), str(other.pid), 1)

    def train(*callbacks: Callback) -> None:
        callbacks = (saving(tmp_path), *callbacks)
        runs.make_trainer(tmp_path, max_epochs=1, callbacks=[*callbacks]).fit(runs.make_model())

    try:
        note.write_text(mark)
        with pytest.warns(UserWarning, match=f"in which process {other.pid} is running"):
            train()
        assert not note.exists()
        note.write_text(mark)
    finally:
        other.kill()
        other.wait()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "expected a folder that no other training writes to")
        with pytest.raises(ZeroDivisionError):
            train(Fails())
        assert not note.exists()
        note.write_text("no mark")
        train()


class Fails(Callback):
    """An error in the middle of training."""

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError


def test_writable_folders_are_created(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b")
    assert not list((tmp_path / "a" / "b").iterdir())
    require_writable("s3://bucket/folder")  # not ours to check


# ---------------------------------------------------------------- content


def test_checkpoint_holds_plain_values_only(checkpoint: Path) -> None:
    """It opens with `weights_only=True`; with any scheduler, callback and baseline we have."""
    content = torch.load(checkpoint, weights_only=True)
    assert torch.serialization.get_unsafe_globals_in_checkpoint(checkpoint) == []
    assert content["run_seed"] == 5
    assert content["rl4co"]["class"] == "AttentionModel"
    assert any(key.startswith("baseline.") for key in content["state_dict"])
    assert content["lr_schedulers"]
    assert content["optimizer_states"]


@pytest.mark.parametrize(
    ("scheduler", "options"),
    [
        ("StepLR", {"step_size": 1}),
        ("CosineAnnealingLR", {"T_max": 3}),
        ("OneCycleLR", {"max_lr": 1e-3, "total_steps": 10}),
        ("LambdaLR", {"lr_lambda": lambda epoch: 0.5**epoch}),
        ("ReduceLROnPlateau", {"mode": "max"}),
    ],
)
def test_every_scheduler_can_be_resumed(
    scheduler: str, options: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"lr_scheduler": scheduler, "lr_scheduler_kwargs": options}
    trainer = runs.make_trainer(tmp_path, max_epochs=1, callbacks=[saving(tmp_path)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(runs.make_model("pomo", **settings))
    assert not [each for each in caught if "plain values" in str(each.message)]
    trainer = runs.make_trainer(tmp_path, max_epochs=2)
    trainer.fit(runs.make_model("pomo", **settings), ckpt_path=tmp_path / "last.ckpt")
    assert trainer.current_epoch == 2


class Remembers(Callback):
    """A callback whose state is a Python object."""

    def state_dict(self) -> dict[str, Any]:
        return {"path": Path("somewhere")}


def test_objects_in_a_checkpoint_are_announced_when_it_is_written(tmp_path: Path) -> None:
    """Once, at the first one; resuming then takes an explicit decision."""
    trainer = runs.make_trainer(
        tmp_path, max_epochs=2, callbacks=[Remembers(), saving(tmp_path, every_n_epochs=1)]
    )
    with pytest.warns(UserWarning, match=r"got also objects of pathlib\.\S+ .*weights_only=False"):
        trainer.fit(runs.make_model())
    path = tmp_path / "last.ckpt"
    resumed = runs.make_trainer(tmp_path, max_epochs=3, callbacks=[Remembers()])
    with pytest.raises(
        FileFormatError, match=r"could run code \(pathlib\.\S+\), which are not loaded"
    ):
        resumed.fit(runs.make_model(), ckpt_path=path)
    resumed.fit(runs.make_model(), ckpt_path=path, weights_only=False)
    assert resumed.current_epoch == 3


def test_remote_paths_are_left_to_lightning(checkpoint: Path) -> None:
    """`memory://` is a file system of fsspec, like `s3://`."""
    io = AtomicCheckpointIO()
    io.save_checkpoint({"value": 3}, "memory://folder/a.ckpt")
    assert io.load_checkpoint("memory://folder/a.ckpt") == {"value": 3}


def test_best_and_last_are_two_callbacks(tmp_path: Path) -> None:
    """`save_last` of a callback that monitors a metric is renewed with a new best only.

    So a run that should be resumed where it ended needs a callback without a metric.
    """

    class Worse(Callback):
        """Reports a reward that falls from epoch to epoch."""

        def on_validation_epoch_end(self, trainer, model):
            model.log("val/falling", -float(trainer.current_epoch))

    best = ModelCheckpoint(
        dirpath=tmp_path, filename="best", monitor="val/falling", mode="max", save_top_k=1
    )
    trainer = runs.make_trainer(tmp_path, callbacks=[Worse(), best, saving(tmp_path)])
    trainer.fit(runs.make_model())
    content = {name: torch.load(tmp_path / f"{name}.ckpt") for name in ("best", "last")}
    assert content["best"]["global_step"] == runs.NUM_BATCHES
    assert content["last"]["global_step"] == 3 * runs.NUM_BATCHES
    resumed = runs.make_trainer(tmp_path, max_epochs=4, callbacks=[Worse(), best, saving(tmp_path)])
    resumed.fit(runs.make_model(), ckpt_path="last")
    assert resumed.global_step == 4 * runs.NUM_BATCHES
    assert torch.load(tmp_path / "last.ckpt")["global_step"] == 4 * runs.NUM_BATCHES


# ---------------------------------------------------------------- reading


def damaged(kind: str, good: bytes) -> bytes:
    return {
        "half": good[: len(good) // 2],
        "a few bytes": good[:100],
        "empty": b"",
        "text": b"hello world\n" * 10,
        "zeros": b"\0" * 1000,
    }[kind]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        *(("fit", kind) for kind in ("half", "a few bytes", "empty", "text", "zeros")),
        ("validate", "half"),
        ("test", "half"),
    ],
)
def test_damaged_files_are_named(kind: str, call: str, checkpoint: Path, tmp_path: Path) -> None:
    checkpoint.write_bytes(damaged(kind, checkpoint.read_bytes()))
    trainer = runs.make_trainer(tmp_path)
    with pytest.raises(FileFormatError, match=re.escape(str(checkpoint)) + ".*older checkpoint"):
        getattr(trainer, call)(runs.make_model(), ckpt_path=checkpoint)


def test_one_flipped_byte_is_rejected(checkpoint: Path, tmp_path: Path) -> None:
    """Wherever it is; files without a digest, of earlier versions or of others, are read."""
    content = checkpoint.read_bytes()
    changed_file = tmp_path / "changed.ckpt"
    for place in (*range(0, len(content), 499), *range(len(content) - 99, len(content))):
        changed = bytearray(content)
        changed[place] ^= 1
        changed_file.write_bytes(changed)
        with pytest.raises(FileFormatError, match=r"digest differs|truncated or foreign"):
            read_checkpoint(changed_file)
    with checkpoint.open("rb") as file:
        assert read_checkpoint(file).keys() == torch.load(checkpoint, weights_only=True).keys()
    assert zipfile.ZipFile(checkpoint).testzip() is None
    torch.save(read_checkpoint(checkpoint), changed_file)
    assert read_checkpoint(changed_file).keys() == read_checkpoint(checkpoint).keys()


@pytest.mark.parametrize("entry", [3, {}, {"object": 3}, {"object": {}}, {"value": [1]}])
def test_senseless_descriptions_are_rejected(checkpoint: Path, entry: Any) -> None:
    """Whatever stands where an environment or settings should be described."""
    content = read_checkpoint(checkpoint)
    record = content["rl4co"]
    for part in ("env", "policy_kwargs"):
        changed = {**record, "arguments": {**record["arguments"], part: entry}}
        torch.save({**content, "rl4co": changed}, checkpoint)
        with pytest.raises(RL4COError, match=r"no model can be built|no class|expected "):
            RL4COLitModule.load_from_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("part", "size"), [("policy_kwargs", {"embed_dim": 10**9}), ("env", {"num_loc": 10**10})]
)
def test_absurd_sizes_in_a_checkpoint(checkpoint: Path, part: str, size: dict[str, int]) -> None:
    """Are rejected before memory is taken for them."""
    content = read_checkpoint(checkpoint)
    entry = content["rl4co"]["arguments"][part]
    if part == "env":
        entry = entry["object"]["arguments"]["generator_params"]
    entry["value"] |= size
    torch.save(content, checkpoint)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
    with pytest.raises(FileFormatError, match="the configuration is damaged"):
        RL4COLitModule.load_from_checkpoint(checkpoint)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 2**18


def test_foreign_and_missing_files_are_rejected(tmp_path: Path) -> None:
    trainer = runs.make_trainer(tmp_path)
    torch.save({"weight": torch.zeros(3)}, tmp_path / "foreign.ckpt")
    with pytest.raises(FileFormatError, match=r"foreign\.ckpt, got a file with \['weight'\]"):
        trainer.fit(runs.make_model(), ckpt_path=tmp_path / "foreign.ckpt")
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(FileFormatError, match="got a file with"):
        trainer.fit(runs.make_model(), ckpt_path=tmp_path / "list.ckpt")
    with pytest.raises(FileNotFoundError, match=r"expected a checkpoint at .*none\.ckpt"):
        trainer.fit(runs.make_model(), ckpt_path=tmp_path / "none.ckpt")


def test_checkpoint_of_another_model_is_rejected(checkpoint: Path, tmp_path: Path) -> None:
    trainer = runs.make_trainer(tmp_path)
    with pytest.raises(FileFormatError, match="this POMO, got one of AttentionModel"):
        trainer.fit(runs.make_model("pomo"), ckpt_path=checkpoint)
    wider = runs.make_model(policy_kwargs={**runs.POLICY, "feedforward_hidden": 32})
    with pytest.raises(FileFormatError, match=r"weight is .*\[16, 16\] instead of"):
        trainer.fit(wider, ckpt_path=checkpoint)


@pytest.mark.parametrize("name", ["PPO", "n_step_PPO", "ConstructAndImprove", "AttentionModel"])
def test_models_are_found_that_are_not_imported_yet(name: str, monkeypatch: Any) -> None:
    """Algorithms, too, not only the methods of the zoo."""
    monkeypatch.setattr(checkpointing, "_subclasses", lambda cls: [])
    found = checkpointing._model_class(RL4COLitModule, name, "a file")
    assert found is getattr(rl4co.models, name)
    with pytest.raises(FileFormatError, match="got one of checkpointing"):
        checkpointing._model_class(RL4COLitModule, "checkpointing", "a file")


def test_programs_in_a_checkpoint_are_called_by_their_name(tmp_path: Path) -> None:
    """Such a file is neither truncated nor worth a second try."""

    class Program:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, ("true",))

    path = tmp_path / "bad.ckpt"
    torch.save(
        {"state_dict": {}, "pytorch-lightning_version": "2.6.0", "callbacks": Program()}, path
    )
    message = r"objects that would run code \(\w+\.system\), which are not loaded; .* do not open"
    with pytest.raises(FileFormatError, match=message):
        read_checkpoint(path)


def test_opening_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    """A file that would create another file when unpickled does not."""
    marker = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (marker,))

    path = tmp_path / "bad.ckpt"
    torch.save(
        {"state_dict": {}, "pytorch-lightning_version": "2.6.0", "callbacks": Payload()}, path
    )
    with pytest.raises(FileFormatError, match=r"bad\.ckpt"):
        runs.make_trainer(tmp_path).fit(runs.make_model(), ckpt_path=path)
    with pytest.raises(FileFormatError, match=r"bad\.ckpt"):
        type(runs.make_model()).load_from_checkpoint(path)
    assert not marker.exists()
