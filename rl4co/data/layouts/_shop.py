"""Layouts of job shops, which differ in the name of their environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._base import Layout

if TYPE_CHECKING:
    from rl4co.data.formats.shop import ShopInstance


class ShopLayout(Layout):
    """A problem whose instances are job shops."""

    def fits(self, shop: ShopInstance) -> bool:
        """Whether a job shop in a file is an instance of this problem."""
        return False


def name_shop(shop: ShopInstance) -> str:
    """The environment for a job shop."""
    for name, layout in LAYOUTS.items():
        if issubclass(layout, ShopLayout) and layout().fits(shop):
            return name
    raise UnsupportedError(f"there is no environment for the job shop {shop.name}")
