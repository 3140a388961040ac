"""Whether a routing problem has a solution: proofs, heuristics and minimal conflicts."""
