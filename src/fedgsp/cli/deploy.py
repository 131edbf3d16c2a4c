"""`fedgsp deploy`: real clients over Flower, from a folder with everything in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgsp.cli import common
from fedgsp.core.errors import InputError, Terminated

if TYPE_CHECKING:
    from fedgsp.deploy.conduct import Outcome
    from fedgsp.deploy.layout import Deployment

INSECURE = "warning: INSECURE deployment: nothing is encrypted and any node may join; for tests on one machine only."

Place = Annotated[Path, typer.Argument(help="The deployment's folder.")]
Nodes = Annotated[int | None, typer.Option(help="Number of sites, named site-0, site-1, ...")]
Data = Annotated[str | None, typer.Option(help="Data source. Site i holds its client i. Default: glyphs.")]
Config = Annotated[Path | None, typer.Option(help="Use this file as server/fedgsp.toml.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Use no TLS and no node keys. For tests on one machine only.")]
StockNodes = Annotated[bool, typer.Option("--stock-nodes", help="Start Flower's own SuperNodes instead of fedgsp node.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Real clients over Flower: write, start, watch and resume a deployment.", no_args_is_help=True)
    for name, command in (
        ("init", init), ("local", local), ("register", register_nodes), ("run", run), ("resume", resume),
        ("status", status), ("stop", stop), ("metrics", metrics),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="deploy")


def init(
    place: Place,
    nodes: Nodes = None,
    site: Annotated[list[str] | None, typer.Option(help="Name of a site. Once for each, instead of --nodes.")] = None,
    address: Annotated[str, typer.Option(help="Server that sites connect to, as host[:port].")] = "localhost:8443",
    listen: Annotated[str, typer.Option(help="Address that the SuperLink listens on at the server.")] = "127.0.0.1:9443",
    data: Data = None,
    server_data: Annotated[str | None, typer.Option(help="Data source with test samples of the server's own.")] = None,
    method: common.MethodName = None,
    model: common.ModelName = None,
    rounds: common.Rounds = None,
    seed: common.Seed = None,
    config: Config = None,
    insecure: Insecure = False,
    stock_nodes: StockNodes = False,
) -> None:
    """Write a complete, commented deployment: app, certificates, node keys, start scripts, systemd units, reverse proxy."""
    _need_flower()
    from fedgsp.deploy.layout import Deployment, checked_address
    from fedgsp.deploy.options import Options, write_from

    where = Deployment(
        place.resolve(), checked_address(address, "--address", 8443), checked_address(listen, "--listen", 9443), insecure
    )  # fmt: skip
    _warn(where)
    chosen = Options(nodes, tuple(site or ()), data, server_data, method, model, rounds, seed, config, stock_nodes)
    write_from(chosen, where)
    typer.echo(f"{place}: written; README.md there says what to do next, and who gets which folder.")
    if not insecure:
        typer.echo(f"note: keep {place}/authority/ca.key off the server and the sites; it can sign another server.")


def local(
    place: Place,
    nodes: Nodes = None,
    data: Data = None,
    method: common.MethodName = None,
    model: common.ModelName = None,
    rounds: common.Rounds = None,
    seed: common.Seed = None,
    config: Config = None,
    insecure: Insecure = False,
    stock_nodes: StockNodes = False,
    metrics_port: Annotated[int | None, typer.Option("--metrics", help="Serve Prometheus metrics on this port.")] = None,
    watch: common.Watch = False,
    quiet: common.Quiet = False,
    as_json: common.AsJson = False,
) -> None:
    """Start a SuperLink and nodes on this machine, each with its own shard, run, and stop everything."""
    _need_flower()
    from fedgsp.deploy.layout import is_deployment, read_deployment
    from fedgsp.deploy.options import Options, loopback, write_from

    given = Options(nodes, (), data, None, method, model, rounds, seed, config, stock_nodes)
    if is_deployment(place):
        where = read_deployment(place)
        if insecure or not given.untouched:
            raise InputError(
                f"{place} is there already: change {where.config} and the sites' site.toml, or choose another folder."
            )
        if not where.one_machine:
            raise InputError(f"{place} is made for several machines; start its server and its sites as its README.md says.")
    else:
        count = 6 if nodes is None else nodes
        where, ports = loopback(place.resolve(), count, insecure)
        write_from(replace(given, nodes=count), where, ports)
    _warn(where)
    _conduct(where, None, resume=False, quiet=quiet, as_json=as_json, watch=watch, metrics_port=metrics_port)


def run(place: Place, watch: common.Watch = False,
        quiet: common.Quiet = False, as_json: common.AsJson = False) -> None:  # fmt: skip
    """Begin a run on a server that is up, and follow it; Ctrl-C stops only the following."""
    _need_flower()
    from fedgsp.deploy.layout import read_deployment

    where = read_deployment(place)
    _warn(where)
    _conduct(where, None, resume=False, quiet=quiet, as_json=as_json, watch=watch)


def resume(place: Place,
           round_: common.BackToRound = None, watch: common.Watch = False,
           quiet: common.Quiet = False, as_json: common.AsJson = False) -> None:  # fmt: skip
    """Go on with the newest run from its checkpoint, after a crash, a pause or a stop, or from an earlier round."""
    _need_flower()
    from fedgsp.deploy.conduct import run_to_resume
    from fedgsp.deploy.layout import read_deployment

    where = read_deployment(place)
    _warn(where)
    _conduct(where, run_to_resume(where, round_), resume=True, quiet=quiet, as_json=as_json, watch=watch, back=round_)


def register_nodes(
    place: Place,
    site: Annotated[list[str] | None, typer.Option(help="Register only this site. Once for each.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the keys of the named sites instead.")] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Wait for a new SuperLink and register all known again.")] = False,
) -> None:
    """Make the sites' public keys known to the SuperLink; those that are known already stay."""
    _need_flower()
    from fedgsp.deploy import local as keys
    from fedgsp.deploy.layout import read_deployment

    where = read_deployment(place)
    if restore:
        from fedgsp.deploy.registered_keys import restore as restored

        if remove or site:
            raise InputError("--restore is about all sites that were registered before; leave --site and --remove out.")
        names = [] if where.insecure else restored(where, keys.control(where), keys.START_SECONDS)
        typer.echo(f"{len(names)} sites are known again.")
        return
    if remove and not site:
        raise InputError("say which sites are shut out, with --site.")
    changed = keys.unregister(where, site or ()) if remove else keys.register(where, site)
    what = "are shut out" if remove else "were new"
    typer.echo(f"{len(changed)} of {len(site or where.sites())} sites {what}{': ' + ', '.join(changed) if changed else ''}.")


def status(place: Place, as_json: common.AsJson = False) -> None:
    """Show a deployment's processes, its nodes, and how its newest run stands."""
    _need_flower()
    from fedgsp.deploy.layout import read_deployment
    from fedgsp.deploy.status import status_of

    found = status_of(read_deployment(place))
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    from fedgsp.cli.follow import show_status

    show_status(found, place)


def stop(place: Place) -> None:
    """Stop the run that was begun last; `fedgsp deploy resume` goes on with it."""
    _need_flower()
    from fedgsp.deploy.conduct import stop_run
    from fedgsp.deploy.layout import read_deployment

    typer.echo(f"run {stop_run(read_deployment(place))} is stopped.")


def metrics(
    place: Place,
    host: Annotated[str, typer.Option(help="Serve on this address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Serve on this port. 0 means any.")] = 9109,
) -> None:
    """Serve the newest run's figures for Prometheus, until Ctrl-C."""
    import signal

    _need_flower()
    from fedgsp.deploy.layout import read_deployment
    from fedgsp.deploy.metrics import MetricsServer

    with MetricsServer(read_deployment(place), host, port) as server:
        typer.echo(f"metrics at {server.url}")
        while True:
            signal.pause()


def _conduct(
    where: Deployment, path: Path | None, *, resume: bool, quiet: bool, as_json: bool, watch: bool,
    metrics_port: int | None = None, back: int | None = None,
) -> None:  # fmt: skip
    from contextlib import ExitStack

    from fedgsp.cli.follow import follower, show_outcome
    from fedgsp.cli.watch import watched
    from fedgsp.deploy.conduct import new_run, run_locally, run_remotely
    from fedgsp.deploy.local import control

    silent = quiet or as_json
    chosen = path or new_run(where, _method_of(where))
    with ExitStack() as stack:
        if metrics_port is not None:
            from fedgsp.deploy.metrics import MetricsServer

            server = stack.enter_context(MetricsServer(where, "127.0.0.1", metrics_port))
            if not silent:
                typer.echo(f"metrics at {server.url}")
        stack.enter_context(watched(chosen, watch, silent))
        say = (lambda _: None) if silent else typer.echo
        outcome: Outcome
        try:
            if where.one_machine and not control(where).answers():
                outcome = run_locally(
                    where, chosen, resume=resume, follow=lambda run: follower(run, silent), say=say, back=back
                )
            else:
                outcome = run_remotely(where, chosen, resume=resume, follow=lambda run: follower(run, silent), back=back)
        except (KeyboardInterrupt, Terminated):
            _hint(where)
            raise
    outcome.explained(where.root)
    if as_json:
        from fedgsp.run.reader import read_result

        facts = read_result(outcome.path) or {}
        typer.echo(json.dumps({**facts, "directory": str(outcome.path)}, indent=2))
    elif not quiet:
        show_outcome(outcome)


def _method_of(where: Deployment) -> str:
    from fedgsp.core.files import read_toml

    return str(read_toml(where.config, "the configuration").get("method", {}).get("name", "fedgsp"))


def _hint(where: Deployment) -> None:
    if where.one_machine:
        typer.echo(f"fedgsp: interrupted; everything is stopped. Go on with: fedgsp deploy resume {where.root}", err=True)
    else:
        typer.echo(f"fedgsp: the run goes on; see fedgsp deploy status {where.root}, or stop it: fedgsp deploy stop", err=True)


def _warn(where: Deployment) -> None:
    if where.insecure:
        typer.echo(INSECURE, err=True)


def _need_flower() -> None:
    from fedgsp.core.imports import need

    need("flwr", "flower", "fedgsp deploy")
