# %% [markdown]
# # Reproduce a table of the paper
#
# `rl4co reproduce` trains what a table of the paper compares, tests it, and sets the values beside the printed ones.
# How long a training takes is a number that you choose.

# %%
# !rl4co reproduce

# %% [markdown]
# Each row is a *family*: tables and figures that share trainings. [Which command belongs to which
# figure](../reproduce.md#figures-and-tables-of-the-paper) is listed in the guide.
#
# ## Plan
#
# `--plan` shows the trainings, their steps and minutes; nothing runs. `--only` selects a part of the family by its
# axes: here two rules and one learned method for job shops with 6 jobs and 6 machines.

# %%
part = "--only size=6x6 --only set=random --only method=GCN,MWKR,MOR"

# %%
# !rl4co reproduce jssp --budget 20 {part} --plan

# %% [markdown]
# `--budget` is the time in minutes of the slowest training. It is turned into a number of steps by arithmetic, so
# every machine trains the same number of steps.
#
# ## Run
#
# The profile `cpu` (the default) is made for two cores, `paper` has the paper's settings. `smoke` takes seconds: its
# values mean nothing, but everything runs. Policies and values are stored in the folder `reproduce` as soon as they are done. The same command continues after
# an interruption, and does nothing when all is done.

# %%
# !rl4co reproduce jssp --profile smoke {part}

# %% [markdown]
# Values behind ours are the paper's, in italics in the files. A claim of the paper gets a verdict only if
# the training is long enough to decide it; the least number of steps was fixed before the runs.

# %%
from pathlib import Path

import matplotlib.pyplot as plt

figures = sorted(Path("reproduce/jssp").glob("*.png"))
for path in figures:
    image = plt.imread(path)
    figure, ax = plt.subplots(figsize=(6, 6 * image.shape[0] / image.shape[1]))
    ax.imshow(image)
    ax.axis("off")

# %% [markdown]
# The same folder has the tables as Markdown, LaTeX and CSV. `--report` draws all of it again without running
# anything, for example after you have merged the results of another machine.

# %%
print((Path("reproduce") / "jssp" / "makespans.tex").read_text())

# %% [markdown]
# ## A custom table
#
# A family is a YAML file: axes, what each option stands for, and what is shown. Every combination of options is a
# cell. This one compares two baselines:

# %%
family = """
title: Two baselines
compare: method
defaults:
  instances: {env: tsp, size: "${num_instances}", params: {num_loc: 10}}
  reference: ils:0.05s
  recipe:
    experiment: routing/am
    overrides:
      env.generator_params.num_loc: 10
      trainer: cpu
      model.batch_size: 64
      model.val_data_size: 100
      model.policy_kwargs: {embed_dim: 32, num_heads: 4, num_encoder_layers: 1}
axes:
  method:
    rollout: {recipe: {overrides: {model.baseline: rollout}}}
    exponential: {recipe: {overrides: {model.baseline: exponential}}}
    insertion: {solver: insertion, recipe: null}
profiles:
  cpu: {steps: 100, num_instances: 50, seeds: [1]}
  smoke: {steps: 1, num_instances: 2, seeds: [1]}
views:
  - {table: gaps, rows: method, columns: [], cells: [cost, gap]}
"""
Path("baselines.yaml").write_text(family)
file = "baselines.yaml"
profile = "cpu"  # quick: "smoke"

# %%
# !rl4co reproduce {file} --profile {profile} --out two

# %% [markdown]
# Long families are divided among processes or machines: `--jobs 2`, `--shard 1/4`, or a SLURM cluster by
# `--launcher submitit_slurm --shards 8`.
#
# **Limits.** Short budgets show that a pipeline works, not which method is better. The full tables of the paper
# take thousands of core-hours on a CPU. Not all of them are available as families.

# %%
import shutil

shutil.rmtree("reproduce")
shutil.rmtree("two")
Path(file).unlink()

# %% [markdown]
# ## Where to go next
#
# - [Reproducing the paper](../reproduce.md): budgets, verdicts, family files.
# - [Comparing methods](../benchmark.md): policies and solvers on any instances.
# - [Sweeps, loggers, resuming](14_sweeps_and_logging.md): settings of one method.
