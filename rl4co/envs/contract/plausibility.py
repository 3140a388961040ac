"""Rules on what masks and rewards mean: mistakes by their names, where random episodes betray them.

A wrong mask shows as episodes that do not end or end in invalid solutions. To say which mistake it
is, episodes are tried again under the mask that was probably meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from torch import Tensor

from rl4co.envs.contract.evidence import (
    Episode,
    Findings,
    Probe,
    is_close,
    is_stuck,
    take_action,
)
from rl4co.envs.contract.evidence import random_action as draw_action

#: Up to so many steps all solutions may well be worth the same (tours of three nodes, say).
FEW_STEPS = 3

Choice = Callable[[Tensor, Tensor], Tensor]


def mask_means_allowed(probe: Probe) -> Findings:
    """The mask is True where an action is allowed, and remembers what was taken."""
    for episode in probe.episodes:
        if _is_sound(probe, episode):
            continue
        allowed: list[bool] = []  # a mask that never allows anything is not inverted

        def complement(mask: Tensor, taken: Tensor, allowed: list[bool] = allowed) -> Tensor:
            allowed.append(bool(mask.any()))
            return ~mask

        if _solves(probe, episode, complement) and any(allowed):
            yield (
                "the mask is inverted: solutions of the actions that it forbids are complete and "
                "valid, those of the others are not; return True for allowed actions from "
                "_action_mask"
            )
            return
        repeat = _first_repeat(episode)
        # Action 0 may be a depot, to which one returns again and again, or a node like others.
        if repeat and any(_solves(probe, episode, _without_repeats(n)) for n in (0, 1)):
            instance, action = repeat
            yield (
                f"the mask forgets what was taken: it allows action {action} of instance "
                f"{instance} a second time, and without repeats solutions are complete and "
                "valid; forbid visited nodes in _action_mask, from a key that _transition updates"
            )
            return


def reward_has_the_right_sign(probe: Probe) -> Findings:
    """Costs come with a minus, gains without."""
    rewards = list(_rewards(probe))
    if not rewards:
        return
    values = torch.cat(rewards)
    if not probe.env.maximizes and bool((values > 0).all()):
        yield (
            f"rewards of random solutions are positive ({float(values.mean()):.4g} on average), "
            "but higher is better and maximizes is False; return minus the cost from _objective, "
            "or say maximizes = True if they are gains"
        )
    if probe.env.maximizes and bool((values < 0).all()):
        yield (
            f"rewards of random solutions are negative ({float(values.mean()):.4g} on average), "
            "but maximizes is True; return the gain from _objective, or leave out maximizes if "
            "they are costs with a minus"
        )


def reward_depends_on_the_actions(probe: Probe) -> Findings:
    """Different solutions of an instance are not all worth the same."""
    for episode in probe.solved:
        other = _retry(probe, episode, lambda mask, taken: mask)
        if episode.actions.shape[-1] <= FEW_STEPS or other is None:
            continue
        reward = probe.reward(episode.initial, episode.actions)
        if not is_close(reward, probe.reward(episode.initial, other)):
            return
    # Only if nothing above told two solutions apart.
    if any(episode.actions.shape[-1] > FEW_STEPS for episode in probe.solved):
        yield (
            "get_reward is constant: other random solutions of the same instances are worth just "
            "the same; let _objective look at the actions, or check with larger instances"
        )


# ---------------------------------------------------------------- episodes under another mask


def _rewards(probe: Probe) -> Iterator[Tensor]:
    for episode in probe.solved:
        reward = probe.reward(episode.initial, episode.actions)
        if reward.is_floating_point() and bool(reward.isfinite().all()):
            yield reward.flatten()


def _is_sound(probe: Probe, episode: Episode) -> bool:
    """Whether an episode ends, in valid solutions."""
    return episode.complete and probe.violation(episode.initial, episode.actions) is None


def _solves(probe: Probe, episode: Episode, choice: Choice) -> bool:
    """Whether the instances of an episode are solved by what is chosen from the mask."""
    actions = _retry(probe, episode, choice)
    return actions is not None and probe.violation(episode.initial, actions) is None


def _retry(probe: Probe, episode: Episode, choice: Choice) -> Tensor | None:
    """Random actions `[B, T]` on the same instances; None if they do not end.

    Args:
        probe: See :class:`Probe`.
        episode: What to try again.
        choice: Mask and actions taken so far `[B, N]` → actions to draw from.
    """
    rng, state = probe.rng("again"), episode.initial
    taken = torch.zeros_like(state["action_mask"], dtype=torch.bool)
    actions: list[Tensor] = []
    while not bool(state["done"].all()):
        mask = choice(state["action_mask"].bool(), taken)
        if len(actions) == episode.bounds[1] or bool(
            is_stuck(state.copy().set("action_mask", mask)).any()
        ):
            return None
        actions.append(draw_action(mask, rng))
        taken = taken.scatter(-1, actions[-1].unsqueeze(-1), True)
        state = take_action(probe.env, state, actions[-1])
    return torch.stack(actions, -1)


def _without_repeats(spared: int) -> Choice:
    """Actions that were not taken yet, the first `spared` ones excepted, where there are any."""

    def choose(mask: Tensor, taken: Tensor) -> Tensor:
        new = mask & ~taken
        new[..., :spared] = mask[..., :spared] & ~new.any(-1, keepdim=True)
        return torch.where(new.any(-1, keepdim=True), new, mask)

    return choose


def _first_repeat(episode: Episode) -> tuple[int, int] | None:
    """An instance, and an action other than 0 that it took twice before its end."""
    for instance, (row, length) in enumerate(
        zip(episode.actions.tolist(), episode.lengths, strict=True)
    ):
        taken = [action for action in row[:length] if action > 0]
        for action in taken:
            if taken.count(action) > 1:
                return instance, action
    return None
