"""Mixture of experts: a gate sends every token to a few of several networks.

Papers: Shazeer et al., 2017, https://arxiv.org/abs/1701.06538 (noisy top-k gating, balancing);
Zhou et al., 2024, https://arxiv.org/abs/2405.01029 (for routing problems).

Tokens are sorted by expert, so that each expert is a product with the rows it was sent and nothing
is dropped: what a token gets does not depend on the others. Measured on a CPU with four experts of
which each token has two, this is 2.5 times faster than all experts for all tokens. Sorting has to
look at the result of the gates; other devices compute all experts rather than wait for that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, UnknownNameError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Tanh": torch.tanh,
}
ROUTING_METHODS = ("input_choice", "expert_choice")
#: Smallest standard deviation of the gate's noise.
_NOISE_FLOOR = 1e-2


@dataclasses.dataclass(frozen=True)
class MoEConfig:
    """Settings of a mixture of experts.

    Args:
        num_experts: Experts E.
        k: Experts per token (expert choice: on average).
        noisy_gating: Whether the gate explores in training, by noise of learned size.
        loss_coef: Weight of the loss that balances the experts (0 = none).
        routing_method: "input_choice": tokens choose experts; "expert_choice": experts choose
            among the tokens of an instance, which balances them by itself.
        hidden_act: Activation of experts with a hidden layer.
        out_bias: Whether the experts' last layers have biases.
        light_version: Hierarchical gating, for decoders: instances are sent to the experts or to
            one dense layer first.
    """

    num_experts: int = 4
    k: int = 2
    noisy_gating: bool = True
    loss_coef: float = 0.01
    routing_method: str = "input_choice"
    hidden_act: str = "ReLU"
    out_bias: bool = True
    light_version: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.num_experts:
            raise ConfigError(
                f"expected k between 1 and num_experts, got k={self.k} of {self.num_experts}"
            )
        check_at_least(0, loss_coef=self.loss_coef)
        if self.hidden_act not in ACTIVATIONS:
            raise UnknownNameError("activation", self.hidden_act, ACTIVATIONS)
        if self.routing_method not in ROUTING_METHODS:
            raise UnknownNameError("routing method", self.routing_method, ROUTING_METHODS)

    @classmethod
    def parse(cls, settings: Mapping[str, Any] | None, **defaults: Any) -> MoEConfig | None:
        """Settings from a mapping (None: no experts), which win over the defaults."""
        if settings is None:
            return None
        fields = {field.name for field in dataclasses.fields(cls)}
        for key in settings:
            if key not in fields:
                raise UnknownNameError("setting of a mixture of experts", key, fields)
        return cls(**{**defaults, **settings})


class RoutingSession:
    """What the gates of a policy share during one call: a random stream and what they record.

    Args:
        rng: Random stream of the noise (None = torch's global one).
    """

    def __init__(self, rng: torch.Generator | None = None) -> None:
        self.rng = rng
        self.usage: dict[Gate, list[Tensor]] = {}

    def loss(self) -> Tensor | None:
        """Balancing loss of all gates that recorded their usage; None if there is none."""
        losses = [
            gate.loss_coef * balance_loss(torch.stack(usage).sum(0))
            for gate, usage in self.usage.items()
        ]
        return torch.stack(losses).sum() if losses else None


@contextlib.contextmanager
def routing_session(module: nn.Module, rng: torch.Generator | None) -> Iterator[RoutingSession]:
    """Lets the gates inside a module share a session for the duration of a block."""
    session = RoutingSession(rng)
    gates = [gate for gate in module.modules() if isinstance(gate, Gate)]
    for gate in gates:
        gate.session = session
    try:
        yield session
    finally:
        for gate in gates:
            gate.session = None


class Gate(nn.Module):
    """Noisy top-k gating.

    $$H(x) = x W_g + \\epsilon \\cdot \\mathrm{softplus}(x W_n), \\qquad
      G(x) = \\mathrm{softmax}(\\mathrm{TopK}(H(x)))$$

    The noise is there in training alone. Both weights start at zero, so that all experts are used
    equally often at first.

    Args:
        embed_dim: Size D of a token.
        config: Settings.

    Shapes:
        `x [*B, D]`, `noise [*B, E]` → experts `[*B, k]`, weights `[*B, k]`
    """

    def __init__(self, embed_dim: int, config: MoEConfig) -> None:
        super().__init__()
        self.num_experts, self.k, self.noisy = config.num_experts, config.k, config.noisy_gating
        self.loss_coef = config.loss_coef
        # Rows are experts: for matrices this thin, the other layout is ten times slower to train.
        self.w_gate = nn.Parameter(torch.zeros(config.num_experts, embed_dim))
        self.w_noise = (
            nn.Parameter(torch.zeros(config.num_experts, embed_dim)) if self.noisy else None
        )
        self.session: RoutingSession | None = None

    def draw(self, like: Tensor, *shape: int) -> Tensor | None:
        """Noise `[*shape, E]` in training, None otherwise."""
        if not (self.training and self.noisy):
            return None
        rng = None if self.session is None else self.session.rng
        return torch.randn(*shape, self.num_experts, generator=rng, device=like.device)

    def forward(self, x: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Chosen experts and their weights, which add up to one."""
        return self.choose(*self.scores(x), noise)

    def scores(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits without noise `[*B, E]` and, if there may be any, its spread `[*B, E]`."""
        if self.w_noise is None or not self.training:
            return F.linear(x, self.w_gate), None
        clean, raw = F.linear(x, torch.cat([self.w_gate, self.w_noise])).chunk(2, -1)
        return clean, F.softplus(raw) + _NOISE_FLOOR

    def choose(
        self, clean: Tensor, spread: Tensor | None, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Chosen experts and their weights from :meth:`scores` and noise."""
        if noise is None or spread is None:
            spread, logits = None, clean
        else:
            logits = torch.addcmul(clean, noise, spread)
        best = logits.topk(min(self.k + 1, self.num_experts), -1)
        experts, weights = best.indices[..., : self.k], best.values[..., : self.k].softmax(-1)
        # Not only within a session: a checkpointed replay must repeat what it computed at first.
        counts = self.training and self.loss_coef > 0 and torch.is_grad_enabled()
        if counts and clean.numel():
            usage = self._usage(clean, logits, spread, best.values, experts, weights)
            if self.session is not None:
                self.session.usage.setdefault(self, []).append(usage)
        return experts, weights

    def _usage(
        self,
        clean: Tensor,
        logits: Tensor,
        spread: Tensor | None,
        best: Tensor,
        experts: Tensor,
        weights: Tensor,
    ) -> Tensor:
        """Importance and load of the experts `[2, E]` (importance twice where there is no noise).

        Importance is the sum of weights, load the expected number of tokens under fresh noise.
        """
        importance = weights.new_zeros(self.num_experts).index_add(
            0, experts.flatten(), weights.flatten()
        )
        if spread is None or self.k == self.num_experts:
            return torch.stack([importance, importance])
        chance = chance_of_top_k(clean, logits, spread, best[..., self.k - 1 :])
        return torch.stack([importance, chance.flatten(0, -2).sum(0)])


def chance_of_top_k(clean: Tensor, logits: Tensor, spread: Tensor, border: Tensor) -> Tensor:
    """Probability `[*B, E]` of an expert to be among the first k if its own noise is drawn anew.

    $$P_i = \\Phi\\left(\\frac{(x W_g)_i - \\mathrm{kth}_{j \\ne i} H(x)_j}{\\sigma_i}\\right)$$

    Args:
        clean: Logits without noise `[*B, E]`.
        logits: Logits with noise `[*B, E]`.
        spread: Standard deviations of the noise `[*B, E]`.
        border: The k-th and the (k + 1)-th largest logit `[*B, 2]`.
    """
    kth, next_best = border[..., :1], border[..., 1:]
    # Without expert i, the k-th largest is the next one if i is among the first k.
    threshold = torch.where(logits >= kth, next_best, kth)
    return torch.special.ndtr((clean - threshold) / spread)


def spread_weights(experts: Tensor, weights: Tensor, num_experts: int) -> Tensor:
    """Weights of all experts, zero of those not chosen: `[*B, k]` → `[*B, E]`."""
    return weights.new_zeros(*weights.shape[:-1], num_experts).scatter(-1, experts, weights)


def balance_loss(usage: Tensor) -> Tensor:
    """Squared coefficients of variation over experts, summed: `[M, E]` → scalar.

    $$\\sum_m \\frac{\\mathrm{Var}_e(u_{m,e})}{\\mathrm{mean}_e(u_{m,e})^2}$$
    """
    mean = usage.mean(-1, keepdim=True)
    deviation = usage / mean.clamp_min(1e-10) - 1.0
    # As in Shazeer et al.: the unbiased variance.
    return deviation.square().sum() / max(usage.shape[-1] - 1, 1)


class MoE(nn.Module):
    """Several networks of which each token uses a few.

    $$\\mathrm{MoE}(x) = \\sum_e G(x)_e E_e(x)$$

    Args:
        input_size: Size D of a token.
        output_size: Size D' of the result.
        hidden_dim: Width of the experts' hidden layer; None: they are linear.
        config: Settings.

    Shapes:
        `x [*B, D]` → `[*B, D']`; expert choice: `[B, N, D]`, experts choose among the N.
    """

    def __init__(
        self, input_size: int, output_size: int, hidden_dim: int | None, config: MoEConfig
    ) -> None:
        super().__init__()
        self.config = config
        self.gate = Gate(input_size, config)
        sizes = [input_size, *([] if hidden_dim is None else [hidden_dim]), output_size]
        shapes = list(itertools.pairwise(sizes))
        # One tensor for all experts: the optimizer has a few large ones to update.
        self.weights = nn.ParameterList(
            _uniform(config.num_experts, rows, columns, fan_in=rows) for rows, columns in shapes
        )
        self.biases = nn.ParameterList(
            _uniform(config.num_experts, columns, fan_in=rows)
            for rows, columns in (shapes if config.out_bias else shapes[:-1])
        )

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Weighted results of the chosen experts.

        Args:
            x: Tokens `[*B, D]`.
            noise: Noise of the gate, broadcastable to `[*B, E]` (default: drawn in training).
        """
        if self.config.routing_method == "expert_choice":
            return self._expert_choice(x)
        rows = x.flatten(0, -2)  # [R, D]
        if noise is None:
            noise = self.gate.draw(x, len(rows))
        else:
            noise = noise.expand(*x.shape[:-1], -1).flatten(0, -2)  # [R, E]
        experts, weights = self.gate(rows, noise)  # [R, k] each
        return self.mix(rows, experts, weights).unflatten(0, x.shape[:-1])

    def mix(self, rows: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """$\\sum_j w_j E_{e_j}(x)$: rows `[R, D]`, experts and weights `[R, k]` → `[R, D']`."""
        if rows.device.type != "cpu":
            return self._mix_all(rows, experts, weights)
        is_routed = torch.zeros(
            len(rows), self.config.num_experts, dtype=torch.bool, device=rows.device
        ).scatter_(1, experts, True)  # [R, E]
        order = is_routed.t().nonzero()[:, 1]  # [R * k], by expert
        sizes = is_routed.sum(0)
        groups = rows.index_select(0, order).split(sizes.tolist())
        results = torch.cat(self.experts(groups))  # [R * k, D']
        # Where each token's results are: its place within the expert's group.
        place = is_routed.cumsum(0).add_(sizes.cumsum(0) - sizes - 1)  # [R, E]
        place = place.gather(1, experts).flatten()  # [R * k]
        outputs = results.index_select(0, place).unflatten(0, experts.shape)  # [R, k, D']
        return torch.bmm(weights.to(outputs.dtype).unsqueeze(1), outputs).squeeze(1)

    def _mix_all(self, rows: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """:meth:`mix` by all experts for all rows: more to compute, but nothing to wait for."""
        num_experts = self.config.num_experts
        each = torch.stack(self.experts([rows] * num_experts), 1)  # [R, E, D']
        gates = spread_weights(experts, weights, num_experts)  # [R, E]
        return torch.bmm(gates.to(each.dtype).unsqueeze(1), each).squeeze(1)

    def experts(self, groups: Sequence[Tensor]) -> list[Tensor]:
        """Each expert's network on its rows."""
        activation = ACTIVATIONS[self.config.hidden_act]
        for layer, stacked in enumerate(self.weights):
            if layer > 0:
                groups = [activation(rows) for rows in groups]
            weights = stacked.unbind(0)
            if layer < len(self.biases):
                each = zip(self.biases[layer].unbind(0), groups, weights, strict=True)
                groups = [torch.addmm(bias, rows, weight) for bias, rows, weight in each]
            else:
                groups = [rows @ weight for rows, weight in zip(groups, weights, strict=True)]
        return list(groups)

    def _expert_choice(self, x: Tensor) -> Tensor:
        """Every expert takes the `k N / E` tokens of each instance that want it most."""
        batch, num_tokens, _ = x.shape
        scores = F.linear(x, self.gate.w_gate).softmax(-1)  # [B, N, E]
        capacity = math.ceil(self.config.k * num_tokens / self.config.num_experts)
        weights, tokens = scores.topk(min(capacity, num_tokens), 1)  # [B, C, E]
        first = torch.arange(batch, device=x.device).view(-1, 1, 1) * num_tokens
        order = (first + tokens).permute(2, 0, 1).flatten()  # [E * B * C]
        groups = x.flatten(0, 1).index_select(0, order).chunk(self.config.num_experts)
        results = torch.cat(self.experts(groups))  # [E * B * C, D']
        results = results * weights.permute(2, 0, 1).reshape(-1, 1)
        out = results.new_zeros(batch * num_tokens, results.shape[-1])
        return out.index_add(0, order, results).view(batch, num_tokens, -1)


def _uniform(*shape: int, fan_in: int) -> nn.Parameter:
    """Uniform weights in the range of `nn.Linear`."""
    bound = 1.0 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))
