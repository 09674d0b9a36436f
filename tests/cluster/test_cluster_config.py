"""The configuration: what is read, what is refused, in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.config import Config, known_keys, load_config
from cluster.errors import ConfigError


def test_the_embedded_preset_loads_and_differs_from_bare_defaults() -> None:
    config = load_config()
    assert config.run.name == "cpu"
    assert config.learner.reward.partial_credit["incorrect"] > 0
    assert Config().learner.reward.partial_credit == {}


def test_overrides_take_toml_values_and_bare_words() -> None:
    config = load_config(None, ["learner.lr=1e-5", "run.name=mine", 'tasks.names=["a", "b"]', "learner.lora.rank=4"])
    assert config.learner.lr == 1e-5
    assert config.run.name == "mine"
    assert config.tasks.names == ("a", "b")
    assert config.learner.lora.rank == 4


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("learner.lrr=1", "unknown key learner.lrr: did you mean learner.lr?"),
        ("lr=2", "unknown key lr: did you mean learner.lr?"),
        ("learner.lr=-1", "learner.lr = -1"),
        ("learner=3", "learner is a section"),
        ("learner.lr", "write section.key=value"),
        ("run.name=a/b", "run.name"),
        ("rollout.max_tokens=4000", "exceed rollout.max_model_len"),
        ("learner.micro_batch_tokens=1024", "is below rollout.max_model_len"),
    ],
)
def test_a_wrong_override_is_one_line_that_names_the_key(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, [override])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[run\n")
    with pytest.raises(ConfigError, match=r"bad\.toml: not valid TOML"):
        load_config(bad)
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_config(tmp_path / "absent.toml")
    bad.write_text("[judge]\npair = 3\n")
    with pytest.raises(ConfigError, match=r"unknown key judge\.pair: did you mean judge\.pairs"):
        load_config(bad)


def test_the_json_of_a_config_gives_the_same_config() -> None:
    config = load_config()
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_every_key_can_be_set_by_an_override_of_its_own_default() -> None:
    import json

    defaults = json.loads(Config().model_dump_json())
    for key in known_keys():
        value = defaults
        for part in key.split("."):
            value = value[part]
        if value is None or isinstance(value, dict):
            continue
        assert load_config(None, [f"{key}={json.dumps(value)}"]), key
