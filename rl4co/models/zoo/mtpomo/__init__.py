"""MTPOMO (Liu et al., 2024)."""

from rl4co.models.zoo.mtpomo.model import MTPOMO

__all__ = ["MTPOMO"]
