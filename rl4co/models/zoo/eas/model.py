"""Efficient active search: few parameters are learnt for each instance (Hottung et al., 2022).

Paper: https://arxiv.org/abs/2106.05126. Original code: ahottung/EAS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn
from typing_extensions import override

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.registry import MODELS
from rl4co.core.rng import derive_generator
from rl4co.data.dataset import TensorDictDataset
from rl4co.decoding.searches.sgbs import SimulationGuidedBeamSearch
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.policies.precision import match_precision
from rl4co.models.rl.instance_copies import InstanceCopies
from rl4co.models.rl.instance_search import Candidates, InstanceSearch
from rl4co.models.rl.losses import eas_loss
from rl4co.models.rl.optimizers import OptimizerLike
from rl4co.models.rl.saved_policies import read_policy
from rl4co.models.rl.transductive import TransductiveModel
from rl4co.models.zoo.am import AttentionModelPolicy
from rl4co.models.zoo.eas.adaptation import check_embeddings, make_adaptation
from rl4co.models.zoo.eas.decoder import AdaptedDecoder, check_decoder
from rl4co.models.zoo.eas.policy import AdaptedPolicy

#: Baseline → axes of the rewards `[B, K, S]` over which it takes the mean.
BASELINES = {"multistart": (-1,), "symmetric": (-2,), "full": (-2, -1)}


class AdaptationSearch(InstanceSearch):
    """REINFORCE and imitation of the incumbent, on separate parameters of the copies.

    Args:
        policy: Copy of the policy; what is in it does not learn.
        copies: The instances and their copies.
        model: The search's settings.
    """

    def __init__(self, policy: ConstructivePolicy, copies: InstanceCopies, model: EAS) -> None:
        self.copies, self.axes, self.weight = copies, BASELINES[model.baseline], model.eas_lambda
        self.beam, self.beam_interval = model.beam, model.beam_interval
        decoder: Any = policy.decoder
        with torch.no_grad():
            td = match_precision(copies.td, policy)
            state = dict(td.items())
            check_decoder(decoder, model.use_eas_embedding)
            self.cache = decoder.prepare(policy.encoder(td)[0], state)
        self.adapted = make_adaptation(
            self.cache,
            copies.num_copies,
            model.use_eas_layer,
            model.eas_emb_cache_keys if model.use_eas_embedding else (),
            derive_generator(model.run_seed, "layer"),
        )
        self.policy = AdaptedPolicy(policy, AdaptedDecoder(decoder, self.adapted)).eval()

    def sample(self, incumbent: Tensor | None, rng: torch.Generator) -> Candidates:
        """Solutions of the policy as it is now; it is drawn towards the incumbent."""
        solved = self.copies.solve(
            self.policy, incumbent, hidden=self.cache, instances=self.copies.batch, rng=rng
        )
        count = self.copies.num_solutions
        rewards = solved.rewards[..., :count]  # [B, K, S]
        advantage = rewards - rewards.mean(self.axes, keepdim=True)
        likelihood = solved.log_likelihood.flatten(0, 1)  # [B * K, S]
        loss = eas_loss(
            advantage.flatten(0, 1).to(likelihood.dtype),
            likelihood[:, :count],
            likelihood[:, -1] if incumbent is not None else None,
            self.weight,
        )
        solutions = solved.actions[:, :, :count].flatten(1, 2)  # [B, K * S, T]
        return Candidates(solutions, rewards.flatten(1), loss)

    @override
    def intensify(self, iteration: int) -> tuple[Tensor, Tensor] | None:
        if self.beam_interval is None or (iteration + 1) % self.beam_interval:
            return None
        with torch.no_grad():
            return self.copies.decode(self.policy, decode_type=self.beam, hidden=self.cache)


@MODELS.register("eas")
class EAS(TransductiveModel):
    """Learns a layer, or the embeddings, of each copy of each instance; all other weights stay.

    $$\\nabla L = -\\frac{1}{S} \\sum_s (R(a^s) - b) \\nabla \\log \\pi(a^s)
      - \\lambda \\nabla \\log \\pi(\\bar a)$$

    with the best solution $\\bar a$ so far. Instances of a batch are searched at the same time,
    and independently of each other.

    Args:
        policy: Pretrained policy with the Attention Model's kind of decoder, or its checkpoint or
            folder; not changed. Default: an Attention Model without training.
        dataset: Instances to search, see :class:`TransductiveModel`.
        use_eas_embedding: Whether embeddings are learnt (EAS-Emb).
        use_eas_layer: Whether a layer is added after the glimpse (EAS-Lay).
        eas_emb_cache_keys: Embeddings that are learnt: "logit_key" (default, as in the paper's
            code), "glimpse_key", "glimpse_val".
        eas_lambda: Weight of the imitation.
        augment_size: Copies of an instance under symmetries (default: 8 where there are any).
        augment_dihedral: Symmetries of the square, or random rotations and reflections.
        num_parallel_runs: How often the copies are repeated, with separate parameters.
        beam_interval: Iterations from one simulation-guided beam search with the adapted policy to
            the next; the incumbent may come from it. None: no such searches.
        num_beams: Partial solutions of each copy that such a search keeps.
        expansion: Actions by which each of them is extended.
        baseline: Mean over a copy's solutions ("multistart"), over the copies of a start
            ("symmetric") or over both ("full").
        save_path: File for the incumbents, renewed as the search goes; an existing one is
            continued.
        optimizer: Name in `torch.optim`, class or factory; it must work element by element.
        optimizer_kwargs: Its arguments (default: those of the paper).
        policy_kwargs: Arguments of the default policy.
        kwargs: Further arguments, and those not listed here: see :class:`TransductiveModel`.
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | str | Path | None = None,
        dataset: TensorDictDataset | TensorDictBase | str | Path | None = None,
        use_eas_embedding: bool = True,
        use_eas_layer: bool = False,
        eas_emb_cache_keys: Sequence[str] = ("logit_key",),
        eas_lambda: float = 0.013,
        batch_size: int = 2,
        max_iters: int = 200,
        augment_size: int | None = None,
        augment_dihedral: bool = True,
        num_parallel_runs: int = 1,
        baseline: str = "multistart",
        beam_interval: int | None = None,
        num_beams: int = 4,
        expansion: int = 4,
        max_runtime: float | None = 86_400,
        save_path: str | Path | None = None,
        optimizer: OptimizerLike = "Adam",
        optimizer_kwargs: Mapping[str, Any] | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not (use_eas_embedding or use_eas_layer):
            raise ConfigError("expected use_eas_embedding or use_eas_layer, got neither")
        check_embeddings(eas_emb_cache_keys)
        if baseline not in BASELINES:
            raise UnknownNameError("baseline of EAS", baseline, BASELINES)
        if not eas_lambda >= 0:
            raise ConfigError(f"expected eas_lambda of at least 0, got {eas_lambda}")
        if beam_interval is not None and beam_interval < 1:
            raise ConfigError(f"expected beam_interval of at least 1 or None, got {beam_interval}")
        self.beam_interval = beam_interval
        self.beam = SimulationGuidedBeamSearch(beam_width=num_beams, expansion=expansion)
        super().__init__(
            env,
            self.default_policy(AttentionModelPolicy, env, read_policy(policy), policy_kwargs),
            dataset=dataset,
            batch_size=batch_size,
            max_iters=max_iters,
            max_runtime=max_runtime,
            save_path=save_path,
            augment_size=augment_size,
            augment_dihedral=augment_dihedral,
            num_parallel_runs=num_parallel_runs,
            optimizer=optimizer,
            optimizer_kwargs=optimizer_kwargs or {"lr": 0.0041, "weight_decay": 1e-6},
            **kwargs,
        )
        self.use_eas_embedding, self.use_eas_layer = use_eas_embedding, use_eas_layer
        self.eas_emb_cache_keys, self.eas_lambda = tuple(eas_emb_cache_keys), eas_lambda
        self.baseline = baseline
        check_decoder(self.policy.decoder, use_eas_embedding)

    def start_search(self, td: TensorDictBase) -> AdaptationSearch:
        """The search on reset instances, batch `[B]`."""
        return AdaptationSearch(self.fresh_policy().requires_grad_(False), self.copies(td), self)


class EASEmb(EAS):
    """EAS that learns embeddings.

    Args:
        args: See :class:`EAS`.
        kwargs: See :class:`EAS`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "use_eas_embedding": True, "use_eas_layer": False})


class EASLay(EAS):
    """EAS that learns a layer.

    Args:
        args: See :class:`EAS`.
        kwargs: See :class:`EAS`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "use_eas_embedding": False, "use_eas_layer": True})
