"""A problem and its embeddings as a user of the published package writes them.

The calls are those of its notebook on new environments: `_reset`, `_step` and `_get_reward` on
TensorDicts with one batch axis, a generator that knows no random stream, plain modules as
embeddings.
"""

from __future__ import annotations

import torch

from tensordict import TensorDict
from torch import nn

from rl4co.envs.common import Generator, RL4COEnvBase
from rl4co.models import AttentionModelPolicy
from rl4co.utils.ops import gather_by_index, get_tour_length

EMBED_DIM = 16


class TourGenerator(Generator):
    """Uniform points, from torch's global generator."""

    def __init__(self, num_loc=6):
        self.num_loc = num_loc
        self.loc_sampler = torch.distributions.Uniform(low=0.0, high=1.0)

    def _generate(self, batch_size):
        locs = self.loc_sampler.sample((*batch_size, self.num_loc, 2))
        return TensorDict({"locs": locs}, batch_size=batch_size)


class TourEnv(RL4COEnvBase):
    """The travelling salesman once more, from scratch; `done` has no axis of its own."""

    name = "tour"

    def __init__(self, generator=TourGenerator, generator_params=None, **kwargs):
        super().__init__(**kwargs)
        self.generator = generator(**(generator_params or {}))
        self._make_spec(self.generator)

    def _reset(self, td=None, batch_size=None):
        locs = td["locs"]
        self.to(locs.device)
        node = torch.zeros(batch_size, dtype=torch.int64, device=locs.device)
        return TensorDict(
            {
                "locs": locs,
                "first_node": node,
                "current_node": node,
                "i": torch.zeros((*batch_size, 1), dtype=torch.int64),
                "action_mask": torch.ones((*batch_size, locs.shape[-2]), dtype=torch.bool),
                "reward": torch.zeros((*batch_size, 1)),
            },
            batch_size=batch_size,
        )

    def _step(self, td):
        node = td["action"]
        first = node if td["i"].all() == 0 else td["first_node"]
        available = td["action_mask"].scatter(-1, node.unsqueeze(-1), 0)
        done = torch.sum(available, dim=-1) == 0
        td.update(
            {
                "first_node": first,
                "current_node": node,
                "i": td["i"] + 1,
                "action_mask": available,
                "reward": torch.zeros_like(done),
                "done": done,
            }
        )
        return td

    def get_action_mask(self, td):
        return td["action_mask"]

    def check_solution_validity(self, td, actions):
        nodes = torch.arange(actions.size(1), out=actions.data.new()).view(1, -1)
        assert (nodes.expand_as(actions) == actions.data.sort(1)[0]).all(), "Invalid tour"

    def _get_reward(self, td, actions):
        return -get_tour_length(gather_by_index(td["locs"], actions))

    def _make_spec(self, generator):
        self.declared_size = generator.num_loc


class TourInitEmbedding(nn.Module):
    """Coordinates, embedded."""

    def __init__(self, embed_dim):
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim)

    def forward(self, td):
        return self.init_embed(td["locs"])


class TourContext(nn.Module):
    """First and current node; a placeholder before the first step."""

    def __init__(self, embed_dim):
        super().__init__()
        self.placeholder = nn.Parameter(torch.empty(2 * embed_dim).uniform_(-1, 1))
        self.project_context = nn.Linear(2 * embed_dim, embed_dim)

    def forward(self, embeddings, td):
        batch = embeddings.size(0)
        if td["i"][(0,) * td["i"].dim()].item() < 1:
            context = self.placeholder[None].expand(batch, -1)
        else:
            shape = (-1,) if td["first_node"].dim() == 1 else (td["first_node"].size(-1), -1)
            nodes = torch.stack([td["first_node"], td["current_node"]], -1).view(batch, -1)
            context = gather_by_index(embeddings, nodes).view(batch, *shape)
        return self.project_context(context)


class RowContext(TourContext):
    """The same for one batch axis only."""

    def forward(self, embeddings, td):
        rows = torch.arange(embeddings.size(0))
        if td["i"].flatten()[0] < 1:
            return self.project_context(self.placeholder[None].expand(len(rows), -1))
        nodes = [embeddings[rows, td[key]] for key in ("first_node", "current_node")]
        return self.project_context(torch.cat(nodes, -1))


class StaticEmbedding(nn.Module):
    """Keys and values never change."""

    def forward(self, td):
        return 0, 0, 0


class DistanceEmbedding(nn.Module):
    """Keys and values that change with the distance from the current node."""

    def __init__(self, embed_dim):
        super().__init__()
        self.projection = nn.Linear(1, 3 * embed_dim, bias=False)

    def forward(self, td):
        here = td["locs"][torch.arange(len(td)), td["current_node"]]  # one batch axis only
        away = (td["locs"] - here[:, None]).norm(dim=-1, keepdim=True)
        return self.projection(away).chunk(3, dim=-1)


def tour_policy(context=TourContext, dynamic=None, **options):
    """A small policy for the problem with embeddings of its own."""
    return AttentionModelPolicy(
        env_name="tour",
        embed_dim=EMBED_DIM,
        num_heads=2,
        num_encoder_layers=1,
        feedforward_hidden=32,
        init_embedding=TourInitEmbedding(EMBED_DIM),
        context_embedding=context(EMBED_DIM),
        dynamic_embedding=StaticEmbedding() if dynamic is None else dynamic,
        **options,
    )
