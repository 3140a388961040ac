"""Facts about the TSP with dense rewards: those of the TSP, since the sum of rewards is the same.

The contract tests and this problem's tests check that the step rewards add up.
"""

from __future__ import annotations

from rl4co.envs.routing.tsp.cases import CASES

__all__ = ["CASES"]
