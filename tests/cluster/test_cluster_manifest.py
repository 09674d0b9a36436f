"""Manifests for KubeRay, the images and the `ray up` file: their shape, and that what they name exists.

The schema below says what KubeRay's API (ray.io/v1) takes of the fields that are used here; anything else is refused.
With WARPSMITH_CRDS naming a folder of KubeRay's published CRD files, those are asked too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cluster.config import Config, load_config
from cluster.errors import ConfigError
from cluster.manifest import ManifestOptions, build_manifest, render
from warpsmith import __version__

ROOT = Path(__file__).parents[2]
POSTGRES = "serving.archive=postgresql+psycopg://warpsmith@database/warpsmith"
AMOUNTS = {
    "type": "object",
    "required": ["cpu", "memory"],
    "additionalProperties": False,
    "properties": {
        "cpu": {"type": "string", "pattern": "^[0-9]+$"},
        "memory": {"type": "string", "pattern": "^[0-9]+(Mi|Gi|Ti)$"},
        "nvidia.com/gpu": {"type": "string", "pattern": "^[0-9]+$"},
    },
}


def record(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def many(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


TEXT, NUMBER, FLAG = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
CONTAINER = record(
    ["name", "image", "resources"],
    name=TEXT,
    image=TEXT,
    resources=record(["requests", "limits"], requests=AMOUNTS, limits=AMOUNTS),
    volumeMounts=many(record(["name", "mountPath"], name=TEXT, mountPath=TEXT, readOnly=FLAG)),
    envFrom=many(record(["secretRef"], secretRef=record(["name"], name=TEXT))),
    ports=many(record(["containerPort"], name={"type": "string", "maxLength": 15}, containerPort=NUMBER)),
)
VOLUME = record(
    ["name"],
    name=TEXT,
    configMap=record(["name"], name=TEXT),
    emptyDir=record([], medium=TEXT),
    persistentVolumeClaim=record(["claimName"], claimName=TEXT),
)
TOLERATION = record(["key"], key=TEXT, operator={"enum": ["Exists", "Equal"]}, effect=TEXT)
POD = record(
    ["containers"],
    containers=many(CONTAINER),
    volumes=many(VOLUME),
    tolerations=many(TOLERATION),
    automountServiceAccountToken=FLAG,
)
TEMPLATE = record(["spec"], spec=POD)
GROUP = record(
    ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
    groupName=TEXT,
    replicas=NUMBER,
    minReplicas=NUMBER,
    maxReplicas=NUMBER,
    rayStartParams=TEXTS,
    template=TEMPLATE,
)
CLUSTER = record(
    ["headGroupSpec"],
    rayVersion=TEXT,
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=record(
        [], idleTimeoutSeconds=NUMBER, upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]}
    ),
    authOptions=record(["mode"], mode={"enum": ["token", "disabled"]}, secretName=TEXT),
    headGroupSpec=record(["rayStartParams", "template"], rayStartParams=TEXTS, template=TEMPLATE),
    workerGroupSpecs=many(GROUP),
)
JOB = record(
    [],
    entrypoint=TEXT,
    shutdownAfterJobFinishes=FLAG,
    ttlSecondsAfterFinished=NUMBER,
    backoffLimit=NUMBER,
    rayClusterSpec=CLUSTER,
)
SERVICE = record([], serveConfigV2=TEXT, rayClusterConfig=CLUSTER)
SPECS = {"RayCluster": CLUSTER, "RayJob": JOB, "RayService": SERVICE}


def documents(kind: Any, *overrides: str, **options: Any) -> tuple[Config, dict[str, Any], dict[str, Any]]:
    """The configuration, its ConfigMap and the resource, after a trip through YAML."""
    config = load_config(None, list(overrides))
    text = render(build_manifest(config, ManifestOptions(kind=kind, **options)))
    config_map, resource = yaml.safe_load_all(text)
    return config, config_map, resource


def cluster_of(resource: dict[str, Any]) -> dict[str, Any]:
    spec = resource["spec"]
    found: dict[str, Any] = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    return found


CASES: list[tuple[str, list[str], dict[str, Any]]] = [
    ("job", [], {"claim": "data"}),
    ("job", ["rollout.gpus=1", "judge.device=cuda"], {"claim": "data", "token_secret": "ray", "env_secret": "env"}),
    ("service", [POSTGRES], {}),
    ("service", [POSTGRES, "serving.policy_replicas_max=4", "rollout.gpus=0.5"], {"namespace": "kernels"}),
    ("cluster", [], {"name": "lab"}),
]


@pytest.mark.parametrize(("kind", "overrides", "options"), CASES)
def test_the_shape_is_kuberays(kind: str, overrides: list[str], options: dict[str, Any]) -> None:
    _, config_map, resource = documents(kind, *overrides, **options)
    head = record(
        ["apiVersion", "kind", "metadata"],
        apiVersion={"enum": ["v1", "ray.io/v1"]},
        kind={"enum": ["ConfigMap", *SPECS]},
        metadata=record(["name"], name={"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}, namespace=TEXT, labels=TEXTS),
        data=TEXTS,
        spec={"type": "object"},
    )
    for document in (config_map, resource):
        jsonschema.validate(document, head)
    jsonschema.validate(resource["spec"], SPECS[resource["kind"]])
    crd = Path(os.environ.get("WARPSMITH_CRDS", "/nowhere")) / f"ray.io_{resource['kind'].lower()}s.yaml"
    if crd.is_file():
        (version,) = [one for one in yaml.safe_load(crd.read_text())["spec"]["versions"] if one["name"] == "v1"]
        jsonschema.validate(resource, version["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize(("kind", "overrides", "options"), CASES)
def test_every_mount_has_its_volume_and_pods_have_whole_cores(
    kind: str, overrides: list[str], options: dict[str, Any]
) -> None:
    _, config_map, resource = documents(kind, *overrides, **options)
    cluster = cluster_of(resource)
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        (config_volume,) = [volume for volume in pod["volumes"] if volume["name"] == "config"]
        assert config_volume["configMap"]["name"] == config_map["metadata"]["name"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert group["rayStartParams"]["num-cpus"] == container["resources"]["limits"]["cpu"]
        assert pod["automountServiceAccountToken"] is False
        gpus = container["resources"]["limits"].get("nvidia.com/gpu")
        assert group["rayStartParams"].get("num-gpus") == gpus


def test_the_configuration_travels_whole() -> None:
    config, config_map, resource = documents("job", "learner.lr=3e-5", "run.name=mine", claim="data")
    inside = Config.model_validate(tomllib.loads(config_map["data"]["config.toml"]))
    assert inside == config.model_copy(update={"run": config.run.model_copy(update={"folder": "/data/runs"})})
    words = shlex.split(resource["spec"]["entrypoint"])
    assert words == ["python", "-m", "cluster.cli", "train", "/etc/warpsmith/config.toml"]


def test_the_file_inside_is_one_that_the_command_line_reads(tmp_path: Path) -> None:
    _, config_map, _ = documents("service", POSTGRES)
    file = tmp_path / "config.toml"
    file.write_text(config_map["data"]["config.toml"])
    inside = load_config(file)
    assert inside.serving.host == "0.0.0.0"  # so that keys are asked for
    assert inside.serving.require_key == "auto"


def test_pods_follow_the_configuration() -> None:
    _, _, resource = documents(
        "service",
        *(POSTGRES, "serving.policy_replicas_min=2", "serving.policy_replicas_max=5", "rollout.gpus=1"),
        *("evaluators.actors=3", "judge.threads=7"),
        head_cpus=6,
        worker_memory="64Gi",
    )
    cluster = cluster_of(resource)
    engines, judges = cluster["workerGroupSpecs"]
    assert cluster["enableInTreeAutoscaling"] is True
    assert (engines["minReplicas"], engines["maxReplicas"]) == (2, 5)
    assert engines["rayStartParams"] == {"num-cpus": "2", "num-gpus": "1"}
    assert (judges["minReplicas"], judges["maxReplicas"]) == (3, 3)
    assert judges["rayStartParams"] == {"num-cpus": "8"}
    assert judges["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": "64Gi"}
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "6"
    assert engines["template"]["spec"]["containers"][0]["image"] == f"warpsmith:{__version__}-gpu"


def test_secrets_are_referred_to_and_never_written() -> None:
    _, _, resource = documents("job", claim="data", env_secret="env", token_secret="token")
    cluster = cluster_of(resource)
    assert cluster["authOptions"] == {"mode": "token", "secretName": "token"}
    container = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "env"}}]
    with pytest.raises(ConfigError, match="holds a password"):
        documents("service", "serving.archive=postgresql+psycopg://me:secret@database/warpsmith")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("job", {}, "--claim"),
        ("service", {}, "serving.archive to a PostgreSQL URL"),
        ("cluster", {"name": "Not_A_Name"}, "--name Not_A_Name"),
        ("cluster", {"worker_memory": "16"}, "--worker-memory 16: write a whole number"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        documents(kind, **options)


def test_ray_serve_takes_the_services_configuration() -> None:
    from ray.serve.schema import ServeDeploySchema

    _, _, resource = documents("service", POSTGRES)
    schema = ServeDeploySchema.model_validate(yaml.safe_load(resource["spec"]["serveConfigV2"]))
    (application,) = schema.applications
    module, name = (application.import_path or "").split(":")
    assert callable(getattr(__import__(module, fromlist=[name]), name))


def test_the_command_prints_the_manifest_or_one_line(tmp_path: Path) -> None:
    warpsmith = Path(sys.executable).with_name("warpsmith")
    command = [warpsmith, "cluster", "manifest", "configs/cpu.toml", "run.steps=7", "--kind", "cluster"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "run.steps = 7\n" in next(yaml.safe_load_all(done.stdout))["data"]["config.toml"]
    subprocess.run([*command, "--out", tmp_path / "m.yaml"], check=True, cwd=ROOT, timeout=60)
    assert (tmp_path / "m.yaml").read_text() == done.stdout
    done = subprocess.run([*command[:3], "--kind", "pod"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


# -- images and machines of one's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_an_image_is_built_from_files_that_exist(name: str) -> None:
    text = (ROOT / "deploy" / f"Dockerfile.{name}").read_text()
    lines = [line.strip() for line in re.sub(r"\\\n\s*", " ", text).splitlines()]
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert {step[0] for step in steps} <= {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "EXPOSE", "CMD"}
    assert steps[0][0] == "FROM"
    assert ":" in steps[0][1] and "latest" not in steps[0][1]
    for _, rest in (step for step in steps if step[0] == "COPY"):
        for source in rest.split()[:-1]:
            assert (ROOT / source).exists(), source
    (command,) = [json.loads(rest) for what, rest in steps if what == "CMD"]
    assert command[0] == "warpsmith"
    assert f"warpsmith:{__version__}-{name}" in text


def test_what_the_gpu_image_installs_is_what_the_package_asks_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "deploy" / "Dockerfile.gpu").read_text()
    for wanted in [*extras["optional-dependencies"]["gpu"], *extras["dependencies"]]:
        if re.match(r"(vllm|cupy|deepspeed)", wanted):
            assert f'"{wanted}"' in text


def test_ray_takes_the_file_for_machines_of_ones_own() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((ROOT / "deploy" / "ray-up.yaml").read_text())
    validate_config(prepare_config(dict(config)))  # what `ray up` does before it touches a machine
    assert config["docker"]["image"].startswith(f"warpsmith:{__version__}-")
    for command in (*config["head_start_ray_commands"], *config["worker_start_ray_commands"]):
        assert command == "ray stop" or command.startswith("RAY_AUTH_MODE=token ray start ")


# Field names of the operator's own types: ray-project/kuberay, ray-operator/apis/ray/v1, raycluster_types.go at commit
# 026f1433, rayjob_types.go at 0057210e, rayservice_types.go at 00741298, from which its CRDs are generated. authOptions
# is of later versions (1.5).
KUBERAY_FIELDS = {
    "RayCluster": "headGroupSpec workerGroupSpecs rayVersion enableInTreeAutoscaling autoscalerOptions "
    "headServiceAnnotations suspend authOptions",
    "RayJob": "activeDeadlineSeconds backoffLimit rayClusterSpec submitterPodTemplate metadata clusterSelector "
    "submitterConfig managedBy deletionStrategy entrypoint runtimeEnvYAML jobId submissionMode entrypointResources "
    "entrypointNumCpus entrypointNumGpus ttlSecondsAfterFinished shutdownAfterJobFinishes suspend schedule",
    "RayService": "serveConfigV2 rayClusterConfig serviceUnhealthySecondThreshold deploymentUnhealthySecondThreshold "
    "serveService",
    "head": "serviceType headService enableIngress rayStartParams template",
    "worker": "groupName replicas minReplicas maxReplicas numOfHosts rayStartParams template scaleStrategy",
    "autoscaler": "resources image imagePullPolicy env envFrom volumeMounts securityContext idleTimeoutSeconds "
    "upscalingMode",
}
KUBERAY_REQUIRED = {
    "RayCluster": "headGroupSpec",
    "head": "rayStartParams template",
    "worker": "groupName minReplicas maxReplicas rayStartParams template",
}


@pytest.mark.parametrize(("kind", "overrides", "options"), [*CASES, ("cluster", ["evaluators.max_actors=6"], {})])
def test_the_operators_own_types_have_every_field(kind: str, overrides: list[str], options: dict[str, Any]) -> None:
    _, _, resource = documents(kind, *overrides, **options)
    cluster = cluster_of(resource)
    parts = [(resource["kind"], resource["spec"]), ("RayCluster", cluster), ("head", cluster["headGroupSpec"])]
    parts += [("worker", group) for group in cluster["workerGroupSpecs"]]
    parts += [("autoscaler", cluster["autoscalerOptions"])] if "autoscalerOptions" in cluster else []
    for name, part in parts:
        assert set(part) <= set(KUBERAY_FIELDS[name].split()), name
        assert set(part) >= set(KUBERAY_REQUIRED.get(name, "").split()), name


def test_a_pool_that_may_grow_has_pods_that_may_be_added() -> None:
    _, _, resource = documents("cluster", "evaluators.actors=2", "evaluators.max_actors=6")
    cluster = cluster_of(resource)
    judges = next(group for group in cluster["workerGroupSpecs"] if group["groupName"] == "judges")
    assert (judges["replicas"], judges["minReplicas"], judges["maxReplicas"]) == (2, 2, 6)
    assert cluster["enableInTreeAutoscaling"] is True
