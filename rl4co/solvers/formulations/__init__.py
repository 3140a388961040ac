"""What general methods need to know of single problems, one module for each problem.

A module registers a class under the name of its environment:

    @FORMULATIONS.register("dpp")
    class DecapPlacement: ...

All of its functions are optional, and a method says so where it misses one:

- `greedy(env, td) -> actions [B, T]`: a greedy construction (solver `greedy`);
- `encode(env, td) -> Encoding`: solutions as genomes (solvers `genetic`, `particle_swarm`), see
  :mod:`rl4co.solvers._evolution`.
"""
