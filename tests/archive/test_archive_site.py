import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archive.errors import ArchiveError
from archive.site import build
from archive.site.build import build_site
from archive.site.chunks import fnv1a, script_json
from archive.site.explain import HIGH, MARKS, OTHER_REJECTION, explain_rejection, suspicions
from archive.site.projection import project
from archive.store import Archive
from archive.types import ArchivedTask, Record
from judge import hacks
from judge.static_rules import LIBRARY_CALL, NO_CUSTOM_KERNEL, UNREADABLE
from judge.types import Status, Verdict

Make = Callable[..., Record]
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}\u2028\u202e\0"


def read(folder: Path, name: str) -> Any:
    """What the page's script gets from a chunk."""
    text = (folder / "data" / f"{name}.js").read_text(encoding="utf-8")
    match = re.fullmatch(r'W\("([^"]+)",(.*)\);\n', text, re.S)
    assert match is not None and match[1] == name
    return json.loads(match[2])


@pytest.fixture
def site(archive: Archive, tmp_path: Path, make_record: Make) -> Path:
    task = ArchivedTask(task_id="op-id", name="op", level=2, source=f"# {HOSTILE}", shapes={"default": {"N": 3}})
    archive.add_tasks([task])
    archive.add_many(
        [
            make_record(2.0, 1.5, record_id="a", code="int shared_word; int only_a;"),
            make_record(3.0, 1.2, record_id="b", parents=["a"], code="int shared_word; int only_b;"),
            make_record(
                record_id="c",
                parents=["a", "b"],
                source=HOSTILE,
                task_name=HOSTILE,
                task_id="other",
                verdict=Verdict(status=Status.REJECTED, message="two measurements disagree: 9x, then 1x"),
            ),
            make_record(record_id="d", verdict=Verdict(status=Status.CORRECT, speedup=0.5, flags=("touches clocks",))),
        ]
    )
    build_site(archive, tmp_path / "site", title=HOSTILE)
    return tmp_path / "site"


@pytest.mark.parametrize("text", [HOSTILE, "<!--<script>", "\ud800", "]]>", "\x7f\x00"])
def test_no_text_can_leave_a_script(text: str) -> None:
    safe = script_json({"k": text, text: [float("nan"), float("inf"), 1.5]})
    assert not set(safe) & set("<>&\u2028\u2029")
    loaded = json.loads(safe)
    assert loaded["k"] == text
    assert loaded[text] == [None, None, 1.5]
    safe.encode()


def test_hashes_are_those_of_the_definition() -> None:
    # Test vectors of the FNV reference.
    assert fnv1a("") == 0x811C9DC5
    assert fnv1a("a") == 0xE40C292C
    assert fnv1a("foobar") == 0xBF9CF968


def test_lists_are_ranked_wins_first_by_their_lower_end(site: Path) -> None:
    meta = read(site, "meta")
    rows = read(site, "index-0")
    assert [row[0] for row in rows] == ["a", "b", "d", "c"]
    assert [meta["statuses"][row[2]] for row in rows] == ["win", "win", "correct", "rejected"]
    assert rows[0][3:6] == [2.0, 1.5, None]
    (op, other) = meta["tasks"]
    assert (op["name"], op["kernels"], op["level"], op["shapes"]) == ("op", 3, 2, {"default": {"N": 3}})
    assert op["best"][0] == "a"
    assert (other["name"], other["best"]) == (HOSTILE, None)


def test_each_kernel_is_in_the_chunk_that_its_hash_names(site: Path) -> None:
    buckets = read(site, "meta")["kernelChunks"]
    for record_id, children in {"a": ["b", "c"], "b": ["c"], "c": [], "d": []}.items():
        kernel = read(site, f"kernels-{fnv1a(record_id) % buckets}")[record_id]
        assert kernel["children"] == children
    assert kernel["marks"] == [["touches clocks", MARKS["touches clocks"]]]


def test_words_lead_to_kernels(site: Path) -> None:
    order = [row[0] for row in read(site, "index-0")]
    shards = read(site, "meta")["wordShards"]

    def found(word: str) -> list[str]:
        steps = read(site, f"words-{fnv1a(word) % shards}").get(word, [])
        return [order[place] for place in np.cumsum(steps, dtype=int)]

    assert found("only_a") == ["a"]
    assert found("only_b") == ["b"]
    assert found("shared_word") == ["a", "b"]
    assert found("nowhere") == []


def test_galleries_hold_what_they_explain(site: Path) -> None:
    (suspicious,) = read(site, "suspicious")
    assert (suspicious["name"], suspicious["count"]) == ("touches clocks", 1)
    (rejected,) = read(site, "rejected")
    assert rejected["name"] == "Measurements that disagree"
    assert rejected["kernels"][0][0][0] == "c"


def test_what_a_record_says_is_never_markup_in_a_page(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text()
        assert "<img" not in text
        assert "onerror=alert(1)>" not in text
        assert "49" not in re.sub(r"\d{4,}", "", text.split("<main")[0]), "a title is no template"
        assert "default-src 'none'" in text
        assert not re.search(r"https?://", text), "nothing is loaded from elsewhere"
        assert not re.search(r"<script(?! src=)", text), "no script in the page"
    scripts = "".join(path.read_text() for path in site.glob("*.js"))
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "Function("):
        assert unsafe not in scripts


def test_data_of_many_kernels_is_cut_into_chunks(
    archive: Archive, tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "INDEX_CHUNK", 100)
    monkeypatch.setattr(build, "TASK_CHUNK", 150)
    archive.add_many(make_record(1.0 + i / 1000, 1.0, record_id=f"r{i}", code=f"int x{i};") for i in range(350))
    built = build_site(archive, tmp_path / "site")
    assert (built.kernels, built.tasks) == (350, 1)
    meta = read(tmp_path / "site", "meta")
    rows = [row for chunk in range(4) for row in read(tmp_path / "site", f"index-{chunk}")]
    assert sorted(row[0] for row in rows) == sorted(f"r{i}" for i in range(350))
    parts = [read(tmp_path / "site", f"task-0-{part}") for part in range(meta["tasks"][0]["parts"])]
    assert [len(part) for part in parts] == [150, 150, 50]
    assert [row[0] for part in parts for row, _, _ in part] == [f"r{i}" for i in range(350)]
    chunks = [read(tmp_path / "site", f"kernels-{n}") for n in range(meta["kernelChunks"])]
    assert sum(map(len, chunks)) == 350


def test_an_empty_archive_makes_a_site_too(archive: Archive, tmp_path: Path) -> None:
    assert build_site(archive, tmp_path / "site").kernels == 0
    assert read(tmp_path / "site", "meta")["tasks"] == []


def test_an_earlier_site_is_replaced_and_nothing_else_is(archive: Archive, tmp_path: Path, make_record: Make) -> None:
    out = tmp_path / "site"
    build_site(archive, out)
    (out / "data" / "old.js").write_text("")
    archive.add(make_record(1.0))
    assert build_site(archive, out).kernels == 1
    assert not (out / "data" / "old.js").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("x")
    (tmp_path / "file").write_text("x")
    for foreign, words in ((tmp_path / "mine", "no earlier site"), (tmp_path / "file", "is a file")):
        with pytest.raises(ArchiveError, match=words) as caught:
            build_site(archive, foreign)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "mine" / "letter").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_every_mark_of_the_judge_is_explained() -> None:
    marks = {rule.mark for rule in hacks.rules()} | {NO_CUSTOM_KERNEL, LIBRARY_CALL, UNREADABLE}
    assert marks <= set(MARKS)


def test_rejections_are_explained_by_what_the_judge_says() -> None:
    assert explain_rejection("12.0 us a call is faster than its bytes can move (4 bytes)")[0] == "Faster than light"
    assert explain_rejection("it wrote to the judge's wire: x")[0] == "Forged messages"
    assert explain_rejection("something new") == OTHER_REJECTION


def test_only_what_deserves_a_look_is_suspicious() -> None:
    assert suspicions(Verdict(status=Status.WIN, speedup=2.0)) == []
    assert suspicions(Verdict(status=Status.WIN, speedup=20.0)) == [HIGH]
    assert suspicions(Verdict(status=Status.INCORRECT, flags=("copy", "hides text"))) == ["hides text"]
    assert suspicions(Verdict(status=Status.REJECTED, flags=("hides text",))) == []


def test_a_map_keeps_the_largest_differences() -> None:
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.standard_normal((20, 2)))[0].T
    truth = rng.uniform(-1, 1, (50, 2)) * [3.0, 1.0]
    points = np.array(project((truth @ plane).astype(np.float32)))
    for axis in range(2):
        correlation = np.corrcoef(points[:, axis], truth[:, axis])[0, 1]
        assert abs(correlation) > 0.97
    assert np.abs(points).max(axis=0) == pytest.approx([1.0, 1.0])
    assert project(np.ones((5, 8), np.float32)) == [[0.0, 0.0]] * 5
    assert project(np.ones((0, 8), np.float32)) == []
