"""Decap placement with one port and with several: scores, instances, files, figures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co import kernels
from rl4co.core.errors import ConfigError, InvalidInstanceError
from rl4co.data import save_tensordict_to_npz
from rl4co.data.generate import generate_env_data
from rl4co.envs import DPPEnv, DPPGenerator, MDPPEnv, MDPPGenerator, get_env
from rl4co.envs.eda._scores import eliminate, placement_scores, score_by_solve
from rl4co.envs.generator import Generator
from rl4co.utils.decoding import random_policy, rollout

ENVS = [DPPEnv, MDPPEnv]


def published_score(chip, cells, port):
    """The formula with one inversion for each frequency, in double precision."""
    total = 0.0
    for f, frequency in enumerate(chip.frequency):
        matrix = chip.impedance[f]
        loads = matrix[np.ix_(cells, cells)] + np.abs(chip.decap[f]) * np.eye(len(cells))
        after = (
            matrix[port, port] - matrix[port, cells] @ np.linalg.inv(loads) @ matrix[cells, port]
        )
        total += (abs(matrix[port, port]) - abs(after)) * 1e9 / frequency / 10
    return total


# ---------------------------------------------------------------- scores


@pytest.mark.parametrize("enabled", [True, False], ids=["compiled", "solve"])
def test_rewards_are_those_of_the_published_formula(enabled):
    """Worst and mean port, whatever the number of ports."""
    envs = {kind: MDPPEnv(reward_type=kind, max_decaps=4) for kind in ("minmax", "meansum")}
    td = envs["minmax"].reset(batch_size=4)
    _, _, actions = rollout(envs["minmax"], td, random_policy)
    for kind, reduce in {"minmax": min, "meansum": np.mean}.items():
        env = envs[kind]
        expected = [
            reduce(
                [published_score(env.chip, actions[b].tolist(), port)
                 for port in td["probe"][b].nonzero().flatten().tolist()]
            )
            for b in range(4)
        ]  # fmt: skip
        if enabled:
            reward = env.get_reward(td, actions)
        else:
            with kernels.disabled():
                reward = env.get_reward(td, actions)
        assert reward.dtype == torch.float32
        np.testing.assert_allclose(reward.numpy(), expected, rtol=2e-6)


def test_both_roads_agree():
    """Elimination without pivots against batched solves in double precision, for 20 decaps."""
    env = MDPPEnv()
    td = env.reset(batch_size=16)
    _, _, cells = rollout(env, td, random_policy)
    counted = torch.arange(20) < torch.arange(5, 21).unsqueeze(-1)  # 5 to 20 decaps
    arguments = env.chip, cells, counted, env._ports(dict(td.items()))
    exact = score_by_solve(*arguments, dtype=torch.float64)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(placement_scores(*arguments).double(), exact, atol=1e-5, rtol=0)
    torch.testing.assert_close(score_by_solve(*arguments).double(), exact, atol=1e-5, rtol=0)
    # What does not count is as if it were not there.
    few = placement_scores(env.chip, cells[:1, :5], counted[:1, :5], arguments[3][:1])
    torch.testing.assert_close(placement_scores(*arguments)[:1], few)


def test_the_compiled_loop_is_plain_python_too():
    env = DPPEnv(max_decaps=2)
    cells, ports = np.array([[3, -1], [40, 41]]), np.array([[9, -1], [50, 60]])
    outs = [np.empty((2, 2), dtype=np.float32) for _ in range(2)]
    eliminate(*env.chip.arrays(), cells, ports, outs[0])
    with kernels.disabled():
        eliminate(*env.chip.arrays(), cells, ports, outs[1])
    assert outs[0][0, 1] == 0
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-5)


def test_conversions_made_without_gradients_serve_in_training():
    """Policies decode in inference mode, whose tensors must not reach later training steps."""
    env = DPPEnv(generator_params={"grid_size": 4})
    td = env.reset(batch_size=3)
    actions, _ = env.solve(td, solver="random")
    weight = torch.ones(3, requires_grad=True)
    with kernels.disabled():
        with torch.inference_mode():
            first = env.get_reward(td, actions)
        reward = env.get_reward(td, actions)
        (reward * weight).sum().backward()
    assert torch.equal(reward, first)
    assert torch.equal(weight.grad, reward)


def test_more_decaps_are_better_and_nearer_ones_help_more():
    env = DPPEnv(max_decaps=3)
    td = TensorDict(
        {
            "locs": env.generator(1)["locs"],
            "probe": torch.tensor([[55]]),
            "action_mask": (torch.arange(100) != 55).unsqueeze(0),
        },
        batch_size=[1],
    )
    td = env.reset(td)
    near, far = (env.get_reward(td, torch.tensor([cells])) for cells in ([54, 45, 65], [0, 9, 90]))
    fewer = env.get_reward(td, torch.tensor([[54, 45]]), check_solution=False)
    assert near > far > 0
    assert near > fewer


# ---------------------------------------------------------------- instances


@pytest.mark.parametrize("cls", ENVS)
def test_published_defaults(cls):
    env = cls()
    td = env.reset(batch_size=[2])
    assert env.max_decaps == env.generator.max_decaps == 20
    assert td["locs"].shape == (2, 100, 2)
    assert td["locs"][0, 37].tolist() == pytest.approx([0.3, 0.7])
    assert td["action_mask"].shape == td["keepout"].shape == (2, 100)
    assert torch.equal(td["keepout"], ~td["action_mask"])
    reward, final, actions = rollout(env, td, random_policy)
    assert reward.shape == (2,)
    assert actions.shape == (2, 20)
    assert final["i"].tolist() == [[20], [20]]


@pytest.mark.parametrize("cls", ENVS)
@pytest.mark.parametrize("where", ["environment", "generator", "both"])
def test_number_of_decaps(cls, where):
    """It works as an argument of the environment and of the generator."""
    params = {"max_decaps": 5}
    env = cls(
        generator_params=params if where != "environment" else None,
        max_decaps=5 if where != "generator" else None,
    )
    assert rollout(env, env.reset(batch_size=2), random_policy)[2].shape == (2, 5)
    with pytest.raises(ConfigError, match="give it once"):
        cls(generator_params=params, max_decaps=6)


def test_keepouts_and_ports_have_the_numbers_of_the_paper():
    """Both ends are drawn; ports are no keep-outs."""
    single = DPPGenerator()(4000, rng=torch.Generator().manual_seed(0))
    assert single["probe"].min() == 0
    assert single["probe"].max() == 99
    keepouts = 100 - single["action_mask"].sum(-1) - 1
    assert (int(keepouts.min()), int(keepouts.max())) == (1, 50)
    several = MDPPGenerator()(4000, rng=torch.Generator().manual_seed(0))
    ports = several["probe"].sum(-1)
    assert sorted(set(ports.tolist())) == [2, 3, 4, 5]
    assert not (several["probe"] & several["action_mask"]).any()
    keepouts = 100 - several["action_mask"].sum(-1) - ports
    assert (int(keepouts.min()), int(keepouts.max())) == (1, 50)


@pytest.mark.parametrize("cls", ENVS)
def test_numbers_of_decaps_per_instance(cls):
    """Instances finish at different steps, and are worth what they are worth alone."""
    env = cls(generator_params={"grid_size": 5, "min_decaps": 1, "max_decaps": 4})
    td = env.reset(env.generator(32, rng=torch.Generator().manual_seed(0)))
    assert set(td["max_decaps"].flatten().tolist()) == {1, 2, 3, 4}
    reward, final, actions = rollout(env, td, random_policy)
    assert torch.equal(final["placed"].sum(-1, keepdim=True), td["max_decaps"])
    for b in range(6):
        count = int(td["max_decaps"][b])
        alone = env.get_reward(td[b : b + 1], actions[b : b + 1, :count])
        torch.testing.assert_close(alone, reward[b : b + 1])


def test_custom_generators():
    class Centre(Generator):
        def _generate(self, batch_size, rng):
            free = torch.ones(*batch_size, 25, dtype=torch.bool)
            free[..., 12] = False
            instance = {
                "locs": torch.zeros(*batch_size, 25, 2),
                "probe": torch.full((*batch_size, 1), 12),
                "action_mask": free,
            }
            return TensorDict(instance, batch_size=batch_size)

    env = DPPEnv(Centre())
    assert rollout(env, env.reset(batch_size=3), random_policy)[2].shape == (3, 5)


def test_limits_of_an_environment_with_several_ports():
    with pytest.raises(ConfigError, match="max_decaps to be an integer >= 1"):
        MDPPEnv(MDPPGenerator(), max_decaps=0)
    many = MDPPGenerator(num_probes_min=7, num_probes_max=7)(2)
    with pytest.raises(InvalidInstanceError, match="max_probes of the environment"):
        MDPPEnv().reset(many)
    assert MDPPEnv(max_probes=7).reset(many)["probe"].sum() == 14


# ---------------------------------------------------------------- files


def test_published_instances(shared_dir):
    """DevFormer's test set, and that of the published generator."""
    with np.load(shared_dir / "data" / "eda" / "dpp_devformer_test.npz") as file:
        td = TensorDict({key: torch.tensor(file[key]) for key in file.files}, batch_size=[50])
    reward, *_ = rollout(DPPEnv(), DPPEnv().reset(td), random_policy)
    assert 8.5 < reward.mean() < 11


def test_the_published_layout_is_put_right(shared_dir, tmp_path):
    """Coordinates column by column under their old name, ports and masks row by row."""
    with np.load(shared_dir / "data" / "eda" / "mdpp10_seed1234.npz") as file:
        arrays = {key: torch.tensor(file[key]) for key in file.files}
    by_row = arrays.pop("locs")
    published = {"observation": arrays.pop("locs_published_xy"), **arrays}
    path = save_tensordict_to_npz(TensorDict(published, batch_size=[50]), tmp_path / "test.npz")
    env = MDPPEnv(data_dir=tmp_path, val_file="test.npz", test_file="test.npz")
    td = env.load_data(path)
    assert set(td.keys()) == {"locs", "probe", "action_mask"}
    assert torch.equal(td["locs"], by_row)
    assert len(env.dataset(phase="test")) == 50
    # Files of today are left as they are.
    own = TensorDict({**arrays, "locs": by_row}, batch_size=[50])
    again = env.load_data(save_tensordict_to_npz(own, tmp_path / "own.npz"))
    assert torch.equal(again["locs"], by_row)


def test_numbers_of_decaps_in_files(tmp_path):
    env = DPPEnv(generator_params={"grid_size": 4, "min_decaps": 1})
    path = save_tensordict_to_npz(env.generator(3), tmp_path / "some.npz")
    plain = DPPEnv(generator_params={"grid_size": 4})
    td = plain.reset(plain.load_data(path))
    assert td["max_decaps"].shape == (3, 1)


def test_data_sets_by_the_published_call():
    """The size of mdpp is the side of its grid."""
    td = generate_env_data("mdpp", 5, 10, seed=1234)
    assert td["probe"].shape == (5, 100)
    assert get_env("mdpp").reset(td).batch_size == (5,)


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize("cls", ENVS)
def test_figure(cls):
    """Board and curves; the title has the reward."""
    env = cls(generator_params={"grid_size": [4, 6]})
    td = env.reset(batch_size=2)
    reward, _, actions = rollout(env, td, random_policy)
    figure = env.render(td, actions, index=1)
    board, curves = figure.axes
    assert f"score {float(reward[1]):.3f}" in board.get_title()
    assert len(board.patches) == 24
    texts = {text.get_text() for text in board.texts} - {""}
    ports = {text for text in texts if text.startswith("P")}
    assert texts - ports == {str(i + 1) for i in range(env.max_decaps)}
    assert len(curves.lines) == 2 * len(ports)
    # Each port has its name on the board and beside its curve.
    assert {text.get_text().split()[1] for text in curves.get_legend().texts} == ports
    alone = env.render(td)
    assert "keep-out" in alone.axes[0].get_title()
    assert len(alone.axes[1].lines) == (td["probe"][0].sum() if cls is MDPPEnv else 1)


def test_figure_on_given_axes():
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 2)
    env = DPPEnv(generator_params={"grid_size": 3, "num_keepout_max": 2})
    figure = env.render(env.reset(batch_size=1), ax=axes[1], legend=False, title="mine")
    assert figure is axes[1].figure
    assert axes[1].get_title() == "mine"
    assert not axes[0].patches
