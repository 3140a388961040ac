"""MTPOMO: one POMO for many vehicle routing problems (Liu et al., 2024).

Paper: https://arxiv.org/abs/2402.16891. Original code: FeiLiu36/MTNCO.
"""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.zoo.pomo import POMO


@MODELS.register("mtpomo")
class MTPOMO(POMO):
    """POMO on a mixture of vehicle routing problems.

    All variants are attributes of one problem, `mtvrp`: each instance says by its data which
    attributes it has (time windows, backhauls, open routes, a distance limit), and the variants of
    a batch are mixed. The mean over an instance's starts as baseline compensates for their
    different costs. Which variants are trained on is a matter of the generator:

        MTPOMO(MTVRPEnv(generator_params={"num_loc": 50, "variant_preset": "single_feat_otw"}))

    Arguments are those of :class:`POMO`.
    """

    supported_envs = ("mtvrp",)
    support_reason = "it mixes the variants of one problem"
