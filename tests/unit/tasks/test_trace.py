"""Decision traces: the same decisions as the decode loop makes, and what if others are forced."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Any

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, InvalidActionError, UnsupportedError
from rl4co.core.registry import ENVS
from rl4co.data.formats import read_instance
from rl4co.models import AttentionModelPolicy, DeepACOPolicy, L2DPolicy, MDAMPolicy
from rl4co.tasks.trace import ByTracedModel, decision_trace

SMALL = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16}


def make(name: str) -> tuple[Any, Any, TensorDict]:
    """A policy, its environment and the state of one instance."""
    torch.manual_seed(0)
    size = {"num_jobs": 3, "num_machines": 2} if name == "jssp" else {"num_loc": 8}
    env = ENVS[name](generator_params=size)
    td = env.reset(env.generator(1, rng=torch.Generator().manual_seed(1)))
    if name == "jssp":
        policy: Any = L2DPolicy(embed_dim=16, num_encoder_layers=1, env_name="jssp")
    else:
        policy = AttentionModelPolicy(env_name=name, num_encoder_layers=1, **SMALL)
    return policy.eval(), env, td


@pytest.mark.parametrize("name", ["tsp", "cvrp", "mtvrp", "op", "pdp", "flp", "jssp"])
def test_trace_is_what_the_policy_does(name: str):
    """Actions and log-probabilities are those of greedy decoding; masked actions have none."""
    policy, env, td = make(name)
    out = policy(td, env, phase="test", decode_type="greedy", return_sum_log_likelihood=False)
    trace = decision_trace(policy, td, env)
    assert [decision.action for decision in trace] == out["actions"][0].tolist()
    log_probs = torch.tensor([decision.log_prob for decision in trace])
    torch.testing.assert_close(log_probs, out["log_likelihood"][0].detach(), rtol=1e-4, atol=1e-4)
    for decision in trace:
        assert float(decision.probabilities.sum()) == pytest.approx(1.0, abs=1e-5)
        assert not decision.probabilities[~decision.mask].any()
        assert decision.candidates(1)[0][0] == decision.action
    assert [decision.step for decision in trace] == list(range(len(trace)))


def test_what_if():
    """A forced prefix is followed, the next action is not the forbidden one, the rest is free."""
    policy, env, td = make("tsp")
    first = decision_trace(policy, td, env, forced=[3, 1])
    assert [(d.action, d.forced) for d in first[:3]] == [
        (3, True),
        (1, True),
        (first[2].action, False),
    ]
    other = decision_trace(policy, td, env, forced=[3, 1], forbidden=[first[2].action])
    assert other[2].action == first[2].candidates()[1][0]
    assert bool(other[2].mask[first[2].action]), "the mask is the environment's"
    assert sorted(d.action for d in other) == list(range(8))
    known = decision_trace(policy, td, env, actions=[d.action for d in other])
    assert [d.log_prob for d in known[3:]] == pytest.approx([d.log_prob for d in other[3:]])


def test_sampling_depends_on_its_stream():
    policy, env, td = make("cvrp")

    def sample(seed: int) -> list[int]:
        rng = torch.Generator().manual_seed(seed)
        trace = decision_trace(policy, td, env, decode_type="sampling", rng=rng)
        return [decision.action for decision in trace]

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"forced": [2, 2]}, InvalidActionError),
        ({"forced": [99]}, InvalidActionError),
        ({"forbidden": [99]}, InvalidActionError),
        ({"forbidden": list(range(8))}, InvalidActionError),
        ({"actions": [0, 1], "forbidden": [3]}, ConfigError),
        ({"decode_type": "beam_search"}, UnsupportedError),
        ({"decode_type": "multistart_greedy"}, UnsupportedError),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception]):
    policy, env, td = make("tsp")
    with pytest.raises(error):
        decision_trace(policy, td, env, **options)


def test_policies_without_steps_are_unsupported():
    """MDAM constructs several solutions at a time."""
    _, env, td = make("tsp")
    policy = MDAMPolicy(env_name="tsp", num_encoder_layers=1, **SMALL)
    with pytest.raises(UnsupportedError, match="one solution at a time"):
        decision_trace(policy, td, env)
    with pytest.raises(UnsupportedError):
        decision_trace(torch.nn.Linear(1, 1), td, env)


def test_heatmap_policy_has_decisions():
    _, env, td = make("tsp")
    policy = DeepACOPolicy(env_name="tsp", embed_dim=16, num_layers_graph_encoder=1)
    assert len(decision_trace(policy, td, env)) == 8


def test_approach_reports_the_decisions_of_its_best_solution(tmp_path: Path):
    """Also where it tries several starts; the start is not a decision of the policy."""
    policy, env, _ = make("cvrp")
    places = torch.rand(9, 2, generator=torch.Generator().manual_seed(2)).tolist()
    file = tmp_path / "small.json"
    demand = [0, *[1] * 8]
    file.write_text(json.dumps({"coordinates": places, "demand": demand, "capacity": 3}))
    instance = read_instance(file)
    for method in ("greedy", "multistart_greedy", "sampling"):
        options = {"samples": 4, "seed": 1} if method == "sampling" else {}
        answer = ByTracedModel(policy, env, method, options)(instance)
        assert answer.trace is not None and answer.trace.problem == "cvrp"
        decisions = answer.trace.decisions
        visited = [node for route in answer.solution for node in route]
        assert [d.action for d in decisions if d.action] == visited
        assert [d.forced for d in decisions][:2] == [method == "multistart_greedy", False]
    what_if = ByTracedModel(policy, env, forced=[5])(instance)
    assert what_if.solution[0][0] == 5
    with pytest.raises(ConfigError, match="forced or forbidden"):
        ByTracedModel(policy, env, "multistart_greedy", forced=[5])(instance)
