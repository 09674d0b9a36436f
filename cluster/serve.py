"""`warpsmith serve`: the HTTP service on a local Ray cluster, or on the one that this process was started on.

For `serve run` and `serve deploy` (configs/serve.yaml) there is `application`.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.config import Config, load_config
from cluster.doctor import port_taken
from cluster.errors import ConfigError
from cluster.interrupts import sigterm_as_interrupt
from cluster.session import ray_cluster

if TYPE_CHECKING:
    from serving.app import Service

APP = "warpsmith"
ARCHIVE_FOLDER = "optimize"
"""Under run.folder: what `optimize` and `serve` have judged, so that each starts from the other's findings."""


def serve_command(config: Config) -> int:
    """Serve until Ctrl-C or SIGTERM.

    Raises ConfigError in one line when the port is taken, or a key is needed and there is none; KeyboardInterrupt at
    the end.
    """
    host, port = config.serving.host, config.serving.port
    reason = port_taken(host, port)
    if reason:
        raise ConfigError(f"port {port} on {host}: {reason}: choose another with --port")
    _require_keys(config)
    with sigterm_as_interrupt():
        service = service_of(config)
        print("starting the judges and the rollout engine (vLLM): about a minute", flush=True)
        with ray_cluster(config):
            _serve(service, host, port)
    return 0


def _require_keys(config: Config) -> None:
    """A service for other machines that nobody can use is said at once, with the remedy."""
    from archive.store import Archive
    from serving.gate import LOOPBACK
    from serving.keys import KeyStore

    settings = config.serving
    if settings.require_key == "never" or (settings.require_key == "auto" and settings.host in LOOPBACK):
        return
    archive = Archive(settings.archive or optimizer_archive(config))
    try:
        if not any(key.revoked_at is None for key in KeyStore(archive).all()):
            raise ConfigError(
                f"{settings.host}: a service that others reach asks for API keys, and there is none: make one with "
                "`warpsmith keys create NAME`, or set serving.require_key=never behind a gateway that asks for its own"
            )
    finally:
        archive.close()


def _serve(service: Service, host: str, port: int) -> None:
    from ray import serve
    from ray.serve.config import HTTPOptions
    from ray.serve.schema import LoggingConfig

    from serving.app import build_app

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    quiet = LoggingConfig(log_level="ERROR", enable_access_log=False)
    try:
        serve.start(http_options=HTTPOptions(host=host, port=port), logging_config=quiet)
        serve.run(build_app(service), name=APP, route_prefix="/", logging_config=quiet)
        print(f"serving on http://{host}:{port}: a page there, the interface at /docs; Ctrl-C stops it", flush=True)
        while True:
            time.sleep(1)
    finally:
        # The application only: Serve itself goes with the local cluster, and is not ours on another.
        serve.delete(APP)


def service_of(config: Config) -> Service:
    """The service that a configuration describes; makes its model ready. Raises LearnerError, ConfigError."""
    from learner.pretrained import prepare_model
    from serving.app import Service

    return Service(
        model_dir=prepare_model(config.model.path),
        model_name=config.serving.model_name or Path(config.model.path).name,
        archive_url=config.serving.archive or optimizer_archive(config),
        seed=config.run.seed,
        serving=config.serving,
        rollout=config.rollout,
        evaluators=config.evaluators,
        judge=config.judge,
        search=config.search,
        timeouts=config.timeouts,
    )


def optimizer_archive(config: Config) -> str:
    """URL of the archive that searches share; its folder is made. Raises ConfigError when it cannot be."""
    folder = Path(config.run.folder).absolute() / ARCHIVE_FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made: {error.strerror}; choose another run.folder") from None
    return f"sqlite:///{folder / 'archive.db'}"


def application(args: dict[str, Any]) -> Any:
    """Builder for Serve's own config files: args are `config` (a TOML file) and `overrides` (a list).

    Raises ConfigError like the command line.
    """
    from serving.app import build_app

    unknown = set(args) - {"config", "overrides"}
    if unknown:
        raise ConfigError(
            f"args of cluster.serve:application: unknown {sorted(unknown)[0]}: known are config, overrides"
        )
    return build_app(service_of(load_config(args.get("config"), args.get("overrides") or [])))
