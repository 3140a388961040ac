# %% [markdown]
# # Your own problem
#
# Choose k of n sites for antennas so that the two nearest antennas are as far apart as possible
# (*p-dispersion*). The problem is not part of the library. Twenty lines of rules are enough to draw
# instances, train a network and compare it with heuristics.

# %%
import matplotlib.pyplot as plt
import torch

from tensordict import TensorDict

from rl4co.core.registry import EMBEDDINGS, ENVS
from rl4co.envs import Generator, RL4COEnvBase, check_env


class AntennaGenerator(Generator):
    """Random sites; `num_antennas` of them are chosen."""

    def __init__(self, num_loc=20, num_antennas=6):
        self.num_loc, self.num_antennas = num_loc, num_antennas

    def _generate(self, batch_size, rng):
        locs = torch.rand(*batch_size, self.num_loc, 2, generator=rng)
        count = torch.full(batch_size, self.num_antennas)
        return TensorDict({"locs": locs, "num_antennas": count}, batch_size=batch_size)


@ENVS.register("antennas")
class AntennaEnv(RL4COEnvBase):
    """Antennas as far apart as possible."""

    name = "antennas"
    generator_cls = AntennaGenerator
    maximizes = True  # the reward is a gain, not minus a cost
    instance_shapes = {"locs": "n 2", "num_antennas": ""}  # an axis n; one number per instance

    def _init_state(self, instance):
        locs = instance["locs"]  # [*B, N, 2]
        return {
            "locs": locs,
            "num_antennas": instance["num_antennas"],
            "chosen": torch.zeros_like(locs[..., 0], dtype=torch.bool),  # [*B, N]
            "nearest": torch.full_like(locs[..., 0], 1.5),  # distance from an antenna [*B, N]
            "current_node": torch.zeros_like(instance["num_antennas"]),  # [*B]
        }

    def _transition(self, state, action):
        chosen = state["chosen"].scatter(-1, action.unsqueeze(-1), True)
        done = chosen.sum(-1, keepdim=True) >= state["num_antennas"].unsqueeze(-1)  # [*B, 1]
        antenna = state["locs"].gather(-2, action[..., None, None].expand(*action.shape, 1, 2))
        distance = (state["locs"] - antenna).norm(dim=-1)  # [*B, N]
        nearest = torch.minimum(state["nearest"], distance)
        return {"chosen": chosen, "nearest": nearest, "current_node": action, "done": done}

    def _action_mask(self, state):
        last = state["current_node"].unsqueeze(-1)  # [*B, 1]
        repeat = torch.zeros_like(state["chosen"]).scatter(-1, last, True)  # changes nothing
        return torch.where(state["done"], repeat, ~state["chosen"])  # [*B, N]

    def _objective(self, state, actions):
        index = actions.unsqueeze(-1).expand(*actions.shape, 2)  # [*B, T, 2]
        sites = state["locs"].gather(-2, index)
        same = actions.unsqueeze(-1) == actions.unsqueeze(-2)  # [*B, T, T]
        return torch.cdist(sites, sites).masked_fill(same, 9.0).amin((-1, -2))

    def _violations(self, state, actions):
        chosen = torch.zeros_like(state["chosen"]).scatter(-1, actions, True)
        return {"as many sites as antennas": chosen.sum(-1) != state["num_antennas"]}

    def step_bounds(self, state):
        return int(state["num_antennas"].min()), int(state["num_antennas"].max())


check_env(AntennaEnv())  # random episodes; explains every problem that it finds

# %% [markdown]
# A **state** is a mapping of tensors with any number of leading batch axes `*B`. The hooks are
# functions of states: they return new tensors, keep nothing on the object and never call `.item()`
# while an episode runs.
#
# Mask and check are written independently: `_action_mask` says what may come next, `_violations`
# judges complete solutions. A mask must leave an action to every instance until it is `done`. `check_env`
# compares mask and check. Try it: let the mask allow everything.

# %%
class Careless(AntennaEnv):
    def _action_mask(self, state):
        return torch.ones_like(state["chosen"])


try:
    check_env(Careless())
except Exception as error:
    print(str(error)[:400])

# %% [markdown]
# ## Embeddings: what the network sees
#
# The init embedding makes vectors of the sites, once. A context embedding makes the query of each step,
# a dynamic embedding tells what has changed at each site: here its distance from the nearest antenna.
# `state_keys` lists what they read; with it, training computes all steps at once.

# %%
from torch import nn

from rl4co.models.embeddings import ContextEmbedding, EnvEmbeddings
from rl4co.models.embeddings import LinearDynamicEmbedding, LinearInitEmbedding


class AntennaInit(LinearInitEmbedding):
    def __init__(self, embed_dim):
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim)

    def kinds(self, state):
        return [(state["locs"], self.init_embed)]  # [B, N, 2] to [B, N, D]


class AntennaContext(ContextEmbedding):
    state_keys = ("current_node",)

    def nodes(self, state):
        return (state["current_node"],)  # the query is made of the last antenna


class AntennaDynamic(LinearDynamicEmbedding):
    state_keys = ("nearest",)

    def features(self, state):
        return state["nearest"]


@EMBEDDINGS.register("antennas")
def antenna_embeddings(config):
    size = config.embed_dim
    return EnvEmbeddings(AntennaInit(size), AntennaContext(size), AntennaDynamic(size))

# %% [markdown]
# ## Train

# %%
from rl4co.models import AttentionModel
from rl4co.training import LearningCurve, RL4COTrainer

torch.manual_seed(1234)
env = AntennaEnv(generator_params={"num_loc": 20, "num_antennas": 6})
curve = LearningCurve()
model = AttentionModel(
    env,
    baseline="exponential",
    policy_kwargs={"embed_dim": 64, "num_encoder_layers": 2, "normalization": "instance"},
    batch_size=256,  # quick: 8
    train_data_size=12_800,  # quick: 8
    val_data_size=500,  # quick: 8
    optimizer_kwargs={"lr": 1e-3},
)
trainer = RL4COTrainer(
    max_epochs=8,  # quick: 1
    callbacks=[curve],
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)

# %% [markdown]
# ## Compare
#
# A heuristic is a function of the state, too. This one takes the site that is farthest from all
# antennas so far.

# %%
from itertools import combinations

from rl4co.tasks.eval import evaluate_policy
from rl4co.utils.decoding import random_policy, rollout


def farthest(td):
    return td.set("action", td["nearest"].masked_fill(~td["action_mask"], -1.0).argmax(-1))


def best(td):
    """All choices of one instance after the other."""
    choices = torch.tensor(list(combinations(range(20), 6)))  # [38760, 6]
    rewards = [env.get_reward(one.expand(len(choices)), choices) for one in td]
    return torch.stack([choices[reward.argmax()] for reward in rewards])


num_instances = 50  # quick: 1
instances = env.dataset(num_instances, phase="test").data
td = env.reset(instances)
solutions = {
    "random": rollout(env, td, random_policy)[2],
    "farthest site next": rollout(env, td, farthest)[2],
    "model, greedy": evaluate_policy(env, model.policy, instances)["actions"],
    "model, 64 samples": evaluate_policy(
        env, model.policy, instances, "sampling", samples=64
    )["actions"],
    "best": best(td),
}
rewards = {name: float(env.get_reward(td, actions).mean()) for name, actions in solutions.items()}
for name, reward in rewards.items():
    print(f"{name:<20}{reward:.3f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
left.plot(curve.values("val/reward"), marker="o", label="model, greedy")
for name, style in {"random": ":", "farthest site next": "--", "best": "-"}.items():
    left.axhline(rewards[name], linestyle=style, color="gray")
    left.text(0, rewards[name], name, va="bottom", fontsize=8)
left.set(xlabel="epoch", ylabel="smallest distance (reward)")
locs = instances["locs"][0]
right.scatter(*locs.T, color="lightgray")
for name, marker in {"best": "s", "model, 64 samples": "o", "farthest site next": "x"}.items():
    chosen = locs[solutions[name][0]]
    right.plot(*chosen.T, marker, markersize=10, fillstyle="none", label=name)
right.set(aspect="equal", xticks=[], yticks=[])
figure.legend(loc="outside lower right", ncols=3, frameon=False);

# %% [markdown]
# ## Where to go next
#
# - On the command line, with environment and embeddings in `antennas.py` of the working folder: `rl4co train
#   --import antennas experiment=quick model=am env.name=antennas '~env.generator_params'`. A package names them in
#   its `pyproject.toml` instead: entry points `rl4co.envs` and `rl4co.embeddings`, `antennas = "package:AntennaEnv"`.
# - To add the problem to the library, follow the recipe in `CONTRIBUTING.md`.
# - [Your own policy part](05_your_own_policy_part.md): more than embeddings.
# - [Environments](../environments.md): distributions, checks, solvers.
