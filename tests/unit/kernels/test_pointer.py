"""The fused pointer against the reference implementation in double precision."""

from __future__ import annotations

import itertools
import logging
import math
import subprocess
import sys

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.utils.checkpoint

from torch import Tensor

from rl4co import kernels
from rl4co.core.ops import gather_nodes, step_entropy
from rl4co.decoding.logits import filter_logits, sample_weights
from rl4co.kernels import build, pointer
from rl4co.models.nn.attention import PointerAttention, split_heads

#: Relative to the largest value, float32 against float64.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> pointer.Library:
    """The library of this source, compiled into a temporary folder if it is not built."""
    if not kernels.are_enabled():
        pytest.skip("kernels are switched off")
    path = build.library_path()
    if not path.exists():
        try:
            path = build.build(tmp_path_factory.mktemp("pointer"))
        except build.BuildError as error:
            pytest.skip(f"no library: {error}")
    return pointer.Library(str(path))


@pytest.fixture(params=["best", "avx2", "base"])
def library(
    request: pytest.FixtureRequest, built: pointer.Library, monkeypatch: pytest.MonkeyPatch
) -> pointer.Library:
    """The library with each instruction set that this processor has."""
    level = built.level if request.param == "best" else request.param
    if level not in built.levels() or (request.param != "best" and level == built.level):
        pytest.skip(f"no level {request.param} besides the best")
    chosen = pointer.Library(built.handle._name, level)
    monkeypatch.setattr(pointer, "library", lambda: chosen)
    return chosen


@pytest.fixture
def best(built: pointer.Library, monkeypatch: pytest.MonkeyPatch) -> pointer.Library:
    """The library with the best instruction set."""
    monkeypatch.setattr(pointer, "library", lambda: built)
    return built


class Inputs(NamedTuple):
    """Arguments of a call; keys and values are chunks of one projection, as in a decoder."""

    query: Tensor
    key: Tensor
    value: Tensor
    logit_key: Tensor
    mask: Tensor
    heads: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self[:4]


def inputs(
    batch: int = 2,
    queries: int = 5,
    nodes: int = 7,
    heads: int = 8,
    head_size: int = 16,
    masks: str = "random",
    seed: int = 0,
) -> Inputs:
    rng = torch.Generator().manual_seed(seed)
    size = heads * head_size
    query = torch.randn(batch, queries, size, generator=rng)
    key, value, logit_key = torch.randn(batch, nodes, 3 * size, generator=rng).chunk(3, -1)
    return Inputs(
        query, key, value, logit_key * 0.2, make_mask(batch, queries, nodes, masks, rng), heads
    )


def make_mask(batch: int, queries: int, nodes: int, kind: str, rng: torch.Generator) -> Tensor:
    """Masks with at least one allowed node: `[B, Q, N]`."""
    scores = torch.rand(batch, queries, nodes, generator=rng)
    one = scores == scores.amax(-1, keepdim=True)
    if kind == "none":
        return torch.ones(batch, queries, nodes, dtype=torch.bool)
    if kind == "single":
        return one
    if kind == "shared":
        return ((scores < 0.5) | one)[:, :1].expand(batch, queries, nodes)
    if kind == "steps":  # of solutions: fewer and fewer
        return scores.argsort(-1) >= (torch.arange(queries) % nodes).unsqueeze(-1)
    return (scores < 0.5) | one


def reference_logits(x: Inputs, mask_inner: bool = True, bias: Tensor | None = None) -> Tensor:
    """Raw logits from the pointer attention, whose output projection does nothing here."""
    size = x.query.shape[-1]
    attention = PointerAttention(size, x.heads, mask_inner).to(x.query)
    torch.nn.init.eye_(attention.project_out.weight)
    key, value = (split_heads(part, x.heads) for part in (x.key, x.value))
    logits = attention(x.query, key, value, x.logit_key * math.sqrt(size), x.mask)
    return logits if bias is None else logits + bias.unsqueeze(1)


def reference(
    x: Inputs,
    mask_inner: bool = True,
    mask_logits: bool = True,
    bias: Tensor | None = None,
    **settings: float,
) -> Tensor:
    """Log-probabilities of all actions `[B, Q, N]`."""
    logits = reference_logits(x, mask_inner, bias)
    return filter_logits(logits, x.mask if mask_logits else None, **settings).log_softmax(-1)


def leaves(x: Inputs, dtype: torch.dtype) -> Inputs:
    """The same values as differentiable tensors with the same strides."""
    tensors = [part.detach().to(dtype).requires_grad_() for part in x.tensors]
    return Inputs(*tensors, x.mask, x.heads)  # type: ignore[arg-type]


def assert_close(actual: Tensor, expected: Tensor) -> None:
    scale = 1 + expected.detach().abs().amax().item() if expected.numel() else 1.0
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=TOLERANCE * scale)


def draw_actions(x: Inputs) -> Tensor:
    weights = x.mask.flatten(0, 1).float()
    return torch.multinomial(weights, 1, generator=torch.Generator().manual_seed(1)).view(
        x.query.shape[:2]
    )


SIZES = [(2, 1, 1), (3, 1, 20), (2, 5, 7), (2, 17, 33), (1, 40, 50), (2, 16, 64), (1, 3, 217)]
SETTINGS: list[dict[str, Any]] = [
    {"tanh_clipping": 10.0},
    {},
    {"tanh_clipping": 10.0, "temperature": 0.7, "mask_inner": False, "bias": True},
    {"tanh_clipping": 8.0, "temperature": 1.3, "mask_logits": False, "bias": True},
    {"mask_inner": False, "mask_logits": False},
]
CASES = [
    pytest.param(inputs(*sizes, masks=masks), settings, id=f"{sizes}-{masks}-{i}")
    for sizes, masks, (i, settings) in itertools.product(
        SIZES, ("none", "random", "single", "shared", "steps"), enumerate(SETTINGS)
    )
    if masks in ("random", "steps") or i < 2
] + [
    pytest.param(inputs(2, 19, 23, *heads), settings, id=f"heads{heads}-{i}")
    for heads, (i, settings) in itertools.product(
        [(8, 8), (4, 32), (1, 8), (3, 16), (5, 8)], enumerate(SETTINGS)
    )
]


def with_bias(x: Inputs, settings: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Settings with numbers in place of a wish for a bias."""
    if not settings.get("bias"):
        return settings
    rng = torch.Generator().manual_seed(2)
    bias = torch.randn(x.key.shape[:2], generator=rng).to(dtype)
    return {**settings, "bias": bias.requires_grad_()}


@pytest.mark.parametrize(("x", "settings"), CASES)
def test_log_prob_entropy_and_gradients(
    library: pointer.Library, x: Inputs, settings: dict[str, Any]
) -> None:
    actions = draw_actions(x)
    rng = torch.Generator().manual_seed(3)
    upper, upper_entropy = torch.randn(2, *actions.shape, generator=rng)
    precise, precise_settings = leaves(x, torch.float64), with_bias(x, settings, torch.float64)
    log_probs = reference(precise, **precise_settings)
    expected = gather_nodes(log_probs, actions), step_entropy(log_probs)
    ((expected[0] * upper).sum() + (expected[1] * upper_entropy).sum()).backward()

    single, single_settings = leaves(x, torch.float32), with_bias(x, settings, torch.float32)
    result = pointer.log_prob(*single[:5], actions, x.heads, with_entropy=True, **single_settings)
    assert result is not None and result[1] is not None
    ((result[0] * upper).sum() + (result[1] * upper_entropy).sum()).backward()
    assert_close(result[0], expected[0])
    assert_close(result[1], expected[1])
    for actual, wanted in zip(single.tensors, precise.tensors, strict=True):
        assert actual.grad is not None and wanted.grad is not None
        assert_close(actual.grad, wanted.grad)
    if "bias" in settings:
        assert_close(single_settings["bias"].grad, precise_settings["bias"].grad)


@pytest.mark.parametrize(("x", "settings"), CASES)
@torch.no_grad()
def test_logits_and_choices(library: pointer.Library, x: Inputs, settings: dict[str, Any]) -> None:
    single, precise = with_bias(x, settings, torch.float32), with_bias(x, settings, torch.float64)
    x64 = Inputs(*(part.double() for part in x.tensors), x.mask, x.heads)  # type: ignore[arg-type]
    inner = {key: settings[key] for key in ("mask_inner",) if key in settings}
    logits = pointer.logits(*x, **inner, bias=single.get("bias"))
    assert logits is not None
    assert_close(logits, reference_logits(x64, **inner, bias=precise.get("bias")))

    log_probs = reference(x64, **precise)
    uniform = torch.rand(*x.query.shape[:2], 1, generator=torch.Generator().manual_seed(4))
    from_logits = {key: single[key] for key in single if key not in ("mask_inner", "bias")}
    for numbers, expected in (
        (None, log_probs.argmax(-1)),
        (uniform, sample_weights(log_probs.exp(), uniform=uniform.double())),
    ):
        for choice in (
            pointer.decide(*x, **single, uniform=numbers),
            pointer.select(logits, x.mask, **from_logits, uniform=numbers),
        ):
            assert choice is not None
            assert torch.equal(choice[0], expected)
            assert_close(choice[1], gather_nodes(log_probs, expected))


def test_ties_go_to_the_first(library: pointer.Library) -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0] * 9, [0.0] * 36])
    mask = torch.ones(2, 36, dtype=torch.bool)
    mask[:, 0] = False
    assert pointer.select(logits, mask)[0].tolist() == [1, 1]  # type: ignore[index]
    x = inputs(1, 20, 40, masks="random")
    x = x._replace(logit_key=torch.zeros_like(x.logit_key))
    first = x.mask.byte().argmax(-1)
    assert torch.equal(pointer.decide(*x)[0], first)  # type: ignore[index]


@torch.no_grad()
def test_sampled_frequencies(library: pointer.Library) -> None:
    """Draws follow the distribution: a chi-square statistic within five standard deviations."""
    x = inputs(1, 1, 12)
    draws = 40_000
    many = x._replace(query=x.query.expand(1, draws, -1), mask=x.mask.expand(1, draws, -1))
    uniform = torch.rand(1, draws, generator=torch.Generator().manual_seed(5))
    result = pointer.decide(*many, uniform=uniform)
    assert result is not None
    counts = result[0].flatten().bincount(minlength=12)
    expected = reference(x).exp().flatten() * draws
    assert (counts[~x.mask.flatten()] == 0).all()
    allowed = x.mask.flatten()
    statistic = ((counts - expected)[allowed] ** 2 / expected[allowed]).sum()
    freedom = int(allowed.sum()) - 1
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("queries", [1, 3, 30])
def test_uniform_numbers_at_the_ends(library: pointer.Library, queries: int) -> None:
    """The smallest and the largest number draw the first and the last action that has a weight."""
    x = inputs(2, queries, 37)
    last = x.mask.shape[-1] - 1 - x.mask.flip(-1).byte().argmax(-1)
    for number, expected in ((0.0, x.mask.byte().argmax(-1)), (1 - 2.0**-24, last)):
        uniform = torch.full((2, queries), number)
        result = pointer.decide(*x, uniform=uniform)
        assert result is not None and torch.equal(result[0], expected)


@pytest.mark.parametrize("queries", [2, 20])
def test_queries_without_an_allowed_node(library: pointer.Library, queries: int) -> None:
    """As in torch: NaN, the first action for argmax, the last for a draw; others are unaffected."""
    x = inputs(2, queries, 40)
    mask = x.mask.clone()
    mask[:, 1] = False
    x = leaves(x._replace(mask=mask), torch.float32)
    others = torch.arange(queries) != 1
    actions = mask.byte().argmax(-1)
    result = pointer.log_prob(*x[:5], actions, x.heads, with_entropy=True, tanh_clipping=10.0)
    assert result is not None and result[1] is not None
    expected = reference(x, tanh_clipping=10.0)
    for actual, wanted in zip(
        result, (gather_nodes(expected, actions), step_entropy(expected)), strict=True
    ):
        assert actual is not None and actual[:, 1].isnan().all()
        assert_close(actual[:, others], wanted[:, others])
    (result[0].sum() + result[1].sum()).backward()
    some = leaves(x._replace(query=x.query[:, others], mask=mask[:, others]), torch.float64)
    log_probs = reference(some, tanh_clipping=10.0)
    (gather_nodes(log_probs, actions[:, others]).sum() + step_entropy(log_probs).sum()).backward()
    assert x.query.grad is not None and (x.query.grad[:, 1] == 0).all()
    for actual, wanted in zip(x.tensors[1:], some.tensors[1:], strict=True):
        assert_close(actual.grad, wanted.grad)  # type: ignore[arg-type]
    with torch.no_grad():
        for uniform, action in ((None, 0), (torch.full((2, queries), 0.5), 39)):
            for choice in (
                pointer.decide(*x, uniform=uniform),
                pointer.select(reference_logits(x), mask, uniform=uniform),
            ):
                assert choice is not None
                assert (choice[0][:, 1] == action).all() and choice[1][:, 1].isnan().all()
                assert choice[1][:, others].isfinite().all()
        logits = pointer.logits(*x)
        assert logits is not None and (logits[:, 1] == 0).all()


def test_forbidden_actions_have_no_probability_and_no_gradient(library: pointer.Library) -> None:
    x = leaves(inputs(2, 20, 9, masks="steps"), torch.float32)
    actions = x.mask.byte().argmin(-1)  # forbidden, apart from those where everything is allowed
    forbidden = ~x.mask.all(-1)
    result = pointer.log_prob(*x[:5], actions, x.heads)
    assert result is not None and (result[0].isneginf() == forbidden).all()
    result[0].sum().backward()
    assert x.query.grad is not None
    assert ((x.query.grad == 0).all(-1) == forbidden).all()


@pytest.mark.parametrize("part", ["query", "key", "value", "logit_key"])
@pytest.mark.parametrize("queries", [1, 20])
def test_nan_propagates(library: pointer.Library, part: str, queries: int) -> None:
    x = inputs(2, queries, 30, masks="none")
    bad = getattr(x, part).clone()
    bad[0, 0] = torch.nan
    x = leaves(x._replace(**{part: bad}), torch.float32)
    actions = torch.zeros(2, queries, dtype=torch.int64)
    result = pointer.log_prob(*x[:5], actions, x.heads, with_entropy=True, tanh_clipping=10.0)
    assert result is not None and result[1] is not None
    assert result[0][0, 0].isnan() and result[1][0, 0].isnan() and result[0][1].isfinite().all()
    (result[0].sum() + result[1].sum()).backward()
    assert x.logit_key.grad is not None
    assert x.logit_key.grad[0].isnan().any() and x.logit_key.grad[1].isfinite().all()
    with torch.no_grad():
        expected = reference(x)
        for uniform in (None, torch.full((2, queries), 0.5)):
            choice = pointer.decide(*x, uniform=uniform)
            assert choice is not None and choice[1][0, 0].isnan()
            wanted = (
                expected.argmax(-1)
                if uniform is None
                else sample_weights(expected.exp(), uniform=uniform.unsqueeze(-1))
            )
            assert torch.equal(choice[0], wanted)


@pytest.mark.parametrize(("batch", "queries"), [(0, 3), (2, 0), (0, 0)])
def test_empty_batches(library: pointer.Library, batch: int, queries: int) -> None:
    x = leaves(inputs(1, 1, 5), torch.float32)
    x = Inputs(
        x.query.expand(batch, queries, -1),
        *(part.expand(batch, -1, -1) for part in x.tensors[1:]),
        x.mask.expand(batch, queries, -1),
        x.heads,
    )  # type: ignore[call-arg]
    actions = torch.zeros(batch, queries, dtype=torch.int64)
    result = pointer.log_prob(*x[:5], actions, x.heads, with_entropy=True)
    assert result is not None and result[1] is not None
    assert result[0].shape == result[1].shape == (batch, queries)
    result[0].sum().backward()
    with torch.no_grad():
        assert pointer.logits(*x).shape == (batch, queries, 5)  # type: ignore[union-attr]
        assert pointer.decide(*x)[0].shape == (batch, queries)  # type: ignore[index]


def test_strides(library: pointer.Library) -> None:
    """Expanded batches, rows of larger tensors and masks with gaps give the same numbers."""
    x = inputs(3, 18, 21, masks="shared")
    one = [part[:1].expand(3, -1, -1) for part in x.tensors]
    dense = [part.contiguous() for part in one]
    wide_mask = torch.zeros(3, 18, 60, dtype=torch.bool)
    wide_mask[..., 7:28] = x.mask
    actions = draw_actions(x)
    expected = pointer.log_prob(*dense, x.mask.contiguous(), actions, x.heads)
    for mask in (x.mask, wide_mask[..., 7:28]):
        result = pointer.log_prob(*one, mask, actions, x.heads)
        assert result is not None and expected is not None
        assert torch.equal(result[0], expected[0])
        with torch.no_grad():
            first, second = pointer.decide(*one, mask, 8), pointer.decide(*dense, x.mask, 8)
            assert first is not None and second is not None
            assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_results_do_not_depend_on_threads(
    best: pointer.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointer, "ONE_THREAD", 0)
    x = inputs(5, 40, 30, masks="steps")
    actions, uniform = draw_actions(x), torch.rand(5, 40)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            single = leaves(x, torch.float32)
            out = pointer.log_prob(*single[:5], actions, x.heads, with_entropy=True)
            assert out is not None and out[1] is not None
            (out[0].sum() + out[1].sum()).backward()
            with torch.no_grad():
                logits, choice = pointer.logits(*x), pointer.decide(*x, uniform=uniform)
                assert logits is not None and choice is not None
                selected = pointer.select(logits, x.mask, uniform=uniform)
            assert selected is not None
            grads = [part.grad for part in single.tensors]
            results.append([*out, *grads, logits, *choice, *selected])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            assert torch.equal(first, second)  # type: ignore[arg-type]


def test_only_entropy_has_an_upstream_gradient(best: pointer.Library) -> None:
    x, precise = (leaves(inputs(2, 18, 11), dtype) for dtype in (torch.float32, torch.float64))
    actions = draw_actions(x)
    _, entropy = pointer.log_prob(*x[:5], actions, x.heads, with_entropy=True)  # type: ignore[misc]
    entropy.sum().backward()
    step_entropy(reference(precise)).sum().backward()
    assert_close(x.key.grad, precise.key.grad)  # type: ignore[arg-type]


def test_gradients_under_checkpoints_and_saved_tensor_hooks(best: pointer.Library) -> None:
    """What was saved comes back at other addresses."""
    x = inputs(2, 18, 11)
    actions = draw_actions(x)

    def run(*tensors: Tensor) -> Tensor:
        result = pointer.log_prob(*tensors, x.mask, actions, x.heads)
        assert result is not None
        return result[0]

    def copied(*tensors: Tensor) -> Tensor:
        hooks = torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone)
        with hooks:
            return run(*tensors)

    def recomputed(*tensors: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(run, *tensors, use_reentrant=False)

    grads = []
    for function in (run, copied, recomputed):
        single = leaves(x, torch.float32)
        function(*single.tensors).sum().backward()
        grads.append([part.grad for part in single.tensors])
    for other in grads[1:]:
        for first, second in zip(grads[0], other, strict=True):
            assert torch.equal(first, second)  # type: ignore[arg-type]


def calls(x: Inputs) -> list[Any]:
    actions = torch.zeros(x.query.shape[:2], dtype=torch.int64)
    return [
        lambda: pointer.logits(*x),
        lambda: pointer.decide(*x),
        lambda: pointer.log_prob(*x[:5], actions, x.heads),
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x._replace(query=x.query.double()),
        lambda x: x._replace(key=x.key.half()),
        lambda x: x._replace(value=x.value.to("meta")),
        lambda x: x._replace(logit_key=x.logit_key.mT.contiguous().mT),
        lambda x: x._replace(query=x.query[0]),
        lambda x: x._replace(mask=x.mask.byte()),
        lambda x: x._replace(mask=x.mask[:, :1]),
        lambda x: x._replace(mask=x.mask.mT.contiguous().mT),
        lambda x: x._replace(heads=32),  # heads of 4
        lambda x: x._replace(heads=3),
        lambda x: x._replace(key=x.key[:, :-1]),
    ],
)
def test_other_inputs_are_left_to_the_reference(best: pointer.Library, change: Any) -> None:
    x = change(inputs())
    assert [call() for call in calls(x)] == [None] * 3


def test_steps_do_not_pretend_to_be_differentiable(best: pointer.Library) -> None:
    x = leaves(inputs(), torch.float32)
    assert pointer.logits(*x) is None and pointer.decide(*x) is None
    assert pointer.select(reference_logits(x), x.mask) is None
    with torch.no_grad():
        assert pointer.logits(*x) is not None and pointer.decide(*x) is not None


@pytest.mark.parametrize("action", [-1, 7, 2**40])
def test_actions_out_of_range_are_left_to_the_reference(best: pointer.Library, action: int) -> None:
    """Whose gather raises."""
    x = inputs(nodes=7)
    actions = torch.zeros(2, 5, dtype=torch.int64)
    actions[1, 3] = action
    assert pointer.log_prob(*x[:5], actions, x.heads) is None
    assert pointer.log_prob(*leaves(x, torch.float32)[:5], actions, x.heads) is None


def test_autocast_and_switch(best: pointer.Library) -> None:
    x = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        assert [call() for call in calls(x)] == [None] * 3
    with kernels.disabled():
        assert [call() for call in calls(x)] == [None] * 3
    assert all(call() is not None for call in calls(x))


def test_without_a_library_the_reference_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And one line in the log says so."""
    monkeypatch.setattr(build, "library_path", lambda: tmp_path / "absent.so")
    pointer.library.cache_clear()
    try:
        with caplog.at_level(logging.INFO, "rl4co"):
            assert [call() for call in calls(inputs())] == [None] * 3
    finally:
        pointer.library.cache_clear()
    assert len(caplog.records) == kernels.are_enabled()


def test_a_broken_library_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    monkeypatch.setattr(build, "library_path", lambda: tmp_path / "broken.so")
    pointer.library.cache_clear()
    try:
        assert pointer.decide(*inputs()) is None
    finally:
        pointer.library.cache_clear()


def test_the_name_of_a_library_holds_the_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that one which was built from another source is never loaded."""
    before = build.library_path(tmp_path)
    changed = tmp_path / "pointer.cpp"
    changed.write_bytes(build.SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(build, "SOURCE", changed)
    assert build.library_path(tmp_path) != before


def test_a_failing_compiler_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", f"{sys.executable} -c raise(SystemExit(1))")
    with pytest.raises(build.BuildError):
        build.build(tmp_path)
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(build.BuildError, match="compiler"):
        build.build(tmp_path)
    assert build.main() == 1 and "compiler" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_building_imports_nothing_heavy() -> None:
    """It runs while the package is being installed, before its dependencies are there."""
    code = (
        f"import runpy, sys; runpy.run_path({str(build.SOURCE.with_name('build.py'))!r}); "
        "assert not {'torch', 'numpy', 'rl4co'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
