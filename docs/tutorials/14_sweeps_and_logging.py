# %% [markdown]
# # Sweeps, loggers, resuming
#
# Which learning rate is better, and does the answer hold for another seed? Train every combination, put the runs
# into one table, and go on where a run was interrupted.
#
# ## A sweep
#
# `-m` (multirun) trains all combinations of values that are separated by commas, one after the other. The
# settings in `small` make the runs short, those in `silent` keep the output of this page short.

# %%
epochs = 8  # quick: 2
rates = "1e-2,1e-3,1e-4"  # quick: "1e-3"
seeds = "1,2"
instances = 640  # quick: 32
small = (
    f"env.generator_params.num_loc=10 model.train_data_size={instances} model.batch_size=16 "
    f"model.policy_kwargs.num_encoder_layers=2 +model.policy_kwargs.embed_dim=32 test=false "
    "+model.policy_kwargs.num_heads=4 trainer.log_every_n_steps=1"
)
silent = (
    "callbacks=model_checkpoint +trainer.enable_progress_bar=false +trainer.enable_model_summary=false "
    "+extras.print_metrics=false hydra/job_logging=none hydra/hydra_logging=none"
)

# %%
# !rl4co train -m experiment=quick {small} {silent} model.optimizer_kwargs.lr={rates} seed={seeds} trainer.max_epochs={epochs} hydra.sweep.dir=sweep

# %% [markdown]
# Each run has a folder (`sweep/0`, `sweep/1`, ...) with its configuration, metrics and checkpoints.
#
# ## One table
#
# `rl4co collect` prints one row per run: the settings that differ, and the last metrics. It writes the same as
# `runs.md` and `runs.csv`, and the learning curves as `runs.png`.

# %%
# !rl4co collect sweep --metric val/reward

# %% [markdown]
# The same in Python, to compute with the numbers or to draw them. Runs that differ only in the seed share a
# colour:

# %%
from rl4co.tasks.collect import collect_runs, plot_curves

runs = collect_runs("sweep")
plot_curves(runs, "val/reward")

# %% [markdown]
# Two seeds show whether a difference is larger than chance. Report the mean and the spread over seeds, and do not
# choose the best seed. For many parameters, `rl4co tune` searches in place of trying all combinations:
# [Hyperparameter search](../scaling.md#hyperparameter-search).
#
# ## Loggers
#
# The default logger writes a CSV file per run; `logger=tensorboard`, `wandb`, `mlflow`, or several in brackets
# (`logger=[csv,tensorboard]`) write elsewhere too. [Scaling and tracking](../scaling.md#loggers) lists them all,
# and [Your own RL algorithm](06_your_own_algorithm.md) shows how to log a custom term.

# %%
from pathlib import Path

print(*sorted(path.as_posix() for path in Path("sweep/0").rglob("*") if path.is_file()), sep="\n")

# %%
import csv

import matplotlib.pyplot as plt

rows = list(csv.DictReader(next(Path("sweep/0").rglob("metrics.csv")).open()))
name = "train/reward_step"  # of a batch; train/reward_epoch is the mean of an epoch
points = [(int(row["step"]), float(row[name])) for row in rows if row[name]]
figure, ax = plt.subplots(figsize=(6, 3.2))
ax.plot(*zip(*points), linewidth=0.8)
ax.set(xlabel="step", ylabel="reward of a training batch");

# %% [markdown]
# In a script, pass any logger of Lightning: `RL4COTrainer(logger=...)`. The callback `LearningCurve` of the other
# tutorials keeps the metrics of each epoch in memory.
#
# ## Resume
#
# Every run writes `last.ckpt` after each epoch, and on Ctrl-C or SIGTERM. Here a run stops early, with the settings
# of the first run of the sweep, and another one goes on from its checkpoint:

# %%
half = epochs // 2
rate, seed = rates.split(",")[0], seeds.split(",")[0]
settings = f"{small} {silent} model.optimizer_kwargs.lr={rate} seed={seed} hydra.run.dir=resumed"

# %%
# !rl4co train experiment=quick {settings} trainer.max_epochs={half}
# !rl4co train experiment=quick {settings} trainer.max_epochs={epochs} ckpt_path=resumed/checkpoints/last.ckpt

# %% [markdown]
# Training instances and sampled actions follow from the seed, the epoch and the batch. So the resumed run
# continues with the numbers of the run that was not interrupted:

# %%
resumed = collect_runs("resumed")[0].curves["val/reward"]
uninterrupted = runs[0].curves["val/reward"]
print("resumed:      ", *(f"{value:.6f}" for _, value in resumed[-2:]))
print("uninterrupted:", *(f"{value:.6f}" for _, value in uninterrupted[-2:]))

# %% [markdown]
# In Python: `trainer.fit(model, ckpt_path="resumed/checkpoints/last.ckpt")`. `ckpt_path` goes on with a training;
# `model.policy` starts a new one from trained weights, see
# [Fine-tuning and active search](13_fine_tuning_and_active_search.md).
#
# **Limits.** The numbers agree on the same kind of processor or GPU, with the same number of processes. On others,
# rounding differs, and training amplifies it.

# %%
import shutil

shutil.rmtree("sweep")
shutil.rmtree("resumed")

# %% [markdown]
# ## Where to go next
#
# - [Several GPUs, SLURM, precision](15_several_gpus.md): larger trainings.
# - [Training](../training.md): what to change first, and how to see whether it learns.
# - [Reproduce a table of the paper](16_reproduce_a_table.md): many trainings, methods and claims.
