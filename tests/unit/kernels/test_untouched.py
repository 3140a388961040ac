"""The one question of kernels: was a module changed in any way?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations

from rl4co.kernels import disabled, is_untouched, may_replace
from rl4co.models.nn.attention import PointerAttention
from rl4co.models.zoo.am import AttentionModelDecoder


class Wrapped(nn.Module):
    """What a library for low-rank adaptation puts in the place of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Sub(nn.Linear):
    pass


def replace_forward(decoder: AttentionModelDecoder) -> None:
    decoder.pointer.forward = lambda *args: args[0]  # type: ignore[method-assign]


CHANGES: dict[str, Callable[[AttentionModelDecoder], object]] = {
    "hook": lambda d: d.pointer.register_forward_hook(lambda *_: None),
    "pre-hook": lambda d: d.pointer.project_out.register_forward_pre_hook(lambda *_: None),
    "backward hook": lambda d: d.pointer.register_full_backward_hook(lambda *_: None),
    "backward pre-hook": lambda d: d.register_full_backward_pre_hook(lambda *_: None),
    "forward of the instance": replace_forward,
    "method of the instance": lambda d: setattr(d, "_query", lambda *_: None),
    "features of the context": lambda d: setattr(d.context_embedding, "features", lambda *_: None),
    "subclass": lambda d: setattr(d, "project_node_embeddings", Sub(8, 24)),
    "wrapper": lambda d: setattr(d.pointer, "project_out", Wrapped(d.pointer.project_out)),
    "weight norm": lambda d: parametrizations.weight_norm(d.pointer.project_out),
    "old weight norm": lambda d: nn.utils.weight_norm(d.project_node_embeddings),
}


def make_decoder() -> AttentionModelDecoder:
    return AttentionModelDecoder(embed_dim=8, num_heads=2, env_name="cvrp")


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(change: str) -> None:
    decoder = make_decoder()
    assert is_untouched(decoder)
    CHANGES[change](decoder)
    assert not is_untouched(decoder)
    assert is_untouched(make_decoder()), "other modules are not concerned"


@pytest.mark.parametrize(
    ("cls", "name"),
    [(nn.Linear, "forward"), (PointerAttention, "glimpse"), (AttentionModelDecoder, "point")],
)
def test_changed_classes_are_seen(
    cls: type[nn.Module], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(cls, name)
    monkeypatch.setattr(cls, name, lambda *args: original(*args))
    assert not is_untouched(make_decoder())


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook"])
def test_global_hooks_are_seen(kind: str) -> None:
    handle = getattr(torch_module, f"register_module_{kind}")(lambda *_: None)
    try:
        assert not is_untouched(make_decoder())
    finally:
        handle.remove()
    assert is_untouched(make_decoder())


def test_a_removed_hook_is_forgotten() -> None:
    decoder = make_decoder()
    decoder.register_forward_hook(lambda *_: None).remove()
    assert is_untouched(decoder)


def test_nothing_is_replaced_with_kernels_off() -> None:
    with disabled():
        assert not may_replace(make_decoder())
        assert is_untouched(make_decoder())
