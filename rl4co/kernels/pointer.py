"""The pointer attention of a decoder, fused: glimpse, logits, masked softmax, choice or likelihood.

The reference implementation is :class:`rl4co.models.nn.attention.PointerAttention` followed by the
functions of :mod:`rl4co.decoding.logits`. Every function here returns None where that one has to
run: without the library (see :mod:`rl4co.kernels.build`), with kernels switched off, on another
device or in another dtype, under autocast and `torch.compile`.

Shapes:
    `query [B, Q, D]`; `key`, `value`, `logit_key [B, N, D]`, where heads are consecutive slices of
    D; `mask [B, Q, N]` (True = allowed); `bias [B, N]`, added to the logits. Logits are the
    products of the concatenated heads with `logit_key`, so the caller folds an output projection
    into this.

A query that may attend to nothing has a glimpse of zeros, as in torch's fused attention; without an
allowed action its log-probability and entropy are NaN, without gradients.
"""

from __future__ import annotations

import ctypes
import functools
import logging

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch import Tensor
from torch.autograd.function import once_differentiable

from rl4co.kernels.switch import are_enabled
from rl4co.kernels.threads import run_in_chunks

log = logging.getLogger(__name__)

#: Pairs of a query and a node up to which a second thread costs more than it brings.
ONE_THREAD = 2**14

_HEAD_SIZES = (8, 16, 32)
_CPU = torch.device("cpu")


class _Call(ctypes.Structure):
    """Arguments of the library, field by field those of `Call` in pointer.cpp."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in ("query", "key", "value", "logit_key", "bias", "mask")
        ),
        *(
            (name, ctypes.c_int64)
            for name in (
                *("query_batch", "query_row", "key_batch", "key_row", "value_batch", "value_row"),
                *("logit_key_batch", "logit_key_row", "bias_batch", "mask_batch", "mask_row"),
                *("queries", "nodes", "heads", "head_size", "mask_inner", "mask_logits"),
            )
        ),
        *((name, ctypes.c_double) for name in ("temperature", "clipping")),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("logits", "uniform", "action", "log_prob", "entropy"),
                *("glimpse", "glimpse_total", "total", "grad_log_prob", "grad_entropy"),
                *("grad_query", "grad_key", "grad_value", "grad_logit_key", "grad_bias"),
            )
        ),
    ]


class Library:
    """The functions of a built library for one instruction set.

    Args:
        path: The library.
        level: Instruction set (default: the best that this processor has).
    """

    def __init__(self, path: str, level: str | None = None) -> None:
        self.handle = ctypes.CDLL(path)
        self.level = level or self.levels()[0]
        for name in ("logits", "decide", "select", "log_prob", "backward"):
            function = getattr(self.handle, f"pointer_{name}_{self.level}")
            function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
            setattr(self, name, function)

    logits: Callable[..., int]
    decide: Callable[..., int]
    select: Callable[..., int]
    log_prob: Callable[..., int]
    backward: Callable[..., int]

    def levels(self) -> list[str]:
        """Instruction sets that the library was built for and this processor has, best first."""
        return [
            level
            for level in ("avx512", "avx2", "base")
            if hasattr(self.handle, f"pointer_decide_{level}")
            and self.handle.pointer_runs(level.encode())
        ]


@functools.cache
def library() -> Library | None:
    """The built library; None if there is none, which is logged once."""
    # Imported here, because `python -m rl4co.kernels.build` must not find itself imported already.
    from rl4co.kernels import build

    path = build.library_path()
    if path.exists():
        try:
            return Library(str(path))
        except (OSError, AttributeError) as error:
            log.info("pointer kernel cannot be loaded: %s", error)
            return None
    log.info(
        "pointer kernel is not built, the reference implementation runs; "
        "build it with python -m rl4co.kernels.build"
    )
    return None


def applies(*tensors: Tensor, differentiable: bool = False) -> bool:
    """Whether the library may compute with these tensors here and now.

    Args:
        tensors: Queries, keys or logits.
        differentiable: Whether gradients may be wanted.
    """
    return _library_for(tensors, differentiable) is not None


def logits(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logit_key: Tensor,
    mask: Tensor,
    num_heads: int,
    mask_inner: bool = True,
    bias: Tensor | None = None,
) -> Tensor | None:
    """Logits `[B, Q, N]` without clipping and masks; not differentiable.

    Args:
        query: `[B, Q, D]`.
        key: `[B, N, D]`.
        value: `[B, N, D]`.
        logit_key: `[B, N, D]`.
        mask: `[B, Q, N]`.
        num_heads: Heads of the glimpse.
        mask_inner: Whether the glimpse attends to allowed nodes only.
        bias: `[B, N]`.
    """
    tensors = (query, key, value, logit_key, bias)
    lib = _library_for(tensors)
    call = None if lib is None else _call(*tensors, mask, num_heads, mask_inner)
    if lib is None or call is None:
        return None
    out = query.new_empty(*query.shape[:2], key.shape[1])
    call.logits = out.data_ptr()
    return out if _run(lib.logits, call, len(query), mask.numel()) else None


def decide(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logit_key: Tensor,
    mask: Tensor,
    num_heads: int,
    *,
    mask_inner: bool = True,
    mask_logits: bool = True,
    temperature: float = 1.0,
    tanh_clipping: float = 0.0,
    uniform: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """Actions `[B, Q]` and their log-probabilities `[B, Q]`; not differentiable.

    Args:
        query: See :func:`logits`, like all that is not listed.
        key: See there.
        value: See there.
        logit_key: See there.
        mask: See there.
        num_heads: See there.
        mask_inner: See there.
        mask_logits: Whether forbidden actions have probability zero.
        temperature: Divides the logits.
        tanh_clipping: Bound of the tanh clipping (0 = none).
        uniform: Numbers in [0, 1) `[B, Q]` or `[B, Q, 1]` to draw with, see `sample_weights`; None:
            the most likely action, the first on ties.
        bias: See there.
    """
    tensors = (query, key, value, logit_key, bias)
    lib = _library_for(tensors)
    if lib is None:
        return None
    settings = (mask_inner, mask_logits, temperature, tanh_clipping)
    call = _call(*tensors, mask, num_heads, *settings)
    if call is None:
        return None
    chosen = _chosen(call, query.shape[:2], uniform)
    if chosen is None or not _run(lib.decide, call, len(query), mask.numel()):
        return None
    return chosen


def select(
    logits: Tensor,
    mask: Tensor,
    *,
    mask_logits: bool = True,
    temperature: float = 1.0,
    tanh_clipping: float = 0.0,
    uniform: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """The choice of :func:`decide` from logits `[B, Q, N]` that are neither clipped nor masked.

    Args:
        logits: `[B, Q, N]` or `[B, N]`.
        mask: Of the same shape.
        mask_logits: See :func:`decide`, like all that follows.
        temperature: See there.
        tanh_clipping: See there.
        uniform: See there.
    """
    lib = _library_for((logits,))
    if lib is None or logits.dim() not in (2, 3) or mask.shape != logits.shape:
        return None
    stride = mask.stride()
    if not _is_mask(mask, stride) or not logits.shape[-1]:
        return None
    logits, shape = logits.contiguous(), logits.shape[:-1]
    call = _Call(mask_logits=mask_logits, temperature=temperature, clipping=tanh_clipping)
    call.logits, call.mask = logits.data_ptr(), mask.data_ptr()
    call.queries, call.nodes = logits.shape[1] if logits.dim() == 3 else 1, logits.shape[-1]
    call.mask_batch, call.mask_row = stride[0], stride[1] if logits.dim() == 3 else 0
    chosen = _chosen(call, shape, uniform)
    if chosen is None:
        return None
    pairs = logits.numel() // 16  # a logit costs more to compute than to compare
    return chosen if _run(lib.select, call, shape.numel(), pairs) else None


def log_prob(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logit_key: Tensor,
    mask: Tensor,
    chosen: Tensor,
    num_heads: int,
    *,
    mask_inner: bool = True,
    mask_logits: bool = True,
    temperature: float = 1.0,
    tanh_clipping: float = 0.0,
    with_entropy: bool = False,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None] | None:
    """Log-probabilities `[B, Q]` of actions, and entropies of their distributions; differentiable.

    Nothing of size `Q * N` is stored for the backward pass. The log-probability of a forbidden
    action is minus infinity, without gradients.

    Args:
        query: See :func:`decide`, like all that is not listed.
        key: See there.
        value: See there.
        logit_key: See there.
        mask: See there.
        chosen: Actions `[B, Q]`, int64.
        num_heads: See there.
        mask_inner: See there.
        mask_logits: See there.
        temperature: See there.
        tanh_clipping: See there.
        with_entropy: Whether to compute the entropies too.
        bias: See there.
    """
    tensors = (query, key, value, logit_key, bias)
    lib = _library_for(tensors, differentiable=True)
    if lib is None:
        return None
    settings = (mask_inner, mask_logits, temperature, tanh_clipping)
    call = _call(*tensors, mask, num_heads, *settings)
    if call is None:
        return None
    if chosen.dtype is not torch.int64 or not chosen.is_cpu or chosen.shape != query.shape[:2]:
        return None
    try:
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
            return _LogProb.apply(*tensors, mask, chosen.contiguous(), lib, call, with_entropy)
        return _log_prob(lib, call, query, chosen.contiguous(), with_entropy)
    except _DoesNotApply:
        return None


class _DoesNotApply(Exception):
    """The library returned a status; if something is wrong, the reference raises the error."""


def _log_prob(
    lib: Library, call: _Call, query: Tensor, chosen: Tensor, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities and entropies; what `call` has memory for is kept for the backward pass."""
    out = query.new_empty(chosen.shape)
    entropy = query.new_empty(chosen.shape) if with_entropy else None
    call.action, call.log_prob = chosen.data_ptr(), out.data_ptr()
    call.entropy = None if entropy is None else entropy.data_ptr()
    if not _run(lib.log_prob, call, len(query), chosen.numel() * call.nodes):
        raise _DoesNotApply
    return out, entropy


class _LogProb(torch.autograd.Function):
    """:func:`log_prob` as one differentiable operation."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        logit_key: Tensor,
        bias: Tensor | None,
        mask: Tensor,
        chosen: Tensor,
        lib: Library,
        call: _Call,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor | None]:
        glimpse = query.new_empty(query.shape)
        glimpse_total = query.new_empty(len(query), call.heads, query.shape[1])
        total = query.new_empty(query.shape[:2])
        call.glimpse, call.glimpse_total = glimpse.data_ptr(), glimpse_total.data_ptr()
        call.total = total.data_ptr()
        out, entropy = _log_prob(lib, call, query, chosen, with_entropy)
        ctx.lib, ctx.call = lib, call
        ctx.save_for_backward(
            *(query, key, value, logit_key, bias, mask),
            *(chosen, glimpse, glimpse_total, total, entropy),
        )
        ctx.set_materialize_grads(False)
        return out, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_entropy: Tensor | None) -> tuple[Any, ...]:
        # What was saved may lie elsewhere now: hooks can move it to another device and back.
        query, key, value, logit_key, bias, mask, chosen, *kept = ctx.saved_tensors
        tensors = (query, key, value, logit_key, bias)
        old = ctx.call
        settings = (old.mask_inner, old.mask_logits, old.temperature, old.clipping)
        call = _call(*tensors, mask, old.heads, *settings)
        assert call is not None, "saved tensors changed their layout"
        upper = (query.new_zeros(chosen.shape) if grad is None else grad).contiguous()
        upper_entropy = None if grad_entropy is None else grad_entropy.contiguous()
        grads = [None if x is None else x.new_empty(x.shape) for x in tensors]
        names = ("action", "glimpse", "glimpse_total", "total", "entropy")
        _set(call, names, (chosen, *kept))
        _set(call, ("grad_log_prob", "grad_entropy"), (upper, upper_entropy))
        names = ("grad_query", "grad_key", "grad_value", "grad_logit_key", "grad_bias")
        _set(call, names, grads)
        if not _run(ctx.lib.backward, call, len(query), 3 * mask.numel()):
            raise MemoryError("expected memory for the gradients of the pointer, got none")
        return (*grads, None, None, None, None, None)


def _set(call: _Call, names: Sequence[str], tensors: Sequence[Tensor | None]) -> None:
    for name, x in zip(names, tensors, strict=True):
        setattr(call, name, None if x is None else x.data_ptr())


#: Subclasses may do anything when they are read.
_TENSORS = (Tensor, torch.nn.Parameter)


def _library_for(
    tensors: tuple[Tensor | None, ...], differentiable: bool = False
) -> Library | None:
    """The library, if it may compute with these tensors here and now."""
    if not are_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return None
    if torch._C._are_functorch_transforms_active():
        return None
    lacks_gradients = not differentiable and torch.is_grad_enabled()
    for x in tensors:
        if x is not None and (
            x.dtype is not torch.float32
            or not x.is_cpu
            or type(x) not in _TENSORS
            or (lacks_gradients and x.requires_grad)
        ):
            return None
    return library()


def _is_mask(mask: Tensor, stride: tuple[int, ...]) -> bool:
    return mask.dtype is torch.bool and mask.is_cpu and type(mask) is Tensor and stride[-1] == 1


def _call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logit_key: Tensor,
    bias: Tensor | None,
    mask: Tensor,
    num_heads: int,
    mask_inner: bool,
    mask_logits: bool = True,
    temperature: float = 1.0,
    tanh_clipping: float = 0.0,
) -> _Call | None:
    """Arguments that all functions share; None for shapes or strides that they do not support."""
    by_query, by_key, by_value = query.stride(), key.stride(), value.stride()
    by_logit_key, by_mask, shape = logit_key.stride(), mask.stride(), key.shape
    if len(by_query) != 3 or len(by_key) != 3 or not _is_mask(mask, by_mask):
        return None
    batch, queries, size = query.shape
    nodes, head_size = shape[1], size // num_heads
    if not (by_query[2] == by_key[2] == by_value[2] == by_logit_key[2] == 1):
        return None
    if shape != (batch, nodes, size) or shape != value.shape or shape != logit_key.shape:
        return None
    if mask.shape != (batch, queries, nodes) or not nodes:
        return None
    if head_size not in _HEAD_SIZES or head_size * num_heads != size:
        return None
    bias_address = bias_batch = 0
    if bias is not None:
        if bias.shape != (batch, nodes) or bias.stride(1) != 1:
            return None
        bias_address, bias_batch = bias.data_ptr(), bias.stride(0)
    return _Call(
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        logit_key.data_ptr(),
        bias_address,
        mask.data_ptr(),
        by_query[0],
        by_query[1],
        by_key[0],
        by_key[1],
        by_value[0],
        by_value[1],
        by_logit_key[0],
        by_logit_key[1],
        bias_batch,
        by_mask[0],
        by_mask[1],
        queries,
        nodes,
        num_heads,
        head_size,
        mask_inner,
        mask_logits,
        temperature,
        tanh_clipping,
    )


def _chosen(call: _Call, shape: torch.Size, uniform: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Actions and log-probabilities to be filled by the call."""
    if uniform is not None:
        if uniform.dtype is not torch.float32 or not uniform.is_contiguous():
            return None
        if uniform.numel() != shape.numel() or not uniform.is_cpu:
            return None
        call.uniform = uniform.data_ptr()
    action = torch.empty(shape, dtype=torch.int64, device=_CPU)
    log_prob = torch.empty(shape, dtype=torch.float32, device=_CPU)
    call.action, call.log_prob = action.data_ptr(), log_prob.data_ptr()
    return action, log_prob


def _run(function: Callable[..., int], call: _Call, rows: int, pairs: int) -> bool:
    """Runs a function of the library over instances or rows; False if it reports that it cannot.

    Args:
        function: The function.
        call: Its arguments.
        rows: Instances or rows, which threads share.
        pairs: Pairs of a query and a node, or work that takes as long.
    """
    address, threads = ctypes.addressof(call), torch.get_num_threads()
    if threads == 1 or pairs <= ONE_THREAD:
        return function(address, 0, rows) == 0
    done: list[int] = []
    run_in_chunks(
        lambda chunk: done.append(function(address, chunk.start, chunk.stop)), rows, threads
    )
    return not any(done)
