"""Methods of the literature: one folder per method, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from rl4co.models.zoo.active_search import *
    from rl4co.models.zoo.am import *
    from rl4co.models.zoo.am_gnn import *
    from rl4co.models.zoo.amppo import *
    from rl4co.models.zoo.dact import *
    from rl4co.models.zoo.deepaco import *
    from rl4co.models.zoo.devformer import *
    from rl4co.models.zoo.eas import *
    from rl4co.models.zoo.gfacs import *
    from rl4co.models.zoo.glop import *
    from rl4co.models.zoo.ham import *
    from rl4co.models.zoo.l2d import *
    from rl4co.models.zoo.matnet import *
    from rl4co.models.zoo.mdam import *
    from rl4co.models.zoo.mtpomo import *
    from rl4co.models.zoo.mvmoe import *
    from rl4co.models.zoo.n2s import *
    from rl4co.models.zoo.neuopt import *
    from rl4co.models.zoo.polynet import *
    from rl4co.models.zoo.pomo import *
    from rl4co.models.zoo.ptrnet import *
    from rl4co.models.zoo.reld import *
    from rl4co.models.zoo.symnco import *

__getattr__, __dir__ = lazy_attributes(__name__, eager=(), packages=(__name__,))
