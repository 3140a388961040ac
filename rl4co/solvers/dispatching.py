"""Priority dispatching rules for scheduling problems.

Whenever something can start, the job of highest priority does; nobody waits on purpose. All
instances of a batch are solved at once, through the environment's own steps.

| rule | first comes the job with | jssp, fjsp | ffsp | smtwtp |
|---|---|---|---|---|
| spt, lpt | shortest, longest processing time of its next operation | ✓ | ✓ | ✓ |
| fifo, lifo | earliest, latest arrival in the queue | ✓ | ✓ | |
| mor, lor | most, fewest operations remaining | ✓ | | |
| mwkr (lrpt), lwkr (srpt) | most, least work remaining, the next operation included | ✓ | ✓ | |
| edd | earliest due date | | | ✓ |
| mdd | earliest modified due date, $\\max(d_j, t + p_j)$ | | | ✓ |
| wspt | largest weight per processing time, $w_j / p_j$ | | | ✓ |
| atc | largest apparent tardiness cost | | | ✓ |
| random | | ✓ | ✓ | ✓ |

Ties go to the job with the smallest number. In the FJSP, the work of an operation is its mean over
eligible machines, and the job that is chosen goes to the machine on which it is processed fastest,
among those that are free (Song et al., 2022). In the FFSP, a machine that is asked takes a job; the
work of a stage is the mean over its machines.

The apparent tardiness cost (Vepsalainen and Morton, 1987) is
$\\frac{w_j}{p_j} \\exp(-\\max(d_j - p_j - t, 0) / (k \\bar p))$ with the mean processing time
$\\bar p$ of the jobs that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.solvers._base import HEURISTIC, register_solver

#: State → priority of each job `[B, J]`, smaller first.
Rule = Callable[[State], Tensor]
Policy = Callable[[TensorDictBase], TensorDictBase]


class Shop(NamedTuple):
    """How rules are applied to a problem.

    Attributes:
        rules: Name → priorities.
        candidates: State → jobs that can be started `[B, J]`.
        action: State, jobs `[B]` → actions `[B]` that start them.
        idle: State → the action `[B]` of finished instances.
    """

    rules: Mapping[str, Rule]
    candidates: Callable[[State], Tensor]
    action: Callable[[State, Tensor], Tensor]
    idle: Callable[[State], Tensor]


@register_solver("dispatching", problems=("jssp", "fjsp", "ffsp", "smtwtp"), priority=HEURISTIC)
def dispatching(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    rule: str = "spt",
    lookahead: float = 2.0,
    seed: int | None = 0,
) -> Tensor:
    """Solutions by a priority dispatching rule: `env.solve(td, solver="dispatching", rule="mor")`.

    Args:
        env: Environment.
        td: State after reset.
        max_runtime: Not needed here.
        num_procs: Not needed here.
        rule: Name of the rule, see the module's docstring.
        lookahead: Scaling parameter k of the rule atc.
        seed: Seed of the rule random; None draws from torch's global generator.

    Returns:
        Actions `[B, T]`.
    """
    return rollout(env, td, dispatching_policy(env, rule, lookahead=lookahead, seed=seed))[2]


def dispatching_policy(
    env: RL4COEnvBase, rule: str = "spt", *, lookahead: float = 2.0, seed: int | None = 0
) -> Policy:
    """A rule as a policy for :func:`rl4co.decoding.rollout.rollout`.

    Args:
        env: Environment.
        rule: Name of the rule, see the module's docstring.
        lookahead: Scaling parameter k of the rule atc.
        seed: Seed of the rule random; None draws from torch's global generator.

    Returns:
        A function that writes an action to a state.

    Example:
        >>> reward, final, actions = rollout(env, td, dispatching_policy(env, "mwkr"))
    """
    shop = _shop(env, lookahead)
    if rule != "random" and rule not in shop.rules:
        raise UnknownNameError(f"dispatching rule of {env.name}", rule, [*shop.rules, "random"])
    rng = None if seed is None else derive_generator(seed, "dispatching", device=env.device)

    def choose(td: TensorDictBase) -> TensorDictBase:
        state = dict(td.items())
        candidates = shop.candidates(state)  # [B, J]
        if rule == "random":
            # Finished instances have no candidates, but something has to be drawn.
            job = sample_weights((candidates | state["done"]).float(), rng)  # [B]
        else:
            # A rule may say "never"; who cannot start comes behind even that.
            priority = shop.rules[rule](state).nan_to_num().masked_fill(~candidates, torch.inf)
            job = priority.argmin(-1)  # the first one of equals
        done = state["done"].squeeze(-1)
        return td.set("action", torch.where(done, shop.idle(state), shop.action(state, job)))

    return choose


def _shop(env: RL4COEnvBase, lookahead: float) -> Shop:
    if not lookahead > 0:
        raise ConfigError(f"expected lookahead > 0, got {lookahead}")
    shops = {
        "jssp": Shop(_JOB_SHOP, _job_shop_jobs, lambda state, job: job + 1, _zero),
        "fjsp": Shop(_JOB_SHOP, _flexible_jobs, _fastest_machine, _zero),
        "ffsp": Shop(_FLOW_SHOP, _flow_shop_jobs, lambda state, job: job, _last),
        "smtwtp": Shop(_single_machine(lookahead), _open_jobs, lambda state, job: job + 1, _zero),
    }
    if env.name not in shops:
        raise UnsupportedError(
            f"expected one of {', '.join(shops)} for dispatching rules, got {env.name!r}"
        )
    return shops[env.name]


def _with_aliases(rules: dict[str, Rule]) -> dict[str, Rule]:
    """The rules, with their other names and their opposites."""
    opposites = {"spt": "lpt", "fifo": "lifo", "lor": "mor", "lwkr": "mwkr"}
    both = dict(rules)
    for name, opposite in opposites.items():
        if name in rules:
            both[opposite] = _reversed(rules[name])
    for name, other in {"lwkr": "srpt", "mwkr": "lrpt"}.items():
        if name in both:
            both[other] = both[name]
    return both


def _reversed(rule: Rule) -> Rule:
    return lambda state: -rule(state)


def _zero(state: State) -> Tensor:
    return torch.zeros_like(state["i"].squeeze(-1))


def _last(state: State) -> Tensor:
    return torch.full_like(state["i"].squeeze(-1), state["action_mask"].shape[-1] - 1)


# ---------------------------------------------------------------- job shops


def _job_shop_jobs(state: State) -> Tensor:
    return state["action_mask"][..., 1:]


def _flexible_mask(state: State) -> Tensor:
    """Allowed pairs `[B, J, M]`."""
    return state["action_mask"][..., 1:].unflatten(-1, (-1, state["proc_times"].shape[-2]))


def _flexible_jobs(state: State) -> Tensor:
    return _flexible_mask(state).any(-1)


def _next_times(state: State) -> Tensor:
    """Processing times of jobs' next operations on all machines, 0 = not eligible `[B, J, M]`."""
    times, next_op = state["proc_times"], state["next_op"]
    index = next_op.unsqueeze(-2).expand(*times.shape[:-1], -1)  # [B, M, J]
    return times.gather(-1, index).transpose(-1, -2)


def _startable_times(state: State) -> Tensor:
    """The same, infinite where the operation cannot start now `[B, J, M]`."""
    times = _next_times(state)
    startable = times > 0
    if state["action_mask"].shape[-1] == times.shape[-1] * times.shape[-2] + 1:  # pairs
        startable = startable & _flexible_mask(state)
    return torch.where(startable, times, torch.inf)


def _fastest_machine(state: State, job: Tensor) -> Tensor:
    """Actions of the FJSP that start jobs on their fastest machine."""
    num_machines = state["proc_times"].shape[-2]
    times = _startable_times(state)  # [B, J, M]
    index = job[..., None, None].expand(*job.shape, 1, num_machines)
    machine = times.gather(-2, index).squeeze(-2).argmin(-1)  # [B]
    return 1 + job * num_machines + machine


def _remaining_operations(state: State) -> Tensor:
    return (state["end_op_per_job"] - state["next_op"]).double()


def _remaining_work(state: State) -> Tensor:
    """Mean processing times of operations that are not started, summed over each job `[B, J]`."""
    times = state["proc_times"].double()  # [B, M, O]
    work = times.sum(-2) / (times > 0).sum(-2).clamp_min(1)  # [B, O]
    done = work.cumsum(-1)
    last, following = state["end_op_per_job"], state["next_op"]
    return done.gather(-1, last) - done.gather(-1, following) + work.gather(-1, following)


_JOB_SHOP = _with_aliases(
    {
        "spt": lambda state: _startable_times(state).amin(-1),
        "fifo": lambda state: state["job_busy_until"],
        "lor": _remaining_operations,
        "lwkr": _remaining_work,
    }
)


# ---------------------------------------------------------------- flow shops


def _flow_shop_jobs(state: State) -> Tensor:
    return state["action_mask"][..., :-1]


def _time_on_machine(state: State) -> Tensor:
    """Processing times on the machine that is asked `[B, J]`."""
    times = state["run_time"]
    machine = state["machine_idx"][..., None, None].expand(*times.shape[:-1], 1)  # [B, J, 1]
    return times.gather(-1, machine).squeeze(-1).double()


def _work_from_stage(state: State) -> Tensor:
    """Mean processing times in this stage and all later ones `[B, J]`."""
    num_stages = state["schedule"].shape[-2]
    means = state["run_time"].double().unflatten(-1, (num_stages, -1)).mean(-1)  # [B, J, S]
    stages = torch.arange(num_stages, device=means.device)
    ahead = stages >= state["stage_idx"][..., None, None]  # [B, 1, S]
    return (means * ahead).sum(-1)


_FLOW_SHOP = _with_aliases(
    {
        "spt": _time_on_machine,
        "fifo": lambda state: state["job_ready_time"][..., :-1].double(),
        "lwkr": _work_from_stage,
    }
)


# ---------------------------------------------------------------- one machine


def _open_jobs(state: State) -> Tensor:
    return ~state["visited"][..., 1:]


def _jobs(state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Due times, weights and processing times of the jobs `[B, J]`."""
    keys = ("job_due_time", "job_weight", "job_process_time")
    due, weight, process = (state[key][..., 1:].double() for key in keys)
    return due, weight, process


def _modified_due_date(state: State) -> Tensor:
    due, _, process = _jobs(state)
    return torch.maximum(due, state["current_time"].double() + process)


def _weight_per_time(state: State) -> Tensor:
    _, weight, process = _jobs(state)
    return -weight / process


def _apparent_tardiness_cost(state: State, lookahead: float) -> Tensor:
    due, weight, process = _jobs(state)
    left = _open_jobs(state)
    count = left.sum(-1, keepdim=True).clamp_min(1)
    mean = (process * left).sum(-1, keepdim=True) / count  # [B, 1]
    slack = (due - process - state["current_time"].double()).clamp_min(0)
    # By logarithms: far from its due date the cost of a job is too small for a number.
    patience = slack / (lookahead * torch.where(mean > 0, mean, torch.ones_like(mean)))
    return patience - (weight / process).log()


def _single_machine(lookahead: float) -> Mapping[str, Rule]:
    return _with_aliases(
        {
            "spt": lambda state: _jobs(state)[2],
            "edd": lambda state: _jobs(state)[0],
            "mdd": _modified_due_date,
            "wspt": _weight_per_time,
            "atc": lambda state: _apparent_tardiness_cost(state, lookahead),
        }
    )
