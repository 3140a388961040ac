"""Instances of many sizes: a size is drawn for each batch."""

from __future__ import annotations

import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.envs.generator import Generator, check_count
from rl4co.envs.point_patterns import randint


class MixedSizeGenerator(Generator):
    """Instances of another generator, of a size drawn uniformly for each call.

    A batch of training is one call, so all of its instances have one size. A generated validation
    or test set is one call, too; for sets of several sizes use files.

    Args:
        generator: Generator whose settings to use, apart from the size. What it derives from the
            size (the capacity of vehicles, say) follows the size drawn.
        min_size: Smallest size.
        max_size: Largest size, included.
    """

    def __init__(self, generator: Generator, min_size: int = 40, max_size: int = 100) -> None:
        if not isinstance(generator, Generator):
            raise ConfigError(f"expected a Generator as generator, got {generator!r}")
        name = type(generator).size_name()
        if name is None:
            raise UnsupportedError(
                f"expected a generator whose instances have a size, got {type(generator).__name__}"
            )
        check_count("min_size", min_size)
        check_count("max_size", max_size, least=min_size)
        self.generator, self.min_size, self.max_size = generator, min_size, max_size
        self._size_name = name

    def with_size(self, size: int) -> Generator:
        """The generator for instances of one size."""
        settings = {**self.generator._init_arguments, self._size_name: size}
        return type(self.generator)(**settings)

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        size = self.min_size + int(randint(self.max_size - self.min_size + 1, (), rng))
        return self.with_size(size)(batch_size, rng=rng)
