import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from archive.types import Record
from judge.types import Status, Verdict
from search.samplers import buckets, distinct_correct, islands, sample_exemplars, softmax
from search.settings import SearchSettings

Make = Callable[..., Record]
SAMPLERS = ("bucket", "island", "random")
DRAWS = 4000


def draw_many(records: list[Record], settings: SearchSettings, number: int = DRAWS) -> Counter[tuple[str, ...]]:
    rng = np.random.default_rng(7)
    return Counter(
        tuple(record.record_id for record in sample_exemplars(records, settings, rng)) for _ in range(number)
    )


def assert_frequencies(seen: Counter[tuple[str, ...]], expected: dict[tuple[str, ...], float]) -> None:
    """Within 4.5 standard deviations of the binomial, and nothing else was seen."""
    assert sum(expected.values()) == pytest.approx(1)
    assert set(seen) <= set(expected)
    number = sum(seen.values())
    for key, p in expected.items():
        assert abs(seen[key] - number * p) <= 4.5 * math.sqrt(number * p * (1 - p)) + 1e-9, key


def test_bucket_sampling_follows_the_hand_computed_probabilities(make_record: Make) -> None:
    # Speedups 1 .. 16 in 4 buckets of log speedup: [1, 2) [2, 4) [4, 8) [8, 16]. Means: 1.25, 3, -, 12.
    records = [make_record(s) for s in (1.0, 1.5, 3.0, 16.0, 8.0)]
    settings = SearchSettings(exemplars=1, bucket_count=4, bucket_temperature=8.0)
    means = [1.25, 3.0, 12.0]
    assert [[r.score for r in b] for b in buckets(distinct_correct(records), settings)] == [
        [1.0, 1.5],
        [3.0],
        [16.0, 8.0],
    ]
    mu = sum(means) / 3
    weights = [math.exp((mean - mu) / 8.0) for mean in means]
    p = [weight / sum(weights) for weight in weights]
    expected = {
        ("r1",): p[0] / 2,
        ("r1.5",): p[0] / 2,
        ("r3",): p[1],
        ("r8",): p[2] / 2,
        ("r16",): p[2] / 2,
    }
    assert_frequencies(draw_many(records, settings), expected)


def test_two_exemplars_come_from_distinct_buckets_without_replacement(make_record: Make) -> None:
    records = [make_record(s) for s in (1.0, 1.1, 4.0, 16.0)]
    settings = SearchSettings(exemplars=2, bucket_count=3, bucket_temperature=10.0)
    w = [math.exp(mean / 10.0) for mean in (1.05, 4.0, 16.0)]
    total = sum(w)
    pairs = {
        (i, j): w[i] / total * w[j] / (total - w[i]) + w[j] / total * w[i] / (total - w[j])
        for i, j in ((0, 1), (0, 2), (1, 2))
    }
    expected = {
        ("r1", "r4"): pairs[0, 1] / 2,
        ("r1.1", "r4"): pairs[0, 1] / 2,
        ("r1", "r16"): pairs[0, 2] / 2,
        ("r1.1", "r16"): pairs[0, 2] / 2,
        ("r4", "r16"): pairs[1, 2],
    }
    assert_frequencies(draw_many(records, settings), expected)


def test_random_is_uniform_over_sets_of_correct_records(make_record: Make) -> None:
    records = [make_record(s) for s in (0.5, 1.0, 2.0, 90.0)]
    pairs = [("r0.5", "r1"), ("r0.5", "r2"), ("r0.5", "r90"), ("r1", "r2"), ("r1", "r90"), ("r2", "r90")]
    seen = draw_many(records, SearchSettings(sampler="random", exemplars=2))
    assert_frequencies(seen, dict.fromkeys(pairs, 1 / 6))


def test_an_island_prompt_stays_on_one_island_drawn_uniformly(make_record: Make) -> None:
    records = [make_record(1 + i / 10, f"id{i:02d}") for i in range(12)]
    groups = islands(distinct_correct(records), 2)
    assert [len(group) for group in groups] and min(len(group) for group in groups) >= 2, "ids fill both islands"
    settings = SearchSettings(sampler="island", islands=2, exemplars=1, bucket_temperature=0.4)
    expected = {}
    for group in groups:
        weights = [math.exp(record.score / 0.4) for record in group]
        expected |= {(r.record_id,): w / sum(weights) / 2 for r, w in zip(group, weights, strict=True)}
    assert_frequencies(draw_many(records, settings), expected)
    home = {record.record_id: number for number, group in enumerate(groups) for record in group}
    for pair in draw_many(records, settings.model_copy(update={"exemplars": 2}), 200):
        assert home[pair[0]] == home[pair[1]]


def test_a_poor_island_is_filled_up_with_the_best_of_the_others(make_record: Make) -> None:
    records = [make_record(s) for s in (1.0, 2.0, 3.0, 4.0, 5.0)]
    settings = SearchSettings(sampler="island", islands=1000, exemplars=2)  # each record alone on its island
    assert len(islands(records, 1000)) == 5
    assert set(draw_many(records, settings, 200)) == {("r1", "r5"), ("r2", "r5"), ("r3", "r5"), ("r4", "r5")}


def test_records_do_not_move_between_islands_when_others_arrive(make_record: Make) -> None:
    first = [make_record(1.0, f"a{i}") for i in range(6)]
    later = first + [make_record(1.0, f"b{i}") for i in range(20)]
    together = {frozenset(r.record_id for r in island if r.record_id.startswith("a")) for island in islands(later, 3)}
    assert {frozenset(r.record_id for r in island) for island in islands(first, 3)} == together - {frozenset()}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_few_records_give_few_exemplars(make_record: Make, sampler: str, number: int) -> None:
    records = [make_record(1.0 + i) for i in range(number)]
    settings = SearchSettings(sampler=sampler, exemplars=3)
    drawn = sample_exemplars(records, settings, np.random.default_rng(0))
    assert len(drawn) == (number if sampler != "bucket" else min(number, 2))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_exemplars_are_distinct_and_ordered_by_score(make_record: Make, sampler: str) -> None:
    records = [make_record(1.0 + i / 3, f"r{i}", code=f"class ModelNew: x = {i % 5}\n") for i in range(40)]
    settings = SearchSettings(sampler=sampler, exemplars=4, bucket_count=8)
    rng = np.random.default_rng(3)
    for _ in range(50):
        drawn = sample_exemplars(records, settings, rng)
        assert [r.score for r in drawn] == sorted(r.score for r in drawn)
        assert len({r.code for r in drawn}) == len(drawn)


def test_the_same_code_counts_once_by_its_oldest_record(make_record: Make) -> None:
    old = make_record(1.5, "z-old", code="class ModelNew:\n    x = 1\n", step=1)
    copy = make_record(1.9, "a-new", code="class ModelNew:  # faster!\n\n    x = 1\n", step=2)
    assert distinct_correct([copy, old]) == [old]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_only_correct_records_with_a_score_are_shown(make_record: Make, sampler: str) -> None:
    wrong = [
        make_record(9.0, f"bad-{status}", verdict=Verdict(status=status, speedup=9.0))
        for status in Status
        if status not in (Status.WIN, Status.CORRECT)
    ]
    unmeasured = make_record(1.0, "none", verdict=Verdict(status=Status.CORRECT))
    good = make_record(0.4, "slow", verdict=Verdict(status=Status.CORRECT, speedup=0.4))
    drawn = sample_exemplars([*wrong, unmeasured, good], SearchSettings(sampler=sampler), np.random.default_rng(0))
    assert drawn == [good]


@pytest.mark.parametrize("settings", [SearchSettings(sampler="none"), SearchSettings(exemplars=0)])
def test_none_shows_nothing(make_record: Make, settings: SearchSettings) -> None:
    assert sample_exemplars([make_record(2.0)], settings, np.random.default_rng(0)) == []


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_draw_depends_on_the_generator_alone_not_on_the_order_of_arrival(make_record: Make, sampler: str) -> None:
    records = [make_record(1 + i / 7, f"r{i}", step=i % 4) for i in range(30)]
    settings = SearchSettings(sampler=sampler)
    first = [sample_exemplars(records, settings, np.random.default_rng(s)) for s in range(20)]
    shuffled = [records[i] for i in np.random.default_rng(1).permutation(30)]
    assert first == [sample_exemplars(shuffled, settings, np.random.default_rng(s)) for s in range(20)]
    assert len({tuple(r.record_id for r in drawn) for drawn in first}) > 5


def test_a_full_bucket_loses_its_worst_for_the_newest(make_record: Make) -> None:
    speeds = [2.0, 2.3, 2.1, 2.2]
    records = [make_record(s, step=step) for step, s in enumerate(speeds)]
    settings = SearchSettings(bucket_count=2, bucket_capacity=2)
    # Buckets split at sqrt(2 * 2.3) = 2.145: {2, 2.1} and {2.3, 2.2} fit; with capacity 1 the newest are left.
    pool = distinct_correct(records)
    assert [[r.score for r in b] for b in buckets(pool, settings)] == [[2.0, 2.1], [2.3, 2.2]]
    tight = settings.model_copy(update={"bucket_capacity": 1})
    assert [[r.score for r in b] for b in buckets(pool, tight)] == [[2.1], [2.2]]
    crowd = [make_record(s, step=step) for step, s in enumerate([1.0, 1.02, 1.01, 9.0])]
    assert [[r.score for r in b] for b in buckets(crowd, settings)] == [[1.02, 1.01], [9.0]]


def test_softmax_does_not_overflow_and_ignores_a_shift() -> None:
    assert softmax([1e6, 0.0], 0.01).tolist() == [1.0, 0.0]
    np.testing.assert_allclose(softmax([1.0, 2.0, 4.0], 0.5), softmax([101.0, 102.0, 104.0], 0.5), rtol=1e-12)
