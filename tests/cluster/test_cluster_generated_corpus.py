from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from cluster.config import load_config
from cluster.corpus import read_corpus
from cluster.errors import ConfigError
from cluster.generated_corpus import Order, build_corpus, read_timings, schedule_key
from cluster.generated_samples import Made, Maker, Scored, samples_of
from judge.types import Candidate, Status, Verdict
from search.parser import parse
from search.settings import SearchSettings
from tasks.procedural.generate import GeneratedTask, generated_task
from tasks.types import Task


def _count(text: str) -> int:
    return len(text) // 3


def _made(task: GeneratedTask, kinds: tuple[str, ...], judge: object = None, per_task: int = 6) -> Made:
    """Samples of a task whose kernels are the faster the later they come."""
    scored = [
        Scored(kernel=kernel, microseconds=100.0 / 1.4**i, eager_microseconds=100.0)
        for i, kernel in enumerate(task.kernels("cpp"))
    ]
    maker = Maker(
        search=SearchSettings(max_prompt_tokens=4000),
        kinds=kinds,
        per_task=per_task,
        hardware={"cpu": "Some CPU", "threads": "1"},
        count_tokens=_count,
        count_answer=_count,
        most_tokens=6000,
        judge=judge,  # type: ignore[arg-type]
    )
    return samples_of(task, scored, maker)


def test_plain_answers_are_the_fastest_kernels_in_the_protocol() -> None:
    task = generated_task(1)
    best = task.kernels("cpp")[-1]
    (line,) = _made(task, ("plain",)).lines
    parsed = parse(line["answer"])
    assert parsed.candidate is not None and parsed.candidate.code == best.code
    assert "bound by" in parsed.analysis and parsed.design
    assert "Some CPU (1 thread)" in line["prompt"]
    assert line["score"] == round(1.4 ** (len(task.kernels("cpp")) - 1), 3)
    odd = task.shapes.cpu[-1]
    assert f"= {odd.cols}" not in line["prompt"], "a held-out size is never shown"


def test_contrast_answers_beat_both_exemplars() -> None:
    task = generated_task(1)
    lines = _made(task, ("contrast",)).lines
    assert lines
    for line in lines:
        shown = [float(part.split("x")[0]) for part in line["prompt"].split("## Speedup ")[1:]]
        assert len(shown) == 2
        assert shown[0] < shown[1] < line["score"]


def test_repair_prompts_show_the_judges_message_and_the_answer_is_whole() -> None:
    def judge(task: Task, candidate: Candidate) -> Verdict:
        return Verdict(status=Status.COMPILE_ERROR, message="kernel: line 7: expected ';'")

    task = generated_task(2)
    lines = _made(task, ("repair",), judge).lines
    codes = {kernel.code for kernel in task.kernels("cpp")}
    assert lines
    for line in lines:
        assert "FAILED: kernel: line 7: expected ';'" in line["prompt"]
        parsed = parse(line["answer"])
        assert parsed.candidate is not None and parsed.candidate.code in codes


def test_a_candidate_that_is_right_in_spite_of_its_fault_is_no_repair_sample() -> None:
    def judge(task: Task, candidate: Candidate) -> Verdict:
        return Verdict(status=Status.CORRECT, speedup=1.0)

    assert _made(generated_task(2), ("repair",), judge).lines == ()


def test_kinds_take_turns_within_the_number_of_a_task() -> None:
    lines = _made(generated_task(1), ("plain", "contrast"), per_task=2).lines
    assert Counter(line["kind"] for line in lines) == {"plain": 1, "contrast": 1}


def _order(out: Path, **changes: object) -> Order:
    given = {"backend": "cpp", "tasks": 2, "per_task": 3, "split": "train", "seed": 2, "kinds": ("plain", "contrast")}
    return Order(out=out, **(given | changes))  # type: ignore[arg-type]


def test_a_corpus_is_read_by_the_sft_stage_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    said: list[str] = []
    config = load_config(None, ["model.path=tiny-random"])
    out = tmp_path / "corpus.jsonl"
    assert build_corpus(_order(out), config, said.append) == 0
    first = out.read_text()
    examples = read_corpus(out)
    assert len(examples) >= 2 and len({example.task for example in examples}) == 2
    for line in map(json.loads, first.splitlines()):
        assert sum(line["tokens"]) <= 2048
        candidate = parse(line["answer"]).candidate
        assert candidate is not None and "load_cpp" in candidate.code
    with out.open("a") as file:
        file.write('{"torn')
    assert build_corpus(_order(out, tasks=3), config, said.append) == 0
    assert out.read_text().startswith(first)
    assert len({example.task for example in read_corpus(out)}) == 3
    with pytest.raises(ConfigError, match="other options"):
        build_corpus(_order(out, per_task=1), config, said.append)
    (tmp_path / "mine.jsonl").write_text("")
    with pytest.raises(ConfigError, match="not begun by this command"):
        build_corpus(_order(tmp_path / "mine.jsonl"), config, said.append)


def test_cuda_samples_are_plain_without_timings_and_scored_with_them(tmp_path: Path) -> None:
    said: list[str] = []
    config = load_config(None, ["model.path=tiny-random"])
    out = tmp_path / "unscored.jsonl"
    order = _order(out, backend="cuda", kinds=("plain", "contrast"), tasks=1)
    assert build_corpus(order, config, said.append) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"plain"}
    assert all("CUDA C++" in line["prompt"] and "load_cuda" in line["answer"] for line in lines)

    task = next(iter(read_corpus(out))).task
    seed = lines[0]["seed"]
    kernels = generated_task(seed).kernels("cuda")
    timings = tmp_path / "timings.jsonl"
    rows = [
        {
            "seed": seed,
            "schedule": dict(kernel.schedule),
            "correct": True,
            "microseconds": 10.0 * (i + 1),
            "eager_microseconds": 100.0,
        }
        for i, kernel in enumerate(kernels)
    ]
    timings.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = tmp_path / "scored.jsonl"
    order = _order(scored, backend="cuda", kinds=("plain",), tasks=1, per_task=1, timings=timings)
    assert build_corpus(order, config, said.append) == 0
    (line,) = [json.loads(line) for line in scored.read_text().splitlines()]
    assert line["task"] == task and line["score"] == 10.0
    assert schedule_key(line["schedule"]) == schedule_key(dict(kernels[0].schedule))


def test_timings_that_are_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    path.write_text('{"seed": 1}\n')
    with pytest.raises(ConfigError, match="line 1: wants seed"):
        read_timings(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_timings(tmp_path / "none.jsonl")


def test_the_sample_beside_the_examples_is_what_the_command_writes() -> None:
    path = Path(__file__).parents[2] / "examples" / "corpus" / "cpp_sample.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(read_corpus(path)) == len(lines) >= 80
    assert {line["kind"] for line in lines} == {"plain", "contrast", "repair"}
    for line in lines:
        task = generated_task(line["seed"])
        assert (task.task.name, task.split, task.family) == (line["task"], "train", line["family"])
        candidate = parse(line["answer"]).candidate
        assert candidate is not None
        assert candidate.code in {kernel.code for kernel in task.kernels("cpp")}
        assert sum(line["tokens"]) <= 2048
