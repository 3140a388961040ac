"""FJSP: some operation has a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._shop import ShopLayout

if TYPE_CHECKING:
    from rl4co.data.formats.shop import ShopInstance


@LAYOUTS.register("fjsp")
class FJSPLayout(ShopLayout):
    """Flexible job shops."""

    includes = ("jssp",)

    def fits(self, shop: ShopInstance) -> bool:
        """By the choice of machines."""
        return shop.is_flexible
