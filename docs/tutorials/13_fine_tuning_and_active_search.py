# %% [markdown]
# # Fine-tuning and active search
#
# A trained policy is a starting point: train it on for instances of another kind, or let it learn on the
# very instances that you have to solve.
#
# ## A trained model by name
#
# `rl4co models` lists the models that come with the library, and `load_pretrained` loads one by its name. If
# yours has none, this cell trains a small one and adds it to a folder of models.

# %%
import os
import shutil

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from rl4co.envs import TSPEnv
from rl4co.models import POMO, load_pretrained
from rl4co.pretrained import pretrained_models
from rl4co.training import LearningCurve, RL4COTrainer

torch.manual_seed(1234)
quiet = {"logger": False, "enable_checkpointing": False}
folder = Path("models")
size = 50  # quick: 8
name = f"pomo-tsp{size}"
if name not in pretrained_models():
    uniform = TSPEnv(generator_params={"num_loc": size})
    small = {"embed_dim": 64, "num_heads": 4, "num_encoder_layers": 3}
    instances_per_epoch = 1_600  # quick: 2
    model = POMO(
        uniform, policy_kwargs=small, batch_size=16, train_data_size=instances_per_epoch, val_data_size=0,
        optimizer_kwargs={"lr": 1e-3},
    )  # fmt: skip
    RL4COTrainer(max_epochs=1, **quiet).fit(model)
    model.policy.save_pretrained("trained")

# %%
if name not in pretrained_models():
    from rl4co.tasks.release import add_model

    add_model("trained", name, folder, generator_params={"num_loc": size})
    shutil.rmtree("trained")
    os.environ["RL4CO_MODELS"] = str(folder.resolve())
policy = load_pretrained(name)
print(name, "has", sum(weights.numel() for weights in policy.parameters()), "weights")

# %% [markdown]
# On the command line the same is `rl4co models add trained pomo-tsp50 --to models`, and the environment
# variable `RL4CO_MODELS` names the folder. A name works wherever a folder of `save_pretrained` does:
# `rl4co eval pomo-tsp50`, `rl4co solve FILE --model pomo-tsp50`.
#
# ## Fine-tune
#
# The model was trained on cities in a square. Here they lie along a road, a tenth as wide as it is long. Pass the
# policy to a new model; a smaller learning rate keeps what it knows. (On the command line, for instances of your
# own in `mine.npz`: `rl4co train experiment=quick model.policy=pomo-tsp50 env.data_dir=. env.train_file=mine.npz`.)

# %%
import copy

road = torch.distributions.Uniform(torch.zeros(2), torch.tensor([1.0, 0.1]))
env = TSPEnv(generator_params={"num_loc": size, "loc_sampler": road})
tuned = copy.deepcopy(policy)
curve = LearningCurve()
model = POMO(
    env,
    tuned,
    batch_size=16,  # quick: 2
    train_data_size=160,  # quick: 2
    val_data_size=100,  # quick: 2
    optimizer_kwargs={"lr": 2e-4},
)
trainer = RL4COTrainer(
    max_epochs=6,  # quick: 1
    callbacks=[curve],
    **quiet,
)
trainer.validate(model, verbose=False)
before = float(trainer.callback_metrics["val/max_reward"])
trainer.fit(model)

# %%
lengths = [-before, *(-reward for reward in curve.values("val/max_reward"))]
figure, ax = plt.subplots(figsize=(6, 3.4))
ax.plot(lengths, "o-")
ax.set(xlabel="epochs of fine-tuning", ylabel="mean length, best start");

# %% [markdown]
# On the command line `model.policy` names what training starts from, a model, a folder or a checkpoint. For
# clustered cities:
#
# ```bash
# rl4co train experiment=routing/pomo model.policy=pomo-tsp50 env.generator_params.loc_distribution=cluster model.optimizer_kwargs.lr=2e-5
# ```
#
# This starts a new training. To go on with an interrupted one, see
# [Sweeps, loggers, resuming](14_sweeps_and_logging.md).
#
# ## Active search
#
# Active search trains on the test instances themselves and keeps the best solution of each. `active_search`
# changes all weights and begins anew for each instance. `eas_lay` and `eas_emb` (efficient active search) learn
# a layer or the keys of the nodes, for many instances at once.

# %%
from rl4co.tasks.search import search

num_instances = 4  # quick: 1
iterations = 30  # quick: 2
instances = env.dataset(num_instances, phase="test").data
results = {
    method: search(policy, env, instances, method=method, iterations=iterations)
    for method in ("eas_lay", "eas_emb", "active_search")
}

# %% [markdown]
# Compare with as many samples of a policy that does not learn:

# %%
td = env.reset(instances)
best = torch.full((num_instances,), -torch.inf)
sampled = []
for _ in range(iterations):
    with torch.no_grad():
        out = policy(td, env, decode_type="sampling", num_samples=8 * size, select_best=True)
    best = best.maximum(out["reward"])
    sampled.append(best)

figure, ax = plt.subplots(figsize=(6.5, 3.8))
ax.plot(-torch.stack(sampled).mean(1), "--", color="gray", label="sampling")
for method, result in results.items():
    ax.plot(-result.history.mean(0), label=method)
ax.set(xlabel="iterations", ylabel="mean length of the best tours")
ax.legend(frameon=False);

# %%
_, optimal = env.solve(instances, solver="ils", max_runtime=0.2)
for method, result in results.items():
    gap = (-result.rewards / optimal - 1).mean()
    print(f"{method:<14} {gap:6.2%} above iterated local search, {result.seconds.sum():5.1f} s in total")

# %% [markdown]
# `search(..., save_path="search.npz")` keeps the best solutions while it runs, and goes on from them when it is
# called again. `max_runtime` limits the seconds for each batch. For files:
# `rl4co solve FILE --model pomo-tsp50 --search eas_lay --iterations 100`.
#
# **Limits.** A search needs hundreds of solutions per instance, so compare it at equal time with a solver or with
# local search on samples. EAS needs a decoder with pointer attention (Attention Model, POMO, SymNCO, ...).

# %%
shutil.rmtree(folder, ignore_errors=True)
os.environ.pop("RL4CO_MODELS", None);

# %% [markdown]
# ## Where to go next
#
# - [Decoding and search](03_decoding_and_search.md): search without learning.
# - [Sweeps, loggers, resuming](14_sweeps_and_logging.md): find the learning rate.
# - [Methods](../methods.md): pages on EAS and active search, with settings and numbers.
