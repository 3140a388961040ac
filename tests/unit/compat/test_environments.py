"""Environments in the published style run unchanged, or raise when they are created."""

from __future__ import annotations

import copy

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, InvalidSolutionError, UnsupportedError
from rl4co.envs import CVRPEnv, RL4COEnvBase, TSPEnv, check_env
from rl4co.envs.checks import find_faults
from rl4co.envs.routing import TSPkoptEnv
from rl4co.envs.routing.tsp.ants import ANTS
from rl4co.models import AttentionModelPolicy
from rl4co.utils.decoding import random_policy, rollout
from rl4co.utils.ops import gather_by_index, get_tour_length
from tests.compat import TourEnv, TourGenerator


@pytest.fixture(scope="module")
def tours():
    """The problem from scratch, the library's own, and instances of both."""
    env, stock = TourEnv(), TSPEnv(generator_params={"num_loc": 6})
    return env, stock, stock.generator(5, rng=torch.Generator().manual_seed(0))


def small_policy(env_name):
    return AttentionModelPolicy(env_name=env_name, embed_dim=16, num_heads=2, num_encoder_layers=1)


# ---------------------------------------------------------------- from scratch


def test_an_environment_from_scratch_keeps_the_contract(tours):
    """Nothing is wrong with it, and the class declared its own specs."""
    check_env(tours[0])
    assert tours[0].declared_size == 6


def test_it_gives_what_the_library_gives(tours):
    """The same tours on the same instances have the same states, masks and rewards."""
    env, stock, instances = tours
    reward, final, actions = rollout(env, env.reset(instances), random_policy)
    td, ours = env.reset(instances), stock.reset(instances)
    torch.testing.assert_close(reward, stock.get_reward(ours, actions))
    torch.testing.assert_close(reward, env.get_reward(final, actions))
    for action in actions.unbind(-1):
        td, ours = (e.step(s.set("action", action))["next"] for e, s in ((env, td), (stock, ours)))
        assert torch.equal(td["done"], ours["done"])
        assert torch.equal(td["current_node"], ours["current_node"])
        if not td["done"].all():
            assert torch.equal(td["action_mask"], ours["action_mask"])


def test_its_assertions_name_the_instances(tours):
    """An `assert` on the batch becomes an error about the solutions that it is about."""
    env, _, instances = tours
    actions = torch.arange(6).repeat(5, 1)
    actions[3, 0] = 1
    for kind in (AssertionError, InvalidSolutionError):
        with pytest.raises(kind, match=r"'Invalid tour', got 1 of 5 .*\(instances 3\)"):
            env.get_reward(env.reset(instances), actions)


def test_the_library_has_its_say(tours):
    """Seeds, copies, data sets and starts work as for any environment."""
    env, _, instances = tours
    assert torch.equal(
        env.dataset(3, phase="val").data["locs"], TourEnv().dataset(3, "val").data["locs"]
    )
    assert torch.equal(
        TourEnv(seed=1).reset(batch_size=2)["locs"], TourEnv(seed=1).reset(batch_size=2)["locs"]
    )
    td = copy.deepcopy(env).reset(instances)
    assert env.get_num_starts(td) == 6
    assert env.select_start_nodes(td, 2).tolist() == [0] * 5 + [1] * 5


def test_torchrl_mode_keeps_the_state_before(tours):
    """As published, `step` then returns both."""
    env = TourEnv(_torchrl_mode=True)
    td = env.reset(tours[2])
    stepped = env.step(td.set("action", torch.arange(5)))
    assert stepped["next", "current_node"].tolist() == [0, 1, 2, 3, 4]
    assert stepped["current_node"].tolist() == [0] * 5
    reward, _, _ = rollout(env, env.reset(tours[2]), random_policy)
    assert (reward < 0).all()


def test_a_file_of_its_instances_is_read(tours, tmp_path):
    """There is no list of keys to hold a file against."""
    from rl4co.data import save_tensordict_to_npz

    save_tensordict_to_npz(tours[2], tmp_path / "tours.npz")
    assert len(TourEnv(data_dir=tmp_path, test_file="tours.npz").dataset(phase="test")) == 5


# ---------------------------------------------------------------- stock environments, overridden


class Doubled(TSPEnv):
    """Twice the length, of the state at the end."""

    @staticmethod
    def _get_reward(td, actions):
        assert td["done"].all()
        return -2 * get_tour_length(gather_by_index(td["locs"], actions))


class DoubledAgain(Doubled):
    """What the parent says, twice."""

    def _get_reward(self, td, actions):
        return 2 * super()._get_reward(td, actions)


class EvenLast(TSPEnv):
    """Odd nodes first; a static mask, as published ones are."""

    @staticmethod
    def get_action_mask(td):
        free = td.get("free", td["action_mask"])  # the parent's `_reset` asks before there is one
        odd = free & (torch.arange(free.shape[-1]) % 2 == 1)
        return torch.where(odd.any(-1, keepdim=True), odd, free)

    def _reset(self, td=None, batch_size=None):
        td = super()._reset(td, batch_size)
        td["free"] = torch.ones_like(td["action_mask"])
        return td.set("action_mask", self.get_action_mask(td))

    def _step(self, td):
        td["free"] = td["free"].scatter(-1, td["action"][:, None], False)
        td = super()._step(td)
        return td.set("action_mask", self.get_action_mask(td))


class Thrifty(CVRPEnv):
    """No customer behind the first half of them; the parent's mask and step do the rest."""

    def _step(self, td):
        td = super()._step(td)
        half = td["action_mask"].shape[-1] // 2
        td["done"] = td["visited"][:, 1 : half + 1].all(-1)
        return td

    def get_action_mask(self, td):
        mask = super().get_action_mask(td)
        half = mask.shape[-1] // 2
        late = torch.arange(mask.shape[-1]) > half
        finished = td["visited"][:, 1 : half + 1].all(-1, keepdim=True)
        home = torch.arange(mask.shape[-1]) == 0
        return torch.where(finished, home, mask & ~late)

    def check_solution_validity(self, td, actions):
        half = td["action_mask"].shape[-1] // 2
        assert all(set(range(1, half + 1)) <= set(row.tolist()) for row in actions), "not all"

    def _get_reward(self, td, actions):
        return super()._get_reward(td, actions) - actions.ne(0).sum(-1)


@pytest.mark.filterwarnings("ignore:the rules of")
@pytest.mark.parametrize("decode_type", ["greedy", "sampling", "multistart_greedy", "beam_search"])
def test_overrides_decide(tours, decode_type):
    """Rewards, masks and steps of a subclass are those that count, in every way of decoding."""
    _, stock, instances = tours
    policy = small_policy("tsp")
    for cls, factor in ((Doubled, 2.0), (DoubledAgain, 4.0)):
        env = cls(generator_params={"num_loc": 6})
        out = policy(env.reset(instances), env, decode_type=decode_type)
        repeats = len(out["actions"]) // 5
        again = stock.get_reward(stock.reset(instances.repeat(repeats)), out["actions"])
        torch.testing.assert_close(out["reward"], factor * again)
    env = EvenLast(generator_params={"num_loc": 6})
    if decode_type != "multistart_greedy":  # whose first node is any
        out = policy(env.reset(instances), env, decode_type=decode_type)
        assert (out["actions"][:, :3] % 2 == 1).all()
        assert (out["actions"][:, 3:] % 2 == 0).all()


@pytest.mark.filterwarnings("ignore:the rules of")
def test_overrides_end_solutions(tours):
    """A `_step` that calls `super()._step` and says when it is done."""
    env = Thrifty(generator_params={"num_loc": 8})
    td = env.reset(batch_size=4)
    for decode_type in ("greedy", "sampling"):
        out = small_policy("cvrp")(td, env, decode_type=decode_type)
        assert out["actions"].max() == 4
        length = CVRPEnv().get_reward(td, out["actions"], check_solution=False)
        torch.testing.assert_close(out["reward"], length - 4)


@pytest.mark.parametrize("cls", [Doubled, EvenLast, Thrifty])
def test_overridden_environments_keep_the_contract(cls):
    """All of it but the parent's starts, which another mask forbids."""
    faults = find_faults(cls(generator_params={"num_loc": 8}))
    assert set(faults) <= {"start actions are feasible and distinct"}, faults


class Careless(TourEnv):
    """Writes into the state, counts nothing, has integers for a mask; a mask for others to see."""

    def _reset(self, td=None, batch_size=None):
        mask = torch.ones((*batch_size, td["locs"].shape[1]), dtype=torch.int64)
        done = torch.zeros(batch_size, dtype=torch.bool)
        return TensorDict({"action_mask": mask, "left": mask, "done": done}, batch_size=batch_size)

    def _step(self, td):
        assert td["done"].shape == td.batch_size
        td["left"][torch.arange(len(td)), td["action"]] = 0
        done = td["left"].sum(-1) == 0
        keys = {"action_mask": td["left"].clone(), "left": td["left"], "done": done}
        return TensorDict(keys, batch_size=td.batch_size)

    def get_action_mask(self, td):
        return td["action_mask"] * 0

    def get_reward(self, td, actions, check_solution=None):
        assert not td["left"].any()
        return 10 + super().get_reward(td, actions, check_solution)


def test_careless_environments_run(tours):
    """The caller's state stays as it was, and the mask that counts is that of the state."""
    env, (plain, _, instances) = Careless(), tours
    td = env.reset(instances)
    before = td.clone()
    stepped = env.step(td.set("action", torch.arange(5)))["next"]
    assert all(torch.equal(td[key], before[key]) for key in before.keys())
    assert stepped["i"].tolist() == [[1]] * 5
    assert stepped["action_mask"].dtype == torch.bool
    reward, _, actions = rollout(env, env.reset(instances), random_policy)
    torch.testing.assert_close(reward, 10 + plain.get_reward(plain.reset(instances), actions))
    torch.testing.assert_close(reward, env.get_reward(env.reset(instances), actions))


@pytest.mark.filterwarnings("ignore:the rules of")
def test_compiled_loops_leave_published_steps_alone():
    """Ant colonies reject a custom `_step`; a custom reward is allowed."""
    assert not ANTS.holds(EvenLast(generator_params={"num_loc": 6}))
    assert ANTS.holds(Doubled(generator_params={"num_loc": 6}))


class Started(TSPEnv):
    """Custom starts."""

    def get_num_starts(self, td):
        return 2

    def select_start_nodes(self, td, num_starts):
        return torch.arange(4, 4 + num_starts).repeat_interleave(td.shape[0])


class Seeded(TSPEnv):
    """A custom seed."""

    def _set_seed(self, seed):
        self.rng = torch.Generator().manual_seed(seed + 1)


def test_starts_and_seeds_are_asked_for():
    env = Started(generator_params={"num_loc": 6})
    out = small_policy("tsp")(env.reset(batch_size=3), env, decode_type="multistart_greedy")
    assert out["actions"][:, 0].tolist() == [4] * 3 + [5] * 3
    seeded = Seeded(generator_params={"num_loc": 6}, seed=1).reset(batch_size=2)["locs"]
    assert torch.equal(
        seeded, TSPEnv.generator_cls(6)(2, rng=torch.Generator().manual_seed(2))["locs"]
    )


def test_hooks_can_be_called_by_their_published_names():
    """The methods that `super()` finds can be called directly, too."""
    env = Started(generator_params={"num_loc": 4})
    td = env._reset(env.generator(2), batch_size=[2])
    td = env._step(td.set("action", torch.tensor([1, 2])))
    assert td["current_node"].tolist() == [1, 2]
    assert td["done"].shape == (2,)
    actions = torch.arange(4).repeat(2, 1)
    assert torch.equal(env._get_reward(td, actions), env.get_reward(td, actions))


# -------------------------------------------------------------- rejected when the class is created


def both(self, state):
    """A hook beside its published name."""


@pytest.mark.parametrize(
    ("base", "body", "says"),
    [
        (
            TSPEnv,
            {"get_action_mask": both, "_action_mask": both},
            "either _action_mask or the publ",
        ),
        (TSPEnv, {"_get_reward": both, "_objective": both}, "write _objective alone"),
        (Doubled, {"_objective": both}, "write _objective alone"),
        (TSPEnv, {"step": both}, "write `_transition`, or `_step`"),
        (TSPEnv, {"_step": lambda self, td, other: td}, r"expected _step\(td\) in Wrong"),
        (TSPEnv, {"_reset": lambda self, td: td}, r"expected _reset\(td, batch_size\) in Wrong"),
        (TSPkoptEnv, {"_step": both}, "write _move, _is_allowed and random_action"),
        (TSPkoptEnv, {"get_action_mask": both, "_make_spec": both}, "get_action_mask, _make_spec;"),
    ],
)
def test_methods_without_effect_raise(base, body, says):
    with pytest.raises(UnsupportedError, match=says):
        type("Wrong", (base,), body)


def test_what_is_missing_is_said():
    """A reward for each solution, a mask, a generator."""

    class NoMask(RL4COEnvBase):
        name = "no mask"

        def _reset(self, td=None, batch_size=None):
            return TensorDict({"locs": td["locs"]}, batch_size=batch_size)

    class Scalar(TourEnv):
        def _get_reward(self, td, actions):
            return super()._get_reward(td, actions).mean()

    class NoGenerator(TourEnv):
        def __init__(self):
            RL4COEnvBase.__init__(self)

    with pytest.raises(ConfigError, match=r"action_mask.*NoMask"):
        NoMask(TourGenerator())
    env = Scalar()
    with pytest.raises(ConfigError, match="expected one reward for each of 2 solutions"):
        env.get_reward(env.reset(batch_size=2), torch.arange(6).repeat(2, 1))
    with pytest.raises(ConfigError, match=r"set self\.generator"):
        NoGenerator().reset(batch_size=2)


def test_stock_environments_step_without_a_wrapper():
    """`env._step(td)`, as published code calls it, returns the new state itself."""
    env = TSPEnv(generator_params={"num_loc": 5})
    td = env.reset(batch_size=[2])
    td["action"] = torch.tensor([1, 3])
    assert env._step(td)["current_node"].tolist() == [1, 3]
