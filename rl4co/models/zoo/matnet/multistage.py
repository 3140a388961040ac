"""MatNet for the flexible flow shop: a network for each stage (Kwon et al., 2021)."""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.ops import gather_points
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.nn.attention import PointerAttention, split_heads
from rl4co.models.policies.autoregressive import (
    AutoregressiveDecoder,
    AutoregressiveEncoder,
    AutoregressivePolicy,
)
from rl4co.models.zoo.matnet.encoder import MatNetEncoder

#: State keys by which solutions differ that ask machines in different orders.
_ORDER_KEYS = ("machine_table", "stage_machine_table", "machine_idx", "stage_machine_idx")


class MultiStageEncoder(AutoregressiveEncoder):
    """One MatNet per stage: jobs as rows, the stage's machines as columns.

    Processing times are divided by the largest of the instance.

    Args:
        stages: Encoders of the stages.

    Shapes:
        state with `run_time [B, J, P]` → for each stage jobs `[B, J, D]` and machines `[B, M, D]`
    """

    def __init__(self, stages: list[MatNetEncoder]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, td: Mapping[str, Tensor]) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """Embeddings by stage, and what the jobs of the first stage began with."""
        run_time = td["run_time"]
        if run_time.shape[-1] % len(self.stages):
            raise ConfigError(
                f"expected machines that divide evenly among {len(self.stages)} stages, got "
                f"{run_time.shape[-1]} machines; set stage_cnt to the environment's num_stage"
            )
        times = run_time / run_time.amax((-2, -1), keepdim=True)  # [B, J, P]
        parts = times.to(next(self.parameters()).dtype).chunk(len(self.stages), -1)
        encoded = [
            stage({"cost_matrix": part}) for stage, part in zip(self.stages, parts, strict=True)
        ]
        return [hidden for hidden, _ in encoded], encoded[0][1]


@dataclasses.dataclass
class StageCache:
    """What is computed once per instance, for all stages; N = stages x (J + 1) jobs and waits.

    Attributes:
        query: Query of each machine of all stages `[B, P, D]`.
        glimpse_key: `[B, H, N, d]`.
        glimpse_value: `[B, H, N, d]`.
        logit_keys: Logit keys of each stage `[B, J + 1, D]`.
        folded_keys: The same with the output projection folded in, or None, see
            :meth:`PointerAttention.fold`.
    """

    query: Tensor
    glimpse_key: Tensor
    glimpse_value: Tensor
    logit_keys: list[Tensor]
    folded_keys: list[Tensor | None]


class StageProjections(nn.Module):
    """The weights of one stage's decoder."""

    def __init__(
        self, embed_dim: int, num_heads: int, use_graph_context: bool, out_bias: bool = False
    ) -> None:
        super().__init__()
        self.project_query = nn.Linear(embed_dim, embed_dim, bias=False)
        self.project_node_embeddings = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.project_fixed_context = (
            nn.Linear(embed_dim, embed_dim, bias=False) if use_graph_context else None
        )
        self.pointer = PointerAttention(embed_dim, num_heads, out_bias=out_bias)
        bound = 1.0 / math.sqrt(embed_dim)
        self.no_job = nn.Parameter(torch.empty(embed_dim).uniform_(-bound, bound))

    def forward(self, jobs: Tensor, machines: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries of machines `[B, M, D]`; keys, values, logit keys `[B, J + 1, D]`."""
        nodes = torch.cat([jobs, self.no_job.expand(len(jobs), 1, -1)], 1)  # [B, J + 1, D]
        query = self.project_query(machines)
        if self.project_fixed_context is not None:
            query = query + self.project_fixed_context(nodes.mean(1, keepdim=True))
        key, value, logit_key = self.project_node_embeddings(nodes).chunk(3, -1)
        return query, key, value, logit_key


class MultiStageDecoder(AutoregressiveDecoder):
    """The machine that is asked points at a job of its stage, or waits.

    The jobs of all stages lie side by side and a query sees those of its own stage, so that a step
    is one product for all instances, whatever stage each of them is in.

    Args:
        num_stages: Number of stages.
        embed_dim: Embedding size D.
        num_heads: Heads of the glimpse.
        use_graph_context: Whether the mean job embedding enters the query.
        out_bias: Whether the output projection of the pointers has a bias.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, J + 1]`
    """

    replay_keys = ("machine_idx", "stage_idx")

    def __init__(
        self,
        num_stages: int,
        embed_dim: int,
        num_heads: int,
        use_graph_context: bool = False,
        out_bias: bool = False,
    ) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            StageProjections(embed_dim, num_heads, use_graph_context, out_bias)
            for _ in range(num_stages)
        )
        #: Gives each solution another order of machines, during a call of the policy.
        self.order: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None

    def prepare(
        self, hidden: list[tuple[Tensor, Tensor]], state: Mapping[str, Tensor]
    ) -> StageCache:
        """Projects all stages."""
        projected = [stage(*h) for stage, h in zip(self.stages, hidden, strict=True)]
        *parts, logit_keys = zip(*projected, strict=True)
        query, key, value = (torch.cat(part, 1) for part in parts)
        pointers = self._pointers()
        num_heads = pointers[0].num_heads
        return StageCache(
            query,
            split_heads(key, num_heads).contiguous(),
            split_heads(value, num_heads).contiguous(),
            list(logit_keys),
            [pointer.fold(key) for pointer, key in zip(pointers, logit_keys, strict=True)],
        )

    def start_memory(self, state: Mapping[str, Tensor], cache: StageCache) -> dict[str, Tensor]:
        """The orders of machines, where solutions differ by them."""
        if self.order is None:
            return {}
        ordered = self.order(dict(state))
        return {key: ordered[key] for key in _ORDER_KEYS}

    def forward(self, state: Mapping[str, Tensor], cache: StageCache) -> Tensor:
        """Logits `[B, Q, J + 1]`."""
        mask, stage = state["action_mask"], state["stage_idx"]
        query = gather_points(cache.query, state["machine_idx"])  # [B, Q, D]
        in_stage = F.one_hot(stage, len(self.stages)).bool().unsqueeze(-1)  # [B, Q, stages, 1]
        inner = (in_stage & mask.unsqueeze(-2)).flatten(2)  # [B, Q, N]
        pointers = self._pointers()
        # The glimpse has no weights, so any stage's pointer serves.
        heads = pointers[0].glimpse(query, cache.glimpse_key, cache.glimpse_value, inner)
        keys = zip(pointers, cache.logit_keys, cache.folded_keys, strict=True)
        logits = [pointer.point(heads, key, folded) for pointer, key, folded in keys]
        by_stage = torch.stack(logits, 2)  # [B, Q, stages, J + 1]
        index = stage[..., None, None].expand(*stage.shape, 1, by_stage.shape[-1])
        return by_stage.gather(2, index).squeeze(2)  # [B, Q, J + 1]

    def _pointers(self) -> list[PointerAttention]:
        return [stage.pointer for stage in self.stages if isinstance(stage, StageProjections)]


class MultiStageFFSPPolicy(AutoregressivePolicy):
    """MatNet for the FFSP, with a network for each stage.

    Args:
        stage_cnt: Number of stages.
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        num_encoder_layers: Encoder layers.
        use_graph_context: Whether the mean job embedding enters the query.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the encoders' feed-forward layers.
        bias: Whether the encoders' attention projections have biases.
        env_name: Environment used when none is passed.
        tanh_clipping: Bound of the tanh clipping of logits.
        out_bias_pointer_attn: Whether the output projection of the pointers has a bias, as in the
            original code.
        kwargs: See :class:`ConstructivePolicy`.
    """

    def __init__(
        self,
        stage_cnt: int = 3,
        embed_dim: int = 512,
        num_heads: int = 16,
        num_encoder_layers: int = 5,
        use_graph_context: bool = False,
        normalization: str | None = "instance",
        feedforward_hidden: int = 512,
        bias: bool = False,
        env_name: str = "ffsp",
        tanh_clipping: float = 10.0,
        out_bias_pointer_attn: bool = False,
        **kwargs: Any,
    ) -> None:
        check_at_least(1, stage_cnt=stage_cnt)
        stages = [
            MatNetEncoder(
                embed_dim=embed_dim,
                num_heads=num_heads,
                num_layers=num_encoder_layers,
                normalization=normalization,
                feedforward_hidden=feedforward_hidden,
                bias=bias,
            )
            for _ in range(stage_cnt)
        ]
        super().__init__(
            encoder=MultiStageEncoder(stages),
            decoder=MultiStageDecoder(
                stage_cnt, embed_dim, num_heads, use_graph_context, out_bias_pointer_attn
            ),
            env_name=env_name,
            tanh_clipping=tanh_clipping,
            **kwargs,
        )

    def forward(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase | str | None = None,
        *args: Any,
        machine_orders: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Constructs solutions, see :meth:`ConstructivePolicy.forward`.

        With `machine_orders` the solutions of an instance assign jobs to its machines in different
        orders, the first in the numerical one. Rewards are then those of actions in that order
        (`env.permute_machines(td, num_solutions)`).
        """
        if not machine_orders:
            return super().forward(td, env, *args, **kwargs)
        env = self.environment(env)
        order = getattr(env, "order_machines", None)
        if order is None:
            raise UnsupportedError(
                f"expected an environment that can reorder machines, got {env.name}; leave out "
                "machine_orders"
            )
        decoder = self.decoder
        assert isinstance(decoder, MultiStageDecoder)
        decoder.order = order
        try:
            return super().forward(td, env, *args, **kwargs)
        finally:
            decoder.order = None
