"""The contract of environments: one small function per rule, collected in the table `RULES`.

Each function looks for counterexamples in recorded random episodes and yields a sentence for each,
with a remedy. :func:`rl4co.envs.checks.check_env` runs them all.
"""

from __future__ import annotations

from rl4co.envs.contract import behaviour, plausibility, purity
from rl4co.envs.contract.evidence import Check

__all__ = ["CONSEQUENCES", "RULES"]

_MASK = "the mask is True for allowed actions and remembers"
_ENDS = "random rollouts end within step_bounds and never get stuck"
_REWARD = "get_reward gives one finite float per instance"
_SIGN = "costs have a minus, gains have none"
_CONSTANT = "the reward depends on the actions"
_PADDING = "steps after the end change nothing"
_PLACE = "an instance does not depend on its batch mates"
_AXES = "any number of batch axes works"
_SEARCH = "local search returns valid solutions that are not worse"
_AUGMENT = "declared augmentations keep the reward"
_TORCHRL = "TorchRL can use the environment"
_VALID = "every solution that the mask allows is valid"

#: The contract: what must hold, and the function that looks for counterexamples.
RULES: tuple[tuple[str, Check], ...] = (
    (_MASK, plausibility.mask_means_allowed),
    (_ENDS, behaviour.ends),
    ("a finished instance stays done", behaviour.done_is_final),
    ("a finished instance allows an action", behaviour.finished_may_go_on),
    (_PADDING, behaviour.padding_is_free),
    ("get_action_mask gives the mask of the state", behaviour.mask_agrees),
    ("steps do not read the mask of the state", behaviour.mask_is_derived),
    ("every key keeps its declared shape and dtype", behaviour.keys_keep_their_type),
    ("keys of instances are declared", behaviour.instance_keys_are_declared),
    (_REWARD, behaviour.reward_is_float),
    (_SIGN, plausibility.reward_has_the_right_sign),
    (_CONSTANT, plausibility.reward_depends_on_the_actions),
    (_VALID, behaviour.allowed_is_valid),
    ("mutated solutions are rejected", behaviour.mutants_are_rejected),
    ("the same seed gives the same instances", purity.generator_is_reproducible),
    ("the same instances and actions give the same result", purity.steps_are_reproducible),
    ("episodes leave nothing on the object", purity.object_is_unchanged),
    ("global random states are left alone", purity.global_state_is_untouched),
    ("inputs are not modified", purity.inputs_are_unchanged),
    ("no hook asks the device for a value", purity.hooks_do_not_look_at_values),
    ("an instance is complete without its generator", purity.instances_are_complete),
    ("an instance does not depend on its place in the batch", purity.place_does_not_matter),
    (_PLACE, purity.batch_mates_do_not_matter),
    (_AXES, purity.any_batch_axes),
    ("start actions are feasible and distinct", behaviour.starts_are_distinct),
    ("starts come in the published order from any batch", behaviour.starts_in_any_batch),
    (_SEARCH, behaviour.custom_local_search_improves),
    (_AUGMENT, behaviour.augmentations_keep_rewards),
    (_TORCHRL, behaviour.torchrl_agrees),
)

#: Rule → rules whose breach only follows from its own, and would hide the mistake's name.
CONSEQUENCES: dict[str, tuple[str, ...]] = {
    _MASK: (_ENDS, _VALID),
    _REWARD: (_SIGN, _CONSTANT, _PADDING, _PLACE, _AXES, _SEARCH, _AUGMENT, _TORCHRL),
}
