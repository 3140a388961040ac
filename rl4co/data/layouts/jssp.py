"""JSSP: one machine for each operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._shop import ShopLayout

if TYPE_CHECKING:
    from rl4co.data.formats.shop import ShopInstance


@LAYOUTS.register("jssp")
class JSSPLayout(ShopLayout):
    """Job shops."""

    def fits(self, shop: ShopInstance) -> bool:
        """By the choice of machines."""
        return not shop.is_flexible
