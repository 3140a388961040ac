"""Actors: scores of all actions from embeddings of operations and machines and the current state.

An action starts the next operation of a job, on its machine (JSSP) or on one of its machines
(FJSP); action 0 waits. Few of all pairs of jobs and machines can start at a time, and only these
are scored; the logits of all others are zero (and masked).
"""

from __future__ import annotations

import math

from typing import NamedTuple

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.errors import UnknownNameError
from rl4co.core.ops import gather_points
from rl4co.models.nn.attention import check_heads
from rl4co.models.zoo.l2d.encoder import ShopEmbeddings
from rl4co.models.zoo.l2d.features import NUM_JOB, NUM_MACHINE, NUM_PAIR, Observation, Shop


class ActorCache(NamedTuple):
    """What an actor computes once per encoding.

    Attributes:
        operations: What each operation contributes as a job's next `[B, O, *]`.
        machines: What each machine contributes `[B, 1 or M, *]`.
        shop: The instances.
        of_jobs: Whether `operations` has the next one of each job alone, `[B, J, *]`.
    """

    operations: Tensor
    machines: Tensor
    shop: Shop
    of_jobs: bool = False


class Actor(nn.Module):
    """Base class of actors.

    Args:
        embed_dim: Embedding size D.
        has_machines: Whether the encoder embeds machines.
        op_dim: Size of what an operation contributes.
        machine_dim: Size of what a machine contributes.
    """

    def __init__(self, embed_dim: int, has_machines: bool, op_dim: int, machine_dim: int) -> None:
        super().__init__()
        self.project_operations = nn.Linear(embed_dim, op_dim, bias=False)
        self.project_jobs = nn.Linear(NUM_JOB, op_dim)
        self.project_machines = (
            nn.Linear(embed_dim, machine_dim, bias=False) if has_machines else None
        )
        self.project_machine_state = nn.Linear(NUM_MACHINE, machine_dim, bias=False)
        pooled_dim = 2 * embed_dim if has_machines else embed_dim
        self.project_pooled = nn.Linear(pooled_dim, machine_dim, bias=False)

    def prepare(
        self, embeddings: ShopEmbeddings, shop: Shop, next_op: Tensor | None = None
    ) -> ActorCache:
        """What does not depend on the step.

        Args:
            embeddings: Embeddings of operations and machines.
            shop: The instances.
            next_op: Next operation of each job `[B, J]`, if the embeddings serve one step only:
                then no other operations are looked at.
        """
        machines = self.project_pooled(embeddings.pooled).unsqueeze(1)  # [B, 1, *]
        if self.project_machines is not None and embeddings.machines is not None:
            machines = machines + self.project_machines(embeddings.machines)  # [B, M, *]
        operations = embeddings.operations
        if next_op is not None:
            operations = gather_points(operations, next_op)  # [B, J, D]
        return ActorCache(self.project_operations(operations), machines, shop, next_op is not None)

    def jobs(self, cache: ActorCache, seen: Observation) -> Tensor:
        """What jobs contribute: `[B, Q, J, *]`."""
        rows = cache.operations
        if not cache.of_jobs:
            rows = gather_points(rows, seen.next_op.flatten(1))  # [B, Q * J, *]
        return rows.view(*seen.next_op.shape, -1) + self.project_jobs(seen.jobs)

    def machines(self, cache: ActorCache, seen: Observation) -> Tensor:
        """What machines contribute: `[B, Q, M, *]`."""
        return self.project_machine_state(seen.machines) + cache.machines.unsqueeze(1)

    def forward(self, seen: Observation, cache: ActorCache) -> Tensor:
        """Logits `[B, Q, A]`."""
        raise NotImplementedError


class MLPActor(Actor):
    """A small network on each pair of a job's next operation and a machine.

    $$z_{jm} = \\mathrm{MLP}([h_{o(j)}, h_m, \\bar h, f_j, f_m, f_{jm}])$$

    The first layer is a sum of what jobs, machines and pairs contribute. Only pairs that can start
    are scored; waiting is scored from their mean.

    Args:
        embed_dim: Embedding size D.
        hidden_dim: Width of the network (default: D).
        has_machines: Whether the encoder embeds machines.
    """

    def __init__(
        self, embed_dim: int, hidden_dim: int | None = None, has_machines: bool = True
    ) -> None:
        hidden_dim = hidden_dim or embed_dim
        super().__init__(embed_dim, has_machines, hidden_dim, hidden_dim)
        self.project_pairs = nn.Linear(NUM_PAIR, hidden_dim, bias=False)
        self.hidden = nn.Linear(hidden_dim, hidden_dim)
        self.score = nn.Linear(hidden_dim, 1)
        self.score_wait = nn.Linear(hidden_dim, 1)

    def forward(self, seen: Observation, cache: ActorCache) -> Tensor:
        """Logits `[B, Q, A]`."""
        jobs, machines = self.jobs(cache, seen), self.machines(cache, seen)
        first = (
            _rows(jobs, seen.pair_job)
            + _rows(machines, seen.pair_machine)
            + self.project_pairs(seen.pairs)
        )  # [P, *]
        hidden = F.relu(self.hidden(F.relu(first)))
        query = seen.pair_job // jobs.shape[2]  # [P]
        total = hidden.new_zeros(jobs.shape[0] * jobs.shape[1], hidden.shape[-1])
        counted = hidden * seen.pair_counts.unsqueeze(-1)
        mean = total.index_add(0, query, counted).view(*jobs.shape[:2], -1)
        mean = mean / seen.startable.sum((-2, -1)).clamp_min(1).unsqueeze(-1)  # [B, Q, *]
        scores = seen.spread(self.score(hidden).squeeze(-1))
        return torch.cat([self.score_wait(mean), scores], -1)


class PointerActor(Actor):
    """The pointer of the Attention Model: machines ask, the next operations of jobs answer.

    The pointer's scores are mixed with the features of the pairs, as MatNet mixes scores with the
    entries of a matrix.

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads of the glimpse.
        has_machines: Whether the encoder embeds machines.
        mixer_hidden_dim: Width of the network that mixes pointer scores with features.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 8,
        has_machines: bool = True,
        mixer_hidden_dim: int = 16,
    ) -> None:
        check_heads(embed_dim, num_heads)
        # Glimpse keys, glimpse values and logit keys of jobs in one.
        super().__init__(embed_dim, has_machines, 3 * embed_dim, embed_dim)
        self.num_heads = num_heads
        self.project_out = nn.Linear(embed_dim, embed_dim, bias=False)
        self.mix = nn.Sequential(
            nn.Linear(NUM_PAIR + 1, mixer_hidden_dim), nn.ReLU(), nn.Linear(mixer_hidden_dim, 1)
        )
        bound = 1.0 / math.sqrt(embed_dim)
        self.wait = nn.Parameter(torch.empty(3 * embed_dim).uniform_(-bound, bound))

    def forward(self, seen: Observation, cache: ActorCache) -> Tensor:
        """Logits `[B, Q, A]`."""
        jobs = self.jobs(cache, seen)  # [B, Q, J, 3 D]
        batch, queries = seen.next_op.shape[:2]
        wait = self.wait.expand(batch, queries, 1, -1)
        key, value, logit_key = torch.cat([wait, jobs], 2).chunk(3, -1)  # [B, Q, J + 1, D]
        query = self.machines(cache, seen)  # [B, Q, M, D]
        glimpse = self.project_out(self._glimpse(query, key, value, seen.left))
        scores = (glimpse @ logit_key.mT) / math.sqrt(glimpse.shape[-1])  # [B, Q, M, J + 1]
        real = cache.shop.real_machines.to(scores.dtype).unsqueeze(1)  # [B, 1, M]
        wait_score = (scores[..., 0] * real).sum(-1, keepdim=True) / real.sum(-1, keepdim=True)
        job = seen.pair_job % jobs.shape[2]  # [P]
        place = seen.pair_machine * scores.shape[-1] + job + 1
        score = scores.flatten()[place].unsqueeze(-1)  # [P, 1]
        mixed = score + self.mix(torch.cat([score, seen.pairs], -1))
        return torch.cat([wait_score, seen.spread(mixed.squeeze(-1))], -1)

    def _glimpse(self, query: Tensor, key: Tensor, value: Tensor, left: Tensor) -> Tensor:
        """Concatenated heads `[B, Q, M, D]` of attention over waiting and the jobs left."""
        q, k, v = (self._split(x) for x in (query, key, value))  # [B * Q, H, *, d]
        allowed = F.pad(left.flatten(0, 1), (1, 0), value=True)[:, None, None]  # [B * Q, 1, 1, J+1]
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return heads.transpose(1, 2).flatten(2).view_as(query)

    def _split(self, x: Tensor) -> Tensor:
        """`[B, Q, N, D]` → `[B * Q, H, N, d]`."""
        return x.flatten(0, 1).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of all queries: `[B, Q, N, D], [P]` → `[P, D]`."""
    return F.embedding(index, table.flatten(0, 2))


#: Decoders by name, values of the policies' argument `decoder`.
ACTORS = ("mlp", "pointer")


def make_actor(
    name: str, embed_dim: int, num_heads: int, hidden_dim: int | None, has_machines: bool
) -> Actor:
    """The actor called `name`."""
    if name == "mlp":
        return MLPActor(embed_dim, hidden_dim, has_machines)
    if name == "pointer":
        return PointerActor(embed_dim, num_heads, has_machines)
    raise UnknownNameError("decoder", name, ACTORS)
