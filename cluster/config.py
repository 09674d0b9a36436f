"""The configuration: one pydantic model a room, composed here, read from TOML with dotted overrides.

config = load_config("configs/cpu.toml", ["learner.lr=1e-5", "run.name=mine"])
"""

from __future__ import annotations

import difflib
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from actors.settings import EvaluatorSettings, PlacementSettings, RolloutSettings, Timeouts
from cluster.errors import ConfigError
from cluster.stage_settings import SelfSupervisedSettings, SftSettings
from judge.settings import JudgeSettings
from learner.settings import LearnerSettings
from search.backends import DEVICES
from search.settings import EvolutionSettings, SearchSettings
from serving.settings import ServingSettings

DEFAULT_PRESET = "cpu.toml"


class RunSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("cpu", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Folder of the run under `folder`."""
    folder: str = "runs"
    seed: int = Field(0, ge=0)
    steps: int = Field(3, ge=0)
    """Contrastive steps: rollout, judge, learn, sync."""
    tasks_per_step: int = Field(4, ge=1)
    sft_epochs: int = Field(0, ge=0)
    """Supervised passes over the expert kernels before the first contrastive step."""
    sft_batch: int = Field(8, ge=1)
    """Samples of one supervised update."""
    max_staleness: int = Field(0, ge=0)
    """Updates that a rollout's weights may be behind. 0 takes turns; n samples and judges the next n steps while the
    learner works, step k always with the weights after update k - 1 - n, so that a run can be repeated."""
    record_rollouts: bool = True
    """Keep every answer with its logprobs and verdict in rollouts.jsonl (about 20 kB an answer of 700 tokens)."""
    learner_restarts: int = Field(3, ge=0)
    """How often in a row, without an update between, a lost learner is started again from the last checkpoint."""
    min_free_disk_gb: float = Field(3.0, ge=0)
    """Refuse to start with less on the run's disk."""


class ModelSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = "smollm2-135m-instruct"
    """A Hugging Face folder, or a name that learner.pretrained knows."""


class TaskSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    names: tuple[str, ...] = ()
    """Suite names, task files, folders, task packages, procedural:SPLIT:COUNT; empty means the whole suite."""
    expert_records: bool = True
    """The archive starts with the suite's expert kernels, judged on this machine."""


class TrackingSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    wandb: Literal["auto", "online", "offline", "off"] = "auto"
    """auto: online with a WANDB_API_KEY, else offline."""
    project: str = "warpsmith"
    entity: str | None = None
    artifacts: Literal["none", "data", "all"] = "data"
    """What W&B is given at the end beside the table of kernels: data is rollouts.jsonl, all the newest weights too."""
    tensorboard: bool = False
    """Also write event files to <run>/tensorboard."""


class Config(BaseModel):
    """Everything a run is made of. Frozen; its JSON lies beside each run as config.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: RunSettings = RunSettings()
    model: ModelSettings = ModelSettings()
    tasks: TaskSettings = TaskSettings()
    judge: JudgeSettings = JudgeSettings()
    search: SearchSettings = SearchSettings()
    evolution: EvolutionSettings = EvolutionSettings()
    rollout: RolloutSettings = RolloutSettings()
    evaluators: EvaluatorSettings = EvaluatorSettings()
    learner: LearnerSettings = LearnerSettings()
    sft: SftSettings = SftSettings()
    self_supervised: SelfSupervisedSettings = SelfSupervisedSettings()
    placement: PlacementSettings = PlacementSettings()
    timeouts: Timeouts = Timeouts()
    tracking: TrackingSettings = TrackingSettings()
    serving: ServingSettings = ServingSettings()


def load_config(path: str | Path | None = None, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """Read a TOML file (None: the embedded configs/cpu.toml) and apply `section.key=value` overrides.

    Raises ConfigError in one line: no such file, not TOML, an unknown key with the nearest known one, a bad value.
    """
    text, where = _read(path)
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not valid TOML: {error}") from None
    _check_keys(raw, Config, where)
    for override in overrides:
        _apply_override(raw, override)
    _follow_backend(raw)
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {key} = {first['input']!r}: {first['msg']}") from None
    _check_lengths(config, where)
    return config


def _follow_backend(raw: dict[str, Any]) -> None:
    """Candidates are judged where their language runs, unless the file says where."""
    backend = raw.get("search", {}).get("backend")
    if isinstance(backend, str) and backend in DEVICES:
        raw.setdefault("judge", {}).setdefault("device", DEVICES[backend])


def _check_lengths(config: Config, where: str) -> None:
    prompt, answer, context = config.search.max_prompt_tokens, config.rollout.max_tokens, config.rollout.max_model_len
    if prompt + answer > context:
        raise ConfigError(
            f"{where}: search.max_prompt_tokens ({prompt}) + rollout.max_tokens ({answer}) exceed "
            f"rollout.max_model_len ({context}): lower one or raise the last"
        )
    if config.run.max_staleness and config.rollout.channel == "memory":
        raise ConfigError(
            f'{where}: rollout.channel = "memory" keeps one version, run.max_staleness = {config.run.max_staleness} '
            'needs older ones: set rollout.channel = "file", or run.max_staleness = 0'
        )
    stale, kept = config.run.max_staleness, config.learner.keep_versions
    if kept < stale + 2 and stale:
        raise ConfigError(
            f"{where}: learner.keep_versions ({kept}) is below run.max_staleness + 2 ({stale + 2}): a resumed run "
            "could not find the weights that its rollouts began with; raise it"
        )
    longest = config.learner.micro_batch_tokens
    if longest < context:
        raise ConfigError(
            f"{where}: learner.micro_batch_tokens ({longest}) is below rollout.max_model_len ({context}): "
            "a sample of full length would not fit; raise it"
        )


def _read(path: str | Path | None) -> tuple[str, str]:
    if path is None:
        return (resources.files("configs") / DEFAULT_PRESET).read_text(), f"configs/{DEFAULT_PRESET}"
    file = Path(path)
    try:
        return file.read_text(), str(path)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def _apply_override(raw: dict[str, Any], override: str) -> None:
    key, sign, value = override.partition("=")
    if not sign or not key:
        raise ConfigError(f"override {override!r}: write section.key=value, such as learner.lr=1e-5")
    *sections, last = key.strip().split(".")
    parsed = _parse_value(value.strip())
    nested: dict[str, Any] = {last: parsed}
    for section in reversed(sections):
        nested = {section: nested}
    _check_keys(nested, Config, f"override {override!r}")
    place = raw
    for section in sections:
        place = place.setdefault(section, {})
    place[last] = parsed


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a bare word is a string: run.name=mine


def _check_keys(raw: dict[str, Any], model: type[BaseModel], where: str, prefix: str = "") -> None:
    for key, value in raw.items():
        name = f"{prefix}{key}"
        if key not in model.model_fields:
            raise ConfigError(f"{where}: unknown key {name}{_nearest(name, key, model, prefix)}")
        kind = model.model_fields[key].annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: {name} is a section: write [{name}] or {name}.key = value")
            _check_keys(value, kind, where, f"{name}.")


def _nearest(name: str, key: str, model: type[BaseModel], prefix: str) -> str:
    siblings = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=0.6)
    if siblings:
        return f": did you mean {prefix}{siblings[0]}?"
    everywhere = difflib.get_close_matches(name, known_keys(), n=1, cutoff=0.5)
    same_leaf = [known for known in known_keys() if known.rsplit(".", 1)[-1] == key]
    found = same_leaf[:1] or everywhere
    return f": did you mean {found[0]}?" if found else f": known here are {', '.join(sorted(model.model_fields))}"


def known_keys(model: type[BaseModel] = Config, prefix: str = "") -> list[str]:
    """Every dotted key of the schema."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += known_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys
