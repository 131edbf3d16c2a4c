"""`fedgsp`: the entry point. Expected failures are one sentence and an exit code; tracebacks are for our own bugs."""

from __future__ import annotations

import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

import typer

from fedgsp.core import __version__
from fedgsp.core.errors import FedgspError, Terminated, in_options

DEBUG = "--debug"


def _on_terminate(_: int, __: FrameType | None) -> None:
    raise Terminated


def _root(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
    debug: bool = typer.Option(False, "--debug", help="Print the traceback of an error too. May stand anywhere on the line."),
) -> None:
    if version:
        typer.echo(f"fedgsp {__version__}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """All commands, put together anew, so that `main` can be called again and again in one process."""
    from fedgsp.cli import (
        advise,
        compare,
        cost,
        data,
        deploy,
        evaluate,
        group,
        methods,
        models,
        new,
        node,
        report,
        run,
        site,
        study,
        sweep,
        tune,
        watch,
    )  # fmt: skip

    app = typer.Typer(
        help="Federated learning on clients with skewed data: FedGSP and the methods it is compared with.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    every = (
        run,
        evaluate,
        methods,
        models,
        advise,
        tune,
        sweep,
        data,
        group,
        cost,
        study,
        compare,
        report,
        watch,
        new,
        deploy,
        site,
        node,
    )
    for commands in every:
        commands.register(app)
    return app


def main() -> None:
    """Run the command line."""
    app = build_app()
    debug, words = DEBUG in sys.argv, [word for word in sys.argv[1:] if word != DEBUG]
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # models and parts of the user's own are usually there; last, to shadow nothing
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        code = app(words, standalone_mode=False)
    except FedgspError as error:
        if debug:
            traceback.print_exception(error)
        hint = " Add --debug to see the traceback." if error.traced and not debug else ""
        typer.echo(f"fedgsp: {in_options(str(error))}{hint}", err=True)
        code = error.exit_code
    except Terminated:
        code = 128 + signal.SIGTERM
    except (KeyboardInterrupt, typer.Abort):
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        code = 1
    except Exception as error:
        import click

        if not isinstance(error, click.ClickException):
            raise
        error.show()
        code = error.exit_code
    sys.exit(code or 0)
