"""Training from configurations: what a run gives, resuming, sweeps, mistakes, the command line."""

from __future__ import annotations

import csv
import errno
import os
import subprocess
import sys
import types

from pathlib import Path

import pytest
import torch
import yaml

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl4co.core.errors import (
    ConfigError,
    MissingDependencyError,
    UnknownArgumentError,
    UnknownNameError,
    WriteError,
)
from rl4co.envs import TSPEnv
from rl4co.models import POMO, AttentionModel
from rl4co.models.rl.checkpointing import describe_model
from rl4co.tasks.instantiate import (
    build,
    extras,
    get_metric_value,
    get_pylogger,
    instantiate_callbacks,
    instantiate_env,
    instantiate_loggers,
    instantiate_model,
    show_versions,
)
from rl4co.tasks.train import explain, load_config, overrides_to_resume, run, seed_run
from rl4co.training.folder_lock import FolderLock

REPOSITORY = Path(__file__).resolve().parents[3]
TINY = [
    "trainer=cpu",
    "trainer.max_epochs=1",
    "+trainer.enable_progress_bar=false",
    "+trainer.enable_model_summary=false",
    "~callbacks.rich_progress_bar",
    "~callbacks.model_summary",
    "env.generator_params.num_loc=6",
    "model.baseline=exponential",
    "model.batch_size=4",
    "model.val_batch_size=4",
    "model.test_batch_size=4",
    "model.train_data_size=8",
    "model.val_data_size=4",
    "model.test_data_size=4",
    "model.policy_kwargs={embed_dim: 16, num_heads: 2, num_encoder_layers: 1}",
    "seed=1",
]


def tiny(folder: Path, *overrides: str):
    """A configuration of a run that takes a moment."""
    return load_config([*TINY, f"paths.output_dir={folder}", *overrides])


def command(*arguments: str, cwd: Path, program: tuple[str, ...] = ("run.py",)):
    """`python run.py ...` (or another program) in a process of its own."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    start = [str(REPOSITORY / program[0])] if program[0].endswith(".py") else list(program)
    return subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
    )


# ---------------------------------------------------------------- a run


def test_training_starts_from_a_saved_policy(tmp_path: Path):
    """`model.policy` is the folder of a policy; checkpoints of the model do not need it again."""
    policy = instantiate_model(tiny(tmp_path).model, TSPEnv()).policy
    policy.save_pretrained(tmp_path / "policy")
    cfg = tiny(tmp_path, f"model.policy={tmp_path / 'policy'}", "~model.policy_kwargs")
    model = instantiate_model(cfg.model, TSPEnv())
    assert "object" in describe_model(model)["arguments"]["policy"]
    for weights, saved in zip(model.policy.parameters(), policy.parameters(), strict=True):
        assert weights is not saved and torch.equal(weights, saved)


def test_run_gives_metrics_objects_and_files(tmp_path: Path):
    """Training, validation and test metrics; checkpoints and a CSV file in the output folder."""
    metrics, objects = run(tiny(tmp_path))
    assert {"train/loss", "train/reward", "val/reward", "test/reward"} <= set(metrics)
    assert all(isinstance(value, float) for value in metrics.values())
    assert set(objects) == {"cfg", "env", "model", "callbacks", "logger", "trainer"}
    assert isinstance(objects["model"], AttentionModel) and isinstance(objects["env"], TSPEnv)
    assert objects["model"].run_seed == 1
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()
    assert (tmp_path / "checkpoints" / "epoch_000.ckpt").is_file()
    rows = list(csv.DictReader((tmp_path / "csv" / "version_0" / "metrics.csv").open()))
    assert any(row["val/reward"] for row in rows)
    hparams = yaml.safe_load((tmp_path / "csv" / "version_0" / "hparams.yaml").read_text())
    assert hparams["env"]["generator_params"]["num_loc"] == 6
    trainable = sum(p.numel() for p in objects["model"].parameters())
    assert hparams["model/params/total"] == trainable


def test_run_is_reproducible(tmp_path: Path):
    """The same seed gives the same numbers, another one does not."""
    first = run(tiny(tmp_path / "a", "test=false"))[0]
    again = run(tiny(tmp_path / "b", "test=false"))[0]
    other = run(tiny(tmp_path / "c", "test=false", "seed=2"))[0]
    assert first == again
    assert first["train/reward"] != other["train/reward"]


def test_best_validation_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Its value and its checkpoint; nothing for a run that keeps none."""
    caplog.set_level("INFO")
    objects = run(tiny(tmp_path / "a", "test=false", "trainer.max_epochs=2"))[1]
    checkpoint = objects["trainer"].checkpoint_callback
    (line,) = [record.message for record in caplog.records if "Best val" in record.message]
    assert f"{float(checkpoint.best_model_score):.4f}" in line
    assert checkpoint.best_model_path in line
    caplog.clear()
    run(
        tiny(
            tmp_path / "b",
            "test=false",
            "~callbacks.model_checkpoint",
            "~callbacks.last_checkpoint",
        )
    )
    assert not [record for record in caplog.records if "Best val" in record.message]


@pytest.mark.parametrize(
    "choice",
    ["model=glop", "model=am_gnn"]
    + [f"experiment=routing/{name}" for name in ("glop", "glop-cvrp2000", "glop-pctsp500")]
    + [f"experiment=graph/{name}" for name in ("flp-gcn", "flp-gat", "flp-mlp", "mcp-sage")],
)
def test_learning_rates_of_unstable_methods_are_low(choice: str):
    """With 1e-3, GLOP and the Attention Model on graphs can end worse than they began."""
    assert load_config([choice]).model.optimizer_kwargs.lr <= 3e-4


def test_configuration_is_not_modified(tmp_path: Path):
    """The caller's configuration stays as it is."""
    cfg = tiny(tmp_path, "train=false", "test=false", "+model_checkpoint.filename=other")
    before = OmegaConf.to_yaml(cfg)
    run(cfg)
    assert OmegaConf.to_yaml(cfg) == before


def test_train_and_test_can_be_left_out(tmp_path: Path):
    """Neither, one, or the other."""
    nothing, objects = run(tiny(tmp_path / "nothing", "train=false", "test=false"))
    assert nothing == {} and objects["trainer"].global_step == 0
    only_test = run(tiny(tmp_path / "test", "train=false"))[0]
    assert set(only_test) == {"test/reward"}
    only_train = run(tiny(tmp_path / "train", "test=false"))[0]
    assert "val/reward" in only_train and "test/reward" not in only_train


def test_resume_gives_the_numbers_of_an_uninterrupted_run(tmp_path: Path):
    """Two epochs at once, or one and one more from its checkpoint."""
    options = ["test=false", "trainer.max_epochs=2"]
    whole = run(tiny(tmp_path / "whole", *options))
    run(tiny(tmp_path / "first", "test=false"))
    last = tmp_path / "first" / "checkpoints" / "last.ckpt"
    rest = run(tiny(tmp_path / "rest", *options, f"ckpt_path={last}", "seed=77"))
    assert rest[0] == whole[0]
    weights = whole[1]["model"].state_dict()
    for name, value in rest[1]["model"].state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_last_checkpoint_is_renewed_without_a_new_best(tmp_path: Path):
    """It is what one resumes from; the best one may be older."""
    options = ["test=false", "trainer.max_epochs=3", "callbacks.model_checkpoint.monitor=epoch",
               "callbacks.model_checkpoint.mode=min"]  # fmt: skip
    objects = run(tiny(tmp_path, *options))[1]
    folder = tmp_path / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["epoch_000.ckpt", "last.ckpt"]
    steps = {path.stem: torch.load(path)["global_step"] for path in folder.iterdir()}
    assert steps == {"epoch_000": 2, "last": 6}
    # What is tested after training is the best one.
    assert objects["trainer"].checkpoint_callback.best_model_path == str(folder / "epoch_000.ckpt")
    more = run(tiny(tmp_path, *options[:1], "trainer.max_epochs=4", "ckpt_path=last"))[1]
    assert more["trainer"].global_step == 8


def test_last_checkpoint_follows_the_folder_of_the_best(tmp_path: Path):
    """The paper's shorthand moves both; without the best one, the default folder remains."""
    elsewhere = tmp_path / "elsewhere"
    run(tiny(tmp_path, "test=false", f"+model_checkpoint.dirpath={elsewhere}"))
    assert sorted(path.name for path in elsewhere.iterdir()) == ["epoch_000.ckpt", "last.ckpt"]
    run(tiny(tmp_path / "one", "test=false", "~callbacks.model_checkpoint"))
    (only,) = (tmp_path / "one" / "checkpoints").iterdir()
    assert only.name == "last.ckpt"


def test_checkpoint_can_be_tested_without_training(tmp_path: Path):
    """`train=false ckpt_path=...` repeats the test of the run that wrote it."""
    trained = run(tiny(tmp_path / "run"))[0]
    best = tmp_path / "run" / "checkpoints" / "epoch_000.ckpt"
    tested = run(tiny(tmp_path / "again", "train=false", f"ckpt_path={best}"))[0]
    assert tested["test/reward"] == trained["test/reward"]


def test_model_checkpoint_shorthand(tmp_path: Path):
    """The paper's top-level `model_checkpoint` overrides the callback."""
    run(tiny(tmp_path, "test=false", "+model_checkpoint.filename='best_{epoch:02d}'"))
    assert (tmp_path / "checkpoints" / "best_00.ckpt").is_file()


def test_continuing_a_run_by_its_folder(tmp_path: Path):
    """Its overrides are repeated, but for the checkpoint that it began from itself."""
    with pytest.raises(FileNotFoundError, match=r"overrides\.yaml"):
        overrides_to_resume(tmp_path)
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- seed=3\n- ckpt_path=old.ckpt\n")
    with pytest.raises(FileNotFoundError, match=r"last\.ckpt"):
        overrides_to_resume(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    assert overrides_to_resume(tmp_path) == [
        "seed=3", f"ckpt_path='{tmp_path}/checkpoints/last.ckpt'", f"hydra.run.dir='{tmp_path}'"
    ]  # fmt: skip


def test_modules_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`extras.imports`, which `--import` sets, finds modules of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_registrations.py").write_text("import sys; sys.registered = True\n")
    extras(load_config([*TINY, "extras.imports=[my_registrations]"]))
    assert sys.__dict__.pop("registered")
    with pytest.raises(ConfigError, match="no_such_module"):
        extras(load_config([*TINY, "extras.imports=[no_such_module]"]))


def test_no_logger_and_no_callbacks(tmp_path: Path):
    """Both groups may be empty."""
    overrides = [entry for entry in TINY if not entry.startswith("~")]
    cfg = load_config(
        [*overrides, "callbacks=none", "logger=none", "+trainer.enable_checkpointing=false",
         f"paths.output_dir={tmp_path}"]
    )  # fmt: skip
    metrics, objects = run(cfg)
    assert "test/reward" in metrics
    assert objects["logger"] == [] and objects["callbacks"] == []


def test_policies_get_plain_values(tmp_path: Path):
    """No OmegaConf container reaches an object: a trained policy can be saved as JSON."""
    overrides = [entry for entry in TINY if "policy_kwargs" not in entry]
    cfg = load_config(
        [*overrides, "model=reinforce", "model.policy.env_name=tsp", "+model.policy.embed_dim=16",
         "+model.policy.num_heads=2", "train=false", "test=false", f"paths.output_dir={tmp_path}"]
    )  # fmt: skip
    _, objects = run(cfg)
    assert type(objects["model"].optimizer_kwargs) is dict
    assert type(objects["model"].lr_scheduler_kwargs["milestones"]) is list
    objects["model"].policy.save_pretrained(tmp_path / "policy")


# ---------------------------------------------------------------- objects from configurations


def test_environment_by_name_or_by_class():
    """`name` is for lookups and references; a class does not get it."""
    by_name = {"_target_": "rl4co.envs.get_env", "name": "tsp"}
    by_class = {"_target_": "rl4co.envs.TSPEnv", "name": "tsp", "generator_params": {"num_loc": 5}}
    assert isinstance(instantiate_env(OmegaConf.create(by_name)), TSPEnv)
    assert instantiate_env(OmegaConf.create(by_class)).generator.num_loc == 5


def test_build_needs_a_target():
    """A configuration without _target_ raises."""
    with pytest.raises(ConfigError, match="_target_"):
        build(OmegaConf.create({"a": 1}))


def test_errors_of_a_target_arrive_as_they_are(tmp_path: Path):
    """Not wrapped in an error of Hydra."""
    with pytest.raises(UnknownNameError, match="rollout"):
        run(tiny(tmp_path, "model.baseline=rolout"))


@pytest.mark.parametrize("function", [instantiate_callbacks, instantiate_loggers])
def test_groups_of_objects(function):
    """None and empty groups give nothing."""
    assert function(None) == []
    assert function(OmegaConf.create({})) == []


def test_callback_without_target_is_rejected():
    """Probably a misspelled name."""
    with pytest.raises(ConfigError, match=r"expected callbacks\.early_stoping with _target_"):
        instantiate_callbacks(OmegaConf.create({"early_stoping": {"patience": 3}}))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("csv", ["CSVLogger"]), ("tensorboard", ["TensorBoardLogger"]), ("none", [])],
)
def test_logger_of_the_command_line_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, choice: str, expected: list[str]
):
    """The paper's example describes another logger; its settings are left out with a warning."""
    cfg = load_config(["experiment=example", f"logger={choice}", f"paths.output_dir={tmp_path}"])
    assert [type(logger).__name__ for logger in instantiate_loggers(cfg.logger)] == expected
    assert "logger.wandb has settings, but is not among the loggers" in caplog.text


def test_chosen_logger_without_target_is_rejected(monkeypatch: pytest.MonkeyPatch):
    """Whoever asks for a logger gets it or an error."""
    chosen = types.SimpleNamespace(runtime=types.SimpleNamespace(choices={"logger": "mine"}))
    monkeypatch.setattr("rl4co.tasks.instantiate.HydraConfig.initialized", lambda: True)
    monkeypatch.setattr("rl4co.tasks.instantiate.HydraConfig.get", lambda: chosen)
    with pytest.raises(ConfigError, match=r"expected logger\.mine with _target_"):
        instantiate_loggers(OmegaConf.create({"mine": {"project": "x"}}))


def test_unknown_keys_of_a_target_get_a_suggestion():
    """Also those of classes that are not the library's own."""
    target = "lightning.pytorch.callbacks.EarlyStopping"
    cfg = OmegaConf.create({"_target_": target, "monitor": "val/reward", "patients": 3})
    with pytest.raises(UnknownArgumentError, match=r"EarlyStopping 'patients'; .*'patience'"):
        build(cfg)


def test_progress_bar_can_be_switched_off(tmp_path: Path):
    """By the trainer's own setting, although `callbacks=default` brings a bar."""
    overrides = [entry for entry in TINY if entry != "~callbacks.rich_progress_bar"]
    cfg = load_config([*overrides, "test=false", f"paths.output_dir={tmp_path}"])
    _, objects = run(cfg)
    assert objects["trainer"].progress_bar_callback is None
    assert "rich_progress_bar" in cfg.callbacks, "the configuration given is not modified"


class LoggerOfMissingPackage:
    """Fails as Lightning's loggers do when their package is not installed."""

    def __init__(self, save_dir: str) -> None:
        raise ModuleNotFoundError("Requirement 'wandb' not met")


def test_missing_logger_is_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """A missing package costs no metrics: a CSV file, and the line to install it."""
    module = types.SimpleNamespace(LoggerOfMissingPackage=LoggerOfMissingPackage)
    monkeypatch.setitem(sys.modules, "test_loggers", module)
    target = "test_loggers.LoggerOfMissingPackage"
    cfg = OmegaConf.create({"wandb": {"_target_": target, "save_dir": str(tmp_path)}})
    (logger,) = instantiate_loggers(cfg)
    assert type(logger).__name__ == "CSVLogger"
    assert str(tmp_path) in logger.log_dir
    assert "pip install 'wandb'" in caplog.text
    with pytest.raises(MissingDependencyError, match="pip install 'wandb'"):
        instantiate_loggers(cfg, strict=True)


def test_metric_of_a_search():
    """The metric that was asked for, or an error that lists what there is."""
    assert get_metric_value({"val/reward": 1.5}, "val/reward") == 1.5
    assert get_metric_value({}, None) is None
    with pytest.raises(ConfigError, match="val/reward"):
        get_metric_value({"val/reward": 1.5}, "val/rewards")


def test_logger_of_other_processes_is_silent(monkeypatch: pytest.MonkeyPatch, caplog):
    """In a distributed run only the first process speaks."""
    log = get_pylogger("rl4co.test")
    monkeypatch.setenv("LOCAL_RANK", "1")
    log.warning("from the second process")
    monkeypatch.setenv("LOCAL_RANK", "0")
    log.warning("from the first process")
    assert "second" not in caplog.text and "first" in caplog.text


def test_drawn_seed_is_shared_with_other_processes(monkeypatch: pytest.MonkeyPatch):
    """Processes started by this one get its seed; unrelated ones must be told."""
    seed = seed_run(None)
    assert torch.initial_seed() == seed
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert seed_run(None) == seed
    monkeypatch.delenv("RL4CO_DRAWN_SEED")
    with pytest.raises(ConfigError, match="seed="):
        seed_run(None)


def test_show_versions(capsys: pytest.CaptureFixture[str]):
    """One line per package, installed or not."""
    show_versions()
    out = capsys.readouterr().out
    assert "torch : " in out and "Python : " in out


# ---------------------------------------------------------------- custom configurations


def test_own_folder_of_configurations(tmp_path: Path):
    """An experiment in another folder is found and may build on packaged ones."""
    folder = tmp_path / "mine" / "experiment"
    folder.mkdir(parents=True)
    (folder / "small.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n  - override /model: pomo\n"
        "env:\n  generator_params:\n    num_loc: 5\n"
    )
    cfg = load_config(["experiment=small"], config_dir=tmp_path / "mine")
    assert cfg.env.generator_params.num_loc == 5
    assert cfg.model._target_ == "rl4co.models.POMO"


def test_experiment_without_package_line_is_rejected(tmp_path: Path):
    """Without its first line an experiment would change nothing; the error says which line."""
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "lost.yaml").write_text("trainer:\n  max_epochs: 3\n")
    cfg = load_config(["experiment=lost", f"paths.output_dir={tmp_path}"], config_dir=tmp_path)
    with pytest.raises(ConfigError, match="# @package _global_"):
        run(cfg)


# ---------------------------------------------------------------- the command line


def _reward(folder: Path) -> str:
    (file,) = folder.rglob("metrics.csv")
    rows = list(csv.DictReader(file.open()))
    return next(row["test/reward"] for row in rows if row["test/reward"])


#: A part of the user's own, and an experiment with it.
STAMP = """
from lightning.pytorch.callbacks import Callback

class Stamp(Callback):
    def on_fit_start(self, trainer, pl_module):
        print("stamped")
"""
OWN = (
    "# @package _global_\nmodel:\n  val_data_size: 2\ncallbacks:\n  own: {_target_: stamps.Stamp}\n"
)


def test_run_py_and_the_command_do_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Same arguments, same files, same numbers; a custom folder is found.

    Targets in it are built without being asked for, and whoever trains where another process does
    is warned.
    """
    mine = tmp_path / "mine" / "experiment"
    mine.mkdir(parents=True)
    (mine / "tiny.yaml").write_text(OWN)
    (tmp_path / "stamps.py").write_text(STAMP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rewards = {}
    programs = {"run": ("run.py",), "cli": ("-c", "from rl4co.cli import main; main()", "train")}
    for name, program in programs.items():
        cwd = tmp_path / name
        busy = FolderLock(cwd / "busy")
        busy.folder.mkdir(parents=True)
        busy.claim()
        result = command(
            "--config-dir", str(tmp_path / "mine"), *TINY, "experiment=tiny",
            "callbacks.model_checkpoint.dirpath=busy", cwd=cwd, program=program,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "test/reward" in result.stdout and "stamped" in result.stdout
        assert f"in which process {os.getpid()} is running" in result.stderr
        (folder,) = (cwd / "logs" / "train" / "runs").iterdir()
        assert [file.name for file in busy.folder.glob("last*")] == ["last.ckpt"]
        rewards[name] = _reward(folder)
    assert rewards["run"] == rewards["cli"]


def test_sweep(tmp_path: Path):
    """`-m` runs one job for each value, each in its folder and with its own seed."""
    result = command("-m", *TINY[:-1], "seed=1,2", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    jobs = [tmp_path / "sweep" / job for job in ("0", "1")]
    assert all((job / "checkpoints" / "last.ckpt").is_file() for job in jobs)
    assert _reward(jobs[0]) != _reward(jobs[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trainer.max_epoch=3"], "of trainer 'max_epoch'; did you mean 'max_epochs'"),
        (["env.name=tps"], "did you mean 'tsp'"),
        (["+model.policy_kwargs.embed_dims=3"], "'embed_dims'; did you mean 'embed_dim'"),
        (["paths.log_dir=a_file"], "a folder that can be written to"),
    ],
)
def test_mistakes_end_in_a_message(tmp_path: Path, arguments: list[str], message: str):
    """Exit code 2 and what to do, no traceback."""
    (tmp_path / "a_file").write_text("not a folder")
    result = command(*TINY, *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("experiment=exmple", "no experiment configuration 'exmple'; did you mean 'example'?"),
        ("experiment=routing/pom", "did you mean 'routing/pomo'?"),
        ("env=tps", "no env configuration 'tps'; did you mean 'tsp'?"),
        ("logger=[csv,wandbb]", "no logger configuration 'wandbb'; did you mean 'wandb'?"),
        (
            "env.generator_params.numloc=3",
            "no setting of env.generator_params 'numloc'; did you mean 'num_loc'? known: num_loc; "
            "to add one write +env.generator_params.numloc=...",
        ),
        ("modle=am", "no setting of the configuration 'modle'; did you mean 'mode'?"),
    ],
)
def test_unknown_choices_get_a_suggestion(override: str, message: str):
    """Hydra's own errors list what is directly in a group, and nothing for values."""
    with pytest.raises((HydraException, OmegaConfBaseException)) as caught:
        load_config([override])
    assert message in explain(caught.value)


def test_folders_that_cannot_be_written_to_are_explained():
    """Whatever the system's reason; an error that has a remedy keeps its words."""
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "nowhere/logs")
    assert "written to, got nowhere/logs (No such file or directory); choose" in explain(missing)
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "got another (No space left on device); free some space or choose" in explain(full)
    own = WriteError("logs/last.ckpt", full, "earlier checkpoints are intact, so make room")
    assert explain(own) == (
        "expected to write logs/last.ckpt, got: No space left on device; earlier checkpoints are "
        "intact, so make room"
    )
    assert explain(FileNotFoundError("expected a checkpoint, got none")).startswith("expected a c")


def test_unknown_experiment_lists_those_in_folders():
    with pytest.raises(HydraException) as caught:
        load_config(["experiment=exmple"])
    listing = explain(caught.value).split("known: ")[1].split(", ")
    assert {"example", "quick", "routing/am", "routing/pomo"} <= set(listing)


def test_help_names_groups_and_examples(tmp_path: Path):
    """`--help` lists the choices."""
    result = command("--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "experiment=quick" in result.stdout and "logger: " in result.stdout
    assert not list(tmp_path.iterdir()), "help must not leave files behind"


def test_pomo_is_what_the_group_says(tmp_path: Path):
    """Another model of the zoo, through its group."""
    overrides = [entry for entry in TINY if "baseline" not in entry]
    cfg = load_config([*overrides, "model=pomo", "test=false", f"paths.output_dir={tmp_path}"])
    metrics, objects = run(cfg)
    assert isinstance(objects["model"], POMO)
    assert "val/max_aug_reward" in metrics
