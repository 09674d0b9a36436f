"""Which records a contrast prompt shows: exemplars of different speed, so that the model can see what makes fast.

Pure functions of (records, settings, generator). Records are put into an order of their own first (training step, then
record_id), so the order in which verdicts arrived does not change what a resumed run draws.

Sources: ``bucket`` is CUDA-L1 (arXiv 2507.14111), contrastive exemplar selection; ``island`` is its evolutionary
alternative, after FunSearch (Romera-Paredes et al., Nature 2024).
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from archive.types import Record
from search.fingerprint import fingerprint
from search.settings import SearchSettings

_fingerprint = functools.lru_cache(maxsize=16384)(fingerprint)  # the same records are offered at every step


def sample_exemplars(records: Sequence[Record], settings: SearchSettings, rng: np.random.Generator) -> list[Record]:
    """At most ``settings.exemplars`` records, the slowest first; fewer when there are not so many.

    Only correct records with a speedup are drawn, and the same code never twice: of copies, the oldest counts.

    Args:
        records: of one task; in any order.
        rng: the same state gives the same records.
    """
    pool = distinct_correct(records)
    drawn = _SAMPLERS[settings.sampler](pool, settings, rng) if pool and settings.exemplars else []
    return sorted(drawn, key=lambda record: (record.score, record.record_id))


def distinct_correct(records: Sequence[Record]) -> list[Record]:
    """The records that may be exemplars, one for each distinct code, the oldest first."""
    pool: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: (record.step or 0, record.record_id)):
        if record.code and math.isfinite(record.score) and record.score > 0:
            pool.setdefault(_fingerprint(record.code), record)
    return list(pool.values())


def buckets(pool: Sequence[Record], settings: SearchSettings) -> list[list[Record]]:
    """Split records into ``bucket_count`` equal intervals of log speedup; the slowest bucket first, no empty ones.

    The intervals span the pool from its slowest to its fastest record. A bucket that overflows ``bucket_capacity``
    loses its worst record for the one that came last; a newcomer that is the worst itself stays, since it is news.
    """
    logs = np.log([record.score for record in pool])
    width = float(np.ptp(logs)) / settings.bucket_count
    filled: dict[int, list[Record]] = {}
    for record, log in zip(pool, logs, strict=True):
        index = min(int((log - logs.min()) / width), settings.bucket_count - 1) if width > 0 else 0
        bucket = filled.setdefault(index, [])
        if len(bucket) == settings.bucket_capacity:
            bucket.remove(min(bucket, key=lambda kept: kept.score))
        bucket.append(record)
    return [filled[index] for index in sorted(filled)]


def islands(pool: Sequence[Record], count: int) -> list[list[Record]]:
    """Spread records over ``count`` islands by a hash of their id, so that a record never moves; no empty ones."""
    filled: dict[int, list[Record]] = {}
    for record in pool:
        digest = hashlib.sha256(record.record_id.encode()).digest()
        filled.setdefault(int.from_bytes(digest[:8], "big") % count, []).append(record)
    return [filled[index] for index in sorted(filled)]


def softmax(scores: Sequence[float], temperature: float) -> np.ndarray:
    """CUDA-L1's P(i) = exp((s_i - mu) / tau) / sum_j exp((s_j - mu) / tau), mu the mean score; shape [n], sums to 1.

    The shift by mu cancels; the largest exponent is taken off instead, so that nothing overflows.
    """
    logits = np.asarray(scores, dtype=float) / temperature
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def _bucket(pool: Sequence[Record], settings: SearchSettings, rng: np.random.Generator) -> list[Record]:
    """Distinct buckets by softmax of their mean score, drawn one after the other; uniform within a bucket."""
    groups = buckets(pool, settings)
    means = [float(np.mean([record.score for record in group])) for group in groups]
    chosen = _draw(means, settings.exemplars, settings.bucket_temperature, rng)
    return [groups[index][rng.integers(len(groups[index]))] for index in chosen]


def _island(pool: Sequence[Record], settings: SearchSettings, rng: np.random.Generator) -> list[Record]:
    """One island, uniformly; from it distinct records by softmax of their score.

    Islands develop apart: a prompt never mixes two of them. One that holds fewer than N records is filled up with the
    best records of the others, as FunSearch reseeds a poor island.
    """
    groups = islands(pool, settings.islands)
    home = groups[rng.integers(len(groups))]
    chosen = _draw([record.score for record in home], settings.exemplars, settings.bucket_temperature, rng)
    drawn = [home[index] for index in chosen]
    shown = {record.record_id for record in drawn}
    founders = sorted((r for r in pool if r.record_id not in shown), key=lambda r: r.score, reverse=True)
    return drawn + founders[: settings.exemplars - len(drawn)]


def _random(pool: Sequence[Record], settings: SearchSettings, rng: np.random.Generator) -> list[Record]:
    chosen = rng.choice(len(pool), size=min(settings.exemplars, len(pool)), replace=False)
    return [pool[index] for index in chosen]


def _none(pool: Sequence[Record], settings: SearchSettings, rng: np.random.Generator) -> list[Record]:
    return []


def _draw(scores: Sequence[float], number: int, temperature: float, rng: np.random.Generator) -> list[int]:
    """Distinct indices: each draw is a softmax over those that are left."""
    left, chosen = list(range(len(scores))), list[int]()
    while left and len(chosen) < number:
        weights = softmax([scores[index] for index in left], temperature)
        chosen.append(left.pop(int(rng.choice(len(left), p=weights))))
    return chosen


_Sampler = Callable[[Sequence[Record], SearchSettings, np.random.Generator], list[Record]]
_SAMPLERS: dict[str, _Sampler] = {"bucket": _bucket, "island": _island, "random": _random, "none": _none}
