# %% [markdown]
# # Ants and large instances
#
# A non-autoregressive policy runs once and assigns weights to edges; ants build tours from the weights, and
# local search improves them. Classical ants and iterated local search are the baselines to beat.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.decoding.ant_colony import AntColony, ColonyConfig
from rl4co.envs import get_env

num_loc = 200  # quick: 20
iterations = 20  # quick: 2
env = get_env("tsp", generator_params={"num_loc": num_loc})
instances = env.dataset(4, phase="test").data
td = env.reset(instances)

configs = {
    "plain": ColonyConfig(n_ants=20, use_local_search=False),
    "local search": ColonyConfig(n_ants=20),
    "guided_rounds=5": ColonyConfig(n_ants=20, guided_rounds=5),
    "max_min, guided_rounds=5": ColonyConfig(n_ants=20, guided_rounds=5, variant="max_min"),
}
results = {name: AntColony(env, td, config=config).run(iterations) for name, config in configs.items()}

# %%
_, best = env.solve(instances, solver="ils", max_runtime=1.0)
figure, ax = plt.subplots(figsize=(7, 4))
for name, result in results.items():
    gap = 100 * (-result.curve / best.unsqueeze(-1) - 1).mean(0)  # [iterations]
    ax.plot(result.seconds, gap, label=name)
ax.axhline(0, color="gray", linestyle="--", label="iterated local search, 1 s each")
ax.set(xlabel="seconds for four instances", ylabel="gap in %", ylim=(-1, 30))
ax.legend(frameon=False);

# %% [markdown]
# A colony needs no network: its default weights are one over the distance. Ants deposit pheromone on the
# edges of good tours, which guides the next iteration.
#
# **`guided_rounds`** is the number of perturbations after each local search: the tour is improved for the
# weights in place of the lengths, then for the lengths again. It costs time in each iteration and saves
# iterations. It works up to 5,000 nodes, where the table of all weights still fits.
#
# ## Learned weights
#
# `DeepACO` trains a graph network for the weights: ants sample tours, and what local search makes of them is
# the reward.

# %%
from rl4co.models import DeepACO
from rl4co.training import RL4COTrainer

torch.manual_seed(1234)
small = get_env("tsp", generator_params={"num_loc": 50})
model = DeepACO(
    small,
    policy_kwargs={"embed_dim": 16, "num_layers_graph_encoder": 4, "k_sparse": 10},
    batch_size=10,  # quick: 2
    train_data_size=200,  # quick: 2
    val_data_size=0,
    optimizer_kwargs={"lr": 1e-3},
)
trainer = RL4COTrainer(
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)
policy = model.policy.eval()

# %%
heat = policy.heatmap(td).detach()  # [4, N, N], zero where there is no candidate edge
edges = heat[0].nonzero()
figure, ax = plt.subplots(figsize=(5, 5))
locs = instances["locs"][0]
for i, j in edges.tolist():
    weight = float(heat[0, i, j] / heat[0].max())
    ax.plot(*locs[[i, j]].T, color="C0", alpha=weight, linewidth=2 * weight)
ax.scatter(*locs.T, s=6, color="black", zorder=3)
ax.set(aspect="equal", xticks=[], yticks=[], title="weights of the network");

# %% [markdown]
# The network has seen 50 cities and is applied to more: graph networks on nearest neighbours carry over to
# other sizes. Ants use its weights with `decode_type="ants"`:

# %%
options = {"n_ants": 20, "n_iterations": iterations}
with torch.no_grad():
    learned = policy(td, env, decode_type="ants", **options)["reward"]
    greedy = policy(td, env, decode_type="greedy")["reward"]
print(f"greedy on the weights  {(-greedy / best - 1).mean():.1%}")
print(f"ants, learned weights  {(-learned / best - 1).mean():.1%}")
print(f"ants, 1 / distance     {(-results['local search'].reward / best - 1).mean():.1%}")

# %% [markdown]
# After some seconds of training the learned weights are no better than distances; `experiment=routing/deepaco`
# trains as in the paper.
#
# ## Thousands of nodes
#
# Above 5,000 nodes nothing of the size nodes x nodes is made. These solvers work there:

# %%
size = 2000  # quick: 50
limit = 2.0  # quick: 0.1
large = get_env("cvrp", generator_params={"num_loc": size})
instance = large.dataset(1, phase="test").data
lengths = {}
for solver in ("random_insertion", "sweep", "insertion", "ils"):
    lengths[solver] = large.solve(instance, solver=solver, max_runtime=limit)
    print(f"{solver:<17} {lengths[solver].costs.item():.1f}")
large.render(large.reset(instance), lengths["ils"].actions, numbers=False)

# %% [markdown]
# `ils` is iterated local search: small kicks for tours, ruin and recreate for routes. At equal time it is ahead
# of ants with learned weights on tours of 200 and 500 nodes, so always report it beside them.
#
# `GLOP` learns to partition large instances into tours for `tsp`, `cvrp` and others, and revises parts of tours.
#
# ## Where to go next
#
# - [Non-autoregressive methods](../nonautoregressive.md): custom weights, GFACS, GLOP.
# - [Real files and classical solvers](07_files_and_solvers.md): `rl4co solve large.vrp --solver ils`.
# - [Fine-tuning and active search](13_fine_tuning_and_active_search.md): more time for each instance.
