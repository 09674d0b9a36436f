"""rollouts.jsonl: what is written is read back exactly, and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster.batches import batch_hash, samples_of, score_groups
from cluster.errors import ConfigError
from cluster.recording import UNPARSED, Answer, ExpertVerdict, Group, Recorder, read_recording
from cluster.rollout_view import show_groups
from judge.types import Status, Verdict
from learner.rewards import RunningReward
from learner.settings import RewardSettings
from search.types import Completion, Prompt


def answer(index: int, status: Status = Status.CORRECT, speedup: float | None = None, **changes: object) -> Answer:
    rng = np.random.default_rng(index)
    length = 4 + index
    completion = Completion(
        prompt_id="s0001-0-relu",
        index=index,
        text=f"answer {index}\n\tcode \x1b[31m é\n",
        prompt_token_ids=(5, 6, 7),
        token_ids=tuple(range(length)),
        logprobs=tuple(float(np.float32(value)) for value in -rng.random(length)),
        finish_reason="stop",
        policy_version=3,
    )
    verdict = Verdict(status=status, speedup=speedup, message="no\nreason" if speedup is None else "")
    return Answer(completion=replace(completion, **changes), record_id=f"{index:032x}", verdict=verdict)  # type: ignore[arg-type]


def group(*answers: Answer, step: int = 1, number: int = 0) -> Group:
    prompt = Prompt(
        prompt_id=f"s{step:04d}-{number}-relu",
        task_name="relu",
        operator="contrast",
        messages=({"role": "user", "content": "make it fast"},),
        exemplar_ids=("e" * 32,),
    )
    return Group(
        run_id="run", stage="contrastive", step=step, task_name="relu", task_id="id", prompt=prompt, answers=answers
    )


MIXED = (answer(0, speedup=2.0), answer(1, Status.INCORRECT), answer(2, Status.JUDGE_ERROR), answer(3, speedup=0.5))


def write(folder: Path, *lines: Group | ExpertVerdict) -> Path:
    recorder = Recorder(folder)
    recorder.write(*lines)
    recorder.close()
    return folder


def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    expert = ExpertVerdict(run_id="run", record_id="x", verdict=Verdict(status=Status.WIN, speedup=1 / 3))
    (scored,) = score_groups([group(*MIXED)], RewardSettings(), RunningReward(1.5), 100)
    recording = read_recording(write(tmp_path, expert, scored))
    assert list(recording.groups.values()) == [scored]
    assert recording.experts == {"x": expert}
    assert recording.run_id == "run"
    assert recording.verdicts()["x"] == expert.verdict
    assert recording.verdicts()[f"{3:032x}"].speedup == 0.5
    settings = RewardSettings()
    assert batch_hash(samples_of([*recording.groups.values()], settings)) == batch_hash(samples_of([scored], settings))


def test_a_group_written_again_counts_once_and_a_torn_line_not_at_all(tmp_path: Path) -> None:
    first, second = group(answer(0, speedup=1.0)), group(answer(0, speedup=1.0), number=1)
    write(tmp_path, first, second, group(answer(0, speedup=1.0), step=2))
    with (tmp_path / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"kind": "group", "run')
    write(tmp_path, group(answer(0, speedup=9.0)))
    recording = read_recording(tmp_path)
    assert len(recording.groups) == 3
    assert recording.steps("contrastive") == [1, 2]
    assert [g.prompt.prompt_id for g in recording.step_groups("contrastive", 1)] == ["s0001-1-relu", "s0001-0-relu"]
    assert recording.step_groups("contrastive", 1)[1].answers[0].verdict.speedup == 9.0


def test_bad_recordings_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recording(tmp_path / "none")
    (tmp_path / "rollouts.jsonl").write_text("")
    with pytest.raises(ConfigError, match="holds no group"):
        read_recording(tmp_path)
    (tmp_path / "rollouts.jsonl").write_text('{"kind": "group", "step": "x"}\n')
    with pytest.raises(ConfigError, match="line 1 is no group") as error:
        read_recording(tmp_path)
    assert "\n" not in str(error.value)


def test_rewards_and_advantages_by_hand_and_a_judge_error_is_left_out() -> None:
    settings = RewardSettings(advantage="dr_grpo", partial_credit={"incorrect": 0.5})
    (scored,) = score_groups([group(*MIXED)], settings, RunningReward(1.5), 100)
    # rewards 2, 0.5, 0.5: mu 1, sigma sqrt(0.5): smoothed sqrt 2, -sqrt 0.5, -sqrt 0.5, whose mean is 0
    assert [a.reward for a in scored.answers] == [2.0, 0.5, None, 0.5]
    expected = [2**0.5, -(0.5**0.5), None, -(0.5**0.5)]
    for a, value in zip(scored.answers, expected, strict=True):
        assert a.smoothed == (value if value is None else pytest.approx(value))
        assert a.advantage == (value if value is None else pytest.approx(value))
    assert [len(sample.completion_ids) for sample in samples_of([scored], settings)] == [4, 5, 7]


@pytest.mark.parametrize(("overlong", "rewards", "used"), [("keep", 2.0, 2), ("mask", 2.0, 1), ("penalise", 1.4, 2)])
def test_cut_answers_are_kept_masked_or_penalised(overlong: str, rewards: float, used: int) -> None:
    # 20 tokens of at most 22, buffer 5: (22 - 5 - 20) / 5 = -0.6
    cut = answer(0, speedup=2.0, finish_reason="length", token_ids=(1,) * 20, logprobs=(-1.0,) * 20)
    settings = RewardSettings(overlong=overlong, overlong_buffer=5)  # type: ignore[arg-type]
    (scored,) = score_groups([group(cut, answer(1, speedup=1.0))], settings, RunningReward(1.5), 22)
    assert scored.answers[0].reward == pytest.approx(rewards)
    assert scored.answers[1].reward == 1.0
    assert len(samples_of([scored], settings)) == used


def test_turns_of_all_trajectories_are_one_group_and_later_ones_count_for_earlier_by_hand() -> None:
    settings = RewardSettings(advantage="dr_grpo", turn_discount=0.5)
    first = group(answer(0, Status.INCORRECT), answer(1, speedup=1.0))
    later = [
        replace(group(answer(0, speedup=speedup)), turn=turn, root="s0001-0-relu", trajectory=trajectory)
        for turn, trajectory, speedup in ((2, 0, 2.0), (2, 1, 3.0), (3, 1, 4.0))
    ]
    later = [replace(g, prompt=replace(g.prompt, prompt_id=f"s0001-0-relu.t{g.turn}.{g.trajectory}")) for g in later]
    scored = score_groups([first, *later], settings, RewardStatistics(), 100)
    # trajectory 0: 0, 2; trajectory 1: 1, 3, 4
    earned = [[0 + 0.5 * 2, 1 + 0.5 * 3 + 0.25 * 4], [2], [3 + 0.5 * 4], [4]]
    mean = (1 + 3.5 + 2 + 5 + 4) / 5
    assert [[a.reward for a in g.answers] for g in scored] == [[0, 1], [2], [3], [4]]
    assert [[a.earned for a in g.answers] for g in scored] == earned
    advantages = [[a.advantage for a in g.answers] for g in scored]
    assert advantages == [[pytest.approx(value - mean) for value in values] for values in earned]
    samples = samples_of(scored, settings)
    assert [s.group_id for s in samples][:3] == ["s0001-0-relu", "s0001-0-relu", "s0001-0-relu.t2.0"]
    # another prompt's trajectories are measured by themselves
    other = replace(first, prompt=replace(first.prompt, prompt_id="s0001-1-relu"))
    assert score_groups([first, *later, other], settings, RewardStatistics(), 100)[:-1] == scored


class RewardStatistics(RunningReward):
    """Smooths nothing."""

    def __init__(self) -> None:
        super().__init__(1.5)

    def smooth_group(self, task_name: str, rewards: Sequence[float]) -> list[float]:
        return list(rewards)


def test_an_unparsed_answer_is_told_from_one_that_does_not_compile() -> None:
    verdict = Verdict(status=Status.COMPILE_ERROR, flags=(UNPARSED,))
    assert replace(answer(0), verdict=verdict).status == "unparsed"
    assert answer(0, Status.COMPILE_ERROR).status == "compile_error"


@pytest.mark.parametrize("width", [50, 80, 200])
def test_answers_stand_side_by_side_with_verdict_and_advantage(width: int) -> None:
    (scored,) = score_groups([group(*MIXED)], RewardSettings(), RunningReward(1.5), 100)
    lines = list(show_groups([scored], width=width))
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    assert "\x1b" not in text
    for words in ("s0001-0-relu", "exemplar eee", "> make it fast", "#0 correct 2.00x", "#2 judge_error", "weights 3"):
        assert words in text
    assert f"advantage {scored.answers[0].advantage:+.3f}" in text
    assert "advantage none" in text
    if width == 200:
        assert any("#0" in line and "#3" in line for line in lines)
