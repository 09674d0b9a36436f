"""The report of a run folder made with the real Archive: what it says, and that no run can hurt its reader."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from archive.store import Archive
from archive.types import Record
from cluster.charts import Series, interval_bar, line_chart, nice_ticks, stacked_bars
from cluster.config import Config
from cluster.errors import ConfigError
from cluster.listings import diff_lines, highlight_lines, visible
from cluster.report import render, summary_table, write_report
from cluster.report_data import best_by_task, best_record, load_run, number, total_share
from judge.types import Baselines, Status, Verdict
from warpsmith import WarpsmithError

PLAIN = '''import torch
import warpsmith

SOURCE = r"""
extern "C" void gelu(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) {
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
  }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.gelu(x, y, x.numel())
        return y
'''
GOOD = PLAIN.replace("  for (long i", "  #pragma omp simd\n  for (long i").replace("float v", "const float v")


def a_verdict(status: Status, speedup: float | None = None, **changes: Any) -> Verdict:
    """A verdict with what the judge fills in for that status."""
    measured: dict[str, Any] = {}
    if speedup is not None:
        measured = {
            "speedup": speedup,
            "speedup_low": speedup * 0.96,
            "speedup_high": speedup * 1.05,
            "candidate_ms": 4.2 / speedup,
            "baselines": Baselines(eager=4.2),
            "best_baseline": "eager",
        }
    always = {"sandbox": ("landlock", "seccomp", "netns"), "hardware": {"cpu": "Xeon", "cores": "2"}}
    return Verdict(status=status, **(always | measured | changes))


def an_expert(task: str, quality: str, status: Status, speedup: float | None = None) -> Record:
    return Record(
        record_id=f"expert-{task}-{quality}",
        run_id="run",
        task_name=task,
        task_id=f"id-{task}",
        source="expert",
        operator="expert",
        code=GOOD if quality == "good" else PLAIN,
        analysis="One pass over memory instead of five.",
        verdict=a_verdict(status, speedup),
    )


def by_policy(task: str, step: int, index: int, status: Status, speedup: float | None = None, **changes: Any) -> Record:
    # As the judge has it: a kernel that does not compile fails while it is loaded.
    phases = {"compile": 0.4, "load": 0.1} | ({} if status is Status.COMPILE_ERROR else {"verify": 0.5})
    verdict = changes.pop("verdict", None) or a_verdict(status, speedup, phase_seconds=phases)
    fields: dict[str, Any] = {
        "record_id": f"policy-{task}-{step}-{index}",
        "run_id": "run",
        "task_name": task,
        "task_id": f"id-{task}",
        "source": "policy",
        "operator": "contrast",
        "code": PLAIN.replace("float v", f"const float v{index}"),
        "parents": (f"expert-{task}-plain",),
        "step": step,
        "policy_version": step + 2,
        "verdict": verdict,
    }
    return Record(**(fields | changes))


def realistic_records() -> list[Record]:
    """Four tasks with expert kernels, three steps of 16 completions of a weak policy."""
    records = []
    for task, good, plain in (
        ("gelu", 3.1, 1.4),
        ("row_softmax", 1.8, None),
        ("layer_norm", 2.2, 1.02),
        ("rope", 1.1, None),
    ):
        records.append(an_expert(task, "good", Status.WIN, good))
        records.append(an_expert(task, "plain", Status.WIN if plain else Status.CORRECT, plain or 1.0))
    unparsed = a_verdict(Status.COMPILE_ERROR, flags=("unparsed",), message="no code block")
    for step in (1, 2, 3):
        for task in ("gelu", "row_softmax", "layer_norm", "rope"):
            records.append(by_policy(task, step, 0, Status.COMPILE_ERROR, verdict=unparsed, code=""))
            records.append(by_policy(task, step, 1, Status.COMPILE_ERROR))
            records.append(by_policy(task, step, 2, Status.RUNTIME_ERROR if step < 3 else Status.INCORRECT))
            records.append(by_policy(task, step, 3, Status.COMPILE_ERROR))
    records.append(by_policy("rope", 3, 4, Status.WIN, 1.31))
    copied = a_verdict(Status.WIN, 1.8, flags=("copy",))
    records.append(by_policy("row_softmax", 2, 5, Status.WIN, verdict=copied, code=GOOD))
    return records


def realistic_lines() -> list[dict[str, Any]]:
    """Three supervised updates and three contrastive steps, as the driver writes them."""
    lines: list[dict[str, Any]] = []
    for update in (1, 2, 3):
        lines.append(
            {
                "step": update,
                "stage": "sft",
                "policy_version": update,
                "learner": {"loss": 2.4 - 0.4 * update, "grad_norm": 3.0},
                "probe_logprob_before": -2.4 + 0.2 * (update - 1),
                "probe_logprob_after": -2.4 + 0.2 * update,
                "probe_engine_after": -2.39 + 0.2 * update,
                "probe_difference": 0.03,
                "seconds": {"learn": 21.0, "sync": 1.1, "save": 0.8},
                "warnings": [],
                "time": datetime(2026, 1, 2, 3, update, tzinfo=UTC).isoformat(),
            }
        )
    for step in (1, 2, 3):
        lines.append(
            {
                "step": step,
                "stage": "contrastive",
                "policy_version": 3 + step,
                "reward_mean": 0.02 * step,
                "groups": {f"s-{n}": {"mean": 0.02 * step, "min": 0.0, "max": 0.05 * step + 0.1 * n} for n in range(4)},
                "speedup_best": {"rope": 1.31} if step == 3 else {},
                "statuses": {"unparsed": 4, "compile_error": 8, "runtime_error": 4, "win": step - 1},
                "learner": {"loss": 0.01, "kl": 0.002, "mismatch_mean": 0.04, "mismatch_max": 0.3, "grad_norm": 0.9},
                "probe_logprob_before": -1.8 + 0.01 * (step - 1),
                "probe_logprob_after": -1.8 + 0.01 * step,
                "probe_engine_after": -1.79 + 0.01 * step,
                "probe_difference": 0.03,
                "tokens": {"prompt": 16000, "completion": 6200},
                "seconds": {"rollout": 42.0, "judge": 31.0, "learn": 28.0, "sync": 1.2, "save": 0.9},
                "warnings": ["evaluator 1 was lost and replaced; 3 candidates judged again"] if step == 2 else [],
                "time": datetime(2026, 1, 2, 3, 10 + step, tzinfo=UTC).isoformat(),
            }
        )
    return lines


def write_run(folder: Path, records: list[Record], lines: list[dict[str, Any]], *, finished: bool = True) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(Config().model_dump_json())
    (folder / "state.json").write_text(json.dumps({"finished": finished}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    archive = Archive(str(folder / "archive.db"))
    archive.add_many(records)
    archive.close()
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "cpu", realistic_records(), realistic_lines())


class Page(HTMLParser):
    """Tags, attributes and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.hidden = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.hidden += tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag == "style"

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


def assert_inert(page: Page) -> None:
    """Nothing on the page runs or is fetched."""
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "a", "base", "image", "use"} & set(
        page.tags
    )
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")]
    assert not [value for name, value in page.attributes if name == "style" and "url(" in value]


def test_report_is_one_page_that_fetches_and_runs_nothing(run_folder: Path) -> None:
    path = write_report(run_folder)
    assert path == run_folder / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert_inert(page)
    assert "url(" not in text
    assert "@import" not in text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert page.tags.count("html") == 1


def test_report_tells_the_policys_own_share_as_counted_by_hand(run_folder: Path) -> None:
    # 3 steps of 16 completions, of which 12 hold a candidate and 4 run or are incorrect; one win and one copy more.
    sentence = (
        "The policy wrote 1 of the 4 best kernels. Of its 50 completions 38 held a candidate, 14 compiled and loaded, "
        "2 were correct, 1 of them a copy of an earlier kernel, and 1 won."
    )
    assert sentence in page_of(run_folder).text
    assert sentence in " ".join(summary_table(run_folder).split())


def test_report_names_every_fact_of_the_run(run_folder: Path) -> None:
    text = page_of(run_folder).text
    for expected in (
        "smollm2-135m-instruct",
        "Finished: 3 contrastive steps.",
        "3.10× 2.98 to 3.26",
        "policy, step 3",
        "cpu: Xeon",
        "landlock",
        "evaluator 1 was lost and replaced; 3 candidates judged again",
        "6 of 6 updates changed what the policy says of the probe text",
        "from -2.4000 to -1.7700, and the policy is at version 6",
        "0:06:18",
        "win_threshold",
        "Changes from a kernel by an expert (win 1.40×)",
        "#pragma omp simd",
    ):
        assert expected in text, expected
    assert page_of(run_folder).tags.count("figcaption") == 5


def test_updates_that_change_nothing_are_told(tmp_path: Path) -> None:
    lines = realistic_lines()
    for line in lines[3:]:
        line["probe_logprob_after"] = line["probe_logprob_before"]
    assert "3 of 6 updates changed" in page_of(write_run(tmp_path / "run", realistic_records(), lines)).text


def test_a_policy_without_a_win_is_told_plainly(tmp_path: Path) -> None:
    records = [record for record in realistic_records() if record.source == "expert" or not record.verdict.is_correct]
    folder = write_run(tmp_path / "run", records, realistic_lines())
    assert "The policy wrote 0 of the 4 best kernels." in page_of(folder).text


def test_copies_earn_no_credit() -> None:
    records = realistic_records()
    share = total_share(records)
    assert (share.correct, share.copies, share.wins) == (2, 1, 1)
    bests = {best.task_name: best for best in best_by_task(records)}
    assert bests["row_softmax"].best is not None
    assert bests["row_softmax"].best.source == "expert"
    assert bests["row_softmax"].policy_best is None


@pytest.mark.parametrize(
    ("status", "phases", "compiled"),
    [
        (Status.COMPILE_ERROR, {"compile": 0.1, "load": 0.1}, 0),
        (Status.COMPILE_ERROR, {"compile": 0.1, "load": 0.1, "verify": 0.1}, 0),
        (Status.RUNTIME_ERROR, {"load": 0.1}, 0),
        (Status.RUNTIME_ERROR, {"load": 0.1, "verify": 0.1}, 1),
        (Status.TIMEOUT, {"compile": 30.0}, 0),
        (Status.REJECTED, {"load": 0.1, "verify": 0.1, "time": 1.0}, 1),
        (Status.INCORRECT, {}, 1),
    ],
)
def test_compiled_means_that_the_judge_came_to_verify_it(
    status: Status, phases: dict[str, float], compiled: int
) -> None:
    record = by_policy("t", 1, 0, status, verdict=a_verdict(status, phase_seconds=phases))
    assert total_share([record]).compiled == compiled


def test_best_prefers_a_win_to_a_faster_kernel_that_is_only_correct() -> None:
    win, unsure = an_expert("t", "good", Status.WIN, 1.2), an_expert("t", "plain", Status.CORRECT, 1.9)
    assert best_record([unsure, win]) == win
    assert best_record([unsure]) == unsure
    assert best_record([by_policy("t", 1, 0, Status.INCORRECT)]) is None


def test_best_agrees_with_the_archive(run_folder: Path) -> None:
    archive = Archive(str(run_folder / "archive.db"))
    bests = best_by_task(archive.records())
    expected = [archive.best(best.task_id) for best in bests]
    archive.close()
    assert [best.best and best.best.verdict.speedup for best in bests] == [
        record and record.verdict.speedup for record in expected
    ]


HOSTILE = "</title></style></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7*7 }}{% raw %}"


def test_hostile_text_anywhere_in_a_run_stays_text(tmp_path: Path) -> None:
    verdict = a_verdict(
        Status.WIN, 2.0, flags=(HOSTILE,), message=HOSTILE, sandbox=(HOSTILE,), hardware={HOSTILE: HOSTILE}
    )
    record = by_policy(
        HOSTILE,
        1,
        0,
        Status.WIN,
        verdict=verdict,
        code=f'# {HOSTILE}\nSOURCE = r"""extern "C" {HOSTILE}"""\n{HOSTILE}\x00\x1b',
        analysis=HOSTILE,
        completion=HOSTILE,
        source="policy",
    )
    other = an_expert(HOSTILE, "plain", Status.CORRECT, 1.0).model_copy(update={"source": HOSTILE, "code": HOSTILE})
    line = {
        "step": 1,
        "stage": "contrastive",
        "policy_version": HOSTILE,
        "reward_mean": 1.0,
        "groups": {HOSTILE: {"min": 0, "max": HOSTILE}},
        "statuses": {HOSTILE: 3},
        "seconds": {HOSTILE: 3.0},
        "warnings": [HOSTILE],
        "time": HOSTILE,
    }
    sft = {"step": HOSTILE, "stage": "sft", "seconds": {"learn": 1}}
    folder = write_run(tmp_path / "run", [other, record], [line, sft])
    config = json.loads(Config().model_dump_json())
    config["run"]["name"] = config["model"]["path"] = HOSTILE
    config["judge"][HOSTILE] = HOSTILE
    (folder / "config.json").write_text(json.dumps(config))
    page = page_of(folder)
    assert_inert(page)
    assert page.text.count("{{ 7*7 }}") > 5
    assert "alert(1)" in page.text
    assert "</title>" in summary_table(folder)


def test_invisible_and_reordering_characters_are_spelled_out() -> None:
    assert visible("a\u202eb\u200bc\x00\ud800\td\r\n") == "a\\u202eb\\u200bc\\u0000\\ud800\td\n"


@pytest.mark.parametrize(
    "code", ["", "\n", "\x00", "\ud800", "a\rb", "'" * 3, 'r"""extern "C"', "x" * 100_000, "y\n" * 5000]
)
def test_any_candidate_text_is_listed_and_compared(code: str) -> None:
    assert highlight_lines(code)
    added = [line for line in diff_lines(PLAIN, code) if line.kind == "added"]
    assert len(added) <= 601
    assert all(len(line.html) < 20_000 for line in added)


def test_diff_gives_back_both_files() -> None:
    from html import unescape

    lines = diff_lines(PLAIN, GOOD, context=1000)

    def text(kinds: set[str]) -> list[str]:
        return [unescape(line.html.striptags()) for line in lines if line.kind in kinds]

    squeezed = [" ".join(line.split()) for line in PLAIN.strip("\n").split("\n")]
    assert text({"same", "removed"}) == squeezed
    assert text({"same", "added"}) == [" ".join(line.split()) for line in GOOD.strip("\n").split("\n")]
    assert diff_lines(PLAIN, PLAIN) == []


def test_kernel_strings_are_highlighted_as_cpp() -> None:
    html = "\n".join(highlight_lines(PLAIN))
    assert '<span class="kt">float</span>' in html
    assert '<span class="k">class</span>' in html


@pytest.mark.parametrize("missing", ["config.json", "state.json", "metrics.jsonl", "archive.db"])
def test_a_run_without_one_of_its_files_still_has_a_report(run_folder: Path, missing: str) -> None:
    (run_folder / missing).unlink()
    assert "warpsmith run cpu" in page_of(run_folder).text
    assert summary_table(run_folder)
    assert not (run_folder / missing).exists() or missing == "report.html"


def test_an_empty_folder_has_a_report_that_says_so(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert "Nothing has been measured yet." in page.text
    assert "No kernel has been judged yet." in page.text
    assert summary_table(tmp_path) == "no kernel has been judged yet"


def test_experts_alone_make_a_report_before_the_first_step(tmp_path: Path) -> None:
    experts = [record for record in realistic_records() if record.source == "expert"]
    folder = write_run(tmp_path / "run", experts, [], finished=False)
    text = page_of(folder).text
    assert "Not finished: 0 of 3 contrastive steps done." in text
    assert "The policy has written nothing yet." in text


def test_a_torn_last_line_is_counted_and_left_out(run_folder: Path) -> None:
    path = run_folder / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[-1][:57])
    data = load_run(run_folder)
    assert (len(data.lines), data.unreadable_lines) == (6, 1)
    assert "1 line(s) of metrics.jsonl could not be read" in page_of(run_folder).text


def test_a_step_done_again_after_a_kill_counts_once(run_folder: Path) -> None:
    path = run_folder / "metrics.jsonl"
    again = realistic_lines()[-1] | {"reward_mean": 0.9}
    path.write_text(path.read_text() + json.dumps(again) + "\n")
    data = load_run(run_folder)
    assert len(data.lines) == 6
    assert data.lines[-1]["reward_mean"] == 0.9


def test_values_that_are_not_finite_numbers_are_left_out(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = realistic_lines()
    lines[3] |= {"reward_mean": float("nan"), "seconds": {"learn": float("inf")}, "probe_logprob_after": "soon"}
    lines[4] |= {"groups": [1], "seconds": None, "learner": 3, "warnings": "none", "tokens": []}
    text = page_of(write_run(tmp_path / "run", realistic_records(), lines)).text
    assert "nan" not in text.split()
    assert "inf" not in text.split()
    assert [number(value) for value in (1, True, "1", None, float("nan"))] == [1.0, None, None, None, None]


def test_a_missing_run_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run folder") as caught:
        write_report(tmp_path / "nowhere")
    assert isinstance(caught.value, WarpsmithError)
    assert "\n" not in str(caught.value)


def test_a_report_is_replaced_whole(run_folder: Path) -> None:
    write_report(run_folder)
    write_report(run_folder)
    assert sorted(path.name for path in run_folder.glob("report*")) == ["report.html"]


def test_rendering_is_a_function_of_its_data(run_folder: Path) -> None:
    data, moment = load_run(run_folder), datetime(2026, 1, 2, tzinfo=UTC)
    assert render(data, rendered_at=moment) == render(data, rendered_at=moment)
    assert "2026-01-02 00:00 UTC" in render(data, rendered_at=moment)


def test_summary_table_says_task_speedup_interval_and_writer(run_folder: Path) -> None:
    table = summary_table(run_folder)
    rope = next(line for line in table.splitlines() if "rope" in line)
    assert "1.31×" in rope
    assert "1.26 to 1.38" in rope
    assert "policy, step 3" in rope
    assert max(len(line) for line in table.splitlines()[:-1]) <= 110


def test_summary_table_calls_nothing_verified_that_did_not_win(tmp_path: Path) -> None:
    records = [an_expert("gelu", "plain", Status.CORRECT, 1.3), by_policy("rope", 1, 0, Status.INCORRECT)]
    table = summary_table(write_run(tmp_path / "run", records, []))
    assert "none" in next(line for line in table.splitlines() if "gelu" in line)
    assert "1.3" not in table
    assert "nobody yet" in table


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-2.4, -1.77), (0, 103.1), (1e-6, 3e-6), (5, 5), (0, 0), (-1e9, 1e9)]
)
def test_ticks_cover_the_range_evenly(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low + 1e-9 * abs(low)
    assert ticks[-1] >= high - 1e-9 * abs(high)
    assert 2 <= len(ticks) <= 8
    gaps = [b - a for a, b in pairwise(ticks)]
    assert max(gaps) == pytest.approx(min(gaps))


def test_ticks_refuse_what_is_not_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        nice_ticks(0, float("inf"))


def test_bars_are_as_high_as_their_values() -> None:
    chart = stacked_bars("t", ["1", "2"], {"a": [1, 2], "b": [3, 0]}, {"a": "p1", "b": "p2"}, x_label="x", y_label="y")
    assert chart is not None
    heights = [float(part.split('"')[0]) for part in str(chart.svg).split('height="')[1:]]
    assert len(heights) == 3
    assert heights[1] == pytest.approx(3 * heights[0], rel=0.01)
    assert heights[2] == pytest.approx(2 * heights[0], rel=0.01)


def test_charts_without_values_are_not_drawn() -> None:
    assert line_chart("t", [Series(name="a", colour="p1", points=())], x_label="x", y_label="y") is None
    assert stacked_bars("t", [], {}, {}, x_label="x", y_label="y") is None
    assert stacked_bars("t", ["1"], {"a": [0.0]}, {"a": "p1"}, x_label="x", y_label="y") is None


def test_a_single_point_and_a_thousand_are_drawn() -> None:
    for count in (1, 1000):
        points = tuple((float(x), 0.5) for x in range(count))
        band = tuple((x, 0.0, 1.0) for x, _ in points)
        chart = line_chart("t", [Series(name="a", colour="p1", points=points, band=band)], x_label="x", y_label="y")
        assert chart is not None
        assert "nan" not in chart.svg
        assert chart.svg.count('text-anchor="middle"') <= 14
    assert "nan" not in interval_bar(0.0, 1.0, 5.0, 5.0)
