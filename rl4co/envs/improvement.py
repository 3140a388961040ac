"""`ImprovementEnvBase`: environments in which a step changes a complete solution.

A problem is a constructive environment (whose instances and first solutions it takes) and a move,
written as index arithmetic on the positions of the nodes. Episodes do not terminate; the caller
decides when to stop. The contract of these environments is :mod:`rl4co.envs.contract.improvement`.
"""

from __future__ import annotations

import functools

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    UnknownNameError,
    UnsupportedError,
    format_indices,
)
from rl4co.core.modes import evaluating
from rl4co.core.rng import derive_generator, forked_rng
from rl4co.envs.arguments import check_is_tensordict, number_kind, reject_violations
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.first_solutions import construct
from rl4co.envs.hooks import State
from rl4co.envs.routing._parts import tour_length
from rl4co.envs.successors import (
    order_from_successors,
    order_from_tour,
    successors_from_order,
    successors_from_tour,
    tour_from_order,
    tour_from_visits,
)

InitialName = Literal["random", "greedy"]
#: Named, successors `[*B, N]`, or a policy: called with the reset state of the constructive
#: environment, that environment and `phase="test"`, it gives a dict with `actions`.
Initial: TypeAlias = str | Tensor | Callable[..., Mapping[str, Any]]

_TOUR = "the successors form one closed tour"


class ImprovementEnvBase(RL4COEnvBase):
    """Base class of improvement environments.

    A solution is the list of successors of all nodes. Every move is accepted, even if it worsens
    the cost; the best solution so far is kept beside the current one.

    State, besides the keys of the instance and of the problem:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `rec_current` | int64 | `[*B, N]` | successors in the current solution |
        | `rec_best` | int64 | `[*B, N]` | successors in the best solution so far |
        | `visited_time` | int64 | `[*B, N]` | positions in the current solution, node 0 at 0 |
        | `cost_current` | float32 | `[*B]` | cost of the current solution |
        | `cost_bsf` | float32 | `[*B]` | cost of the best solution so far |
        | `last_action` | int64 | `[*B, A]` | the move before this state, -1 if there was none |
        | `i` | int64 | `[*B, 1]` | number of moves made |

    The reward of a step is what it gains over the best cost so far,
    $r_t = c^*_t - \\min(c^*_t, c_{t+1})$, so that rewards add up to the total gain.

    Args:
        args: See :class:`RL4COEnvBase`.
        kwargs: See :class:`RL4COEnvBase`. First solutions are random or greedy (the nearest node
            that is allowed, from node 0), as `init_sol_type` of the generator says.
    """

    #: Class of the environment that constructs solutions of the same instances.
    constructive_cls: ClassVar[type[RL4COEnvBase]]
    #: What kind of moves it makes; policies are made for one kind.
    moves: str
    #: Names of the keys that :meth:`_init_memory` gives.
    memory: ClassVar[tuple[str, ...]] = ()
    #: How solutions begin, unless `reset` is told otherwise.
    initial: str = "random"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial = getattr(self.generator, "init_sol_type", "random")

    # ---------------------------------------------------------------- hooks of a problem

    def action_sizes(self, num_nodes: int) -> tuple[int, ...]:
        """How many values each number of an action has; their count A is that of the numbers."""
        raise NotImplementedError

    def _move(self, state: State, action: Tensor) -> Tensor:
        """Positions `[*B, N]` after a move `action [*B, A]`; node 0 stays at 0."""
        raise NotImplementedError

    def _is_allowed(self, state: State, action: Tensor) -> Tensor:
        """Whether a move `[*B, A]`, whose numbers are in range, may be made: `[*B]`."""
        raise NotImplementedError

    def random_action(self, state: State, rng: torch.Generator | None = None) -> Tensor:
        """A random allowed move `[*B, A]`."""
        raise NotImplementedError

    def _init_memory(self, state: State) -> State:
        """Further keys of the first state; none by default."""
        return {}

    def _remember(self, state: State, action: Tensor) -> State:
        """Further keys that a move changes; none by default."""
        return {}

    def _order_violations(self, order: Tensor) -> dict[str, Tensor]:
        """Constraint → `[*B]` on the positions `[*B, N]` of a closed tour; none by default."""
        return {}

    # ---------------------------------------------------------------- episode

    @functools.cached_property
    def constructive_env(self) -> RL4COEnvBase:
        """The environment that constructs solutions of the same instances."""
        return self.constructive_cls(check_instance=False, check_solution=False, device=self.device)

    def reset(
        self,
        td: TensorDictBase | None = None,
        batch_size: int | Sequence[int] | None = None,
        initial: Initial | None = None,
        rng: torch.Generator | None = None,
        **kwargs: Any,
    ) -> TensorDict:
        """First state of the given instances, or of freshly generated ones.

        Args:
            td: Instances; never modified.
            batch_size: How many instances to generate when `td` is None.
            initial: First solutions: "random", "greedy", successors `[*B, N]`, or a constructive
                policy (`functools.partial(policy, decode_type=...)` to say how it decodes).
                Default: `init_sol_type` of the generator.
            rng: Random stream of first solutions; default: that of the environment.
            kwargs: Forwarded to TorchRL's `reset` in TorchRL mode.
        """
        if self._torchrl_mode and initial is None:
            return super().reset(td, batch_size, **kwargs)
        if kwargs:
            arguments = ("td", "batch_size", "initial", "rng")
            raise UnknownNameError("argument of reset", next(iter(kwargs)), arguments)
        if td is None:
            td = self.generate(self.batch_size if batch_size is None else batch_size)
        check_is_tensordict(td)
        if self.check_instance:
            self.check_instances(td)
        initial = self.initial if initial is None else initial
        state = self._first_state(td, initial, self.rng if rng is None else rng)
        return state.exclude("reward") if self._torchrl_mode else state

    def _torchrl_state(self, td: TensorDictBase) -> TensorDict:
        """The first state without a reward."""
        return self._first_state(td, self.initial, self.rng).exclude("reward")

    def _spec_state(self, instance: TensorDictBase) -> TensorDict:
        state = self._first_state(instance, "random", derive_generator("specs"))
        return state.exclude("reward")

    def _first_state(
        self, td: TensorDictBase, initial: Initial, rng: torch.Generator | None
    ) -> TensorDict:
        """The state with a first solution of each instance."""
        instance = td.to(self.device)
        extras = {k: v for k, v in instance.items() if k not in self.instance_shapes}
        state = {**extras, **self._init_state(dict(instance.items()))}
        order = self._initial_order(instance, state, initial, rng)
        successors = successors_from_order(order)
        cost = self._cost(state, order)
        done = torch.zeros(*td.batch_size, 1, dtype=torch.bool, device=self.device)
        width = len(self.action_sizes(order.shape[-1]))
        state.update(
            rec_current=successors, rec_best=successors, visited_time=order,
            cost_current=cost, cost_bsf=cost,
            last_action=order.new_full((*td.batch_size, width), -1),
            i=done.long(), done=done, terminated=done,
        )  # fmt: skip
        state |= self._init_memory(state)
        state["reward"] = torch.zeros_like(cost).unsqueeze(-1)
        return TensorDict(state, batch_size=td.batch_size, device=self.device)

    def step(self, td: TensorDictBase) -> Any:
        """Makes the move `td["action"]`; the new state is under `"next"`. `td` is not modified."""
        if not self._torchrl_mode:
            self.check_moves(td, td.get("action", None))
            return {"next": self._step(td)}
        return super(RL4COEnvBase, self).step(td)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        state = dict(tensordict.exclude("next").items())
        new_state = self.advance(state, state["action"])
        if self._torchrl_mode:
            new_state.pop("action")
        return TensorDict(new_state, batch_size=tensordict.batch_size, device=self.device)

    def advance(self, state: State, action: Tensor) -> State:
        """One move on a plain mapping: the new state."""
        move = self.read_action(state, action)
        if self.check_action:
            self._reject_forbidden(state, move)
        order = self._move(state, move)
        successors = successors_from_order(order)
        cost = self._cost(state, order)
        best = state["cost_bsf"]
        better = cost < best
        return {
            **state,
            "rec_current": successors,
            "rec_best": torch.where(better.unsqueeze(-1), successors, state["rec_best"]),
            "visited_time": order,
            "cost_current": cost,
            "cost_bsf": torch.where(better, cost, best),
            "last_action": move,
            "i": state["i"] + 1,
            "reward": (best - torch.minimum(best, cost)).unsqueeze(-1),
            "action": action,
            **self._remember(state, move),
        }

    def _after(self, state: State, action: Tensor) -> Tensor:
        """Positions `[N]` after a move of one instance, for figures; raises if it is forbidden."""
        self._check_move_shape(TensorDict(state, batch_size=[]), action)
        move = self.read_action(state, action)
        self._reject_forbidden(state, move)
        return self._move(state, move)

    def _render(self, state: State, actions: Tensor | None, **options: Any) -> Any:
        """Figure of the current solution, or of a move: `render` gets the positions after it."""
        after = None if actions is None else self._after(state, actions)
        return super()._render(state, after, **options)

    def read_action(self, state: State, action: Tensor) -> Tensor:
        """The numbers of a move that count `[*B, A]`, as int64."""
        return action[..., : state["last_action"].shape[-1]].long()

    def restart_from_best(self, state: State, where: Tensor | None = None) -> State:
        """The state with the best solution so far as current one.

        Args:
            state: A state.
            where: Instances `[*B]` to set back; None: all.
        """
        where = torch.ones_like(state["cost_bsf"], dtype=torch.bool) if where is None else where
        order = torch.where(
            where.unsqueeze(-1), order_from_successors(state["rec_best"])[0], state["visited_time"]
        )
        return {
            **state,
            "rec_current": torch.where(
                where.unsqueeze(-1), state["rec_best"], state["rec_current"]
            ),
            "visited_time": order,
            "cost_current": torch.where(where, state["cost_bsf"], state["cost_current"]),
            # Nothing leads to this solution that could be undone.
            "last_action": state["last_action"].masked_fill(where.unsqueeze(-1), -1),
        }

    def forget_best(self, state: State) -> State:
        """The state in which the current solution counts as the best so far."""
        return {**state, "rec_best": state["rec_current"], "cost_bsf": state["cost_current"]}

    def instances_of(self, td: TensorDictBase) -> TensorDictBase:
        """The instances of states, as :meth:`reset` takes them."""
        instances = td.select(*self.instance_shapes, *self.optional_shapes, strict=False)
        if "depot" in self.instance_shapes:  # in the state it is in front of the others
            depot, others = td["locs"].split([1, td["locs"].shape[-2] - 1], -2)
            instances.update({"depot": depot.squeeze(-2), "locs": others})
        return instances

    # ---------------------------------------------------------------- solutions

    def get_reward(
        self,
        td: TensorDictBase | Mapping[str, Tensor],
        actions: Tensor | None = None,
        check_solution: bool | None = None,
    ) -> Tensor:
        """Minus the cost of complete solutions.

        Args:
            td: State or reset instances with batch `[*B]`.
            actions: Successors `[*B, N]`; None: the best solutions so far.
            check_solution: Overrides the environment's setting.

        Returns:
            Rewards `[*B]`.
        """
        if self.check_solution if check_solution is None else check_solution:
            self.check_solution_validity(td, actions)
        successors = td["rec_best"] if actions is None else actions.long()
        return -self._cost(dict(td.items()), order_from_successors(successors)[0])

    def check_solution_validity(
        self, td: TensorDictBase | Mapping[str, Tensor], actions: Tensor | None = None
    ) -> None:
        """Raises :class:`InvalidSolutionError` naming the constraint and the instances.

        Args:
            td: State with batch `[*B]`.
            actions: Successors `[*B, N]`; None: the best solutions so far.
        """
        self._check_successors(dict(td.items()), td["rec_best"] if actions is None else actions)

    def _check_successors(self, state: State, successors: Tensor) -> None:
        shape = state["locs"].shape[:-1]  # [*B, N]
        if successors.shape != shape or number_kind(successors) != "integer":
            raise ConfigError(
                f"expected integer successors of shape {list(shape)} for {self.name}, got "
                f"{successors.dtype} of shape {list(successors.shape)}; give the node behind every "
                "node"
            )
        reject_violations(self._violations(state, successors))

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        order, closed = order_from_successors(actions.long())
        further = self._order_violations(order)
        # Without one closed tour positions mean nothing, and are no fault of their own.
        return {_TOUR: ~closed, **{name: closed & wrong for name, wrong in further.items()}}

    def constructive_actions(self, successors: Tensor) -> Tensor:
        """Solutions `[*B, N]` as actions of the constructive environment `[*B, T]`.

        Node 0 is first where it is a node like others, and left out where it is a depot.
        """
        tour = tour_from_order(order_from_successors(successors)[0])
        return tour[..., 1:] if "depot" in self.instance_shapes else tour

    def solve(
        self,
        instances: TensorDictBase,
        max_runtime: float = 10.0,
        num_procs: int = 1,
        solver: str | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        """Successors `[B, N]` and costs `[B]` of a classical solver for the same instances.

        See :meth:`RL4COEnvBase.solve`; `initial` is given as successors, too.
        """
        if options.get("initial") is not None:
            options["initial"] = self.constructive_actions(options["initial"])
        wanted = {**self.instance_shapes, **self.optional_shapes}
        bare = instances.select(*wanted, strict=False)
        visits, costs = self.constructive_env.solve(bare, max_runtime, num_procs, solver, **options)
        num_nodes = instances["locs"].shape[-2] + int("depot" in self.instance_shapes)
        return successors_from_tour(tour_from_visits(visits, num_nodes)), costs

    def _cost(self, state: State, order: Tensor) -> Tensor:
        return tour_length(state, tour_from_order(order))

    def _initial_order(
        self, instance: TensorDictBase, state: State, initial: Initial, rng: torch.Generator | None
    ) -> Tensor:
        num_nodes = state["locs"].shape[-2]
        if isinstance(initial, Tensor):
            successors = initial.to(self.device)
            self._check_successors(state, successors)
            return order_from_successors(successors.long())[0]
        env = self.constructive_env
        if not isinstance(initial, str) and not callable(initial):
            raise ConfigError(
                f"expected first solutions of {self.name} by name (random, greedy), as a tensor of "
                f"successors or from a policy, got {type(initial).__name__}"
            )
        if not isinstance(initial, str):
            tour = tour_from_visits(_construct_with(initial, env, instance, rng), num_nodes)
            self._check_successors(state, successors_from_tour(tour))
            return order_from_tour(tour)
        if initial not in get_args(InitialName):
            raise UnknownNameError("initial solution", initial, get_args(InitialName))
        visits = construct(env, env.reset(instance), initial == "greedy", rng)
        return order_from_tour(tour_from_visits(visits, num_nodes))

    # ---------------------------------------------------------------- checks of moves

    def check_moves(self, td: TensorDictBase, action: Tensor | None) -> None:
        """Raises for what is no move `[*B, A]` and, where a look costs little, forbidden ones."""
        self._check_move_shape(td, action)
        if action is not None and (self.check_action or self._looks_at(action)):
            state = dict(td.items())
            self._reject_forbidden(state, self.read_action(state, action))

    def _check_move_shape(self, td: TensorDictBase, action: Tensor | None) -> None:
        width = td["last_action"].shape[-1]
        if (
            action is not None
            and number_kind(action) == "integer"
            and action.shape[:-1] == td.batch_size
            and action.shape[-1:].numel() in self._accepted_widths(width)
        ):
            return
        got = "none" if action is None else f"{action.dtype} of shape {list(action.shape)}"
        raise InvalidActionError(
            f"expected an integer action of shape {[*td.batch_size, width]} for {self.name}, got "
            f'{got}; set td["action"] to the {width} numbers of a move'
        )

    def _accepted_widths(self, width: int) -> tuple[int, ...]:
        return (width,)

    def allows(self, state: State, action: Tensor) -> Tensor:
        """Whether a move `[*B, A]` exists and may be made: `[*B]`."""
        action = self.read_action(state, action)
        sizes = torch.tensor(
            self.action_sizes(state["visited_time"].shape[-1]), device=action.device
        )
        exists = ((action >= 0) & (action < sizes)).all(-1)  # [*B]
        inside = torch.minimum(action.clamp_min(0), sizes - 1)
        return exists & self._is_allowed(state, inside)

    def _reject_forbidden(self, state: State, action: Tensor) -> None:
        allowed = self.allows(state, action)
        if not allowed.all():
            where = (~allowed).flatten().nonzero().flatten().tolist()
            raise InvalidActionError(
                f"expected moves that are allowed, got forbidden ones in instances "
                f"{format_indices(where)} of {self.name}; see random_action and the masks of "
                f"{type(self).__name__}"
            )

    # ---------------------------------------------------------------- what has no meaning here

    def step_bounds(self, state: State) -> tuple[int, int]:
        """Raises: episodes of improvement do not terminate."""
        raise UnsupportedError(
            f"episodes of {self.name} do not terminate; set the number of steps (max_steps)"
        )

    def get_action_mask(self, td: Mapping[str, Tensor] | TensorDictBase) -> Tensor:
        """Raises: a move is several numbers, each with its own mask."""
        raise UnsupportedError(
            f"a move of {self.name} has several numbers and no single mask; see the masks of "
            f"{type(self).__name__}, or random_action for an allowed move"
        )

    # ---------------------------------------------------------------- TorchRL

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """TorchRL's random policy: an allowed move."""
        if tensordict is None or "last_action" not in tensordict.keys():
            return super().rand_action(tensordict)
        return tensordict.set("action", self.random_action(dict(tensordict.items()), self.rng))

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDict:
        if tensordict is not None and "rec_current" in tensordict.keys():
            tensordict = tensordict.empty()  # a finished episode of TorchRL: fresh instances
        return super()._reset(tensordict)

    def _action_numbers(self, td: TensorDictBase) -> tuple[int, ...]:
        return self.action_sizes(td["visited_time"].shape[-1])


def _construct_with(
    policy: Callable[..., Mapping[str, Any]],
    env: RL4COEnvBase,
    instance: TensorDictBase,
    rng: torch.Generator | None,
) -> Tensor:
    """Actions `[*B, T]` of a constructive policy, used in evaluation mode."""
    module: Any = getattr(policy, "func", policy)  # behind functools.partial
    if hasattr(module, "training_step"):
        raise ConfigError(
            f"expected a policy to construct first solutions, got the model {type(module).__name__}"
            "; pass its .policy"
        )
    parts = [module] if hasattr(module, "modules") else []
    try:
        with torch.no_grad(), forked_rng(rng), evaluating(*parts):
            actions = policy(env.reset(instance), env, phase="test")["actions"]
    except (RuntimeError, LookupError) as error:
        name = getattr(module, "env_name", env.name)
        if name == env.name:
            raise
        raise UnsupportedError(
            f"expected a policy for {env.name} to construct first solutions, got one for {name}, "
            f"which failed: {error}"
        ) from error
    if actions.shape[:-1] != instance.batch_size:
        raise ConfigError(
            f"expected one solution for each of {list(instance.batch_size)} instances, got actions "
            f"of shape {list(actions.shape)}; with several starts or samples, say select_best=True"
        )
    return actions


def is_improvement(env: object) -> bool:
    """Whether an environment, or a class of environments, improves complete solutions."""
    cls = env if isinstance(env, type) else type(env)
    return issubclass(cls, ImprovementEnvBase)
