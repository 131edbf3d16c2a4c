"""`fedgsp node`: a site's node, warm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("node")(node)


def node(
    folder: Annotated[Path, typer.Argument(help="The site's folder, with site.toml, node.key and ca.crt.")] = Path(),
    superlink: Annotated[str | None, typer.Option(help="Server, as host:port. Default: what superlink.txt says.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="The deployment has no TLS and no keys.")] = False,
) -> None:
    """Be a site's node until told to end: connected to the SuperLink, with the app loaded and the samples at hand."""
    from fedgsp.core.imports import need

    need("flwr", "flower", "fedgsp node")
    from fedgsp.deploy.node.node import NodeSettings, WarmNode

    settings = NodeSettings.of(folder, superlink, insecure=insecure)
    WarmNode(settings, say=lambda text: typer.echo(text)).run()
