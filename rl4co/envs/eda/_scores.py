"""Scores of decap placements: how much of the impedance at the probing ports they take away.

A decap at a cell is an impedance $z_d$ from there to ground. With decaps at the cells D, the
impedance at port p is

$$Z'_{pp} = Z_{pp} - Z_{pD} \\, (Z_{DD} + \\mathrm{diag}(z_d))^{-1} Z_{Dp}$$

and the score of the placement at this port sums up the change over all frequencies f in gigahertz:

$$\\mathrm{score}_p = \\sum_f \\frac{|Z_{pp}(f)| - |Z'_{pp}(f)|}{10 f}$$

As in the published code, $z_d$ is the magnitude of the decap's impedance, a resistance. All ports
of an instance share one solve, and nothing but the entries that are needed is computed.
"""

from __future__ import annotations

import numpy as np
import torch

from numpy.typing import NDArray
from torch import Tensor

from rl4co.envs.eda._chip import Chip
from rl4co.kernels import are_enabled, compiled, run_in_chunks

#: Ohms through which no current flows that a float could hold: as good as no decap.
NO_DECAP = 1e12
#: Numbers in the matrices that are solved at once (a row has F · K²), which bounds the memory.
_SOLVED_AT_ONCE = 2**23


def placement_scores(chip: Chip, cells: Tensor, counted: Tensor, ports: Tensor) -> Tensor:
    """Scores of placements at several ports.

    Computed in the precision of the environment's floats: float32, on a CPU by a compiled loop.

    Args:
        chip: The chip.
        cells: Cells with decaps `[*B, K]`.
        counted: Which of them count `[*B, K]`; the others are as if they were not there.
        ports: Cells at which to measure `[*B, P]`; a negative one gives 0.

    Returns:
        `[*B, P]`.
    """
    batch = cells.shape[:-1]
    flat = cells.reshape(-1, cells.shape[-1])  # [R, K]
    rows = flat, counted.reshape(flat.shape), ports.reshape(-1, ports.shape[-1])
    if cells.device.type == "cpu" and are_enabled() and not torch.compiler.is_compiling():
        scores = _score_compiled(chip, *rows)
    else:
        scores = score_by_solve(chip, *rows)
    return scores.view(*batch, -1)


def score_by_solve(
    chip: Chip,
    cells: Tensor,
    counted: Tensor,
    ports: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """:func:`placement_scores` by batched solves: `[R, K], [R, K], [R, P]` → `[R, P]`."""
    impedance, decap, weight = chip.tensors(cells.device, dtype)
    size = max(1, _SOLVED_AT_ONCE // (len(decap) * max(cells.shape[-1], 1) ** 2))
    scores = [
        _solve_rows(impedance, decap, weight, *rows)
        for rows in zip(cells.split(size), counted.split(size), ports.split(size), strict=True)
    ]
    return torch.cat(scores)


def _solve_rows(
    impedance: Tensor, decap: Tensor, weight: Tensor, cells: Tensor, counted: Tensor, ports: Tensor
) -> Tensor:
    measured = ports.clamp_min(0)  # [R, P]
    among = impedance[:, cells.unsqueeze(-1), cells.unsqueeze(-2)]  # [F, R, K, K]
    loads = torch.where(counted, decap.view(-1, 1, 1), NO_DECAP)  # [F, R, K]
    among.diagonal(dim1=-2, dim2=-1).add_(loads)  # a copy of the chip's numbers, so in place
    across = impedance[:, cells.unsqueeze(-1), measured.unsqueeze(-2)]  # [F, R, K, P]
    # The real part of a passive network is positive definite, so there is nothing to check.
    currents = torch.linalg.solve_ex(among, across, check_errors=False).result
    before = impedance[:, measured, measured]  # [F, R, P]
    after = before - (across * currents).sum(-2)
    scores = ((before.abs() - after.abs()) * weight.view(-1, 1, 1)).sum(0)  # [R, P]
    return scores * (ports >= 0)


# ---------------------------------------------------------------- compiled


def _score_compiled(chip: Chip, cells: Tensor, counted: Tensor, ports: Tensor) -> Tensor:
    """:func:`score_by_solve` by elimination, one placement after the other."""
    real, imag, decap, weight = chip.arrays()
    out = np.empty(tuple(ports.shape), dtype=np.float32)
    # Decaps that do not count are marked by a negative cell.
    kept = torch.where(counted, cells, -1).numpy()
    measured = ports.contiguous().numpy()

    def run(rows: range) -> None:
        part = slice(rows.start, rows.stop)
        eliminate(real, imag, decap, weight, kept[part], measured[part], out[part])

    run_in_chunks(run, len(out), torch.get_num_threads())
    return torch.from_numpy(out)


@compiled(fast_sums=True)
def eliminate(
    real: NDArray[np.float32],
    imag: NDArray[np.float32],
    decap: NDArray[np.float32],
    weight: NDArray[np.float32],
    cells: NDArray[np.int64],
    ports: NDArray[np.int64],
    out: NDArray[np.float32],
) -> None:
    """Scores `[R, P]` of placements, written to `out`.

    Symmetric elimination of one decap after the other, at all frequencies side by side. It needs no
    pivots because the real part of the matrix is positive definite.

    Args:
        real: Real part of the impedance `[N, N, F]`.
        imag: Imaginary part.
        decap: Magnitude of a decap's impedance `[F]`.
        weight: Weights of the frequencies `[F]`.
        cells: Cells with decaps `[R, K]`, negative where there is none.
        ports: Cells at which to measure `[R, P]`, negative where there is none.
        out: `[R, P]`.
    """
    num_frequencies = real.shape[2]
    most = cells.shape[1] + ports.shape[1]
    nodes = np.empty(most, np.int64)
    # Lower triangles; of the ports among each other only the diagonal.
    a = np.empty((most, most, num_frequencies), np.float32)
    b = np.empty((most, most, num_frequencies), np.float32)
    pivot_a, pivot_b = np.empty(num_frequencies, np.float32), np.empty(num_frequencies, np.float32)
    factor_a, factor_b = np.empty_like(pivot_a), np.empty_like(pivot_b)
    for row in range(len(cells)):
        num_decaps = 0
        for cell in cells[row]:
            if cell >= 0:
                nodes[num_decaps] = cell
                num_decaps += 1
        size = num_decaps
        for port in ports[row]:
            if port >= 0:
                nodes[size] = port
                size += 1
        for i in range(size):
            for j in range(min(i, num_decaps)):
                a[i, j] = real[nodes[i], nodes[j]]
                b[i, j] = imag[nodes[i], nodes[j]]
            a[i, i] = real[nodes[i], nodes[i]]
            b[i, i] = imag[nodes[i], nodes[i]]
            if i < num_decaps:
                a[i, i] += decap
        for k in range(num_decaps):
            invert(a[k, k], b[k, k], pivot_a, pivot_b)
            for i in range(k + 1, size):
                multiply(a[i, k], b[i, k], pivot_a, pivot_b, factor_a, factor_b)
                for j in range(k + 1, min(i, num_decaps)):
                    subtract_product(a[i, j], b[i, j], factor_a, factor_b, a[j, k], b[j, k])
                subtract_product(a[i, i], b[i, i], factor_a, factor_b, a[i, k], b[i, k])
        position = num_decaps
        for p in range(ports.shape[1]):
            port = ports[row, p]
            out[row, p] = 0.0
            if port >= 0:
                before = weighted_sum(real[port, port], imag[port, port], weight)
                after = weighted_sum(a[position, position], b[position, position], weight)
                out[row, p] = before - after
                position += 1


@compiled(fast_sums=True, inline=True)
def invert(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    inverse_a: NDArray[np.float32],
    inverse_b: NDArray[np.float32],
) -> None:
    """$1 / (a + bi)$, elementwise."""
    for f in range(len(a)):
        square = a[f] * a[f] + b[f] * b[f]
        inverse_a[f] = a[f] / square
        inverse_b[f] = -b[f] / square


@compiled(fast_sums=True, inline=True)
def multiply(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    c: NDArray[np.float32],
    d: NDArray[np.float32],
    product_a: NDArray[np.float32],
    product_b: NDArray[np.float32],
) -> None:
    """$(a + bi)(c + di)$, elementwise."""
    for f in range(len(a)):
        product_a[f] = a[f] * c[f] - b[f] * d[f]
        product_b[f] = a[f] * d[f] + b[f] * c[f]


@compiled(fast_sums=True, inline=True)
def subtract_product(
    target_a: NDArray[np.float32],
    target_b: NDArray[np.float32],
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    c: NDArray[np.float32],
    d: NDArray[np.float32],
) -> None:
    """Takes $(a + bi)(c + di)$ off the target, elementwise."""
    for f in range(len(target_a)):
        target_a[f] -= a[f] * c[f] - b[f] * d[f]
        target_b[f] -= a[f] * d[f] + b[f] * c[f]


@compiled(fast_sums=True, inline=True)
def weighted_sum(
    a: NDArray[np.float32], b: NDArray[np.float32], weight: NDArray[np.float32]
) -> float:
    """$\\sum_f w_f |a_f + b_f i|$, added up in double precision."""
    total = 0.0
    for f in range(len(a)):
        total += weight[f] * np.sqrt(a[f] * a[f] + b[f] * b[f])
    return total


# ---------------------------------------------------------------- curves


def port_impedance(chip: Chip, cells: list[int], port: int) -> NDArray[np.float64]:
    """Magnitude of the impedance at a port with decaps at some cells, for figures: `[F]`."""
    impedance = chip.impedance
    value = impedance[:, port, port]
    if cells:
        across = impedance[:, cells, port]  # [F, K]
        loads = np.abs(chip.decap)[:, None, None] * np.eye(len(cells))
        among = impedance[:, cells][:, :, cells] + loads  # [F, K, K]
        value = value - (across * np.linalg.solve(among, across[..., None])[..., 0]).sum(-1)
    return np.abs(value)
