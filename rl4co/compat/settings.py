"""Settings of the published package that have no counterpart → what to write."""

from __future__ import annotations

#: Settings of decoding strategies.
DECODING_SETTINGS = {
    "multisample": "leave it out, num_samples is enough;",
    "store_all_logp": "use return_entropy=True, or return_sum_log_likelihood=False;",
    "improvement_method_mode": "leave it out, improvement policies need no setting;",
    "softmax_temp": "write temperature;",
}
