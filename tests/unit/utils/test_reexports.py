"""Published import paths lead to the library's own objects, and load no more than they need."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import torch

from tensordict import TensorDict
from torch import nn

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError

PUBLISHED = {
    "rl4co.utils": [
        "RL4COTrainer", "extras", "get_pylogger", "instantiate_callbacks", "instantiate_loggers",
        "show_versions", "task_wrapper",
    ],
    "rl4co.utils.ops": [
        "batchify", "calculate_entropy", "gather_by_index", "get_distance", "get_distance_matrix",
        "get_num_starts", "get_tour_length", "select_start_nodes", "sparsify_graph", "unbatchify",
        "unbatchify_and_gather",
    ],
    "rl4co.utils.decoding": [
        "BeamSearch", "DecodingStrategy", "Evaluate", "Greedy", "Sampling",
        "get_decoding_strategy", "get_log_likelihood", "process_logits", "random_policy", "rollout",
    ],
    "rl4co.utils.trainer": ["RL4COTrainer"],
    "rl4co.utils.pylogger": ["get_pylogger"],
    "rl4co.utils.test_utils": ["generate_env_data"],
    "rl4co.models.nn.env_embeddings": [
        "env_context_embedding", "env_dynamic_embedding", "env_edge_embedding",
        "env_init_embedding",
    ],
    "rl4co.models.nn.env_embeddings.init": ["env_init_embedding"],
    "rl4co.models.nn.env_embeddings.context": ["env_context_embedding"],
    "rl4co.models.nn.env_embeddings.dynamic": ["env_dynamic_embedding"],
    "rl4co.models.nn.env_embeddings.edge": ["env_edge_embedding"],
    "rl4co.envs.common": ["Generator", "RL4COEnvBase", "get_sampler"],
    "rl4co.envs.common.base": ["RL4COEnvBase"],
    "rl4co.envs.common.utils": ["Generator", "get_sampler"],
    "rl4co.data.generate_data": [
        "generate_dataset", "generate_default_datasets", "generate_env_data",
    ],
    "rl4co.data.transforms": [
        "StateAugmentation", "dihedral_8_augmentation", "min_max_normalize",
        "symmetric_augmentation",
    ],
    "rl4co.data.utils": ["load_npz_to_tensordict", "save_tensordict_to_npz"],
}  # fmt: skip
#: Packages that are no facades, with some of the names they import on first use.
LAZY = {
    "rl4co.models.rl": ["A2C", "PPO", "REINFORCE", "RL4COLitModule", "StepwisePPO"],
    "rl4co.models.zoo": ["AttentionModel", "AttentionModelPolicy", "MatNet", "POMO", "SymNCO"],
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in PUBLISHED.items() for name in names]
)
def test_published_names_exist(module: str, name: str):
    """Each can be imported and lives in another module of the library."""
    published = importlib.import_module(module)
    found = getattr(published, name)
    assert name in published.__all__
    assert found.__module__.startswith("rl4co.")
    assert found.__module__ not in PUBLISHED


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in LAZY.items() for name in names]
)
def test_packages_import_their_classes_on_first_use(module: str, name: str):
    """The same objects as those of `rl4co.models`, listed by `dir`."""
    import rl4co.models

    package = importlib.import_module(module)
    assert getattr(package, name) is getattr(rl4co.models, name)
    assert name in dir(package)
    with pytest.raises(AttributeError, match=f"{module}.*{name}s"):
        getattr(package, f"{name}s")


@pytest.mark.parametrize(
    "module",
    [
        "rl4co.utils",
        "rl4co.utils.ops",
        "rl4co.utils.decoding",
        "rl4co.envs.common.base",
        "rl4co.data.transforms",
        "rl4co.models.rl",
        "rl4co.models.zoo",
    ],
)
def test_light_paths_stay_light(module: str):
    """Tensor functions and decoding come without Lightning, Hydra and plotting."""
    script = (
        f"import sys, {module}\n"
        "heavy = {'lightning', 'pytorch_lightning', 'hydra', 'omegaconf', 'matplotlib', 'numba'}\n"
        "loaded = heavy & {name.split('.')[0] for name in sys.modules}\n"
        "assert not loaded, loaded"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_starts_by_environment_or_name():
    """As methods of the environment, in the published row order."""
    from rl4co.envs import CVRPEnv
    from rl4co.utils.ops import get_num_starts, select_start_nodes

    env = CVRPEnv(generator_params={"num_loc": 7})
    td = env.reset(batch_size=2)
    # Seven customers; an environment made from the name would generate instances of 20.
    assert get_num_starts(td, env) == get_num_starts(td, "cvrp") == 7
    assert select_start_nodes(td, env, 3).tolist() == [1, 1, 2, 2, 3, 3]
    with pytest.raises(ConfigError, match="1 to 7 starts"):
        select_start_nodes(td, env, 8)
    with pytest.raises(UnknownNameError, match="did you mean 'cvrp'"):
        get_num_starts(td, "cvpr")


@pytest.mark.parametrize(("name", "keys"), [("tsp", {"locs"}), ("cvrp", {"locs", "demand"})])
def test_generate_env_data(name: str, keys: set[str]):
    """An environment of the size, and instances that it can be reset on."""
    from rl4co.utils.test_utils import generate_env_data

    env, instances = generate_env_data(name, 9, 4)
    assert env.name == name
    assert isinstance(instances, TensorDict)
    assert instances["locs"].shape == (4, 9, 2)
    assert keys <= set(instances.keys())
    assert env.reset(instances).batch_size == (4,)


def test_published_rollout_loop():
    """The loop of the published quickstart: random policy, reward, actions."""
    from rl4co.utils.decoding import random_policy, rollout
    from rl4co.utils.test_utils import generate_env_data

    env, instances = generate_env_data("cvrp", 8, 5)
    reward, td, actions = rollout(env, env.reset(instances), random_policy)
    assert td["done"].all()
    assert reward.shape == (5,)
    torch.testing.assert_close(reward, env.get_reward(env.reset(instances), actions))


@pytest.mark.parametrize("name", ["tsp", "cvrp"])
def test_embeddings_by_name(name: str):
    """Init embeddings give one vector per node; settings reach them."""
    from rl4co.envs import get_env
    from rl4co.models.nn.env_embeddings import (
        env_context_embedding,
        env_dynamic_embedding,
        env_edge_embedding,
        env_init_embedding,
    )

    config = {"embed_dim": 16, "linear_bias": False}
    td = get_env(name).reset(batch_size=3)
    init = env_init_embedding(name, config)
    assert init(td).shape == (3, td["action_mask"].shape[-1], 16)
    assert all("bias" not in key for key, _ in init.named_parameters())
    assert isinstance(env_context_embedding(name, {"embed_dim": 16}), nn.Module)
    assert env_dynamic_embedding(name, {"embed_dim": 16}) is None
    assert isinstance(env_edge_embedding(name, {"embed_dim": 16}), nn.Module)
    with pytest.raises(UnsupportedError, match="edge embedding"):
        env_edge_embedding("pdp", {"embed_dim": 16})


def test_wrong_embedding_requests_are_rejected():
    """Unknown settings and unknown environments, with the nearest name."""
    from rl4co.models.nn.env_embeddings import env_init_embedding

    with pytest.raises(UnknownNameError, match="did you mean 'embed_dim'"):
        env_init_embedding("tsp", {"embed_dims": 16})
    with pytest.raises(UnknownNameError, match="no embedding 'tps'; did you mean 'tsp'"):
        env_init_embedding("tps", {"embed_dim": 16})
