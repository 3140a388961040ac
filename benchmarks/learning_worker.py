"""One contender of the learning comparison: trains through the public route, records the cost.

Runs in the environment of either package; started by `learning.py`, by path. Every evaluation
is one JSON line on stdout, everything else goes to stderr. The clock counts the whole of
`trainer.fit` (data, baseline, validation, steps) except for the evaluations made here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback

from typing import Any, TextIO

import lightning
import numpy as np
import torch

from lightning.pytorch.callbacks import Callback
from tensordict import TensorDict


class TrainingClock:
    """Seconds since the start, without the pauses."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._paused = 0.0

    def read(self) -> float:
        """Training time so far."""
        return time.perf_counter() - self._start - self._paused

    def skip(self, seconds: float) -> None:
        """Leave out time that was not training."""
        self._paused += seconds


class CostRecorder(Callback):
    """Greedy cost on fixed instances at regular training times; ends the training on time.

    Args:
        locs: coordinates of the test instances.
        limit: training time in seconds.
        interval: training time between two evaluations.
        stream: where the JSON lines go.

    Shapes:
        locs: [B, N, 2]
    """

    def __init__(self, locs: torch.Tensor, limit: float, interval: float, stream: TextIO) -> None:
        self.locs, self.limit, self.interval, self.stream = locs, limit, interval, stream
        self.clock = TrainingClock()
        self.next_time = 0.0
        self.finished = False

    def evaluate(self, model: Any) -> float:
        """Mean greedy tour length; leaves every module's train/eval mode as it was."""
        policy, env = model.policy, model.env
        modes = [(module, module.training) for module in policy.modules()]
        policy.eval()
        with torch.inference_mode():
            instances = TensorDict({"locs": self.locs}, batch_size=[self.locs.shape[0]])
            out = policy(env.reset(instances), env, phase="test", decode_type="greedy")
            cost = -out["reward"].float().mean().item()
        for module, mode in modes:
            module.training = mode
        return cost

    def record(self, trainer: Any, model: Any) -> None:
        """Evaluate with the clock stopped and send one line."""
        seconds = self.clock.read()
        start = time.perf_counter()
        point = {"seconds": seconds, "step": trainer.global_step, "cost": self.evaluate(model)}
        self.stream.write(json.dumps(point) + "\n")
        self.stream.flush()
        self.next_time = seconds + self.interval
        self.clock.skip(time.perf_counter() - start)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """First point: the untrained policy."""
        self.record(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """A point when it is time for one, and the end when the time is over."""
        if self.finished:
            return
        self.finished = self.clock.read() >= self.limit
        if self.finished or self.clock.read() >= self.next_time:
            self.record(trainer, pl_module)
        if self.finished:
            trainer.should_stop = True


def train(arguments: argparse.Namespace, recorder: CostRecorder) -> None:
    """Attention Model with the rollout baseline, as a user of either package would train it."""
    # by name: the types of neither package hold for both
    envs: Any = importlib.import_module("rl4co.envs")
    models: Any = importlib.import_module("rl4co.models")
    utils: Any = importlib.import_module("rl4co.utils")
    env = envs.TSPEnv(generator_params={"num_loc": recorder.locs.shape[1]})
    lightning.seed_everything(arguments.seed)  # after the environment, which may reseed
    # The published package compares policies on `val_data_size` instances, this one on as many as
    # the baseline is told.
    is_published = not hasattr(importlib.import_module("rl4co"), "list_models")
    baseline_kwargs = {} if is_published else {"dataset_size": arguments.val_data_size}
    model = models.AttentionModel(
        env,
        baseline="rollout",
        baseline_kwargs=baseline_kwargs,
        batch_size=arguments.batch_size,
        train_data_size=arguments.train_data_size,
        val_data_size=arguments.val_data_size,
        test_data_size=arguments.val_data_size,
        optimizer="Adam",
        optimizer_kwargs={"lr": arguments.lr},
    )
    trainer = utils.RL4COTrainer(
        max_epochs=1_000_000,  # the recorder ends the training
        accelerator="cpu",
        devices=1,
        precision="32-true",
        # "medium", the published default, makes products run in bfloat16 on some CPUs: slower
        matmul_precision="highest",
        logger=False,
        callbacks=[recorder],
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    recorder.clock = TrainingClock()
    trainer.fit(model)


def parse_arguments() -> argparse.Namespace:
    """Settings, all given by the driver so that both contenders have the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--instances", required=True, help="npz file with the test coordinates as 'locs'")
    add("--seconds", type=float, required=True, help="training time")
    add("--interval", type=float, required=True, help="training time between evaluations")
    add("--threads", type=int, required=True)
    add("--seed", type=int, required=True)
    add("--batch-size", type=int, required=True)
    add("--lr", type=float, required=True)
    add("--train-data-size", type=int, required=True)
    add("--val-data-size", type=int, required=True)
    return parser.parse_args()


def main() -> None:
    """Train and report; an exception becomes the last line."""
    arguments = parse_arguments()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not mix with the JSON lines
    torch.set_num_threads(arguments.threads)
    with np.load(arguments.instances, allow_pickle=False) as data:
        locs = torch.from_numpy(data["locs"])
    recorder = CostRecorder(locs, arguments.seconds, arguments.interval, stream)
    try:
        train(arguments, recorder)
    except Exception as error:  # the driver shows it next to the points made so far
        traceback.print_exc(file=sys.stderr)
        lines = str(error).strip().splitlines() or [""]
        stream.write(json.dumps({"error": f"{type(error).__name__}: {lines[0]}"[:200]}) + "\n")
        stream.flush()
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
