# %% [markdown]
# # Your own RL algorithm
#
# An algorithm is a subclass that computes a loss. This one adds a bonus for entropy, which keeps a policy
# from deciding too early, and logs it.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import TSPEnv
from rl4co.models import REINFORCE, AttentionModelPolicy
from rl4co.training import LearningCurve, RL4COTrainer


class EntropyBonus(REINFORCE):
    """REINFORCE with a bonus for entropy.

    Args:
        entropy_weight: Weight of the bonus.
    """

    default_metrics = {"train": ("loss", "reward", "mean_entropy")}  # what is logged

    def __init__(self, *args, entropy_weight=0.01, **kwargs):
        super().__init__(*args, **kwargs)
        self.entropy_weight = entropy_weight

    def decoding_options(self, phase):
        return {"num_samples": 8, "return_entropy": True} if phase == "train" else {}

    def calculate_loss(self, td, batch, policy_out, reward=None, log_likelihood=None):
        out = super().calculate_loss(td, batch, policy_out, reward, log_likelihood)
        out["mean_entropy"] = out["entropy"].mean() / td["locs"].shape[-2]  # per step
        out["loss"] = out["loss"] - self.entropy_weight * out["mean_entropy"]
        return out


env = TSPEnv(generator_params={"num_loc": 15})


def train(entropy_weight):
    torch.manual_seed(1234)
    curve = LearningCurve()
    model = EntropyBonus(
        env,
        AttentionModelPolicy(
            env_name="tsp", embed_dim=64, num_encoder_layers=2, normalization="instance"
        ),
        baseline="shared",
        entropy_weight=entropy_weight,
        batch_size=32,  # quick: 2
        train_data_size=1_280,  # quick: 2
        val_data_size=200,  # quick: 2
        optimizer_kwargs={"lr": 1e-3},
    )
    trainer = RL4COTrainer(
        max_epochs=6,  # quick: 1
        callbacks=[curve],
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(model)
    return curve


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
for weight in (0.0, 0.3, 3.0):
    curve = train(weight)
    left.plot([-r for r in curve.values("val/reward")], "o-", label=f"weight {weight}")
    right.plot(curve.values("train/mean_entropy"), "o-", label=f"weight {weight}")
left.set(xlabel="epoch", ylabel="mean tour length, greedy")
right.set(xlabel="epoch", ylabel="entropy of a step")
left.legend(frameon=False);

# %% [markdown]
# ## The signature of `calculate_loss`
#
# `calculate_loss(td, batch, policy_out, reward=None, log_likelihood=None)` returns `policy_out` with `loss`
# and any other terms.
#
# | argument | what it is |
# |---|---|
# | `td` | state after reset, batch `[B]` |
# | `batch` | the instances; values under `extra` where the baseline has added some |
# | `policy_out` | output of the policy: `reward`, `log_likelihood`, `actions`, and what was asked for |
# | `reward`, `log_likelihood` | the same with an axis of solutions `[B, S]` if there are several per instance |
#
# Rows of `policy_out` are in the order `s * B + b`; `rl4co.utils.ops.unbatchify` restores the axis.
#
# ## Log a custom term
#
# Put a tensor into the result of `calculate_loss` and its name into `default_metrics` of the class, or into
# `metrics={"train": ["loss", "mean_entropy"]}` of one model. It appears as `train/mean_entropy` in all loggers
# and in `LearningCurve`. A name that no step produces raises an error that lists what there is:

# %%
policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2, num_encoder_layers=1)
model = EntropyBonus(env, policy, baseline="shared", metrics={"train": ["mean_entropi"]})
try:
    model.shared_step(env.generator(4), 0, "train")
except Exception as error:
    print(error)

# %% [markdown]
# ## A baseline
#
# A baseline maps rewards to what they are compared with. This one is the mean of the *other* solutions
# of the instance, which keeps the gradient unbiased:

# %%
from rl4co.models.rl.baselines import BaselineOutput, REINFORCEBaseline


class LeaveOneOut(REINFORCEBaseline):
    def forward(self, td, reward, env):  # reward [B, S]
        others = (reward.sum(-1, keepdim=True) - reward) / (reward.shape[-1] - 1)
        return BaselineOutput(others, reward.new_zeros(()))  # the second part: a loss of its own


model = EntropyBonus(env, policy, baseline=LeaveOneOut())

# %% [markdown]
# ## More than a loss
#
# | override | to change |
# |---|---|
# | `decoding_options(phase)` | how solutions are decoded: samples, starts, temperature |
# | `calculate_loss(...)` | the loss |
# | `shared_step(batch, batch_idx, phase)` | the whole step, as in `PPO` with several updates per batch |
# | `after_epoch()` | what happens between epochs |
# | `trainable_parameters()` | what the optimizer updates |
#
# Losses that several algorithms share are pure functions in `rl4co.models.rl.losses`.
#
# ## Where to go next
#
# - [Sweeps, loggers, resuming](14_sweeps_and_logging.md): compare settings over several seeds.
# - [Replacing parts](../extending.md): turn the class into a method of the library or of a package.
# - [Improvement methods](09_improvement.md): n-step PPO.
