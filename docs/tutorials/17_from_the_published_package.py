# %% [markdown]
# # Coming from the published package
#
# Code for the published RL4CO (0.7) runs here: the arguments and import paths are the same. This page runs a script
# in that style, then shows the form that is faster and checked.

# %%
import matplotlib.pyplot as plt
import torch

from rl4co.envs import TSPEnv, TSPGenerator
from rl4co.models import POMO, AttentionModelPolicy
from rl4co.utils import RL4COTrainer

torch.manual_seed(1234)
generator = TSPGenerator(num_loc=20, loc_distribution="uniform")
env = TSPEnv(generator)
policy = AttentionModelPolicy(env_name=env.name, num_encoder_layers=3)
model = POMO(
    env,
    policy,
    batch_size=64,
    train_data_size=2_560,  # quick: 64
    val_data_size=100,  # quick: 2
    optimizer_kwargs={"lr": 1e-3},
)
trainer = RL4COTrainer(
    max_epochs=1,
    accelerator="cpu",
    precision="32-true",
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(model)
td = env.reset(batch_size=[2])
out = policy(td.clone(), env, phase="test", decode_type="greedy", return_actions=True)
env.render(td, out["actions"].cpu());

# %% [markdown]
# ## What is different
#
# | published package | here |
# |---|---|
# | an unknown argument is ignored or reaches a constructor deep inside | `UnknownArgumentError` with the nearest name |
# | `check_solution_validity` with `assert` | `env.get_reward` raises an error that names the constraint and the instances |
# | the global random stream | a stream per environment and training (`seed=`) |
# | checkpoints with pickled classes | weights and plain values; opening a file never runs code |
# | `env.dataset(...)` draws new instances each time | `phase="test"` returns the same instances in every run |
#
# For example, a typing error:

# %%
try:
    POMO(env, batch_sise=64)
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %%
tours = out["actions"].clone()
tours[0, 1] = tours[0, 0]
try:
    env.get_reward(td, tours)
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## An environment in the published style
#
# Environments that override `_reset`, `_step`, `get_action_mask` and `_get_reward` on a TensorDict run through an
# adapter. This one is the travelling salesman with a toll: every second leg costs double.

# %%
from tensordict import TensorDict

from rl4co.envs import RL4COEnvBase
from rl4co.utils.ops import gather_by_index


class TollEnv(RL4COEnvBase):
    name = "tsp"  # under this name the policy finds its embeddings

    def __init__(self, generator=None, generator_params=None, **kwargs):
        super().__init__(**kwargs)
        self.generator = generator or TSPGenerator(**(generator_params or {}))

    def _reset(self, td=None, batch_size=None):
        locs = td["locs"]
        current = torch.zeros(batch_size, dtype=torch.int64)
        available = torch.ones((*batch_size, locs.shape[-2]), dtype=torch.bool)
        return TensorDict(
            {
                "locs": locs,
                "first_node": current,
                "current_node": current,
                "i": torch.zeros((*batch_size, 1), dtype=torch.int64),
                "action_mask": available,
                "reward": torch.zeros((*batch_size, 1)),
            },
            batch_size=batch_size,
        )

    def _step(self, td):
        current = td["action"]
        first = current if td["i"].all() == 0 else td["first_node"]
        available = td["action_mask"].scatter(-1, current.unsqueeze(-1), 0)
        done = torch.sum(available, dim=-1) == 0
        return td.update(
            {
                "first_node": first,
                "current_node": current,
                "i": td["i"] + 1,
                "action_mask": available,
                "reward": torch.zeros_like(done),
                "done": done,
            }
        )

    def _get_reward(self, td, actions):
        tour = gather_by_index(td["locs"], actions)  # [B, N, 2]
        legs = (tour - tour.roll(-1, 1)).norm(dim=-1)  # [B, N]
        legs[:, 1::2] *= 2
        return -legs.sum(-1)

    def check_solution_validity(self, td, actions):
        nodes = torch.arange(actions.shape[1]).expand_as(actions)
        assert (nodes == actions.sort(1)[0]).all(), "every node is visited once"


toll = TollEnv(generator_params={"num_loc": 10})
td = toll.reset(batch_size=[64])
print("mean cost:", -policy(td, toll, phase="test", decode_type="greedy")["reward"].mean().item())

# %% [markdown]
# The adapter runs one step after the other and follows the same steps with gradients. Multi-start and training work:

# %%
curve = {}
for name, environment in {"tsp": env, "toll": toll}.items():
    out = policy(environment.reset(batch_size=[16]), environment, decode_type="multistart_greedy")
    curve[name] = -out["reward"]
figure, ax = plt.subplots(figsize=(6, 2.6))
ax.boxplot([cost.tolist() for cost in curve.values()], orientation="horizontal")
ax.set_yticks([1, 2], list(curve))
ax.set(xlabel="cost of the tours from all starts");

# %% [markdown]
# The better form is a handful of functions of tensors (hooks), without a batch axis of its own and without writing
# into the state: [Your own problem](04_your_own_problem.md). Then steps are replayed all at once, `check_env` finds
# mistakes, and classical solvers can be connected.
#
# ## Weights and checkpoints
#
# Checkpoints of the published package contain pickled classes and are not opened. Weights of the methods' authors are
# read by `load_original_weights` where a method has it (`rl4co.models.zoo.am`, for example).
#
# ## Where to go next
#
# - [From the published package](../migration.md): every difference, argument by argument.
# - [Your own problem](04_your_own_problem.md): the hooks.
# - [Train and evaluate](02_train_and_evaluate.md): fair comparisons.
