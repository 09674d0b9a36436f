"""Adapters as files: what is published, merged and trained on is one and the same policy."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from learner.adapters import CONFIG, FOLDER, WEIGHTS, merge, read_adapter, save_adapter
from learner.errors import LearnerError
from learner.packing import pack
from learner.policy import Policy
from learner.pretrained import prepare_model
from learner.publishing import publish
from learner.settings import LearnerSettings, LoraSettings

LORA = LearnerSettings(lora=LoraSettings(rank=4, alpha=8.0), gradient_checkpointing=False, kl_coefficient=0.1)


@pytest.fixture
def trained(tiny_dir):
    """A policy whose adapters are far from zero, and exact in bfloat16."""
    policy = Policy(tiny_dir, LORA, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_" in name:
                parameter.copy_((0.1 * torch.randn(parameter.shape, generator=generator)).bfloat16().float())
    return policy


@pytest.fixture
def published(trained, tiny_dir, tmp_path):
    publish(trained.merged_state(), tiny_dir, tmp_path / "weights", 3, keep=1, adapter=trained.adapter())
    return tmp_path / "weights" / "v000003"


def test_the_published_adapter_is_pefts(published, tiny_dir, trained, make_samples):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, published / FOLDER)
    merged = {name: tensor.bfloat16() for name, tensor in theirs.merge_and_unload().state_dict().items()}
    expected = load_file(published / "model.safetensors")
    assert all(torch.equal(merged[name], expected[name]) for name in expected)
    assert json.loads((published / FOLDER / CONFIG).read_text())["base_model_name_or_path"] == str(tiny_dir)


def test_an_adapter_is_merged_into_its_base_as_the_learner_merges_it(published, tmp_path):
    folder = prepare_model(str(published / FOLDER), tmp_path / "cache")
    made, expected = load_file(folder / "model.safetensors"), load_file(published / "model.safetensors")
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], expected[name]) for name in made)
    assert prepare_model(str(published / FOLDER), tmp_path / "cache") == folder
    again = read_adapter(folder / FOLDER)
    assert all(torch.equal(a, read_adapter(published / FOLDER).parts[name][0]) for name, (a, _) in again.parts.items())


def test_training_goes_on_with_a_published_adapter(published, trained, make_samples):
    (batch,) = pack(make_samples(), 1000)
    policy = Policy(published, LORA, seed=5)
    with torch.no_grad():
        torch.testing.assert_close(policy(batch, 0.9), trained(batch, 0.9), atol=0, rtol=0)
        assert torch.equal(policy(batch, 0.9), policy(batch, 0.9, reference=True))
        for parameter in policy.trainable().values():
            parameter.add_(0.05)
        torch.testing.assert_close(policy(batch, 0.9, reference=True), trained(batch, 0.9), atol=0, rtol=0)
    assert policy.adapter().base == trained.adapter().base


def test_another_shape_starts_anew_on_the_merged_weights(published):
    policy = Policy(published, LORA.model_copy(update={"lora": LoraSettings(rank=2, alpha=8.0)}), seed=0)
    assert policy.adapter().base == str(published)
    assert all(not b.any() for _, b in policy.adapter().parts.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / WEIGHTS).write_bytes(b"x"), "cannot be read"),
        (lambda folder: (folder / WEIGHTS).unlink(), "cannot be read"),
        (lambda folder: (folder / CONFIG).write_text("{}"), "cannot be read"),
        (lambda folder: _change(folder, peft_type="LOHA"), "only plain LoRA"),
        (lambda folder: _change(folder, use_dora=True), "only plain LoRA"),
        (lambda folder: _change(folder, target_modules="all-linear"), "as a list"),
        (lambda folder: _change(folder, base_model_name_or_path="no/such"), "for model no/such, which is not here"),
    ],
)
def test_a_faulty_adapter_is_told_in_one_line(published, tmp_path, change, message):
    change(published / FOLDER)
    with pytest.raises(LearnerError, match=message) as caught:
        prepare_model(str(published / FOLDER), tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_an_adapter_of_another_model_does_not_merge(published, tiny_dir, tmp_path):
    adapter = read_adapter(published / FOLDER)
    a, b = adapter.parts["model.layers.0.self_attn.q_proj"]
    wrong = {"model.layers.0.self_attn.q_proj": (a[:, :-1], b)}
    save_adapter(type(adapter)(base=adapter.base, rank=4, alpha=8.0, targets=("q_proj",), parts=wrong), tmp_path / "w")
    with pytest.raises(LearnerError, match=r"does not fit model .*q_proj has shape"):
        (tmp_path / "out").mkdir()
        merge(read_adapter(tmp_path / "w"), tiny_dir, tmp_path / "out")


def _change(folder, **values):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | values))
