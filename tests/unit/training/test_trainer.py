"""Settings of the trainer: what it passes on, decides and rejects."""

from __future__ import annotations

import warnings

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from lightning.pytorch.callbacks import Callback, EarlyStopping, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.data import save_tensordict_to_npz
from rl4co.envs.routing import TSPEnv, TSPGenerator
from rl4co.models import AMPPO, POMO, AttentionModel, AttentionModelPolicy
from rl4co.training import RL4COProgressBar, RL4COTrainer
from rl4co.training.trainer import count_devices, device_type
from tests.unit.training import runs

QUIET: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}


def test_listing_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing runs as printed (with a small instance and little data)."""
    monkeypatch.chdir(tmp_path)
    generator = TSPGenerator(num_loc=8, loc_distribution="uniform")
    env = TSPEnv(generator)
    policy = AttentionModelPolicy(env_name=env.name, embed_dim=16, num_heads=2)
    sizes = {"train_data_size": 128, "val_data_size": 16, "test_data_size": 16}
    model = POMO(env, policy, batch_size=64, **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = RL4COTrainer(epochs=1, precision="16-mixed", accelerator="cpu")
    trainer.fit(model)
    assert trainer.global_step == 2
    # Metrics and a checkpoint are there without any account.
    (metrics,) = tmp_path.glob("lightning_logs/version_0/metrics.csv")
    assert "val/reward" in metrics.read_text()
    assert list(tmp_path.glob("lightning_logs/version_0/checkpoints/*.ckpt"))


def test_epochs_is_another_name_for_max_epochs() -> None:
    assert RL4COTrainer(epochs=3, precision=32, **QUIET).max_epochs == 3
    assert RL4COTrainer(max_epochs=4, precision=32, **QUIET).max_epochs == 4
    assert RL4COTrainer(max_epochs=5, epochs=5, precision=32, **QUIET).max_epochs == 5
    with pytest.raises(ConfigError, match="epochs=2 and max_epochs=3; give one"):
        RL4COTrainer(max_epochs=3, epochs=2, **QUIET)


@pytest.mark.parametrize("model_cls", [POMO, AMPPO])
def test_double_precision(model_cls: Any) -> None:
    """Weights in it, with batches that are still batches."""
    env = TSPEnv(generator_params={"num_loc": 6})
    small = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}
    sizes = {"train_data_size": 16, "val_data_size": 8, "test_data_size": 8}
    model = model_cls(env, policy_kwargs=small, batch_size=8, **sizes)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    trainer = RL4COTrainer(max_epochs=1, precision="64-true", **QUIET)
    trainer.fit(model)
    assert {parameter.dtype for parameter in model.policy.parameters()} == {torch.float64}
    after = [parameter.to(torch.float32) for parameter in model.policy.parameters()]
    assert not all(map(torch.equal, before, after))
    assert torch.isfinite(trainer.callback_metrics["val/reward"])


def test_weights_in_half_precision_are_rejected() -> None:
    with pytest.raises(ConfigError, match="use 'bf16-mixed'"):
        RL4COTrainer(epochs=1, precision="bf16-true", **QUIET)


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", 16])
def test_half_precision_becomes_full_on_a_cpu(precision: Any) -> None:
    """One warning that says what happens; not bfloat16, which is slow where it is emulated."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = RL4COTrainer(epochs=1, precision=precision, **QUIET)
    assert trainer.precision == "32-true"
    ours = [str(entry.message) for entry in caught if "precision" in str(entry.message)]
    assert len(ours) == 1
    assert "using '32-true' instead" in ours[0]


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true", "64-true"])
def test_other_precisions_are_honoured(precision: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = RL4COTrainer(epochs=1, precision=precision, **QUIET)
    assert trainer.precision == precision
    assert not [entry for entry in caught if "precision" in str(entry.message)]


def test_precision_plugin_replaces_the_default() -> None:
    plugin = MixedPrecision("bf16-mixed", "cpu")
    trainer = RL4COTrainer(epochs=1, plugins=[plugin], **QUIET)
    assert trainer.precision_plugin is plugin


def test_matmul_precision_is_left_alone_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU "medium" would make products several times slower; on CUDA it is applied."""
    before = torch.get_float32_matmul_precision()
    RL4COTrainer(epochs=1, precision=32, matmul_precision="medium", **QUIET)
    assert torch.get_float32_matmul_precision() == before

    applied: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", applied.append)
    monkeypatch.setattr("rl4co.training.trainer.device_type", lambda accelerator: "cuda")
    RL4COTrainer(epochs=1, precision=32, matmul_precision="high", **QUIET)
    RL4COTrainer(epochs=1, precision=32, matmul_precision=None, **QUIET)
    assert applied == ["high"]
    with pytest.raises(UnknownNameError, match="did you mean 'medium'"):
        RL4COTrainer(epochs=1, matmul_precision="mediun", **QUIET)


def test_unknown_arguments_are_rejected() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'max_epochs'"):
        RL4COTrainer(max_epoch=3, **QUIET)


@pytest.mark.parametrize("strategy", ["auto", "ddp", "DDPStrategy"])
def test_several_devices_use_ddp(strategy: str) -> None:
    trainer = RL4COTrainer(epochs=1, precision=32, devices=2, strategy=strategy, **QUIET)
    assert isinstance(trainer.strategy, DDPStrategy)
    assert trainer.strategy._ddp_kwargs["find_unused_parameters"]
    assert trainer.num_devices == 2


def test_own_settings_of_ddp_are_kept() -> None:
    strategy = DDPStrategy(find_unused_parameters=False)
    options = {"epochs": 1, "precision": 32, "devices": 2, **QUIET}
    assert RL4COTrainer(strategy=strategy, **options).strategy is strategy
    plain = RL4COTrainer(strategy="ddp", auto_configure_ddp=False, **options).strategy
    assert "find_unused_parameters" not in plain._ddp_kwargs


@pytest.mark.parametrize("strategy", ["auto", "DDPStrategy"])
def test_one_device_needs_no_processes(strategy: str) -> None:
    trainer = RL4COTrainer(epochs=1, precision=32, devices=1, strategy=strategy, **QUIET)
    assert not isinstance(trainer.strategy, DDPStrategy)


def test_device_types_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_type("cpu") == "cpu"
    monkeypatch.setattr("lightning.pytorch.accelerators.CUDAAccelerator.is_available", lambda: True)
    assert device_type("auto") == device_type("gpu") == "cuda"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert count_devices("cuda", "auto") == count_devices("cuda", -1) == 4
    assert count_devices("cpu", "auto") == 1
    assert count_devices("cuda", [0, 2]) == count_devices("cuda", "0,2") == 2
    assert count_devices("cuda", "3") == count_devices("cuda", 3) == 3


def test_defaults_can_be_replaced(tmp_path: Path) -> None:
    """Loggers and progress bars that are given stay the only ones; other arguments pass through."""
    trainer = RL4COTrainer(epochs=1, precision=32, default_root_dir=str(tmp_path))
    assert isinstance(trainer.logger, CSVLogger)
    assert isinstance(trainer.progress_bar_callback, RL4COProgressBar)
    assert trainer.gradient_clip_val == 1.0
    assert trainer.reload_dataloaders_every_n_epochs == 1
    assert not trainer._accelerator_connector.use_distributed_sampler
    bar = TQDMProgressBar()
    trainer = RL4COTrainer(
        epochs=1,
        precision=32,
        callbacks=bar,
        limit_train_batches=7,
        gradient_clip_val=None,
        **QUIET,
    )
    assert trainer.progress_bar_callback is bar
    assert trainer.logger is None
    assert trainer.limit_train_batches == 7
    assert trainer.gradient_clip_val is None
    quiet = RL4COTrainer(epochs=1, precision=32, enable_progress_bar=False, **QUIET)
    assert quiet.progress_bar_callback is None


@pytest.mark.parametrize("options", [{"barebones": True}, {"fast_dev_run": True}])
def test_special_modes_of_lightning(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = RL4COTrainer(epochs=1, precision=32, accelerator="cpu", **options)
    trainer.fit(runs.make_model())
    assert trainer.global_step >= 1
    assert not list(tmp_path.iterdir())


def test_allocator_settings_are_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[bool] = []
    monkeypatch.setattr(
        "rl4co.training.trainer.apply_allocator_settings", lambda: applied.append(True)
    )
    model = runs.make_model("pomo", train_data_size=8)
    runs.make_trainer(tmp_path, max_epochs=1, tune_allocator=False).fit(model)
    assert applied == []
    trainer = runs.make_trainer(tmp_path, max_epochs=1)
    assert applied == []  # not before it trains
    trainer.fit(model)
    assert applied == [True]


@pytest.mark.parametrize("reload", [0, 1])
def test_every_epoch_has_new_data(reload: int, tmp_path: Path) -> None:
    """Whether or not Lightning reloads loaders; and with its own trainer too."""
    batches: list[list[float]] = []

    class Record(Callback):
        def on_train_epoch_start(self, trainer, model):
            batches.append([])

        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            batches[-1].append(float(batch["locs"].sum()))

    trainer = runs.make_trainer(
        tmp_path, callbacks=[Record()], reload_dataloaders_every_n_epochs=reload
    )
    trainer.fit(runs.make_model())
    plain = L.Trainer(max_epochs=3, callbacks=[Record()], enable_model_summary=False, **QUIET)
    plain.fit(runs.make_model())
    assert len(batches) == 6
    seen = [value for epoch in batches[:3] for value in epoch]
    assert len(set(seen)) == len(seen) == 3 * runs.NUM_BATCHES
    assert batches[3:] == batches[:3]


def test_overfitting_repeats_the_data(tmp_path: Path) -> None:
    """`overfit_batches` means the same few batches in every epoch."""
    seen: list[float] = []

    class Record(Callback):
        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            seen.append(float(batch["locs"].sum()))

    runs.make_trainer(tmp_path, callbacks=[Record()], overfit_batches=2).fit(runs.make_model())
    assert len(seen) == 6
    assert seen[:2] == seen[2:4] == seen[4:]
    assert seen[0] != seen[1]


def test_pretrained_policy_is_trained_in_training_mode(tmp_path: Path) -> None:
    """A policy in evaluation mode (as from_pretrained gives it) would keep old batch statistics."""
    model = runs.make_model(policy=runs.make_policy().eval())
    statistics = {k: v.clone() for k, v in model.policy.state_dict().items() if "running" in k}
    modes: list[bool] = []

    class Modes(Callback):
        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            modes.append(model.policy.training)

    runs.make_trainer(tmp_path, max_epochs=1, callbacks=[Modes()]).fit(model)
    assert modes == [True] * runs.NUM_BATCHES
    assert statistics
    changed = model.policy.state_dict()
    assert all(not torch.equal(value, changed[key]) for key, value in statistics.items())


def test_early_stopping_watches_the_validation_reward(tmp_path: Path) -> None:
    """With a gain that is never reached, training stops after the first epoch without it."""
    stopping = EarlyStopping("val/reward", mode="max", patience=1, min_delta=100.0)
    trainer = runs.make_trainer(tmp_path, max_epochs=5, callbacks=[stopping])
    trainer.fit(runs.make_model())
    assert trainer.current_epoch == 2
    assert stopping.stopped_epoch == 1


def test_bfloat16_trains_on_a_cpu(tmp_path: Path) -> None:
    """Mixed precision gives finite losses, moves the weights and keeps them in float32."""
    model = runs.make_model("am", train_data_size=64)
    before = {name: value.clone() for name, value in model.policy.named_parameters()}
    losses: list[float] = []

    class Losses(Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            losses.append(float(outputs["loss"]))

    runs.make_trainer(tmp_path, max_epochs=1, precision="bf16-mixed", callbacks=[Losses()]).fit(
        model
    )
    assert len(losses) == 8
    assert all(torch.isfinite(torch.tensor(losses)))
    assert all(value.dtype == torch.float32 for value in model.policy.parameters())
    assert any(
        not torch.equal(value, before[name]) for name, value in model.policy.named_parameters()
    )


def test_evaluation_needs_no_training(tmp_path: Path) -> None:
    """`validate` and `test` use the data sets of the paper's seeds: the same numbers every time."""
    model = runs.make_model()
    results = [runs.make_trainer(tmp_path).test(model, verbose=False) for _ in range(2)]
    assert results[0] == results[1]
    td = model.env.reset(model.env.dataset(8, phase="test").data)
    reward = model.policy.eval()(td, model.env, phase="test")["reward"].mean()
    assert results[0][0]["test/reward"] == pytest.approx(float(reward), abs=1e-6)
    assert "val/reward" in runs.make_trainer(tmp_path).validate(model, verbose=False)[0]


def test_several_validation_sets(tmp_path: Path) -> None:
    """Each set has its own metric; the common one is the mean over all instances of all sets."""
    for name, size in (("small", 3), ("large", 9)):
        instances = TSPGenerator(num_loc=6)(size, rng=torch.Generator().manual_seed(size))
        save_tensordict_to_npz(instances, tmp_path / f"{name}.npz")
    env = TSPEnv(
        generator_params={"num_loc": 6}, data_dir=tmp_path, val_file=["small.npz", "large.npz"]
    )
    model = AttentionModel(env, policy=runs.make_policy(), baseline="mean", **runs.SIZES)
    trainer = runs.make_trainer(tmp_path, max_epochs=2)
    trainer.fit(model)
    metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
    model.policy.eval()
    expected = {}
    for name in ("small", "large"):
        td = env.reset(env.load_data(tmp_path / f"{name}.npz"))
        expected[name] = float(model.policy(td, env, phase="val")["reward"].mean())
        assert metrics[f"val/{name}/reward"] == pytest.approx(expected[name], abs=1e-5)
    mean = (3 * expected["small"] + 9 * expected["large"]) / 12
    assert metrics["val/reward"] == pytest.approx(mean, abs=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("accelerator", ["gpu", "cuda"])
def test_a_missing_gpu_is_a_clear_error(accelerator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to use instead, as `trainer=ddp` asks for one."""
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"devices=2 trainer\.strategy=ddp"):
        RL4COTrainer(accelerator=accelerator, devices="auto", strategy="ddp", logger=False)
