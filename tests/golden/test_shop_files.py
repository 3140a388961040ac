"""Every public job shop is read, agrees with its table, and is solved within its bounds."""

from __future__ import annotations

import csv

from pathlib import Path

import pytest
import torch

from rl4co.core.rng import derive_generator
from rl4co.data.formats import find_instances, read_instance
from rl4co.data.formats.best_known import Bounds
from rl4co.data.formats.shop import ShopInstance, batch_instances
from rl4co.data.formats.shop_files import looks_like_shop
from rl4co.data.formats.source import Source
from rl4co.envs import FJSPEnv, JSSPEnv
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.scheduling.fjsp import parser as fjs
from rl4co.envs.scheduling.jssp import parser as jsp

#: The only operations that take no time: the last one of job 9, in all versions of this instance.
NO_TIME = ("orb07", "orb7")


@pytest.fixture(params=["jssp", "fjsp"])
def folder(request: pytest.FixtureRequest, shared_dir: Path) -> Path:
    found = shared_dir / "data" / request.param
    if not found.is_dir():
        pytest.skip("no job shops in the shared folder")
    return found


def read_bounds(folder: Path) -> dict[str, Bounds]:
    """The bounds of 2026 by name or path."""
    with (folder / "bks.csv").open() as file:
        return {
            row.get("instance") or row["path"]: Bounds(
                *(float(row[key]) if row[key] else None for key in ("lb_2026", "ub_2026"))
            )
            for row in csv.DictReader(file)
        }


def shops_in(folder: Path) -> dict[str, ShopInstance]:
    """Instances by the name that the table of bounds gives them, or by their path."""
    if folder.name == "jssp":
        files = [*folder.glob("instances/*"), *folder.glob("dmu/*.txt"), *folder.glob("l2d*/*.npy")]
        found = [shop for file in files for shop in jsp.read_instances(file)]
        return {shop.name: shop for shop in found}
    files = [*folder.glob("**/*.txt"), *folder.glob("**/*.fjs")]
    return {str(file.relative_to(folder)): fjs.read_instances(file)[0] for file in files}


def test_files_agree_with_their_table(folder: Path):
    shops = shops_in(folder)
    assert len(shops) > 900
    with (folder / "bks.csv").open() as file:
        rows = list(csv.DictReader(file))
    bounds = read_bounds(folder)
    checked = 0
    for row in rows:
        name = row.get("instance") or row["path"]
        if name not in shops:
            continue  # some sets are left out of the folder
        shop = shops[name]
        assert (shop.num_jobs, shop.num_machines) == (int(row["jobs"]), int(row["machines"])), name
        if "operations" in row:
            assert shop.num_ops == int(row["operations"])
        known = bounds[name]
        longest = max(sum(min(op.values()) for op in job) for job in shop.jobs)
        assert known.upper is not None and longest <= known.upper
        assert known.lower is not None and known.lower <= known.upper
        checked += 1
    assert checked > 100
    for name, shop in shops.items():
        no_time = sum(not any(op.values()) for job in shop.jobs for op in job)
        assert no_time == (Path(name).stem in NO_TIME), name
        if folder.name == "jssp":
            machines = [sorted(next(iter(op)) for op in job) for job in shop.jobs]
            assert machines == [list(range(shop.num_machines))] * shop.num_jobs


def test_an_operation_of_no_time_is_named_and_written_back(shared_dir: Path, tmp_path: Path):
    file = shared_dir / "data" / "jssp" / "instances" / "orb07"
    if not file.is_file():
        pytest.skip("no job shops in the shared folder")
    with pytest.warns(UserWarning, match="orb07, job 9, operation 9: .* got 0"):
        td, *_ = jsp.read(file)
    assert td["end_op_per_job"][0, -1] == 98
    (original,) = jsp.read_instances(file)
    for file_format in ("standard", "taillard"):
        (copy,) = jsp.write(tmp_path / file_format, td, file_format)
        assert jsp.read_instances(copy)[0].jobs == original.jobs


def test_files_are_recognised_by_their_content(folder: Path):
    """All of them, and nothing else; the table knows them by name or path."""
    files = find_instances(folder)
    assert {file.suffix for file in files} <= {"", ".txt", ".fjs"} and len(files) > 100
    bounds = read_bounds(folder)
    listed = 0
    for file in files:
        name = file.relative_to(folder).as_posix() if folder.name == "fjsp" else file.name
        table = folder / "bks.csv" if name in bounds else None
        shop = read_instance(file, best_known=table)
        assert shop.problem == folder.name and shop.size == shop.shop.num_ops
        if table is not None:
            assert (shop.lower_bound, shop.best_known) == (bounds[name].lower, bounds[name].upper)
            listed += 1
    assert listed > 100


def test_no_routing_problem_is_taken_for_a_job_shop(shared_dir: Path):
    """Nor solutions, tables, licences and the files of other problems."""
    for file in (shared_dir / "data").rglob("*"):
        if (
            {"jssp", "fjsp"}.isdisjoint(file.parts)
            and file.is_file()
            and file.suffix not in (".npy", ".npz")
        ):
            assert not looks_like_shop(Source.read(file)), file


def test_random_solutions_respect_the_bounds(folder: Path):
    """A batch of all small instances of different sizes: accepted, solved, never below a bound."""
    bounds = read_bounds(folder)
    shops = {
        name: shop
        for name, shop in sorted(shops_in(folder).items())
        if name in bounds and shop.num_ops <= 100
    }
    env = JSSPEnv() if folder.name == "jssp" else FJSPEnv()
    td = batch_instances(list(shops.values()))
    episode = record_episode(env, td, derive_generator(0))
    assert episode.complete
    makespan = -env.get_reward(episode.initial, episode.actions, check_solution=True)
    lower = torch.tensor([bounds[name].lower for name in shops])
    assert (makespan >= lower).all()
    # Bounds of the initial state are below the best makespans, too.
    upper = torch.tensor([bounds[name].upper for name in shops])
    strict = type(env)(bound="min")
    assert (strict.reset(td)["lbs"].amax(-1) <= upper).all()
