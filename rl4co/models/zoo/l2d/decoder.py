"""Decoder of job shops: an actor, and a separate encoder where each state is encoded anew."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from rl4co.core.registry import ENVS
from rl4co.models.policies.autoregressive import AutoregressiveDecoder
from rl4co.models.zoo.l2d.actors import Actor, ActorCache, make_actor
from rl4co.models.zoo.l2d.encoder import ShopEmbeddings, make_encoder
from rl4co.models.zoo.l2d.features import STEP_KEYS, Shop, observe, trim_padding

#: Keys that encoders and actors read of a full state.
_STATE_KEYS = (
    *STEP_KEYS,
    *("proc_times", "op_times", "pad_mask", "ops_job_map", "end_op_per_job", "ops_sequence_order"),
    *("lbs", "is_ready", "op_scheduled", "ma_assignment", "next_ma", "action_mask"),
)


class L2DDecoder(AutoregressiveDecoder):
    """Scores actions, from embeddings of the fresh instance or of each state.

    With a feature extractor every state is encoded by itself; otherwise the embeddings of the fresh
    instance serve for all steps, and what has changed since comes to the actor as features of jobs,
    machines and pairs. Training then replays all steps at once.

    Args:
        actor: Embeddings and state → logits; None makes one of the arguments below.
        feature_extractor: Encoder of each state; None makes one if `stepwise`.
        scaling_factor: Unit of time; None: that of the feature extractor, or each instance's mean
            processing time.
        env_name: "jssp" or "fjsp", where machines are always embedded.
        embed_dim: Embedding size D.
        num_encoder_layers: Layers of the feature extractor.
        normalization: Normalisation of the feature extractor.
        het_emb: Whether machines are embedded, too.
        stepwise: Whether each state is encoded anew.
        actor_hidden_dim: Width of the actor (default: D).
        init_embedding: Replaces the linear map of features in the feature extractor.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, A]`
    """

    def __init__(
        self,
        actor: Actor | None = None,
        feature_extractor: nn.Module | None = None,
        scaling_factor: float | None = None,
        *,
        env_name: str = "jssp",
        embed_dim: int = 128,
        num_encoder_layers: int = 3,
        normalization: str | None = "batch",
        het_emb: bool = False,
        stepwise: bool = False,
        actor_hidden_dim: int | None = None,
        init_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        # Only where instances name the machines, operations alone are enough.
        machines = het_emb or getattr(ENVS.get(env_name), "chooses_machines", True)
        if feature_extractor is None and stepwise:
            feature_extractor = make_encoder(
                "hgnn" if machines else "gcn", embed_dim, num_encoder_layers, 1, normalization,
                None, False, scaling_factor, init_embedding,
            )  # fmt: skip
        if actor is None:
            machines = getattr(feature_extractor, "has_machines", machines)
            actor = make_actor("mlp", embed_dim, 1, actor_hidden_dim, machines)
        if scaling_factor is None:
            scaling_factor = getattr(feature_extractor, "scaling_factor", None)
        self.actor, self.feature_extractor = actor, feature_extractor
        self.scaling_factor = scaling_factor

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """What changes from step to step; None if each step is encoded anew."""
        return STEP_KEYS if self.feature_extractor is None else None

    def prepare(
        self,
        hidden: ShopEmbeddings | Tensor | tuple[Tensor, ...] | None,
        state: Mapping[str, Tensor],
    ) -> ActorCache | None:
        """What the actor needs of the embeddings; nothing if each state is encoded anew."""
        if hidden is None:
            return None
        shop = Shop.of(state, self.scaling_factor)
        return self.actor.prepare(ShopEmbeddings.of(hidden, shop), shop)

    def forward(self, state: Mapping[str, Tensor], cache: ActorCache | None) -> Tensor:
        """Logits `[B, Q, A]` of states with axes `[B, Q]`."""
        if cache is not None:
            logits: Tensor = self.actor(observe(state, cache.shop), cache)
            return logits
        # [B, Q, ...] -> [B * Q, ...]
        flat = {key: state[key].flatten(0, 1) for key in _STATE_KEYS if key in state}
        return self.score(flat)[0].view(state["action_mask"].shape)

    def score(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits `[B, A]` of states with batch `[B]`, and their pooled embeddings."""
        assert self.feature_extractor is not None
        state = trim_padding(state)
        shop = Shop.of(state, self.scaling_factor)
        embeddings = ShopEmbeddings.of(self.feature_extractor(state)[0], shop)
        cache = self.actor.prepare(embeddings, shop, state["next_op"])
        step = {key: state[key].unsqueeze(1) for key in (*STEP_KEYS, "action_mask")}  # [B, 1, ...]
        return self.actor(observe(step, shop), cache).squeeze(1), embeddings.pooled
