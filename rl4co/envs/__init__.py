"""Environments: one folder per problem, found by name.

`get_env("tsp", generator_params={"num_loc": 50})` builds one. The classes of environments and
generators can be imported from here, from their area and from their folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl4co.core.lazy import lazy_attributes
from rl4co.core.registry import ENVS

if TYPE_CHECKING:
    from rl4co.envs.base import RL4COEnvBase as RL4COEnvBase
    from rl4co.envs.checks import check_env as check_env
    from rl4co.envs.eda import *
    from rl4co.envs.generator import Generator as Generator
    from rl4co.envs.graph import *
    from rl4co.envs.improvement import ImprovementEnvBase as ImprovementEnvBase
    from rl4co.envs.mixed_sizes import MixedSizeGenerator as MixedSizeGenerator
    from rl4co.envs.routing import *
    from rl4co.envs.scheduling import *

ENV_REGISTRY = ENVS

_LAZY_HERE = {
    "RL4COEnvBase": "rl4co.envs.base",
    "Generator": "rl4co.envs.generator",
    "ImprovementEnvBase": "rl4co.envs.improvement",
    "MixedSizeGenerator": "rl4co.envs.mixed_sizes",
    "check_env": "rl4co.envs.checks",
}


def get_env(name: str, **kwargs: Any) -> Any:
    """The environment called `name`, built with `kwargs`."""
    return ENVS[name](**kwargs)


# There is no literal `__all__`: `from rl4co.envs import *` gives all environments and generators.
__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=("ENV_REGISTRY", "get_env"),
    packages=ENVS.packages,
    modules=_LAZY_HERE,
)
