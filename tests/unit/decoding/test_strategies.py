"""Decoding strategies: every setting is validated, unknown names and settings raise."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from rl4co.core.errors import ConfigError, RL4COError, UnknownNameError
from rl4co.core.registry import DECODING
from rl4co.decoding.strategies import (
    BeamSearch,
    DecodingStrategy,
    Evaluate,
    Greedy,
    Sampling,
    get_decoding_strategy,
    is_multistart,
)

NAMES = {
    "greedy": (Greedy, False),
    "sampling": (Sampling, False),
    "multistart_greedy": (Greedy, True),
    "multistart_sampling": (Sampling, True),
    "beam_search": (BeamSearch, False),
    "evaluate": (Evaluate, False),
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    """Each published name gives its class, with multi-start where the name says so."""
    cls, multistart = NAMES[name]
    strategy = get_decoding_strategy(name)
    assert type(strategy) is cls
    assert strategy.multistart is multistart
    assert is_multistart(name) is multistart


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("tanh_clipping", -0.5),
        ("tanh_clipping", math.nan),
        ("num_samples", 0),
        ("num_samples", -3),
        ("num_starts", -1),
    ],
)
@pytest.mark.parametrize("name", ["greedy", "sampling"])
def test_bad_values_are_rejected(name, field, value):
    """The message names the setting and the value."""
    with pytest.raises(ConfigError) as caught:
        get_decoding_strategy(name, **{field: value})
    assert field in str(caught.value)
    assert str(value) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1e-3),
        ("top_k", 0),
        ("top_p", 0.0),
        ("top_p", 1.0),
        ("tanh_clipping", 0.0),
        ("num_samples", 1),
        ("num_starts", 1),
    ],
)
def test_borders_are_allowed(field, value):
    assert getattr(get_decoding_strategy("sampling", **{field: value}), field) == value


def test_every_field_has_a_case():
    """A new setting needs a case above, or a place in this list of those without a range."""
    free = {"mask_logits", "multistart", "select_best", "rng", "log_probs"}
    tested = {"temperature", "top_k", "top_p", "tanh_clipping", "num_samples", "num_starts"}
    assert {field.name for field in dataclasses.fields(DecodingStrategy)} == free | tested


@pytest.mark.parametrize("width", [0, -2])
def test_beam_width_is_validated(width):
    with pytest.raises(ConfigError, match=f"beam_width of at least 1, got {width}"):
        get_decoding_strategy("beam_search", beam_width=width)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("gredy", "greedy"),
        ("sample", "sampling"),
        ("beamsearch", "beam_search"),
        ("multistart-greedy", "multistart_greedy"),
        ("Evaluate", "evaluate"),
    ],
)
def test_unknown_names_raise_with_the_nearest(name, nearest):
    with pytest.raises(UnknownNameError, match=f"did you mean '{nearest}'") as caught:
        get_decoding_strategy(name)
    assert set(caught.value.known) == {*NAMES, *DECODING.names()}
    with pytest.raises(UnknownNameError, match=f"did you mean '{nearest}'"):
        is_multistart(name)


@pytest.mark.parametrize(
    ("name", "setting", "nearest"),
    [
        ("sampling", "temprature", "temperature"),
        ("greedy", "topk", "top_k"),
        ("multistart_greedy", "n_starts", "num_starts"),
        ("beam_search", "width", "beam_width"),
    ],
)
def test_unknown_settings_raise_with_the_nearest(name, setting, nearest):
    with pytest.raises(UnknownNameError, match=f"'{setting}'") as caught:
        get_decoding_strategy(name, **{setting: 2})
    assert f"did you mean '{nearest}'" in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"beam_search"}))
def test_a_setting_of_another_strategy_is_unknown(name):
    """`beam_width` means nothing outside beam search, so it is not accepted and ignored."""
    with pytest.raises(UnknownNameError, match="beam_width"):
        get_decoding_strategy(name, beam_width=3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("multistart_greedy", {"num_samples": 2}),
        ("multistart_sampling", {"num_samples": 2}),
        ("sampling", {"num_samples": 2, "num_starts": 3}),
        ("beam_search", {"num_samples": 2}),
        ("beam_search", {"num_starts": 2}),
        ("beam_search", {"multistart": True}),
        ("evaluate", {"num_samples": 2}),
        ("evaluate", {"num_starts": 2}),
    ],
)
def test_settings_that_would_be_ignored_are_rejected(name, settings):
    """Starts, samples and beams exclude each other; none of them wins silently."""
    with pytest.raises(RL4COError):
        get_decoding_strategy(name, **settings)


def test_none_keeps_the_default():
    strategy = get_decoding_strategy("sampling", temperature=None, top_p=None, num_starts=None)
    assert strategy == Sampling()


@pytest.mark.parametrize("name", ["greedy", "sampling"])
def test_several_starts_ask_for_multistart(name):
    """`num_starts=1` is one ordinary solution, more are forced starts."""
    assert get_decoding_strategy(name, num_starts=4).multistart
    assert not get_decoding_strategy(name, num_starts=1).multistart


def test_user_settings_win_over_the_preset():
    assert not get_decoding_strategy("multistart_greedy", multistart=False).multistart


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_decoding_strategy("greedy").temperature = 2.0


def test_greedy_takes_the_first_of_equals():
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]])
    assert Greedy().choose(logits, 0, {}).tolist() == [1, 0]


def test_sampling_uses_its_generator():
    logits = torch.zeros(50, 6)
    first = Sampling(rng=torch.Generator().manual_seed(1)).choose(logits, 0, {})
    again = Sampling(rng=torch.Generator().manual_seed(1)).choose(logits, 0, {})
    other = Sampling(rng=torch.Generator().manual_seed(2)).choose(logits, 0, {})
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_evaluate_gives_back_its_actions():
    actions = torch.tensor([[[3, 1, 2]], [[0, 2, 1]]])  # [B, S, T]
    strategy = Evaluate(actions=actions)
    assert strategy.choose(torch.zeros(2, 1, 4), 1, {}).tolist() == [[1], [2]]
    with pytest.raises(ConfigError, match="pass actions"):
        Evaluate().choose(torch.zeros(2, 1, 4), 0, {})


def test_base_class_chooses_nothing():
    with pytest.raises(NotImplementedError, match="choose"):
        DecodingStrategy().choose(torch.zeros(1, 2), 0, {})


def test_filter_passes_every_setting():
    """10 tanh(0.1 k) / 2 for k = 1 ... 4 without the second entry; the best two stay.

    tanh(0.3) = 0.29131261, tanh(0.4) = 0.37994896, times 10 / 2.
    """
    strategy = Greedy(temperature=2.0, top_k=2, tanh_clipping=10.0)
    out = strategy.filter(
        torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, False, True, True])
    )
    torch.testing.assert_close(out, torch.tensor([-math.inf, -math.inf, 1.4565631, 1.8997448]))


def test_filter_without_mask():
    out = Greedy(mask_logits=False).filter(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
    assert out.tolist() == [1.0, 2.0]
