"""Attention Model trained with proximal policy optimization."""

from rl4co.models.zoo.amppo.model import AMPPO

__all__ = ["AMPPO"]
