"""Commands around the service and the clusters it runs on: API keys, manifests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cluster.arguments import config_of
from cluster.commands_cluster import ConfigArguments

if TYPE_CHECKING:
    from serving.keys import KeyStore

Kind = Literal["job", "service", "cluster"]
cluster_app = typer.Typer(help="What runs warpsmith on a cluster.", no_args_is_help=True)
keys_app = typer.Typer(help="API keys of the service.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.add_typer(keys_app, name="keys")
    app.add_typer(cluster_app, name="cluster")


@keys_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose it is; for your own eyes.")],
    arguments: ConfigArguments = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="optimize, complete, judge or admin; may be repeated; all but admin.")
    ] = None,
    per_minute: Annotated[int, typer.Option(min=1, help="Requests a minute.")] = 600,
    concurrent: Annotated[int, typer.Option(min=1, help="Requests at a time, and open jobs.")] = 32,
) -> None:
    """Make a key. It is printed once, alone on stdout; the database keeps only its hash."""
    with _keys(arguments) as store:
        key, secret = store.create(
            name,
            scopes=scope or ("optimize", "complete", "judge"),
            requests_per_minute=per_minute,
            concurrent=concurrent,
        )
    typer.echo(f"key {key.key_id} may {', '.join(key.scopes)}; it is shown here and never again:", err=True)
    typer.echo(secret)


@keys_app.command("list")
def list_keys(arguments: ConfigArguments = None) -> None:
    """Show the keys, without their secrets."""
    with _keys(arguments) as store:
        for key in store.all():
            made = datetime.fromtimestamp(key.created_at, UTC).strftime("%Y-%m-%d")
            state = "revoked" if key.revoked_at else f"{key.requests_per_minute}/min, {key.concurrent} at a time"
            typer.echo(f"{key.key_id}  {made}  {','.join(key.scopes)}  {state}  {key.name}")


@keys_app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(help="The first column of `warpsmith keys list`.")],
    arguments: ConfigArguments = None,
) -> None:
    """Refuse a key from now on; a running service notices within seconds."""
    with _keys(arguments) as store:
        key = store.revoke(key_id)
    typer.echo(f"revoked {key.key_id} ({key.name})")


@cluster_app.callback()
def _cluster() -> None:
    """Keeps `manifest` a command of its own while it is the only one."""


@cluster_app.command("manifest")
def manifest(
    arguments: ConfigArguments = None,
    kind: Annotated[Kind, typer.Option(help="RayJob trains, RayService serves, RayCluster waits for jobs.")] = "job",
    name: Annotated[str, typer.Option(help="Of the resource.")] = "warpsmith",
    image: Annotated[str, typer.Option(help="warpsmith:VERSION-cpu or -gpu if left out (deploy/).")] = "",
    namespace: Annotated[str, typer.Option(help="kubectl's if left out.")] = "",
    claim: Annotated[str, typer.Option(help="PersistentVolumeClaim (ReadWriteMany) that keeps the runs.")] = "",
    env_secret: Annotated[str, typer.Option(help="Secret with environment variables (PGPASSWORD, ...).")] = "",
    token_secret: Annotated[str, typer.Option(help="Secret with Ray's auth_token; needs KubeRay 1.5.")] = "",
    head_cpus: Annotated[int, typer.Option(min=1)] = 4,
    head_memory: Annotated[str, typer.Option()] = "16Gi",
    worker_memory: Annotated[str, typer.Option()] = "16Gi",
    out: Annotated[Path | None, typer.Option(help="File; stdout if left out.")] = None,
) -> None:
    """Print KubeRay's manifest of a configuration, for `kubectl apply -f -`."""
    from cluster.commands_data import write_text
    from cluster.manifest import ManifestOptions, build_manifest, render

    options = ManifestOptions(
        kind=kind,
        name=name,
        image=image,
        namespace=namespace,
        claim=claim,
        env_secret=env_secret,
        token_secret=token_secret,
        head_cpus=head_cpus,
        head_memory=head_memory,
        worker_memory=worker_memory,
    )
    text = render(build_manifest(config_of(arguments or []), options))
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)


@contextmanager
def _keys(arguments: list[str] | None) -> Iterator[KeyStore]:
    from archive.store import Archive
    from cluster.serve import optimizer_archive
    from serving.keys import KeyStore

    config = config_of(arguments or [])
    archive = Archive(config.serving.archive or optimizer_archive(config))
    try:
        yield KeyStore(archive)
    finally:
        archive.close()
