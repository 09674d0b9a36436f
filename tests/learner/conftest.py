"""A model small enough to test with, and samples for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from learner.types import Sample

VOCABULARY = 97


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random untied Llama of 2 layers with grouped key-value heads, float32, 97 tokens; its tokenizer is a stub."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny")
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,  # far from uniform, so that mistakes show
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def make_samples() -> Callable[..., list[Sample]]:
    def make(groups: int = 2, size: int = 3, seed: int = 0, advantages: tuple[float, ...] = (1.0, -1.0, 0.5)):
        rng = np.random.default_rng(seed)

        def tokens(count: int) -> tuple[int, ...]:
            return tuple(int(token) for token in rng.integers(0, VOCABULARY, count))

        samples = []
        for group in range(groups):
            prompt = tokens(int(rng.integers(5, 12)))
            for index in range(size):
                completion = tokens(int(rng.integers(1, 9)))
                samples.append(
                    Sample(
                        prompt_ids=prompt,
                        completion_ids=completion,
                        behaviour_logprobs=tuple(-4.0 - rng.random(len(completion))),
                        advantage=advantages[index % len(advantages)],
                        group_id=str(group),
                    )
                )
        return samples

    return make
