"""Reptile: its tasks, the step of the meta weights by hand, resuming, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning.pytorch.callbacks import Callback

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.data import save_tensordict_to_npz
from rl4co.envs import ATSPEnv, CVRPEnv, TSPEnv
from rl4co.models import POMO, AttentionModel
from rl4co.training import LearningCurve
from rl4co.training.reptile import Task, list_tasks, task_generator
from rl4co.utils.meta_trainer import ReptileCallback
from tests.learning import cost_ratio
from tests.trainers import fit

TINY = {
    "embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1,
}  # fmt: skip
SIZES = {"batch_size": 4, "train_data_size": 8, "val_data_size": 8, "test_data_size": 8}


def reptile(**options: Any) -> ReptileCallback:
    defaults = {"num_tasks": 2, "alpha": 0.5, "alpha_decay": 0.9, "min_size": 4, "max_size": 9}
    return ReptileCallback(**{**defaults, "print_log": False, **options})


def make_model(env: Any = None, **options: Any) -> POMO:
    torch.manual_seed(0)
    env = env or TSPEnv(generator_params={"num_loc": 5})
    settings = {**SIZES, "seed": 5, "num_augment": 1, "optimizer_kwargs": {"lr": 1e-2}}
    policy = {**TINY, "normalization": "batch", **options.pop("policy", {})}
    return POMO(env, policy_kwargs=policy, **{**settings, **options})


class Witness(Callback):
    """Sizes of training batches, and the weights at the ends of each epoch."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.weights: list[tuple[str, dict[str, torch.Tensor]]] = []

    def note(self, moment: str, model: Any) -> None:
        self.weights.append((moment, {k: v.clone() for k, v in model.state_dict().items()}))

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self.sizes.append((trainer.current_epoch, batch["locs"].shape[1]))
        if batch_idx == 0:
            self.note("start", model)

    def on_validation_start(self, trainer, model):
        self.note("validation", model)


class BeforeReptile(Callback):
    """The weights that an epoch of training arrives at, before the callback under test moves."""

    def __init__(self) -> None:
        self.arrived: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        if trainer.is_last_batch:
            self.arrived.append({k: v.clone() for k, v in model.state_dict().items()})


# ---------------------------------------------------------------- tasks


def test_tasks():
    """The sets of Zhou et al. (2023)."""
    assert list_tasks("size", 20, 150) == [Task(size) for size in range(20, 151)]
    mixtures = list_tasks("distribution", None, None)
    assert len(mixtures) == 55
    assert mixtures[0] == Task(mixture=(0, 0))
    assert Task(mixture=(9, 50)) in mixtures
    both = list_tasks("size_distribution", 50, 200)
    assert len(both) == 31 * 11
    assert both[0] == Task(50, (0, 0))
    assert both[-1] == Task(200, (7, 50))


def test_generator_of_a_task():
    """Another one with all other settings; capacities grow with the size unless they are chosen."""
    generator = CVRPEnv(generator_params={"num_loc": 20, "max_demand": 5}).generator
    other = task_generator(generator, Task(101, (3, 10)))
    assert (generator.num_loc, generator.capacity) == (20, 30.0)
    assert (other.num_loc, other.max_demand, other.capacity) == (101, 5, 51.0)
    assert other.loc_sampler.num_modes == 3
    assert other.loc_sampler.cdist == 10
    assert task_generator(generator, Task(12)).capacity == 20.0
    chosen = CVRPEnv(generator_params={"num_loc": 20, "capacity": 17.0}).generator
    assert task_generator(chosen, Task(100)).capacity == 17.0
    assert task_generator(generator, Task(mixture=(1, 1))).num_loc == 20
    with pytest.raises(UnsupportedError, match="loc_distribution"):
        task_generator(ATSPEnv().generator, Task(5, (3, 10)))


@pytest.mark.parametrize("data_type", ["size", "distribution", "size_distribution"])
def test_training_data_follows_the_tasks(data_type, tmp_path):
    """A task per epoch, the same in a repeated run; the caller's environment is not touched."""
    env = TSPEnv(generator_params={"num_loc": 5})
    generator = env.generator
    runs = []
    for _ in range(2):
        callback, witness = reptile(data_type=data_type), Witness()
        model = make_model(env)
        fit(model, tmp_path, callbacks=[callback, witness], max_epochs=6)
        runs.append(witness.sizes)
        assert env.generator is generator
        assert model.env.generator is generator
        for epoch, size in witness.sizes:
            assert size == (callback.task(model, epoch).size or 5)
    assert runs[0] == runs[1]
    assert len({size for _, size in runs[0]}) == (1 if data_type == "distribution" else len(
        {callback.task(model, epoch).size for epoch in range(6)}))  # fmt: skip


def test_validation_data_stays(tmp_path):
    seen: list[tuple[int, ...]] = []

    class Look(Callback):
        def on_validation_batch_start(self, trainer, model, batch, batch_idx, dataloader_idx=0):
            seen.append(tuple(batch["locs"].shape))

    fit(make_model(), tmp_path, callbacks=[reptile(min_size=8), Look()], max_epochs=4)
    assert set(seen) == {(4, 5, 2)}


# ---------------------------------------------------------------- weights


def test_step_of_the_meta_weights_by_hand(tmp_path):
    """Two tasks from the same start; then start + alpha · mean of the two ways."""
    before, callback, witness = BeforeReptile(), reptile(), Witness()
    model = make_model()
    initial = {key: value.clone() for key, value in model.state_dict().items()}
    fit(model, tmp_path, callbacks=[before, callback, witness], max_epochs=3)
    starts = [weights for moment, weights in witness.weights if moment == "start"]
    validated = [weights for moment, weights in witness.weights if moment == "validation"]
    first, second = before.arrived[:2]
    alpha = 0.5 * 0.9**2  # in the second epoch
    for key, start in initial.items():
        if key.endswith("num_batches_tracked"):
            continue
        assert torch.equal(starts[0][key], start)
        assert torch.equal(starts[1][key], start), "the second task starts where the first did"
        expected = start + alpha * ((first[key] - start) + (second[key] - start)) / 2
        torch.testing.assert_close(starts[2][key], expected, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(validated[1][key], expected, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(validated[0][key], first[key])
    moved = [key for key in initial if not torch.equal(first[key], initial[key])]
    assert any("running_mean" in key for key in moved)


def test_step_size():
    callback = reptile(alpha=0.8, alpha_decay=0.5)
    assert [callback.step_size(epoch) for epoch in range(3)] == pytest.approx([0.4, 0.2, 0.1])
    assert callback.step_size(100) == 1e-4


def test_optimizer_starts_anew_and_its_rate_drops(tmp_path):
    """No momenta of another task; a tenth of the rate after 3 of 4 epochs, whatever schedules."""

    class Look(Callback):
        def __init__(self) -> None:
            self.rates: list[float] = []
            self.steps: list[float] = []

        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            (optimizer,) = trainer.optimizers
            self.rates.append(optimizer.param_groups[0]["lr"])
            self.steps.append(float(next(iter(optimizer.state.values()))["step"]))

    look = Look()
    fit(make_model(), tmp_path, callbacks=[reptile(sch_bar=0.75), look], max_epochs=4)
    assert look.rates == pytest.approx([1e-2] * 6 + [1e-3] * 2)
    assert look.steps == [1.0, 2.0] * 4


def test_resuming_changes_nothing(tmp_path):
    """From any batch, within a task and between tasks."""

    class EveryBatch(Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}-{batch_idx}.ckpt")

    def run(ckpt: Path | None) -> Any:
        model, curve = make_model(), LearningCurve()
        callbacks = [reptile(sch_bar=0.5), curve, *([] if ckpt else [EveryBatch()])]
        fit(model, tmp_path, ckpt, callbacks=callbacks, max_epochs=4)
        return model.state_dict(), [
            {k: v for k, v in entry.items() if k != "seconds"} for entry in curve.history
        ]

    whole = run(None)
    files = sorted(tmp_path.glob("*.ckpt"))
    assert len(files) == 8
    for file in files[::2] + files[1:4:2]:
        weights, history = run(file)
        assert history == whole[1], file
        assert all(torch.equal(value, whole[0][key]) for key, value in weights.items()), file


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"num_tasks": 0}, ConfigError, "num_tasks"),
        ({"alpha": 0.0}, ConfigError, "alpha"),
        ({"alpha_decay": 1.5}, ConfigError, "alpha_decay"),
        ({"sch_bar": 2.0}, ConfigError, "sch_bar"),
        ({"data_type": "sizes"}, UnknownNameError, "did you mean 'size'"),
        ({"min_size": 9, "max_size": 4}, ConfigError, "min_size <= max_size"),
        ({"min_size": None}, ConfigError, "min_size <= max_size"),
    ],
)
def test_bad_arguments(options, error, words):
    with pytest.raises(error, match=words):
        reptile(**options)


def test_unsuitable_data_raises_before_training(tmp_path):
    model = AttentionModel(ATSPEnv(generator_params={"num_loc": 5}), policy_kwargs=TINY,
                           baseline="mean", **SIZES)  # fmt: skip
    with pytest.raises(UnsupportedError, match="loc_distribution"):
        fit(model, tmp_path, callbacks=[reptile(data_type="distribution")], max_epochs=4)
    instances = TSPEnv(generator_params={"num_loc": 5}).generate(8)
    save_tensordict_to_npz(instances, tmp_path / "train.npz")
    env = TSPEnv(generator_params={"num_loc": 5}, train_file=str(tmp_path / "train.npz"))
    with pytest.raises(ConfigError, match="train_file"):
        fit(make_model(env), tmp_path, callbacks=[reptile()], max_epochs=4)


# ---------------------------------------------------------------- learning


@pytest.mark.learning
def test_training_improves(tmp_path, require):
    """Meta weights get better on a size of the range, from one step to the next."""
    env = TSPEnv(generator_params={"num_loc": 10})
    model = make_model(
        env, policy={"embed_dim": 32, "num_heads": 4}, batch_size=32, train_data_size=32 * 12,
        optimizer_kwargs={"lr": 3e-3},
    )  # fmt: skip
    callback = reptile(alpha=1.0, alpha_decay=1.0, min_size=8, max_size=12)
    ratio = cost_ratio(
        model,
        lambda: fit(model, tmp_path, callbacks=[callback], max_epochs=4),
        decode_type="multistart_sampling",
    )
    require("cost after / before", ratio, below=0.9)
