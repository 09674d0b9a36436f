"""What is installed, and what the tree must not hold."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import warpsmith

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("tasks", "judge", "archive", "search", "learner", "actors", "serving", "cluster", "configs", "models")


def tracked_files() -> list[Path]:
    """Files of the commit, as far as they still exist."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy of the sources: a build leaves files beside them."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(
        ".venv", ".git", "runs", ".cache", "wandb", "__pycache__", ".*_cache", ".hypothesis", "build"
    )
    shutil.copytree(ROOT, source, ignore=ignored, ignore_dangling_symlinks=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    built = subprocess.run(
        [*command, "--no-index", "-w", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("warpsmith-*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.slow
def test_the_wheel_holds_the_rooms_and_nothing_else_at_its_top(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    version = warpsmith.__version__
    assert tops == {*ROOMS, "warpsmith.py", f"warpsmith-{version}.dist-info"}


@pytest.mark.slow
def test_the_wheel_holds_what_the_rooms_read_at_run_time(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    data = [
        ROOT / "cluster" / "report.html",
        ROOT / "judge" / "hacks.toml",
        *(ROOT / "configs").glob("*.toml"),
        *(ROOT / "tasks/suite").rglob("*.py"),
    ]
    assert len(data) > 2 + 64 * 3 - 1, "the suite has 64 tasks of at least three files"
    missing = {str(path.relative_to(ROOT)) for path in data} - names
    assert not missing
    sources = {str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert not sources - names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_an_installed_wheel_works_away_from_the_sources(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    program = (
        "import cluster.cli, cluster.report, warpsmith; from cluster.config import load_config; load_config();"
        "from cluster.report import write_report; from pathlib import Path; write_report(Path('.'));"
        "from tasks.loader import suite_tasks; print(len(suite_tasks())); print(cluster.cli.__file__)"
    )
    # The editable install is a finder on sys.meta_path; the extracted wheel comes before it only without it.
    plain = "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in str(f).lower()];"
    plain += f"sys.path.insert(0, {str(tmp_path / 'site')!r});"
    done = subprocess.run(
        [sys.executable, "-P", "-c", plain + program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    count, place = done.stdout.split()
    assert int(count) == len(list((ROOT / "tasks/suite").glob("level*/*/task.py"))) >= 64
    assert place.startswith(str(tmp_path))


def test_the_command_answers() -> None:
    command = Path(sys.executable).with_name("warpsmith")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for name in ("train", "judge", "optimize", "tasks", "archive", "export", "report", "serve", "submit", "doctor"):
        assert name in done.stdout


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, cluster.cli; heavy = {'torch', 'ray', 'vllm', 'deepspeed', 'transformers', 'wandb', 'scipy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", warpsmith.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(warpsmith, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        warpsmith.nothing  # noqa: B018


def test_every_room_is_installed_and_imports() -> None:
    for room in ROOMS:
        module = importlib.import_module(room)
        assert module.__file__ is not None
        assert Path(module.__file__).is_relative_to(ROOT)


def test_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == warpsmith.__version__
    assert f"## [{warpsmith.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda path: path.name)
def test_locks_hold_pins_only(lock: Path) -> None:
    lines = [line.split("#")[0].strip() for line in lock.read_text().splitlines()]
    pins = [line for line in lines if line]
    assert pins
    odd = [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==[A-Za-z0-9.!_]+", pin)]
    assert not odd
    names = [re.sub(r"[-_.]+", "-", re.split(r"[\[=]", pin)[0]).lower() for pin in pins]
    assert len(names) == len(set(names))


def test_dependencies_are_pinned() -> None:
    """Each dependency of the project is in the CPU lock, extras aside."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements" / "cpu.lock").read_text().lower()
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]) for line in lock.splitlines() if "==" in line}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cpu"]]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ]", one)[0]).lower() for one in wanted}
    assert not names - pinned


def test_the_tree_names_no_registry_and_no_home() -> None:
    """A package index or a path of one machine would break every other one."""
    hosts = r"https?://[^\s\"')]*(?:pypi|pythonhosted|artifactory|jfrog|nexus|/simple\b|download\.pytorch)"
    homes = r"(?<![\w.])/(?:home|Users)/[a-z][a-z0-9_-]+/|(?<![\w.])/root/|--(?:extra-)?index-url|--trusted-host"
    pattern = re.compile(f"{hosts}|{homes}")
    found = []
    for path in tracked_files():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), start=1)
            if pattern.search(line)
        ]
    assert not found


def test_nothing_that_is_made_is_tracked() -> None:
    made = re.compile(
        r"(^|/)(\.venv|runs|wandb|__pycache__|build|dist|\.cache|[^/]*\.egg-info|\.[a-z]+_cache)/|\.pyc$|\.so$"
    )
    assert not [name for path in tracked_files() if made.search(name := str(path.relative_to(ROOT)))]


def test_large_files_are_not_tracked() -> None:
    policies = [path for path in tracked_files() if path.suffix == ".safetensors" and ROOT / "models" in path.parents]
    assert sum(path.stat().st_size for path in policies) <= 12_000_000
    assert not [path.name for path in tracked_files() if path not in policies and path.stat().st_size > 500_000]


def test_setup_and_ci_are_executable_shell(tmp_path: Path) -> None:
    for name in ("setup.sh", ".ci/run"):
        path = ROOT / name
        assert path.stat().st_mode & 0o111
        assert subprocess.run(["bash", "-n", str(path)], timeout=60).returncode == 0


def run_setup(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """setup.sh with an environment of its own, in a copy that has no .venv."""
    copy = tmp_path / "copy"
    copy.mkdir(exist_ok=True)
    shutil.copy(ROOT / "setup.sh", copy)
    shutil.copy(ROOT / "pyproject.toml", copy)
    shutil.copytree(ROOT / "requirements", copy / "requirements", dirs_exist_ok=True)
    base = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    return subprocess.run(
        [str(copy / "setup.sh"), *arguments], env=base | environment, capture_output=True, text=True, timeout=60
    )


def a_path_without(tmp_path: Path, *absent: str) -> str:
    """A PATH with the programs that setup.sh uses, but for some."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "env", "dirname", "uname", "awk", "cat", "sha256sum", "cut", "g++", "python3", "flock", "rm"):
        found = shutil.which(name)
        if name not in absent and found is not None:
            (folder / name).symlink_to(found)
    return str(folder)


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_setup_without_a_compiler_says_so_in_one_line(tmp_path: Path) -> None:
    line = only_line(run_setup(tmp_path, PATH=a_path_without(tmp_path, "g++")))
    assert "no g++ on PATH" in line
    assert "apt-get install g++" in line


def test_setup_with_an_unusable_python_says_so_in_one_line(tmp_path: Path) -> None:
    line = only_line(run_setup(tmp_path, PYTHON="/nowhere/python3"))
    assert "Python 3.11 to 3.14 needed" in line
    assert "set PYTHON=" in line


def test_setup_with_an_old_python_names_its_version(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.8.18"\nexit $([ "$1" = -V ] && echo 0 || echo 1)\n')
    old.chmod(0o755)
    assert "is Python 3.8.18, Python 3.11 to 3.14 needed" in only_line(run_setup(tmp_path, PYTHON=str(old)))


def test_setup_for_a_run_asks_for_memory(tmp_path: Path) -> None:
    line = only_line(run_setup(tmp_path, "run", MIN_MEMORY_GB="100000"))
    assert "100000 GB needed by make run" in line
    assert "MIN_MEMORY_GB=0" in line


def test_setup_does_not_empty_a_folder_that_is_no_environment(tmp_path: Path) -> None:
    precious = tmp_path / "documents"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    line = only_line(run_setup(tmp_path, PYTHON=sys.executable, VENV=str(precious)))
    assert "neither empty nor a virtual environment" in line
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_setup_refuses_an_unknown_argument(tmp_path: Path) -> None:
    assert "unknown argument install" in only_line(run_setup(tmp_path, "install"))
