# %% [markdown]
# # Electronic design
#
# Capacitors on a chip reduce the noise of its power supply. Where should 20 of them go? Compare rules, a
# genetic algorithm and a network that learns.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import MDPPEnv

env = MDPPEnv(max_decaps=20)
num_instances = 20  # quick: 1
test = env.dataset(num_instances, phase="test").data
td = env.reset(test)
nearest = env.solve(test, solver="nearest_cell")
env.render(td, nearest.actions)

# %% [markdown]
# Left: the board. Ports are where the impedance is probed, keep-outs cannot be used, and a number is the step
# in which a decap was placed. Right: the impedance at the ports before and after.
#
# The reward is the reduction of impedance at the worst port (`reward_type="minmax"`), or its mean over the ports
# (`"meansum"`). `dpp` is the same with a single port.
#
# ## Classical solvers

# %%
shots = 100  # quick: 2
scores = {"nearest_cell": -nearest.costs}
for solver in ("random_search", "genetic"):
    scores[solver] = -env.solve(test, solver=solver, shots=shots, seed=0).costs
for name, score in scores.items():
    print(f"{name:<15}{score.mean():6.2f}")

# %% [markdown]
# ## Learning
#
# `DevFormer` is an Attention Model whose queries combine the ports and the last decap.

# %%
from rl4co.models import DevFormer
from rl4co.training import LearningCurve, RL4COTrainer

torch.manual_seed(1234)
curve = LearningCurve()
model = DevFormer(
    env,
    baseline="exponential",
    policy_kwargs={"embed_dim": 64, "num_encoder_layers": 2},
    batch_size=64,  # quick: 2
    train_data_size=192,  # quick: 2
    val_data_size=50,  # quick: 1
    optimizer_kwargs={"lr": 1e-3},
)
trainer = RL4COTrainer(
    max_epochs=20,  # quick: 1
    callbacks=[curve],
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)

# %%
from rl4co.tasks.eval import evaluate_policy

result = evaluate_policy(env, model.policy, test)
scores["DevFormer, greedy"] = result["rewards"]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(curve.values("val/reward"), "o-")
left.set(xlabel="epoch", ylabel="mean score, validation")
right.barh(list(scores), [float(score.mean()) for score in scores.values()])
right.set(xlabel="mean score on test instances (higher is better)")
right.set_xlim(min(float(score.mean()) for score in scores.values()) - 1)
figure

# %%
env.render(td, result["actions"])

# %% [markdown]
# ## Limits
#
# The chip model of the paper is not part of the package. The chip here is simulated and fitted to two known
# scores of the published chip, so **only compare methods on the same chip**. If you have the published files,
# pass their folder: `MDPPEnv(generator_params={"data_dir": "data/dpp"})`. Other chips are arrays of
# impedances: `{"chip_file": "mine.npz"}`.
#
# `nearest_cell`, free cells nearest to the ports, is a strong rule on the simulated chip, as nearby cells
# matter most. Always report it beside a learned policy.
#
# ## Vary the instances

# %%
from rl4co.envs import DPPEnv

board = DPPEnv(generator_params={"grid_size": [6, 8], "min_decaps": 3, "max_decaps": 8})
instances = board.dataset(3, phase="test").data
placed = board.solve(instances, solver="greedy")
print("decaps:", instances["max_decaps"].flatten().tolist(), "scores:", (-placed.costs).tolist())
board.render(board.reset(instances), placed.actions)

# %% [markdown]
# ## Where to go next
#
# - [Electronic design](../eda.md): the equations of the chip, published files, reference numbers.
# - [Graph problems](12_graph_problems.md): other problems in which a set is chosen.
# - [Fine-tuning and active search](13_fine_tuning_and_active_search.md): more time for a single board.
