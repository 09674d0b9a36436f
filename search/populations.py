"""Islands: groups of kernels that develop apart and exchange their best now and then.

The population of a task is a function of its records alone, so there is no state to save: a resumed search reads the
same islands off the archive. A record without a known parent founds a line on an island of its own turn; a child lives
where its first parent lives; after every `migration_interval` records the best kernel of each island visits the next
one of the ring, without leaving its own. (Islands and migration as in FunSearch, Romera-Paredes et al., Nature 2024,
and AlphaEvolve; the ring is the classical topology of island models.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from archive.types import Record
from search.lineage import made
from search.samplers import distinct_correct


@dataclass(frozen=True)
class Island:
    """One group. ``members`` were made here, ``guests`` came from the neighbour."""

    members: tuple[Record, ...] = ()
    guests: tuple[Record, ...] = ()

    @property
    def pool(self) -> list[Record]:
        """Distinct correct kernels that may be parents here, the oldest first."""
        return distinct_correct([*self.members, *self.guests])

    @property
    def best(self) -> Record | None:
        """The fastest of the pool; of equally fast ones the oldest."""
        return max(self.pool, key=lambda record: record.score, default=None)


@dataclass
class _Growing:
    members: list[Record] = field(default_factory=list)
    guests: dict[str, Record] = field(default_factory=dict)

    def freeze(self) -> Island:
        return Island(tuple(self.members), tuple(self.guests.values()))


def archipelago(records: Sequence[Record], *, count: int, migration_interval: int, migrants: int = 1) -> list[Island]:
    """The islands of a task's records.

    Args:
        records: of one task; in any order (they are put into the order in which they were made).
        count: islands; always so many come back, empty ones too.
        migration_interval: records between two migrations; 0 for none.
        migrants: how many of an island's best visit its neighbour.
    """
    growing = [_Growing() for _ in range(count)]
    home: dict[str, int] = {}
    founded = 0
    ordered = sorted(records, key=made)
    for number, record in enumerate(ordered, start=1):
        known = next((home[parent] for parent in record.parents if parent in home), None)
        if known is None:
            known, founded = founded % count, founded + 1
        home[record.record_id] = known
        growing[known].members.append(record)
        if migration_interval and number % migration_interval == 0:
            _migrate(growing, migrants)
    return [island.freeze() for island in growing]


def _migrate(growing: list[_Growing], migrants: int) -> None:
    """All leave at once: who arrives now does not travel on before the next migration."""
    leaving = [_best(island, migrants) for island in growing]
    for index, travellers in enumerate(leaving):
        target = growing[(index + 1) % len(growing)]
        for record in travellers:
            if record not in target.members:
                target.guests.setdefault(record.record_id, record)


def _best(island: _Growing, number: int) -> list[Record]:
    pool = island.freeze().pool
    return sorted(pool, key=lambda record: (-record.score, made(record)))[:number]
