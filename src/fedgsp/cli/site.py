"""`fedgsp site`: what a site does before it joins a deployment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedgsp.cli import common

MARKS = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="A site of a deployment: its checks and its key.", no_args_is_help=True)
    group.command("check")(check)
    group.command("key")(key)
    app.add_typer(group, name="site")


def check(
    folder: Annotated[Path, typer.Argument(help="The site's folder, with site.toml, node.key and ca.crt.")] = Path(),
    superlink: Annotated[str | None, typer.Option(help="Server, as host:port. Default: what superlink.txt says.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not check clock and connection.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="The deployment has no TLS and no keys.")] = False,
    as_json: common.AsJson = False,
) -> None:
    """Check labels, shapes, sizes, keys, clock and connection before this site joins. Changes nothing."""
    from fedgsp.core.errors import InputError
    from fedgsp.core.imports import need

    need("flwr", "flower", "fedgsp site")
    from fedgsp.deploy.sitecheck import check_site

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the site's, which has site.toml in it.")
    found = check_site(folder, superlink, offline=offline, insecure=insecure)
    wrong = [one for one in found if one.verdict == "wrong"]
    if as_json:
        typer.echo(json.dumps({"ready": not wrong, "checks": [vars(one) for one in found]}, indent=2))
    else:
        if insecure:
            typer.echo("warning: INSECURE: nothing is encrypted and any node may join.", err=True)
        for one in found:
            typer.echo(f"{MARKS[one.verdict]}  {one.name}: {one.text}")
        typer.echo("ready to join." if not wrong else f"not ready: {len(wrong)} thing(s) to mend.")
    if wrong:
        raise typer.Exit(1)


def key(
    folder: Annotated[Path, typer.Argument(help="The site's folder.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Name of the site. Default: the folder's.")] = None,
) -> None:
    """Make a key pair for this site. The private key stays here, the public one goes to the server."""
    from fedgsp.core.imports import need

    need("cryptography", "flower", "fedgsp site")
    from fedgsp.deploy.certificates import make_node_key

    make_node_key(folder / "node.key", folder / "node.pub", name or folder.resolve().name)
    typer.echo(f"{folder / 'node.key'} stays here; send {folder / 'node.pub'} to the server's operator.")
