"""What is timed in a comparison: steps of all kinds, in the public API that both packages have."""

from __future__ import annotations

import importlib
import time

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torch import Tensor

CVRP_CAPACITY = {10: 20.0, 20: 30.0, 50: 40.0, 100: 50.0}
POMO_SETTINGS = {
    "num_encoder_layers": 6,
    "normalization": "instance",
    "use_graph_context": False,
}
GENERATOR_PARAMS = {"mtvrp": {"variant_preset": "all"}}
IMPROVEMENT_STEPS = 50
COLONY = {"n_ants": 20, "n_iterations": 3}
EVALUATION_BATCH = 4  # instances at a time, each with 8 augmentations of all starts


@dataclass(frozen=True)
class Spec:
    """What to run. Comes from the driver as JSON, the same for both contenders."""

    kind: str
    problem: str
    size: int
    batch: int
    inner: int = 1  # calls per timed repetition; the time of one is reported
    seed: int = 1234
    policy_kwargs: dict[str, Any] = field(default_factory=dict)
    env_kwargs: dict[str, Any] = field(default_factory=dict)  # replace the size
    method: str = ""  # class in `rl4co.models`, for the kinds `method_train` and `search`
    method_kwargs: dict[str, Any] = field(default_factory=dict)


Instances = dict[str, Tensor]
Step = Callable[[Any], tuple[Tensor, Tensor]]  # instances (TensorDict) -> actions, reward


def make_instances(spec: Spec, seed: int) -> Instances:
    """Instances of a case.

    Those of the TSP and the CVRP do not depend on either package's generator; for other problems
    each package draws its own, from the same distributions.

    Shapes: locs [B, n, 2], depot [B, 2], demand [B, n] (divided by capacity), capacity [B, 1].
    """
    problem, size, batch = spec.problem, spec.size, spec.batch
    rng = torch.Generator().manual_seed(seed)
    locs = torch.rand(batch, size, 2, generator=rng)
    if problem == "tsp":
        return {"locs": locs}
    if problem == "cvrp":
        if size not in CVRP_CAPACITY:
            raise ValueError(f"expected a CVRP size in {list(CVRP_CAPACITY)}, got {size}")
        capacity = CVRP_CAPACITY[size]
        return {
            "locs": locs,
            "depot": torch.rand(batch, 2, generator=rng),
            "demand": torch.randint(1, 10, (batch, size), generator=rng) / capacity,
            "capacity": torch.full((batch, 1), capacity),
        }
    torch.manual_seed(seed)
    return dict(make_env(spec).generator([batch]).items())


def package(name: str) -> Any:
    """Module of the rl4co that is installed here; untyped, because two packages fit the name."""
    return importlib.import_module(f"rl4co.{name}")


def make_env(spec: Spec) -> Any:
    """Environment of the package that is installed here."""
    size = {"num_loc": spec.size, **GENERATOR_PARAMS.get(spec.problem, {})}
    return package("envs").get_env(spec.problem, **(spec.env_kwargs or {"generator_params": size}))


def set_weights(policy: torch.nn.Module, seed: int) -> None:
    """Give both contenders the same weights, so that they decode the same solutions.

    The length of a CVRP solution depends on the random weights (by a third, for untrained ones),
    and with it the time. Matrices and free vectors get uniform numbers in the order of the
    parameters, which is the same in both packages; scales get one, biases zero.
    """
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            kind = name.rpartition(".")[2]
            if parameter.dim() == 1 and kind in ("weight", "bias"):
                parameter.fill_(1.0 if kind == "weight" else 0.0)
            else:
                bound = parameter.shape[-1] ** -0.5
                parameter.uniform_(-bound, bound, generator=rng)


def make_policy(spec: Spec, settings: dict[str, Any]) -> Any:
    """Attention Model policy; every extra argument must be one that the package really has."""
    options = {**settings, **spec.policy_kwargs}
    policy = package("models").AttentionModelPolicy(env_name=spec.problem, **options)
    for name in spec.policy_kwargs:
        # the published constructor swallows unknown names, which would label a row wrongly
        if not hasattr(policy, name):
            raise ValueError(f"expected a policy with {name!r}, got one without it")
    set_weights(policy, spec.seed)
    return policy


def am_train(spec: Spec) -> Step:
    """REINFORCE step of the Attention Model with the batch mean as baseline."""
    env, policy = make_env(spec), make_policy(spec, {})
    policy.train()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        out = policy(env.reset(instances), env, phase="train", decode_type="sampling")
        advantage = (out["reward"] - out["reward"].mean()).detach()  # [B]
        loss = -(advantage * out["log_likelihood"]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return out["actions"], out["reward"]

    return step


def pomo_train(spec: Spec) -> Step:
    """POMO step: one start per node, the mean over the starts of an instance as baseline."""
    env, policy = make_env(spec), make_policy(spec, POMO_SETTINGS)
    policy.train()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        out = policy(
            env.reset(instances),
            env,
            phase="train",
            decode_type="multistart_sampling",
            num_starts=spec.size,
        )
        reward = out["reward"].view(spec.size, -1)  # [S, B], starts outermost
        log_likelihood = out["log_likelihood"].view(spec.size, -1)  # [S, B]
        advantage = (reward - reward.mean(0, keepdim=True)).detach()
        loss = -(advantage * log_likelihood).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return out["actions"], out["reward"]

    return step


def greedy(spec: Spec) -> Step:
    """Greedy decoding without gradients."""
    env, policy = make_env(spec), make_policy(spec, {})
    policy.eval()

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            out = policy(env.reset(instances), env, phase="test", decode_type="greedy")
        return out["actions"], out["reward"]

    return step


def multistart_greedy(spec: Spec) -> Step:
    """Greedy decoding from every node with the POMO policy, without gradients."""
    env, policy = make_env(spec), make_policy(spec, POMO_SETTINGS)
    policy.eval()

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            out = policy(
                env.reset(instances),
                env,
                phase="test",
                decode_type="multistart_greedy",
                num_starts=spec.size,
            )
        return out["actions"], out["reward"]

    return step


def evaluate(spec: Spec) -> Step:
    """`evaluate_policy` with all starts under eight augmentations, with the POMO policy."""
    env, policy = make_env(spec), make_policy(spec, POMO_SETTINGS)
    policy.eval()
    task = package("tasks.eval")

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        out = task.evaluate_policy(
            env,
            policy,
            package("data.dataset").TensorDictDataset(instances),
            method="multistart_greedy_augment_dihedral_8",
            batch_size=EVALUATION_BATCH,
            auto_batch_size=False,
        )
        return out["actions"], out["rewards"]

    return step


class TrainerStep:
    """What a method does with one batch, in the package's own trainer; only that is timed.

    Some methods make several updates per batch, in ways that only their own trainer knows.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.seconds = 0.0
        importlib.import_module("lightning.pytorch")  # before memory is measured

    def fit(self, model: Any, instances: Any) -> dict[str, Tensor]:
        """Trains on one batch; the outputs of the step."""
        from lightning.pytorch.callbacks import LambdaCallback

        times: list[float] = []
        outputs: dict[str, Tensor] = {}

        def start(*_: Any) -> None:
            times.append(time.perf_counter())

        def stop(trainer: Any, module: Any, out: Any, *_: Any) -> None:
            times.append(time.perf_counter())
            outputs.update(out or {})

        trainer = package("utils").RL4COTrainer(
            max_epochs=1,
            accelerator="cpu",
            precision="32-true",
            logger=False,
            callbacks=[LambdaCallback(on_train_batch_start=start, on_train_batch_end=stop)],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        batches: Any = [instances]
        trainer.fit(
            model,
            torch.utils.data.DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch),
        )
        self.seconds = times[1] - times[0]
        return outputs


class MethodTrain(TrainerStep):
    """One training step of a method."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        make = getattr(package("models"), spec.method)
        sizes = {"train_data_size": spec.batch, "val_data_size": 2, "test_data_size": 2}
        options = {**sizes, **spec.method_kwargs}
        if spec.method == "L2DPPOModel":
            options["policy"] = shop_policy(spec.problem, options.pop("encoder"))
        self.model = make(make_env(spec), batch_size=spec.batch, **options)
        set_weights(self.model.policy, spec.seed)

    def __call__(self, instances: Any) -> tuple[Tensor, Tensor]:
        """Trains on one batch."""
        outputs = self.fit(self.model, instances)
        rewards = (value for name, value in outputs.items() if "reward" in name)
        return torch.empty(self.spec.batch, 0), next(rewards, torch.tensor(torch.nan))


class Search(TrainerStep):
    """Iterations of a search for single instances; the time of one is reported."""

    iterations = 4

    def __call__(self, instances: Any) -> tuple[Tensor, Tensor]:
        """Searches for one batch, from the same weights each time."""
        spec = self.spec
        make = getattr(package("models"), spec.method)
        model = make(
            make_env(spec),
            make_policy(spec, POMO_SETTINGS),
            package("data.dataset").TensorDictDataset(instances),
            batch_size=spec.batch,
            max_iters=self.iterations,
            **spec.method_kwargs,
        )
        outputs = self.fit(model, instances)
        self.seconds /= self.iterations
        return torch.empty(spec.batch, 0), outputs["max_reward"]


def shop_policy(problem: str, encoder: str) -> Any:
    """Policy of stepwise PPO for a job shop, with the encoder "gcn", "hgnn" or "matnet"."""
    make = package("models").L2DPolicy4PPO
    if encoder != "matnet":
        return make(env_name=problem, het_emb=encoder == "hgnn")
    try:  # the published package has no name for this encoder
        make_encoder = package("models.zoo.matnet.matnet_w_sa").Encoder
    except ImportError:
        return make(env_name=problem, encoder=encoder)
    extractor = make_encoder(
        embed_dim=64,
        num_heads=8,
        num_layers=2,
        normalization="batch",
        feedforward_hidden=128,
        init_embedding=package("models.nn.env_embeddings.init").FJSPMatNetInitEmbedding(64),
    )
    decoder = package("models.zoo.l2d.decoder").L2DDecoder(
        env_name=problem, feature_extractor=extractor, embed_dim=64, actor_hidden_dim=64
    )
    return make(env_name=problem, decoder=decoder)


def env_rollout(spec: Spec) -> Step:
    """Random rollout of the environment alone, no policy network."""
    decoding, env = package("utils.decoding"), make_env(spec)

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        reward, _, actions = decoding.rollout(env, env.reset(instances), decoding.random_policy)
        return actions, reward

    return step


def improve(spec: Spec) -> Step:
    """Fifty sampled moves of an improvement policy from random solutions, without gradients."""
    env, policy = make_env(spec), getattr(package("models"), spec.method)(**spec.method_kwargs)
    policy.eval()

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        td = env.reset(instances)
        with torch.no_grad():
            for _ in range(IMPROVEMENT_STEPS):
                out = policy(td, env, phase="test", return_actions=True)
                td = env.step(td.set("action", out["actions"]))["next"]
        return torch.empty(spec.batch, IMPROVEMENT_STEPS), -td["cost_bsf"]

    return step


def colony(spec: Spec) -> Step:
    """Ants of an untrained DeepACO with local search, without gradients."""
    env, make = make_env(spec), package("models").DeepACOPolicy
    search = {"aco_kwargs": {"use_local_search": True}}
    policy = make(env_name=spec.problem, **COLONY, **search).eval()

    def step(instances: Any) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            out = policy(env.reset(instances), env, phase="test")
        return out["actions"], out["reward"]

    return step


KINDS: dict[str, Callable[[Spec], Step]] = {
    "colony": colony,
    "improve": improve,
    "am_train": am_train,
    "pomo_train": pomo_train,
    "greedy": greedy,
    "multistart_greedy": multistart_greedy,
    "env_rollout": env_rollout,
    "evaluate": evaluate,
    "method_train": MethodTrain,
    "search": Search,
}
