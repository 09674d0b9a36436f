"""A run of supervised updates by a corpus alone: no engine, no judge, one process; its adapter is what the next starts
from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.config import load_config
from cluster.driver import samples, train
from learner.adapters import read_adapter


@pytest.mark.slow
def test_a_corpus_is_learnt_without_an_engine_and_the_adapter_is_left(tmp_path: Path) -> None:
    import ray

    corpus = tmp_path / "corpus.jsonl"
    lines = [
        {"prompt": f"Write kernel {i % 2}.", "answer": f"## Code\nanswer {i % 2}", "task": str(i)} for i in range(12)
    ]
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    overrides = [
        f"run.folder={tmp_path}",
        "run.steps=0",
        "run.sft_epochs=0",
        "run.min_free_disk_gb=0",
        "tasks.expert_records=false",
        'tasks.names=["softmax"]',
        "model.path=tiny-random",
        f"sft.corpus={corpus}",
        "sft.batch=3",
        "sft.epochs=6",
        "sft.commit_every=5",
        "sft.warmup=2",
        "sft.final_lr=0.1",
        "learner.sft_lr=1e-2",
        "learner.lora.rank=4",
        "rollout.channel=memory",
        "tracking.wandb=off",
    ]
    config = load_config(None, overrides)
    assert not samples(config)
    assert samples(load_config(None, [*overrides, "run.steps=1"]))
    said: list[str] = []
    assert train(config, say=said.append) == 0
    assert not ray.is_initialized()
    folder = tmp_path / "cpu"
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == list(range(1, 25))
    assert logged[-1]["learner"]["loss"] < logged[0]["learner"]["loss"] - 0.5
    rates = [line["learner"]["lr"] for line in logged]
    assert rates[:3] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])
    assert rates[-1] == pytest.approx(1e-3)
    newest = max((folder / "weights").glob("v*"))
    assert newest.name == "v000024"
    assert read_adapter(newest / "adapter").rank == 4
