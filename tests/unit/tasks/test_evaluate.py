"""Evaluation: each method against the same thing done by hand, independence of batch size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.ops import batchify, unbatchify
from rl4co.data import TensorDictDataset, load_npz_to_tensordict, save_tensordict_to_npz
from rl4co.data.augment import StateAugmentation
from rl4co.envs import get_env
from rl4co.models import AttentionModelPolicy
from rl4co.tasks.eval import METHODS, evaluate_policy

NUM, NODES = 7, 9
DETERMINISTIC = sorted(name for name, method in METHODS.items() if not method.samples)


@pytest.fixture(params=["tsp", "cvrp"])
def setting(request: pytest.FixtureRequest):
    """An environment, an untrained policy in training mode, and a few instances."""
    torch.manual_seed(0)
    env = get_env(request.param, generator_params={"num_loc": NODES})
    policy = AttentionModelPolicy(
        env_name=env.name, embed_dim=16, num_heads=2, num_encoder_layers=1, feedforward_hidden=16
    )
    rng = torch.Generator().manual_seed(1)
    return env, policy, env.generator(NUM, rng=rng)


def greedy(env, policy, td):
    with torch.no_grad():
        return policy.eval()(td, env, phase="test", decode_type="greedy")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_result_is_consistent(setting, method):
    """Every method gives valid solutions whose rewards are those of the environment."""
    env, policy, instances = setting
    policy.train()
    result = evaluate_policy(env, policy, instances, method, samples=5)
    assert set(result) == {"rewards", "actions", "inference_time", "avg_reward"}
    td = env.reset(instances)
    expected = env.get_reward(td, result["actions"], check_solution=True)
    torch.testing.assert_close(result["rewards"], expected)
    torch.testing.assert_close(result["avg_reward"], expected.mean())
    assert result["inference_time"] > 0
    assert all(module.training for module in policy.modules()), "the mode must be restored"


@pytest.mark.parametrize(
    "method", [m for m in DETERMINISTIC if METHODS[m].augment_fn != "symmetric"]
)
def test_batch_size_does_not_matter(setting, method):
    """One instance at a time, uneven batches and one batch give the same solutions."""
    env, policy, instances = setting
    results = [
        evaluate_policy(env, policy, instances, method, batch_size=size) for size in (1, 3, 7, None)
    ]
    for other in results[1:]:
        torch.testing.assert_close(other["rewards"], results[0]["rewards"])
        torch.testing.assert_close(other["actions"], results[0]["actions"])


@pytest.mark.parametrize("method", sorted(METHODS))
def test_single_instance(setting, method):
    """Batch size 1, with 1 instance."""
    env, policy, instances = setting
    result = evaluate_policy(env, policy, instances[:1], method, samples=3)
    assert result["rewards"].shape == (1,)
    assert result["actions"].shape[0] == 1


def test_greedy_is_the_policys_own(setting):
    """Method greedy equals calling the policy."""
    env, policy, instances = setting
    result = evaluate_policy(env, policy, instances)
    out = greedy(env, policy, env.reset(instances))
    torch.testing.assert_close(result["rewards"], out["reward"])
    assert torch.equal(result["actions"], out["actions"])


def test_multistart_augment_by_hand(setting):
    """The combined method is the best over all starts of all copies, one by one."""
    env, policy, instances = setting
    result = evaluate_policy(env, policy, instances, "multistart_greedy_augment_dihedral_8")
    td = env.reset(instances)
    copies = StateAugmentation(8, "dihedral8")(td)
    policy.eval()
    best = torch.full((NUM,), -torch.inf)
    for copy in range(8):
        seen = copies[copy * NUM : (copy + 1) * NUM]
        for start in range(env.get_num_starts(td)):
            with torch.no_grad():
                actions = policy(
                    seen,
                    env,
                    decode_type="multistart_greedy",
                    num_starts=1,
                    select_start_nodes_fn=lambda td, env, n, s=start: env.select_start_nodes(
                        td, s + 1
                    )[-td.batch_size[0] :],
                )["actions"]
            best = torch.maximum(best, env.get_reward(td, actions))
    torch.testing.assert_close(result["rewards"], best)


def test_multistart_by_hand(setting):
    """Best of the policy's own multi-start rows, starts taken from the instance."""
    env, policy, instances = setting
    # The generator's size must not matter: the instances are larger than it says.
    env.generator.num_loc = 4
    result = evaluate_policy(env, policy, instances, "multistart_greedy")
    td = env.reset(instances)
    starts = NODES  # customers, or all cities
    with torch.no_grad():
        out = policy.eval()(td, env, decode_type="multistart_greedy", num_starts=starts)
    torch.testing.assert_close(result["rewards"], unbatchify(out["reward"], starts).amax(1))


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("augment_dihedral_8", "greedy"),
        ("augment", "greedy"),
        ("multistart_greedy_augment_dihedral_8", "multistart_greedy"),
        ("multistart_greedy_augment", "multistart_greedy"),
        ("multistart_greedy_augment", "augment"),
        ("multistart_greedy", "greedy"),
    ],
)
def test_more_effort_is_never_worse(setting, more, less):
    """The first copy is the instance itself, and the greedy start is among all starts."""
    env, policy, instances = setting
    best = evaluate_policy(env, policy, instances, more)["rewards"]
    plain = evaluate_policy(env, policy, instances, less)["rewards"]
    assert (best >= plain - 1e-6).all()


def test_sampling_draws_the_first_node_from_the_policy(setting):
    """With top_k=1 a sample is the greedy solution: no start is forced or drawn uniformly."""
    env, policy, instances = setting
    sampled = evaluate_policy(env, policy, instances, "sampling", samples=4, top_k=1)
    plain = evaluate_policy(env, policy, instances, "greedy")
    assert torch.equal(sampled["actions"], plain["actions"])


def test_temperature_is_honoured(setting):
    """A tiny temperature is greedy decoding, under both names of the argument."""
    env, policy, instances = setting
    plain = evaluate_policy(env, policy, instances)["actions"]
    for name in ("temperature", "softmax_temp"):
        cold = evaluate_policy(env, policy, instances, "sampling", samples=3, **{name: 1e-6})
        assert torch.equal(cold["actions"], plain)
    warm = evaluate_policy(env, policy, instances, "sampling", samples=1, temperature=1.0)
    assert not torch.equal(warm["actions"], plain)


def test_sampling_is_reproducible_and_improves_with_samples(setting):
    """The seed fixes the samples; the global random state plays no part and is left alone."""
    env, policy, instances = setting
    state = torch.get_rng_state()
    first = evaluate_policy(env, policy, instances, "sampling", samples=8)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    again = evaluate_policy(env, policy, instances, "sampling", samples=8)
    assert torch.equal(first["actions"], again["actions"])
    other = evaluate_policy(env, policy, instances, "sampling", samples=8, seed=5)
    assert not torch.equal(first["actions"], other["actions"])
    many = evaluate_policy(env, policy, instances, "sampling", samples=64)
    assert many["avg_reward"] > first["avg_reward"]


def test_beam_search_uses_its_width(setting):
    """One beam is greedy decoding; the policy's own wide beam gives the same best reward."""
    env, policy, instances = setting
    narrow = evaluate_policy(env, policy, instances, "beam_search", beam_width=1)
    assert torch.equal(narrow["actions"], evaluate_policy(env, policy, instances)["actions"])
    wide = evaluate_policy(env, policy, instances, "beam_search", beam_width=6)
    with torch.no_grad():
        out = policy.eval()(env.reset(instances), env, decode_type="beam_search", beam_width=6)
    torch.testing.assert_close(wide["rewards"], unbatchify(out["reward"], 6).amax(1))


def test_rewards_are_of_the_original_instance(setting):
    """An augmentation that does not keep distances cannot flatter the result."""
    env, policy, instances = setting
    result = evaluate_policy(env, policy, instances, "augment", num_augment=3)
    td = env.reset(instances)
    expected = env.get_reward(batchify(td, 1), result["actions"])
    torch.testing.assert_close(result["rewards"], expected)


def test_actions_are_padded_to_a_common_length():
    """Batches of different length become one tensor; at the depot, zeros cost nothing."""
    torch.manual_seed(0)
    env = get_env("cvrp", generator_params={"num_loc": 8, "capacity": 10.0})
    policy = AttentionModelPolicy(env_name="cvrp", embed_dim=16, num_heads=2, num_encoder_layers=1)
    instances = env.generator(12, rng=torch.Generator().manual_seed(3))
    result = evaluate_policy(env, policy, instances, batch_size=1)
    lengths = {
        greedy(env, policy, env.reset(instances[i : i + 1]))["actions"].shape[-1] for i in range(12)
    }
    assert len(lengths) > 1, "the test needs solutions of different length"
    assert result["actions"].shape == (12, max(lengths))
    td = env.reset(instances)
    torch.testing.assert_close(env.get_reward(td, result["actions"]), result["rewards"])


@pytest.mark.parametrize("kind", ["tensordict", "dataset", "path", "string"])
def test_data_sets_of_any_kind(setting, tmp_path: Path, kind):
    """Instances, a data set and a file give the same result."""
    env, policy, instances = setting
    path = save_tensordict_to_npz(instances, tmp_path / "data.npz")
    data = {
        "tensordict": instances,
        "dataset": TensorDictDataset(instances),
        "path": path,
        "string": str(path),
    }[kind]
    expected = evaluate_policy(env, policy, instances)["rewards"]
    torch.testing.assert_close(evaluate_policy(env, policy, data)["rewards"], expected)


def test_number_of_test_instances(setting):
    """A number stands for that many instances of the paper's test seed."""
    env, policy, _ = setting
    result = evaluate_policy(env, policy, 5)
    same = evaluate_policy(env, policy, env.dataset(5, phase="test"))
    assert torch.equal(result["rewards"], same["rewards"])


def test_results_are_saved(setting, tmp_path: Path):
    """Rewards and actions end up in one file."""
    env, policy, instances = setting
    result = evaluate_policy(env, policy, instances, save_path=tmp_path / "results")
    saved = load_npz_to_tensordict(tmp_path / "results.npz")
    assert torch.equal(saved["rewards"], result["rewards"])
    assert torch.equal(saved["actions"], result["actions"])


def test_batch_is_halved_when_memory_runs_out(setting):
    """A chosen batch size adapts; one that was asked for does not."""
    env, policy, instances = setting
    expected = evaluate_policy(env, policy, instances)["actions"]

    class Small(torch.nn.Module):
        sizes: list[int] = []

        def forward(self, td, *args, **kwargs):
            self.sizes.append(td.batch_size[0])
            if td.batch_size[0] > 2:
                raise torch.OutOfMemoryError("out of memory")
            return policy.eval()(td, *args, **kwargs)

    small = Small()
    result = evaluate_policy(env, small, instances)
    assert torch.equal(result["actions"], expected)
    assert small.sizes[0] == NUM and max(small.sizes[-2:]) <= 2
    with pytest.raises(torch.OutOfMemoryError):
        evaluate_policy(env, small, instances, batch_size=4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "greedi"}, UnknownNameError, "did you mean 'greedy'"),
        ({"batch_size": 0}, ConfigError, "batch_size"),
        ({"auto_batch_size": False}, ConfigError, "auto_batch_size"),
        ({"method": "greedy", "num_starts": 3}, ConfigError, "num_starts"),
        ({"method": "greedy", "top_p": 0.5}, ConfigError, "top_p"),
        ({"method": "sampling", "beam_width": 3}, ConfigError, "beam_width"),
        ({"method": "sampling", "samples": 0}, ConfigError, "num_samples"),
        ({"method": "sampling", "temperature": -1.0}, ConfigError, "temperature"),
        ({"temperature": 1.0, "softmax_temp": 2.0}, ConfigError, "softmax_temp"),
        ({"method": "augment_dihedral_8", "num_augment": 9}, ConfigError, "num_augment"),
        ({"method": "multistart_greedy", "num_starts": 99}, ConfigError, "starts"),
    ],
)
def test_bad_arguments(setting, arguments, error, message):
    """Each wrong argument raises an error that names it."""
    env, policy, instances = setting
    with pytest.raises(error, match=message):
        evaluate_policy(env, policy, instances, **arguments)


@pytest.mark.parametrize("data", [[1, 2], None, True, {}])
def test_bad_data_sets(setting, data):
    """Other types than data sets raise."""
    env, policy, _ = setting
    with pytest.raises(ConfigError, match="as data set"):
        evaluate_policy(env, policy, data)


def test_empty_data_set(setting):
    """Not a batch of the wrong shape: there is nothing in it."""
    env, policy, instances = setting
    with pytest.raises(ConfigError, match=r"at least one instance"):
        evaluate_policy(env, policy, instances[:0])


def test_missing_file(setting):
    """A missing file is never replaced by random data."""
    env, policy, _ = setting
    with pytest.raises(FileNotFoundError, match="nothing_here"):
        evaluate_policy(env, policy, "nothing_here.npz")
