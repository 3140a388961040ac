"""Compiled rollouts against the general decode loop, which knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rl4co.core.errors import InvalidActionError
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.tsp.env import TSPEnv
from rl4co.models.embeddings.tsp import TSPContext
from rl4co.models.zoo.am import AttentionModelPolicy, compiled_rollout
from rl4co.models.zoo.am import decoder as am_decoder

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tsp": ("tsp", {}),
    "cvrp": ("cvrp", {}),
    "cvrp, plain float32": ("cvrp", {"capacity_tolerance": 0.0}),
    "mtvrp": ("mtvrp", {}),
    "op": ("op", {}),
    "pctsp": ("pctsp", {}),
    "spctsp": ("spctsp", {}),
    "pdp": ("pdp", {}),
    "pdp, start is a step": ("pdp", {"force_start_at_depot": True}),
}


def make_env(case: str, num_loc: int = 12) -> RL4COEnvBase:
    name, settings = CASES[case]
    return get_env(name, generator_params={"num_loc": num_loc}, **settings)


def make_policy(name: str, **settings: Any) -> AttentionModelPolicy:
    torch.manual_seed(7)
    options = {"embed_dim": 32, "num_heads": 4, "num_encoder_layers": 1, "feedforward_hidden": 32}
    return AttentionModelPolicy(env_name=name, **{**options, **settings})


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Batch sizes that compiled loops were called with."""
    calls: list[int] = []

    def spy(env: Any, decoder: Any, cache: Any, strategy: Any, state: Any, **options: Any) -> Any:
        calls.append(len(state["action_mask"]))
        return compiled_rollout.roll_out(env, decoder, cache, strategy, state, **options)

    monkeypatch.setattr(am_decoder, "roll_out", spy)
    return calls


@pytest.fixture
def in_general(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Calls a function with the general decode loop alone."""

    def run(function: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(am_decoder, "can_roll_out", lambda *_: False)
            return function()

    return run


def test_every_loop_is_tested() -> None:
    tested = {type(make_env(case)) for case in CASES}
    assert tested == set(compiled_rollout.problems())


DECODING: dict[str, dict[str, Any]] = {
    "greedy": {"decode_type": "greedy"},
    "sampling": {"decode_type": "sampling"},
    "many samples": {"decode_type": "sampling", "num_samples": 6},
    "multi-start": {"decode_type": "multistart_greedy"},
    "few starts, drawn": {"decode_type": "multistart_sampling", "num_starts": 3},
}


TOGETHER = [(case, way) for case in CASES for way in DECODING]
DRAWN = [(case, way) for case, way in TOGETHER if way not in ("greedy", "multi-start")]


@pytest.mark.parametrize("mask_inner", [True, False])
@pytest.mark.parametrize("batch", [1, 9])
@pytest.mark.parametrize(("case", "decoding"), TOGETHER)
def test_solutions_and_likelihoods_agree(
    case: str, batch: int, mask_inner: bool, decoding: str, compiled: Any, in_general: Any
) -> None:
    env = make_env(case)
    policy = make_policy(env.name, mask_inner=mask_inner).eval()
    td = env.reset(env.generate(batch))

    def run() -> dict[str, Any]:
        torch.manual_seed(11)
        with torch.no_grad():
            return policy(td, env, return_sum_log_likelihood=False, **DECODING[decoding])

    fast, slow = run(), in_general(run)
    assert compiled == [batch]
    assert torch.equal(fast["actions"], slow["actions"])
    torch.testing.assert_close(fast["log_likelihood"], slow["log_likelihood"], atol=1e-5, rtol=0)
    assert torch.equal(fast["reward"], slow["reward"])


@pytest.mark.parametrize("settings", [{}, {"use_graph_context": False}, {"replay_chunk": 5}])
@pytest.mark.parametrize(("case", "decoding"), DRAWN)
def test_gradients_agree(
    case: str, settings: dict[str, Any], decoding: str, compiled: Any, in_general: Any
) -> None:
    env = make_env(case)
    policy = make_policy(env.name, **settings)
    td = env.reset(env.generate(9))

    def run() -> tuple[torch.Tensor, ...]:
        torch.manual_seed(11)
        policy.zero_grad()
        out = policy(td, env, return_entropy=True, **DECODING[decoding])
        (out["reward"].detach() * out["log_likelihood"] + out["entropy"]).mean().backward()
        return tuple(p.grad.clone() for p in policy.parameters() if p.grad is not None)

    fast, slow = run(), in_general(run)
    assert compiled == [9]
    assert all(bool(gradient.isfinite().all()) for gradient in fast)
    # Biases that a normalisation takes away have gradients of rounding errors alone.
    torch.testing.assert_close(fast, slow, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("num_loc", [1, 12])
def test_tours_over_a_matrix(num_loc: int, compiled: Any, in_general: Any) -> None:
    """Legs of the OP come from coordinates or from a matrix, asymmetric here."""
    env = make_env("op", num_loc)
    instances = env.generate(5)
    nodes = num_loc + 1
    matrix = torch.rand(5, nodes, nodes, generator=torch.Generator().manual_seed(3))
    policy, td = make_policy("op").eval(), env.reset(instances.set("cost_matrix", matrix))

    def run() -> Any:
        with torch.no_grad():
            return policy(td, env, decode_type="greedy")["actions"]

    assert torch.equal(run(), in_general(run))
    assert compiled == [5]


def test_threads_share_the_batch() -> None:
    env = make_env("cvrp")
    policy, td = make_policy("cvrp").eval(), env.reset(env.generate(7))
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            with torch.no_grad():
                found.append(policy(td, env, decode_type="greedy")["actions"])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_likelihoods_can_be_left_out(compiled: Any) -> None:
    env = make_env("tsp")
    with torch.no_grad():
        out = make_policy("tsp")(env.reset(batch_size=2), env, log_probs=False)
    assert compiled == [2]
    assert "log_likelihood" not in out


class SubclassedEnv(TSPEnv):
    """Might have other rules."""


class SubclassedContext(TSPContext):
    """Might ask something else."""


@pytest.mark.parametrize(
    ("settings", "decoding"),
    [
        ({}, {"top_k": 3}),
        ({}, {"temperature": 2.0}),
        ({}, {"decode_type": "beam_search"}),
        ({}, {"return_entropy": True}),
        ({"tanh_clipping": 0.0}, {}),
        ({"mask_logits": False}, {"num_steps": 12}),
        ({"out_bias_pointer_attn": True}, {}),
        ({"context_embedding": SubclassedContext(32)}, {}),
        ({"sdpa_fn": torch.nn.functional.scaled_dot_product_attention}, {}),
        ({"num_heads": 16}, {}),  # heads of less than a vector
    ],
)
def test_anything_else_is_left_to_the_decode_loop(
    settings: dict[str, Any], decoding: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, policy = make_env("tsp"), make_policy("tsp", **settings).eval()
    refuse_use(monkeypatch)
    options = {"decode_type": "sampling", "calc_reward": "mask_logits" not in settings, **decoding}
    with torch.no_grad():
        policy(env.reset(batch_size=2), env, **options)


@pytest.mark.parametrize(
    "env",
    [
        SubclassedEnv(generator_params={"num_loc": 12}),
        get_env("tsp", generator_params={"num_loc": 12}, check_action=True),
        get_env("tsp_dense", generator_params={"num_loc": 12}),
    ],
)
def test_other_environments_are_left_to_the_decode_loop(
    env: RL4COEnvBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_use(monkeypatch)
    with torch.no_grad():
        make_policy("tsp")(env.reset(batch_size=2), env, decode_type="greedy")


@pytest.mark.parametrize("part", ["decoder", "decoder.pointer", "decoder.context_embedding"])
def test_hooks_are_called(part: str) -> None:
    env, policy = make_env("tsp"), make_policy("tsp").eval()
    seen = []
    policy.get_submodule(part).register_forward_hook(lambda *_: seen.append(part))
    with torch.no_grad():
        policy(env.reset(batch_size=2), env, decode_type="greedy")
    assert len(seen) == 12


def test_a_decoder_without_replay_learns_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    env, policy = make_env("tsp"), make_policy("tsp")
    policy.decoder.context_embedding.state_keys = None
    refuse_use(monkeypatch)
    assert policy(env.reset(batch_size=2), env)["log_likelihood"].requires_grad


def refuse_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("expected the general decode loop")

    monkeypatch.setattr(am_decoder, "roll_out", refuse)


def test_an_instance_with_no_way_on_is_reported(compiled: Any) -> None:
    env = make_env("tsp")
    td = env.reset(batch_size=3)
    td["action_mask"] = td["action_mask"].index_fill(-1, torch.tensor([4]), False)
    # The general loop counts nodes, not what is allowed; its last distribution is empty.
    with torch.no_grad(), pytest.raises(InvalidActionError, match="got none in instances 0, 1, 2"):
        make_policy("tsp")(td, env, decode_type="greedy", calc_reward=False)
    assert compiled == [3]


def test_starts_that_are_no_nodes_are_refused() -> None:
    """Loops do not look at indices, so this is left to those who do."""
    env = make_env("cvrp")

    def far_away(td: Any, env: Any, num_starts: int) -> torch.Tensor:
        return torch.full((len(td) * num_starts,), 10**9)

    with torch.no_grad(), pytest.raises((IndexError, RuntimeError)):
        make_policy("cvrp")(
            env.reset(batch_size=2),
            env,
            decode_type="multistart_greedy",
            select_start_nodes_fn=far_away,
        )


def test_diverged_weights_are_reported() -> None:
    env, policy = make_env("cvrp"), make_policy("cvrp").eval()
    policy.decoder.project_node_embeddings.weight.data.fill_(float("nan"))
    with torch.no_grad(), pytest.raises(FloatingPointError, match="NaN"):
        policy(env.reset(batch_size=2), env, decode_type="greedy")


def test_large_logits_are_clipped() -> None:
    """Logits in the thousands, far beyond what an exponential can hold."""
    env, policy = make_env("tsp"), make_policy("tsp").eval()
    policy.decoder.project_node_embeddings.weight.data.mul_(1e3)
    td = env.reset(batch_size=4)
    with torch.no_grad():
        fast = policy(td, env, decode_type="greedy")
        known = policy(td, env, actions=fast["actions"])["log_likelihood"]
    assert bool(known.isfinite().all())
    torch.testing.assert_close(fast["log_likelihood"], known, atol=1e-4, rtol=0)
