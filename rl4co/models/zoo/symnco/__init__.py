"""Sym-NCO (Kim et al., 2022)."""

from rl4co.models.zoo.symnco.model import SymNCO
from rl4co.models.zoo.symnco.policy import SymNCOPolicy

__all__ = ["SymNCO", "SymNCOPolicy"]
