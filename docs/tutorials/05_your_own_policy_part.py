# %% [markdown]
# # Your own policy part
#
# Every part of a policy can be replaced: encoder, context, decoder, decoding strategy. Here an encoder
# without attention learns side by side with the standard one.

# %%
import matplotlib.pyplot as plt
import torch

from torch import nn

from rl4co.core.arguments import RecordsArguments
from rl4co.envs import CVRPEnv
from rl4co.models import POMO, AttentionModelPolicy
from rl4co.training import LearningCurve, RL4COTrainer


class DeepSet(RecordsArguments, nn.Module):
    """Each node and the mean of all: `[B, N, D]` to `[B, N, D]`."""

    def __init__(self, embed_dim, num_layers=2):
        super().__init__()
        self.node = nn.ModuleList(nn.Linear(embed_dim, embed_dim) for _ in range(num_layers))
        self.mean = nn.ModuleList(nn.Linear(embed_dim, embed_dim) for _ in range(num_layers))

    def forward(self, nodes):
        for node, mean in zip(self.node, self.mean):
            nodes = nodes + torch.relu(node(nodes) + mean(nodes.mean(1, keepdim=True)))
        return nodes


env = CVRPEnv(generator_params={"num_loc": 15})


def train(policy):
    torch.manual_seed(1234)
    curve = LearningCurve()
    model = POMO(
        env,
        policy,
        batch_size=32,  # quick: 2
        train_data_size=640,  # quick: 2
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


size = {"embed_dim": 64, "num_heads": 4}
policies = {
    "attention": AttentionModelPolicy(
        env_name="cvrp", **size, num_encoder_layers=2, normalization="instance"
    ),
    "DeepSet": AttentionModelPolicy(env_name="cvrp", **size, encoder_network=DeepSet(64)),
}
figure, ax = plt.subplots(figsize=(6.5, 3.6))
for name, policy in policies.items():
    curve = train(policy)
    ax.plot(curve.values("seconds"), [-r for r in curve.values("val/reward")], "o-", label=name)
ax.set(xlabel="seconds of training", ylabel="mean length of all routes")
ax.legend(frameon=False);

# %% [markdown]
# ## Which argument replaces what
#
# | argument of `AttentionModelPolicy` | maps | to |
# |---|---|---|
# | `init_embedding` | instance | nodes `[B, N, D]` |
# | `encoder_network` | nodes `[B, N, D]` | nodes `[B, N, D]` |
# | `encoder` | state after reset | hidden representation, init embeddings |
# | `context_embedding` | state with axes `[B, Q]` | queries `[B, Q, D]` |
# | `decoder` | state with axes `[B, Q]`, cache | logits `[B, Q, N]` |
#
# B are instances and Q queries: samples or starts while decoding, all steps of all of them in training.
#
# ## A context
#
# The standard context of vehicle routing has the last node and the free capacity. This one adds the share
# of customers that are left. `state_keys` lists what it reads, so that training replays all steps at once.

# %%
from rl4co.models.embeddings import ContextEmbedding


class WithProgress(ContextEmbedding):
    """Last node, free capacity, share of customers left."""

    state_keys = ("current_node", "used_capacity", "vehicle_capacity", "visited")

    def __init__(self, embed_dim):
        super().__init__(embed_dim, num_nodes=1, num_features=2)

    def nodes(self, state):
        return (state["current_node"],)

    def features(self, state):
        free = state["vehicle_capacity"] - state["used_capacity"]  # [B, Q, 1]
        left = (~state["visited"]).float().mean(-1, keepdim=True)
        return torch.cat([free, left], -1)


print(sorted(env.reset(batch_size=1).keys()))  # what a context can read

# %%
policy = AttentionModelPolicy(env_name="cvrp", **size, context_embedding=WithProgress(64))
td = env.reset(batch_size=4)
policy(td, env, decode_type="sampling", num_samples=3)["reward"].shape

# %% [markdown]
# ## A decoder
#
# `ConstructivePolicy` is an encoder and a decoder; masks, multi-start, beam search and the evaluation of
# given actions come with it.

# %%
from rl4co.models import ConstructiveDecoder, ConstructivePolicy, load_pretrained
from rl4co.models.zoo.am import AttentionModelEncoder


class NeighborDecoder(ConstructiveDecoder):
    """How well each node goes with the last one, and nothing else."""

    replay_keys = ("current_node",)

    def __init__(self, embed_dim):
        super().__init__()
        self.project = nn.Linear(embed_dim, embed_dim)

    def forward(self, state, nodes):
        index = state["current_node"].unsqueeze(-1).expand(-1, -1, nodes.shape[-1])  # [B, Q, D]
        return self.project(nodes.gather(1, index)) @ nodes.mT  # [B, Q, N]


encoder = AttentionModelEncoder(embed_dim=64, num_heads=4, num_layers=2, env_name="cvrp")
policy = ConstructivePolicy(encoder, NeighborDecoder(64), env_name="cvrp", tanh_clipping=10.0)
policy(td, env, decode_type="beam_search", beam_width=3, select_best=True)["reward"].shape

# %% [markdown]
# A decoding strategy is the fourth part; see [Decoding and search](03_decoding_and_search.md) for one that
# works with several starts and symmetries in `evaluate_policy`.
#
# ## Save and load
#
# A file never decides which code runs: whoever loads it names the custom classes. Parts remember the
# arguments of their constructors if they derive from a base class of the library, or from
# `RecordsArguments` as `DeepSet` does.

# %%
import shutil

policy.save_pretrained("neighbors")
policy = load_pretrained("neighbors", allow_classes=[NeighborDecoder])
shutil.rmtree("neighbors")

# %% [markdown]
# On the command line, with the class in `my_parts.py` of the working folder, or of an installed package:
#
# ```bash
# rl4co eval neighbors --allow-class my_parts.NeighborDecoder
# rl4co solve A-n32-k5.vrp --model neighbors --allow-class my_parts.NeighborDecoder
# ```
#
# An installed package can declare its parts as entry points instead (`rl4co.decoding` for strategies,
# `rl4co.models`, `rl4co.envs`, `rl4co.embeddings`); then their names work like those of the library:
# `rl4co eval my-policy --method multistart_two_best`.
#
# ## Where to go next
#
# - [Your own RL algorithm](06_your_own_algorithm.md): losses and baselines.
# - [Replacing parts](../extending.md): attention functions, dynamic embeddings, rules.
# - [Architecture](../architecture.md): what happens in one call of a policy.
