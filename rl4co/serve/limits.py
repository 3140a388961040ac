"""Limits of the service; `rl4co serve` has an option for each."""

from __future__ import annotations

import dataclasses

from rl4co.core.checks import check_at_least, check_positive


@dataclasses.dataclass(frozen=True)
class Limits:
    """What clients may ask for.

    Args:
        max_body: Bytes of a request.
        max_content: Bytes of a file after decompression.
        max_nodes: Nodes, vertices or operations of an instance.
        max_jobs: Jobs that run at the same time.
        max_queue: Jobs that wait; further ones get the status 429.
        max_methods: Methods of a job.
        max_seconds: Seconds of each method.
        max_memory: Bytes of memory of each worker process (on Linux).
        max_waiting: Short requests (random instances, files, decisions) at the same time.
        request_seconds: Seconds of a short request.
        max_kept: Finished jobs that are kept; the oldest are removed.
        max_kept_bytes: Bytes of their events.
    """

    max_body: int = 8 * 2**20
    max_content: int = 32 * 2**20
    max_nodes: int = 1000
    max_jobs: int = 2
    max_queue: int = 16
    max_methods: int = 4
    max_seconds: float = 60.0
    max_memory: int = 4 * 2**30
    max_waiting: int = 64
    request_seconds: float = 30.0
    max_kept: int = 100
    max_kept_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        check_at_least(0, max_queue=self.max_queue)
        fields = dataclasses.asdict(self)
        del fields["max_queue"]
        check_positive(**fields)
