"""Compiled loops and the rules that they repeat: same sources, fresh states."""

from __future__ import annotations

import importlib
import warnings

import pytest
import torch

from rl4co.core.graphs import nearest_graph
from rl4co.decoding.edges import edge_log_likelihood, sample_by_edges
from rl4co.envs import get_env
from rl4co.envs.routing.cvrp.env import CVRPEnv
from rl4co.envs.routing.cvrpmvc.env import CVRPMVCEnv
from rl4co.kernels import mirror
from rl4co.kernels.mirror import Mirror

#: Module with loops → its mirror's place there.
LOOPS = {
    "tsp.ants": "ANTS",
    "cvrp.ants": "ANTS", "cvrpmvc.ants": "ANTS",
}  # fmt: skip


def mirror_of(loops: str) -> Mirror:
    found = getattr(importlib.import_module(f"rl4co.envs.routing.{loops}"), LOOPS[loops])
    return getattr(found, "mirror", found)


@pytest.mark.parametrize("loops", LOOPS)
def test_fingerprints_are_those_of_the_rules(loops: str) -> None:
    """Whoever changes a rule changes the loop as well, and then its fingerprint."""
    known = mirror_of(loops)
    found = known.digest(get_env(known.problem))
    assert found == known.fingerprint, (
        f"rules of {known.problem} that its compiled loop repeats have changed: compare them with "
        f"{loops}, then set fingerprint={found!r} there"
    )


def test_a_rule_of_a_parent_class_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transition of `cvrpmvc` calls that of `cvrp`."""
    known, env = mirror_of("cvrpmvc.ants"), CVRPMVCEnv()
    assert known.holds(env)
    before = CVRPEnv._transition
    monkeypatch.setattr(CVRPEnv, "_transition", lambda self, *given: before(self, *given))
    mirror._warn_once.cache_clear()
    with pytest.warns(UserWarning, match="the rules of CVRPMVCEnv"):
        assert not known.holds(env)


def test_other_problems_are_no_cause_for_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not mirror_of("cvrp.ants").holds(get_env("sdvrp"))
        assert mirror_of("tsp.ants").holds(get_env("tsp_dense"))  # same rules


@pytest.mark.parametrize("problem", ["tsp", "cvrp", "cvrpmvc"])
def test_ants_obey_a_state_that_was_changed(problem: str) -> None:
    """Who forbids a first move gets neither solutions with it nor a likelihood for it."""
    env = get_env(problem, generator_params={"num_loc": 8})
    td = env.reset(batch_size=2)
    state = dict(td.items())
    graph, _ = nearest_graph(td["locs"], 4, has_hub=problem != "tsp")
    weights = torch.ones(2, graph.num_edges)
    forbidden = state["action_mask"].clone()
    forbidden[:, 3] = False
    changed = {**state, "action_mask": forbidden}
    rng = torch.Generator().manual_seed(0)
    assert bool((sample_by_edges(env, state, graph, weights, 60, rng)[..., 0] == 3).any())
    actions = sample_by_edges(env, changed, graph, weights, 60, rng)
    assert not bool((actions[..., 0] == 3).any())
    fewer = edge_log_likelihood(env, changed, graph, weights, actions)
    assert bool((fewer > edge_log_likelihood(env, state, graph, weights, actions)).all())
