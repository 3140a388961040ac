"""Settings of the published package: other names of settings, and what to write instead."""

from __future__ import annotations

from typing import Any

#: Settings of decoding strategies that have no counterpart → what to write.
DECODING_SETTINGS = {
    "multisample": "leave it out, num_samples is enough;",
    "store_all_logp": "use return_entropy=True, or return_sum_log_likelihood=False;",
    "improvement_method_mode": "leave it out, improvement policies need no setting;",
    "softmax_temp": "write temperature;",
}


def adapt_colony_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of an ant colony with the names of :class:`rl4co.decoding.ant_colony.ColonyConfig`.

    Args:
        settings: Names of either package.
    """
    renamed = dict(settings)
    rounds = renamed.pop("n_perturbations", 1)
    if renamed.pop("use_nls", False):
        renamed["guided_rounds"] = rounds
    if "local_search_params" in renamed:
        renamed["local_search_kwargs"] = renamed.pop("local_search_params")
    return renamed
