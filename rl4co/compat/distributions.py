"""Distributions of coordinates under their published names, with positional arguments."""

from __future__ import annotations

from rl4co.envs.samplers import (
    ClusterSampler,
    GaussianMixtureSampler,
    MixDistributionSampler,
    MixedSampler,
    MixMultiDistributionsSampler,
)


class Cluster(ClusterSampler):
    """Gaussian clusters, see :class:`~rl4co.envs.samplers.ClusterSampler`."""

    def __init__(self, n_cluster: int = 3) -> None:
        super().__init__(n_cluster=n_cluster)


class Mixed(MixedSampler):
    """Half clustered, half uniform, see :class:`~rl4co.envs.samplers.MixedSampler`."""

    def __init__(self, n_cluster_mix: int = 1) -> None:
        super().__init__(n_cluster_mix=n_cluster_mix)


class Gaussian_Mixture(GaussianMixtureSampler):
    """A Gaussian mixture, see :class:`~rl4co.envs.samplers.GaussianMixtureSampler`."""

    def __init__(self, num_modes: int = 0, cdist: int = 0) -> None:
        super().__init__(num_modes=num_modes, cdist=cdist)


class Mix_Distribution(MixDistributionSampler):
    """Uniform, clustered or mixed, see :class:`~rl4co.envs.samplers.MixDistributionSampler`."""

    def __init__(self, n_cluster: int = 3, n_cluster_mix: int = 1) -> None:
        super().__init__(n_cluster=n_cluster, n_cluster_mix=n_cluster_mix)


class Mix_Multi_Distributions(MixMultiDistributionsSampler):
    """One of eleven mixtures, see :class:`~rl4co.envs.samplers.MixMultiDistributionsSampler`."""

    def __init__(self) -> None:
        super().__init__()
