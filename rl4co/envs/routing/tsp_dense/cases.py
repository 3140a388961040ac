"""Facts about the TSP with dense rewards: those of the TSP, since the sum of rewards is the same.

That the step rewards add up is a matter of the contract and of the problem's own tests.
"""

from __future__ import annotations

from rl4co.envs.routing.tsp.cases import CASES

__all__ = ["CASES"]
