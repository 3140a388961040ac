"""Random job shops follow the paper's table; files give instances back; figures show schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.core.rng import derive_generator
from rl4co.envs import (
    FJSPEnv,
    FJSPFileGenerator,
    FJSPGenerator,
    JSSPEnv,
    JSSPFileGenerator,
    JSSPGenerator,
)
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.scheduling._gantt import job_colors
from rl4co.envs.scheduling.fjsp import parser as fjs
from rl4co.envs.scheduling.jssp import parser as jsp


def draw(generator: Any, batch_size: Any = 200, seed: int = 0) -> Any:
    return generator(batch_size, rng=torch.Generator().manual_seed(seed))


def shares(values: torch.Tensor) -> dict[int, float]:
    """How often each value occurs."""
    unique, counts = values.flatten().unique(return_counts=True)
    return dict(zip(unique.int().tolist(), (counts / counts.sum()).tolist(), strict=True))


def assert_uniform(values: torch.Tensor, low: int, high: int, slack: float = 0.35) -> None:
    found = shares(values)
    assert set(found) == set(range(low, high + 1))
    expected = 1 / (high - low + 1)
    assert all(abs(share - expected) <= slack * expected for share in found.values()), found


# ---------------------------------------------------------------- the paper's table


@pytest.mark.parametrize("size", [6, 10, 15, 20])
def test_jssp_sizes(size: int):
    """One operation per machine and job, times 1 to 99, machines in random order."""
    count = 43_200 // size**2
    td = draw(JSSPGenerator(num_jobs=size, num_machines=size), count)
    times = td["proc_times"]
    assert times.shape == (count, size, size * size)
    assert times.dtype == torch.float32
    assert not td["pad_mask"].any()
    assert ((times > 0).sum(-2) == 1).all()
    used = times[times > 0]
    assert_uniform(used, 1, 99)
    assert torch.equal(used, used.round())
    machine = (times > 0).int().argmax(-2).view(count, size, size)
    assert torch.equal(machine.sort(-1).values, torch.arange(size).expand(count, size, size))
    assert_uniform(machine[..., 0], 0, size - 1)
    starts = torch.arange(0, size * size, size).expand(count, size)
    assert torch.equal(td["start_op_per_job"], starts)
    assert torch.equal(td["end_op_per_job"], starts + size - 1)


@pytest.mark.parametrize(
    ("jobs", "machines", "fewest", "most"),
    [(10, 5, 4, 6), (20, 5, 4, 6), (15, 10, 8, 12), (20, 10, 8, 12)],
)
def test_fjsp_sizes(jobs: int, machines: int, fewest: int, most: int):
    """Operations per job, eligible machines and times as in the table, with default arguments."""
    td = draw(FJSPGenerator(num_jobs=jobs, num_machines=machines), 150)
    lengths = td["end_op_per_job"] - td["start_op_per_job"] + 1
    assert_uniform(lengths, fewest, most, slack=0.2)
    assert td["pad_mask"].shape == (150, jobs * most)
    assert torch.equal((~td["pad_mask"]).sum(-1), lengths.sum(-1))
    times, real = td["proc_times"], ~td["pad_mask"]
    eligible = (times > 0).sum(-2)[real]
    assert_uniform(eligible, 1, machines, slack=0.1)
    assert_uniform((times > 0).int().argmax(-2)[real & ((times > 0).sum(-2) == 1)], 0, machines - 1)
    used = times[times > 0]
    assert torch.equal(used, used.round())
    assert used.min() == 1 and used.max() == 20
    FJSPEnv().check_instances(td)


def test_fjsp_spread():
    """Times of an operation lie between 0.8 and 1.2 of a mean from 1 to 20, each mean as often."""
    td = draw(FJSPGenerator(min_eligible_ma_per_op=5), 400)
    columns = td["proc_times"].transpose(-1, -2)[~td["pad_mask"]]  # [operations, 5]
    low, high = columns.amin(-1), columns.amax(-1)
    means = torch.arange(1, 21)
    floor = (means * 0.8).round().clamp_min(1)
    ceiling = (means * 1.2).round().clamp_max(20)
    within = (low.unsqueeze(-1) >= floor) & (high.unsqueeze(-1) <= ceiling)  # [operations, 20]
    assert within.any(-1).all()
    # 20 can only come from means from 17 on, 4 of 20: each gives it to 1/(its number of values).
    expected = sum(float(1 / (ceiling[m - 1] - floor[m - 1] + 1)) for m in range(17, 21)) / 20
    assert float((columns == 20).float().mean()) == pytest.approx(expected, rel=0.1)
    assert float((columns == 1).float().mean()) == pytest.approx(1 / 20, rel=0.15)
    free = draw(FJSPGenerator(min_eligible_ma_per_op=5, same_mean_per_op=False), 400)
    columns = free["proc_times"].transpose(-1, -2)[~free["pad_mask"]]
    assert_uniform(columns, 1, 20, slack=0.1)
    assert (columns.amax(-1) - columns.amin(-1) > 10).float().mean() > 0.5


def test_jobs_that_revisit_machines():
    """Without a fixed map, machines are independent and jobs differ in length."""
    generator = JSSPGenerator(
        num_jobs=4, num_machines=3, min_ops_per_job=1, max_ops_per_job=5, one2one_ma_map=False
    )
    td = draw(generator, 300)
    JSSPEnv().check_instances(td)
    assert_uniform(td["end_op_per_job"] - td["start_op_per_job"] + 1, 1, 5, slack=0.2)
    machine = (td["proc_times"] > 0).int().argmax(-2)[~td["pad_mask"]]
    assert_uniform(machine, 0, 2, slack=0.1)


@pytest.mark.parametrize("generator", [FJSPGenerator(), JSSPGenerator()], ids=["fjsp", "jssp"])
def test_seeds_and_batch_axes(generator: Any):
    """The seed decides, whatever the shape of the batch."""
    flat, nested = draw(generator, 6, seed=3), draw(generator, [2, 3], seed=3)
    assert all(torch.equal(flat[key], nested.reshape(-1)[key]) for key in flat.keys())
    assert draw(generator, [], seed=3).batch_size == ()
    other = draw(generator, 6, seed=4)
    assert not torch.equal(flat["proc_times"], other["proc_times"])
    assert generator.num_mas == generator.num_machines
    assert generator.n_ops_max == flat["pad_mask"].shape[-1]


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("env_cls", "cls", "module"),
    [(FJSPEnv, FJSPFileGenerator, fjs), (JSSPEnv, JSSPFileGenerator, jsp)],
    ids=["fjsp", "jssp"],
)
def test_files_give_the_instances_back(env_cls: Any, cls: Any, module: Any, tmp_path: Path):
    """Written, read by the environment's argument, by `load_data`, in order, and solved."""
    env = env_cls()
    td = env.generate(12)
    files = module.write(tmp_path, env.reset(td))  # states have all that an instance has
    assert len(files) == 12 and all(file.is_file() for file in files)
    (tmp_path / "bounds.csv").write_text("instance,lb,ub\n")
    read = env_cls(generator_params={"file_path": str(tmp_path)})
    assert isinstance(read.generator, cls) and read.generator.num_samples == 12
    for again in (read.generate(12), read.load_data(tmp_path)):
        for row in range(12):
            width = int((~td["pad_mask"][row]).sum())
            expected = td["proc_times"][row, :, :width]
            assert torch.equal(again["proc_times"][row, :, :width], expected)
            assert again["pad_mask"][row, width:].all()
            assert torch.equal(again["end_op_per_job"][row], td["end_op_per_job"][row])
    assert record_episode(read, read.generate(12), derive_generator(0)).complete
    # More than there are begins again; a single file is a set of one.
    more = read.generate([5, 3])
    assert torch.equal(more.reshape(-1)["proc_times"][12:], more.reshape(-1)["proc_times"][:3])
    single, jobs, machines, longest = module.read(files[3])
    assert (jobs, machines) == (env.generator.num_jobs, env.generator.num_machines)
    assert longest == int((td["end_op_per_job"] - td["start_op_per_job"] + 1)[3].max())
    assert single.batch_size == (1,)
    assert cls(files[3]).num_samples == 1
    shuffled = cls(tmp_path, shuffle=True)
    drawn = draw(shuffled, 400)["proc_times"].flatten(1).unique(dim=0)
    assert len(drawn) == 12
    wide = cls(tmp_path, n_ops_max=77).instances
    assert wide["pad_mask"].shape == (12, 77)
    with pytest.raises(ConfigError, match="num_ops"):
        cls(tmp_path, n_ops_max=3)


def test_files_that_are_not_there(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="expected a file or folder"):
        FJSPEnv(generator_params={"file_path": str(tmp_path / "none")})
    with pytest.raises(FileFormatError, match="got none"):
        JSSPEnv(generator_params={"file_path": str(tmp_path)})
    with pytest.raises(FileNotFoundError):
        FJSPEnv().load_data(tmp_path / "none.npz")


def test_a_set_as_npz(tmp_path: Path):
    """The format of data sets works as for all problems."""
    from rl4co.data.io import save_tensordict_to_npz

    env = FJSPEnv()
    td = env.generate(3)
    path = save_tensordict_to_npz(td, tmp_path / "set")
    assert torch.equal(env.load_data(path)["proc_times"], td["proc_times"])


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize("env_cls", [FJSPEnv, JSSPEnv])
@pytest.mark.parametrize("num_jobs", [1, 3, 25])
def test_figures(env_cls: Any, num_jobs: int):
    """A bar for each operation at its place, a line at the makespan, a colour per job."""
    env = env_cls(generator_params={"num_jobs": num_jobs, "num_machines": 4})
    episode = record_episode(env, env.generate(2), derive_generator(0))
    figure = env.render(episode.initial, episode.actions, index=1)
    (ax,) = figure.axes
    makespan = -float(env.get_reward(episode.initial, episode.actions)[1])
    assert f"makespan {makespan:g}" in ax.get_title()
    assert any(line.get_xdata()[0] == makespan for line in ax.lines)
    final = episode.states[-1][1]
    real = ~final["pad_mask"]
    bars = [bar for container in ax.containers for bar in container]
    drawn = sorted(
        (bar.get_x(), bar.get_y() + bar.get_height() / 2, bar.get_width()) for bar in bars
    )
    lengths = final["finish_times"] - final["start_times"]
    columns = (final["start_times"], final["ma_assignment"].float(), lengths)
    expected = sorted(zip(*(column[real].tolist() for column in columns), strict=True))
    torch.testing.assert_close(torch.tensor(drawn).float(), torch.tensor(expected))
    assert len({bar.get_facecolor() for bar in bars}) == num_jobs
    assert (ax.get_legend() is not None) == (num_jobs <= 18)
    figure.canvas.draw()

    alone = env.render(episode.initial, index=1, title="jobs").axes[0]
    assert alone.get_title() == "jobs"
    assert sum(len(container) for container in alone.containers) == int(real.sum())
    given = env.render(episode.initial, episode.actions, ax=alone, labels=False, legend=True)
    assert given is alone.figure


def test_colours_are_distinct():
    for count in (5, 18, 19, 60):
        assert len(set(job_colors(count))) == count
