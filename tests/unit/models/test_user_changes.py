"""What a user changes takes effect: in inference, in training and in evaluation alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch import Tensor, nn
from torch.nn.utils import parametrizations

from rl4co.core.errors import NotFiniteError
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.cvrp.env import CVRPEnv
from rl4co.models import AttentionModelPolicy

pytestmark = pytest.mark.filterwarnings("ignore:the rules of .* are not those:UserWarning")

LAYERS = ("decoder.project_node_embeddings", "decoder.pointer.project_out",
          "decoder.context_embedding.project_context")  # fmt: skip


def make_policy(name: str = "cvrp", **settings: Any) -> AttentionModelPolicy:
    torch.manual_seed(7)
    options = {"embed_dim": 32, "num_heads": 4, "num_encoder_layers": 1, "feedforward_hidden": 32}
    return AttentionModelPolicy(env_name=name, **{**options, **settings})


def make_env(name: str = "cvrp", num_loc: int = 12) -> RL4COEnvBase:
    return get_env(name, generator_params={"num_loc": num_loc}, seed=1)


def three_roads(policy: Any, td: Any, env: Any) -> list[Tensor]:
    """Log-likelihoods of the same solutions: decoded, evaluated, and from training."""
    with torch.no_grad():
        out = policy(td, env, decode_type="greedy")
    known = policy(td, env, actions=out["actions"])["log_likelihood"]
    learnt = policy(td, env, decode_type="greedy")
    assert torch.equal(learnt["actions"], out["actions"])
    return [out["log_likelihood"], known, learnt["log_likelihood"]]


def check_paths_agree(policy: Any, td: Any, env: Any) -> Tensor:
    first, *others = (values.detach() for values in three_roads(policy, td, env))
    for other in others:
        torch.testing.assert_close(other, first, atol=1e-4, rtol=1e-5)
    return first


# ---------------------------------------------------------------- rules and states


def no_return(self: CVRPEnv, state: Any) -> Tensor:
    """A vehicle goes home only when nothing fits any more."""
    return torch.zeros_like(state["current_node"].unsqueeze(-1), dtype=torch.bool)


@pytest.mark.parametrize("place", ["class", "instance"])
def test_a_changed_rule_is_obeyed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env, policy = make_env(), make_policy()
    td = env.reset(batch_size=30)
    if place == "class":
        monkeypatch.setattr(CVRPEnv, "_may_return", no_return)
    else:
        env._may_return = no_return.__get__(env)  # type: ignore[attr-defined]
    likelihood = check_paths_agree(policy, td, env)
    assert bool(likelihood.isfinite().all())
    with torch.no_grad():
        actions = policy(td, env, decode_type="sampling", num_samples=4)["actions"]
    state = {key: value.repeat(4, *(1,) * (value.dim() - 1)) for key, value in td.items()}
    for action in actions.unbind(-1):
        fits = ~env._forbidden(state)[:, 1:].all(-1)
        assert not bool(((action == 0) & fits & ~state["done"].squeeze(-1)).any())
        state = env.advance(state, action)


def test_forbidden_first_moves_are_not_made() -> None:
    env, policy = make_env(), make_policy()
    td = env.reset(batch_size=20)
    mask = td["action_mask"].clone()
    mask[:, 2:] = False
    td["action_mask"] = mask
    likelihood = check_paths_agree(policy, td, env)
    assert bool(likelihood.isfinite().all())
    with torch.no_grad():
        assert policy(td, env)["actions"][:, 0].unique().tolist() == [1]


@pytest.mark.parametrize("key", ["used_capacity", "current_node"])
def test_partial_states_are_respected(key: str) -> None:
    """A vehicle that is nearly full, or already on its way, gives other solutions."""
    env, policy = make_env(), make_policy()
    td = env.reset(batch_size=20)
    before = check_paths_agree(policy, td, env)
    td[key] = torch.full_like(td[key], 0.9) if key == "used_capacity" else td[key] + 3
    td["action_mask"] = env.get_action_mask(td)
    after = check_paths_agree(policy, td, env)
    assert not torch.allclose(before, after)


def test_minus_infinity_is_an_error() -> None:
    env, policy = make_env("tsp", 5), make_policy("tsp")
    td = env.reset(batch_size=2)
    twice = torch.tensor([[0, 1, 1, 2, 3]] * 2)
    with pytest.raises(NotFiniteError, match="minus infinity"):
        policy(td, env, actions=twice, calc_reward=False)


def test_an_explicit_filter_may_exclude_given_actions() -> None:
    env, policy = make_env("tsp", 5), make_policy("tsp")
    td = env.reset(batch_size=40)
    order = torch.arange(5).expand(40, -1)
    out = policy(td, env, actions=order, top_k=1)
    assert bool((out["log_likelihood"] == -torch.inf).any())


# ---------------------------------------------------------------- layers


class LowRank(nn.Module):
    """A layer with a low-rank change, which starts at something."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(2, layer.in_features))
        self.up = nn.Parameter(torch.randn(layer.out_features, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.down.T @ self.up.T


class Shifted(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0.3 * x.sum(-1, keepdim=True)


def subclass(layer: nn.Linear) -> nn.Module:
    other = Shifted(layer.in_features, layer.out_features, bias=layer.bias is not None)
    other.load_state_dict(layer.state_dict())
    return other


def rescaled(layer: nn.Linear) -> nn.Module:
    normed = parametrizations.weight_norm(layer)
    with torch.no_grad():
        normed.parametrizations.weight.original0.mul_(1.5)  # type: ignore[union-attr]
    return normed


REPLACED: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "low rank": LowRank, "subclass": subclass, "weight norm": rescaled,
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", REPLACED)
@pytest.mark.parametrize("problem", ["tsp", "cvrp", "sdvrp"])
def test_replaced_layers_take_effect(problem: str, kind: str, name: str) -> None:
    """... on every path, and they learn."""
    env, policy = make_env(problem), make_policy(problem)
    td = env.reset(batch_size=10)
    before = check_paths_agree(policy, td, env)
    parent, _, leaf = name.rpartition(".")
    layer = REPLACED[kind](policy.get_submodule(name))  # type: ignore[arg-type]
    setattr(policy.get_submodule(parent), leaf, layer)
    assert not torch.allclose(before, check_paths_agree(policy, td, env))
    policy(td, env, decode_type="sampling")["log_likelihood"].sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None and bool((parameter.grad != 0).any())


@pytest.mark.parametrize("name", [*LAYERS, "decoder", "decoder.pointer",
                                  "decoder.context_embedding"])  # fmt: skip
@pytest.mark.parametrize("path", ["decode", "evaluate", "train"])
def test_hooks_fire_on_every_path(name: str, path: str) -> None:
    env, policy = make_env(), make_policy()
    td = env.reset(batch_size=3)
    with torch.no_grad():
        actions = policy(td, env)["actions"]
    seen: list[bool] = []
    policy.get_submodule(name).register_forward_hook(
        lambda *_: seen.append(torch.is_grad_enabled())
    )
    options = {"actions": actions} if path == "evaluate" else {}
    with torch.set_grad_enabled(path != "decode"):
        policy(td, env, **options)
    assert len(seen) > 0
    assert any(seen) is (path != "decode"), "where there are gradients, they go through the hook"


@pytest.mark.parametrize("part", ["attention", "feedforward"])
def test_pre_hooks_in_the_encoder_leave_the_residual_alone(part: str) -> None:
    """A block that is given zeros adds the same to whatever comes around it."""
    layer = make_policy().encoder.net.layers[0].eval()
    block = getattr(layer, part)
    nn.init.ones_(getattr(layer, f"norm_{part}").running_var)
    h = torch.randn(2, 5, 32)
    with torch.no_grad():
        own = block(torch.zeros_like(h))
        handle = block.register_forward_pre_hook(lambda _, given: (torch.zeros_like(h), *given[1:]))
        norm = getattr(layer, f"norm_{part}")
        seen: list[Tensor] = []
        norm.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        inputs: list[Tensor] = []
        layer.feedforward.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        layer(h)
        handle.remove()
    if part == "attention":
        torch.testing.assert_close(seen[0], h + own)
    else:
        between = layer.norm_attention(h + layer.attention(h))
        torch.testing.assert_close(seen[-1] - own, between)


@pytest.mark.parametrize("part", ["attention", "feedforward"])
def test_a_replaced_forward_in_the_encoder_is_used(part: str) -> None:
    env, policy = make_env(), make_policy()
    block = getattr(policy.encoder.net.layers[0], part)
    calls = []
    block.forward = lambda x, *_: calls.append(x.shape) or torch.zeros_like(x)
    policy(env.reset(batch_size=2), env)
    assert len(calls) == 1


@pytest.mark.parametrize("rows", [1, 64])
def test_a_patched_linear_layer_is_obeyed_for_any_number_of_rows(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, policy = make_env("tsp", 20), make_policy("tsp")
    td = env.reset(batch_size=rows)
    calls = []
    original = nn.Linear.forward
    monkeypatch.setattr(
        nn.Linear, "forward", lambda self, x: calls.append(self) or original(self, x)
    )
    policy(td, env)
    assert set(map(id, calls)) == {
        id(module) for module in policy.modules() if isinstance(module, nn.Linear)
    }


@pytest.mark.parametrize(
    ("owner", "method"),
    [("decoder", "_query"), ("decoder", "point"), ("decoder.context_embedding", "features")],
)
def test_patched_methods_are_obeyed_everywhere(owner: str, method: str) -> None:
    env, policy = make_env(), make_policy()
    td = env.reset(batch_size=20)
    before = check_paths_agree(policy, td, env)
    module = policy.get_submodule(owner)
    original = getattr(module, method)
    setattr(module, method, lambda *args: 0.5 * original(*args))
    assert not torch.allclose(before, check_paths_agree(policy, td, env))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_policies_in_half_precision(problem: str, dtype: torch.dtype) -> None:
    """Networks compute with 8 or 11 bits; likelihoods and rewards are in float32."""
    env, policy = make_env(problem), make_policy(problem).to(dtype)
    td = env.reset(batch_size=3)
    out = policy(td, env)
    assert out["reward"].dtype == out["log_likelihood"].dtype == torch.float32
    out["log_likelihood"].sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in policy.parameters() if p.grad is not None)
    with torch.no_grad():
        policy(td, env, decode_type="greedy")
