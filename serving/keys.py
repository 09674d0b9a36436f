"""API keys: what a key may do, and how often. The database holds their hashes, never a key.

    key, secret = keys.create("ci", scopes=("optimize",), requests_per_minute=60, concurrent=4)
    keys.find(secret)          # the key, or None
    keys.revoke(key.key_id)

A secret holds 256 random bits, so one round of SHA-256 is enough: there is no list of likely secrets to try.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from archive.store import Archive
from serving.tables import ensure_tables
from warpsmith import WarpsmithError

SCOPES = ("optimize", "complete", "judge", "admin")
"""optimize: jobs of one's own. complete: the policy. judge: /v1/judge. admin: everything, others' jobs and weights."""
PREFIX = "wsk_"
CACHE_SECONDS = 5.0
"""How late a revoked key is noticed."""

_metadata = sa.MetaData()
_keys = sa.Table(
    "serving_keys",
    _metadata,
    sa.Column("key_id", sa.String(32), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("requests_per_minute", sa.Integer, nullable=False),
    sa.Column("concurrent", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("revoked_at", sa.Double),
)


class ApiKeyError(WarpsmithError):
    """A key cannot be made or found; the text says why."""


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """What is known of a key; its secret is not."""

    key_id: str
    name: str
    scopes: tuple[str, ...]
    requests_per_minute: int
    concurrent: int
    """Requests in hand at a time; of jobs, how many may wait or run."""
    created_at: float
    revoked_at: float | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


class KeyStore:
    """The keys of a database. Every method raises ArchiveError when that fails."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        ensure_tables(archive, _metadata)

    def create(
        self, name: str, *, scopes: Sequence[str], requests_per_minute: int = 600, concurrent: int = 32
    ) -> tuple[ApiKey, str]:
        """A new key and its secret, which is shown here and never again. Raises ApiKeyError for a scope unknown."""
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            what = f"unknown scope {unknown[0]}" if unknown else "a key needs a scope"
            raise ApiKeyError(f"{what}: known are {', '.join(SCOPES)}")
        secret = PREFIX + secrets.token_urlsafe(32)
        key = ApiKey(
            key_id=secrets.token_hex(4),
            name=" ".join(name.split())[:64],
            scopes=tuple(dict.fromkeys(scopes)),
            requests_per_minute=requests_per_minute,
            concurrent=concurrent,
            created_at=time.time(),
        )
        row = {**key.__dict__, "scopes": list(key.scopes), "sha256": _hash(secret)}
        with self._archive.connection(write=True) as connection:
            connection.execute(sa.insert(_keys).values(row))
        return key, secret

    def find(self, secret: str) -> ApiKey | None:
        """The key of this secret, unless it is revoked."""
        with self._archive.connection() as connection:
            query = sa.select(_keys).where(_keys.c.sha256 == _hash(secret), _keys.c.revoked_at.is_(None))
            row = connection.execute(query).mappings().first()
        return _from_row(row) if row else None

    def all(self) -> list[ApiKey]:
        """Every key, revoked ones too, the oldest first."""
        with self._archive.connection() as connection:
            rows = connection.execute(sa.select(_keys).order_by(_keys.c.created_at)).mappings().all()
        return [_from_row(row) for row in rows]

    def any(self) -> bool:
        """Whether a key was ever made: revoking the last one opens nothing."""
        with self._archive.connection() as connection:
            return connection.execute(sa.select(_keys.c.key_id).limit(1)).first() is not None

    def revoke(self, key_id: str) -> ApiKey:
        """The key is refused from now on (by a running service within CACHE_SECONDS). Raises ApiKeyError if unknown."""
        with self._archive.connection(write=True) as connection:
            valid = sa.and_(_keys.c.key_id == key_id, _keys.c.revoked_at.is_(None))
            changed = connection.execute(sa.update(_keys).where(valid).values(revoked_at=time.time())).rowcount
            row = connection.execute(sa.select(_keys).where(_keys.c.key_id == key_id)).mappings().first()
        if not changed or row is None:
            raise ApiKeyError(f"{key_id}: no such key, or revoked already; `warpsmith keys list` shows them")
        return _from_row(row)


class CachedKeys:
    """A KeyStore for every request: remembers what it found for CACHE_SECONDS, and at most so many secrets' hashes."""

    MOST = 4096

    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self._found: dict[str, tuple[float, ApiKey | None]] = {}
        self._any: tuple[float, bool] = (0.0, False)

    def find(self, secret: str) -> ApiKey | None:
        """As KeyStore.find; a revoked key may be found a little longer."""
        digest, now = _hash(secret), time.monotonic()
        until, key = self._found.get(digest, (0.0, None))
        if now < until:
            return key
        key = self._store.find(secret)
        if len(self._found) >= self.MOST:
            self._found.clear()
        self._found[digest] = (now + CACHE_SECONDS, key)
        return key

    def any(self) -> bool:
        """As KeyStore.any; the first key may be noticed a little later."""
        until, known = self._any
        if not known and time.monotonic() >= until:
            known = self._store.any()
            self._any = (time.monotonic() + CACHE_SECONDS, known)
        return known


@dataclass
class _Usage:
    tokens: float
    at: float
    inside: int = 0


@dataclass
class Limiter:
    """Requests of each key: a bucket that fills evenly, and a number at a time."""

    clock: Any = time.monotonic
    _usage: dict[str, _Usage] = field(default_factory=dict)

    def enter(self, key: ApiKey) -> float:
        """0 when the request may pass (then `leave` must follow), else the seconds to wait before another try."""
        now = self.clock()
        most = float(key.requests_per_minute)
        usage = self._usage.setdefault(key.key_id, _Usage(tokens=most, at=now))
        usage.tokens = min(most, usage.tokens + (now - usage.at) * most / 60)
        usage.at = now
        if usage.inside >= key.concurrent:
            return 1.0
        if usage.tokens < 1:
            return (1 - usage.tokens) * 60 / most
        usage.tokens -= 1
        usage.inside += 1
        return 0.0

    def leave(self, key: ApiKey) -> None:
        self._usage[key.key_id].inside -= 1


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _from_row(row: Any) -> ApiKey:
    fields = {name: row[name] for name in ApiKey.__dataclass_fields__}
    return ApiKey(**{**fields, "scopes": tuple(row["scopes"])})
