# %% [markdown]
# # Improvement methods
#
# An improvement method begins with a complete solution and changes it step by step. A small NeuOpt policy
# learns which edges of a tour to exchange.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import TSPkoptEnv
from rl4co.envs.cost_curve import render_costs
from rl4co.models import NeuOpt
from rl4co.tasks.improve import improve
from rl4co.training import RL4COTrainer

torch.manual_seed(1234)
env = TSPkoptEnv(k_max=4, generator_params={"num_loc": 20})
model = NeuOpt(
    env,
    policy_kwargs={"embed_dim": 32, "num_heads": 2, "num_encoder_layers": 2},
    T_train=40,  # quick: 4
    T_test=40,  # quick: 4
    batch_size=64,  # quick: 2
    train_data_size=192,  # quick: 2
    val_data_size=64,  # quick: 2
    seed=1,
)
trainer = RL4COTrainer(
    max_epochs=4,  # quick: 1
    logger=False,
    enable_checkpointing=False,
)
num_instances = 64  # quick: 2
steps = 200  # quick: 4
instances = env.dataset(num_instances, phase="test").data
before = improve(model.policy, env, instances, steps=steps)
trainer.fit(model)
after = improve(model.policy, env, instances, steps=steps)

# %%
figure, ax = plt.subplots(figsize=(6.5, 3.8))
for result, label in ((before, "not trained"), (after, "trained")):
    ax.plot(result.incumbents.mean(1), label=label)
ax.set(xlabel="steps", ylabel="mean cost of the best tours so far")
ax.legend(frameon=False);

# %% [markdown]
# The first solutions are random. `improve` keeps the best solution of each instance, so there is a result
# whenever it ends: after `steps`, after `seconds`, or by Ctrl-C.
#
# ## One step
#
# `env.render(td, action)` draws what a move removes and adds.

# %%
td = env.reset(instances, initial="greedy")  # the nearest node that is allowed
out = model.policy(td, env, phase="test")
env.render(td, out["actions"])

# %%
td["action"] = out["actions"]
td = env.step(td)["next"]
print("cost before and after:", float(-td["reward"][0]), float(td["cost_current"][0]))

# %% [markdown]
# ## What the state has
#
# | key | shape | meaning |
# |---|---|---|
# | `locs` | `[B, N, 2]` | coordinates |
# | `rec_current`, `rec_best` | `[B, N]` | the current and the best solution, as successors: the node after each node |
# | `visited_time` | `[B, N]` | position of each node in the current solution |
# | `cost_current`, `cost_bsf` | `[B]` | costs of both |
# | `reward` | `[B, 1]` | how much the last step improved the best cost, never negative |
# | `last_action` | `[B, A]` | the move before, -1 if there was none |
# | `i` | `[B, 1]` | number of steps taken |
#
# Episodes do not terminate; the caller decides when to stop. Every move is accepted, even if it worsens the
# cost.

# %% [markdown]
# ## A custom decoder
#
# A decoder maps embeddings `[B, N, D]` of the nodes to a move `[B, A]`. It calls `choices.pick` once for each
# choice of a move, with logits and a mask of what the environment allows; sampling, log-likelihoods and
# entropies follow from that. `fixed_move` is a move to evaluate instead, as in training. `moves` names the
# kind of moves and so the environments that fit.

# %%
from rl4co.models import ImprovementPolicy
from rl4co.models.policies.improvement import ImprovementDecoder, ImprovementEncoder


class CoordinateEncoder(ImprovementEncoder):
    """Coordinates of each node and of its two neighbours in the tour."""

    def __init__(self, embed_dim):
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(4, embed_dim), torch.nn.ReLU(), torch.nn.Linear(embed_dim, embed_dim)
        )

    def forward(self, state):
        locs = state["locs"]  # [B, N, 2]
        after = locs.gather(1, state["rec_current"].unsqueeze(-1).expand_as(locs))
        return self.network(torch.cat([locs, after - locs], -1))  # [B, N, D]


class PairDecoder(ImprovementDecoder):
    """A pair of nodes for 2-opt, by scalar products."""

    moves = "two_opt"

    def __init__(self, embed_dim):
        super().__init__()
        self.query = torch.nn.Linear(embed_dim, embed_dim)

    def num_choices(self, env):
        return 1

    def forward(self, embeddings, state, env, choices, fixed_move, phase):
        size = embeddings.shape[1]
        logits = (self.query(embeddings) @ embeddings.mT).flatten(1)  # [B, N * N]
        fixed = None if fixed_move is None else fixed_move[:, 0] * size + fixed_move[:, 1]
        pair = choices.pick(logits, env.pair_mask(state).flatten(1), fixed)  # [B]
        return torch.stack([pair // size, pair % size], -1)


two_opt = TSPkoptEnv(generator_params={"num_loc": 20})
policy = ImprovementPolicy(CoordinateEncoder(32), PairDecoder(32))
result = improve(policy, two_opt, instances, steps=steps)
curves = {"custom decoder, not trained": result, "NeuOpt, trained": after}
render_costs({name: each.incumbents.mean(1) for name, each in curves.items()})

# %% [markdown]
# It trains like all others: `n_step_PPO(two_opt, policy_with_critic, n_step=4, T_train=40, ...)`. PPO needs
# values, so pass a `critic` to `ImprovementPolicy` (`rl4co.models.nn.value.SolutionCritic`). A move of 2-opt
# is two nodes: the path from the first one to the second one is reversed. One of k-opt is the nodes after
# which the tour is cut.
#
# **Limits.** There are improvement environments for tours (`tsp_kopt`) and for pickup and delivery
# (`pdp_ruin_repair`). The policies above are trained for seconds; at equal time, iterated local search
# (`env.solve(..., solver="ils")`) is better than all of them on tours of this size.
#
# ## Where to go next
#
# - [Improvement](../improvement.md): DACT and N2S, first solutions by a constructive policy, training of both.
# - [Ants and large instances](10_ants_and_large_instances.md): learned weights and local search.
# - [Real files and classical solvers](07_files_and_solvers.md): `rl4co solve FILE --improve MODEL`.
