from __future__ import annotations

import json
import resource

import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from learner.errors import LearnerError
from learner.packing import pack, pack_text
from learner.policy import Policy
from learner.publishing import publish
from learner.settings import LearnerSettings, LoraSettings

VOCABULARY = 97  # of tiny_dir
LORA = LearnerSettings(lora=LoraSettings(rank=4, alpha=8.0), gradient_checkpointing=False)
FULL = LearnerSettings(lora=LoraSettings(rank=0), gradient_checkpointing=False)


@pytest.fixture
def trained(tiny_dir):
    """A LoRA policy whose adapters are far from zero."""
    policy = Policy(tiny_dir, LORA, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return policy


def test_lora_starts_as_its_reference_and_trains_adapters_only(tiny_dir, make_samples):
    policy = Policy(tiny_dir, LORA, seed=0)
    (batch,) = pack(make_samples(), 1000)
    with torch.no_grad():
        assert torch.equal(policy(batch, 0.9), policy(batch, 0.9, reference=True))
    assert all("lora_" in name for name in policy.trainable())
    assert len(policy.trainable()) == 2 * 7 * 2  # A and B of seven projections in two layers


@pytest.mark.parametrize("settings", [LORA, FULL], ids=["lora", "full"])
def test_the_reference_stays_when_the_policy_moves(tiny_dir, make_samples, settings):
    policy = Policy(tiny_dir, settings, seed=0)
    (batch,) = pack(make_samples(), 1000)
    with torch.no_grad():
        start = policy(batch, 0.9)
        for parameter in policy.trainable().values():
            parameter.add_(0.05)
        assert not torch.allclose(policy(batch, 0.9), start)
        torch.testing.assert_close(policy(batch, 0.9, reference=True), start, atol=1e-6, rtol=0)
    assert all(parameter.requires_grad for parameter in policy.trainable().values())


@pytest.mark.parametrize("settings", [LORA, FULL], ids=["lora", "full"])
def test_an_anchored_reference_is_the_policy_of_that_moment(tiny_dir, make_samples, settings):
    policy, later = (Policy(tiny_dir, settings, seed=0) for _ in range(2))
    (batch,) = pack(make_samples(), 1000)
    with torch.no_grad():
        for shift in (0.05, 0.03):
            for parameter in policy.trainable().values():
                parameter.add_(shift)
            if shift == 0.05:
                policy.anchor_reference()
                anchored = policy(batch, 0.9)
        torch.testing.assert_close(policy(batch, 0.9, reference=True), anchored, atol=1e-6, rtol=0)
        assert not torch.allclose(policy(batch, 0.9), anchored)
        later.load_reference(policy.reference_state())
        torch.testing.assert_close(later(batch, 0.9, reference=True), anchored, atol=1e-6, rtol=0)
    assert set(policy.trainable()) == set(later.trainable())
    assert all("reference" not in name for name in policy.trainable())


def test_the_adapters_first_values_depend_on_the_seed_alone(tiny_dir):
    def first(seed: int) -> torch.Tensor:
        torch.rand(3)  # the global generator's state must not matter
        return next(p for n, p in Policy(tiny_dir, LORA, seed=seed).trainable().items() if "lora_A" in n).detach()

    assert torch.equal(first(5), first(5))
    assert not torch.equal(first(5), first(6))


def test_checkpointing_changes_no_gradient(tiny_dir, make_samples):
    (batch,) = pack(make_samples(), 1000)
    gradients = []
    for checkpointing in (False, True):
        policy = Policy(tiny_dir, LORA.model_copy(update={"gradient_checkpointing": checkpointing}), seed=0)
        policy(batch, 0.9).sum().backward()
        gradients.append([p.grad for p in policy.trainable().values()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed, atol=1e-6, rtol=1e-5)


class _Rows(TorchDispatchMode):
    """Notes the most rows of any tensor as wide as the vocabulary that an operation gives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.most = width, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.dim() > 1 and tensor.shape[-1] == self.width:
                self.most = max(self.most, tensor.numel() // self.width)
        return result


@pytest.mark.parametrize("rank", [4, 0], ids=["lora", "full"])
def test_logits_never_exist_whole(tiny_dir, make_samples, rank):
    chunk = 32  # the hidden size too: the lm_head transposed is that high
    settings = LearnerSettings(lora=LoraSettings(rank=rank), kl_coefficient=0.0, logits_chunk_tokens=chunk)
    policy = Policy(tiny_dir, settings, seed=0)
    (batch,) = pack(make_samples(groups=12), 4096)
    assert len(batch.targets) > 3 * chunk
    with _Rows(VOCABULARY) as rows:
        policy(batch, 0.9).sum().backward()
    assert rows.most == chunk


def test_published_weights_are_pefts_own_merge(trained, tiny_dir, tmp_path):
    from transformers import AutoModelForCausalLM

    before = {name: parameter.clone() for name, parameter in trained.named_parameters()}
    version = publish(trained.merged_state(), tiny_dir, tmp_path, 7, keep=2)
    assert version.path == str(tmp_path / "v000007") and version.policy_version == 7
    assert all(torch.equal(parameter, before[name]) for name, parameter in trained.named_parameters())

    published = load_file(tmp_path / "v000007" / "model.safetensors")
    base = load_file(tiny_dir / "model.safetensors")
    assert {n: t.shape for n, t in published.items()} == {n: t.shape for n, t in base.items()}
    assert "lm_head.weight" in published and all(t.dtype == torch.bfloat16 for t in published.values())
    changed = {name for name in base if not torch.equal(published[name], base[name].bfloat16())}
    assert changed == {n for n in base if n.endswith("_proj.weight")}

    text = list(range(3, 40))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "v000007", dtype=torch.float32)
    assert loaded.lm_head.weight is not loaded.get_input_embeddings().weight
    merged = trained.model.merge_and_unload().to(torch.bfloat16).float()  # rounded as published
    ids = torch.tensor([text])
    with torch.no_grad():
        # peft's merged model keeps the segment attention, so it is asked through its state dict in the loaded one
        own = loaded(ids).logits
        loaded.load_state_dict(merged.state_dict())
        torch.testing.assert_close(own, loaded(ids).logits, atol=1e-5, rtol=0)


def test_published_folder_is_complete_and_old_versions_go(trained, tiny_dir, tmp_path):
    for version in (1, 2, 3):
        publish(trained.merged_state(), tiny_dir, tmp_path, version, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v000002", "v000003"]
    assert (tmp_path / "v000003" / "tokenizer.json").is_file()
    config = json.loads((tmp_path / "v000003" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False and config["dtype"] == "bfloat16"
    # a resume before version 2 publishes 2 again: the undone 3 goes
    publish(trained.merged_state(), tiny_dir, tmp_path, 2, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v000002"]


def test_equal_weights_have_equal_hashes(trained, tiny_dir, tmp_path):
    one = publish(trained.merged_state(), tiny_dir, tmp_path / "a", 1, keep=1)
    assert publish(trained.merged_state(), tiny_dir, tmp_path / "b", 1, keep=1).sha256 == one.sha256


def test_a_folder_that_cannot_be_written_is_one_line(trained, tiny_dir, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LearnerError, match=r"cannot publish weights into .*file") as error:
        publish(trained.merged_state(), tiny_dir, tmp_path / "file", 1, keep=1)
    assert "\n" not in str(error.value)


def test_a_full_disk_is_one_line_and_leaves_no_half_version(trained, tiny_dir, tmp_path):
    # a limit on file size stands in for the full disk: the write fails in the same place
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(LearnerError, match="cannot publish weights") as error:
            publish(trained.merged_state(), tiny_dir, tmp_path, 1, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_bad_models_and_targets_are_named(tiny_dir, tmp_path):
    with pytest.raises(LearnerError, match="cannot load model"):
        Policy(tmp_path, LORA, seed=0)
    wrong = LORA.model_copy(update={"lora": LoraSettings(rank=4, targets=("query",))})
    with pytest.raises(LearnerError, match=r"learner\.lora\.targets \['query'\]"):
        Policy(tiny_dir, wrong, seed=0)


def test_logprobs_of_a_text_are_those_of_the_stock_model(tiny_dir):
    from transformers import AutoModelForCausalLM

    ids = list(range(2, 30))
    stock = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=torch.float32)
    with torch.no_grad():
        got = Policy(tiny_dir, LORA, seed=0)(pack_text(ids), 1.0)
        logits = stock(torch.tensor([ids])).logits[0, :-1]
    expected = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(ids[1:])[:, None]).squeeze(1)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
