"""Recorded, replayed, killed, damaged and streamed runs, with the real learner and a scripted engine and judge."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cluster.driver as driver
from cluster.driver import Mode
from cluster.errors import ConfigError
from cluster.recording import ROLLOUTS, read_recording
from tasks.experts import expert_kernels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC and SPEC.loader
SPEC.loader.exec_module(helper := importlib.util.module_from_spec(SPEC))
STEPS, TASKS, ScriptedEngine, scripted = helper.STEPS, helper.TASKS, helper.ScriptedEngine, helper.scripted
config_in, overrides_in, train = helper.config_in, helper.overrides_in, helper.train
batches, losses, weights = helper.batches, helper.losses, helper.weights


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    train(config_in(root), opener=scripted([]))
    return root / "cpu"


def test_a_run_records_what_it_learned_from(recorded: Path) -> None:
    recording = read_recording(recorded)
    assert recording.steps("contrastive") == list(range(1, STEPS + 1))
    assert recording.steps("self_supervised") == [1]
    assert len(recording.experts) == sum(len(expert_kernels(name)) for name in TASKS)
    done = batches(recorded)
    assert len(done) == 2 + 1 + STEPS  # three experts' answers in batches of two, one round, the steps
    assert len(set(done.values())) == len(done)
    for step in recording.steps("contrastive"):
        for group in recording.step_groups("contrastive", step):
            advantages = [answer.advantage for answer in group.answers if answer.advantage is not None]
            assert len(advantages) == 3
            assert abs(sum(advantages)) < 1e-6


def test_a_replay_gives_the_same_batches_losses_and_weights(recorded: Path, tmp_path: Path) -> None:
    train(config_in(tmp_path), mode=Mode(kind="replay", recording=recorded))
    again = tmp_path / "cpu-replay"
    assert batches(again) == batches(recorded)
    assert losses(again) == losses(recorded)
    assert weights(again) == weights(recorded)


def test_fewer_checkpoints_of_the_supervised_stage_change_nothing_but_what_a_kill_costs(
    recorded: Path, tmp_path: Path
) -> None:
    """The engine of a replay takes no weights: three updates and one commit are the same three updates."""
    train(config_in(tmp_path, "sft.commit_every=10"), mode=Mode(kind="replay", recording=recorded))
    again = tmp_path / "cpu-replay"
    assert batches(again) == batches(recorded)
    assert losses(again) == losses(recorded)
    assert weights(again) == weights(recorded)
    lines = [json.loads(line) for line in (again / "metrics.jsonl").read_text().splitlines()]
    synced = [line["step"] for line in lines if line["stage"] == "sft" and "probe_logprob_after" in line]
    assert synced == [max(line["step"] for line in lines if line["stage"] == "sft")]


def test_learning_alone_is_given_the_same_batches(recorded: Path, tmp_path: Path) -> None:
    train(config_in(tmp_path), mode=Mode(kind="learn-only", recording=recorded / ROLLOUTS))
    alone, whole = batches(tmp_path / "cpu-learn-only"), batches(recorded)
    assert alone == {key: value for key, value in whole.items() if key[0] != "sft"}


def test_turns_are_recorded_replayed_and_learned_alone_with_the_same_batches(tmp_path: Path) -> None:
    turns = ("search.turns=3", "run.steps=2", "rollout.max_model_len=4000", "learner.micro_batch_tokens=4096")
    train(config_in(tmp_path, *turns), opener=scripted([]))
    folder = tmp_path / "cpu"
    recording = read_recording(folder)
    for step in (1, 2):
        groups = recording.step_groups("contrastive", step)
        firsts = [group for group in groups if not group.root]
        assert len(firsts) == 2
        assert {(g.turn, len(g.answers)) for g in groups if g.root} <= {(2, 1), (3, 1)}
        for first in firsts:
            family = [group for group in groups if group.root_id == first.prompt.prompt_id]
            seconds = [group for group in family if group.turn == 2]
            assert [group.trajectory for group in seconds] == [0, 1, 2]
            for group in seconds:
                said = group.prompt.messages
                assert said[1]["content"] == first.answers[group.trajectory].completion.text
                assert group.prompt.exemplar_ids == (first.answers[group.trajectory].record_id,)
                thirds = [g for g in family if (g.turn, g.trajectory) == (3, group.trajectory)]
                later = thirds[0].answers[0].earned if thirds else 0.0
                assert group.answers[0].earned == pytest.approx(group.answers[0].reward + 0.4 * later)
            advantages = [answer.advantage for group in family for answer in group.answers]
            assert len(advantages) > 3 + 3
            assert abs(sum(advantages)) < 1e-6
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert set(line["reward_of_turn"]) == {"1", "2", "3"}
    for kind in ("replay", "learn-only"):
        train(config_in(tmp_path, *turns), mode=Mode(kind=kind, recording=folder))
        again = batches(tmp_path / f"cpu-{kind}")
        assert {k: v for k, v in again.items() if k[0] == "contrastive"} == {
            k: v for k, v in batches(folder).items() if k[0] == "contrastive"
        }


def test_a_replay_of_another_configuration_names_the_prompt(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="was another prompt there"):
        train(config_in(tmp_path, "search.exemplars=1"), mode=Mode(kind="replay", recording=recorded))
    with pytest.raises(ConfigError, match="holds no answers to s0007"):
        train(config_in(tmp_path, "run.steps=7"), mode=Mode(kind="replay", recording=recorded))


def test_rollouts_alone_are_recorded_and_learn_nothing(tmp_path: Path) -> None:
    engines: list[ScriptedEngine] = []
    train(config_in(tmp_path, "run.steps=2"), mode=Mode(kind="rollout-only"), opener=scripted(engines, learns=False))
    folder = tmp_path / "cpu-rollout-only"
    assert read_recording(folder).steps("contrastive") == [1, 2]
    assert {version for _, version in engines[0].versions} == {0}
    assert not list((folder / "checkpoints").glob("*")) if (folder / "checkpoints").exists() else True
    train(config_in(tmp_path), mode=Mode(kind="learn-only", recording=folder))
    assert len(batches(tmp_path / "cpu-learn-only")) == 2


def test_killed_at_random_moments_a_run_ends_with_the_same_batches_and_weights(recorded: Path, tmp_path: Path) -> None:
    kills = int(os.environ.get("WARPSMITH_TEST_KILLS", "5"))
    seed = int(os.environ.get("WARPSMITH_TEST_SEED", str(random.SystemRandom().randrange(10**6))))
    print(f"WARPSMITH_TEST_SEED={seed}")
    rng = random.Random(seed)
    folder, killed_at, left = tmp_path / "cpu-replay", [], []
    total = len(batches(recorded))
    # After so many updates each; the time until the next one is done is where the kill falls.
    moments = sorted(rng.choices(range(total), k=kills))
    for attempt, updates in enumerate([*moments, None]):
        log = tmp_path / f"out{attempt}.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("warpsmith"), "train", *overrides_in(tmp_path), "--replay", recorded],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
            )
        try:
            if updates is None:
                assert process.wait(timeout=300) == 0, log.read_text()[-2000:]
                break
            _wait(lambda log=log: b"ready after" in log.read_bytes(), process)
            _wait(lambda updates=updates: _done(folder) >= updates, process)
            time.sleep(rng.uniform(0.0, 0.8))
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed_at.append(_done(folder))
            left += [path.name for path in (folder / "checkpoints").glob("*.tmp")]
        finally:
            process.kill()
    story = f"seed {seed}, killed after updates {killed_at}, of which half a checkpoint was left {len(left)} times"
    print(story)
    # Otherwise nothing but starting anew was tried.
    assert len(set(killed_at)) > 1, story
    assert max(killed_at) > 0, story
    assert batches(folder) == batches(recorded), story
    assert losses(folder) == losses(recorded), story
    assert weights(folder) == weights(recorded), story


def _done(folder: Path) -> int:
    """Updates that the manifest counts."""
    state = json.loads((folder / "state.json").read_text())
    return int(state["sft_updates"] + state["rounds"] + state["step"])


def _wait(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(recorded: Path, tmp_path: Path, damage: str) -> None:
    mode = Mode(kind="replay", recording=recorded)
    train(config_in(tmp_path, "run.steps=4"), mode=mode)
    folder = tmp_path / "cpu-replay"
    newest = folder / "checkpoints" / json.loads((folder / "state.json").read_text())["checkpoint"]
    file = max(newest.rglob("*.pt"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(bytes(content) if damage == "flip" else bytes(content[:100]))
    said = train(config_in(tmp_path), mode=mode)
    assert "continuing" in said
    assert f"checkpoint {newest} is damaged ({file.relative_to(newest)}" in said
    before = f"v{int(newest.name[1:]) - 1:06d}"
    assert f"going on from checkpoint {before}" in said
    assert batches(folder) == batches(recorded)
    assert losses(folder) == losses(recorded)
    assert weights(folder) == weights(recorded)


def test_when_no_checkpoint_is_whole_the_run_says_so(recorded: Path, tmp_path: Path) -> None:
    mode = Mode(kind="replay", recording=recorded)
    train(config_in(tmp_path, "run.steps=2"), mode=mode)
    kept = sorted(path for path in (tmp_path / "cpu-replay" / "checkpoints").iterdir() if path.is_dir())
    assert len(kept) == 3
    for checkpoint in kept:
        (checkpoint / "learner.json").unlink()
    with pytest.raises(ConfigError, match="no whole checkpoint is left"):
        train(config_in(tmp_path), mode=mode)


def test_a_lost_archive_and_a_torn_manifest_are_told(recorded: Path, tmp_path: Path) -> None:
    mode = Mode(kind="replay", recording=recorded)
    train(config_in(tmp_path, "run.steps=3"), mode=mode)
    folder = tmp_path / "cpu-replay"
    whole = (folder / "state.json").read_text()
    (folder / "state.json").write_text(whole[: len(whole) // 2])
    said = train(config_in(tmp_path, "run.steps=4"), mode=mode)
    assert "state.json is unreadable, its copy beside v" in said
    assert batches(folder) == {k: v for k, v in batches(recorded).items() if k[0] != "contrastive" or k[1] <= 4}
    for file in folder.glob("archive.db*"):
        file.unlink()
    with pytest.raises(ConfigError, match="the archive holds 0 records"):
        train(config_in(tmp_path), mode=mode)


def _streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.judging import judge_experts
    from cluster.stages import self_supervised_round, supervised_updates
    from cluster.streaming import stream_steps

    def loop(run: Any, mode: Mode) -> None:
        judge_experts(run)
        supervised_updates(run)
        while run.state.rounds < run.config.self_supervised.rounds:
            self_supervised_round(run)
        stream_steps(run)

    monkeypatch.setattr(driver, "_loop", loop)


def test_a_stream_without_staleness_is_the_run_that_takes_turns(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _streamed(monkeypatch)
    train(config_in(tmp_path), opener=scripted([]), run_id=read_recording(recorded).run_id)
    assert batches(tmp_path / "cpu") == batches(recorded)
    assert losses(tmp_path / "cpu") == losses(recorded)
    assert weights(tmp_path / "cpu") == weights(recorded)


@pytest.mark.parametrize(
    ("lag", "stop_at"), [(1, "s0005"), pytest.param(2, "s0003", marks=pytest.mark.nightly), (2, "s0006")]
)
def test_a_streams_rollouts_are_behind_by_exactly_the_lag_also_after_an_interruption(
    tmp_path: Path, lag: int, stop_at: str
) -> None:
    options = (f"run.max_staleness={lag}", "learner.keep_versions=4")
    whole: list[ScriptedEngine] = []
    train(config_in(tmp_path / "a", *options), opener=scripted(whole))
    folder = tmp_path / "a" / "cpu"
    after = {0: 0}  # contrastive step -> version after it
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        after[line["step"] if line["stage"] == "contrastive" else 0] = line["policy_version"]
        if line["stage"] == "contrastive":
            assert line["learner"]["policy_age_max"] <= lag
    used = {int(prompt[1:5]): version for prompt, version in whole[0].versions if prompt[0] == "s"}
    assert used == {step: after[max(0, step - 1 - lag)] for step in range(1, STEPS + 1)}

    run_id = read_recording(folder).run_id
    with pytest.raises(KeyboardInterrupt):
        train(config_in(tmp_path / "b", *options), opener=scripted([], stop_at=stop_at), run_id=run_id)
    train(config_in(tmp_path / "b", *options), opener=scripted([]))
    assert batches(tmp_path / "b" / "cpu") == batches(folder)
    assert weights(tmp_path / "b" / "cpu") == weights(folder)
