# %% [markdown]
# # Quick start
#
# A neural network learns to plan tours through 20 cities, from nothing but the lengths of its own
# tours. Install RL4CO (`pip install -e .` in a clone of the repository), then run this page. Training
# takes about a minute on one core.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import TSPEnv
from rl4co.models import POMO
from rl4co.training import LearningCurve, RL4COTrainer

torch.manual_seed(1234)
env = TSPEnv(generator_params={"num_loc": 20})
model = POMO(
    env,
    policy_kwargs={"num_encoder_layers": 3, "normalization": "instance"},
    batch_size=64,
    train_data_size=1_280,  # quick: 64
    val_data_size=200,  # quick: 8
    optimizer_kwargs={"lr": 1e-3},
)
curve = LearningCurve()
trainer = RL4COTrainer(
    max_epochs=8,  # quick: 1
    callbacks=[curve],
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)

# %% [markdown]
# Three objects did this:
#
# - the **environment** `env` knows the problem: it draws instances, says which city may come next, and
#   computes the reward, minus the length of the tour;
# - the **model** is a neural network (`model.policy`) with the algorithm that trains it;
# - the **trainer** is Lightning's, with settings that suit these problems.
#
# The callback `LearningCurve` recorded the validation after every epoch of 20 batches:

# %%
lengths = [-reward for reward in curve.values("val/reward")]
figure, ax = plt.subplots(figsize=(6, 3.4))
ax.plot(range(1, len(lengths) + 1), lengths, marker="o")
ax.set(xlabel="epoch", ylabel="mean tour length")
ax.grid(alpha=0.3);

# %% [markdown]
# ## Solve new instances
#
# `env.reset` draws instances. The policy solves all of them in one call; `multistart_greedy` begins
# one tour at each city, and `select_best` keeps the shortest.

# %%
num_instances = 100  # quick: 2
td = env.reset(batch_size=num_instances)
policy = model.policy.eval()
with torch.no_grad():
    out = policy(td, env, decode_type="multistart_greedy", select_best=True)
print("first tour:", out["actions"][0].tolist())
print(f"mean length: {-out['reward'].mean():.3f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8))
for index, ax in enumerate(axes):
    env.render(td, out["actions"], index=index, ax=ax)

# %% [markdown]
# ## How good is that?
#
# Classical heuristics solve the same instances: nearest neighbour, and iterated local search, which
# is practically optimal at this size.

# %%
for solver in ("nearest_neighbor", "ils"):
    actions, costs = env.solve(td, solver=solver, max_runtime=0.1)
    print(f"{solver:<17} {costs.mean():.3f}")

# %% [markdown]
# The network is between the two after about a minute; longer training closes most of the rest.
# For 20 cities no one needs a network: it is the smallest problem on which you can watch one learn.
#
# ## Keep the policy
#
# A saved policy is a folder with a configuration and weights. Reading it never runs code.

# %%
import shutil

from rl4co.models import load_pretrained

policy.save_pretrained("my-policy")
policy = load_pretrained("my-policy")
shutil.rmtree("my-policy")  # this page leaves nothing behind

# %% [markdown]
# ## Where to go next
#
# - [Train and evaluate](02_train_and_evaluate.md): vehicle routes, baselines, fair comparisons.
# - [Your own problem](04_your_own_problem.md): the rules of a new problem in a few functions.
# - [Real files and classical solvers](07_files_and_solvers.md): instances of benchmark libraries.
