"""POMO (Kwon et al., 2020)."""

from rl4co.models.zoo.pomo.model import POMO

__all__ = ["POMO"]
