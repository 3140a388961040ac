"""Choosing among alternatives, one choice after the other, while log-probabilities add up."""

from __future__ import annotations

import dataclasses

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.decoding.logits import process_logits

DECODE_TYPES = ("sampling", "greedy")


@dataclasses.dataclass(frozen=True)
class ChoiceRule:
    """How alternatives are chosen.

    Args:
        decode_type: "sampling" or "greedy".
        tanh_clipping: Bound of the tanh clipping of logits (0 = none).
        temperature: Divides the logits.
        top_k: Keep this many alternatives (0 = all).
        top_p: Keep the nucleus of this probability (0 = all).
    """

    decode_type: str = "sampling"
    tanh_clipping: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0

    def __post_init__(self) -> None:
        if self.decode_type not in DECODE_TYPES:
            raise UnknownNameError("decode type", self.decode_type, DECODE_TYPES)
        if not self.temperature > 0:
            raise ConfigError(f"expected a positive temperature, got {self.temperature}")
        if self.tanh_clipping < 0:
            raise ConfigError(f"expected tanh_clipping of at least 0, got {self.tanh_clipping}")


class Choices:
    """The choices that make up one move of each instance of a batch.

    Args:
        rule: How to choose.
        uniform: Random numbers in [0, 1) `[B, C]`, one for each choice; None if nothing is sampled.
            A row decides alone about its instance, whatever its batch mates.
        with_entropy: Whether entropies are added up.

    Attributes:
        log_prob: Log-probability of all choices so far `[B]`.
        entropy: Sum of the entropies of the distributions `[B]`, 0 without `with_entropy`.
    """

    def __init__(self, rule: ChoiceRule, uniform: Tensor | None, with_entropy: bool) -> None:
        self.rule, self.uniform, self.with_entropy = rule, uniform, with_entropy
        self.count = 0
        self.log_prob: Tensor | float = 0.0
        self.entropy: Tensor | float = 0.0

    def pick(
        self,
        logits: Tensor,
        mask: Tensor,
        known_choice: Tensor | None = None,
        active: Tensor | None = None,
    ) -> Tensor:
        """One choice: an index `[B]`.

        Args:
            logits: `[B, M]`.
            mask: Allowed alternatives `[B, M]`.
            known_choice: The choice, if it is known `[B]`.
            active: Instances for which it counts `[B]`; None: all.
        """
        rule = self.rule
        log_probs = process_logits(
            logits, mask, rule.temperature, rule.top_p, rule.top_k, rule.tanh_clipping
        )  # [B, M]
        index = self._choose(log_probs) if known_choice is None else known_choice
        log_prob = log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1)  # [B]
        entropy: Tensor | float = 0.0
        if self.with_entropy:
            finite = torch.where(log_probs == -torch.inf, 0.0, log_probs)
            entropy = -(log_probs.exp() * finite).sum(-1)
        if active is not None:
            log_prob = torch.where(active, log_prob, 0.0)
            entropy = torch.where(active, entropy, 0.0) if self.with_entropy else entropy
        self.log_prob = self.log_prob + log_prob
        self.entropy = self.entropy + entropy
        self.count += 1
        return index

    def _choose(self, log_probs: Tensor) -> Tensor:
        if self.rule.decode_type == "greedy":
            return log_probs.argmax(-1)
        assert self.uniform is not None
        cumulated = log_probs.detach().exp().cumsum(-1)  # [B, M]
        # A bit less than one, so that the last alternative, if impossible, is never met.
        share = self.uniform[:, self.count : self.count + 1] * (1 - 2**-22)  # [B, 1]
        index = torch.searchsorted(cumulated, share * cumulated[:, -1:], right=True).squeeze(-1)
        return index.clamp_max(log_probs.shape[-1] - 1)  # NaN is beyond all; it is found later
