"""`warpsmith submit`: training as a job on a Ray cluster.

    ray get-auth-token --generate                      # once: clusters started from now on ask for the token
    ray start --head --num-cpus=4
    warpsmith submit configs/cpu.toml run.steps=1      # packs this folder, follows the log, ends with the job's code

Ray's token authentication stays on. The token is found where Ray looks for it: RAY_AUTH_TOKEN, the file that
RAY_AUTH_TOKEN_PATH names, ~/.ray/auth_token.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cluster.config import load_config
from cluster.errors import ConfigError

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
EXCLUDES = [".venv", ".git", "runs", ".cache", "wandb", "__pycache__", ".*_cache", "*.egg-info"]
"""Never travel to the cluster (.gitignore syntax); what .gitignore names does not either."""
AGENT_SECONDS = 60.0
"""How long a cluster may be without a job agent."""
POLL_SECONDS = 0.5
STOPPED = 1
"""Exit code for a job that somebody stopped."""


def submit_training(
    config: str | None,
    overrides: Sequence[str],
    *,
    address: str | None,
    working_dir: Path,
    python: str | None = None,
    wait: bool = True,
) -> int:
    """Run `warpsmith train config overrides` on a cluster; returns the job's exit code (0 at once with wait=False).

    Raises ConfigError in one line for a configuration that is wrong here already, a config file outside the working
    directory, no cluster at the address, a token that is missing or wrong, a cluster that takes no jobs.
    """
    address = resolve_address(address)
    working_dir = working_dir.absolute()
    if not working_dir.is_dir():
        raise ConfigError(f"{working_dir}: no such folder: --working-dir is what travels to the cluster")
    arguments = training_arguments(config, overrides, working_dir, local=is_local(address))
    interpreter = python or (sys.executable if is_local(address) else "python")
    entrypoint = shlex.join([interpreter, "-m", "cluster.cli", "train", *arguments])
    return run_job(entrypoint, address=address, working_dir=working_dir, wait=wait)


def training_arguments(config: str | None, overrides: Sequence[str], working_dir: Path, *, local: bool) -> list[str]:
    """The arguments of `train` inside the job, checked here first.

    The job's own working directory is a copy that Ray deletes: on a local cluster the run's folder is made absolute.
    """
    settings = load_config(config, list(overrides))
    arguments = list(overrides)
    if not Path(settings.run.folder).is_absolute():
        if local:
            arguments.append(f"run.folder={working_dir / settings.run.folder}")
        else:
            _say("warning: run.folder is relative, and the job's directory is deleted at its end: give a shared path")
    if config is not None:
        path = Path(config).absolute()
        if not path.is_relative_to(working_dir):
            raise ConfigError(
                f"{config}: outside the working directory {working_dir}: only that travels to the cluster"
            )
        arguments.insert(0, str(path.relative_to(working_dir)))
    return arguments


def run_job(entrypoint: str, *, address: str, working_dir: Path, wait: bool = True) -> int:
    """Submit a shell command as a job and follow it; returns its exit code. Raises ConfigError as above."""
    with _explained(address):
        client = _connect(address)
        job_id = _submitted(client, entrypoint, working_dir)
    where = f"--address {address}"
    if not wait:
        _say(f"job {job_id} submitted; follow it with: ray job logs --follow {where} {job_id}")
        return 0
    _say(f"job {job_id} submitted to {address}")
    try:
        with _explained(address):
            return _follow(client, job_id)
    except KeyboardInterrupt:
        _say(f"the job goes on; end it with: ray job stop {where} {job_id}")
        raise


def _submitted(client: JobSubmissionClient, entrypoint: str, working_dir: Path) -> str:
    """Submit; a cluster that has just been started takes no job until its agent is up, so that is waited for."""
    end = time.monotonic() + AGENT_SECONDS
    while True:
        try:
            return client.submit_job(
                entrypoint=entrypoint, runtime_env={"working_dir": str(working_dir), "excludes": EXCLUDES}
            )
        except RuntimeError as error:
            if "No available agent" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(POLL_SECONDS)


def resolve_address(address: str | None) -> str:
    """The dashboard's URL: as given, else RAY_API_SERVER_ADDRESS, else the local default. ConfigError if no URL."""
    found = address or os.environ.get("RAY_API_SERVER_ADDRESS") or DEFAULT_ADDRESS
    parts = urlsplit(found)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{found}: not a dashboard's address: write http://HOST:PORT (ray start prints it)")
    return found.rstrip("/")


def is_local(address: str) -> bool:
    """Whether the address names this machine's loopback."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def use_token() -> bool:
    """Turn Ray's token authentication on for this process where a token is at hand; whether it is on.

    Ray turns it on by itself only where it starts a cluster. To be called before ray is imported.
    """
    if "RAY_AUTH_MODE" not in os.environ and has_token():
        os.environ["RAY_AUTH_MODE"] = "token"
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def has_token() -> bool:
    """Whether a token is where Ray looks for it."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return True
    file = os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    return Path(file).expanduser().is_file()


def _connect(address: str) -> JobSubmissionClient:
    use_token()
    os.environ["RAY_API_SERVER_ADDRESS"] = address  # Ray lets RAY_ADDRESS win over the argument otherwise
    from ray.job_submission import JobSubmissionClient

    logging.getLogger("ray").setLevel(logging.ERROR)
    for name in ("sdk", "dashboard_sdk"):
        logging.getLogger(f"ray.dashboard.modules.{'job.' if name == 'sdk' else ''}{name}").setLevel(logging.ERROR)
    return JobSubmissionClient(address)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Ray's many-line errors as one line with the remedy."""
    try:
        yield
    except ConnectionError:
        raise ConfigError(
            f"no Ray cluster answers at {address}: start one (ray start --head), or give --address"
        ) from None
    except Exception as error:
        raise ConfigError(f"{address}: {_explain(error)}") from error


def _explain(error: Exception) -> str:
    text = " ".join(str(error).split())
    if type(error).__name__ == "AuthenticationError":
        if "Authentication required" in text:
            return (
                "the cluster asks for a token and none was sent: put the head node's (ray get-auth-token) into "
                "RAY_AUTH_TOKEN or ~/.ray/auth_token"
            )
        return (
            "the cluster refused the token: compare RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token with "
            "`ray get-auth-token` on the head node"
        )
    if "No available agent" in text:
        return (
            "the cluster has no job agent: another cluster on that machine may hold its port; start each with its own "
            "--port, --dashboard-port and --dashboard-agent-listen-port"
        )
    if "404" in text and "ersion" in text:
        return "this is not a Ray dashboard"
    return f"{type(error).__name__}: {text[:300]}"


def _follow(client: JobSubmissionClient, job_id: str) -> int:
    """Print the job's log until it ends; its exit code."""
    try:
        asyncio.run(_print_log(client, job_id))
    except RuntimeError as error:  # the connection was cut: the job may well go on
        _say(f"warning: the log cannot be followed any further ({' '.join(str(error).split())[:120]})")
    info: Any = client.get_job_info(job_id)
    while not info.status.is_terminal():
        time.sleep(POLL_SECONDS)
        info = client.get_job_info(job_id)
    if info.status == "SUCCEEDED":
        return 0
    if info.status == "STOPPED":
        _say(f"job {job_id} was stopped")
        return STOPPED
    if info.driver_exit_code is None:
        raise ConfigError(f"job {job_id} did not run: {' '.join((info.message or 'no reason given').split())[:300]}")
    # A shell reports a signal as 128 + its number, Python as its negative.
    code = int(info.driver_exit_code)
    return 128 - code if code < 0 else code


async def _print_log(client: JobSubmissionClient, job_id: str) -> None:
    async for text in client.tail_job_logs(job_id):
        sys.stdout.write(text)
        sys.stdout.flush()


def _say(line: str) -> None:
    print(f"warpsmith: {line}", file=sys.stderr, flush=True)
