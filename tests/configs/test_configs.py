"""Every configuration that is shipped: it composes, builds what it names, and runs one step."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from rl4co.core.errors import MissingDependencyError
from rl4co.core.registry import MODELS
from rl4co.envs import scheduling
from rl4co.tasks.instantiate import build, instantiate_env, instantiate_loggers
from rl4co.tasks.train import CONFIG_DIR, load_config, prepare_config, run

#: The example of the paper, apart from its second, identical `max_epochs: 100`: YAML allows a key
#: only once.
PAPER_EXAMPLE = """
defaults:
  - override /env: tsp.yaml
  - override /model: am.yaml
  - override /callbacks: default.yaml
  - override /trainer: default.yaml
  - override /logger: wandb.yaml
env:
  generator_params:
    num_loc: 50
model:
  policy:
    _target_: rl4co.models.zoo.am.policy.AttentionModelPolicy
    embed_dim: 128
    num_heads: 8
    num_encoder_layers: 3
    feedforward_hidden: 128
    env_name: "${env.name}"
  baseline: "rollout"
  batch_size: 512
  train_data_size: 1_280_000
  optimizer_kwargs:
    lr: 1e-4
model_checkpoint:
  dirpath: ${paths.output_dir}/checkpoints
  filename: "epoch_{epoch:03d}"
trainer:
  max_epochs: 100
  gradient_clip_val: 1.0
  precision: "16-mixed"
  strategy: DDPStrategy
  matmul_precision: "medium"
logger:
  wandb:
    project: "rl4co"
    name: "am-tsp${env.generator_params.num_loc}"
"""

FILES = sorted(
    path.relative_to(CONFIG_DIR).with_suffix("").as_posix()
    for path in CONFIG_DIR.rglob("*.yaml")
    if path.parent.name != "reproduce"  # families of tables, not configurations of Hydra
)
EXPERIMENTS = [name.removeprefix("experiment/") for name in FILES if name.startswith("experiment/")]
GROUPS = {"callbacks", "debug", "env", "experiment", "extras", "hydra", "logger", "model", "paths",
          "trainer"}  # fmt: skip

#: Small instances, by the arguments of generators.
SIZES = {"num_loc": 6, "num_jobs": 3, "num_machines": 3, "num_job": 4, "num_sets": 6}
#: What makes any experiment a matter of seconds.
TINY = [
    "model.batch_size=4",
    "model.val_batch_size=4",
    "model.test_batch_size=4",
    "model.train_data_size=8",
    "model.val_data_size=4",
    "model.test_data_size=4",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "+trainer.enable_progress_bar=false",
    "+trainer.enable_model_summary=false",
    "~callbacks.rich_progress_bar",
    "~callbacks.model_summary",
]


def targets(node: Any) -> Iterator[str]:
    """Every `_target_` of a configuration."""
    if isinstance(node, DictConfig):
        if "_target_" in node:
            yield node["_target_"]
        for key in node:
            if not OmegaConf.is_interpolation(node, key):
                yield from targets(node[key])


def tiny_run(experiment: str, folder: Path, *overrides: str):
    """A few small batches of an experiment."""
    env = load_config([f"experiment={experiment}"]).env
    generator = env.generator_params or {}  # null beside a generator
    sizes = [f"env.generator_params.{key}={SIZES[key]}" for key in SIZES if key in generator]
    if "generator" in env:
        sizes += ["env.generator.min_size=6", "env.generator.max_size=8"]
    cfg = load_config(
        [f"experiment={experiment}", *sizes, *TINY, f"paths.output_dir={folder}", *overrides]
    )
    if cfg.model.get("baseline") == "rollout":
        # Otherwise the policies are compared on 10,000 instances after each epoch.
        cfg.model.baseline_kwargs = {"dataset_size": 4}
    if "max_iters" in cfg.model:
        cfg.model.max_iters = 1  # a search: one iteration for each instance
    if "T_train" in cfg.model:
        cfg.model.T_train, cfg.model.T_test = cfg.model.n_step, 2  # improvement: a few moves
    return run(cfg)


def test_all_groups_are_there():
    """The groups of the published package."""
    assert {path.name for path in CONFIG_DIR.iterdir() if path.is_dir()} == {*GROUPS, "reproduce"}
    assert (CONFIG_DIR / "main.yaml").is_file()


@pytest.mark.parametrize("file", FILES)
def test_every_file_says_what_it_is(file: str):
    """A comment at the top; it is what `rl4co list experiments` shows."""
    lines = (CONFIG_DIR / f"{file}.yaml").read_text().splitlines()
    comments = [line for line in lines[:2] if line.startswith("# ") and "@package" not in line]
    assert comments and len(comments[0]) > 5


@pytest.mark.parametrize("file", [name for name in FILES if "/" in name])
def test_every_file_composes(file: str):
    """Chosen alone, every file gives a configuration that resolves and names what exists."""
    group, _, option = file.partition("/")
    cfg = load_config([f"{group}={option}"])
    OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    for target in targets(cfg):
        # Packages of others may be missing; instantiate_loggers says so.
        if group != "logger" or target.startswith(("rl4co.", "lightning.pytorch.loggers.CSV")):
            assert callable(get_object(target)), target


@pytest.mark.parametrize("method", MODELS.names())
def test_every_method_has_a_configuration(method: str):
    """`rl4co/configs/model/<method>.yaml` names a class of the method's folder."""
    target = get_object(load_config([f"model={method}"]).model._target_)
    assert target.__module__.startswith(MODELS.location(method))


def test_example_is_that_of_the_paper():
    """Key by key and value by value."""
    shipped = OmegaConf.load(CONFIG_DIR / "experiment" / "example.yaml")
    assert shipped == OmegaConf.create(PAPER_EXAMPLE)
    assert (
        (CONFIG_DIR / "experiment" / "example.yaml").read_text().startswith("# @package _global_")
    )


def test_every_configured_scheduling_problem_has_an_experiment():
    folders = {path.parent.name for path in Path(scheduling.__path__[0]).glob("*/env.py")}
    problems = {name for name in folders if (CONFIG_DIR / "env" / f"{name}.yaml").is_file()}
    chosen = {
        load_config([f"experiment={name}"]).env.name
        for name in EXPERIMENTS
        if name.startswith("scheduling/")
    }
    assert chosen == problems


def is_alias(experiment: str) -> bool:
    """Whether an experiment is another one under its published name."""
    return set(OmegaConf.load(CONFIG_DIR / "experiment" / f"{experiment}.yaml")) == {"defaults"}


@pytest.mark.parametrize("experiment", [name for name in EXPERIMENTS if not is_alias(name)])
@pytest.mark.filterwarnings("ignore:expected a GPU for precision")
def test_every_experiment_takes_a_step(experiment: str, tmp_path: Path):
    """One batch of training, validation and test."""
    try:
        metrics, objects = tiny_run(experiment, tmp_path, "+trainer.fast_dev_run=true")
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert {"train/loss", "val/reward", "test/reward"} <= set(metrics)
    trainer, model = objects["trainer"], objects["model"]
    # PPO makes several updates per batch.
    assert trainer.global_step == 1 or not model.automatic_optimization


def test_example_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The paper's example as it is, on fewer instances: without GPU, wandb or an account."""
    with pytest.warns(UserWarning, match="expected a GPU for precision '16-mixed'"):
        metrics, objects = tiny_run("example", tmp_path, "trainer.max_epochs=1")
    assert "test/reward" in metrics
    assert (tmp_path / "checkpoints" / "epoch_000.ckpt").is_file()
    (logger,) = objects["logger"]
    assert type(logger).__name__ in ("WandbLogger", "CSVLogger")
    if type(logger).__name__ == "CSVLogger":
        assert "pip install 'wandb'" in caplog.text


def test_settings_of_the_paper():
    """250,000 steps; learning rate 1e-4, a tenth of it after epochs 80 and 95; weight decay."""
    for experiment, decay in (("routing/am", 0), ("routing/pomo", 1e-6), ("example", 0)):
        cfg = load_config([f"experiment={experiment}"])
        steps = cfg.model.train_data_size // cfg.model.batch_size * cfg.trainer.max_epochs
        assert steps == 250_000
        assert cfg.model.optimizer == "Adam"
        assert cfg.model.optimizer_kwargs == {"lr": 1e-4, "weight_decay": decay}
        assert cfg.model.lr_scheduler == "MultiStepLR"
        assert cfg.model.lr_scheduler_kwargs == {"milestones": [80, 95], "gamma": 0.1}


def test_settings_of_the_paper_s_benchmark():
    """Encoders, weight decay, strategies and numbers of samples, method by method."""
    configs = {
        name: load_config([f"experiment=routing/{name}"])
        for name in ("symnco", "am-a2c", "polynet", "am-xl", "pomo-cvrplib", "mtpomo-cvrplib")
    }
    models = {name: cfg.model for name, cfg in configs.items()}
    assert models["symnco"].policy_kwargs == {"num_encoder_layers": 6, "normalization": "instance"}
    assert models["am-a2c"].actor_optimizer_kwargs.weight_decay == 0
    assert models["polynet"].k == configs["polynet"].env.generator_params.num_loc == 50

    def samples(name: str) -> int:
        return models[name].train_data_size * configs[name].trainer.max_epochs

    assert samples("am-xl") == samples("symnco") * models["symnco"].num_augment
    for name in ("pomo-cvrplib", "mtpomo-cvrplib"):
        assert configs[name].env.generator_params.num_loc == 50
        assert configs[name].trainer.max_epochs == models[name].train_data_size == 10_000
        assert models[name].batch_size == 512
    for name in ("pomo", "symnco", "am-a2c", "am-ppo"):
        cfg = load_config([f"experiment=routing/{name}-pdp"])
        policy = cfg.model.policy or cfg.model.policy_kwargs
        assert cfg.env.name == "pdp" and "ham.encoder" in policy.encoder._target_
    hgnn = load_config(["experiment=scheduling/hgnn-ppo"]).model.policy_kwargs
    assert hgnn.init_embedding.normalize_features


def test_another_scheduler_does_not_inherit_milestones(tmp_path: Path):
    """They are MultiStepLR's; what is given for the other one stays, and mistakes are told."""
    chosen = ["model.lr_scheduler=ExponentialLR", "model.lr_scheduler_kwargs.gamma=0.95"]
    assert prepare_config(load_config(chosen)).model.lr_scheduler_kwargs == {"gamma": 0.95}
    given = [chosen[0], "model.lr_scheduler_kwargs={milestones: [1], gamma: 0.95}"]
    assert "milestones" in prepare_config(load_config(given)).model.lr_scheduler_kwargs
    assert "milestones" in prepare_config(load_config()).model.lr_scheduler_kwargs


def test_metrics_of_a_phase_can_be_chosen(tmp_path: Path):
    """`model.metrics.val` replaces the method's own; the other phases keep theirs."""
    chosen = ["model.metrics.val=[max_reward]", "model.metrics.log_on_step=false"]
    cfg = load_config(["model=pomo", *chosen])
    model = build(cfg.model, instantiate_env(cfg.env))
    assert model.metrics["val"] == ("max_reward",) and not model.log_on_step
    assert model.metrics["test"] == ("reward", "max_reward", "max_aug_reward")


@pytest.mark.parametrize(
    ("logger", "package", "install"),
    [
        ("aim", "aim", "pip install 'aim'"),
        ("comet", "comet_ml", "pip install 'comet-ml'"),
        ("mlflow", "mlflow", "pip install 'mlflow'"),
        ("neptune", "neptune", "lightning<2.6"),
    ],
)
def test_loggers_of_others_fall_back_to_a_file(
    logger: str, package: str, install: str, tmp_path: Path, caplog
):
    """Where their package is missing, with a warning; strictly, it is an error."""
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    cfg = load_config([f"logger={logger}", f"paths.output_dir={tmp_path}"])
    (found,) = instantiate_loggers(cfg.logger, folder=cfg.paths.output_dir)
    assert type(found).__name__ == "CSVLogger" and f"{logger} is not installed" in caplog.text
    assert Path(found.log_dir).is_relative_to(tmp_path)
    assert install in caplog.text
    with pytest.raises(MissingDependencyError):
        instantiate_loggers(cfg.logger, strict=True)


def test_settings_of_improvement():
    """The RL4CO paper's: n = 4, T = 200, batches of 512 (TSP) or 600 (PDP), 200 epochs of 20."""
    for method, size in (("dact", 512), ("n2s", 600), ("neuopt", 512)):
        cfg = load_config([f"experiment=improvement/{method}"])
        assert (cfg.model.n_step, cfg.model.T_train, cfg.model.batch_size) == (4, 200, size)
        assert cfg.model.train_data_size == 20 * size
        assert cfg.trainer.max_epochs == cfg.model.CL_epochs == 200
        small = load_config([f"experiment=improvement/{method}-20"])
        assert small.env.generator_params.num_loc == 20
        assert small.model.T_train == 200
        original = load_config([f"experiment=improvement/{method}-original-20"])
        for name in ("max_grad_norm", "CL_scalar"):
            assert original.model[name] == small.model[name]
    original = load_config(["experiment=improvement/n2s-original"]).model
    assert (original.n_step, original.T_train, original.batch_size) == (5, 250, 600)


def test_problem_of_an_experiment_can_be_exchanged():
    """The command line wins over the experiment."""
    cfg = load_config(["experiment=routing/pomo", "env=cvrp", "env.generator_params.num_loc=20"])
    assert (cfg.env.name, cfg.env.generator_params.num_loc) == ("cvrp", 20)
    assert cfg.model._target_ == "rl4co.models.POMO"
    assert cfg.tags == ["pomo", "cvrp"]


def test_wandb_needs_no_account():
    """Nothing is uploaded unless asked for."""
    assert yaml.safe_load((CONFIG_DIR / "logger" / "wandb.yaml").read_text())["wandb"]["offline"]


@pytest.mark.parametrize("debug", ["default", "fdr", "overfit", "profiler"])
def test_debug_configurations_run(debug: str, tmp_path: Path):
    """They leave no checkpoints and come to an end."""
    cfg = load_config(
        [f"debug={debug}", "model.baseline=mean", "env.generator_params.num_loc=5",
         "model.policy_kwargs={embed_dim: 16, num_heads: 2, num_encoder_layers: 1}",
         f"paths.output_dir={tmp_path}"]
    )  # fmt: skip
    metrics, objects = run(cfg)
    assert "test/reward" in metrics
    assert not list(tmp_path.rglob("*.ckpt"))
    if debug == "overfit":
        assert objects["trainer"].global_step == 60
