"""Which weights the policy serves: a row in the archive's database, which every engine looks at.

So engines that autoscaling adds, and those of a restarted service, begin with the weights that were put last.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import sqlalchemy as sa

from archive.store import Archive
from serving.tables import ensure_tables

if TYPE_CHECKING:
    from learner.types import WeightsVersion

_metadata = sa.MetaData()
_board = sa.Table(
    "serving_weights",
    _metadata,
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Text, nullable=False),
)
_ONLY = 0


class WeightsBoard:
    """Every method raises ArchiveError when the database fails."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        ensure_tables(archive, _metadata)

    def put(self, version: WeightsVersion) -> None:
        """Engines take this version as soon as they see it."""
        fields = {"policy_version": version.policy_version, "path": version.path, "sha256": version.sha256}
        with self._archive.connection(write=True) as connection:
            connection.execute(sa.delete(_board))
            connection.execute(sa.insert(_board).values(place=_ONLY, version=json.dumps(fields)))

    def current(self) -> WeightsVersion | None:
        """What was put last; None when the model's own weights are served."""
        from learner.types import WeightsVersion

        with self._archive.connection() as connection:
            text = connection.execute(sa.select(_board.c.version)).scalar()
        return None if text is None else WeightsVersion(**json.loads(text))
