from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learner.errors import LearnerError
from learner.pretrained import _FORM, SMOLLM2, TINY, prepare_model


@pytest.fixture
def tied_dir(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path / "tied"
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_an_untied_folder_is_used_as_it_is(tiny_dir, tmp_path):
    assert prepare_model(str(tiny_dir), tmp_path) == tiny_dir
    assert list(tmp_path.iterdir()) == []


def test_a_tied_folder_is_copied_untied_and_computes_the_same(tied_dir, tmp_path):
    from transformers import AutoModelForCausalLM

    folder = prepare_model(str(tied_dir), tmp_path / "cache")
    assert folder.parent == tmp_path / "cache"
    tensors = load_file(folder / "model.safetensors")
    assert torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    assert (folder / "tokenizer.json").is_file()
    ids = torch.arange(20)[None]
    tied, untied = (AutoModelForCausalLM.from_pretrained(d) for d in (tied_dir, folder))
    assert untied.lm_head.weight is not untied.get_input_embeddings().weight
    with torch.no_grad():
        assert torch.equal(tied(ids).logits, untied(ids).logits)


def test_the_copy_follows_the_content(tied_dir, tmp_path):
    first = prepare_model(str(tied_dir), tmp_path / "cache")
    assert prepare_model(str(tied_dir), tmp_path / "cache") == first
    (tied_dir / "tokenizer.json").write_text('{"changed": true}')
    assert prepare_model(str(tied_dir), tmp_path / "cache") != first


def test_what_a_killed_conversion_left_is_no_model(tied_dir, tmp_path):
    cache = tmp_path / "cache"
    folder = prepare_model(str(tied_dir), cache)
    left = cache / f".{folder.name}.tmp"
    left.mkdir()
    (left / "model.safetensors").write_text("half")
    shutil.rmtree(folder)
    assert prepare_model(str(tied_dir), cache) == folder
    assert load_file(folder / "model.safetensors")
    assert not left.exists()


def test_two_processes_agree_on_one_copy(tied_dir, tmp_path):
    code = "import sys; from learner.pretrained import prepare_model; from pathlib import Path; "
    code += "print(prepare_model(sys.argv[1], Path(sys.argv[2])))"
    command = [sys.executable, "-c", code, str(tied_dir), str(tmp_path / "cache")]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {worker.communicate(timeout=100)[0].strip() for worker in workers}
    assert len(folders) == 1 and all(worker.returncode == 0 for worker in workers)
    assert [p for p in (tmp_path / "cache").iterdir() if not p.name.startswith(".")] == [Path(folders.pop())]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: shutil.rmtree(d), r"does not exist: give a Hugging Face folder or smollm2-135m-instruct"),
        (lambda d: (d / "config.json").unlink(), "has no config.json"),
        (lambda d: (d / "config.json").write_text("{"), "is not JSON"),
        (lambda d: (d / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (lambda d: (d / "model.safetensors").unlink(), r"has no \*.safetensors"),
        (lambda d: (d / "model.safetensors").write_text("junk"), "is not a readable safetensors file"),
    ],
)
def test_an_unusable_folder_is_one_line(tied_dir, tmp_path, spoil, message):
    spoil(tied_dir)
    with pytest.raises(LearnerError, match=message) as error:
        prepare_model(str(tied_dir), tmp_path / "cache")
    assert "\n" not in str(error.value)


def test_a_cache_that_cannot_be_written_is_one_line(tied_dir, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LearnerError, match=r"cannot write model .*WARPSMITH_HOME"):
        prepare_model(str(tied_dir), tmp_path / "file" / "cache")


@pytest.mark.slow
def test_smollm2_is_converted_once_and_knows_its_facts(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    pytest.importorskip("gguf")
    folder = prepare_model(SMOLLM2, tmp_path)
    assert prepare_model(SMOLLM2, tmp_path) == folder
    tensors = load_file(folder / "model.safetensors")
    assert tensors["lm_head.weight"].dtype == torch.bfloat16 and "model.embed_tokens.weight" in tensors
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.bos_token == "<|im_start|>"
    assert model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id
    turn = tokenizer.apply_chat_template([{"role": "assistant", "content": "done"}], tokenize=False)
    assert turn.rstrip().endswith("done<|im_end|>")  # so what closes an answer in training closes a turn
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**chat, max_new_tokens=12, do_sample=False)[0, chat["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)


@pytest.mark.slow
def test_the_tiny_model_is_the_same_for_everyone(tmp_path):
    one, other = (load_file(prepare_model(TINY, tmp_path / d) / "model.safetensors") for d in ("a", "b"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (tmp_path / "a" / f"{TINY}-{_FORM}" / "model.safetensors").stat().st_size < 20e6
