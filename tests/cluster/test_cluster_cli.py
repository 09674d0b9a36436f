"""The command line from outside: exit codes, one line for each error, nothing but JSON where JSON is promised."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from cluster.arguments import split_config
from cluster.cli import run
from cluster.commands_data import toml_lines
from cluster.config import Config, load_config
from warpsmith import __version__

WARPSMITH = Path(sys.executable).with_name("warpsmith")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "fused_gelu"
QUICK = ["--set", "judge.pairs=3", "--set", "judge.calls=4"]


def call(*arguments: object, cwd: Path = ROOT, seconds: float = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WARPSMITH, *map(str, arguments)], capture_output=True, text=True, timeout=seconds, cwd=cwd, check=False
    )


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of an error of use: nothing on stdout, exit code 2."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("warpsmith: ")
    return line


def test_version() -> None:
    done = call("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"warpsmith {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["judge"], "Missing argument 'TASK'"),
        (["judge", "softmax", "x.py", "--loud"], "No such option: --loud"),
        (["tasks"], "Missing command"),
        (["judge", "softmax", "no/such.py"], "no/such.py: no such file"),
        (["judge", "softmaxx", EXAMPLE / "fast.py"], "did you mean 'softmax'?"),
        (["judge", "softmax", EXAMPLE / "fast.py", "--set", "judge.pair=3"], "did you mean judge.pairs?"),
        (["judge", "softmax", EXAMPLE / "fast.py", "--set", "judge.pairs"], "write section.key=value"),
        (["train", "no/such.toml"], "no/such.toml: no such configuration file"),
        (["train", "learner.lr=fast"], "learner.lr"),
        (["config", "check", "configs/cpu.toml", "learner.rate=1"], "unknown key learner.rate"),
        (["report", "no-such-run"], "no-such-run: no such run"),
        (["report", "docs"], "not the folder of a run"),
        (["archive", "stats", "--archive", "no-such-run"], "no-such-run: no such run"),
        (["train", "--rollout-only", "--replay", "x"], "exclude each other"),
        (["train", "--learn-only", "no-such-run"], "no-such-run: cannot be read"),
        (["train", "run.max_staleness=1"], "learner.keep_versions (2) is below run.max_staleness + 2 (3)"),
        (["rollout", "show", "no-such-run", "1"], "no-such-run: no such run"),
        (["submit", "configs/cpu.toml", "--address", "127.0.0.1:1"], "not a dashboard's address"),
        (["submit", "configs/cpu.toml", "--working-dir", "no-such-folder"], "no such folder"),
        (["serve", "--port", "0"], "greater than or equal to 1"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else "",
)
def test_an_error_of_use_is_one_line_and_exit_code_2(arguments: list[object], words: str) -> None:
    assert words in error_line(call(*arguments))


def test_api_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    where = f"run.folder={tmp_path}"
    made = call("keys", "create", "laptop", where, "--scope", "judge", "--per-minute", "7")
    secret = made.stdout.strip()
    assert re.fullmatch(r"wsk_[A-Za-z0-9_-]{43}", secret)
    listed = call("keys", "list", where).stdout
    assert "judge  7/min, 32 at a time  laptop" in listed
    assert secret not in listed
    assert call("keys", "revoke", listed.split()[0], where).returncode == 0
    assert "revoked" in call("keys", "list", where).stdout
    assert "unknown scope all" in error_line(call("keys", "create", "me", where, "--scope", "all"))
    assert "no such key" in error_line(call("keys", "revoke", "1234", where))
    asked = call("serve", "--host", "0.0.0.0", where)
    assert "warpsmith keys create NAME" in error_line(asked)


def test_a_candidate_that_is_not_text_is_an_error_of_use(tmp_path: Path) -> None:
    candidate = tmp_path / "kernel.py"
    candidate.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8 text" in error_line(call("judge", "softmax", candidate, "--json"))


def test_a_task_that_cannot_be_used_is_an_error_of_use(tmp_path: Path) -> None:
    task = tmp_path / "task.py"
    task.write_text("import torch\n")
    assert "no Model at top level" in error_line(call("judge", task, EXAMPLE / "fast.py", "--json"))


def test_an_unforeseen_error_is_one_line_that_says_where_its_traceback_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def explode(path: object, overrides: object) -> Config:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("cluster.config.load_config", explode)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert run(["config", "check"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    found = re.fullmatch(r"warpsmith: unexpected ZeroDivisionError: two lines \(traceback in (\S+); .*\)", line)
    assert found
    assert "in explode" in Path(found[1]).read_text()


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(
        f"{WARPSMITH} config show | head -n 1", shell=True, capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_config_show_is_toml_that_means_the_same() -> None:
    done = call("config", "show", "configs/cpu.toml", "learner.lr=3e-5")
    shown = tomllib.loads(done.stdout)
    assert Config.model_validate(shown) == load_config(ROOT / "configs/cpu.toml", ["learner.lr=3e-5"])


def test_config_show_json_is_what_lies_beside_a_run() -> None:
    assert json.loads(call("config", "show", "--json").stdout) == load_config().model_dump(mode="json")


def test_unset_keys_are_comments() -> None:
    lines = list(toml_lines({"a": {"b": None, "c": [1, "x"], "d": {}}, "e": True}))
    assert lines == ["# a.b is not set", 'a.c = [1, "x"]', "a.d = {}", "e = true"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (None, [])),
        (["configs/cpu.toml"], ("configs/cpu.toml", [])),
        (["run.steps=2"], (None, ["run.steps=2"])),
        (["x.toml", "run.steps=2"], ("x.toml", ["run.steps=2"])),
    ],
)
def test_the_configuration_file_may_be_left_out(arguments: list[str], expected: tuple[str | None, list[str]]) -> None:
    assert split_config(arguments) == expected


def test_tasks_are_listed_and_shown() -> None:
    listed = call("tasks", "list")
    assert listed.returncode == 0
    assert "softmax" in listed.stdout
    shown = call("tasks", "show", EXAMPLE)
    assert shown.returncode == 0
    assert (EXAMPLE / "task.py").read_text() in shown.stdout


def test_a_candidate_that_is_not_python_is_a_verdict(tmp_path: Path) -> None:
    candidate = tmp_path / "kernel.py"
    candidate.write_text("def ModelNew(:\n")
    done = call("judge", EXAMPLE / "task.py", candidate, "--json")
    assert done.returncode == 1, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["status"] == "compile_error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "statuses", "code"),
    [
        ("slow.py", {"correct"}, 0),
        ("wrong.py", {"incorrect"}, 1),
        ("cheat.py", {"incorrect", "rejected", "runtime_error"}, 1),
    ],
)
def test_judge_prints_one_json_object_and_its_exit_code_says_the_verdict(
    name: str, statuses: set[str], code: int
) -> None:
    done = call("judge", EXAMPLE / "task.py", EXAMPLE / name, "--json", *QUICK)
    assert done.returncode == code, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    verdict = json.loads(line)
    assert verdict["status"] in statuses, verdict["message"]
    assert set(verdict) >= {
        "speedup",
        "speedup_low",
        "speedup_high",
        "baselines",
        "phase_seconds",
        "sandbox",
        "hardware",
    }


@pytest.mark.slow
def test_judge_without_json_is_for_readers(tmp_path: Path) -> None:
    done = call("judge", EXAMPLE, EXAMPLE / "fast.py", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "against eager" in done.stdout
    assert "99% interval" in done.stdout
    assert "isolation:" in done.stdout


@pytest.mark.slow
def test_what_a_candidate_prints_does_not_reach_stdout(tmp_path: Path) -> None:
    candidate = tmp_path / "loud.py"
    loud = "import os\nprint('loud')\nos.write(1, b'louder')\n"
    candidate.write_text(loud + (EXAMPLE / "slow.py").read_text())
    done = call("judge", EXAMPLE, candidate, "--json", *QUICK)
    assert json.loads(done.stdout)["status"] in {"correct", "win", "runtime_error"}


@pytest.mark.slow
def test_a_task_whose_code_fails_is_an_error_of_use(tmp_path: Path) -> None:
    task = tmp_path / "task.py"
    source = (EXAMPLE / "task.py").read_text()
    task.write_text(source + "\n\ndef get_inputs():\n    raise RuntimeError('no inputs today')\n")
    assert "no inputs today" in error_line(call("judge", task, EXAMPLE / "slow.py", "--json"))


def test_ctrl_c_during_the_imports_is_one_line_too() -> None:
    """The first import of the command line stands for all: whenever it is interrupted, nothing else is said."""
    program = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from cluster.entry import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "warpsmith: interrupted\n")


@pytest.mark.slow
def test_ctrl_c_while_judging_ends_at_once_and_leaves_nothing() -> None:
    import psutil

    process = subprocess.Popen(
        [WARPSMITH, "judge", EXAMPLE, EXAMPLE / "slow.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        children: list[psutil.Process] = []
        for _ in range(600):
            children = psutil.Process(process.pid).children(recursive=True)
            if len(children) >= 2:
                break
            time.sleep(0.05)
        assert children, "the judge never started its helpers"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, out + err
    assert out == ""
    assert [line for line in err.splitlines() if line.startswith("warpsmith: interrupted")]
    assert "Traceback" not in err
    assert not psutil.wait_procs(children, timeout=10)[1]


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """The folder of a run with one win by an expert, and one answer of the policy that holds escape sequences."""
    from archive.store import Archive
    from archive.types import Record
    from judge.types import Status, Verdict

    win = Verdict(status=Status.WIN, speedup=1.5, speedup_low=1.4, speedup_high=1.6, best_baseline="eager")
    wrong = Verdict(status=Status.COMPILE_ERROR, message="no code block")
    shared = {"run_id": "r", "task_name": "softmax", "task_id": "t"}
    archive = Archive(str(tmp_path / "archive.db"))
    code = (EXAMPLE / "fast.py").read_text()
    archive.add(Record(**shared, record_id="a" * 32, source="expert", operator="expert", code=code, verdict=win))
    archive.add(
        Record(
            **shared,
            record_id="b" * 32,
            source="policy",
            operator="contrast",
            code="",
            completion="\x1b[2Jgone\nsecond line",
            parents=("a" * 32,),
            group_id="s0001-0-softmax",
            step=1,
            policy_version=4,
            verdict=wrong,
        )
    )
    archive.close()
    return tmp_path


def test_archive_counts_and_lists_what_is_there(a_run: Path) -> None:
    stats = call("archive", "stats", "-a", a_run)
    assert stats.returncode == 0, stats.stderr
    assert "2 records: 1 by expert, 1 by policy" in stats.stdout
    assert "1.50x [1.40, 1.60]" in stats.stdout
    wins = call("archive", "query", "-a", a_run / "archive.db", "--status", "win", "--json").stdout.splitlines()
    assert [json.loads(line)["record_id"] for line in wins] == ["a" * 32]
    assert call("archive", "query", "-a", a_run, "--step", 1).stdout.startswith("b" * 32)
    assert "there are win, correct" in error_line(call("archive", "query", "-a", a_run, "--status", "won"))


@pytest.mark.slow
def test_archives_are_merged_exported_imported_verified_and_cleaned(a_run: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    assert "2 new of 2" in call("archive", "merge", a_run, "--into", whole).stdout
    assert "0 new of 2" in call("archive", "merge", a_run, "--into", whole).stdout
    verified = call("archive", "verify", "-a", whole)
    assert (verified.returncode, verified.stdout) == (0, "2 records, 0 blobs: all whole\n")
    assert "removed 0 blobs" in call("archive", "gc", "-a", whole).stdout
    for schema in ([], ["--published"]):
        written = call("archive", "export", tmp_path / f"out{len(schema)}", "-a", whole, *schema)
        assert "2 records in " in written.stdout, written.stderr
        assert (tmp_path / f"out{len(schema)}" / "README.md").is_file()
    back = call("archive", "import", tmp_path / "out0", "--into", tmp_path / "back.db")
    assert "2 new records, 2 in all" in back.stdout
    missing = call("archive", "import", tmp_path / "nosuch.parquet", "--into", whole)
    assert "not a Parquet file that can be read" in error_line(missing)
    similar = call("archive", "query", "-a", whole, "--similar-to", EXAMPLE / "fast.py").stdout
    assert similar.startswith("1.000  " + "a" * 32)
    with sqlite3.connect(whole) as connection:
        connection.execute("UPDATE records SET speedup = 9 WHERE record_id LIKE 'a%'")
    connection.close()
    damaged = call("archive", "verify", "-a", whole)
    assert damaged.returncode == 1
    assert "its status and speedup differ from its verdict's" in damaged.stdout


def test_an_archive_becomes_a_site(a_run: Path, tmp_path: Path) -> None:
    made = call("site", tmp_path / "site", "-a", a_run, "--title", "Mine")
    assert "2 kernels, 1 tasks" in made.stdout, made.stderr
    assert "Mine" in (tmp_path / "site" / "index.html").read_text()
    assert "no earlier site" in error_line(call("site", a_run, "-a", a_run))


def test_looking_for_an_archive_never_makes_one(tmp_path: Path) -> None:
    assert "no such archive" in error_line(call("archive", "stats", "-a", tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_step_is_shown_with_prompts_answers_and_verdicts_and_nothing_reaches_the_terminal(a_run: Path) -> None:
    shown = call("rollout", "show", a_run, 1)
    assert shown.returncode == 0, shown.stderr
    for words in ("s0001-0-softmax", "weights 4", f"exemplar {'a' * 32}", "compile_error", "second line"):
        assert words in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "nothing recorded for step 2" in error_line(call("rollout", "show", a_run, 2))


def test_a_record_is_exported_by_the_beginning_of_its_id(a_run: Path, tmp_path: Path) -> None:
    printed = call("export", "aaaa", "-a", a_run)
    assert printed.returncode == 0, printed.stderr
    written = call("export", "a" * 32, "-a", a_run, "--out", tmp_path / "new" / "kernel.py")
    assert written.stdout == ""
    assert (tmp_path / "new" / "kernel.py").read_text() == printed.stdout
    compile(printed.stdout, "kernel.py", "exec")
    assert "no such record" in error_line(call("export", "zzz", "-a", a_run))


def test_export_of_an_answer_without_code_is_an_error(a_run: Path) -> None:
    assert "holds no code" in error_line(call("export", "bbbb", "-a", a_run))


def test_tasks_check_names_a_degenerate_task_in_one_line(tmp_path: Path) -> None:
    source = (ROOT / "tests" / "redteam" / "task.py").read_text()
    (tmp_path / "good.py").write_text(source)
    (tmp_path / "bad.py").write_text(source.replace("torch.relu(x * 2.0 + b) * x + 1.0", "torch.zeros_like(x)"))
    good = call("tasks", "check", tmp_path / "good.py", *QUICK)
    assert good.returncode == 0, good.stdout + good.stderr
    bad = call("tasks", "check", tmp_path / "bad.py", "--json", *QUICK)
    assert bad.returncode == 1, bad.stderr
    (row,) = json.loads(bad.stdout)["tasks"]
    assert [fault["kind"] for fault in row["faults"]] == ["zero output"]
    assert "no/such" in error_line(call("tasks", "check", "no/such.py"))
