"""Environments in the interface of Gymnasium, for agents of other libraries.

    env = GymnasiumEnv(TSPEnv(generator_params={"num_loc": 20}))      # one instance at a time
    envs = GymnasiumVectorEnv(TSPEnv(), num_envs=64)                  # a batch of them

Needs the extra `gymnasium`. Observations are dictionaries of the state's keys; `action_mask` among
them says which actions are allowed (1) and which are not (0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch

from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import (
    ConfigError,
    MissingDependencyError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.episodes import Episodes, Outcome
from rl4co.envs.improvement import is_improvement

try:
    import gymnasium

    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError:
    raise MissingDependencyError("gymnasium", "gymnasium") from None

if TYPE_CHECKING:
    from tensordict import TensorDictBase

Observation: TypeAlias = dict[str, np.ndarray]

#: Moves of an episode where solutions are improved, unless told otherwise.
DEFAULT_MOVES = 100
_RENDER_MODES = ("rgb_array",)


class GymnasiumEnv(gymnasium.Env[Observation, Any]):
    """One instance at a time, in Gymnasium's interface.

    Every `reset` draws an instance from the environment's generator; `reset(options={"instance":
    td})` takes one of the same size instead. The rewards of an episode add up to what `get_reward`
    says of its solution: all of it comes with the last step, or a part with each where the
    environment has dense rewards. Where solutions are improved, a step earns what it gains over the
    best one so far, and an episode is truncated after `max_moves`.

    A forbidden action changes nothing. Where solutions are constructed, it ends the episode with
    `forbidden_reward`, so agents should look at `action_mask` (or :meth:`action_masks`). The info
    says whether it was `forbidden`, and gives complete solutions with their `objective`.

    Args:
        env: The environment; its sizes fix those of the observations.
        max_moves: Moves of an episode where solutions are improved (default: 100).
        forbidden_reward: Reward of a forbidden action where it ends the episode; less than any
            solution gets, so that nothing is gained by giving up.
        render_mode: None, or "rgb_array" for images `[height, width, 3]` of the solution so far.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(_RENDER_MODES), "render_fps": 4}

    def __init__(
        self,
        env: RL4COEnvBase,
        max_moves: int | None = None,
        forbidden_reward: float = -10_000.0,
        render_mode: str | None = None,
    ) -> None:
        self.episodes = _episodes(env, 1, max_moves, forbidden_reward, render_mode)
        self.render_mode = render_mode
        self.observation_space = _observation_space(self.episodes)
        self.action_space = _action_space(self.episodes)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: Of this and all later instances; None goes on with the stream.
            options: `instance` is a TensorDict with no batch axis (or one of length 1) to solve.
        """
        super().reset(seed=seed)
        instance: TensorDictBase | None = _option(options, "instance")
        if instance is not None and not instance.batch_size:
            instance = instance.unsqueeze(0)
        self.episodes.start(_stream(self.np_random), instance)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Takes an action: an index, or the numbers of a move."""
        if bool(self.episodes.ended):
            raise ConfigError("expected a running episode, got one that has ended; call reset")
        outcome = self.episodes.step(_actions(self.episodes, action, self.action_space.shape))
        terminated, truncated = bool(outcome.terminated), bool(outcome.truncated)
        info: dict[str, Any] = {"forbidden": bool(outcome.forbidden)}
        if bool(outcome.complete):
            objective, solution = self.episodes.solutions()
            if not self.episodes.improves:
                solution = solution[:, : int(self.episodes.steps)]
            info |= {"objective": float(objective), "solution": _numpy(solution[0])}
        return self._observe(), float(outcome.reward), terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """Allowed actions `[N]`, as sb3-contrib asks for them."""
        return _masks(self.episodes)[0]

    def sample_allowed(self) -> Any:
        """A random allowed action of the current state."""
        action = _numpy(self.episodes.random_actions(_stream(self.np_random)))[0]
        return action.astype(self.action_space.dtype)

    def render(self) -> np.ndarray | None:
        """An image of the instance with the solution so far, as `render_mode` says."""
        return None if self.render_mode is None else _image(self.episodes, 0)

    def _observe(self) -> Observation:
        seen = _observe(self.episodes)
        for key, space in self.observation_space.spaces.items():
            if seen[key].shape[1:] != space.shape:
                raise ConfigError(
                    f"expected instances as large as those of the generator, got {key!r} of shape "
                    f"{list(seen[key].shape[1:])} instead of {list(space.shape)}; make another "
                    "GymnasiumEnv for them"
                )
        return {key: value[0] for key, value in seen.items()}


class GymnasiumVectorEnv(VectorEnv[Observation, Any, np.ndarray]):
    """A batch of instances, stepped together in Gymnasium's interface for vectors.

    Everything is as in :class:`GymnasiumEnv`, with an axis in front. An episode that has ended
    begins anew with the next step, whose action is ignored (Gymnasium's next-step mode). `reset`
    takes a batch of `instances` as an option.

    Args:
        env: The environment; its sizes fix those of the observations.
        num_envs: Number of instances B.
        max_moves: See :class:`GymnasiumEnv`.
        forbidden_reward: See :class:`GymnasiumEnv`.
        render_mode: See :class:`GymnasiumEnv`; `render` returns one image for each instance.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": list(_RENDER_MODES),
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        env: RL4COEnvBase,
        num_envs: int = 1,
        max_moves: int | None = None,
        forbidden_reward: float = -10_000.0,
        render_mode: str | None = None,
    ) -> None:
        check_at_least(1, num_envs=num_envs)
        self.episodes = _episodes(env, num_envs, max_moves, forbidden_reward, render_mode)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = _observation_space(self.episodes)
        self.single_action_space = _action_space(self.episodes)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins all episodes.

        Args:
            seed: Of these and all later instances; None goes on with the stream.
            options: `instances` is a TensorDict with batch `[B]` to solve.
        """
        super().reset(seed=seed)
        self.episodes.start(_stream(self.np_random), _option(options, "instances"))
        return _observe(self.episodes), {}

    def step(
        self, actions: Any
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes an action in every episode; those that had ended begin anew instead."""
        if not self.episodes.state:
            raise ConfigError("expected running episodes, got none; call reset")
        taken = _actions(self.episodes, actions, self.action_space.shape)
        over = self.episodes.ended
        outcome = self.episodes.step(taken)
        if bool(over.any()):
            self.episodes.restart(over, _stream(self.np_random))
        return (
            _observe(self.episodes),
            _numpy(outcome.reward),
            _numpy(outcome.terminated),
            _numpy(outcome.truncated),
            self._infos(outcome),
        )

    def sample_allowed(self) -> np.ndarray:
        """Random allowed actions of the current states."""
        actions = _numpy(self.episodes.random_actions(_stream(self.np_random)))
        return actions.astype(self.action_space.dtype)

    def action_masks(self) -> np.ndarray:
        """Allowed actions `[B, N]`."""
        return _masks(self.episodes)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """An image of each instance with its solution so far, as `render_mode` says."""
        if self.render_mode is None:
            return None
        return tuple(_image(self.episodes, row) for row in range(self.num_envs))

    def _infos(self, outcome: Outcome) -> dict[str, Any]:
        """`forbidden`, and what ended episodes say; `_solution` and `_objective` tell which."""
        infos: dict[str, Any] = {"forbidden": _numpy(outcome.forbidden)}
        if bool(outcome.complete.any()):
            objective, solution = self.episodes.solutions()
            infos |= {"objective": _numpy(objective), "solution": _numpy(solution)}
            infos |= dict.fromkeys(("_objective", "_solution"), _numpy(outcome.complete))
        return infos


# ---------------------------------------------------------------- spaces and numbers


def _episodes(
    env: RL4COEnvBase,
    count: int,
    max_moves: int | None,
    forbidden_reward: float,
    render_mode: str | None,
) -> Episodes:
    if not isinstance(env, RL4COEnvBase):
        raise ConfigError(
            f"expected an environment of the library, got {env!r}; get_env makes one by its name"
        )
    if render_mode is not None and render_mode not in _RENDER_MODES:
        raise UnknownNameError("render mode", render_mode, _RENDER_MODES)
    if is_improvement(env) and max_moves is None:
        max_moves = DEFAULT_MOVES
    return Episodes(env, count, max_moves, forbidden_reward)


def _observation_space(episodes: Episodes) -> spaces.Dict:
    """Spaces of the keys of one instance, from a generated one."""
    sample = Episodes(episodes.env, 1, episodes.max_moves)
    sample.start(derive_generator("spaces"))
    return spaces.Dict({key: _space(value[0]) for key, value in _observe(sample).items()})


def _space(value: np.ndarray) -> spaces.Space[Any]:
    if value.dtype == np.int8:  # from booleans
        return spaces.MultiBinary(value.shape)
    if np.issubdtype(value.dtype, np.floating):
        return spaces.Box(-np.inf, np.inf, value.shape, value.dtype.type)
    limits = np.iinfo(value.dtype)
    return spaces.Box(limits.min, limits.max, value.shape, value.dtype.type)


def _action_space(episodes: Episodes) -> spaces.Space[Any]:
    spec = episodes.env.action_spec
    if episodes.improves:
        return spaces.MultiDiscrete(_numpy(spec.nvec).astype(np.int64))
    return spaces.Discrete(int(spec.n))


def _observe(episodes: Episodes) -> Observation:
    """Arrays `[B, ...]` of their own; a number without axes gets one, a boolean becomes 0 or 1."""
    arrays = {key: _numpy(value).copy() for key, value in episodes.observation().items()}
    return {
        key: (array.astype(np.int8) if array.dtype == bool else array).reshape(
            len(array), *(array.shape[1:] or (1,))
        )
        for key, array in arrays.items()
    }


def _masks(episodes: Episodes) -> np.ndarray:
    """Allowed actions `[B, N]`."""
    if episodes.improves:
        raise UnsupportedError(
            f"a move of {episodes.env.name} has several numbers and no single mask; sample_allowed "
            "gives an allowed move"
        )
    if not episodes.state:
        raise ConfigError("expected a running episode, got none; call reset")
    return _numpy(episodes.state["action_mask"]).copy()


def _numpy(value: Tensor) -> np.ndarray:
    return value.detach().cpu().numpy()


def _actions(episodes: Episodes, values: Any, shape: tuple[int, ...] | None) -> Tensor:
    """Actions `[B]` or moves `[B, A]` from what an agent gives."""
    array = np.asarray(values)
    if array.shape != shape or not np.issubdtype(array.dtype, np.integer):
        raise ConfigError(
            f"expected integer actions of shape {list(shape or ())} for {episodes.env.name}, got "
            f"{array.dtype} of shape {list(array.shape)}"
        )
    action = torch.as_tensor(array, dtype=torch.int64, device=episodes.env.device)
    width = action.shape[-1:] if episodes.improves else ()
    return action.reshape(episodes.count, *width)


def _stream(source: np.random.Generator) -> torch.Generator:
    """A random stream that begins where NumPy's stands."""
    return torch.Generator().manual_seed(int(source.integers(2**63 - 1)))


def _option(options: Mapping[str, Any] | None, name: str) -> Any:
    for key in options or {}:
        if key != name:
            raise UnknownNameError("option of reset", key, (name,))
    return (options or {}).get(name)


def _image(episodes: Episodes, row: int) -> np.ndarray:
    """The instance with its solution so far, `[height, width, 3]`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from tensordict import TensorDict

    state = {key: value[row] for key, value in episodes.state.items()}
    actions = None
    if not episodes.improves and int(episodes.steps[row]):
        actions = episodes.solution[row, : int(episodes.steps[row])]
    figure = episodes.env.render(TensorDict(state, batch_size=[]), actions)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
