from __future__ import annotations

import dataclasses

import pytest
import torch

from learner.errors import LearnerError
from learner.packing import Segment, pack, pack_text, without_targets
from learner.policy import Policy
from learner.settings import LearnerSettings, LoraSettings
from learner.types import Sample

FULL = LearnerSettings(lora=LoraSettings(rank=0), kl_coefficient=0.0, gradient_checkpointing=False)


@pytest.fixture(scope="module")
def policy(tiny_dir):
    return Policy(tiny_dir, FULL, seed=0)


def test_layout_by_hand():
    samples = [
        Sample(prompt_ids=(1, 2, 3), completion_ids=(4, 5, 6), advantage=1.0),
        Sample(prompt_ids=(1, 2, 3), completion_ids=(7,), advantage=2.0, behaviour_logprobs=(-0.5,)),
        Sample(prompt_ids=(8,), completion_ids=(9, 1), advantage=3.0),
    ]
    (batch,) = pack(samples, 64)
    assert batch.input_ids.tolist() == [1, 2, 3, 4, 5, 8, 9]
    assert batch.position_ids.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert batch.segments == (Segment(prompt=3, completions=(2, 0)), Segment(prompt=1, completions=(1,)))
    assert batch.predict_at.tolist() == [2, 3, 4, 2, 5, 6]
    assert batch.targets.tolist() == [4, 5, 6, 7, 9, 1]
    assert batch.sample_of.tolist() == [0, 0, 0, 1, 2, 2]
    assert batch.advantages.tolist() == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    assert batch.behaviour_logprobs.isnan().tolist() == [True, True, True, False, True, True]


@pytest.mark.parametrize("limit", [20, 31, 64, 1000])
def test_every_sample_is_packed_once_within_the_limit(make_samples, limit):
    samples = make_samples(groups=5, size=4)
    batches = pack(samples, limit)
    assert all(len(batch.input_ids) == sum(s.length for s in batch.segments) <= limit for batch in batches)
    seen = {}
    for batch in batches:
        for index in batch.sample_of.unique().tolist():
            assert index not in seen
            seen[index] = tuple(batch.targets[batch.sample_of == index].tolist())
    assert seen == {index: sample.completion_ids for index, sample in enumerate(samples)}


@pytest.mark.parametrize("limit", [20, 64, 1000])
def test_packed_logprobs_equal_those_of_the_stock_model_one_by_one(policy, tiny_dir, make_samples, limit):
    from transformers import AutoModelForCausalLM

    samples = make_samples(groups=3, size=3)
    stock = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=torch.float32, attn_implementation="eager")
    got = {}
    with torch.no_grad():
        for batch in pack(samples, limit):
            logprobs = policy(batch, 0.8)
            for index in batch.sample_of.unique().tolist():
                got[index] = logprobs[batch.sample_of == index]
        for index, sample in enumerate(samples):
            ids = torch.tensor([sample.prompt_ids + sample.completion_ids])
            full = torch.log_softmax(stock(ids).logits[0] / 0.8, dim=-1)[:-1].gather(1, ids[0, 1:, None]).squeeze(1)
            torch.testing.assert_close(got[index], full[-len(sample.completion_ids) :], atol=1e-5, rtol=1e-5)


def test_gradients_of_shared_prompts_equal_those_of_copies(policy, make_samples):
    samples = make_samples(groups=2, size=3)
    gradients = []
    for batches in (pack(samples, 1000), [batch for s in samples for batch in pack([s], 1000)]):
        policy.zero_grad()
        for batch in batches:
            (policy(batch, 1.0) * batch.advantages).sum().backward()
        gradients.append({name: p.grad.clone() for name, p in policy.named_parameters()})
    for name, shared in gradients[0].items():
        torch.testing.assert_close(shared, gradients[1][name], atol=2e-4, rtol=1e-4, msg=name)


def test_tokens_of_a_sibling_or_of_another_segment_change_nothing(policy, make_samples):
    samples = make_samples(groups=2, size=2)
    changed = [samples[0], *(dataclasses.replace(s, completion_ids=s.completion_ids[::-1]) for s in samples[1:])]
    with torch.no_grad():
        (one,), (other,) = pack(samples, 1000), pack(changed, 1000)
        first, second = (policy(b, 1.0)[b.sample_of == 0] for b in (one, other))
    torch.testing.assert_close(first, second, atol=0, rtol=0)


def test_a_batch_without_targets_adds_zero_gradient(policy, make_samples):
    policy.zero_grad()
    (batch,) = pack(make_samples(), 1000)
    policy(without_targets(batch), 1.0).sum().backward()
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in policy.parameters())


def test_a_text_predicts_all_but_its_first_token():
    batch = pack_text([5, 6, 7])
    assert batch.targets.tolist() == [6, 7] and batch.input_ids.tolist() == [5, 6]


def test_samples_that_do_not_fit_are_named():
    fits = Sample(prompt_ids=(1,), completion_ids=(2,))
    with pytest.raises(LearnerError, match=r"sample 1 has 150 tokens, learner\.micro_batch_tokens is 128"):
        pack([fits, Sample(prompt_ids=(1,) * 100, completion_ids=(2,) * 51)], 128)
    with pytest.raises(LearnerError, match="empty prompt or completion"):
        pack([Sample(prompt_ids=(1,), completion_ids=())], 128)
    with pytest.raises(LearnerError, match="2 behaviour logprobs for 1 tokens"):
        pack([dataclasses.replace(fits, behaviour_logprobs=(-1.0, -1.0))], 128)


def test_an_unsupported_attention_is_refused(policy):
    from learner.attention import segment_attention

    states = torch.zeros(1, 4, 6, 8)
    arguments = {"scaling": 1.0, "segments": (Segment(prompt=4, completions=(2,)),)}
    with pytest.raises(LearnerError, match="sliding window of 5 tokens is shorter than a sample of 6"):
        segment_attention(policy, states, states, states, None, sliding_window=5, **arguments)
    with pytest.raises(LearnerError, match="softcap"):
        segment_attention(policy, states, states, states, None, softcap=30.0, **arguments)
