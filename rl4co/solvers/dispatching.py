"""Priority dispatching rules for scheduling problems.

Whenever a job can start, the one of highest priority does: schedules are non-delay. All
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

from collections.abc import Callable

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_positive
from rl4co.core.errors import UnknownNameError
from rl4co.core.rng import derive_generator
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers.formulations import SchedulingFormulation, formulation_of

Policy = Callable[[TensorDictBase], TensorDictBase]


@register_solver("dispatching", reads=SchedulingFormulation)
def dispatching(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    rule: str = "spt",
    lookahead: float = 2.0,
    seed: int | None = 0,
) -> Tensor:
    """Solutions by a priority dispatching rule: `env.solve(td, solver="dispatching", rule="mor")`.

    Options:
        rule: Name of the rule, see the module's docstring.
        lookahead: Scaling parameter k of the rule atc.
        seed: Seed of the rule random; None draws from torch's global generator.
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
    check_positive(lookahead=lookahead)
    shop = formulation_of(env, SchedulingFormulation)
    rules = shop.rules(lookahead)
    if rule != "random" and rule not in rules:
        raise UnknownNameError(f"dispatching rule of {env.name}", rule, [*rules, "random"])
    rng = None if seed is None else derive_generator(seed, "dispatching", device=env.device)

    def choose(td: TensorDictBase) -> TensorDictBase:
        state = dict(td.items())
        candidates = shop.candidates(state)  # [B, J]
        if rule == "random":
            # Finished instances have no candidates, but something has to be drawn.
            job = sample_weights((candidates | state["done"]).float(), rng)  # [B]
        else:
            # A rule may say "never"; who cannot start comes behind even that.
            priority = rules[rule](state).nan_to_num().masked_fill(~candidates, torch.inf)
            job = priority.argmin(-1)  # the first one of equals
        done = state["done"].squeeze(-1)
        return td.set("action", torch.where(done, shop.wait(state), shop.start(state, job)))

    return choose
