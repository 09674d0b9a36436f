"""The losses, in torch alone: tensors in, a loss and its sums out.

Logits never exist whole: ``token_logprobs`` makes them for a chunk of tokens at a time, forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped here before exp: e^20 is far beyond any clip, and float32 stays finite."""


class _TokenLogprobs(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature)[target] of each row, one chunk of rows at a time.

    d logp_t / d hidden_t = (weight[target_t] - sum_v p_tv weight[v]) / temperature does not depend on what is above,
    so with frozen weights forward keeps that [N, H] direction and backward is one multiplication. Only trained
    weights make backward compute the chunk's probabilities again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        temperature: float,
        chunk: int,
    ) -> torch.Tensor:
        ctx.temperature, ctx.chunk = temperature, chunk
        needs_direction = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        logprobs = torch.empty(hidden.shape[0], dtype=torch.float32, device=hidden.device)
        direction = torch.empty_like(hidden) if needs_direction else None
        for start in range(0, hidden.shape[0], chunk):
            rows = slice(start, start + chunk)
            logits = (hidden[rows] @ weight.T).float().div_(temperature)  # [C, V]
            norm = torch.logsumexp(logits, dim=-1)
            logprobs[rows] = logits.gather(1, targets[rows, None]).squeeze(1) - norm
            if direction is not None:
                probabilities = logits.sub_(norm[:, None]).exp_().to(weight.dtype)
                mean = (probabilities @ weight).float()
                direction[rows] = ((weight[targets[rows]].float() - mean) / temperature).to(hidden.dtype)
            del logits
        if direction is not None:
            ctx.save_for_backward(direction)
        else:
            ctx.save_for_backward(hidden, weight, targets, logprobs)
        return logprobs

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (upstream,) = grad_outputs  # [N] float32
        if not ctx.needs_input_grad[1]:
            (direction,) = ctx.saved_tensors
            return direction * upstream[:, None].to(direction.dtype), None, None, None, None
        hidden, weight, targets, _ = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        for start in range(0, hidden.shape[0], ctx.chunk):
            rows = slice(start, start + ctx.chunk)
            logits = (hidden[rows] @ weight.T).float().div_(ctx.temperature)
            # d logp_t / d logits_t = onehot(target_t) - p_t
            slope = torch.softmax(logits, dim=-1).neg_()
            slope[torch.arange(slope.shape[0], device=slope.device), targets[rows]] += 1.0
            slope = slope.mul_(upstream[rows, None] / ctx.temperature).to(weight.dtype)
            if grad_hidden is not None:
                grad_hidden[rows] = slope @ weight
            grad_weight += (slope.T @ hidden[rows]).float()
        return grad_hidden, grad_weight.to(weight.dtype), None, None, None


def token_logprobs(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *, temperature: float, chunk: int
) -> torch.Tensor:
    """Log-probabilities of given tokens, in nats.

    Args:
        hidden: [N, H], last hidden states, any float dtype.
        weight: [V, H], the ``lm_head``, same dtype; may be frozen.
        targets: [N] int64, the token that follows each row.
        temperature: logits are divided by it, as the engine that sampled did.
        chunk: rows whose [chunk, V] logits exist at once.

    Returns:
        [N] float32, differentiable in ``hidden`` and ``weight``.
    """
    return _TokenLogprobs.apply(hidden, weight, targets, temperature, chunk)


@dataclass(kw_only=True)
class LossSums:
    """Sums over tokens, to be added up over the micro batches of a step; ``mismatch_max`` is a maximum."""

    tokens: float = 0.0
    loss: float = 0.0
    kl: float = 0.0
    ratio: float = 0.0
    clipped: float = 0.0
    logprob: float = 0.0
    known: float = 0.0
    """Tokens with a behaviour logprob; the fields below are over them."""
    tis: float = 0.0
    tis_squared: float = 0.0
    tis_truncated: float = 0.0
    mismatch: float = 0.0
    mismatch_max: float = 0.0

    def add(self, other: LossSums) -> None:
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, theirs) if field.name == "mismatch_max" else mine + theirs)

    def metrics(self) -> dict[str, float]:
        """Means over the tokens that were added up.

        ``effective_share`` is Kish's effective sample size of the importance weights over their count,
        ``(sum w)^2 / (n sum w^2)``; ``entropy_estimate`` is the mean of -log p of the sampled tokens.
        """
        tokens, known = max(self.tokens, 1.0), max(self.known, 1.0)
        return {
            "loss": self.loss,
            "kl": self.kl / tokens,
            "ratio_mean": self.ratio / tokens,
            "clip_share": self.clipped / tokens,
            "entropy_estimate": -self.logprob / tokens,
            "tis_mean": self.tis / known,
            "tis_truncated_share": self.tis_truncated / known,
            "effective_share": self.tis**2 / (known * self.tis_squared) if self.tis_squared > 0 else 1.0,
            "mismatch_mean": self.mismatch / known,
            "mismatch_max": self.mismatch_max,
            "tokens": self.tokens,
        }


def policy_loss(
    logprobs: torch.Tensor,
    *,
    old_logprobs: torch.Tensor,
    behaviour_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    reference_logprobs: torch.Tensor | None,
    clip_low: float,
    clip_high: float,
    tis_cap: float,
    kl_coefficient: float,
    denominator: float,
    ratio_level: Literal["token", "sequence"] = "token",
    sample_of: torch.Tensor | None = None,
) -> tuple[torch.Tensor, LossSums]:
    """Clipped surrogate with truncated importance sampling and KL to a reference policy.

    With r = exp(logprobs - old) (PPO, arXiv 1707.06347, eq. 7, with DAPO's clip-higher, arXiv 2503.14476, section 3.1),
    w = min(exp(old - behaviour), cap) (truncated importance sampling for the engine's mismatch, "Your Efficient RL
    Framework Secretly Brings You Off-Policy RL Training", 2025), and k3 = exp(ref - lp) - (ref - lp) - 1 (Schulman,
    "Approximating KL Divergence", 2020; DeepSeekMath, arXiv 2402.03300, eq. 4)::

        loss = sum_t [ -w_t min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t) + kl_coefficient k3_t ] / denominator

    With ``ratio_level`` "sequence" all tokens of a completion share one ratio, ``exp`` of the mean of their log ratios
    (GSPO, arXiv 2507.18071, eq. 7), so a completion is clipped whole or not at all. It lies far nearer to 1 than the
    tokens' own ratios do: GSPO clips it at 3e-4 below and 4e-4 above.

    Args:
        logprobs: [N] float32, with gradient.
        old_logprobs: [N], of the learner's policy before the step; ``logprobs.detach()`` in the first pass.
        behaviour_logprobs: [N], of the engine that sampled; NaN where unknown, which gives weight 1.
        advantages: [N], of each token's completion.
        reference_logprobs: [N], or None without a KL term.
        denominator: completion tokens of the whole step over all micro batches and ranks.
        sample_of: [N] int64, which completion a token belongs to, a completion's tokens side by side and all of them
            here; needed by the sequence-level ratio only.
    """
    log_ratio = logprobs - old_logprobs
    if ratio_level == "sequence":
        assert sample_of is not None, "the ratio of a sequence needs to know whose tokens are whose"
        log_ratio = sequence_means(log_ratio, sample_of)
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    clipped_ratio = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped_ratio * advantages)

    known = torch.isfinite(behaviour_logprobs)
    gap = torch.where(known, old_logprobs - behaviour_logprobs, torch.zeros_like(old_logprobs))
    weight = torch.exp(gap.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)).clamp(max=tis_cap).detach()
    total = -(weight * surrogate).sum()

    kl_sum = torch.zeros((), device=logprobs.device)
    if reference_logprobs is not None:
        towards = (reference_logprobs - logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        kl_sum = (torch.exp(towards) - towards - 1.0).sum()
        total = total + kl_coefficient * kl_sum
    loss = total / denominator

    weight, gap = weight[known], gap[known].abs()
    sums = LossSums(
        tokens=float(logprobs.numel()),
        loss=float(loss.detach()),
        kl=float(kl_sum.detach()),
        ratio=float(ratio.detach().sum()),
        # A token counts as clipped where the clipped branch is the smaller one: there its gradient is zero.
        clipped=float((clipped_ratio * advantages < ratio * advantages).sum()),
        logprob=float(logprobs.detach().sum()),
        known=float(weight.numel()),
        tis=float(weight.sum()),
        tis_squared=float((weight * weight).sum()),
        tis_truncated=float((weight >= tis_cap).sum()),
        mismatch=float(gap.sum()),
        mismatch_max=float(gap.max()) if gap.numel() else 0.0,
    )
    return loss, sums


def sequence_means(values: torch.Tensor, sample_of: torch.Tensor) -> torch.Tensor:
    """Each token's value replaced by the mean over its completion; [N] -> [N], differentiable.

    Split and added up part by part and not by ``index_add``, whose order of additions varies on a GPU.

    Args:
        sample_of: [N], equal for neighbours of one completion.
    """
    if not values.numel():
        return values
    _, counts = torch.unique_consecutive(sample_of, return_counts=True)
    lengths: list[int] = counts.tolist()
    means = torch.stack([part.mean() for part in values.split(lengths)])
    return means.repeat_interleave(counts)


def supervised_loss(logprobs: torch.Tensor, *, denominator: float) -> tuple[torch.Tensor, LossSums]:
    """Negative log-likelihood of the completion tokens, ``-sum logprobs / denominator``."""
    loss = -logprobs.sum() / denominator
    sums = LossSums(
        tokens=float(logprobs.numel()),
        loss=float(loss.detach()),
        ratio=float(logprobs.numel()),
        logprob=float(logprobs.detach().sum()),
    )
    return loss, sums
