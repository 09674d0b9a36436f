"""Jobs on a real local cluster that asks for its token."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from cluster.errors import ConfigError
from cluster.submit import is_local, resolve_address, training_arguments, use_token

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CONFIG = ROOT / "configs" / "cpu.toml"


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://127.0.0.1:8265", True),
        ("http://localhost:1", True),
        ("http://[::1]:8265", True),
        ("https://ray.example.org", False),
        ("http://192.0.2.7:8265", False),
    ],
)
def test_addresses(address: str, local: bool) -> None:
    assert resolve_address(address + "/") == address
    assert is_local(address) == local


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://192.0.2.7:1")
    assert resolve_address(None) == "http://192.0.2.7:1"
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS")
    assert resolve_address(None) == "http://127.0.0.1:8265"


@pytest.mark.parametrize("address", ["127.0.0.1:8265", "ray://host:10001", "http://", "auto"])
def test_what_is_no_dashboard_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="write http://HOST:PORT"):
        resolve_address(address)


def test_a_local_run_keeps_its_results_where_the_user_is() -> None:
    arguments = training_arguments(str(CONFIG), ["run.steps=1"], ROOT, local=True)
    assert arguments == ["configs/cpu.toml", "run.steps=1", f"run.folder={ROOT / 'runs'}"]


def test_an_absolute_folder_is_left_alone(tmp_path: Path) -> None:
    overrides = [f"run.folder={tmp_path}"]
    assert training_arguments(None, overrides, ROOT, local=True) == overrides


def test_a_relative_folder_on_a_distant_cluster_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert training_arguments(None, [], ROOT, local=False) == []
    assert "warning: run.folder is relative" in capsys.readouterr().err


def test_a_config_that_would_not_travel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="outside the working directory"):
        training_arguments(str(CONFIG), [], tmp_path, local=True)


def test_a_mistake_in_the_config_is_found_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match=r"did you mean run\.steps"):
        training_arguments(str(CONFIG), ["run.step=1"], ROOT, local=True)


def test_a_token_at_hand_is_used_unless_the_user_said_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert not use_token()
    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert not use_token()
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert use_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"


@dataclass(frozen=True)
class Head:
    """A Ray head node of this test's own."""

    address: str
    environment: dict[str, str]
    folder: Path

    def call(self, *command: object, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=120, env=self.environment | extra, cwd=ROOT
        )

    def run_job(self, entrypoint: str, **extra: str) -> subprocess.CompletedProcess[str]:
        program = (
            "import sys; from pathlib import Path; from cluster.submit import run_job;"
            f"sys.exit(run_job(sys.argv[1], address={self.address!r}, working_dir=Path(sys.argv[2])))"
        )
        return self.call(sys.executable, "-c", program, entrypoint, self.folder, **extra)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    # Ray's socket names must stay short; a home of its own keeps the user's token out of it.
    short = Path(tempfile.mkdtemp(prefix="wj", dir="/tmp"))
    folder = tmp_path_factory.mktemp("job")
    (folder / "hello.txt").write_text("packed\n")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "big").write_text("not packed")
    port, dashboard, agent, agent_grpc, client = free_ports(5)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment = kept | {"HOME": str(short), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    command = [
        *(BIN / "ray", "start", "--head", "--block", "--num-cpus=1", "--disable-usage-stats"),
        *(f"--port={port}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"),
        *(f"--dashboard-agent-grpc-port={agent_grpc}", f"--ray-client-server-port={client}"),
        *(f"--temp-dir={short / 'r'}", "--object-store-memory=100000000"),
    ]
    log = folder.parent / "ray.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*map(str, command)], env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=short
        )
    family: list[psutil.Process] = []
    try:
        end = time.monotonic() + 90
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.2)
        while _silent(f"http://127.0.0.1:{agent}/api/local_raylet_healthz"):  # jobs need the agent
            assert process.poll() is None and time.monotonic() < end + 90, log.read_text()[-2000:]
            time.sleep(0.2)
        yield Head(f"http://127.0.0.1:{dashboard}", environment, folder)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.terminate()
        for one in psutil.wait_procs(family, timeout=15)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(timeout=15)
        shutil.rmtree(short, ignore_errors=True)


def _silent(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return False  # it asks for the token: it is there
    except OSError:
        return True
    return False


def submit_error(head: Head, **extra: str) -> str:
    done = head.call(BIN / "warpsmith", "submit", CONFIG, "--address", head.address, **extra)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.slow
def test_a_job_runs_in_a_copy_of_the_folder_and_its_exit_code_is_passed_on(head: Head) -> None:
    done = head.run_job(f"cat hello.txt; ls -A; {BIN / 'warpsmith'} --version; exit 3")
    assert done.returncode == 3, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "packed" in lines
    assert ".venv" not in lines
    assert any(line.startswith("warpsmith 0.") for line in lines)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_job_that_succeeds_ends_with_0_and_the_token_may_be_in_a_file(head: Head) -> None:
    token = head.folder.parent / "token"
    token.write_text(head.environment["RAY_AUTH_TOKEN"])
    environment = {key: value for key, value in head.environment.items() if not key.startswith("RAY_AUTH")}
    nobody = Head(head.address, environment, head.folder)
    assert nobody.run_job("true", RAY_AUTH_TOKEN_PATH=str(token)).returncode == 0


@pytest.mark.slow
def test_without_a_token_and_with_a_wrong_one_the_remedy_is_said(head: Head) -> None:
    environment = {key: value for key, value in head.environment.items() if not key.startswith("RAY_AUTH")}
    nobody = Head(head.address, environment, head.folder)
    assert "asks for a token and none was sent" in submit_error(nobody)
    assert "refused the token" in submit_error(head, RAY_AUTH_TOKEN="b" * 64)


@pytest.mark.slow
def test_where_no_cluster_is_one_line_says_so() -> None:
    (port,) = free_ports(1)
    done = subprocess.run(
        [BIN / "warpsmith", "submit", CONFIG, "--address", f"http://127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"warpsmith: no Ray cluster answers at http://127.0.0.1:{port}")


@pytest.mark.slow
def test_plain_ray_job_submit_finds_the_command(head: Head) -> None:
    done = head.call(
        *(BIN / "ray", "job", "submit", "--address", head.address, "--working-dir", head.folder, "--"),
        *(BIN / "warpsmith", "config", "check"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the embedded configuration: good" in done.stdout
