# %% [markdown]
# # Scheduling
#
# Six jobs, six machines: each job visits the machines in its own order. Dispatching rules, an exact solver
# and a learning policy try to finish early.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import JSSPEnv

env = JSSPEnv(generator_params={"num_jobs": 6, "num_machines": 6})
num_instances = 50  # quick: 2
test = env.dataset(num_instances, phase="test").data
td = env.reset(test)

limit = 1.0  # quick: 0.1
optimal, makespans = env.solve(test, solver="cpsat", max_runtime=limit)
simple, simple_makespans = env.solve(test, solver="dispatching", rule="spt")

figure, axes = plt.subplots(2, 1, figsize=(9, 6.5), layout="constrained")
env.render(td, simple, ax=axes[0])
env.render(td, optimal, ax=axes[1])
figure

# %% [markdown]
# Above: the shortest operation first (`spt`). Below: CP-SAT of OR-Tools, which proves optimality at this
# size. A colour is a job, a row is a machine.
#
# ## Rules
#
# A dispatching rule is a fast baseline that needs no training:

# %%
for rule in ("random", "spt", "fifo", "mor", "mwkr"):
    _, costs = env.solve(test, solver="dispatching", rule=rule)
    print(f"{rule:<7} {(costs / makespans - 1).mean():6.1%} above CP-SAT")

# %% [markdown]
# ## Learning to dispatch
#
# A policy chooses the next job, at every time at which one can begin. Action 0 waits; action j + 1 runs the
# next operation of job j. Here a graph network learns by *self-labelling* (Corsini et al., 2024): the best
# of many sampled schedules is the label of the next update.

# %%
from rl4co.models import L2DPolicy, SelfLabeling
from rl4co.training import LearningCurve, RL4COTrainer

torch.manual_seed(1234)
curve = LearningCurve()
model = SelfLabeling(
    env,
    L2DPolicy(env_name="jssp", embed_dim=32, num_encoder_layers=2),
    num_samples=16,  # quick: 2
    batch_size=16,  # quick: 2
    train_data_size=160,  # quick: 2
    val_data_size=50,  # quick: 2
    optimizer_kwargs={"lr": 1e-3},
)
trainer = RL4COTrainer(
    max_epochs=8,  # quick: 1
    callbacks=[curve],
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)

# %%
from rl4co.tasks.eval import evaluate_policy

samples = 64  # quick: 2
greedy = -evaluate_policy(env, model.policy, test)["rewards"]
sampled = -evaluate_policy(env, model.policy, test, "sampling", samples=samples)["rewards"]
gaps = {
    "shortest operation first": simple_makespans / makespans - 1,
    "model, greedy": greedy / makespans - 1,
    f"model, {samples} samples": sampled / makespans - 1,
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot([-reward for reward in curve.values("val/reward")], "o-")
left.set(xlabel="epoch", ylabel="mean makespan, validation")
right.boxplot([(100 * gap).tolist() for gap in gaps.values()], orientation="horizontal")
right.set_yticks(range(1, 4), list(gaps))
right.set(xlabel="gap to CP-SAT in %")
figure

# %% [markdown]
# Sampling helps more here than on routes: schedules are cheap to evaluate and very different.
#
# **Limits.** CP-SAT solves shops of this size in milliseconds; policies are of interest for larger shops
# and where schedules are needed at once. Processing times are whole numbers from 1 to 99 here: a policy
# sees them divided by a constant of its embedding, so train on the range that you use.
#
# ## Other problems
#
# | environment | problem | policies |
# |---|---|---|
# | `fjsp` | several machines can run an operation | `L2DPolicy` with `encoder="hgnn"` or `"matnet"` |
# | `ffsp` | stages with several machines each | `MatNet` |
# | `smtwtp` | weighted tardiness on one machine | `AttentionModel`, `POMO` |
#
# `L2DPPOModel` trains on single steps with dense rewards (`JSSPEnv(stepwise_reward=True)`).
#
# ## Real shops
#
# ```bash
# rl4co solve ft06 --best-known bks.csv
# rl4co train experiment=scheduling/self-labeling env=jssp/10j-10m
# ```
#
# ## Where to go next
#
# - [Real files and classical solvers](07_files_and_solvers.md): files of JSPLIB and FJS.
# - [Your own RL algorithm](06_your_own_algorithm.md): what self-labelling replaces.
# - [Methods](../methods.md): all policies for shops.
