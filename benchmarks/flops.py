"""Arithmetic of one Attention Model training step, counted by hand.

Only matrix products are counted, 2·m·k·n for an [m, k] x [k, n] product. A product costs one
forward and two backward (gradient of either factor). With B instances, N nodes, T decoding
steps, D embedding, F feed-forward and C context features, L layers, I node features:

    init embedding      B·2·N·I·D                          (no gradient of the coordinates)
    encoder layer       B·(2·N·D·3D + 2·N²·D + 2·N²·D + 2·N·D·D + 2·2·N·D·F)
                           Q, K, V    scores   values   output     feed-forward
    decoder, once       B·(2·N·D·3D + 2·D·D)               glimpse K, V, logit K; graph context
    decoder, per step   B·(2·C·D + 2·N·D + 2·N·D + 2·D·D + 2·N·D)
                           context  scores  values  output  logits

A training step is: encoder and decoder preparation forward and backward; T steps of rollout
forward; T steps of replay forward and backward. A step-by-step implementation keeps the graph
of the rollout instead of replaying it and so can do without the rollout term; both contenders
are measured against the same number.
"""

from __future__ import annotations

from dataclasses import dataclass

NODE_FEATURES = {"tsp": 2, "cvrp": 3}  # x, y (, demand)


@dataclass(frozen=True)
class ModelShape:
    """Sizes of the network; the defaults are those of the Attention Model."""

    embed_dim: int = 128
    feedforward_hidden: int = 512
    num_layers: int = 3


@dataclass(frozen=True)
class StepFlops:
    """Floating point operations of one training step, by part."""

    encoder_forward: float
    encoder_backward: float
    decoder_prepare: float  # forward and backward
    decoder_rollout: float  # forward
    decoder_replay: float  # forward and backward

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return (
            self.encoder_forward
            + self.encoder_backward
            + self.decoder_prepare
            + self.decoder_rollout
            + self.decoder_replay
        )


def num_nodes(problem: str, size: int) -> int:
    """Nodes of an instance with `size` customers, the depot included."""
    return size + 1 if problem == "cvrp" else size


def context_features(problem: str, embed_dim: int) -> int:
    """Input width of the step context: first and last node, or last node and free capacity."""
    return 2 * embed_dim if problem == "tsp" else embed_dim + 1


def am_step_flops(
    problem: str, size: int, batch: int, steps: float, shape: ModelShape | None = None
) -> StepFlops:
    """Count the matrix products of one Attention Model training step (formula: see the module).

    Args:
        problem: `tsp` or `cvrp`.
        size: number of customers.
        batch: instances per step.
        steps: decoding steps T; may be a mean over repetitions.
        shape: sizes of the network.
    """
    shape = shape or ModelShape()
    n, d, f = num_nodes(problem, size), shape.embed_dim, shape.feedforward_hidden
    init = 2 * n * NODE_FEATURES[problem] * d
    attention = 2 * n * d * 3 * d + 4 * n * n * d + 2 * n * d * d
    layers = shape.num_layers * (attention + 4 * n * d * f)
    prepare = 2 * n * d * 3 * d + 2 * d * d
    decode = steps * (2 * context_features(problem, d) * d + 2 * d * d + 6 * n * d)
    return StepFlops(
        encoder_forward=batch * (init + layers),
        encoder_backward=batch * (init + 2 * layers),
        decoder_prepare=batch * 3 * prepare,
        decoder_rollout=batch * decode,
        decoder_replay=batch * 3 * decode,
    )


def encoder_gemm_shapes(
    problem: str, size: int, batch: int, shape: ModelShape | None = None
) -> list[list[int]]:
    """(m, k, n) of the encoder's dense layers: Q/K/V, output, both feed-forward products."""
    shape = shape or ModelShape()
    rows = batch * num_nodes(problem, size)
    d, f = shape.embed_dim, shape.feedforward_hidden
    return [[rows, d, 3 * d], [rows, d, d], [rows, d, f], [rows, f, d]]


def combined_rate(shapes: list[list[int]], rates: list[float]) -> float:
    """Rate of doing all products one after the other: total work over total time."""
    work = [2.0 * m * k * n for m, k, n in shapes]
    return sum(work) / sum(w / rate for w, rate in zip(work, rates, strict=True))
