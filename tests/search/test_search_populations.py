from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from archive.types import Record
from search.populations import archipelago

Make = Callable[..., Record]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def family(make_record: Make, *lines: tuple[str, float, str]) -> list[Record]:
    """Records made one minute after the other: (id, speedup, parent or "")."""
    return [
        make_record(speed, name, parents=(parent,) if parent else (), created_at=BEGAN + timedelta(minutes=minute))
        for minute, (name, speed, parent) in enumerate(lines)
    ]


def ids(records: object) -> list[str]:
    return [record.record_id for record in records]  # type: ignore[attr-defined]


def test_founders_take_turns_and_children_stay_with_their_parents(make_record: Make) -> None:
    records = family(
        make_record, ("a", 1, ""), ("b", 1, ""), ("c", 1, ""), ("a1", 2, "a"), ("b1", 2, "b"), ("x", 1, "?")
    )
    first, second = archipelago(records, count=2, migration_interval=0)
    assert ids(first.members) == ["a", "c", "a1"]
    assert ids(second.members) == ["b", "b1", "x"]
    assert first.guests == second.guests == ()


def test_the_best_visits_the_next_island_of_the_ring_and_stays_at_home_too(make_record: Make) -> None:
    records = family(make_record, ("a", 3, ""), ("b", 1, ""), ("c", 2, ""))
    islands = archipelago(records, count=3, migration_interval=3)
    assert [ids(island.members) for island in islands] == [["a"], ["b"], ["c"]]
    assert [ids(island.guests) for island in islands] == [["c"], ["a"], ["b"]]
    assert [island.best and island.best.record_id for island in islands] == ["a", "a", "c"]


def test_a_guest_travels_on_at_the_next_migration_only(make_record: Make) -> None:
    records = family(make_record, ("a", 9, ""), ("b", 1, ""), ("c", 2, ""), ("d", 1, "a"), ("e", 1, "b"), ("f", 1, "c"))
    after_three = archipelago(records[:5], count=3, migration_interval=3)
    assert "a" not in ids(after_three[2].guests)
    after_six = archipelago(records, count=3, migration_interval=3)
    assert "a" in ids(after_six[2].guests)


def test_a_child_of_a_guest_lives_where_the_guest_was_made(make_record: Make) -> None:
    """Parents name records, not visits; so a line never splits."""
    records = family(make_record, ("a", 3, ""), ("b", 1, ""), ("child", 4, "a"))
    first, second = archipelago(records, count=2, migration_interval=2)
    assert ids(first.members) == ["a", "child"]
    assert ids(second.guests) == ["a"]


def test_the_order_of_arrival_does_not_matter_and_wrong_kernels_are_no_parents(make_record: Make) -> None:
    records = family(make_record, ("a", 1, ""), ("b", 0, ""), ("c", 2, "a"), ("d", 1.5, "b"))
    islands = archipelago(records, count=2, migration_interval=2)
    assert archipelago(records[::-1], count=2, migration_interval=2) == islands
    assert ids(islands[1].pool) == ["a", "c", "d"]  # a came after two records, c after four; b is wrong


def test_empty_islands_are_there(make_record: Make) -> None:
    islands = archipelago(family(make_record, ("a", 1, "")), count=3, migration_interval=1)
    assert len(islands) == 3
    assert islands[2].best is None
