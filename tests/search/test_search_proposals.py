from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from archive.types import Record
from judge.types import Status, Verdict
from search.edits import parse_edit
from search.feedback import MAX_MESSAGE, shorten, summarise
from search.lineage import repair_depth, repairable
from search.operators import build_prompt
from search.proposals import OPERATORS, Neighbour, View, propose, similar
from search.settings import SearchSettings
from search.types import Prompt
from tasks.loader import suite_task

Make = Callable[..., Record]
TASK = suite_task("softmax")
WRONG = Verdict(status=Status.INCORRECT, message="output 0 differs at [3, 4]", max_error=2.0, tolerance=1e-5)


def ask(operator: str, view: View, *, seed: int = 0, **settings: object) -> Prompt | None:
    chosen = SearchSettings.model_validate({"max_prompt_tokens": 100_000, **settings})
    rng = np.random.default_rng(seed)
    return propose(operator, TASK, view, chosen, rng, prompt_id="p", count_tokens=len)


def text_of(prompt: Prompt | None) -> str:
    assert prompt is not None
    return prompt.messages[0]["content"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_keeps_the_order_of_the_skeleton(operator: str, make_record: Make) -> None:
    view = View(
        records=[make_record(1.2, "a"), make_record(2.0, "b"), make_record(0, "w", verdict=WRONG)],
        neighbours=[Neighbour(task=suite_task("masked_softmax"), record=make_record(3.0, "n"))],
    )
    prompt = ask(operator, view)
    assert prompt is not None
    assert prompt.operator == operator
    order = [
        "Task",
        "Reference code",
        "Previous implementations",
        "Feedback",
        "Protocol",
        "Requirements",
        "Restrictions",
    ]
    titles = [line[2:] for line in text_of(prompt).splitlines() if line.startswith("# ") and line[2:] in order]
    assert titles == [title for title in order if title in titles]
    assert {"Task", "Reference code", "Protocol", "Requirements", "Restrictions"} <= set(titles)


@pytest.mark.parametrize("operator", ["contrast", "repair", "edit", "crossover", "retrieve"])
def test_operators_with_nothing_to_work_on_say_so(operator: str) -> None:
    assert ask(operator, View(records=[])) is None


def test_repair_shows_the_failure_and_what_the_judge_said(make_record: Make) -> None:
    failed = make_record(0, "bad", verdict=WRONG)
    prompt = ask("repair", View(records=[make_record(2.0), failed]))
    assert prompt is not None
    assert prompt.exemplar_ids == ("bad",)
    text = text_of(prompt)
    assert "differs at [3, 4]" in text
    assert "largest error 2, 1e-05 allowed" in text
    assert "'bad'" in text


def chain(make_record: Make, length: int, operator: str = "repair") -> list[Record]:
    """A failed translation and `length` failed repairs of it, one after the other."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    records = [make_record(0, "f0", verdict=WRONG, operator="translate", created_at=began)]
    for number in range(1, length + 1):
        records.append(
            make_record(
                0,
                f"f{number}",
                verdict=WRONG,
                operator=operator,
                parents=(f"f{number - 1}",),
                created_at=began + timedelta(minutes=number),
            )
        )
    return records


def test_after_three_repairs_a_line_is_given_up(make_record: Make) -> None:
    for length, expected in [(0, ["f0"]), (1, ["f1"]), (2, ["f2"]), (3, [])]:
        records = chain(make_record, length)
        assert [record.record_id for record in repairable(records, 3)] == expected
        assert (ask("repair", View(records=records)) is None) == (not expected)


def test_a_failure_that_was_mended_is_not_mended_again(make_record: Make) -> None:
    mended = make_record(1.5, "ok", operator="repair", parents=("f0",))
    assert repairable([*chain(make_record, 0), mended], 3) == []


def test_depth_counts_repairs_only_and_survives_a_circle(make_record: Make) -> None:
    records = chain(make_record, 2)
    assert repair_depth(records[2], {r.record_id: r for r in records}) == 2
    odd = make_record(0, "x", operator="repair", parents=("x",))
    assert repair_depth(odd, {"x": odd}) == 1


def test_an_edit_prompt_carries_the_text_that_its_answer_changes(make_record: Make) -> None:
    parent = make_record(2.0, "p", code="import torch\n\n\n\nclass ModelNew:\n    block = 64\n")
    prompt = ask("edit", View(records=[parent]))
    assert prompt is not None
    assert prompt.edits in text_of(prompt)
    answer = "<<<<<<< SEARCH\n    block = 64\n=======\n    block = 32\n>>>>>>> REPLACE"
    parsed = parse_edit(answer, prompt.edits)
    assert parsed.candidate is not None
    assert "block = 32" in parsed.candidate.code
    assert "One ```python block" not in text_of(prompt)


def test_edits_prefer_fast_parents_as_the_softmax_says(make_record: Make) -> None:
    records = [make_record(1.0, "slow"), make_record(2.0, "fast")]
    drawn = [ask("edit", View(records=records), seed=seed, bucket_temperature=1.0) for seed in range(400)]
    share = sum(prompt is not None and prompt.exemplar_ids == ("fast",) for prompt in drawn) / 400
    assert share == pytest.approx(np.e / (1 + np.e), abs=0.07)  # 0.731; three standard errors are 0.067


def test_crossover_shows_at_most_five_from_slow_to_fast_the_best_last(make_record: Make) -> None:
    records = [make_record(speed, f"r{speed}") for speed in (1.4, 1.1, 1.9, 1.2, 1.7, 1.3)]
    prompt = ask("crossover", View(records=records))
    assert prompt is not None
    assert prompt.exemplar_ids == ("r1.2", "r1.3", "r1.4", "r1.7", "r1.9")
    assert "Speed: 1.90x" in text_of(prompt)


def test_crossover_keeps_the_best_of_another_kind_though_it_is_slow(make_record: Make) -> None:
    other = make_record(1.0, "odd", code='class ModelNew: pass\nS = """#pragma omp parallel for\n#pragma omp simd"""\n')
    alike = [make_record(speed, f"r{speed}") for speed in (1.4, 1.5, 1.6)]
    prompt = ask("crossover", View(records=[other, *alike]), crossover_parents=2)
    assert prompt is not None
    assert prompt.exemplar_ids == ("odd", "r1.6")


def test_crossover_drops_the_slowest_when_there_is_no_room_and_never_shows_one_alone(make_record: Make) -> None:
    records = [make_record(speed, f"r{speed}") for speed in (1.1, 1.2, 1.3)]
    three = len(text_of(ask("crossover", View(records=records))))
    prompt = ask("crossover", View(records=records), max_prompt_tokens=three - 1)
    assert prompt is not None
    assert prompt.exemplar_ids == ("r1.2", "r1.3")
    assert ask("crossover", View(records=records), max_prompt_tokens=len(text_of(prompt)) - 1) is None


def test_retrieve_shows_the_most_similar_tasks_kernel_last(make_record: Make) -> None:
    neighbours = [
        Neighbour(task=suite_task("masked_softmax"), record=make_record(1.5, "near")),
        Neighbour(task=suite_task("masked_softmax"), record=make_record(1.2, "near-slow")),
        Neighbour(task=suite_task("mlp_decode"), record=make_record(9.0, "far")),
        Neighbour(task=TASK, record=make_record(5.0, "own")),
    ]
    assert [one.record.record_id for one in similar(TASK, neighbours)] == ["near", "far"]
    prompt = ask("retrieve", View(records=[], neighbours=neighbours), exemplars=2)
    assert prompt is not None
    assert prompt.exemplar_ids == ("far", "near")
    assert "For the task masked_softmax: speedup 1.50x" in text_of(prompt)


def test_translate_shows_the_functional_form_once_there_is_one(make_record: Make) -> None:
    form = make_record(1.0, "form", operator="functional")
    assert ask("functional", View(records=[form])) is None
    prompt = ask("translate", View(records=[make_record(3.0), form]))
    assert prompt is not None
    assert prompt.exemplar_ids == ("form",)


def test_feedback_stops_at_the_gate_that_failed() -> None:
    compile_error = summarise(Verdict(status=Status.COMPILE_ERROR, message="line 3: expected ;"))
    assert "Compile: FAILED: line 3: expected ;" in compile_error
    assert compile_error.count("not reached") == 2
    wrong = summarise(WRONG)
    assert "Compile: passed" in wrong
    assert "Function: FAILED (incorrect)" in wrong
    right = summarise(
        Verdict(
            status=Status.WIN, speedup=2.0, speedup_low=1.8, speedup_high=2.2, candidate_ms=0.5, best_baseline="eager"
        )
    )
    assert "Speed: 2.00x (99% interval 1.80 to 2.20); the kernel 0.5 ms" in right


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    text = shorten("begin " + "x" * 5000 + " end")
    assert len(text) <= MAX_MESSAGE + 10
    assert text.startswith("begin")
    assert text.endswith("end")


def test_training_prompts_are_drawn_by_what_operators_have_earned(make_record: Make) -> None:
    """One switch, search.operator = "evolve", and build_prompt is a bandit over operators on the same archive."""
    settings = SearchSettings(operator="evolve", max_prompt_tokens=100_000)
    earned = {"contrast": 0.0, "translate": 0.0, "repair": 0.0, "crossover": 0.0, "fuse": 64.0}
    records = [make_record(1.0, "e1", source="expert"), make_record(1.1, "e2", source="expert")]
    for number in range(1, 31):
        for operator, speed in earned.items():
            verdict = Verdict(status=Status.WIN, speedup=speed * 4**number) if speed else WRONG
            changes = {"operator": operator, "step": number, "group_id": f"{operator}{number}", "verdict": verdict}
            records.append(make_record(0, f"{operator}{number}", **changes))

    def ask_step(seed: int, order: list[Record]) -> Prompt:
        rng = np.random.default_rng(seed)
        return build_prompt(TASK, order, settings, rng, prompt_id=f"s{seed}", count_tokens=len)

    drawn = [ask_step(seed, records) for seed in range(40)]
    assert sum(prompt.operator == "fuse" for prompt in drawn) > 35
    assert not any(prompt.edits for prompt in drawn)
    assert ask_step(3, records[::-1]) == drawn[3]  # the order in which verdicts arrived does not matter


def test_evolving_with_an_empty_archive_translates(make_record: Make) -> None:
    settings = SearchSettings(operator="evolve", max_prompt_tokens=100_000)
    prompt = build_prompt(TASK, [], settings, np.random.default_rng(0), prompt_id="p", count_tokens=len)
    assert prompt.operator in ("translate", "fuse")
