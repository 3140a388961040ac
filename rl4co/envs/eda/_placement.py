"""What the decap placement problems have in common: instances, steps, validity."""

from __future__ import annotations

import dataclasses

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, InvalidInstanceError
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.eda._chip import Chip, read_chip
from rl4co.envs.eda._scores import placement_scores
from rl4co.envs.generator import Generator, check_count, check_interval
from rl4co.envs.point_patterns import device_of, rand

#: Decaps and keep-outs by default, as shares of the cells: 20 and 50 of the published 100.
DECAP_SHARE, KEEPOUT_SHARE = 5, 2


class PlacementGenerator(Generator):
    """Probing ports and keep-outs, drawn uniformly from the cells of a chip; none twice.

    The chip is simulated unless files are given.

    Args:
        min_loc: Smallest coordinate.
        max_loc: Where the longer side of the grid ends; the last cell lies a cell before it.
        num_keepout_min: Fewest keep-outs.
        num_keepout_max: Most keep-outs (inclusive); None: half of the cells, 50 of 100.
        max_decaps: Decaps to be placed; None: a fifth of the cells, 20 of 100.
        data_dir: Folder of the published files.
        chip_file: Impedances of another chip, see :func:`rl4co.envs.eda._chip.read_chip`.
        decap_file: Impedances of another decap.
        freq_file: Frequencies of these.
        url: Raises: nothing is downloaded.
        min_decaps: If given, each instance has its own number of decaps, drawn between this and
            `max_decaps` (inclusive).
        grid_size: Rows and columns of the chip, or one number for both; None: 10, or those of the
            file.

    Attributes:
        chip: The chip.
        num_probes_max: Most probing ports of an instance.
    """

    size_argument = "grid_size"
    num_probes_max: int = 1

    def __init__(
        self,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        num_keepout_min: int = 1,
        num_keepout_max: int | None = None,
        max_decaps: int | None = None,
        data_dir: str | Path | None = None,
        chip_file: str | Path | None = None,
        decap_file: str | Path | None = None,
        freq_file: str | Path | None = None,
        url: str | None = None,
        *,
        min_decaps: int | None = None,
        grid_size: int | tuple[int, int] | None = None,
    ) -> None:
        check_interval("loc", min_loc, max_loc)
        if url is not None:
            raise ConfigError(
                f"expected no url, got {url!r}; nothing is downloaded here: put the files into a "
                "folder and name it in data_dir"
            )
        self.min_loc, self.max_loc = min_loc, max_loc
        self.chip = read_chip(data_dir, chip_file, decap_file, freq_file, _parse_grid(grid_size))
        cells = self.chip.num_cells
        self.num_keepout_min = num_keepout_min
        self.num_keepout_max = (
            cells // KEEPOUT_SHARE if num_keepout_max is None else num_keepout_max
        )
        self._max_decaps = max_decaps
        self.max_decaps = default_decaps(cells) if max_decaps is None else max_decaps
        self.min_decaps = min_decaps
        check_count("num_keepout_max", self.num_keepout_max, 0)
        check_count("num_keepout_min", num_keepout_min, 0, self.num_keepout_max)
        check_count("max_decaps", self.max_decaps)
        if min_decaps is not None:
            check_count("min_decaps", min_decaps, 1, self.max_decaps)
        free = cells - self.num_probes_max - self.num_keepout_max
        if free < self.max_decaps:
            raise ConfigError(
                f"expected {self.max_decaps} cells or more for the decaps, got {free}: {cells} "
                f"less {self.num_keepout_max} keep-outs and {self.num_probes_max} probing ports; "
                "lower num_keepout_max or max_decaps"
            )

    def _board(
        self, batch_size: torch.Size, num_ports: Tensor | int, rng: torch.Generator | None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """What both problems draw, and which cells have ports.

        Args:
            batch_size: `[*B]`.
            num_ports: Probing ports of each instance `[*B, 1]`, or one number.
            rng: Source of randomness.

        Returns:
            `locs [*B, N, 2]`, `action_mask [*B, N]`, perhaps `max_decaps [*B, 1]`; and the order of
            the cells `[*B, N]` in which the first ones have ports.
        """
        cells = self.chip.num_cells
        keepouts = self._integers(batch_size, self.num_keepout_min, self.num_keepout_max, rng)
        # A random order of the cells: ports first, keep-outs next, the rest is free.
        order = rand((*batch_size, cells), rng).argsort(-1)  # [*B, N]
        rank = order.argsort(-1)
        locs = grid_coordinates(self.chip, self.min_loc, self.max_loc).to(order.device)
        board = {
            "locs": locs.expand(*batch_size, -1, -1).clone(),
            "action_mask": rank >= num_ports + keepouts,
        }
        if self.min_decaps is not None:
            board["max_decaps"] = self._integers(batch_size, self.min_decaps, self.max_decaps, rng)
        return board, rank

    @staticmethod
    def _integers(
        batch_size: torch.Size, low: int, high: int, rng: torch.Generator | None
    ) -> Tensor:
        """Integers from `low` to `high`, both included: `[*B, 1]`."""
        size = (*batch_size, 1)
        return torch.randint(low, high + 1, size, generator=rng, device=device_of(rng))


def default_decaps(num_cells: int) -> int:
    """Decaps by default: a fifth of the cells, at least one."""
    return max(1, round(num_cells / DECAP_SHARE))


def _parse_grid(grid_size: Any) -> tuple[int, int] | None:
    if grid_size is None:
        return None
    sizes = tuple(grid_size) if isinstance(grid_size, Iterable) else (grid_size, grid_size)
    if len(sizes) != 2:
        raise ConfigError(
            f"expected rows and columns, or one number for both, as grid_size, got {grid_size!r}"
        )
    return sizes


def grid_coordinates(chip: Chip, min_loc: float = 0.0, max_loc: float = 1.0) -> Tensor:
    """Row and column of each cell, scaled so that the longer side fits: `[N, 2]`."""
    rows, cols = chip.grid.rows, chip.grid.cols
    step = (max_loc - min_loc) / max(rows, cols)
    cell = torch.arange(rows * cols)
    return torch.stack([cell // cols, cell % cols], -1) * step + min_loc


def port_mask(probe: Tensor, num_cells: int) -> Tensor:
    """Cells with a probing port `[*B, N]`, of their indices `[*B, P]` or of that mask itself."""
    if probe.dtype == torch.bool:
        return probe
    cells = torch.arange(num_cells, device=probe.device)
    return (probe.unsqueeze(-1) == cells).any(-2)  # [*B, P, N] -> [*B, N]


class PlacementEnv(RL4COEnvBase):
    """Places a number of decaps on the free cells of a chip, one in each step.

    Args:
        generator: Source of instances.
        generator_params: Arguments of the generator.
        max_decaps: Decaps to be placed, the same as that argument of the generator. It holds for
            all instances that do not say `max_decaps` themselves. None: as the generator says, and
            for one that says nothing a fifth of the cells.
        kwargs: See :class:`RL4COEnvBase`.
    """

    optional_shapes = {"max_decaps": "1"}
    maximizes = True

    def __init__(
        self,
        generator: Generator | None = None,
        generator_params: Mapping[str, Any] | None = None,
        max_decaps: int | None = None,
        **kwargs: Any,
    ) -> None:
        if generator is None:
            params = dict(generator_params or {})
            if max_decaps is not None and params.get("max_decaps") is None:
                params["max_decaps"] = max_decaps
            generator, generator_params = self.generator_cls(**params), None
        declared = getattr(generator, "_max_decaps", getattr(generator, "max_decaps", None))
        if max_decaps is not None and declared not in (None, max_decaps):
            raise ConfigError(
                f"expected max_decaps = {max_decaps!r} in the generator, too, got {declared!r}; "
                "give it once"
            )
        self._max_decaps = declared if max_decaps is None else check_count("max_decaps", max_decaps)
        self.chip: Chip = getattr(generator, "chip", None) or Chip()
        super().__init__(generator, generator_params, **kwargs)
        # The generator need not draw it, so its kind does not show in what it draws.
        kinds = {**self.schema.kinds, "max_decaps": "integer"}
        self.schema = dataclasses.replace(self.schema, kinds=kinds)

    @property
    def max_decaps(self) -> int:
        """Decaps to be placed on the environment's own chip."""
        return self._decaps_on(self.chip.num_cells)

    def _decaps_on(self, num_cells: int) -> int:
        return default_decaps(num_cells) if self._max_decaps is None else self._max_decaps

    def _decaps_of(self, instance: Mapping[str, Tensor]) -> Tensor | int:
        """Decaps of an instance or state: `[*B, 1]`, or one number for all."""
        num_decaps = instance.get("max_decaps", None)
        return self._decaps_on(instance["locs"].shape[-2]) if num_decaps is None else num_decaps

    def _init_state(self, instance: State) -> State:
        free = instance["action_mask"]
        keepout = ~free | port_mask(instance["probe"], free.shape[-1])
        return {
            "locs": instance["locs"],
            "probe": instance["probe"],
            "keepout": keepout,
            "placed": torch.zeros_like(keepout),
            "current_node": torch.zeros_like(keepout[..., 0], dtype=torch.int64),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        placed = state["placed"].scatter(-1, action.unsqueeze(-1), True)
        done, last = state["done"] | (state["i"] + 1 >= self._decaps_of(state)), action
        if "max_decaps" in state:  # then some are finished before others
            placed = torch.where(state["done"], state["placed"], placed)
            last = torch.where(state["done"].squeeze(-1), state["current_node"], action)
        return {"placed": placed, "current_node": last, "done": done}

    def _action_mask(self, state: State) -> Tensor:
        free = ~(state["keepout"] | state["placed"])
        # A finished instance can only name its last cell again, which takes no chance.
        last = state["current_node"].unsqueeze(-1)  # [*B, 1]
        return torch.where(state["done"], torch.zeros_like(free).scatter(-1, last, True), free)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        chip = self.chip.resized(state["locs"].shape[-2])
        counted = self._counted(state, actions)
        return self._reward(state, placement_scores(chip, actions, counted, self._ports(state)))

    @abstractmethod
    def _ports(self, state: State) -> Tensor:
        """Cells at which to measure `[*B, P]`, negative where an instance has fewer ports."""

    @abstractmethod
    def _reward(self, state: State, scores: Tensor) -> Tensor:
        """Reward `[*B]` from the scores of the ports `[*B, P]`."""

    def _counted(self, state: State, actions: Tensor) -> Tensor:
        """Actions that place a decap, not those after the last one: `[*B, T]`."""
        step = torch.arange(actions.shape[-1], device=actions.device)
        return (step < self._decaps_of(state)).expand(actions.shape)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        counted = self._counted(state, actions)
        decaps = torch.zeros_like(state["keepout"], dtype=torch.int64).scatter_add(
            -1, actions, counted.long()
        )  # [*B, N], how many each cell has
        missing = counted.sum(-1, keepdim=True) != self._decaps_of(state)  # [*B, 1]
        after = ~counted & (decaps.gather(-1, actions) == 0)  # [*B, T]
        return {
            "no decap is on a keep-out or probing port": ((decaps > 0) & state["keepout"]).any(-1),
            "no cell has two decaps": (decaps > 1).any(-1),
            "max_decaps decaps are placed": missing.squeeze(-1),
            "nothing is placed after the last decap": after.any(-1),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        mask = instance["action_mask"]
        num_cells = mask.shape[-1]
        free = (mask & ~port_mask(instance["probe"], num_cells)).sum(-1)  # [*B]
        wanted = (self._decaps_of(instance) * torch.ones_like(free).unsqueeze(-1)).squeeze(-1)
        most = self._decaps_on(num_cells)
        return {
            "there are as many cells as the chip has": torch.full_like(
                free, not self.chip.can_resize(num_cells), dtype=torch.bool
            ),
            "max_decaps is at least 1 and at most that of the environment": (
                (wanted < 1) | (wanted > most)
            ),
            "there are free cells for max_decaps decaps besides keep-outs and probing ports": free
            < wanted,
        }

    def check_instances(self, td: TensorDictBase) -> None:
        """Raises :class:`InvalidInstanceError` naming the rule, the instances and the settings."""
        try:
            super().check_instances(td)
        except InvalidInstanceError as error:
            raise InvalidInstanceError(
                f"{error}; the environment has {self.chip!r} and max_decaps = {self.max_decaps}"
            ) from None

    def step_bounds(self, state: State) -> tuple[int, int]:
        """One step for each decap; any number up to `max_decaps` where instances say their own."""
        most = self._decaps_on(state["locs"].shape[-2])
        return (1 if "max_decaps" in state else most), most

    def _count_starts(self, state: State) -> int:
        return int(state["action_mask"].sum(-1).amax())

    def _most_starts(self, state: State) -> int:
        return state["action_mask"].shape[-1]

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        mask = state["action_mask"]
        free = mask.long().argsort(stable=True, dim=-1, descending=True)  # [*B, N], free ones first
        index = torch.arange(num_starts, device=mask.device) % mask.sum(-1, keepdim=True)  # [*B, S]
        return free.gather(-1, index)

    def _render(self, state: State, actions: Tensor | None, **options: Any) -> Any:
        from rl4co.envs.eda._figure import draw_placement

        return draw_placement(state, actions, self.chip, **options)

    def load_data(self, fpath: str | Path) -> TensorDict:
        """Instances from an `.npz` file.

        Published files may call the coordinates `observation`, and list them column by column (the
        order "xy" of `meshgrid`) while ports and masks count row by row: that is put right.
        """
        schema = dataclasses.replace(
            self.schema,
            optional={**self.schema.optional, "observation": "n 2"},
            substitutes={**self.schema.substitutes, "observation": ("locs",)},
        )
        td = schema.load(fpath)
        if "observation" in td.keys():
            td.rename_key_("observation", "locs")
        locs = td["locs"]
        step = locs[..., 1:2, :] - locs[..., :1, :]  # [B, 1, 2], from the first cell to the second
        by_column = (step[..., :1] != 0) & (step[..., 1:] == 0)  # [B, 1, 1]
        return td.set("locs", torch.where(by_column, locs.flip(-1), locs))
