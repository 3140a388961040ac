"""Single machine weighted tardiness instances of the OR-Library (`wt40.txt`, `wt50.txt`, ...).

A file is nothing but whole numbers: for one instance after another, the processing times of all
jobs, then their weights, then their due dates. Files of best-known values (`wtopt40.txt`, ...) have
one number per instance.

Reference: Crauwels, Potts and Van Wassenhove (1998),
http://people.brunel.ac.uk/~mastjjb/jeb/orlib/wtinfo.html
"""

from __future__ import annotations

import os

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.data.formats.source import TRUNCATED, Source

#: Instances in each file of the OR-Library.
NUM_INSTANCES = 125


def read_weighted_tardiness(path: str | os.PathLike[str], num_job: int | None = None) -> TensorDict:
    """Reads all instances of a file, in its units, as float64: costs of the environment are exact.

    For a policy that was trained on generated instances, divide times and weights by their largest
    values first (and convert to float32).

    Args:
        path: The file.
        num_job: Jobs of each instance. The file does not tell; None: as many as there are in 125
            instances, which is what the files of the OR-Library have.

    Returns:
        `job_due_time`, `job_weight`, `job_process_time` `[B, num_job + 1]` with a dummy job first.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: The numbers do not make up whole instances, or are not sensible.
    """
    source = Source.read(path)
    numbers = _whole_numbers(source)
    check_at_least(1, num_job=num_job)
    expected = 3 * (NUM_INSTANCES if num_job is None else num_job)
    if len(numbers) % expected:
        unit = f"{NUM_INSTANCES} instances" if num_job is None else f"jobs in sets of {num_job}"
        raise source.fault(
            f"a multiple of {expected} numbers (times, weights and due dates for {unit})",
            len(numbers),
            TRUNCATED if num_job else "give num_job if there is another number of instances",
        )
    size = len(numbers) // expected if num_job is None else num_job
    table = torch.tensor(numbers, dtype=torch.float64).view(-1, 3, size)  # [B, 3, J]
    wrong = (table[:, :2] <= 0).any(-1)  # [B, 2], dues may be anything
    if wrong.any():
        instance, row = wrong.nonzero()[0].tolist()
        name = ("processing times", "weights")[row]
        raise source.fault(
            f"positive {name}", f"{int(table[instance, row].min())} in instance {instance + 1}",
            "is num_job right?",
        )  # fmt: skip
    padded = torch.cat([torch.zeros_like(table[..., :1]), table], -1)  # [B, 3, J + 1]
    process, weight, due = padded.unbind(1)
    instances = {"job_due_time": due, "job_weight": weight, "job_process_time": process}
    return TensorDict(
        {key: value.contiguous() for key, value in instances.items()}, batch_size=[len(table)]
    )


def read_best_tardiness(path: str | os.PathLike[str]) -> Tensor:
    """Best-known values of all instances of a file, `[B]`, float64."""
    return torch.tensor(_whole_numbers(Source.read(path)), dtype=torch.float64)


def _whole_numbers(source: Source) -> list[int]:
    return [
        value
        for line, text in enumerate(source.lines, start=1)
        for value in source.integers(text.split(), line)
    ]
