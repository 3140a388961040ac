"""Efficient active search (Hottung et al., 2022)."""

from rl4co.models.zoo.eas.model import EAS, EASEmb, EASLay

__all__ = ["EAS", "EASEmb", "EASLay"]
