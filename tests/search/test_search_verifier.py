import math

import pytest

from search.verifier import read_opinion, score_opinions, verifier_prompt, wilson_low
from tasks.loader import suite_task


@pytest.mark.parametrize(
    ("text", "opinion"),
    [
        ("Fine.\nVERDICT: yes", True),
        ("**Verdict: No.**", False),
        ("VERDICT: yes ... on reflection VERDICT: no", False),
        ("I cannot tell.", None),
    ],
)
def test_the_last_verdict_counts(text: str, opinion: bool | None) -> None:
    assert read_opinion(text) is opinion


def test_precision_and_recall_by_hand() -> None:
    labelled = [(True, True)] * 6 + [(True, False)] * 2 + [(False, True)] * 3 + [(None, True)] + [(False, False)] * 4
    score = score_opinions(labelled)
    assert score.precision == 6 / 8
    assert score.recall == 6 / 10
    assert (score.count, score.silent) == (16, 1)
    assert score.precision_low < score.precision


def test_wilson_interval_agrees_with_scipy() -> None:
    from scipy.stats import binomtest

    expected = binomtest(6, 8).proportion_ci(0.95, method="wilson").low
    assert wilson_low(6, 8) == pytest.approx(expected, abs=1e-4)


def test_nothing_called_right_is_no_precision() -> None:
    assert math.isnan(score_opinions([(False, True)]).precision)
    assert wilson_low(0, 0) == 0


def test_the_question_shows_both_codes_and_no_held_out_shape() -> None:
    text = verifier_prompt(suite_task("softmax"), "class ModelNew: pass", prompt_id="p", model="m").messages[0][
        "content"
    ]
    assert "class ModelNew: pass" in text
    assert "HELD_OUT" not in text
