"""Logits filters against numbers worked out by hand, and draws against their probabilities."""

from __future__ import annotations

import math

import pytest
import torch

from scipy.stats import chisquare

from rl4co.core.errors import ConfigError
from rl4co.decoding.logits import (
    filter_logits,
    keep_top_k,
    keep_top_p,
    process_logits,
    sample_actions,
    sample_weights,
)

INF = math.inf


def logs(*probabilities: float) -> torch.Tensor:
    """Logits whose softmax is proportional to the given numbers."""
    return torch.tensor(probabilities).log()


def kept(logits: torch.Tensor) -> list[int]:
    return logits.isfinite().nonzero().flatten().tolist()


# ---------------------------------------------------------------- single filters


def test_tanh_clipping():
    """tanh(0) = 0, tanh(0.5) = 0.46211716, tanh(-2) = -0.96402758, times the bound 10."""
    clipped = filter_logits(torch.tensor([0.0, 0.5, -2.0]), None, tanh_clipping=10.0)
    torch.testing.assert_close(clipped, torch.tensor([0.0, 4.6211716, -9.6402758]))


def test_mask_forbids_where_false():
    """True = allowed; allowed logits are untouched."""
    out = filter_logits(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]))
    assert out.tolist() == [1.0, -INF, 3.0]


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        (1, [1, 2]),  # both 3s are the largest: a tie at the border survives whole
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (4, [0, 1, 2, 3]),
        (9, [0, 1, 2, 3]),  # more than there are
    ],
)
def test_top_k_keeps_ties_at_the_border(k, expected):
    """The k largest of (1, 3, 3, 2), with all entries equal to the smallest kept one."""
    logits = torch.tensor([1.0, 3.0, 3.0, 2.0])
    out = keep_top_k(logits, k)
    assert kept(out) == expected
    assert torch.equal(out[expected], logits[expected])


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.40, [1]),  # 0.5 alone reaches it
        (0.49, [1]),
        (0.51, [1, 3]),  # 0.5 does not, 0.5 + 0.3 does
        (0.79, [1, 3]),
        (0.81, [0, 1, 3]),
        (0.94, [0, 1, 3]),
        (0.96, [0, 1, 2, 3]),
        (1.00, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_smallest_sufficient_set(p, expected):
    """Of the probabilities (0.15, 0.5, 0.05, 0.3), in any order of the entries."""
    logits = logs(0.15, 0.5, 0.05, 0.3)
    out = keep_top_p(logits, p)
    assert kept(out) == expected
    assert torch.equal(out[expected], logits[expected])


@pytest.mark.parametrize(("p", "count"), [(0.25, 1), (0.2500001, 2), (0.5, 2), (0.75, 3), (1.0, 4)])
def test_top_p_at_the_boundary(p, count):
    """Four equal logits have probability 0.25 exactly: "at least p" counts quarters, not more."""
    assert len(kept(keep_top_p(torch.zeros(4), p))) == count


def test_top_p_always_keeps_the_most_likely_action():
    """Even a tiny nucleus is not empty, and the action kept is the best one."""
    assert kept(keep_top_p(logs(0.1, 0.6, 0.3), 1e-9)) == [1]


@pytest.mark.parametrize("k", [0, -1])
def test_top_k_rejects_less_than_one(k):
    with pytest.raises(ConfigError, match=f"top_k of at least 1, got {k}"):
        keep_top_k(torch.zeros(3), k)


@pytest.mark.parametrize("p", [0.0, -0.1, 1.0001, math.nan])
def test_top_p_rejects_values_outside_of_0_to_1(p):
    with pytest.raises(ConfigError, match="top_p in"):
        keep_top_p(torch.zeros(3), p)


# ---------------------------------------------------------------- order of the filters


def test_masking_comes_after_clipping():
    """Clipping afterwards would turn -inf into tanh(-inf) * 10 = -10, an allowed action."""
    out = filter_logits(torch.zeros(2), torch.tensor([True, False]), tanh_clipping=10.0)
    assert out.tolist() == [0.0, -INF]


def test_temperature_comes_after_clipping():
    """10 tanh(5) / 2 = 4.9995460; the other way round 10 tanh(2.5) = 9.8661430."""
    out = filter_logits(torch.tensor([5.0]), None, tanh_clipping=10.0, temperature=2.0)
    torch.testing.assert_close(out, torch.tensor([4.9995460]))


def test_top_k_comes_after_masking():
    """The largest logit is forbidden; the largest allowed one is kept."""
    out = filter_logits(torch.tensor([9.0, 1.0, 2.0]), torch.tensor([False, True, True]), top_k=1)
    assert kept(out) == [2]


def test_top_p_comes_after_temperature():
    """Probabilities 4:2:1 become 16:4:1 at temperature 1/2: 16/21 = 0.76 reaches 0.7 alone.

    Before the temperature, 4/7 = 0.57 does not.
    """
    out = filter_logits(logs(4, 2, 1), None, temperature=0.5, top_p=0.7)
    assert kept(out) == [0]


def test_top_p_comes_after_top_k():
    """Of 0.4, 0.3, 0.2, 0.1 the best two are renormalised to 4/7 = 0.57, which reaches 0.55."""
    out = filter_logits(logs(0.4, 0.3, 0.2, 0.1), None, top_k=2, top_p=0.55)
    assert kept(out) == [0]


# ---------------------------------------------------------------- process_logits


def test_log_probabilities_by_hand():
    """Weights 1, 2, 4 at temperature 1/2 are 1, 4, 16; without the last one 1/5 and 4/5."""
    out = process_logits(logs(1, 2, 4), torch.tensor([True, True, False]), temperature=0.5)
    torch.testing.assert_close(out.exp(), torch.tensor([0.2, 0.8, 0.0]))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 7.0, "tanh_clipping": 10.0},
        {"top_k": 3},
        {"top_p": 0.6},
        {"tanh_clipping": 10.0, "temperature": 0.9, "top_k": 5, "top_p": 0.8},
    ],
    ids=str,
)
def test_log_probabilities_are_normalised(settings, rng):
    """They sum to one over the allowed actions of every row, for any number of batch axes."""
    logits = 3 * torch.randn(4, 5, 7, generator=rng)
    mask = torch.rand(4, 5, 7, generator=rng) < 0.6
    mask[..., 2] = True
    out = process_logits(logits, mask, **settings)
    torch.testing.assert_close(out.exp().sum(-1), torch.ones(4, 5))
    assert bool((out[~mask] == -INF).all())
    row = process_logits(logits[1, 3], mask[1, 3], **settings)
    torch.testing.assert_close(out[1, 3], row)


def test_mask_is_required_unless_switched_off():
    logits = logs(1, 1, 2)
    with pytest.raises(ConfigError, match="mask_logits=False"):
        process_logits(logits)
    mask = torch.tensor([True, True, False])
    unmasked = process_logits(logits, mask, mask_logits=False)
    torch.testing.assert_close(unmasked.exp(), torch.tensor([0.25, 0.25, 0.5]))


def test_nothing_is_written_into_the_arguments(rng):
    """Neither by value nor by version counter, whatever the filters."""
    logits, mask = torch.randn(3, 6, generator=rng), torch.rand(3, 6, generator=rng) < 0.7
    mask[:, 0] = True
    before = logits.clone(), mask.clone(), logits._version, mask._version
    process_logits(logits, mask, temperature=0.5, top_k=4, top_p=0.9, tanh_clipping=10.0)
    sample_actions(logits, rng)
    sample_weights(mask.float(), rng)
    assert torch.equal(logits, before[0])
    assert torch.equal(mask, before[1])
    assert (logits._version, mask._version) == before[2:]


# ---------------------------------------------------------------- drawing


def p_value(draws: torch.Tensor, weights: list[float]) -> float:
    """Chi-square test of the frequencies of the possible entries."""
    counts = torch.bincount(draws, minlength=len(weights)).double()
    expected = torch.tensor(weights, dtype=torch.float64)
    expected = expected / expected.sum() * len(draws)
    possible = expected > 0
    return float(chisquare(counts[possible].numpy(), expected[possible].numpy()).pvalue)


WEIGHTS = [0.0, 1.0, 3.0, 0.0, 6.0, 0.5, 0.0]


def test_draws_follow_the_weights(rng):
    """Weights need not sum to one; zeros at the front, inside and at the end are never drawn."""
    draws = sample_weights(torch.tensor(WEIGHTS).expand(20_000, -1), rng)
    assert sorted(draws.unique().tolist()) == [1, 2, 4, 5]
    assert p_value(draws, WEIGHTS) > 1e-3
    # The test is sharp enough to notice a shift of half a per cent of the mass.
    assert p_value(draws, [0.0, 1.0, 3.0, 0.0, 6.0, 0.7, 0.0]) < 1e-3


def test_draws_follow_the_softmax(rng):
    """Logits and their softmax, for several batch axes at once."""
    logits = torch.tensor([0.3, -1.0, 2.0, -INF, 0.0])
    draws = sample_actions(logits.expand(100, 200, -1), rng)
    assert draws.shape == (100, 200)
    assert draws.dtype == torch.int64
    assert p_value(draws.flatten(), logits.softmax(-1).tolist()) > 1e-3


def test_rows_are_drawn_independently(rng):
    """Two rows with the same distribution: joint frequencies are products."""
    draws = sample_weights(torch.ones(30_000, 2, 3), rng)  # [draws, row]
    joint = draws[:, 0] * 3 + draws[:, 1]
    assert p_value(joint, [1.0] * 9) > 1e-3


@pytest.mark.parametrize("num_actions", [2, 9, 200])
def test_forbidden_actions_are_never_drawn(num_actions, rng):
    """20 000 random rows with random masks, most of which forbid the last entries."""
    logits = 8 * torch.randn(20_000, num_actions, generator=rng)
    mask = torch.rand(20_000, num_actions, generator=rng) < 0.5
    mask[:, 0] |= ~mask.any(-1)
    draws = sample_actions(filter_logits(logits, mask), rng)
    assert bool(mask.gather(-1, draws.unsqueeze(-1)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("uniform", ["largest", "one", "smallest"])
def test_extreme_uniform_numbers(dtype, uniform):
    """The largest number below 1 stays among the possible entries, and so do 1 itself and 0.

    Rounding of the cumulative sum must not reach the forbidden entries behind the last possible
    one; forbidden entries at the front have an interval of length zero.
    """

    weights = torch.randn(500, 40, generator=torch.Generator().manual_seed(5)).exp().to(dtype)
    weights[:, :3] = 0
    weights[:, 30:] = 0
    dtype = torch.promote_types(dtype, torch.float32)  # in which the sums are computed
    number = {"largest": 1.0 - torch.finfo(dtype).eps / 2, "one": 1.0, "smallest": 0.0}[uniform]
    draws = sample_weights(weights, uniform=torch.full((500, 1), number, dtype=dtype))
    if uniform == "smallest":
        assert draws.tolist() == [3] * 500
    else:
        assert bool((weights.gather(-1, draws.unsqueeze(-1)) > 0).all())
        # In double precision the largest number means the last possible entry.
        if dtype == torch.float64:
            assert draws.tolist() == [29] * 500


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_does_not_bias_the_draws(dtype, rng):
    """A uniform choice among 500: sums with 8 or 11 bits would never get past the first entries."""
    draws = sample_actions(torch.zeros(50_000, 500, dtype=dtype), rng)
    assert p_value(draws, [1.0] * 500) > 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_logits_are_filtered_in_single_precision(dtype):
    """Log-probabilities are sums of small numbers; eight bits are not enough for them."""
    logits = torch.tensor([0.5, -1.25, 2.0, 0.0], dtype=dtype)  # exact in both types
    mask = torch.tensor([True, True, True, False])
    out = process_logits(logits, mask, tanh_clipping=10.0, temperature=0.7)
    expected = process_logits(logits.float(), mask, tanh_clipping=10.0, temperature=0.7)
    assert torch.equal(out, expected)


def test_certain_action_is_always_drawn(rng):
    """One possible action in each row, at every position."""
    logits = torch.full((5, 5), -INF).fill_diagonal_(0.0)
    assert sample_actions(logits, rng).tolist() == [0, 1, 2, 3, 4]


def test_draws_depend_on_the_generator_alone():
    """The same seed gives the same draws; the global stream is neither used nor moved."""
    logits = torch.randn(64, 10)
    state = torch.get_rng_state()
    first = sample_actions(logits, torch.Generator().manual_seed(3))
    again = sample_actions(logits, torch.Generator().manual_seed(3))
    other = sample_actions(logits, torch.Generator().manual_seed(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_draws_without_generator_follow_the_global_seed():
    logits = torch.randn(64, 10)
    torch.manual_seed(8)
    first = sample_actions(logits)
    second = sample_actions(logits)
    torch.manual_seed(8)
    assert torch.equal(sample_actions(logits), first)
    assert not torch.equal(first, second)


def test_draws_stay_in_range_for_invalid_numbers(rng):
    """NaN is reported by the policy; until then no index may leave the table (on a GPU that is a
    fault of the whole process)."""
    draws = sample_actions(torch.full((3, 4), math.nan), rng)
    assert bool(((draws >= 0) & (draws < 4)).all())
