# %% [markdown]
# # Real files and classical solvers
#
# Instances of benchmark libraries are solved in their own units and rounding, by classical solvers or by
# trained policies. Here is a small file in the format of CVRPLIB and its routes.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from rl4co.data.formats import read_instance
from rl4co.envs import get_env

folder = Path("files")
folder.mkdir()
points = torch.randint(0, 100, (31, 2), generator=torch.Generator().manual_seed(7)).tolist()
demand = [0, *torch.randint(1, 10, (30,), generator=torch.Generator().manual_seed(7)).tolist()]
lines = ["NAME : town", "TYPE : CVRP", "DIMENSION : 31", "EDGE_WEIGHT_TYPE : EUC_2D", "CAPACITY : 30"]
lines += ["NODE_COORD_SECTION", *(f"{i + 1} {x} {y}" for i, (x, y) in enumerate(points))]
lines += ["DEMAND_SECTION", *(f"{i + 1} {d}" for i, d in enumerate(demand))]
(folder / "town.vrp").write_text("\n".join([*lines, "DEPOT_SECTION", "1", "-1", "EOF"]))

instance = read_instance(folder / "town.vrp")
env = get_env(instance.problem)
exact = instance.to_tensordict(normalize=False)  # original units and rounding, in float64
solver_options = {"max_runtime": 2.0}  # quick: {"max_runtime": 0.1}
actions, costs = env.solve(exact, solver="pyvrp", **solver_options)
print(f"{instance.name}: problem {instance.problem}, cost {costs.item():.0f}")
env.render(env.reset(exact), actions)

# %% [markdown]
# `instance.problem` is the name of the environment; the format is recognised by the content. TSPLIB,
# CVRPLIB, Solomon, OPLib, job shops, p-median and custom JSON or CSV files are read in the same way.
#
# ## Several solvers
#
# `rl4co list solvers` lists all solvers. Those of the extra `solvers` (`pip install -e ".[solvers]"`) are
# the best ones for small instances; `ils`, `savings` and `insertion` need no other package.

# %%
import time

seconds, lengths = {}, {}
limit = 2.0  # quick: 0.1
for solver in ("insertion", "savings", "ils", "ortools", "pyvrp"):
    options = {} if solver == "savings" else {"max_runtime": limit}
    start = time.perf_counter()
    _, cost = env.solve(exact, solver=solver, **options)
    seconds[solver], lengths[solver] = time.perf_counter() - start, cost.item()
for solver, length in lengths.items():
    print(f"{solver:<10} cost {length:6.0f}   {seconds[solver]:5.1f} s")

# %% [markdown]
# Solvers that run until a limit (`ils`, `ortools`, `pyvrp`) use all of `max_runtime`, also where they have
# found the best routes in its first tenth.
#
# ## A policy on a file
#
# `normalize=True` scales coordinates and demands to what policies are trained on. Costs come from the
# routes, again in the units of the file.

# %%
from rl4co.models import AttentionModelPolicy

torch.manual_seed(1234)
policy = AttentionModelPolicy(env_name=env.name).eval()  # not trained: expect long routes
td = env.reset(instance.to_tensordict(normalize=True))
with torch.no_grad():
    out = policy(td, env, decode_type="multistart_greedy", select_best=True)
routes = instance.from_actions(out["actions"])
print(f"untrained policy: {instance.cost(routes):.0f}")

improved = env.local_search(td, out["actions"])
print(f"after local search: {instance.cost(instance.from_actions(improved)):.0f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 5))
env.render(td, out["actions"], ax=axes[0])
env.render(td, improved, ax=axes[1])
figure

# %% [markdown]
# ## Check, write, read again
#
# `check` raises if a constraint is broken, and files with broken constraints are never written.

# %%
from rl4co.data.formats import write_solution

routes = instance.from_actions(actions)
instance.check(routes)
write_solution(folder / "town.sol", instance, routes)
again = read_instance(folder / "town.vrp", solution=folder / "town.sol")
print("best known:", again.best_known, "gap of 5 % more:", again.gap(1.05 * again.best_known))

# %% [markdown]
# ## The same from the command line

# %%
# !rl4co solve {folder}/town.vrp --solver pyvrp --max-runtime {limit}

# %%
import shutil

shutil.rmtree(folder)

# %% [markdown]
# `--model FOLDER` solves with a trained policy, `--polish SECONDS` improves the routes, `--render routes.png`
# draws them, `--json` prints output for programs. Folders of files are solved in one call.
#
# ## Where to go next
#
# - [Instances from files](../files.md): all formats, roundings, best-known values, custom instances.
# - [Solving files](../solve.md): limits, infeasible instances, interruptions.
# - [Ants and large instances](10_ants_and_large_instances.md): thousands of nodes.
