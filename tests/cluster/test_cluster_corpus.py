"""The corpus file of the supervised stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.config import load_config
from cluster.corpus import Example, corpus_samples, read_corpus, select
from cluster.errors import ConfigError


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def run_of(path: Path, *overrides: str) -> Any:
    """What corpus_samples needs of a run; a token is a character."""
    said: list[str] = []
    session = SimpleNamespace(
        many_ids=lambda chats, answers: [
            (tuple(ord(c) for c in chat[-1]["content"]), (*map(ord, answer), 0))
            for chat, answer in zip(chats, answers, strict=True)
        ]
    )
    config = load_config(None, [f"sft.corpus={path}", *overrides])
    return SimpleNamespace(config=config, session=session, say=said.append, said=said)


def test_lines_are_read_with_their_defaults(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    path = write(tmp_path / "c.jsonl", {"prompt": "p", "answer": "a"}, "", {"prompt": chat, "answer": "b", "score": 2})
    one, two = read_corpus(path)
    assert one.messages == ({"role": "user", "content": "p"},)
    assert (one.score, two.score) == (1.0, 2.0)
    assert two.messages == tuple(chat)
    assert one.task != two.task


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: not JSON"),
        ({"prompt": "p"}, 'line 2: wants "prompt"'),
        ({"prompt": [{"role": "user"}], "answer": "a"}, 'line 2: wants "prompt"'),
        ({"prompt": "p", "answer": "a", "score": "high"}, "line 2: score is 'high'"),
        ('{"prompt": "p", "answer": "a", "score": NaN}', "line 2: score is nan"),
        ([1], 'line 2: wants "prompt"'),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, words: str) -> None:
    path = write(tmp_path / "c.jsonl", {"prompt": "p", "answer": "a"}, line)
    with pytest.raises(ConfigError, match=words) as error:
        read_corpus(path)
    assert "\n" not in str(error.value)


def test_a_missing_or_empty_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_corpus(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="holds no example"):
        read_corpus(write(tmp_path / "c.jsonl", ""))


def test_the_best_of_each_task_are_chosen_in_the_order_of_the_file() -> None:
    scores = {"a": [1.0, 3.0, 2.0, 3.0], "b": [0.5, 0.1]}
    examples = [
        Example(messages=(), answer=f"{task}{i}", score=score, task=task)
        for task, values in scores.items()
        for i, score in enumerate(values)
    ]
    assert [e.answer for e in select(examples, 0.0, 2)] == ["a1", "a3", "b0", "b1"]
    assert [e.answer for e in select(examples, 0.3, 1)] == ["a1", "b0"]
    assert [e.answer for e in select(examples, 2.0, 0)] == ["a1", "a2", "a3"]


@pytest.mark.parametrize("batch", [2, 3, 100])
def test_each_epoch_holds_every_example_once_in_an_order_of_its_own(tmp_path: Path, batch: int) -> None:
    path = write(tmp_path / "c.jsonl", *({"prompt": f"p{i}", "answer": f"a{i}"} for i in range(7)))
    overrides = ("sft.epochs=3", f"sft.batch={batch}")
    batches = corpus_samples(run_of(path, *overrides))
    assert batches == corpus_samples(run_of(path, *overrides))
    samples = [sample.completion_ids for one in batches for sample in one]
    epochs = [samples[i : i + 7] for i in (0, 7, 14)]
    assert all(len(set(epoch)) == 7 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert corpus_samples(run_of(path, *overrides, "run.seed=1")) != batches


def test_what_does_not_fit_is_left_out_and_counted(tmp_path: Path) -> None:
    lines = [{"prompt": "p", "answer": "x" * length} for length in (10, 5000)]
    run = run_of(write(tmp_path / "c.jsonl", *lines))
    (batch,) = corpus_samples(run)
    assert len(batch) == 1
    assert "1 of 2 examples" in run.said[0]
    with pytest.raises(ConfigError, match="no example scores"):
        corpus_samples(run_of(tmp_path / "c.jsonl", "sft.min_score=2"))


def test_without_a_corpus_there_are_no_batches(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(config=load_config(None, []))
    assert corpus_samples(run) == []


def test_success_is_correct_distinct_and_the_fastest(tmp_path: Path) -> None:
    from cluster.recording import Answer, Group
    from cluster.stages import successes
    from judge.types import Status, Verdict
    from search.operators import expert_completion
    from search.types import Completion, Prompt

    code = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    MARK = {}\n"
    status: Callable[[float], Status] = lambda speedup: Status.CORRECT if speedup else Status.INCORRECT  # noqa: E731

    def answer(index: int, mark: int, speedup: float) -> Answer:
        text = expert_completion(code.format(mark), "x")
        completion = Completion(prompt_id="p", index=index, text=text, prompt_token_ids=(1,), token_ids=(index,))
        verdict = Verdict(status=status(speedup), speedup=speedup or None)
        return Answer(completion=completion, record_id=str(index), verdict=verdict)

    group = Group(
        run_id="r",
        stage="self_supervised",
        step=1,
        task_name="t",
        task_id="t",
        prompt=Prompt(prompt_id="p", task_name="t", operator="vanilla", messages=()),
        # 1 and 3 are the same code; 2 is wrong
        answers=(answer(0, 7, 1.2), answer(1, 8, 2.0), answer(2, 9, 0.0), answer(3, 8, 2.0), answer(4, 6, 1.5)),
    )
    assert [sample.completion_ids for sample in successes([group], 2)] == [(1,), (4,)]
    assert [sample.completion_ids for sample in successes([group], 9)] == [(1,), (4,), (0,)]
    assert all(not sample.behaviour_logprobs for sample in successes([group], 9))


def test_many_texts_are_tokenised_as_each_by_itself() -> None:
    from transformers import AutoTokenizer

    from cluster.session import Session
    from learner.pretrained import prepare_model

    tokenizer = AutoTokenizer.from_pretrained(prepare_model("tiny-random"))
    session = Session(rollout=None, evaluators=None, learner=None, tokenizer=tokenizer)
    chats = [({"role": "user", "content": text},) for text in ("Write a kernel.", "x = '<|im_start|>'\n", "ä")]
    answers = ["## Code\n```python\nimport torch\n```\n", " leading", "<|im_end|>"]
    found = session.many_ids(chats, answers)
    assert found == [(session.chat_ids(chat), session.answer_ids(a)) for chat, a in zip(chats, answers, strict=True)]


def test_the_learning_rate_rises_and_falls_in_equal_steps() -> None:
    from cluster.stage_settings import SftSettings
    from cluster.stages import lr_share

    settings = SftSettings(warmup=2, final_lr=0.2)
    shares = [lr_share(settings, number, 7) for number in range(1, 8)]
    assert shares == pytest.approx([1 / 3, 2 / 3, 1.0, 0.8, 0.6, 0.4, 0.2])
    assert {lr_share(SftSettings(), number, 3) for number in (1, 2, 3)} == {1.0}
    assert lr_share(SftSettings(final_lr=0.1), 1, 1) == 1.0
