"""KubeRay manifests from the configuration: RayJob trains, RayService serves, RayCluster waits for `warpsmith submit`.

    warpsmith cluster manifest configs/cpu.toml run.steps=100 --kind job --claim warpsmith-data | kubectl apply -f -

The configuration travels inside, as a ConfigMap, so that the image needs to know nothing. One pod for each engine and
each judge; their requests equal their limits, which is what gives a pod whole cores of its own (Kubernetes: class
Guaranteed, with the static CPU policy of the nodes), and timing wants that.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, replace
from typing import Any, Literal

from cluster.commands_data import toml_lines
from cluster.config import Config
from cluster.errors import ConfigError
from warpsmith import __version__

CONFIG_FOLDER, DATA_FOLDER = "/etc/warpsmith", "/data"
CONFIG_FILE = f"{CONFIG_FOLDER}/config.toml"
API_VERSION = "ray.io/v1"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
"""A DNS label, and short: KubeRay makes longer names of it."""
_QUANTITY = re.compile(r"[1-9][0-9]*(Mi|Gi|Ti)")
_PASSWORD = re.compile(r"://[^/@:]*:[^/@]+@")


@dataclass(frozen=True, kw_only=True)
class ManifestOptions:
    """What the configuration does not say."""

    kind: Literal["job", "service", "cluster"]
    name: str = "warpsmith"
    image: str = ""
    """Empty: warpsmith:VERSION-cpu or -gpu."""
    namespace: str = ""
    claim: str = ""
    """A PersistentVolumeClaim that all pods can write (ReadWriteMany); runs are kept on it."""
    env_secret: str = ""
    """A Secret whose keys become environment variables: PGPASSWORD, WANDB_API_KEY, ..."""
    token_secret: str = ""
    """A Secret with the key auth_token: Ray's token authentication. Needs a KubeRay that knows authOptions (1.5)."""
    head_cpus: int = 4
    head_memory: str = "16Gi"
    worker_memory: str = "16Gi"


def build_manifest(config: Config, options: ManifestOptions) -> list[dict[str, Any]]:
    """The documents, to be applied together.

    Raises ConfigError: a name or an amount that Kubernetes refuses, a password in the configuration, a service of
    several pods on an SQLite file, a job without a place for its run.
    """
    _check(config, options)
    inside = _inside(config, options)
    spec: dict[str, Any]
    cluster = _cluster(inside, options)
    if options.kind == "cluster":
        kind, spec = "RayCluster", cluster
    elif options.kind == "job":
        kind = "RayJob"
        spec = {
            "entrypoint": shlex.join(["python", "-m", "cluster.cli", "train", CONFIG_FILE]),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 600,
            # A new cluster goes on from the last checkpoint: the run's folder is on the claim.
            "backoffLimit": 3,
            "rayClusterSpec": cluster,
        }
    else:
        kind = "RayService"
        spec = {"serveConfigV2": _yaml(serve_config(CONFIG_FILE)), "rayClusterConfig": cluster}
    return [_config_map(inside, options), _document(API_VERSION, kind, options, spec=spec)]


def render(documents: list[dict[str, Any]]) -> str:
    """The documents as YAML."""
    return "---\n".join(_yaml(document) for document in documents)


def serve_config(config_file: str) -> dict[str, Any]:
    """Ray Serve's own configuration of the application, for RayService and `serve deploy`."""
    application = {
        "name": "warpsmith",
        "route_prefix": "/",
        "import_path": "cluster.serve:application",
        "args": {"config": config_file, "overrides": []},
    }
    return {"http_options": {"host": "0.0.0.0", "port": 8000}, "applications": [application]}


def _check(config: Config, options: ManifestOptions) -> None:
    for what, name in (("--name", options.name), ("--namespace", options.namespace), ("--claim", options.claim)):
        if name and not _NAME.fullmatch(name):
            raise ConfigError(f"{what} {name}: at most 40 small letters, digits and inner dashes, as Kubernetes wants")
    for what, amount in (("--head-memory", options.head_memory), ("--worker-memory", options.worker_memory)):
        if not _QUANTITY.fullmatch(amount):
            raise ConfigError(f"{what} {amount}: write a whole number with Mi, Gi or Ti, such as 16Gi")
    if _PASSWORD.search(config.serving.archive):
        raise ConfigError(
            "serving.archive holds a password, and a ConfigMap is no place for it: leave it out of the URL and put it "
            "as PGPASSWORD into a Secret (--env-secret)"
        )
    if options.kind == "service" and not config.serving.archive.startswith("postgresql"):
        raise ConfigError(
            "a service runs in several pods, and SQLite's file cannot be shared among them: set serving.archive to a "
            "PostgreSQL URL"
        )
    if options.kind == "job" and not options.claim:
        raise ConfigError("a run's folder must outlive its pods: name a PersistentVolumeClaim with --claim")


def _inside(config: Config, options: ManifestOptions) -> Config:
    """The configuration as the pods shall have it."""
    update: dict[str, Any] = {}
    if options.claim:
        update["run"] = config.run.model_copy(update={"folder": f"{DATA_FOLDER}/runs"})
    if options.kind == "service":
        # Kubernetes' own network reaches the pods: keys are asked for (serving.require_key).
        update["serving"] = config.serving.model_copy(update={"host": "0.0.0.0"})
    return config.model_copy(update=update)


def _config_map(config: Config, options: ManifestOptions) -> dict[str, Any]:
    text = "".join(f"{line}\n" for line in toml_lines(config.model_dump(mode="json")))
    return _document("v1", "ConfigMap", replace(options, name=f"{options.name}-config"), data={"config.toml": text})


def _document(api_version: str, kind: str, options: ManifestOptions, **rest: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": options.name, "labels": {"app.kubernetes.io/name": "warpsmith"}}
    if options.namespace:
        metadata["namespace"] = options.namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _cluster(config: Config, options: ManifestOptions) -> dict[str, Any]:
    """RayClusterSpec: a head for the driver (or the front), a group of pods for the engines, one for the judges."""
    import ray

    on_gpu = config.judge.device == "cuda"
    engines = (config.rollout.actors, max(config.rollout.actors, config.rollout.max_actors))
    if options.kind == "service":
        engines = (config.serving.policy_replicas_min, config.serving.policy_replicas_max)
    engine_gpus, judge_gpus = math.ceil(config.rollout.gpus), int(on_gpu)
    image = options.image or f"warpsmith:{__version__}-{'gpu' if engine_gpus or judge_gpus else 'cpu'}"
    options = replace(options, image=image)
    judges = (config.evaluators.actors, max(config.evaluators.actors, config.evaluators.max_actors))
    spec: dict[str, Any] = {"rayVersion": ray.__version__}
    if engines[0] != engines[1] or judges[0] != judges[1]:
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = {"idleTimeoutSeconds": 300, "upscalingMode": "Default"}
    if options.token_secret:
        spec["authOptions"] = {"mode": "token", "secretName": options.token_secret}
    return spec | {
        "headGroupSpec": {
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": str(options.head_cpus)},
            "template": _pod("ray-head", options, cpus=options.head_cpus, memory=options.head_memory, is_head=True),
        },
        "workerGroupSpecs": [
            # A core beside the engine's threads: for its scheduler and for Ray.
            _group("engines", engines, options, cpus=config.rollout.threads + 1, gpus=engine_gpus),
            _group("judges", judges, options, cpus=config.judge.threads + 1, gpus=judge_gpus),
        ],
    }


def _group(name: str, size: tuple[int, int], options: ManifestOptions, *, cpus: int, gpus: int) -> dict[str, Any]:
    return {
        "groupName": name,
        "replicas": size[0],
        "minReplicas": size[0],
        "maxReplicas": size[1],
        "rayStartParams": {"num-cpus": str(cpus), **({"num-gpus": str(gpus)} if gpus else {})},
        "template": _pod("ray-worker", options, cpus=cpus, memory=options.worker_memory, gpus=gpus),
    }


def _pod(
    name: str, options: ManifestOptions, *, cpus: int, memory: str, gpus: int = 0, is_head: bool = False
) -> dict[str, Any]:
    amounts: dict[str, Any] = {"cpu": str(cpus), "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container: dict[str, Any] = {
        "name": name,
        "image": options.image,
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *([{"name": "data", "mountPath": DATA_FOLDER}] if options.claim else []),
        ],
    }
    if options.env_secret:
        container["envFrom"] = [{"secretRef": {"name": options.env_secret}}]
    if is_head:
        ports = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
        container["ports"] = [{"name": port, "containerPort": number} for port, number in ports.items()]
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": f"{options.name}-config"}},
        # Ray's object store and the judge's buffers live in shared memory, of which a container has 64 MB by itself.
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    if options.claim:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": options.claim}})
    # Candidates run here: no token of Kubernetes within their reach.
    spec: dict[str, Any] = {"containers": [container], "volumes": volumes, "automountServiceAccountToken": False}
    if gpus:
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {"spec": spec}


def _yaml(value: Any) -> str:
    """YAML with texts of several lines as they are, for people to read."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return str(yaml.dump(value, Dumper=Dumper, sort_keys=False, width=120))
