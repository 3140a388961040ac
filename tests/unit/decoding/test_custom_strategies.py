"""Custom strategies: as class, object or name, by `choose` or in the published form."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from rl4co.core.errors import ConfigError, UnknownNameError
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
from rl4co.models import POMO, PointerNetworkPolicy
from rl4co.tasks.evaluate import evaluate_policy


@dataclasses.dataclass(frozen=True)
class Worst(DecodingStrategy):
    """The least likely of the allowed actions."""

    sign: float = -1.0

    def choose(self, logits, step, state):
        forbidden = logits == -torch.inf
        return (self.sign * logits).masked_fill(forbidden, -torch.inf).argmax(-1)


class Nearest(DecodingStrategy):
    """Looks at the state, not at the logits."""

    def choose(self, logits, step, state):
        here = state["locs"].gather(
            -2, state["current_node"][..., None, None].expand(*[-1] * 2, 1, 2)
        )
        return (
            (state["locs"] - here).norm(dim=-1).masked_fill(~state["action_mask"], 9.0).argmin(-1)
        )


class Published(DecodingStrategy):
    """Greedy, as one wrote it for the published package."""

    name = "published"

    def __init__(self, alpha=0.5, **kwargs):
        super().__init__(**kwargs)
        self.alpha, self.select_best = alpha, self.select_best

    def _step(self, logprobs, mask, td, action=None, **kwargs):
        return logprobs, self.greedy(logprobs, mask), td


class PublishedHooks(Sampling):
    """Sampling with hooks that do something on top."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.notes = []

    def pre_decoder_hook(self, td, env):
        self.seen = True
        self.notes.append(td.batch_size[0])
        assert len(self.notes) == 1
        return super().pre_decoder_hook(td, env)

    def post_decoder_hook(self, td, env):
        logprobs, actions, td, env = super().post_decoder_hook(td, env)
        return 2 * logprobs, actions, td, env


@dataclasses.dataclass(frozen=True)
class PublishedDataclass(Greedy):
    weight: float = 1.0

    def _step(self, logprobs, mask, td, action=None, **kwargs):
        return super()._step(self.weight * logprobs, mask, td)


class Reversed(DecodingStrategy):
    """A distribution of its own: unlikely actions become likely."""

    def filter(self, logits, mask):
        return torch.where(mask, -logits, -torch.inf)

    def choose(self, logits, step, state):
        return logits.argmax(-1)


@pytest.fixture
def worst_by_name(monkeypatch):
    monkeypatch.setattr(DECODING, "_entries", {})
    DECODING.register("worst")(Worst)
    return "worst"


def test_class_object_and_name_are_the_same(make_env, make_policy, worst_by_name):
    """As an argument and as the policy's own decode type; greedy is something else."""
    env, policy = make_env("tsp", 6), make_policy("tsp")
    own = make_policy("tsp", val_decode_type=Worst, test_decode_type=worst_by_name)
    td = env.reset(batch_size=4)
    outs = [policy(td, env, decode_type=kind) for kind in (Worst, Worst(), worst_by_name)]
    outs += [own(td, env, phase="val"), own(td, env, phase="test")]
    for out in outs[1:]:
        assert torch.equal(outs[0]["actions"], out["actions"])
        torch.testing.assert_close(outs[0]["log_likelihood"], out["log_likelihood"])
    greedy = policy(td, env, decode_type="greedy")
    assert (outs[0]["log_likelihood"] < greedy["log_likelihood"]).all()
    same = policy(td, env, decode_type=Worst, sign=1.0)
    assert torch.equal(same["actions"], greedy["actions"])


def test_compiled_loops_leave_others_alone(make_env, make_policy):
    """Without gradients as with them; a class that is called as one of the library's, too."""
    env, policy = make_env("tsp", 6), make_policy("tsp")
    td = env.reset(batch_size=4)
    impostor = type("Greedy", (Worst,), {})
    with torch.no_grad():
        fast = policy(td, env, decode_type=impostor)
    assert torch.equal(fast["actions"], policy(td, env, decode_type=Worst)["actions"])


def test_choice_by_the_state(make_env, make_policy):
    """The nearest node next, for every sample."""
    env, policy = make_env("tsp", 6), make_policy("tsp")
    td = env.reset(batch_size=3)
    actions = policy(td, env, decode_type=Nearest, multistart=True)["actions"]  # [6 * 3, 6]
    locs = td["locs"].repeat(6, 1, 1)
    tour = locs.gather(1, actions.unsqueeze(-1).expand(-1, -1, 2))
    step, others = tour[:, 1] - tour[:, 0], tour[:, 2:] - tour[:, :1]
    assert (step.norm(dim=-1, keepdim=True) <= others.norm(dim=-1)).all()


def test_starts_samples_and_the_best(make_env, make_policy, worst_by_name):
    env, policy = make_env("cvrp", 6), make_policy("cvrp")
    td = env.reset(batch_size=2)
    starts = policy(td, env, decode_type="multistart_worst")
    assert starts["actions"].shape[0] == 12
    assert starts["actions"][::2, 0].tolist() == [1, 2, 3, 4, 5, 6]
    best = policy(td, env, decode_type=Worst(num_starts=3, multistart=True, select_best=True))
    torch.testing.assert_close(best["reward"], starts["reward"][:6].view(3, 2).amax(0))
    assert is_multistart("multistart_worst") and not is_multistart(Worst)
    assert get_decoding_strategy(Worst, num_starts=3).multistart


def test_objects_keep_their_settings():
    """The policy's preferences count where an object has the defaults, the call's always."""
    given = Worst(temperature=2.0)
    made = get_decoding_strategy(given, num_samples=3)
    assert (made.temperature, made.num_samples, given.num_samples) == (2.0, 3, 1)


def test_preferences_of_the_policy(make_env, make_policy):
    """Clipping is the policy's, a temperature of the object its own."""
    policy = make_policy("tsp", tanh_clipping=7.0, temperature=3.0)
    strategy = policy.resolve_strategy("test", Worst(temperature=2.0), None, 1, {"num_samples": 2})
    assert (strategy.tanh_clipping, strategy.temperature, strategy.num_samples) == (7.0, 2.0, 2)


def test_a_distribution_of_ones_own(make_env, make_policy):
    """Log-likelihoods are those of `filter`, with gradients as well."""
    env, policy = make_env("tsp", 5), make_policy("tsp")
    td = env.reset(batch_size=2)
    with torch.no_grad():
        plain = policy(td, env, decode_type=Reversed)
    trained = policy(td, env, decode_type=Reversed)
    torch.testing.assert_close(plain["log_likelihood"], trained["log_likelihood"].detach())
    assert torch.equal(plain["actions"], trained["actions"])
    trained["log_likelihood"].sum().backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters())
    assert (
        plain["log_likelihood"] > policy(td, env, actions=plain["actions"])["log_likelihood"]
    ).all()


def test_evaluation(make_env, make_policy, worst_by_name):
    """Best of its samples, from the seed of the evaluation; unknown settings are rejected."""
    env, policy = make_env("tsp", 6), make_policy("tsp")
    instances = env.generator(4)
    greedy = evaluate_policy(env, policy, instances)["rewards"]
    for method in (Worst, Worst(), worst_by_name):
        assert (evaluate_policy(env, policy, instances, method)["rewards"] != greedy).any()
    same = evaluate_policy(env, policy, instances, Worst(sign=1.0), num_starts=6)["rewards"]
    multi = evaluate_policy(env, policy, instances, "multistart_greedy")["rewards"]
    torch.testing.assert_close(same, multi)
    own = type("Own", (Sampling,), {})
    first, again = (
        evaluate_policy(env, policy, instances, own(num_samples=5))["rewards"] for _ in range(2)
    )
    assert torch.equal(first, again)
    with pytest.raises(UnknownNameError, match="beam_width"):
        evaluate_policy(env, policy, instances, Worst, beam_width=3)
    with pytest.raises(UnknownNameError, match="'worst'"):
        evaluate_policy(env, policy, instances, "worts")


def test_pomo_asks_the_policys_own_strategy(make_env, make_policy):
    """From every start, in the phase that it was given for."""
    env = make_env("tsp", 6)
    instances = env.generator(4)
    td = env.reset(instances)
    model = POMO(env, make_policy("tsp", val_decode_type=Worst), num_augment=1)
    model.log_metrics = lambda out, *args, **kwargs: out
    expected = model.policy(td, env, decode_type=Worst, multistart=True)["reward"]
    torch.testing.assert_close(model.shared_step(instances, 0, "val")["reward"], expected)


# ---------------------------------------------------------------- the published form


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_published_steps_are_what_choose_is(problem, make_env, make_policy):
    """Same solutions, likelihoods, entropies and gradients as the library's own greedy."""
    env, policy = make_env(problem, 5), make_policy(problem)
    td = env.reset(batch_size=3)
    settings = {"num_starts": 3, "return_entropy": True}
    gradients = []
    outs = [
        policy(td, env, decode_type="greedy", **settings),
        policy(td, env, decode_type=Published, alpha=0.1, **settings),
        policy(td, env, decode_type=PublishedDataclass(), **settings),
    ]
    for out in outs:
        policy.zero_grad()
        out["log_likelihood"].sum().backward()
        gradients.append(policy.decoder.pointer.project_out.weight.grad.clone())
        for key in ("reward", "log_likelihood", "entropy"):
            torch.testing.assert_close(out[key], outs[0][key], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(gradients[-1], gradients[0], atol=1e-4, rtol=1e-3)
    best = policy(td, env, decode_type=Published(multistart=True), num_starts=3, select_best=True)
    torch.testing.assert_close(best["reward"], outs[0]["reward"].view(3, 3).amax(0))


def test_published_hooks_are_called(make_env, make_policy):
    """What they change is in the result; the object that was given stays as it was."""
    env, policy = make_env("tsp", 5), make_policy("tsp")
    td, given = env.reset(batch_size=2), PublishedHooks(num_samples=4)
    out = policy(td, env, decode_type=given)
    assert out["actions"].shape == (8, 5)
    likelihood = policy(td, env, actions=out["actions"])["log_likelihood"]
    torch.testing.assert_close(out["log_likelihood"], 2 * likelihood, atol=1e-5, rtol=1e-4)
    assert not hasattr(given, "seen") and not given.notes
    policy(td, env, decode_type=given)


def test_published_steps_with_a_memory(make_env):
    """A recurrent decoder remembers forced starts, too."""
    env = make_env("tsp", 5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = PointerNetworkPolicy(env_name="tsp", embed_dim=8, hidden_dim=8).eval()
    td = env.reset(batch_size=2)
    ours = policy(td, env, decode_type="multistart_greedy")
    theirs = policy(td, env, decode_type=Published, multistart=True)
    assert torch.equal(ours["actions"], theirs["actions"])
    torch.testing.assert_close(ours["log_likelihood"], theirs["log_likelihood"])


@pytest.mark.parametrize("base", [BeamSearch, Evaluate])
@pytest.mark.parametrize("method", ["choose", "_step", "pre_decoder_hook"])
def test_methods_that_are_never_called_raise(base, method):
    """When the class is made, with what to derive from."""
    with pytest.raises(ConfigError, match=f"no {method} in Mine.*derive from DecodingStrategy"):
        type("Mine", (base,), {method: lambda self: None})


def test_helpers_and_doubles_are_rejected():
    with pytest.raises(ConfigError, match="got greedy, which is a helper"):
        type("Mine", (Greedy,), {"greedy": staticmethod(lambda logprobs, mask: None)})
    with pytest.raises(ConfigError, match="choose or _step in Mine, got both"):
        type("Mine", (Greedy,), {"choose": lambda self: None, "_step": lambda self: None})


@pytest.mark.parametrize("wrong", [3, dict, object()])
def test_other_things_are_rejected(wrong):
    with pytest.raises(ConfigError, match="expected a decode type by name, or a class"):
        get_decoding_strategy(wrong)


def test_unknown_settings_raise_with_the_nearest():
    for decode_type in (Published, Published()):
        with pytest.raises(UnknownNameError, match="did you mean 'alpha'"):
            get_decoding_strategy(decode_type, alpah=1.0)


def test_published_settings_say_what_to_write():
    with pytest.raises(UnknownNameError, match="leave it out"):
        get_decoding_strategy("sampling", num_samples=4, multisample=True)


def test_only_names_are_written_to_files(make_policy, tmp_path, worst_by_name):
    """`save_pretrained` says what cannot be saved; a registered name comes back."""
    with pytest.raises(ConfigError, match="test_decode_type"):
        make_policy("tsp", test_decode_type=Worst).save_pretrained(tmp_path)
    policy = make_policy("tsp", test_decode_type=worst_by_name)
    again = type(policy).from_pretrained(policy.save_pretrained(tmp_path))
    assert again.test_decode_type == "worst"
