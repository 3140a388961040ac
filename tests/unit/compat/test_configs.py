"""Configurations of a user of the published package: a folder `configs` beside `run.py`.

The files are written here in the published layout: absolute groups, `???`, paths from PROJECT_ROOT,
targets at published import paths.
"""

from __future__ import annotations

import os
import subprocess
import sys

from pathlib import Path

import numpy as np
import pytest

from hydra import compose, initialize_config_dir
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

from rl4co.tasks.train import run

REPOSITORY = Path(__file__).resolve().parents[3]

CONFIGS = {
    "main": """
defaults:
  - _self_
  - callbacks: default.yaml
  - logger: null
  - trainer: default.yaml
  - paths: default.yaml
  - extras: default.yaml
  - hydra: default.yaml
  - model: default.yaml
  - env: default.yaml
  - experiment: base.yaml
  - optional local: default.yaml
  - debug: null
mode: train
tags: [dev]
train: True
test: True
compile: False
ckpt_path: null
seed: null
matmul_precision: medium
""",
    "callbacks/default": """
defaults:
  - model_checkpoint.yaml
  - speed_monitor.yaml
  - _self_
model_checkpoint:
  dirpath: ${paths.output_dir}/checkpoints
  filename: "epoch_{epoch:03d}"
  monitor: val/reward
  mode: max
  save_last: True
  auto_insert_metric_name: False
""",
    "callbacks/model_checkpoint": """
model_checkpoint:
  _target_: lightning.pytorch.callbacks.ModelCheckpoint
  dirpath: null
  filename: null
  monitor: null
  save_top_k: 1
""",
    "callbacks/speed_monitor": """
speed_monitor:
  _target_: rl4co.utils.callbacks.speed_monitor.SpeedMonitor
  intra_step_time: True
  inter_step_time: True
  epoch_time: True
""",
    "trainer/default": """
_target_: rl4co.utils.trainer.RL4COTrainer
default_root_dir: ${paths.output_dir}
gradient_clip_val: 1.0
accelerator: cpu
precision: 32-true
check_val_every_n_epoch: 1
deterministic: False
""",
    "paths/default": """
root_dir: ${oc.env:PROJECT_ROOT}
data_dir: ${paths.root_dir}/data
log_dir: ${paths.root_dir}/logs
output_dir: ${hydra:runtime.output_dir}
work_dir: ${hydra:runtime.cwd}
""",
    "extras/default": "ignore_warnings: False\nenforce_tags: False\nprint_config: False\n",
    "hydra/default": """
run:
  dir: ${paths.log_dir}/${mode}/runs/only
""",
    "model/default": """
generate_default_data: True
metrics:
  train: [loss, reward]
  val: [reward]
  test: ${model.metrics.val}
  log_on_step: True
""",
    "model/am": """
defaults:
  - default.yaml
_target_: rl4co.models.AttentionModel
baseline: rollout
""",
    "model/am-ppo": """
defaults:
  - default.yaml
_target_: rl4co.models.AMPPO
metrics:
  train: [loss, reward, surrogate_loss, value_loss, entropy]
""",
    "env/default": "_target_: rl4co.envs.TSPEnv\nname: tsp\ngenerator_params:\n  num_loc: 20\n",
    "env/tsp": """
_target_: rl4co.envs.TSPEnv
name: tsp
generator_params:
  num_loc: 20
  loc_distribution: uniform
data_dir: ${paths.root_dir}/data/tsp
val_file: tsp${env.generator_params.num_loc}_val_seed4321.npz
test_file: tsp${env.generator_params.num_loc}_test_seed1234.npz
""",
    "experiment/base": """
# @package _global_
defaults:
  - override /model: am.yaml
  - override /env: tsp.yaml
  - override /callbacks: default.yaml
  - override /trainer: default.yaml
model:
  batch_size: 8
  baseline: mean
  train_data_size: 16
  val_data_size: 10
  test_data_size: 10
  policy_kwargs: {embed_dim: 16, num_heads: 2, num_encoder_layers: 1}
  optimizer_kwargs:
    lr: 1e-4
trainer:
  max_epochs: 1
seed: 1234
""",
}

RUN = """
from rl4co.tasks.train import train

if __name__ == "__main__":
    train()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with `run.py` and `configs`."""
    for name, text in CONFIGS.items():
        path = tmp_path / "configs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())
    (tmp_path / "run.py").write_text(RUN)
    return tmp_path


def _clean_environment() -> dict[str, str]:
    """Without the folder that a training in this process may have noted."""
    return {key: value for key, value in os.environ.items() if key != "PROJECT_ROOT"}


def test_run_beside_configs(project: Path):
    """`python run.py` takes the folder beside it; missing sets of the paper are written first."""
    done = subprocess.run(
        [sys.executable, "run.py", "++trainer.enable_progress_bar=false"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**_clean_environment(), "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, done.stderr
    assert "test/reward" in done.stdout
    checkpoints = project / "logs" / "train" / "runs" / "only" / "checkpoints"
    assert (checkpoints / "epoch_000.ckpt").is_file()
    with np.load(project / "data" / "tsp" / "tsp20_val_seed4321.npz") as data:
        first = np.random.RandomState(4321).uniform(size=(10_000, 20, 2)).astype(np.float32)
        assert np.array_equal(data["locs"], first)


def compose_from(folder: Path, overrides: list[str] | None = None) -> DictConfig:
    with initialize_config_dir(str(folder), version_base="1.3"):
        return compose("main.yaml", overrides=overrides or [], return_hydra_config=True)


def test_composed_as_the_published_tests_do(project: Path, tmp_path: Path):
    """Composed by Hydra alone, changed in place, and run."""
    cfg = compose_from(project / "configs", ["model=am-ppo", "~experiment"])
    with open_dict(cfg):
        cfg.paths.root_dir = str(project)
        cfg.paths.output_dir = cfg.paths.log_dir = str(tmp_path)
        cfg.trainer.max_epochs = 1
        cfg.trainer.fast_dev_run = True
        for phase in ("train", "val", "test"):
            cfg.model[f"{phase}_data_size"] = 8
        cfg.model.batch_size = 2
        cfg.model.generate_default_data = False
        cfg.env.val_file = cfg.env.test_file = None
        cfg.logger = None
        cfg.extras.print_config = False
        cfg.callbacks.speed_monitor = None
    metrics, objects = run(cfg)
    assert type(objects["model"]).__name__ == "AMPPO" and "test/reward" in metrics
    assert "train/surrogate_loss" in metrics


def test_repository_has_its_configurations_where_published_code_looks(monkeypatch):
    """`initialize(config_path="../configs")` from a folder of the clone, as notebooks do."""
    link = REPOSITORY / "configs"
    if not link.exists():
        pytest.skip("not a clone")
    monkeypatch.setenv("PROJECT_ROOT", str(REPOSITORY))
    for overrides in (
        [],
        ["model=pomo", "model.batch_size=32", "+model.num_starts=10"],
        ["model=pomo", "~experiment"],
        ["debug=default"],
        ["experiment=base", "model.metrics.train=[loss]", "task_name=mine"],
    ):
        cfg = compose_from(link, overrides)
        assert callable(get_object(cfg.model._target_))
        assert "batch_size" in OmegaConf.to_yaml(cfg.model)
