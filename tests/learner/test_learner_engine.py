"""The engine on real DeepSpeed. Resume and ranks run in processes of their own, as in a run."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from learner.engine import Engine
from learner.errors import LearnerError
from learner.packing import pack
from learner.settings import LearnerSettings, LoraSettings

pytestmark = pytest.mark.slow

# Each spends half a minute on starting processes, and what it asks is between what its siblings in CI ask.
NIGHTLY = pytest.mark.nightly
BASE = LearnerSettings(lr=1e-2, lora=LoraSettings(rank=4, alpha=8.0), micro_batch_tokens=128, threads=1)


@pytest.fixture
def start(tiny_dir, tmp_path):
    engines = []

    def make(**changes) -> Engine:
        settings = BASE.model_copy(update=changes)
        engines.append(Engine(tiny_dir, settings, temperature=0.9, work_dir=tmp_path / "work", seed=0))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def _logprob(engine: Engine, sample) -> float:
    values = engine.logprobs([*sample.prompt_ids, *sample.completion_ids])
    return sum(values[-len(sample.completion_ids) :])


def test_a_step_moves_completions_the_way_of_their_advantages(start, make_samples):
    engine = start()
    good, bad = make_samples(groups=1, size=2, seed=4)
    before = [_logprob(engine, s) for s in (good, bad)]
    results = [engine.step([good, bad]) for _ in range(3)]
    after = [_logprob(engine, s) for s in (good, bad)]
    assert after[0] > before[0] and after[1] < before[1]
    assert [r.policy_version for r in results] == [1, 2, 3] and engine.policy_version == 3
    assert results[0].metrics["kl"] == 0.0 and results[1].metrics["kl"] > 0.0
    assert all(r.metrics["ratio_mean"] == pytest.approx(1.0) and r.metrics["clip_share"] == 0.0 for r in results)
    assert results[0].metrics["tokens"] == len(good.completion_ids) + len(bad.completion_ids)


def test_later_epochs_leave_the_first_policy_behind(start, make_samples):
    result = start(epochs=3).step(make_samples())
    assert result.policy_version == 1
    assert result.metrics["ratio_mean"] != pytest.approx(1.0, abs=1e-6)


def test_mismatch_is_that_of_the_behaviour_logprobs(start, make_samples):
    engine = start()
    samples = make_samples(groups=1, size=1)
    ids = [*samples[0].prompt_ids, *samples[0].completion_ids]
    # at temperature 1 the engine's own logprobs are at hand: an engine that samples at 1 has no mismatch
    engine._temperature = 1.0
    own = engine.logprobs(ids)[-len(samples[0].completion_ids) :]
    exact = dataclasses.replace(samples[0], behaviour_logprobs=tuple(own))
    shifted = dataclasses.replace(samples[0], behaviour_logprobs=tuple(value - 0.5 for value in own))
    assert engine.step([exact]).metrics["mismatch_max"] < 1e-5
    own_after = engine.logprobs(ids)[-len(own) :]
    metrics = engine.step([shifted]).metrics
    gaps = [abs(new - (old - 0.5)) for new, old in zip(own_after, own, strict=True)]
    assert metrics["mismatch_mean"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)


def test_learning_rate_zero_leaves_the_weights(start, make_samples):
    engine = start(lr=0.0)
    probe = list(range(3, 30))
    before = engine.logprobs(probe)
    engine.step(make_samples())
    engine.sft_step(make_samples())
    assert engine.logprobs(probe) == before and engine.policy_version == 2


def test_learning_rate_zero_keeps_the_mismatch_flat_over_fifty_steps(start, make_samples):
    engine = start(lr=0.0)
    engine._temperature = 1.0
    samples = []
    for sample in make_samples():
        own = engine.logprobs([*sample.prompt_ids, *sample.completion_ids])[-len(sample.completion_ids) :]
        samples.append(dataclasses.replace(sample, behaviour_logprobs=tuple(own)))
    history = [engine.step(samples).metrics for _ in range(50)]
    assert max(metrics["mismatch_max"] for metrics in history) < 1e-5
    assert {metrics["mismatch_mean"] for metrics in history} == {history[0]["mismatch_mean"]}
    assert min(metrics["effective_share"] for metrics in history) > 1 - 1e-6
    # the samples stay of version 0 while the version counts up
    assert [metrics["policy_age_max"] for metrics in history] == [float(age) for age in range(50)]


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_zero_advantages_step_only_for_the_sake_of_the_kl_term(start, make_samples, kl):
    engine = start(kl_coefficient=kl)
    engine.step(make_samples(seed=9))  # away from the reference
    result = engine.step(make_samples(advantages=(0.0,)))
    if kl:
        assert result.policy_version == 2 and result.metrics["grad_norm"] > 0
    else:
        assert result.policy_version == 1 and result.metrics["skipped"] == 1.0


@pytest.mark.parametrize("rank", [4, 0])
def test_the_reference_is_the_policy_after_supervised_steps(start, make_samples, tmp_path, rank):
    engine = start(lora=LoraSettings(rank=rank))
    samples = make_samples()
    engine.sft_step(samples)
    engine.save(tmp_path / "after-sft")
    assert engine.step(samples).metrics["kl"] == 0.0
    moved = engine.step(samples).metrics
    assert moved["kl"] > 0.0
    engine.save(tmp_path / "moved")
    following = engine.step(samples).metrics
    engine.close()
    engine = start(lora=LoraSettings(rank=rank))
    engine.load(tmp_path / "moved")
    assert engine.step(samples).metrics == following
    engine.close()
    engine = start(lora=LoraSettings(rank=rank))
    engine.load(tmp_path / "after-sft")
    assert engine.step(samples).metrics["kl"] == 0.0
    assert engine.step(samples).metrics == moved


def test_leaving_out_zero_advantages_changes_nothing(start, make_samples):
    probe = list(range(3, 30))
    samples = make_samples(groups=3, size=3, advantages=(1.0, 0.0, -1.0))
    outcomes = []
    for advantage in (0.0, 1e-30):  # 1e-30 is not left out, and weighs nothing
        engine = start(kl_coefficient=0.0)
        result = engine.step([dataclasses.replace(s, advantage=s.advantage or advantage) for s in samples])
        outcomes.append(engine.logprobs(probe))
        engine.close()
    assert result.metrics["samples_used"] == 9
    assert outcomes[0] == pytest.approx(outcomes[1], abs=1e-5)


def test_the_size_of_micro_batches_changes_nothing(start, make_samples):
    samples, norms = make_samples(groups=6, size=3), []
    for tokens in (128, 4096):
        engine = start(micro_batch_tokens=tokens)
        norms.append(engine.step(samples).metrics["grad_norm"])
        engine.close()
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{}, {"dtype": "bfloat16"}, {"lora": LoraSettings(rank=0), "zero_stage": 2}],
    ids=["lora-fp32", "lora-bf16", "full-zero2"],
)
def test_supervised_steps_overfit_a_tiny_batch(start, make_samples, changes):
    engine = start(**changes)
    samples = make_samples(groups=2, size=1, seed=2)
    losses = [engine.sft_step(samples).metrics["loss"] for _ in range(40)]
    assert losses[0] > 3.0 and losses[-1] < 0.5


def test_published_weights_give_the_engines_logprobs(start, make_samples, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    engine = start()
    for _ in range(5):
        engine.sft_step(make_samples())
    version = engine.publish(tmp_path / "weights")
    ids = list(range(3, 40))
    model = AutoModelForCausalLM.from_pretrained(version.path, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    served = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(ids[1:])[:, None]).squeeze(1)
    # rounding the weights to bfloat16 is all that lies between them
    assert (served - torch.tensor(engine.logprobs(ids))).abs().mean() < 0.05
    assert version.policy_version == 5


def test_bad_checkpoints_are_one_line(start, tmp_path, make_samples):
    engine = start()
    with pytest.raises(LearnerError, match="is no learner checkpoint"):
        engine.load(tmp_path / "nothing")
    engine.save(tmp_path / "good")
    manifest = tmp_path / "good" / "learner.json"
    wrong = json.loads(manifest.read_text())
    wrong["identity"]["lora"] = [8, 8.0, ["q_proj"]]
    manifest.write_text(json.dumps(wrong))
    with pytest.raises(LearnerError, match="was written with lora"):
        engine.load(tmp_path / "good")
    engine.save(tmp_path / "good")  # onto an old one
    for file in (tmp_path / "good").rglob("*.pt"):
        file.write_bytes(b"damaged")
    with pytest.raises(LearnerError, match="is damaged") as error:
        engine.load(tmp_path / "good")
    assert "\n" not in str(error.value)


def test_saving_disturbs_nothing_and_leaves_one_folder(start, tmp_path, make_samples):
    samples = make_samples()
    engine = start()
    engine.step(samples)
    engine.save(tmp_path / "checkpoints" / "step-1")
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-1"]
    first = engine.step(samples).metrics
    engine.load(tmp_path / "checkpoints" / "step-1")
    assert engine.policy_version == 1
    assert engine.step(samples).metrics == first


WORKER = """
import json, sys
from pathlib import Path
from learner.engine import Engine
from learner.settings import LearnerSettings
from learner.types import Sample

job = json.loads(sys.stdin.read())

def sample(fields):
    return Sample(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})

batches = [[sample(fields) for fields in batch] for batch in job["batches"]]
engine = Engine(Path(job["model"]), LearnerSettings.model_validate(job["settings"]), temperature=0.9,
                work_dir=Path(job["work"]), seed=0, **job.get("group", {}))
if "load" in job:
    engine.load(Path(job["load"]))
def trained():
    return {name: p.detach().float().clone() for name, p in engine._policy.trainable().items()}

before = trained()
metrics = []
for index, batch in enumerate(batches):
    metrics.append(engine.step(batch).metrics)
    if job.get("save_after") == index + 1:
        engine.save(Path(job["save"]))
probe = engine.logprobs(list(range(3, 40)))
if "trained" in job:  # in float32: published weights are bfloat16
    from safetensors.torch import save_file
    after = trained()
    save_file({f"{when}/{n}": t for when, ts in (("before", before), ("after", after)) for n, t in ts.items()},
              job["trained"])
sha = engine.publish(Path(job["weights"])).sha256 if "weights" in job else ""
print(json.dumps({"metrics": metrics, "probe": probe, "version": engine.policy_version, "sha256": sha}))
engine.close()
"""


def _spawn(job: dict) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(job))
    process.stdin.close()
    process.stdin = None
    return process


def _result(process: subprocess.Popen) -> dict:
    try:
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, err[-2000:]
    return json.loads(out.strip().splitlines()[-1])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"dtype": "bfloat16", "epochs": 2}, marks=NIGHTLY),
        {"lora": LoraSettings(rank=0), "zero_stage": 2},
    ],
    ids=["lora-fp32", "lora-bf16-two-epochs", "full-fp32-zero2"],
)
def test_a_resumed_process_continues_bit_for_bit(tiny_dir, tmp_path, make_samples, changes):
    batches = [[dataclasses.asdict(s) for s in make_samples(seed=seed)] for seed in range(4)]
    job = {"model": str(tiny_dir), "settings": BASE.model_copy(update=changes).model_dump(mode="json")}
    whole = _result(
        _spawn(
            job
            | {"batches": batches, "work": str(tmp_path / "w1"), "weights": str(tmp_path / "a")}
            | {"save": str(tmp_path / "c" / "step-2"), "save_after": 2}
        )
    )
    resumed = _result(
        _spawn(
            job
            | {"batches": batches[2:], "work": str(tmp_path / "w2"), "weights": str(tmp_path / "b")}
            | {"load": str(tmp_path / "c" / "step-2")}
        )
    )
    assert resumed["version"] == whole["version"] == 4
    assert resumed["metrics"] == whole["metrics"][2:]
    assert resumed["probe"] == whole["probe"]
    assert resumed["sha256"] == whole["sha256"]


def _two_ranks_and_one(job: dict, tmp_path: Path) -> tuple[dict, dict, dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        _spawn(
            job
            | {"work": str(tmp_path / f"r{rank}"), "weights": str(tmp_path / "weights")}
            | {"trained": str(tmp_path / f"rank{rank}.safetensors")}
            | {"group": {"rank": rank, "world_size": 2, "master_port": port}}
        )
        for rank in range(2)
    ]
    first, second = [_result(process) for process in ranks]
    alone = job | {"work": str(tmp_path / "alone"), "weights": str(tmp_path / "alone-weights")}
    return first, second, _result(_spawn(alone | {"trained": str(tmp_path / "alone.safetensors")}))


def _odd_batches(make_samples) -> list[list[dict]]:
    # Of two numbers the sum does not depend on the order: only three micro batches and more can tell ranks from one.
    # An odd number makes one rank run out before the other.
    def odd_many(seed: int) -> list:
        sizes = (make_samples(groups=groups, size=3, seed=seed) for groups in range(20, 40))
        return next(s for s in sizes if len(pack(s, BASE.micro_batch_tokens)) in (5, 7))

    batches = [odd_many(seed) for seed in range(2)]
    return [[dataclasses.asdict(s) for s in batch] for batch in batches]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"zero_stage": 2}, marks=NIGHTLY),
        pytest.param({"lora": LoraSettings(rank=0), "zero_stage": 1, "lr": 1e-4}, marks=NIGHTLY),
        {"lora": LoraSettings(rank=0), "zero_stage": 2, "lr": 1e-4},
        pytest.param({"ratio_level": "sequence", "epochs": 2}, marks=NIGHTLY),
        {"offload": "optimizer", "zero_stage": 2},
    ],
    ids=["lora", "lora-zero2", "full", "full-zero2", "sequence-two-epochs", "lora-zero2-offload"],
)
def test_two_ranks_give_the_weights_of_one(tiny_dir, tmp_path, make_samples, changes):
    settings = BASE.model_copy(update=changes).model_dump(mode="json")
    job = {"model": str(tiny_dir), "settings": settings, "batches": _odd_batches(make_samples)}
    first, second, alone = _two_ranks_and_one(job, tmp_path)
    assert first["sha256"] == second["sha256"]
    rank0, rank1, one = (load_file(tmp_path / f"{name}.safetensors") for name in ("rank0", "rank1", "alone"))
    moved = max(float((one[n] - one[n.replace("after/", "before/")]).abs().max()) for n in one if n[0] == "a")
    assert moved > settings["lr"]
    assert rank0.keys() == one.keys()
    for name, weights in one.items():
        assert (rank0[name] == rank1[name]).all(), name
        assert float((rank0[name] - weights).abs().max()) < 1e-6, name
    assert first["metrics"][1]["tokens"] == alone["metrics"][1]["tokens"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=NIGHTLY),
        pytest.param({"lora": LoraSettings(rank=0), "lr": 1e-4}, marks=NIGHTLY),
        {"offload": "all"},
    ],
    ids=["lora", "full", "lora-offload"],
)
def test_two_ranks_with_partitioned_weights_learn_what_one_learns(tiny_dir, tmp_path, make_samples, changes):
    settings = BASE.model_copy(update={"zero_stage": 3, **changes}).model_dump(mode="json")
    job = {"model": str(tiny_dir), "settings": settings, "batches": _odd_batches(make_samples)}
    first, second, alone = _two_ranks_and_one(job, tmp_path)
    assert first["sha256"] == second["sha256"]
    weights = [
        load_file(tmp_path / folder / "v000002" / "model.safetensors") for folder in ("weights", "alone-weights")
    ]
    assert {n: t.shape for n, t in weights[0].items()} == {n: t.shape for n, t in weights[1].items()}
    assert all((weights[0][n].float() - weights[1][n].float()).abs().max() < 1e-2 for n in weights[0])
    assert first["probe"] == second["probe"]
    assert first["probe"] == pytest.approx(alone["probe"], abs=1e-4)
    assert first["metrics"][1]["grad_norm"] == pytest.approx(alone["metrics"][1]["grad_norm"], rel=1e-3)
    assert first["metrics"][1]["tokens"] == alone["metrics"][1]["tokens"]


@pytest.mark.parametrize("stage", [1, pytest.param(2, marks=NIGHTLY), 3])
def test_two_ranks_resume_bit_for_bit(tiny_dir, tmp_path, make_samples, stage):
    batches = _odd_batches(make_samples)
    job = {"model": str(tiny_dir), "settings": BASE.model_copy(update={"zero_stage": stage}).model_dump(mode="json")}

    def both(name: str, more: dict) -> list[dict]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [
            _spawn(
                job
                | {"work": str(tmp_path / f"{name}{rank}"), "weights": str(tmp_path / name)}
                | {"group": {"rank": rank, "world_size": 2, "master_port": port}}
                | more
            )
            for rank in range(2)
        ]
        return [_result(process) for process in ranks]

    whole = both("whole", {"batches": batches, "save": str(tmp_path / "saved"), "save_after": 1})
    resumed = both("resumed", {"batches": batches[1:], "load": str(tmp_path / "saved")})
    for one, other in zip(whole, resumed, strict=True):
        assert other["metrics"] == one["metrics"][1:]
        assert other["probe"] == one["probe"]
        assert other["sha256"] == one["sha256"]


@pytest.mark.parametrize(
    "changes",
    [{"offload": "optimizer", "zero_stage": 0}, {"offload": "all", "zero_stage": 2}],
)
def test_an_offload_that_the_stage_cannot_do_is_one_line(start, changes):
    with pytest.raises(LearnerError, match=r"learner\.offload") as error:
        start(**changes)
    assert "\n" not in str(error.value)


def test_supervised_and_contrastive_updates_have_learning_rates_of_their_own(start, make_samples):
    engine = start(lr=0.0, sft_lr=1e-2)
    samples = make_samples(groups=1, size=2)
    before = _logprob(engine, samples[0])
    assert engine.step(samples).metrics["lr"] == 0.0
    assert _logprob(engine, samples[0]) == before
    assert engine.sft_step(samples).metrics["lr"] == 1e-2
    assert _logprob(engine, samples[0]) > before
