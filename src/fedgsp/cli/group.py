"""`fedgsp group`: put clients into like groups, without training anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from fedgsp.cli import common
from fedgsp.core.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("group")(group)


def group(
    data: Annotated[str, typer.Argument(help="FILE.csv or FILE.npz of counts (a row a client), or a data source.")],
    groups: Annotated[int, typer.Option(help="Number of groups.")],
    grouper: Annotated[str, typer.Option(help="Grouper: balanced, icg, random, stratified or greedy-kl.")] = "balanced",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the groups. The same seed gives the same groups.")] = 0,
    epsilon: Annotated[float | None, typer.Option(help="Group on counts with noise of this epsilon (simulated).")] = None,
    delta: Annotated[float, typer.Option(help="Delta of the noise. Above 0 it is Gaussian instead of Laplace.")] = 0.0,
    within: Annotated[str | None, typer.Option(help="Time for the search, such as 200ms or 5s. Only for balanced.")] = None,
    one_per_site: Annotated[bool, typer.Option(help="Put no two clients of one site (column 'site') into a group.")] = False,
    longest_chain: Annotated[
        float | None, typer.Option(help="Upper limit on the seconds (column 'seconds') of a group.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File for the groups.")] = Path("groups.csv"),
    plot: Annotated[Path | None, typer.Option(help="Draw distributions and CPD into this file (.png, .svg, .pdf).")] = None,
    as_json: common.AsJson = False,
) -> None:
    """Put clients into groups that each look like the whole population, and show how alike the groups are."""
    from fedgsp.report.groups import group as group_clients

    if plot is not None:
        from fedgsp.report.plotting import require_plotting

        require_plotting()
    found = group_clients(
        data, groups, grouper=grouper, seed=seed, epsilon=epsilon, delta=delta, within=duration(within),
        one_per_site=one_per_site, longest_chain=longest_chain,
    )  # fmt: skip
    found.save(out)
    if plot is not None:
        found.plot().save(plot)
    if as_json:
        typer.echo(json.dumps(found.as_dict(list(found.names)), indent=2))
        return
    noise = "" if epsilon is None else f" on counts with noise (epsilon {epsilon:g}{f', delta {delta:g}' if delta else ''})"
    typer.echo(
        f"{len(found.names)} clients in {groups} groups by {grouper}{noise}, {found.left_out} left out, "
        f"{found.seconds:.3f} CPU seconds"
    )
    typer.echo(f"{'':<20}{'z per pair':>12}{'CPD median':>12}{'mean':>12}{'maximum':>12}")
    for name, own in (("clients (before)", found.clients), ("random groups", found.random), ("these groups", found.groups)):
        typer.echo(f"{name:<20}{own.z:>12.4g}{own.cpd_median:>12.4g}{own.cpd_mean:>12.4g}{own.cpd_maximum:>12.4g}")
        if own.pairs_looked_at < own.pairs:
            typer.echo(f"{'':<20}of {own.pairs_looked_at} random pairs of {own.pairs}; CPD mean +- {own.cpd_mean_error:.1g}")
    typer.echo(f"groups: {out}" + ("" if plot is None else f", picture: {plot}"))


def duration(text: str | None) -> float | None:
    """`200ms`, `5s` or `1.5` as seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min)?\s*", text)
    if found is None:
        raise InputError(f"--within wants a time such as 200ms or 5s, not '{text}'.")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "min": 60.0, None: 1.0}[found[2]]
