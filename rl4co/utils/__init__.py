"""Short import paths of objects that are defined elsewhere.

Everything here is imported on first use, so `rl4co.utils.ops` loads neither Lightning nor Hydra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from rl4co.tasks.instantiate import (
        extras,
        get_metric_value,
        get_pylogger,
        instantiate_callbacks,
        instantiate_loggers,
        log_hyperparameters,
        print_config_tree,
        show_versions,
        task_wrapper,
    )
    from rl4co.training.trainer import RL4COTrainer

__all__ = [
    "RL4COTrainer",
    "extras",
    "get_metric_value",
    "get_pylogger",
    "instantiate_callbacks",
    "instantiate_loggers",
    "log_hyperparameters",
    "print_config_tree",
    "show_versions",
    "task_wrapper",
]

_MODULES = {
    **dict.fromkeys(__all__, "rl4co.tasks.instantiate"),
    "RL4COTrainer": "rl4co.training.trainer",
}

__getattr__, __dir__ = lazy_attributes(__name__, eager=__all__, modules=_MODULES)
