"""The contract with the installed vLLM, on a tiny random model: one engine for all of these tests.

The truth is a Hugging Face forward in float32. Engine and truth differ by bfloat16 rounding only: on this model by
0.0006 nats on average, while another temperature, raw logprobs or stale weights differ by a hundred times that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from actors.errors import ActorError
from actors.pools import LearnerClient, RolloutPool
from actors.rollout import PREFILL_TOKENS
from actors.settings import RolloutSettings, Timeouts
from actors.sync import sync_weights
from learner.errors import LearnerError
from learner.settings import LearnerSettings, LoraSettings
from learner.types import Sample, WeightsVersion
from search.types import Completion, Prompt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.usefixtures("ray_cluster")]

ON_GPU = shutil.which("nvidia-smi") is not None
"""Where vLLM is the one for GPUs, its contract is tested there."""
SETTINGS = RolloutSettings(
    group_size=3,
    max_tokens=24,
    temperature=0.7,
    max_model_len=512,
    max_num_seqs=16,
    kv_cache_gb=0.25,
    gpus=0.4 if ON_GPU else 0,
)
MEAN, WORST = 0.005, 0.05  # nats
PROBE = list(range(100, 160))


@pytest.fixture(scope="module")
def model_dir() -> Path:
    from learner.pretrained import prepare_model

    return prepare_model("tiny-random")


@pytest.fixture(scope="module")
def engine(ray_cluster: None, model_dir: Path) -> Iterator[tuple[RolloutPool, list[str]]]:
    events: list[str] = []
    with RolloutPool(model_dir, SETTINGS, Timeouts(), seed=5, on_event=events.append) as pool:
        pool.wait_ready()
        yield pool, events


@pytest.fixture
def pool(engine: tuple[RolloutPool, list[str]]) -> RolloutPool:
    return engine[0]


Publish = Callable[..., WeightsVersion]


@pytest.fixture
def publish(model_dir: Path, tmp_path: Path) -> Publish:
    """Writes the model's weights, changed, as a version in a folder of its own."""
    from safetensors.torch import load_file, save_file

    def write(number: int, change: Callable[[dict[str, Any]], None] = lambda tensors: None) -> WeightsVersion:
        tensors = load_file(model_dir / "model.safetensors")
        change(tensors)
        folder = tmp_path / f"v{number:06d}"
        folder.mkdir()
        for file in model_dir.iterdir():
            if file.suffix != ".safetensors":
                (folder / file.name).write_bytes(file.read_bytes())
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        return WeightsVersion(policy_version=number, path=str(folder), sha256=digest)

    return write


def perturb(*names: str, seed: int = 0) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        import torch

        generator = torch.Generator().manual_seed(seed)
        for name in names:
            old = tensors[name]
            noise = torch.randn(old.shape, generator=generator) * 3 * old.float().std()
            tensors[name] = (old.float() + noise).to(old.dtype)

    return change


def truth(folder: str | Path, ids: Sequence[int], temperature: float = 1.0) -> list[float]:
    """log p of tokens 1.. by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logprobs = (model(torch.tensor([list(ids)])).logits[0] / temperature).log_softmax(-1)
    return [logprobs[i - 1, ids[i]].item() for i in range(1, len(ids))]


def differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [abs(a - b) for a, b in zip(one, other, strict=True)]


def assert_same(one: Sequence[float], other: Sequence[float]) -> None:
    found = differences(one, other)
    assert sum(found) / len(found) < MEAN
    assert max(found) < WORST


def prompt(name: str, words: str = "Write a faster softmax.") -> Prompt:
    return Prompt(
        prompt_id=name, task_name="softmax", operator="contrast", messages=({"role": "user", "content": words},)
    )


def tokens(completions: Sequence[Completion]) -> dict[tuple[str, int], tuple[int, ...]]:
    return {(c.prompt_id, c.index): c.token_ids for c in completions}


def test_completions_come_in_order_with_tokens_and_their_own_logprobs(pool: RolloutPool, model_dir: Path) -> None:
    completions = pool.generate([prompt("a"), prompt("b", "Another question.")])
    assert [(c.prompt_id, c.index) for c in completions] == [(p, i) for p in "ab" for i in range(3)]
    assert len({c.token_ids for c in completions}) == 6
    for c in completions[::4]:
        assert len(c.token_ids) == len(c.logprobs) <= SETTINGS.max_tokens
        assert len(c.prompt_token_ids) == pool.count_tokens(
            [{"role": "user", "content": "Write a faster softmax."}]
        ) or (c.prompt_id == "b")
        expected = truth(model_dir, c.prompt_token_ids + c.token_ids, SETTINGS.temperature)
        assert_same(c.logprobs, expected[len(c.prompt_token_ids) - 1 :])


def test_logprobs_are_those_of_the_temperature_sampled_at(pool: RolloutPool, model_dir: Path) -> None:
    (c, *_) = pool.generate([prompt("temperature")])
    raw = truth(model_dir, c.prompt_token_ids + c.token_ids, 1.0)[len(c.prompt_token_ids) - 1 :]
    assert sum(differences(c.logprobs, raw)) / len(raw) > 8 * MEAN


def test_the_stop_token_is_among_the_tokens(pool: RolloutPool, publish: Publish, model_dir: Path) -> None:
    from transformers import AutoTokenizer

    stop = AutoTokenizer.from_pretrained(model_dir).eos_token_id

    def eager_to_stop(weights: dict[str, Any]) -> None:
        # The stop token's logit becomes twice the largest other one wherever that is positive: it comes soon.
        head = weights["lm_head.weight"]
        head[stop] = 40 * head[: stop or 1].float().std() * head[stop].sign()

    pool.load_weights(publish(50, eager_to_stop))
    completions = [c for n in range(8) for c in pool.generate([prompt(f"stop{n}")])]
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert stopped
    assert all(c.token_ids[-1] == stop and stop not in c.token_ids[:-1] for c in stopped)
    assert all(len(c.logprobs) == len(c.token_ids) for c in stopped)
    assert all(len(c.token_ids) == SETTINGS.max_tokens for c in completions if c.finish_reason == "length")
    pool.load_weights(publish(51))


def test_a_prompts_completions_do_not_depend_on_its_company(pool: RolloutPool) -> None:
    names = ["one", "two", "three", "four"]
    together = tokens(pool.generate([prompt(n) for n in names]))
    backwards = tokens(pool.generate([prompt(n) for n in reversed(names)]))
    alone = tokens(pool.generate([prompt("three")]))
    assert together == backwards
    assert alone.items() <= together.items()


def test_more_prompt_tokens_than_one_engine_step_takes_are_sampled_with_their_own_seeds(pool: RolloutPool) -> None:
    # Were a prompt cut in two, vLLM would die on a CPU (see RolloutActor.start).
    words = [f"{n} " + "hello world " * 190 for n in range(14)]
    count = sum(pool.count_tokens([{"role": "user", "content": text}]) for text in words)
    assert count > PREFILL_TOKENS
    completions = pool.generate([prompt(f"wide{n}", text) for n, text in enumerate(words)])
    assert len(completions) == 14 * SETTINGS.group_size
    assert tokens(pool.generate([prompt("wide5", words[5])])).items() <= tokens(completions).items()


def test_a_prompt_without_room_is_refused_and_the_others_are_answered(
    engine: tuple[RolloutPool, list[str]],
) -> None:
    pool, events = engine
    completions = pool.generate([prompt("long", "word " * 600), prompt("short")])
    long, short = completions[:3], completions[3:]
    assert {c.finish_reason for c in long} == {"refused"}
    assert all(not c.token_ids and "max_model_len = 512" in c.reason for c in long)
    assert all(c.token_ids and c.finish_reason in ("stop", "length") for c in short)
    assert any("prompt long refused" in event for event in events)


def test_new_weights_are_the_ones_that_answer(pool: RolloutPool, publish: Publish, model_dir: Path) -> None:
    before = pool.probe(PROBE)[0]
    assert_same(before, truth(model_dir, PROBE))
    layer = "model.layers.1.mlp.down_proj.weight"
    for number, names in enumerate([("lm_head.weight",), ("model.embed_tokens.weight", layer), (layer,)], start=60):
        version = publish(number, perturb(*names))
        pool.load_weights(version)
        after = pool.probe(PROBE)[0]
        expected = truth(version.path, PROBE)
        assert_same(after, expected)
        assert sum(differences(before, expected)) / len(before) > 4 * MEAN, names
        assert pool.policy_version == number
        assert {c.policy_version for c in pool.generate([prompt("stamp")])} == {number}


def test_the_prefix_cache_is_not_asked_after_new_weights(pool: RolloutPool, publish: Publish) -> None:
    question = prompt("cache", "a long shared prefix " * 40)
    pool.load_weights(publish(70))
    first = tokens(pool.generate([question]))
    assert tokens(pool.generate([question])) == first  # from the cache now
    version = publish(71, perturb("model.layers.0.self_attn.v_proj.weight", "model.embed_tokens.weight"))
    pool.load_weights(version)
    for c in pool.generate([question]):
        expected = truth(version.path, c.prompt_token_ids + c.token_ids, SETTINGS.temperature)
        assert_same(c.logprobs, expected[len(c.prompt_token_ids) - 1 :])
    pool.load_weights(publish(72))
    assert tokens(pool.generate([question])) == first


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.pop("lm_head.weight"), "lacks lm_head.weight"),
        (lambda t: t.update(extra=t["model.norm.weight"].clone()), "has extra, which the model does not"),
        (
            lambda t: t.update({"model.norm.weight": t["model.norm.weight"][:10].clone()}),
            r"model.norm.weight is \[10\], in the model \[64\]",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_the_engine_keeps_its_own(
    pool: RolloutPool, publish: Publish, change: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    pool.load_weights(publish(80))
    before, pids = pool.probe(PROBE), pool.pids
    with pytest.raises(ActorError, match=complaint):
        pool.load_weights(publish(81, change))
    assert pool.probe(PROBE) == before
    assert pool.policy_version == 80
    assert pool.pids == pids


def test_a_file_that_changed_after_publishing_is_refused(pool: RolloutPool, publish: Publish) -> None:
    version = dataclasses.replace(publish(90), sha256="0" * 64)
    with pytest.raises(ActorError, match="is not what was published"):
        pool.load_weights(version)
    gone = dataclasses.replace(version, path=version.path + "x")
    with pytest.raises(ActorError, match="cannot be read: No such file"):
        pool.load_weights(gone)


def test_an_engine_killed_while_sampling_is_replaced_with_the_current_weights(
    engine: tuple[RolloutPool, list[str]], publish: Publish
) -> None:
    pool, events = engine
    version = publish(100, perturb("lm_head.weight", seed=3))
    pool.load_weights(version)
    expected = tokens(pool.generate([prompt("x"), prompt("y")]))
    killed = pool.pids[0]
    os.kill(killed, signal.SIGKILL)
    assert tokens(pool.generate([prompt("x"), prompt("y")])) == expected
    assert pool.pids != [killed]
    assert_same(pool.probe(PROBE)[0], truth(version.path, PROBE))
    assert any("lost" in event for event in events)


@pytest.mark.parametrize("channel", ["file", "memory"])
def test_what_the_learner_learns_is_what_the_engine_samples_from(
    pool: RolloutPool, model_dir: Path, tmp_path: Path, channel: Literal["file", "memory"]
) -> None:
    settings = LearnerSettings(lr=1e-2, lora=LoraSettings(rank=4), gpus=SETTINGS.gpus)
    with LearnerClient(
        model_dir, settings, Timeouts(), temperature=SETTINGS.temperature, work_dir=tmp_path, seed=0
    ) as learner:
        sync = partial(sync_weights, learner, pool, tmp_path / "weights", PROBE, channel=channel)
        first = sync(max_jump=MEAN)
        samples = [
            Sample(prompt_ids=tuple(PROBE[:20]), completion_ids=tuple(PROBE[20:]), group_id="g") for _ in range(2)
        ]
        for _ in range(4):
            result = learner.sft_step(samples)
        second = sync(max_jump=0.02)
        assert (second.version.loan is not None) == (channel == "memory")
        assert (tmp_path / "weights").exists() == (channel == "file")
        assert (first.version.policy_version, second.version.policy_version) == (0, 4)
        assert result.policy_version == learner.policy_version == pool.policy_version == 4
        gained = [sum(r.engine_logprobs[0]) - sum(first.engine_logprobs[0]) for r in (first, second)]
        assert gained[1] > 5, gained
        rollouts = [c for c in pool.generate([prompt("on policy")]) if c.finish_reason != "refused"]
        batch = [
            Sample(
                prompt_ids=c.prompt_token_ids,
                completion_ids=c.token_ids,
                behaviour_logprobs=c.logprobs,
                advantage=c.index - 1.0,
                policy_version=c.policy_version,
                group_id=c.prompt_id,
            )
            for c in rollouts
        ]
        metrics = learner.step(batch).metrics
        assert metrics["mismatch_mean"] < 0.02
        assert metrics["policy_age_max"] == 0
        learner.save(tmp_path / "checkpoint")
        learner.sft_step(samples)
        learner.load(tmp_path / "checkpoint")
        assert learner.policy_version == 5
        with pytest.raises(LearnerError, match="at least 2 tokens"):
            learner.probe([1])
        pid = learner.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ActorError, match="the learner died during probe at version 5"):
            learner.probe(PROBE)
