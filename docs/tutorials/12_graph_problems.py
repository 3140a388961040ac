# %% [markdown]
# # Graph problems
#
# Where should facilities be, and which sets cover most? Solutions are sets here: k candidates are chosen, and
# their order does not matter.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import FLPEnv

env = FLPEnv(generator_params={"num_loc": 50, "to_choose": 5})
num_instances = 50  # quick: 2
test = env.dataset(num_instances, phase="test").data
td = env.reset(test)
best = env.solve(test, solver="local_search", starts=20)
env.render(td, best.actions)

# %% [markdown]
# Five of fifty locations get a facility; each location is served by the nearest one. The reward is minus the sum
# of all distances. Candidates can also come with a matrix of costs in place of coordinates.
#
# ## Train a policy

# %%
from rl4co.models import AttentionModel
from rl4co.training import LearningCurve, RL4COTrainer

torch.manual_seed(1234)
curve = LearningCurve()
model = AttentionModel(
    env,
    baseline="exponential",
    policy_kwargs={"embed_dim": 64, "num_encoder_layers": 2, "normalization": "instance"},
    batch_size=128,  # quick: 2
    train_data_size=640,  # quick: 2
    val_data_size=100,  # quick: 2
    optimizer_kwargs={"lr": 1e-3},
)
trainer = RL4COTrainer(
    max_epochs=20,  # quick: 1
    callbacks=[curve],
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)

# %% [markdown]
# ## Compare
#
# `greedy` adds the facility that saves most; `local_search` exchanges facilities of several greedy and random
# starts. Both need no other package; `highs` and `scip` of the extra `solvers` prove optima.

# %%
from rl4co.tasks.eval import evaluate_policy

costs = {
    "random": env.solve(test, solver="random").costs,
    "greedy rule": env.solve(test, solver="greedy").costs,
    "model, greedy": -evaluate_policy(env, model.policy, test)["rewards"],
    "model, 64 samples": -evaluate_policy(env, model.policy, test, "sampling", samples=64)["rewards"],
    "local search": best.costs,
}
gaps = {name: 100 * float((cost / best.costs - 1).mean()) for name, cost in costs.items()}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
left.plot([-reward for reward in curve.values("val/reward")], "o-")
left.set(xlabel="epoch", ylabel="mean cost, validation")
bars = right.barh(list(gaps), list(gaps.values()))
right.bar_label(bars, fmt="%.1f %%", padding=3)
right.set(xlabel="gap to local search in %", xlim=(0, 1.2 * max(gaps.values())))
figure

# %% [markdown]
# The policy sees more than coordinates: at each step its keys change with what a facility at each location would
# save (a *dynamic embedding*). Local search takes milliseconds here, so it is the score to beat.
#
# ## Maximum coverage
#
# In `mcp`, k sets are chosen that cover items of the largest total weight:

# %%
from rl4co.envs import MCPEnv

coverage = MCPEnv(generator_params={"num_items": 60, "num_sets": 20, "n_sets_to_choose": 4})
instances = coverage.dataset(num_instances, phase="test").data
chosen = coverage.solve(instances, solver="greedy")
exact = coverage.solve(instances, solver="local_search")
print(f"greedy {-chosen.costs.mean():.1f}, local search {-exact.costs.mean():.1f}")
coverage.render(coverage.reset(instances), exact.actions)

# %% [markdown]
# ## Graph networks as encoders
#
# `GNNAttentionModel` has encoders that pass messages along edges: near locations, or sets and their items.
# `"gcn"` and `"mlp"` need only torch; `"gat"`, `"sage"` and `"gen"` the extra `graph`.

# %%
from rl4co.models import GNNAttentionModelPolicy

policy = GNNAttentionModelPolicy(env_name="mcp", network="mlp", embed_dim=32)
with torch.no_grad():
    out = policy(coverage.reset(instances), coverage, decode_type="sampling", num_samples=8)
print(out["reward"].mean())

# %% [markdown]
# ```bash
# rl4co train experiment=graph/mcp-sage
# rl4co train experiment=graph/flp-gcn env.generator_params.num_loc=100
# ```
#
# ## Where to go next
#
# - [Fine-tuning and active search](13_fine_tuning_and_active_search.md): `experiment=graph/eas`.
# - [Your own problem](04_your_own_problem.md): another problem in which a set is chosen.
# - [Environments](../environments.md#choosing-on-graphs): solvers for sets.
