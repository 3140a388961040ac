"""Losses and advantages as pure functions of tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from torch import Tensor

from rl4co.core.errors import ConfigError


def reinforce_loss(advantage: Tensor, log_likelihood: Tensor) -> Tensor:
    """Policy-gradient loss whose gradient is that of REINFORCE.

    $$L = -\\frac{1}{|B|} \\sum_b (R_b - b_b) \\log \\pi(a_b | x_b)$$

    Args:
        advantage: Reward minus baseline, any shape; treated as a constant.
        log_likelihood: Of the same shape.
    """
    _check_same_shape("advantage", advantage, "log_likelihood", log_likelihood)
    return -(advantage.detach() * log_likelihood).mean()


def critic_loss(value: Tensor, reward: Tensor) -> Tensor:
    """Mean squared error of the value against the (constant) reward of the same shape."""
    _check_same_shape("value", value, "reward", reward)
    return F.mse_loss(value, reward.detach())


def huber_critic_loss(value: Tensor, reward: Tensor) -> Tensor:
    """Huber error of the value: squared up to a difference of 1, linear beyond.

    $$\\ell(d) = d^2 / 2 \\text{ for } |d| \\le 1, \\qquad |d| - 1/2 \\text{ otherwise}$$

    Where actor and critic share one bound on the gradient's norm, a critic that is still far from
    the rewards would leave nothing of it to the actor with squared errors.

    Args:
        value: Any shape.
        reward: Of the same shape; treated as a constant.
    """
    _check_same_shape("value", value, "reward", reward)
    return F.huber_loss(value, reward.detach())


def clipped_surrogate_loss(ratio: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """Loss of proximal policy optimization (Schulman et al., 2017).

    $$L = -\\frac{1}{|B|} \\sum_b \\min\\left(r_b A_b,
      \\mathrm{clip}(r_b, 1 - \\epsilon, 1 + \\epsilon) A_b\\right)$$

    Args:
        ratio: New probability divided by old, $r = \\pi / \\pi_{old}$, any shape.
        advantage: Of the same shape; treated as a constant.
        clip_range: $\\epsilon$.
    """
    _check_same_shape("ratio", ratio, "advantage", advantage)
    advantage = advantage.detach()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


def probability_ratio(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """New probability divided by old, $\\pi / \\pi_{old}$, from logarithms of the same shape.

    Bounded by $e^{\\pm 20}$, far outside any clip range: log-probabilities of whole solutions are
    sums over many steps, and their difference could overflow.
    """
    _check_same_shape("log_prob", log_prob, "old_log_prob", old_log_prob)
    return (log_prob - old_log_prob.detach()).clamp(-20.0, 20.0).exp()


def standardize(values: Tensor) -> Tensor:
    """Values with mean 0 and deviation 1; where all are the same, zeros."""
    return (values - values.mean()) / (values.std(correction=0) + 1e-8)


def generalized_advantages(
    reward: Tensor,
    value: Tensor,
    done: Tensor,
    gamma: float = 1.0,
    gae_lambda: float = 0.95,
) -> Tensor:
    """Generalized advantage estimation (Schulman et al., 2016) of complete episodes.

    $$\\delta_t = r_t + \\gamma V(s_{t+1}) - V(s_t), \\qquad
      A_t = \\delta_t + \\gamma \\lambda A_{t+1}$$

    with $V = 0$ and $A = 0$ behind the end of an episode. The value's target is $A_t + V(s_t)$:
    with $\\lambda = 1$ the rewards to come, with $\\gamma = 0$ the next reward alone.

    Args:
        reward: Reward $r_t$ of each step `[T, B]`.
        value: Value $V(s_t)$ of the state before each step `[T, B]`.
        done: Whether an episode was over before each step `[T, B]`; such steps get 0.
        gamma: Discount.
        gae_lambda: Weight $\\lambda$ of longer estimates.

    Returns:
        Advantages `[T, B]`, constants.
    """
    _check_same_shape("reward", reward, "value", value)
    _check_same_shape("reward", reward, "done", done)
    reward, value = reward.detach(), value.detach()
    advantages = torch.zeros_like(reward)
    nothing = torch.zeros_like(reward[0])
    later_advantage, later_value = nothing, nothing
    for step in reversed(range(len(reward))):
        delta = reward[step] + gamma * later_value - value[step]
        advantage = delta + gamma * gae_lambda * later_advantage
        later_advantage = torch.where(done[step], nothing, advantage)
        later_value = torch.where(done[step], nothing, value[step])
        advantages[step] = later_advantage
    return advantages


def n_step_returns(reward: Tensor, bootstrap: Tensor, gamma: float) -> Tensor:
    """Discounted rewards of a segment and the value behind it.

    $$R_t = r_t + \\gamma R_{t+1}, \\qquad R_n = V(s_n)$$

    Args:
        reward: Rewards $r_0, \\dots, r_{n-1}$ `[n, B]`.
        bootstrap: Value $V(s_n)$ of the state behind them `[B]`.
        gamma: Discount.

    Returns:
        Returns `[n, B]`, constants.
    """
    _check_same_shape("reward of a step", reward[0], "bootstrap", bootstrap)
    later, returns = bootstrap.detach(), []
    for step in reversed(range(len(reward))):
        later = reward[step].detach() + gamma * later
        returns.append(later)
    return torch.stack(returns[::-1])


def clipped_value_loss(
    value: Tensor, target: Tensor, old_value: Tensor, clip_range: float
) -> Tensor:
    """Mean squared error of a value, that moves no further than by the clip range for nothing.

    $$L = \\frac{1}{|B|} \\sum_b \\max\\left((v_b - R_b)^2, (v'_b - R_b)^2\\right), \\qquad
      v' = v_{old} + \\mathrm{clip}(v - v_{old}, -\\epsilon, \\epsilon)$$

    Args:
        value: Any shape.
        target: Of the same shape; treated as a constant.
        old_value: The value before the first update, of the same shape; treated as a constant.
        clip_range: $\\epsilon$.
    """
    _check_same_shape("value", value, "target", target)
    _check_same_shape("value", value, "old_value", old_value)
    target, old_value = target.detach(), old_value.detach()
    clipped = old_value + (value - old_value).clamp(-clip_range, clip_range)
    return torch.maximum((value - target).square(), (clipped - target).square()).mean()


def eas_loss(
    advantage: Tensor, log_likelihood: Tensor, incumbent: Tensor | None, weight: float
) -> Tensor:
    """Loss of efficient active search: REINFORCE, and imitation of the best solution so far.

    Paper: Hottung et al. (2022), https://arxiv.org/abs/2106.05126

    $$L = \\sum_r \\Big(-\\frac{1}{S} \\sum_s (R_{rs} - b_r) \\log \\pi_r(a_{rs})
      - \\lambda \\log \\pi_r(\\bar a_r)\\Big)$$

    Rows have parameters of their own, so they are summed: what one of them learns does not depend
    on how many others there are.

    Args:
        advantage: Reward minus baseline `[R, S]`; treated as a constant.
        log_likelihood: Of the same solutions `[R, S]`.
        incumbent: Log-likelihoods of the best solutions `[R]`; None before there are any.
        weight: Weight $\\lambda$ of the imitation.
    """
    loss = len(log_likelihood) * reinforce_loss(advantage, log_likelihood)
    return loss if incumbent is None else loss - weight * incumbent.sum()


def shared_advantage(reward: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Reward minus the mean reward of the solutions that share a baseline.

    Args:
        reward: Of any shape.
        dim: Axes of the solutions that share it.

    Returns:
        Advantages of the same shape, constants for the policy gradient.
    """
    return (reward - reward.mean(dim, keepdim=True)).detach()


def invariance_loss(projected: Tensor) -> Tensor:
    """Minus the mean cosine similarity of an instance's embeddings under different symmetries.

    Paper: Kim et al. (2022), Sym-NCO, https://arxiv.org/abs/2205.13209

    $$L_{\\mathrm{inv}} = -\\frac{1}{B (A - 1) N} \\sum_{b, n} \\sum_{a > 0}
      \\cos\\left(g(h^{b,0}_n), g(h^{b,a}_n)\\right)$$

    Args:
        projected: Projected embeddings of all nodes, copies of the same instance along the second
            axis `[B, A, N, D]`; at least two of them.
    """
    if projected.dim() != 4 or projected.shape[1] < 2:
        raise ConfigError(
            "expected projected embeddings [B, A, N, D] of at least two copies per instance, got "
            f"shape {list(projected.shape)}"
        )
    direction = F.normalize(projected, dim=-1)
    return -(direction[:, :1] * direction[:, 1:]).sum(-1).mean()


def best_of_advantage(reward: Tensor) -> tuple[Tensor, Tensor]:
    """Advantage of each instance's best solution over the mean of its solutions.

    Only the best solution is reinforced, so that the others are free to become good elsewhere.

    Paper: Grinsztajn et al. (2023), Poppy, https://arxiv.org/abs/2210.03475

    $$A_b = \\max_k R_{bk} - \\frac{1}{K} \\sum_k R_{bk}$$

    Args:
        reward: `[B, K]`, at least two solutions per instance.

    Returns:
        Advantages `[B]` (constants) and the index of each best solution `[B]`, the first on ties.
    """
    if reward.dim() != 2 or reward.shape[1] < 2:
        raise ConfigError(
            f"expected rewards [B, K] of at least two solutions per instance, got shape "
            f"{list(reward.shape)}; without others there is nothing to be better than"
        )
    best, index = reward.detach().max(1)
    return best - reward.detach().mean(1), index


def self_labeling_loss(log_likelihood: Tensor, num_steps: int) -> Tensor:
    """Cross-entropy of the best solutions sampled, as if they were labels.

    Paper: Corsini et al. (2024), https://arxiv.org/abs/2401.11849

    $$L = -\\frac{1}{|B| T} \\sum_b \\log \\pi(a^{b,*} | x_b)$$

    Args:
        log_likelihood: Of the best solution of each instance `[B]`.
        num_steps: Steps T of a solution, so that the loss does not grow with the instances.
    """
    return -log_likelihood.mean() / num_steps


#: Rewards that differ by less than this share are equal: rounding prefers nothing.
_TIE = 1e-6


def preference_loss(reward: Tensor, log_likelihood: Tensor, alpha: float = 0.05) -> Tensor:
    """Loss of preference optimisation: the better of two solutions shall be the more likely one.

    Paper: Pan et al. (2025), https://arxiv.org/abs/2505.08735

    $$L = -\\frac{1}{|P|} \\sum_{(b, i, j) \\in P}
      \\log \\sigma\\big(\\alpha (\\log \\pi(a^{b,i}) - \\log \\pi(a^{b,j}))\\big), \\qquad
      P = \\{(b, i, j) : R_{bi} > R_{bj}\\}$$

    Args:
        reward: Of several solutions of each instance `[B, S]`; a constant.
        log_likelihood: Of the same solutions `[B, S]`.
        alpha: How much a preference asks for; larger values explore less.

    Returns:
        A scalar; 0 if no solution is better than another one.
    """
    _check_solutions(reward, log_likelihood)
    difference = reward.detach().unsqueeze(2) - reward.detach().unsqueeze(1)  # [B, S, S]
    better = difference > _TIE * reward.detach().abs().unsqueeze(2)
    margin = log_likelihood.unsqueeze(2) - log_likelihood.unsqueeze(1)
    losses = torch.where(better, -F.logsigmoid(alpha * margin), 0.0)
    return losses.sum() / better.sum().clamp_min(1)


def best_anchored_loss(reward: Tensor, log_likelihood: Tensor, num_steps: int) -> Tensor:
    """Loss of BOPO: the best solution of an instance against each of the others.

    Paper: Liao et al. (2025), https://arxiv.org/abs/2503.07580

    $$L = -\\frac{1}{|P|} \\sum_{(b, j) \\in P} \\log \\sigma\\Big(\\frac{R_{bj}}{R_{b*}}
      \\frac{\\log \\pi(a^{b,*}) - \\log \\pi(a^{b,j})}{T}\\Big), \\qquad
      P = \\{(b, j) : R_{b*} > R_{bj}\\}$$

    The ratio of the costs $-R$ makes a preference the stronger, the worse the other solution is.

    Args:
        reward: Negative rewards (costs) of several solutions of each instance `[B, S]`.
        log_likelihood: Of the same solutions `[B, S]`.
        num_steps: Steps T of a solution.

    Returns:
        A scalar; 0 if no solution is better than another one.
    """
    _check_solutions(reward, log_likelihood)
    reward = reward.detach()
    best, index = reward.max(1, keepdim=True)  # [B, 1]
    worse = best - reward > _TIE * best.abs()  # [B, S]
    if bool((best >= 0).any()):
        raise ConfigError("expected negative rewards (costs) for loss='bopo'; use loss='po'")
    margin = (log_likelihood.gather(1, index) - log_likelihood) / num_steps
    losses = torch.where(worse, -F.logsigmoid(reward / best * margin), 0.0)
    return losses.sum() / worse.sum().clamp_min(1)


def _check_solutions(reward: Tensor, log_likelihood: Tensor) -> None:
    _check_same_shape("reward", reward, "log_likelihood", log_likelihood)
    if reward.dim() != 2 or reward.shape[1] < 2:
        raise ConfigError(
            "expected rewards [B, S] of at least two solutions per instance for preferences, got "
            f"shape {list(reward.shape)}; use a method with several starts or samples, such as POMO"
        )


def path_divergence(log_probs: Tensor) -> Tensor:
    """How much several distributions differ: the mean divergence of two of them (Xin et al., 2021).

    $$\\frac{1}{P (P - 1)} \\sum_{i \\ne j} \\mathrm{KL}(\\pi_i \\| \\pi_j)$$

    Args:
        log_probs: `[P, *B, N]`; minus infinity at the same places for all P.

    Returns:
        `[*B]`; zero for a single distribution.
    """
    num_paths = log_probs.shape[0]
    impossible = log_probs == -torch.inf
    finite = torch.where(impossible, 0.0, log_probs)
    probs = torch.where(impossible, 0.0, finite.exp())
    # Terms with i = j are zero, so that the double sum falls apart.
    total = num_paths * (probs * finite).sum(0) - probs.sum(0) * finite.sum(0)  # [*B, N]
    return total.sum(-1) / max(num_paths * (num_paths - 1), 1)


def _check_same_shape(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Broadcasting `[B, 1]` against `[B]` would quietly compute a B × B loss."""
    if tensor.shape != other.shape:
        raise ConfigError(
            f"expected {name} and {other_name} of the same shape, got {list(tensor.shape)} and "
            f"{list(other.shape)}"
        )
