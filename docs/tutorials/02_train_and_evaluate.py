# %% [markdown]
# # Train and evaluate
#
# An Attention Model learns to plan vehicle routes and is compared with classical methods on the same
# instances. This takes about a minute on one core.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import CVRPEnv
from rl4co.models import AttentionModel
from rl4co.training import LearningCurve, RL4COTrainer

torch.manual_seed(1234)
env = CVRPEnv(generator_params={"num_loc": 20})
model = AttentionModel(
    env,
    baseline="rollout",
    baseline_kwargs={"dataset_size": 500},  # quick: {"dataset_size": 8}
    policy_kwargs={"num_encoder_layers": 2, "normalization": "instance"},
    batch_size=128,  # quick: 16
    train_data_size=6_400,  # quick: 16
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

# %%
figure, ax = plt.subplots(figsize=(6, 3.4))
seconds = curve.values("seconds")
ax.plot(seconds, [-r for r in curve.values("train/reward")], marker="o", label="training, sampled")
ax.plot(seconds, [-r for r in curve.values("val/reward")], marker="o", label="validation, greedy")
ax.set(xlabel="seconds", ylabel="mean length of all routes")
ax.legend(frameon=False);

# %% [markdown]
# Training instances are new in every epoch; the validation instances are always the same. The curve
# of training is worse because actions are *sampled* there, to find out what is better.
#
# ## What the arguments mean
#
# - `baseline` is what a reward is compared with. `rollout` compares with the greedy solution of the
#   best policy so far; other names are `no`, `mean`, `exponential`, `shared`, `warmup` and `critic`.
# - An epoch has `train_data_size` instances, a step `batch_size` of them.
# - `optimizer_kwargs` go to `torch.optim.Adam`; `optimizer` and `lr_scheduler` choose others.
#
# ## Evaluate
#
# `evaluate_policy` solves a data set with a *method*: how solutions are decoded, and how many of them
# for each instance. Rewards are always computed by the environment on the original instances.

# %%
from rl4co.tasks.eval import evaluate_policy

num_instances = 100  # quick: 2
test = env.dataset(num_instances, phase="test").data  # the same instances in every run
methods = {
    "greedy": {},
    "sampling": {"samples": 64},
    "multistart_greedy": {},
    "augment_dihedral_8": {},
    "multistart_greedy_augment_dihedral_8": {},
}
results = {
    name: evaluate_policy(env, model.policy, test, method=name, **options)
    for name, options in methods.items()
}

# %% [markdown]
# A length says little by itself, so compare with a solver. `env.solve` returns actions in the encoding
# of the environment, and costs, which are minus the rewards.

# %%
actions, costs = env.solve(test, solver="ils", max_runtime=0.1)
print(f"{'method':<38}{'length':>8}{'gap':>8}{'seconds':>9}")
for name, result in results.items():
    length = -result["rewards"]
    gap = (length / costs - 1).mean()
    print(f"{name:<38}{length.mean():8.3f}{gap:8.1%}{result['inference_time']:9.2f}")
print(f"{'iterated local search':<38}{costs.mean():8.3f}{0:8.1%}")

# %% [markdown]
# More solutions per instance cost time and gain quality: compare methods at equal time. The gap is
# the mean over instances, each with the solver's routes for the same instance. Iterated local search
# is a strong reference at this size, not a proof of optimality.
#
# Look at solutions, too. Left: the model, greedy; right: the solver.

# %%
td = env.reset(test)
figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.8))
env.render(td, results["greedy"]["actions"], ax=axes[0])
env.render(td, actions, ax=axes[1]);

# %% [markdown]
# ## The same from the command line
#
# ```bash
# rl4co train experiment=routing/am env=cvrp env.generator_params.num_loc=20
# rl4co eval logs/train/runs/DATE/checkpoints/last.ckpt --method multistart_greedy --solver ils
# ```
#
# `rl4co train` prints the folder of its run at the end. `rl4co eval` accepts a checkpoint, a folder of
# `save_pretrained`, or the name of a model.
#
# ## Where to go next
#
# - [Decoding and search](03_decoding_and_search.md): quality against time.
# - [Sweeps, loggers, resuming](14_sweeps_and_logging.md): many runs, interrupted runs.
# - [Your own RL algorithm](06_your_own_algorithm.md): what happens in a training step.
