# %% [markdown]
# # Decoding and search
#
# A policy returns probabilities, a *decoding strategy* makes solutions of them. One briefly trained
# policy, nine ways to use it: every one has its price in time.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import TSPEnv
from rl4co.models import POMO
from rl4co.tasks.eval import evaluate_policy
from rl4co.training import RL4COTrainer

torch.manual_seed(1234)
env = TSPEnv(generator_params={"num_loc": 30})
model = POMO(
    env,
    policy_kwargs={"num_encoder_layers": 3, "normalization": "instance"},
    batch_size=32,  # quick: 2
    train_data_size=4_800,  # quick: 2
    val_data_size=0,
    optimizer_kwargs={"lr": 1e-3},
)
trainer = RL4COTrainer(
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)
policy = model.policy

# %%
num_instances = 50  # quick: 2
test = env.dataset(num_instances, phase="test").data
_, best = env.solve(test, solver="ils", max_runtime=0.3)
trials = {
    "greedy": ("greedy", {}),
    "8 samples": ("sampling", {"samples": 8}),
    "100 samples": ("sampling", {"samples": 100}),
    "30 starts": ("multistart_greedy", {}),
    "8 symmetries": ("augment_dihedral_8", {}),
    "30 starts x 8 symmetries": ("multistart_greedy_augment_dihedral_8", {}),
    "beam search, width 8": ("beam_search", {"beam_width": 8}),
    "SGBS 4 x 4": ("sgbs", {"beam_width": 4, "expansion": 4}),
}
points = {}
for label, (method, options) in trials.items():
    result = evaluate_policy(env, policy, test, method=method, **options)
    gap = float((-result["rewards"] / best - 1).mean())
    points[label] = (1000 * result["inference_time"] / len(test), 100 * gap)

# %%
figure, ax = plt.subplots(figsize=(7.5, 4.4))
for label, (milliseconds, gap) in points.items():
    ax.scatter(milliseconds, gap)
    ax.annotate(label, (milliseconds, gap), (5, 4), textcoords="offset points", fontsize=8)
ax.set(xlabel="milliseconds per instance", ylabel="gap to the best tours in %")
ax.margins(x=0.3)
ax.grid(alpha=0.3);

# %% [markdown]
# - **greedy** takes the most likely city in each step.
# - **sampling** draws tours and keeps the best; `temperature`, `top_k` and `top_p` shape the
#   distribution.
# - **multi-start** forces a different first city in each tour. It pays for policies that were trained
#   so, as those of POMO.
# - **symmetries**: a mirrored instance has the same best tour, but the network sees other numbers.
# - **beam search** follows the most likely partial tours. Likely is not always short.
# - **SGBS** completes its partial tours greedily and keeps those that end well.
#
# ## In a call of the policy
#
# The same names are values of `decode_type`, with their settings beside them:

# %%
td = env.reset(test)
with torch.no_grad():
    out = policy(td, env, decode_type="sampling", num_samples=16, temperature=0.8, top_p=0.95)
print(out["reward"].shape, "rows: solution s of instance b is row s * B + b")

# %%
from rl4co.utils.ops import unbatchify

lengths = -unbatchify(out["reward"], 16)  # [B, 16]
figure, ax = plt.subplots(figsize=(6, 3))
ax.hist(lengths[0].tolist(), bins=12)
ax.axvline(float(best[0]), color="C1", label="best known")
ax.set(xlabel="length of 16 sampled tours of one instance", ylabel="tours")
ax.legend(frameon=False);

# %% [markdown]
# `select_best=True` returns the best row of each instance at once.
#
# ## Local search afterwards
#
# Where the problem has a local search, it improves any solution in less than a millisecond. It is the
# fair baseline: apply it to random tours as well.

# %%
greedy = evaluate_policy(env, policy, test)["actions"]
shuffled = env.solve(test, solver="random").actions
for name, actions in {"greedy": greedy, "random": shuffled}.items():
    before = -env.get_reward(td, actions)
    after = -env.get_reward(td, env.local_search(td, actions))
    print(f"{name}: {(before / best - 1).mean():.1%} above the best, {(after / best - 1).mean():.1%} after")

# %% [markdown]
# ## A custom strategy
#
# A strategy is a frozen dataclass with a method `choose`, from logits to actions. It works wherever a
# name does, also with several starts and symmetries:

# %%
import dataclasses

from rl4co.core.registry import DECODING
from rl4co.utils.decoding import DecodingStrategy


@DECODING.register("two_best")
@dataclasses.dataclass(frozen=True)
class TwoBest(DecodingStrategy):
    """The most likely city, or with probability `share` the second one."""

    share: float = 0.05

    draws = True  # `evaluate_policy` passes its random stream as `rng`

    def choose(self, logits, step, state):
        allowed, cities = logits.topk(2)  # [*B, 2]
        coin = torch.rand(cities.shape[:-1], generator=self.rng)  # [*B]
        second = (coin < self.share) & (allowed[..., 1] > -torch.inf)  # the last city has no rival
        return torch.where(second, cities[..., 1], cities[..., 0])


result = evaluate_policy(env, policy, test, method="multistart_two_best_augment_dihedral_8")
print(f"{(-result['rewards'] / best - 1).mean():.1%} above the best")

# %% [markdown]
# ## Where to go next
#
# - [Your own policy part](05_your_own_policy_part.md): the networks behind the probabilities.
# - [Fine-tuning and active search](13_fine_tuning_and_active_search.md): search that changes weights.
# - [Decoding](../decoding.md): all settings of all strategies.
