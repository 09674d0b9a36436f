from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from learner.losses import LossSums, policy_loss, sequence_means, supervised_loss, token_logprobs

CLIPS = {"clip_low": 0.2, "clip_high": 0.28, "tis_cap": 2.0}


def _full(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    return torch.log_softmax(hidden @ weight.T / temperature, dim=-1).gather(1, targets[:, None]).squeeze(1)


def _inputs(dtype: torch.dtype = torch.float64, rows: int = 11) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 6, generator=generator, dtype=dtype)
    weight = torch.randn(13, 6, generator=generator, dtype=dtype)
    return hidden, weight, torch.randint(0, 13, (rows,), generator=generator)


@pytest.mark.parametrize("chunk", [1, 4, 11, 100])
@pytest.mark.parametrize("trains_weight", [False, True])
def test_chunked_logprobs_and_gradients_equal_the_full_log_softmax(chunk, trains_weight):
    hidden, weight, targets = _inputs(torch.float32)
    upstream = torch.linspace(-1, 2, len(targets))
    grads = []
    for function in (
        lambda h, w: token_logprobs(h, w, targets, temperature=0.7, chunk=chunk),
        lambda h, w: _full(h, w, targets, 0.7),
    ):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trains_weight)
        logprobs = function(h, w)
        (logprobs * upstream).sum().backward()
        grads.append((logprobs.detach(), h.grad, w.grad if trains_weight else torch.zeros(1)))
    for chunked, full in zip(*grads, strict=True):
        torch.testing.assert_close(chunked, full, atol=1e-5, rtol=1e-5)


def test_logprobs_by_hand():
    hidden = torch.tensor([[math.log(3.0)]])  # logits ln 3 * (1, 0), temperature 1: p = 3/4, 1/4
    weight = torch.tensor([[1.0], [0.0]])
    for target, probability in ((0, 0.75), (1, 0.25)):
        got = token_logprobs(hidden, weight, torch.tensor([target]), temperature=1.0, chunk=8)
        assert got.item() == pytest.approx(math.log(probability), abs=1e-6)


def test_no_rows_give_no_logprobs_and_a_zero_gradient():
    hidden, weight, targets = _inputs(torch.float32, rows=0)
    hidden.requires_grad_()
    token_logprobs(hidden, weight, targets, temperature=1.0, chunk=4).sum().backward()
    assert hidden.grad is not None and hidden.grad.shape == (0, 6)


def _numpy_loss(lp, old, behaviour, advantages, reference, beta, denominator):
    ratio = np.exp(lp - old)
    weight = np.where(np.isnan(behaviour), 1.0, np.minimum(np.exp(old - behaviour), 2.0))
    surrogate = np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.28) * advantages)
    kl = np.exp(reference - lp) - (reference - lp) - 1
    return float((-weight * surrogate + beta * kl).sum() / denominator)


def test_policy_loss_equals_numpy():
    rng = np.random.default_rng(0)
    lp, old, behaviour, reference = (rng.normal(-2, 0.5, 40) for _ in range(4))
    behaviour[::7] = np.nan
    advantages = rng.normal(size=40)
    loss, sums = policy_loss(
        torch.tensor(lp),
        old_logprobs=torch.tensor(old),
        behaviour_logprobs=torch.tensor(behaviour),
        advantages=torch.tensor(advantages),
        reference_logprobs=torch.tensor(reference),
        kl_coefficient=0.3,
        denominator=17.0,
        **CLIPS,
    )
    expected = _numpy_loss(lp, old, behaviour, advantages, reference, 0.3, 17.0)
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    metrics = sums.metrics()
    gap = np.abs(old - behaviour)[~np.isnan(behaviour)]
    weights = np.minimum(np.exp(old - behaviour), 2.0)[~np.isnan(behaviour)]
    assert metrics["mismatch_mean"] == pytest.approx(gap.mean())
    assert metrics["mismatch_max"] == pytest.approx(gap.max())
    assert metrics["effective_share"] == pytest.approx(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))
    ratio = np.exp(lp - old)
    beyond = ((advantages > 0) & (ratio > 1.28)) | ((advantages < 0) & (ratio < 0.8))
    assert metrics["clip_share"] == pytest.approx(beyond.mean())


def test_policy_loss_by_hand():
    # one token: ratio 1.5 is clipped to 1.28, weight min(e^1, 2) = 2, advantage 1, k3 = e^-1 + 1 - 1 = 0.367879
    lp = torch.tensor([math.log(1.5)])
    loss, _ = policy_loss(
        lp,
        old_logprobs=torch.tensor([0.0]),
        behaviour_logprobs=torch.tensor([-1.0]),
        advantages=torch.tensor([1.0]),
        reference_logprobs=lp - 1.0,
        kl_coefficient=0.1,
        denominator=4.0,
        **CLIPS,
    )
    assert loss.item() == pytest.approx((-2 * 1.28 + 0.1 * 0.367879) / 4, abs=1e-6)


def test_gradient_with_respect_to_hidden_states_by_finite_differences():
    hidden, weight, targets = _inputs()
    generator = torch.Generator().manual_seed(1)
    old, behaviour, reference = (-2.5 + 0.3 * torch.randn(11, generator=generator).double() for _ in range(3))
    advantages = torch.linspace(-1, 1, 11).double()

    def loss_of(h: torch.Tensor) -> torch.Tensor:
        # float64 throughout, which token_logprobs (float32 out) does not give: its own parity test covers it
        return policy_loss(
            _full(h, weight, targets, 0.9),
            old_logprobs=old,
            behaviour_logprobs=behaviour,
            advantages=advantages,
            reference_logprobs=reference,
            kl_coefficient=0.2,
            denominator=11.0,
            **CLIPS,
        )[0]

    h = hidden.clone().requires_grad_()
    loss_of(h).backward()
    step = 1e-6
    for row, column in ((0, 0), (3, 2), (7, 5), (10, 1)):
        up, down = hidden.clone(), hidden.clone()
        up[row, column] += step
        down[row, column] -= step
        slope = (loss_of(up) - loss_of(down)).item() / (2 * step)
        assert h.grad is not None
        assert h.grad[row, column].item() == pytest.approx(slope, abs=1e-7)


def test_first_pass_gradient_is_the_policy_gradient():
    lp = torch.tensor([-1.0, -2.0], requires_grad=True)
    policy_loss(
        lp,
        old_logprobs=lp.detach(),
        behaviour_logprobs=lp.detach(),
        advantages=torch.tensor([2.0, -3.0]),
        reference_logprobs=None,
        kl_coefficient=0.0,
        denominator=2.0,
        **CLIPS,
    )[0].backward()
    assert lp.grad is not None
    assert lp.grad.tolist() == [-1.0, 1.5]


def test_no_gradient_flows_through_the_importance_weight():
    lp = torch.tensor([-1.0], requires_grad=True)
    arguments = {"reference_logprobs": None, "kl_coefficient": 0.0, "denominator": 1.0, **CLIPS}
    policy_loss(
        lp,
        old_logprobs=lp.detach(),
        behaviour_logprobs=torch.tensor([-1.5]),
        advantages=torch.tensor([1.0]),
        **arguments,
    )[0].backward()
    assert lp.grad is not None
    assert lp.grad.item() == pytest.approx(-math.exp(0.5))


def test_extreme_ratios_stay_finite():
    lp = torch.tensor([-1e4, 0.0], requires_grad=True)
    loss, _ = policy_loss(
        lp,
        old_logprobs=torch.tensor([0.0, -1e4]),
        behaviour_logprobs=torch.tensor([-1e4, 0.0]),
        advantages=torch.tensor([1.0, -1.0]),
        reference_logprobs=torch.tensor([0.0, -1e4]),
        kl_coefficient=0.1,
        denominator=1.0,
        **CLIPS,
    )
    loss.backward()
    assert lp.grad is not None and torch.isfinite(lp.grad).all() and torch.isfinite(loss)


def test_sums_over_micro_batches_equal_one_batch():
    lp = torch.linspace(-3, -1, 10)
    behaviour = lp - 0.2 * torch.arange(10)

    def run(rows: slice) -> LossSums:
        return policy_loss(
            lp[rows],
            old_logprobs=lp[rows] - 0.1,
            behaviour_logprobs=behaviour[rows],
            advantages=torch.ones(10)[rows],
            reference_logprobs=None,
            kl_coefficient=0.0,
            denominator=10.0,
            **CLIPS,
        )[1]

    parts = LossSums()
    for rows in (slice(0, 3), slice(3, 10)):
        parts.add(run(rows))
    assert parts.metrics() == pytest.approx(run(slice(0, 10)).metrics(), rel=1e-6)


def test_supervised_loss_is_the_mean_negative_log_likelihood():
    loss, sums = supervised_loss(torch.tensor([-1.0, -3.0]), denominator=2.0)
    assert loss.item() == 2.0
    assert sums.metrics()["loss"] == 2.0


def test_sequence_ratios_equal_numpy():
    rng = np.random.default_rng(1)
    lengths = [1, 7, 3, 12]
    owner = np.repeat([5, 2, 9, 0], lengths)  # indices in the step's list come in any order
    lp, old, behaviour = (rng.normal(-2, 0.3, owner.size) for _ in range(3))
    advantages = np.repeat(rng.normal(size=4), lengths)
    loss, sums = policy_loss(
        torch.tensor(lp),
        old_logprobs=torch.tensor(old),
        behaviour_logprobs=torch.tensor(behaviour),
        advantages=torch.tensor(advantages),
        reference_logprobs=None,
        kl_coefficient=0.0,
        denominator=23.0,
        ratio_level="sequence",
        sample_of=torch.tensor(owner),
        **CLIPS,
    )
    expected, clipped = 0.0, 0
    for who in (5, 2, 9, 0):
        rows = owner == who
        ratio = np.prod(np.exp(lp - old)[rows]) ** (1 / rows.sum())  # the geometric mean
        a = advantages[rows][0]
        expected -= np.minimum(np.exp(old - behaviour)[rows], 2.0).sum() * min(ratio * a, np.clip(ratio, 0.8, 1.28) * a)
        clipped += rows.sum() * ((a > 0 and ratio > 1.28) or (a < 0 and ratio < 0.8))
    assert loss.item() == pytest.approx(expected / 23.0, rel=1e-9)
    assert sums.metrics()["clip_share"] == pytest.approx(clipped / owner.size)


def test_sequence_ratio_and_its_gradient_by_hand():
    # two tokens with log ratios ln 1.1 and ln 1.21: the mean is ln 1.1 * 1.5, the ratio 1.1^1.5 = 1.153690
    lp = torch.log(torch.tensor([1.1, 1.21])).requires_grad_()
    loss, sums = policy_loss(
        lp,
        old_logprobs=torch.zeros(2),
        behaviour_logprobs=torch.full((2,), math.nan),
        advantages=torch.tensor([2.0, 2.0]),
        reference_logprobs=None,
        kl_coefficient=0.0,
        denominator=1.0,
        ratio_level="sequence",
        sample_of=torch.tensor([4, 4]),
        **CLIPS,
    )
    loss.backward()
    assert loss.item() == pytest.approx(-2 * 2 * 1.153690, abs=1e-5)
    # each token carries half of the log ratio, and two terms hold it: d loss = -2 * s * A / 2
    assert lp.grad is not None
    assert lp.grad.tolist() == pytest.approx([-2 * 1.153690, -2 * 1.153690], abs=1e-5)
    assert sums.metrics()["ratio_mean"] == pytest.approx(1.153690, abs=1e-6)


def test_means_over_completions_by_hand():
    values = torch.tensor([1.0, 3.0, 5.0, 0.0, 4.0])
    assert sequence_means(values, torch.tensor([0, 0, 1, 2, 2])).tolist() == [2.0, 2.0, 5.0, 2.0, 2.0]
    assert sequence_means(values[:0], torch.tensor([], dtype=torch.int64)).shape == (0,)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [(1.27, 1.0, 1.27), (1.29, 1.0, 0.0), (0.79, -1.0, 0.0), (0.81, -1.0, 0.81), (1.5, -1.0, 1.5), (0.5, 1.0, 0.5)],
)
def test_clip_higher_stops_the_gradient_only_past_its_own_side(ratio, advantage, slope):
    lp = torch.tensor([math.log(ratio)], requires_grad=True)
    loss, sums = policy_loss(
        lp,
        old_logprobs=torch.zeros(1),
        behaviour_logprobs=torch.zeros(1),
        advantages=torch.tensor([advantage]),
        reference_logprobs=None,
        kl_coefficient=0.0,
        denominator=1.0,
        **CLIPS,
    )
    loss.backward()
    assert lp.grad is not None
    assert lp.grad.item() == pytest.approx(-slope * advantage, abs=1e-6)
    assert sums.clipped == float(slope == 0.0)


def test_k3_is_unbiased_for_the_kl_and_its_gradient_by_hand():
    # the mean of k3 over samples of p is KL(p || q) exactly, when it is taken over the whole distribution
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    lp = torch.tensor(np.log(p), requires_grad=True)
    k3 = []
    for token in range(3):
        _, sums = policy_loss(
            lp[token : token + 1].detach(),
            old_logprobs=lp[token : token + 1].detach(),
            behaviour_logprobs=lp[token : token + 1].detach(),
            advantages=torch.zeros(1),
            reference_logprobs=torch.tensor(np.log(q))[token : token + 1],
            kl_coefficient=1.0,
            denominator=1.0,
            **CLIPS,
        )
        k3.append(sums.kl)
    assert float(p @ np.array(k3)) == pytest.approx(float((p * np.log(p / q)).sum()), abs=1e-12)
    loss, _ = policy_loss(
        lp[:1],
        old_logprobs=lp[:1].detach(),
        behaviour_logprobs=lp[:1].detach(),
        advantages=torch.zeros(1),
        reference_logprobs=torch.tensor(np.log(q))[:1],
        kl_coefficient=1.0,
        denominator=1.0,
        **CLIPS,
    )
    loss.backward()
    assert lp.grad is not None
    assert lp.grad[0].item() == pytest.approx(1 - 0.2 / 0.5)  # d k3 / d lp = 1 - q / p


def test_truncated_weights_and_effective_share_by_hand():
    # gaps ln 4, 0, ln 0.5, unknown: weights 2 (cut from 4), 1, 0.5, 1
    gaps = torch.tensor([math.log(4.0), 0.0, math.log(0.5), math.nan])
    loss, sums = policy_loss(
        torch.zeros(4),
        old_logprobs=torch.zeros(4),
        behaviour_logprobs=-gaps,
        advantages=torch.ones(4),
        reference_logprobs=None,
        kl_coefficient=0.0,
        denominator=1.0,
        **CLIPS,
    )
    metrics = sums.metrics()
    assert loss.item() == pytest.approx(-(2 + 1 + 0.5 + 1))
    assert metrics["tis_mean"] == pytest.approx(3.5 / 3)
    assert metrics["tis_truncated_share"] == pytest.approx(1 / 3)
    assert metrics["effective_share"] == pytest.approx(3.5**2 / (3 * (4 + 1 + 0.25)))
    assert metrics["mismatch_max"] == pytest.approx(math.log(4.0))
    assert metrics["mismatch_mean"] == pytest.approx((math.log(4.0) + math.log(2.0)) / 3)
