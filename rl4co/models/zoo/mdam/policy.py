"""Policy of the Multi-Decoder Attention Model (Xin et al., 2021).

Paper: https://arxiv.org/abs/2012.10638. Original code: liangxinedu/MDAM.
"""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import batchify
from rl4co.decoding.rollout import Rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.autoregressive import AutoregressivePolicy
from rl4co.models.policies.constructive import Encoding, Plan
from rl4co.models.policies.precision import match_precision
from rl4co.models.rl.losses import path_divergence
from rl4co.models.zoo.mdam.decoder import MDAMDecoder
from rl4co.models.zoo.mdam.encoder import MDAMEncoder, MDAMHidden


class MDAMPolicy(AutoregressivePolicy):
    """One encoder and several decoders, which learn to construct different solutions.

    Args:
        encoder: Replaces the encoder.
        decoder: Replaces the decoders.
        embed_dim: Embedding size D.
        env_name: Environment whose embeddings to use.
        num_encoder_layers: Encoder blocks, at least one.
        num_heads: Attention heads.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the encoder's feed-forward layers.
        num_paths: Decoders P.
        eg_step_gap: Steps from one embedding glimpse to the next; None: there is none. Where
            solutions can be longer than this, training follows the steps one by one.
        mask_inner: Whether the glimpses attend to allowed nodes only.
        tanh_clipping: Bound of the tanh clipping of logits.
        kwargs: See :class:`ConstructivePolicy`.
    """

    encoder: MDAMEncoder
    decoder: MDAMDecoder

    def __init__(
        self,
        encoder: MDAMEncoder | None = None,
        decoder: MDAMDecoder | None = None,
        embed_dim: int = 128,
        env_name: str = "tsp",
        num_encoder_layers: int = 3,
        num_heads: int = 8,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        num_paths: int = 5,
        eg_step_gap: int | None = 200,
        mask_inner: bool = True,
        tanh_clipping: float = 10.0,
        **kwargs: Any,
    ) -> None:
        if encoder is None:
            encoder = MDAMEncoder(
                embed_dim,
                env_name=env_name,
                num_heads=num_heads,
                num_layers=num_encoder_layers,
                normalization=normalization,
                feedforward_hidden=feedforward_hidden,
            )
        if decoder is None:
            decoder = MDAMDecoder(
                num_paths,
                eg_step_gap,
                embed_dim=embed_dim,
                num_heads=num_heads,
                env_name=env_name,
                mask_inner=mask_inner,
            )
        super().__init__(encoder, decoder, env_name, tanh_clipping=tanh_clipping, **kwargs)

    def forward(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase | str | None = None,
        phase: str = "train",
        calc_reward: bool = True,
        *args: Any,
        return_init_embeds: bool = False,
        actions: Tensor | None = None,
        hidden: MDAMHidden | None = None,
        select_best: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Constructs solutions by each path; see :meth:`ConstructivePolicy.forward`.

        `actions` to evaluate are those of all paths `[P * B, T]` (or `[S * P * B, T]`), or one per
        instance `[B, T]`, evaluated by the path that is most likely to construct it.

        Returns:
            As of any constructive policy. In training there are P solutions per instance, row
            `p * B + b` being that of path p; S starts or samples of each come outermost, row
            `(s * P + p) * B + b`. In validation and test each start or sample is the best of its
            paths, row `s * B + b`, where rewards are computed. With gradients also `divergence`
            `[B]`, how much the paths differ in their first choice.
        """
        env = self.environment(env)
        if len(td.batch_size) != 1:
            raise ConfigError(
                f"expected a state with one batch axis, got batch {list(td.batch_size)}; "
                "flatten the batch, or unsqueeze(0) a single instance"
            )
        gap = self.decoder.eg_step_gap
        self.decoder.glimpses = gap is not None and env.step_bounds(dict(td.items()))[1] > gap
        init_embeds = None
        if hidden is None:
            hidden, init_embeds = self.encoder.encode(match_precision(td, self))
        elif return_init_embeds:
            raise ConfigError("expected return_init_embeds=False beside hidden, got True")
        num_paths, batch = self.decoder.num_paths, td.batch_size[0]
        any_path = actions is not None and len(actions) == batch
        if any_path:
            actions = batchify(actions, num_paths)
        out = super().forward(
            batchify(td, num_paths),
            env,
            phase,
            calc_reward,
            *args,
            **{"actions": actions, "hidden": hidden, "select_best": select_best, **options},
        )
        if any_path:
            likelihood = out["log_likelihood"]  # [P * B] or [P * B, T]
            out = best_of_paths(out, likelihood.view(len(likelihood), -1).sum(-1), num_paths, batch)
        elif calc_reward and (select_best or (phase != "train" and actions is None)):
            out = best_of_paths(out, out["reward"], num_paths, batch)
        if "divergence" in hidden.notes:
            out["divergence"] = hidden.notes.pop("divergence")
        if return_init_embeds:
            out["init_embeds"] = init_embeds
        return out

    def roll_out(self, plan: Plan, encoding: Encoding) -> Rollout:
        """Also compares the paths in their first choice, where gradients are wanted."""
        if torch.is_grad_enabled():
            first = {
                key: value[:, :1] for key, value in encoding.task.state.items()
            }  # [P * B, 1, ...]
            logits = plan.strategy.filter(self.decoder(first, encoding.cache), first["action_mask"])
            by_path = logits.log_softmax(-1).unflatten(0, (self.decoder.num_paths, -1))
            encoding.hidden.notes["divergence"] = path_divergence(by_path).squeeze(-1)  # [B]
        return super().roll_out(plan, encoding)


def best_of_paths(out: dict[str, Any], score: Tensor, num_paths: int, batch: int) -> dict[str, Any]:
    """The best path of each start or sample: rows `(s * P + p) * B + b` → `s * B + b`.

    Args:
        out: Output of a policy; what has no such rows is left as it is.
        score: What is best, `[S * P * B]`.
        num_paths: Paths P.
        batch: Instances B.
    """
    best = score.view(-1, num_paths, batch).argmax(1)  # [S, B]
    start = torch.arange(len(best), device=best.device).unsqueeze(-1)  # [S, 1]
    instance = torch.arange(batch, device=best.device)  # [B]
    rows = ((start * num_paths + best) * batch + instance).flatten()  # [S * B]
    return {
        key: value[rows] if isinstance(value, Tensor) and len(value) == len(score) else value
        for key, value in out.items()
    }
