"""`RL4COEnvBase`: a custom environment, episodes, validation, data files, both stepping modes."""

from __future__ import annotations

import inspect

from unittest.mock import patch

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    FileFormatError,
    InvalidActionError,
    InvalidInstanceError,
    InvalidSolutionError,
    UnknownArgumentError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import ENVS
from rl4co.data import TensorDictDataset, save_tensordict_to_npz
from rl4co.envs import CVRPEnv, Generator, OPEnv, RL4COEnvBase, TSPEnv, check_env, get_env
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.improvement import is_improvement
from rl4co.models import POMO

TSP5 = {"num_loc": 5}


# ---------------------------------------------------------------- a custom environment


class PrizeGenerator(Generator):
    """Prizes between 0 and 1."""

    def __init__(self, num_items: int = 4) -> None:
        self.num_items = num_items

    def _generate(self, batch_size, rng):
        prize = torch.rand(*batch_size, self.num_items, generator=rng)
        return TensorDict({"prize": prize}, batch_size=batch_size)


class PickTwoEnv(RL4COEnvBase):
    """Picks two different items for the largest sum of prizes: the smallest possible problem."""

    name = "pick_two"
    maximizes = True
    generator_cls = PrizeGenerator
    instance_shapes = {"prize": "n"}

    def _init_state(self, instance):
        prize = instance["prize"]
        return {
            "prize": prize,
            "picked": torch.zeros(prize.shape, dtype=torch.bool),
            "i": torch.zeros(*prize.shape[:-1], 1, dtype=torch.int64),
        }

    def _transition(self, state, action):
        picked = state["picked"].scatter(-1, action.unsqueeze(-1), True)
        return {"picked": picked, "i": state["i"] + 1, "done": state["i"] >= 1}

    def _action_mask(self, state):
        return ~state["picked"]

    def _objective(self, state, actions):
        return state["prize"].gather(-1, actions).sum(-1)

    def _violations(self, state, actions):
        repeated = (actions.sort(-1).values.diff(dim=-1) == 0).any(-1)
        return {"two different items": repeated | (actions.shape[-1] != 2)}

    def step_bounds(self, state):
        return 2, 2


def test_custom_environment_keeps_the_contract():
    """The hooks above are all that an environment needs."""
    check_env(PickTwoEnv())


@pytest.mark.parametrize(
    "call",
    [
        lambda env, td: env.get_num_starts(td),
        lambda env, td: env.select_start_nodes(td, 2),
        lambda env, td: env.local_search(td, torch.zeros(3, 2, dtype=torch.int64)),
        lambda env, td: env.render(td),
        lambda env, td: env.solve(td),
    ],
    ids=["num_starts", "select_start_nodes", "local_search", "render", "solve"],
)
def test_missing_capabilities_say_so(call):
    """What an environment does not have is rejected by name, not by a stack of attribute errors."""
    env = PickTwoEnv()
    with pytest.raises(UnsupportedError, match="pick_two"):
        call(env, env.reset(batch_size=3))


@pytest.mark.parametrize(
    "hook", ["_init_state", "_transition", "_action_mask", "_objective", "_violations"]
)
def test_missing_hooks_raise(hook: str):
    """The base class has no behaviour of its own for the mandatory hooks."""
    arguments = 1 if hook in ("_init_state", "_action_mask") else 2
    with pytest.raises(NotImplementedError):
        getattr(RL4COEnvBase, hook)(PickTwoEnv(), *[{}] * arguments)


# ---------------------------------------------------------------- construction


def test_generator_and_its_parameters_exclude_each_other():
    """Two sources of truth for the instances are one too many."""
    with pytest.raises(ConfigError, match="got both; give one of them"):
        PickTwoEnv(PrizeGenerator(), generator_params={"num_items": 3})


def test_unknown_names_get_a_suggestion():
    """Environments, phases, and solvers by name."""
    with pytest.raises(UnknownNameError, match=r"no environment 'cvpr'; did you mean 'cvrp'\?"):
        get_env("cvpr")
    with pytest.raises(UnknownNameError, match=r"no phase 'valid'; did you mean 'val'\?"):
        TSPEnv().dataset(4, phase="valid")
    with pytest.raises(UnknownNameError, match="no solver 'nothing'"):
        TSPEnv().solve(TSPEnv().reset(batch_size=1), solver="nothing")


@pytest.mark.parametrize("name", list(ENVS))
def test_unknown_arguments_are_rejected(name: str):
    """Neither an environment nor its generator swallows what it does not know."""
    with pytest.raises(
        UnknownArgumentError, match="'chek_solution'; did you mean 'check_solution'"
    ):
        get_env(name, chek_solution=1)
    parameters = inspect.signature(ENVS[name].generator_cls.__init__).parameters
    known = next(key for key in parameters if key.startswith("num_"))
    with pytest.raises(UnknownArgumentError, match=f"'{known}_x'; did you mean '{known}'"):
        get_env(name, generator_params={f"{known}_x": 3})


def test_repr_names_generator_and_device():
    """Enough to recognise an environment in a log."""
    assert repr(PickTwoEnv()) == "PickTwoEnv(generator=PrizeGenerator(num_items=4), device='cpu')"


# ---------------------------------------------------------------- reset and step


@pytest.mark.parametrize(
    ("batch_size", "shape"), [(3, (3,)), ([3], (3,)), ([2, 3], (2, 3)), ((), ()), (None, ())]
)
def test_reset_batch_sizes(batch_size, shape):
    """An integer, a list, none."""
    assert TSPEnv(generator_params=TSP5).reset(batch_size=batch_size).batch_size == shape


def test_reset_does_not_share_structure_with_its_input():
    """Keys that the state adds do not appear in the instances."""
    env = TSPEnv(generator_params=TSP5)
    instances = env.generate(3)
    td = env.reset(instances)
    td["locs"] = td["locs"] + 1
    assert set(instances.keys()) == {"locs"}
    assert (instances["locs"] <= 1).all()


def test_step_keeps_no_previous_state():
    """The result is the new state alone; the old one is as it was."""
    env = TSPEnv(generator_params=TSP5)
    td = env.reset(batch_size=3)
    before = td.clone()
    result = env.step(td.set("action", torch.tensor([0, 1, 2])))
    assert list(result) == ["next"]
    assert "next" not in td.keys()
    assert all(torch.equal(td[key], before[key]) for key in before.keys())
    # What does not change is the same tensor, not a copy.
    assert result["next"]["locs"].data_ptr() == td["locs"].data_ptr()


def test_seed_gives_a_private_stream():
    """Equal seeds, equal instances; the global generator is not involved."""
    first, second, other = (TSPEnv(generator_params=TSP5, seed=seed) for seed in (7, 7, 8))
    global_state = torch.get_rng_state()
    draws = [env.reset(batch_size=4)["locs"] for env in (first, second, other)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(first.reset(batch_size=4)["locs"], draws[0])
    first.set_seed(7)
    assert torch.equal(first.reset(batch_size=4)["locs"], draws[0])
    assert torch.equal(torch.get_rng_state(), global_state)


# ---------------------------------------------------------------- validation


def test_wrong_keys_are_named():
    """What is missing, and what was there instead."""
    td = TensorDict({"nodes": torch.rand(2, 5, 2)}, batch_size=[2])
    expected = r"keys \['locs'\], got \['nodes'\]; missing: \['locs'\]; add them"
    with pytest.raises(InvalidInstanceError, match=expected):
        TSPEnv().reset(td)


@pytest.mark.parametrize(
    ("locs", "message"),
    [
        (torch.rand(2, 5, 3), r"key 'locs' of shape \[\*B, n, 2\] with batch \[2\]"),
        (torch.rand(2, 5), r"got \[2, 5\]; reshape it, or set the batch_size"),
        (torch.randint(9, (2, 5, 2)), "floating point dtype, got torch.int64; convert it"),
        (torch.rand(2, 5, 2) > 0.5, "floating point dtype, got torch.bool"),
        (torch.rand(2, 5, 2).to(torch.complex64), "floating point dtype, got torch.complex64"),
    ],
)
def test_wrong_shapes_and_dtypes_are_named(locs, message):
    """The key, the shape or dtype that was expected, and the one that came."""
    with pytest.raises(InvalidInstanceError, match=message):
        TSPEnv().reset(TensorDict({"locs": locs}, batch_size=[2]))


@pytest.mark.parametrize("batch", [[0], [2, 0]])
def test_empty_batch_is_rejected(batch):
    """No instances are no batch."""
    td = TensorDict({"locs": torch.rand(*batch, 5, 2)}, batch_size=batch)
    message = "expected at least one tsp instance, .*; is the data set or the slice of it empty"
    with pytest.raises(InvalidInstanceError, match=message):
        TSPEnv().reset(td)


def test_instance_check_can_be_switched_off():
    """For the speed of it, or for instances one knows better."""
    td = TensorDict({"locs": torch.full((1, 3, 2), torch.nan)}, batch_size=[1])
    with pytest.raises(InvalidInstanceError, match=r"locs is finite.*; mend them or leave"):
        TSPEnv().reset(td)
    assert TSPEnv(check_instance=False).reset(td)["locs"].isnan().all()


def test_double_precision_is_kept():
    """Whoever brings float64 gets float64 rewards."""
    env = TSPEnv()
    td = env.reset(TensorDict({"locs": torch.rand(2, 4, 2, dtype=torch.float64)}, batch_size=[2]))
    assert env.get_reward(td, torch.arange(4).expand(2, 4)).dtype == torch.float64


def test_solution_check_can_be_switched_off_and_on():
    """By the environment's setting, overridden by the call's."""
    invalid = torch.zeros(2, 5, dtype=torch.int64)
    for default in (True, False):
        env = TSPEnv(generator_params=TSP5, check_solution=default)
        td = env.reset(batch_size=2)
        assert env.get_reward(td, invalid, check_solution=False).tolist() == [0.0, 0.0]
        with pytest.raises(InvalidSolutionError):
            env.get_reward(td, invalid, check_solution=True)
    assert env.get_reward(td, invalid).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "actions",
    [torch.arange(5), torch.arange(5).expand(3, 5), torch.arange(5.0).expand(2, 5)],
    ids=["no batch", "another batch", "floats"],
)
def test_actions_of_wrong_shape_or_dtype_are_rejected(actions):
    """Before any hook trips over them."""
    env = TSPEnv(generator_params=TSP5)
    with pytest.raises(ConfigError, match=r"integer actions of shape \[\*B, T\] with batch \[2\]"):
        env.get_reward(env.reset(batch_size=2), actions)


@pytest.mark.parametrize("check_action", [False, True])
@pytest.mark.parametrize(
    ("action", "got"),
    [
        (None, "got none"),
        (torch.ones(2), r"got torch\.float32 of shape \[2\]"),
        (torch.ones(2, 1, dtype=torch.int64), r"got torch\.int64 of shape \[2, 1\]"),
        (torch.ones(2, dtype=torch.bool), r"got torch\.bool"),
    ],
)
def test_step_needs_one_index_per_instance(check_action: bool, action, got: str):
    """A missing action, floats or another shape are rejected before any hook trips over them."""
    env = CVRPEnv(generator_params={"num_loc": 5}, check_action=check_action)
    td = env.reset(batch_size=2)
    if action is not None:
        td.set("action", action)
    message = rf"an integer action of shape \[2\] for cvrp, {got}.*; set td\[\"action\"\]"
    with pytest.raises(InvalidActionError, match=message):
        env.step(td)


@pytest.mark.parametrize("name", ENVS.names())
def test_step_rejects_masked_actions(name: str):
    """On a CPU by default, numbers that are no action included; the decode loop never looks."""
    env = get_env(name)
    td = env.reset(batch_size=2)
    if is_improvement(env):
        forbidden = [torch.full_like(allowed_action(env, td), n) for n in (-1, 10**6)]
    else:
        one = td["action_mask"][0].long()
        forbidden = [torch.full((2,), number) for number in (-1, len(one))]
        forbidden += [one.argmin().expand(2)] if not one.all() else []
    for action in forbidden:
        with pytest.raises(InvalidActionError, match="forbidden ones in instances"):
            env.step(td.copy().set("action", action))
    trusting = get_env(name, check_action=False)
    check = "improvement.ImprovementEnvBase._reject_forbidden"
    with patch(f"rl4co.envs.{check if is_improvement(env) else 'base.reject_masked'}") as look:
        trusting.step(td.copy().set("action", allowed_action(env, td)))
        env.advance(dict(td.items()), allowed_action(env, td))
    assert not look.called


def allowed_action(env, td):
    """One that `step` accepts."""
    if is_improvement(env):
        return env.random_action(dict(td.items()))
    return td["action_mask"].long().argmax(-1)


def test_step_does_not_look_at_actions_on_a_device():
    """A look would wait for the device; tensors without values simulate it."""
    env = TSPEnv(generator_params=TSP5)
    td = env.reset(batch_size=2).set("action", torch.tensor([0, 3]))
    far = TSPEnv(generator_params=TSP5, device="meta")
    assert far.step(td.to("meta"))["next"].device.type == "meta"
    assert not far._looks_at(td["action"].to("meta")) and env._looks_at(td["action"])


def test_decode_loop_checks_actions_if_asked():
    """`advance` is the hot loop: it looks at actions in checked mode only."""
    env = CVRPEnv(generator_params={"num_loc": 5}, check_action=True)
    state = dict(env.reset(batch_size=2).items())
    with pytest.raises(InvalidActionError, match="an integer action"):
        env.advance(state, torch.ones(2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (4, "got int; pass a TensorDict, or batch_size=4"),
        ([2, 3], r"got list; pass a TensorDict, or batch_size=\[2, 3\]"),
        ({"locs": torch.rand(2, 5, 2)}, r"got dict; pass TensorDict\(instances, batch_size="),
        ("tsp", "got str; pass a TensorDict of instances"),
    ],
)
@pytest.mark.parametrize("torchrl_mode", [False, True])
def test_reset_needs_a_tensordict(given, message: str, torchrl_mode: bool):
    """Whatever else is passed, the message has the call that was meant."""
    with pytest.raises(ConfigError, match=message):
        TSPEnv(_torchrl_mode=torchrl_mode).reset(given)


def test_first_violated_constraint_is_reported_with_all_its_instances():
    """The error carries what a program needs, the message what a person needs."""
    env = CVRPEnv(generator_params={"num_loc": 2})
    td = env.reset(batch_size=4)
    actions = torch.tensor([[1, 2, 0], [1, 1, 0], [0, 1, 2], [2, 2, 2]])
    with pytest.raises(InvalidSolutionError, match=r"got 2 of 4 .*\(instances 1, 3\)") as caught:
        env.check_solution_validity(td, actions)
    assert caught.value.constraint == "every customer is visited exactly once"
    assert caught.value.instances == [1, 3]


@pytest.mark.parametrize("num_starts", [0, -1, 6])
def test_number_of_starts_is_bounded(num_starts: int):
    """Five nodes have five distinct starts; more would only repeat them."""
    env = TSPEnv(generator_params=TSP5)
    with pytest.raises(ConfigError, match=f"1 to 5 starts for tsp, got {num_starts}; use sampling"):
        env.select_start_nodes(env.reset(batch_size=2), num_starts)


def test_what_every_solution_begins_with_is_public():
    """Policies ask for it; most problems have nothing to say."""
    path, tour = get_env("shpp", generator_params=TSP5), TSPEnv(generator_params=TSP5)
    state = dict(path.reset(batch_size=[2, 3]).items())
    prefix = path.start_prefix(state)
    assert prefix is not None
    assert prefix.tolist() == [[[0]] * 3] * 2
    assert tour.start_prefix(dict(tour.reset(batch_size=2).items())) is None


# ---------------------------------------------------------------- data sets


def write(folder, name: str, count: int, num_loc: int = 5) -> TensorDict:
    """A TSP data file, and what is in it."""
    instances = TSPEnv(generator_params={"num_loc": num_loc}).generate(count)
    save_tensordict_to_npz(instances, folder / name)
    return instances


@pytest.mark.parametrize(("phase", "seed"), [("val", 4321), ("test", 1234)])
def test_generated_sets_are_those_of_the_paper(phase: str, seed: int):
    """Validation and test instances are a function of the fixed seeds, in every run."""
    env = TSPEnv(generator_params=TSP5, seed=99)
    expected = env.generator(6, rng=torch.Generator().manual_seed(seed))
    for _ in range(2):
        dataset = env.dataset(6, phase=phase)
        assert isinstance(dataset, TensorDictDataset)
        assert torch.equal(dataset.data["locs"], expected["locs"])


@pytest.mark.parametrize("phase", ["train", "val"])
def test_generated_sets_have_a_size(phase: str):
    """Without a file there is no telling how many instances are wanted."""
    message = f"a batch_size for the {phase} set of tsp, which has no file, .*pass the number"
    with pytest.raises(ConfigError, match=message):
        TSPEnv().dataset(phase=phase)


def test_one_file_gives_one_set(tmp_path):
    """All of it, or the first instances."""
    instances = write(tmp_path, "small.npz", 7)
    env = TSPEnv(data_dir=tmp_path, val_file="small.npz")
    for size, count in ((None, 7), (4, 4), ([4], 4), (100, 7)):
        arguments = () if size is None else (size,)
        dataset = env.dataset(*arguments, phase="val")
        assert len(dataset) == count
        assert torch.equal(dataset.data["locs"], instances["locs"][:count])


def test_several_files_give_named_sets(tmp_path):
    """Under their file names, or under given ones; sizes may differ."""
    files = ["tsp5", "tsp9.npz"]
    for file, num_loc in zip(files, (5, 9), strict=True):
        write(tmp_path, file, 3, num_loc)
    env = TSPEnv(
        data_dir=tmp_path, val_file=files, test_file=files, test_dataloader_names=["a", "b"]
    )
    val, test = env.dataset(phase="val"), env.dataset(phase="test")
    assert list(val) == ["tsp5", "tsp9"]
    assert list(test) == ["a", "b"]
    assert val["tsp5"].data["locs"].shape == (3, 5, 2)
    assert test["b"].data["locs"].shape == (3, 9, 2)
    # The environment's own instances have 20 nodes; it solves those of the file all the same.
    assert record_episode(env, test["b"].data, torch.Generator()).actions.shape == (3, 9)


@pytest.mark.parametrize("names", [["one"], ["same", "same"], ["a", "b", "c"]])
def test_names_must_fit_the_files(names):
    """One distinct name for each file."""
    with pytest.raises(ConfigError, match="one distinct name for each of 2 data files"):
        TSPEnv(val_file=["a", "b"], val_dataloader_names=names)


def test_missing_file_raises(tmp_path):
    """Never a silent replacement by random instances."""
    env = TSPEnv(data_dir=tmp_path, test_file="nowhere.npz")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        env.dataset(4, phase="test")
    with pytest.raises(FileNotFoundError, match=r"absent\.npz"):
        env.dataset(4, phase="val", filename="absent")


def test_file_of_another_problem_is_rejected(tmp_path):
    """The message lists expected and found keys."""
    save_tensordict_to_npz(CVRPEnv(generator_params={"num_loc": 4}).generate(2), tmp_path / "cvrp")
    write(tmp_path, "tsp", 2)
    with pytest.raises(
        FileFormatError,
        match=r"expected the keys \['locs'\] \(and perhaps \['cost_matrix'\]\) of tsp, "
        r"'cost_matrix' in place of \['locs'\] in .*cvrp\.npz, got .*\(missing: none, "
        r"unexpected: \['capacity', 'demand', 'depot'\]\)",
    ):
        TSPEnv().load_data(tmp_path / "cvrp.npz")
    with pytest.raises(FileFormatError, match=r"missing: \['demand', 'depot'\]"):
        CVRPEnv().load_data(tmp_path / "tsp.npz")


def test_files_with_a_matrix(tmp_path):
    """A matrix may come with the coordinates or instead of them, but not with half of them."""
    matrix = {"cost_matrix": torch.rand(3, 5, 5)}
    save_tensordict_to_npz(TensorDict(matrix, batch_size=[3]), tmp_path / "matrix")
    assert set(TSPEnv().load_data(tmp_path / "matrix.npz").keys()) == {"cost_matrix"}

    td = CVRPEnv(generator_params={"num_loc": 4}).generate(3)
    both = td.clone().set("cost_matrix", torch.rand(3, 5, 5))
    save_tensordict_to_npz(both, tmp_path / "both")
    assert set(CVRPEnv().load_data(tmp_path / "both.npz").keys()) == {*td.keys(), "cost_matrix"}
    save_tensordict_to_npz(td.exclude("depot"), tmp_path / "half")
    with pytest.raises(FileFormatError, match=r"missing: \['depot'\]"):
        CVRPEnv().load_data(tmp_path / "half.npz")


# ---------------------------------------------------------------- TorchRL mode


def test_torchrl_reset_takes_batch_size_and_instances():
    """As in the library's own mode."""
    env = CVRPEnv(generator_params={"num_loc": 4}, _torchrl_mode=True)
    assert env.reset(batch_size=[3]).batch_size == (3,)
    assert env.reset(batch_size=2).batch_size == (2,)
    assert env.reset().batch_size == ()
    instances = env.generate(3)
    assert torch.equal(env.reset(instances)["locs"][:, 1:], instances["locs"])


def test_torchrl_step_keeps_the_root_and_rewards_the_last_step():
    """The reward of a finished instance is paid once, when it finishes."""
    env = CVRPEnv(generator_params={"num_loc": 2}, _torchrl_mode=True)
    instances = env.generate(2)
    instances["demand"] = torch.tensor([[0.5, 0.5], [1.0, 1.0]])
    td = env.reset(instances)
    rewards = []
    # The first instance takes one route and waits, the second takes two.
    for actions in ([1, 1], [2, 0], [0, 2]):
        td = env.step(td.set("action", torch.tensor(actions)))
        rewards.append(td["next", "reward"].flatten())
        assert "locs" in td.keys()
        td = td["next"].exclude("reward")
    assert torch.stack(rewards)[:2].abs().sum() == 0
    sequence = torch.tensor([[1, 2, 0], [1, 0, 2]])
    plain = CVRPEnv()
    expected = plain.get_reward(plain.reset(instances), sequence)
    torch.testing.assert_close(rewards[-1], expected)


def test_torchrl_rollout_runs():
    """TorchRL's own random rollout works on the environment."""
    env = TSPEnv(generator_params=TSP5, _torchrl_mode=True)
    rollout = env.rollout(max_steps=5, break_when_any_done=True)
    assert rollout.batch_size == (5,)
    assert rollout["next", "done"][-1].all()


# ---------------------------------------------------------------- what authors write


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
def test_arguments_of_the_generator_are_told_apart(env_cls):
    """The call to write is in the message; other unknown names get the nearest one."""
    with pytest.raises(UnknownArgumentError) as caught:
        env_cls(num_loc=50)
    assert f"write {env_cls.__name__}(generator_params={{'num_loc': 50}})" in str(caught.value)
    with pytest.raises(UnknownArgumentError, match="did you mean 'generator'"):
        env_cls(genrator=None)


@pytest.mark.parametrize("axes", ["n, 2", ("n", 2), "[B, n, 2]", "n-1", "2n", 5])
def test_grammar_of_instance_shapes(axes):
    """What is not an axis is rejected with the key, the text and the grammar."""
    cls = type("Mine", (TSPEnv,), {"instance_shapes": {"locs": axes}})
    with pytest.raises(ConfigError, match="axes of tsp key 'locs' as sizes") as caught:
        cls()
    assert repr(axes) in str(caught.value)
    with pytest.raises(ConfigError, match="mapping of keys to axes"):
        type("Mine", (TSPEnv,), {"instance_shapes": ["locs"]})()


def test_an_environment_without_starts_names_the_hooks():
    """In POMO, too."""
    cls = type("NoStarts", (OPEnv,), {
        "_count_starts": RL4COEnvBase._count_starts, "_start_actions": RL4COEnvBase._start_actions,
    })  # fmt: skip
    env = cls(generator_params={"num_loc": 5})
    model = POMO(env, num_augment=1, policy_kwargs={"embed_dim": 8, "num_heads": 2})
    for act in (
        lambda: model.shared_step(env.generator(2), 0, "train"),
        lambda: env.select_start_nodes(env.reset(batch_size=2), 2),
    ):
        with pytest.raises(UnsupportedError, match="write the hooks _count_starts and _start_act"):
            act()
