"""Texts of job shops as files have them: the standard format, Taillard's and FJS."""

from __future__ import annotations

from rl4co.core.errors import InvalidInstanceError
from rl4co.data.formats.shop import ShopInstance


def format_fjs(instance: ShopInstance, *, machines_from: int = 1) -> str:
    """The text of a file, with the mean number of eligible machines in its first line.

    Args:
        instance: The instance.
        machines_from: Number of the first machine, 0 or 1.
    """
    eligible = sum(len(operation) for job in instance.jobs for operation in job)
    flexibility = round(eligible / instance.num_ops, 5)
    lines = [f"{instance.num_jobs} {instance.num_machines} {flexibility:g}"]
    for job in instance.jobs:
        words = [len(job)]
        for operation in job:
            words.append(len(operation))
            for machine, time in operation.items():
                words += [machine + machines_from, time]
        lines.append(" ".join(map(str, words)))
    return "\n".join([*lines, ""])


def format_jsplib(instance: ShopInstance) -> str:
    """The text of a file in the standard format, machines from 0.

    The format has as many operations in each job as there are machines: a shorter job ends with
    operations that take no time, on machines that it does not visit. Reading leaves them out again.

    Raises:
        InvalidInstanceError: An operation has several machines, or a job more operations than there
            are machines; the FJS format allows both.
    """
    lines = [f"# instance {instance.name}", f"{instance.num_jobs} {instance.num_machines}"]
    for row in _pairs(instance):
        lines.append(" ".join(f"{machine} {time}" for machine, time in row))
    return "\n".join([*lines, ""])


def format_taillard(instance: ShopInstance) -> str:
    """The text of a file in Taillard's format, machines from 1; bounds that are not known are 0.

    Raises:
        InvalidInstanceError: See :func:`format_jsplib`.
    """
    rows = _pairs(instance)
    bounds = [f"{instance.upper_bound or 0:g}", f"{instance.lower_bound or 0:g}"]
    lines = [
        "Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound",
        " ".join([str(instance.num_jobs), str(instance.num_machines), "0", "0", *bounds]),
        "Times",
        *(" ".join(str(time) for _, time in row) for row in rows),
        "Machines",
        *(" ".join(str(machine + 1) for machine, _ in row) for row in rows),
    ]
    return "\n".join([*lines, ""])


def _pairs(instance: ShopInstance) -> list[list[tuple[int, int]]]:
    """Machine and processing time of each operation, as many in each job as there are machines."""
    count = instance.num_machines
    rows = []
    for number, job in enumerate(instance.jobs):
        if len(job) > count or any(len(operation) != 1 for operation in job):
            most = max(len(operation) for operation in job)
            raise InvalidInstanceError(
                f"expected at most {count} operations with one machine each in every job, got "
                f"{len(job)} with up to {most} in job {number} of {instance.name}; "
                "write it in the FJS format"
            )
        row = [next(iter(operation.items())) for operation in job]
        visited = {machine for machine, _ in row}
        others = [machine for machine in range(count) if machine not in visited]
        rows.append(row + [(machine, 0) for machine in others[: count - len(row)]])
    return rows
