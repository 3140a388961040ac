"""Incumbents of a search, and the file that keeps them if the process ends.

The file is replaced as a whole, so it is complete at any time. It has the solutions (`solutions`,
`rewards`) and the parameters of the batch that is being
searched: a search that was killed goes on from there and finds what it would have found.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from torch import Tensor, nn
from torch.optim import Optimizer

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.data.digest import add_digest, check_digest
from rl4co.data.io import atomic_write

_FORMAT = "rl4co-search-1"
_TENSORS = ("solutions", "lengths", "rewards", "iterations", "seconds", "history")


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The outcome of a search.

    Attributes:
        actions: Best solution of each instance `[num, T]`, padded with zeros.
        rewards: Their rewards `[num]`.
        history: Best reward of each instance after each iteration `[num, iterations]`; where a
            search ended early, the last one is repeated.
        iterations: Iterations that each instance was searched `[num]`.
        seconds: Time that each instance was searched, together with its batch `[num]`.
    """

    actions: Tensor
    rewards: Tensor
    history: Tensor
    iterations: Tensor
    seconds: Tensor


class SearchRecord:
    """Incumbents of a data set, kept on the CPU.

    Args:
        num: Instances.
        path: File to keep the record in; None: none. An existing one is continued.
        signature: Identifies the search; a file with another one is rejected.
        state: From :meth:`state` of the same search, used where there is no file.
    """

    def __init__(
        self,
        num: int,
        path: str | Path | None = None,
        signature: str = "",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.signature = None if path is None else Path(path), signature
        self.solutions = torch.zeros(num, 0, dtype=torch.int64)
        self.lengths = torch.zeros(num, dtype=torch.int64)
        self.rewards = torch.full((num,), -torch.inf)
        self.iterations = torch.zeros(num, dtype=torch.int64)
        self.history = torch.full((num, 0), torch.nan)
        self.seconds = torch.zeros(num)
        #: The instances that were being searched when the file was written, and their parameters.
        self._unfinished: dict[str, Any] = {}
        if self.path is not None and self.path.exists():
            self._load(self.path)
        elif state is not None and state["signature"] == signature:
            for name in _TENSORS:
                setattr(self, name, state[name])

    def state(self) -> dict[str, Any]:
        """The incumbents as plain values, for a checkpoint."""
        return {"signature": self.signature, **{name: getattr(self, name) for name in _TENSORS}}

    def improve(self, batch: slice, actions: Tensor, rewards: Tensor) -> bool:
        """Replace the incumbents that are worse; return whether any were.

        Args:
            batch: Positions of the instances.
            actions: Solutions `[B, C, T]`.
            rewards: Theirs `[B, C]`.
        """
        best, index = rewards.max(1)  # [B]
        index = index.view(-1, 1, 1).expand(-1, 1, actions.shape[-1])  # [B, 1, T]
        chosen = actions.gather(1, index).squeeze(1).cpu()  # [B, T]
        best = best.cpu()
        if self.rewards.dtype != best.dtype:
            self.rewards, self.history = self.rewards.to(best.dtype), self.history.to(best.dtype)
        length = chosen.shape[-1]
        if length > self.solutions.shape[-1]:
            missing = length - self.solutions.shape[-1]
            self.solutions = torch.nn.functional.pad(self.solutions, (0, missing))
        rows = torch.arange(batch.start, batch.stop)
        better = best > self.rewards[rows]  # [B]
        rows = rows[better]
        self.rewards[rows] = best[better]
        self.solutions[rows] = 0
        self.solutions[rows, :length] = chosen[better]
        self.lengths[rows] = length
        return bool(better.any())

    def close_iteration(self, batch: slice, seconds: float) -> None:
        """Counts an iteration of some instances and notes their incumbents in the history."""
        iteration = int(self.iterations[batch.start])
        if iteration >= self.history.shape[1]:
            missing = iteration + 1 - self.history.shape[1]
            self.history = torch.nn.functional.pad(self.history, (0, missing), value=torch.nan)
        self.history[batch, iteration] = self.rewards[batch]
        self.iterations[batch] = iteration + 1
        self.seconds[batch] += seconds

    def incumbents(self, batch: slice) -> Tensor | None:
        """Best solutions `[B, T]`, -1 after their ends; None before there are any."""
        if not bool((self.lengths[batch] > 0).all()):
            return None
        length = int(self.lengths[batch].max())
        steps = torch.arange(length)
        solutions = self.solutions[batch, :length]
        return torch.where(steps < self.lengths[batch, None], solutions, -1)

    def result(self) -> SearchResult:
        """The outcome as a record."""
        steps = torch.arange(self.history.shape[1])
        # A batch that ended early keeps its last incumbent.
        last = steps.clamp(max=(self.iterations - 1).clamp_min(0).unsqueeze(-1))  # [num, I]
        return SearchResult(
            actions=self.solutions.clone(),
            rewards=self.rewards.clone(),
            history=self.history.gather(1, last),
            iterations=self.iterations.clone(),
            seconds=self.seconds.clone(),
        )

    # ---------------------------------------------------------------- file

    def save(
        self,
        batch: slice | None = None,
        adapted: nn.Module | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        """Replaces the file, if there is one to keep.

        Args:
            batch: Positions of the instances that are being searched; None: none.
            adapted: Their parameters.
            optimizer: The optimizer of these.
        """
        if self.path is None:
            return
        self._unfinished = {}
        if batch is not None and adapted is not None and optimizer is not None:
            self._unfinished = {
                "batch": [batch.start, batch.stop],
                "adapted": adapted.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
        content = {
            "format": _FORMAT,
            "signature": self.signature,
            **{name: getattr(self, name) for name in _TENSORS},
            "unfinished": self._unfinished,
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with atomic_write(self.path) as file:
            file.write(add_digest(buffer.getvalue()))

    def restore(self, batch: slice, adapted: nn.Module, optimizer: Optimizer) -> None:
        """Restores the parameters of interrupted instances; does nothing for others."""
        if self._unfinished.get("batch") == [batch.start, batch.stop]:
            adapted.load_state_dict(self._unfinished["adapted"])
            optimizer.load_state_dict(self._unfinished["optimizer"])

    def _load(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                check_digest(file, path)
                content = torch.load(file, map_location="cpu", weights_only=True)
            if content["format"] != _FORMAT:
                raise FileFormatError(f"expected format {_FORMAT!r}, got {content['format']!r}")
        except Exception as error:  # whatever a foreign or truncated file leads to
            raise FileFormatError(
                f"expected the file of a search in {path}, got another one ({error}); choose "
                "another save_path"
            ) from error
        if content["signature"] != self.signature:
            raise ConfigError(
                f"expected the file of this search in {path}, got one with other instances, "
                "weights, settings or another seed; choose another save_path, or remove the file"
            )
        for name in _TENSORS:
            setattr(self, name, content[name])
        self._unfinished = content["unfinished"]


def fingerprint(settings: Mapping[str, Any], tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A short text that differs for other settings or tensors."""
    digest = hashlib.blake2b(repr(sorted(settings.items())).encode(), digest_size=16)
    for name, tensor in tensors:
        digest.update(f"{name}{list(tensor.shape)}{tensor.dtype}".encode())
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
