"""Commands about archives: archive stats, query, export, import, merge, verify, gc; site."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.arguments import find_record, open_archive, read_source
from cluster.errors import ConfigError

if TYPE_CHECKING:
    from archive.types import Record

WhereOption = Annotated[
    str | None,
    typer.Option("--archive", "-a", help="A run (folder or name), a database file or URL; the newest run if left out."),
]

archive_app = typer.Typer(help="The archive of judged candidates: stats, query, export, import, merge, verify, gc.")


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.add_typer(archive_app, name="archive")
    app.command()(site)


@archive_app.command("stats")
def archive_stats(where: WhereOption = None) -> None:
    """How many records there are, by task and status, and the best of each task."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    with open_archive(where) as archive:
        counts = archive.status_counts()
        best = {task_id: archive.best(task_id) for task_id in counts}
        names = {task_id: archive.records(task_id=task_id, limit=1)[0].task_name for task_id in counts}
        summary = archive.summary()
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("task", "records", "statuses", "best", "by"):
        table.add_column(column)
    for task_id, top in best.items():
        table.add_row(
            names[task_id],
            str(counts[task_id].total()),
            ", ".join(f"{count} {status}" for status, count in counts[task_id].most_common()),
            _speedup(top) if top else "none correct",
            top.source if top else "",
        )
    console = Console(highlight=False)
    console.print(table)
    sources: Counter[str] = Counter()
    for (source, _), count in summary.counts.items():
        sources[source] += count
    console.print(
        f"{sources.total()} records: " + ", ".join(f"{count} by {name}" for name, count in sources.most_common())
    )


@archive_app.command("query")
def archive_query(
    where: WhereOption = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    status: Annotated[str | None, typer.Option(help="Only with this verdict, such as win.")] = None,
    source: Annotated[str | None, typer.Option(help="Only written by: expert, policy, ...")] = None,
    step: Annotated[int | None, typer.Option(help="Only of this training step.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many, the oldest first.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Whole records, one JSON object a line.")] = False,
    similar_to: Annotated[
        str | None, typer.Option(help="The most similar first, to a kernel file or a record; 10, or --limit.")
    ] = None,
) -> None:
    """List records, the oldest first, or the most similar first."""
    from judge.types import Status

    if status is not None and status not in list(Status):
        raise ConfigError(f"--status {status}: there are {', '.join(Status)}")
    with open_archive(where) as archive:
        cut = None if similar_to else limit
        records = archive.records(task_name=task, status=status, source=source, step=step, limit=cut)
        notes: dict[str, str] = {}
        if similar_to is not None:
            from archive.similarity import index_of

            given = Path(similar_to)
            code = read_source(given) if given.is_file() else find_record(archive, similar_to).code
            matches = index_of(archive, records).nearest(code, limit or 10)
            by_id = {record.record_id: record for record in records}
            records = [by_id[match.record_id] for match in matches]
            notes = {match.record_id: f"{match.similarity:.3f}  " for match in matches}
    for record in records:
        typer.echo(record.model_dump_json() if as_json else notes.get(record.record_id, "") + record_line(record))


@archive_app.command("export")
def archive_export(
    out: Annotated[Path, typer.Argument(help="A .parquet file, or for --published a folder; made if missing.")],
    where: WhereOption = None,
    published: Annotated[
        bool, typer.Option("--published", help="The AI CUDA Engineer's 19 columns, one file a level.")
    ] = False,
) -> None:
    """Write the archive as Parquet, with a dataset card beside it."""
    from archive.dataset import export_full, export_published

    with open_archive(where) as archive:
        written = export_published(archive, out) if published else export_full(archive, out)
    typer.echo(f"{written.records} records in {', '.join(path.name for path in written.files)} in {written.folder}")


@archive_app.command("import")
def archive_import(
    source: Annotated[Path, typer.Argument(help="A Parquet file, or a folder of them, of either schema.")],
    into: Annotated[str, typer.Option("--into", help="The archive: a database file or URL; made if missing.")],
) -> None:
    """Add the records of a dataset; published kernels come in as unjudged claims."""
    from archive.dataset import import_dataset
    from archive.store import Archive

    archive = Archive(into)
    try:
        typer.echo(f"{import_dataset(archive, source)} new records, {archive.count()} in all")
    finally:
        archive.close()


@archive_app.command("merge")
def archive_merge(
    sources: Annotated[list[str], typer.Argument(help="Runs (folder or name), database files or URLs.")],
    into: Annotated[str, typer.Option("--into", help="The archive that gets them: a file or URL; made if missing.")],
) -> None:
    """Add the records of archives to another one; those it has already stay as they are."""
    from archive.store import Archive
    from archive.upkeep import merge

    target = Archive(into)
    try:
        for where in sources:
            with open_archive(where) as source:
                typer.echo(f"{where}: {merge(target, source)} new of {source.count()}")
    finally:
        target.close()


@archive_app.command("verify")
def archive_verify(where: WhereOption = None) -> None:
    """Read everything and check it; exit code 1 when something is damaged."""
    from archive.upkeep import verify
    from cluster.listings import visible

    with open_archive(where) as archive:
        check = verify(archive)
    for problem in check.problems:
        typer.echo(visible(problem))
    outside = f", {check.strangers} parents outside of this archive" if check.strangers else ""
    state = f"{len(check.problems)} problems" if check.problems else "all whole"
    typer.echo(f"{check.records} records, {check.blobs} blobs: {state}{outside}")
    if check.problems:
        raise typer.Exit(1)


@archive_app.command("gc")
def archive_gc(
    where: WhereOption = None,
    min_age_hours: Annotated[
        float, typer.Option(min=0, help="Keep younger blobs: their records may be on the way.")
    ] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove blobs and cached vectors that no record needs, and give the space back. Records are never removed."""
    from archive.upkeep import collect

    with open_archive(where) as archive:
        done = collect(archive, min_age_hours=min_age_hours, dry_run=dry_run)
    would = "would remove" if dry_run else "removed"
    typer.echo(
        f"{would} {done.blobs} blobs ({done.bytes / 1e6:.1f} MB), {done.vectors} vectors, {done.partials} leftovers"
    )


def site(
    out: Annotated[Path, typer.Argument(help="The folder to write; an earlier site in it is replaced.")],
    where: WhereOption = None,
    title: Annotated[str, typer.Option(help="What the pages are headed with.")] = "Kernel archive",
) -> None:
    """Write the archive as a static web site that opens from disk and from any host."""
    from archive.site.build import build_site

    with open_archive(where) as archive:
        built = build_site(archive, out, title=title)
    typer.echo(f"{built.kernels} kernels, {built.tasks} tasks, {built.bytes / 1e6:.1f} MB: open {out / 'index.html'}")


def record_line(record: Record) -> str:
    """A record in one line: id, task, who, when in the run, verdict."""
    from cluster.listings import visible

    step = "" if record.step is None else f" step {record.step}"
    note = _speedup(record) if record.verdict.is_correct else visible(record.verdict.message[:80])
    return f"{record.record_id}  {record.task_name}  {record.source}{step}  {record.verdict.status}  {note}".rstrip()


def _speedup(record: Record) -> str:
    verdict = record.verdict
    if verdict.speedup is None:
        return str(verdict.status)
    return f"{verdict.speedup:.2f}x [{verdict.speedup_low or 0:.2f}, {verdict.speedup_high or 0:.2f}]"
