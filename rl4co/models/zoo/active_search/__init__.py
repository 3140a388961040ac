"""Active search (Bello et al., 2017)."""

from rl4co.models.zoo.active_search.model import ActiveSearch

__all__ = ["ActiveSearch"]
