"""`fedgsp new`: a project to be edited."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("new")(new)


def new(
    directory: Annotated[Path, typer.Argument(help="New folder for the project.")],
    kind: Annotated[str, typer.Option(help="What to write: project, method (rule and test only) or deployment.")] = "project",
) -> None:
    """Write an editable project: config, model, rule, a notebook, a test that passes and a README."""
    from fedgsp.project.new import new as write_project

    place = write_project(directory, kind)  # type: ignore[arg-type]
    written = ", ".join(sorted(file.name for file in place.iterdir()))
    typer.echo(f"{place}: {written}")
    if kind == "project":
        typer.echo(f"next: cd {place} && fedgsp run config.toml --trust")
    if kind != "deployment":
        typer.echo(f"its test: cd {place} && pip install pytest && pytest")
