"""`fedgsp`: the entry point. Expected failures are one sentence and an exit code; tracebacks are for our own bugs."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer

from fedgsp.core.errors import FedgspError
from fedgsp.core.version import __version__

app = typer.Typer(
    help="Federated learning on clients with skewed data: FedGSP and the methods it is compared with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Terminated(KeyboardInterrupt):
    """SIGTERM: the run ends as after Ctrl-C, with its own exit code."""


def _on_terminate(_: int, __: FrameType | None) -> None:
    raise Terminated


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    if version:
        typer.echo(f"fedgsp {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    from fedgsp.cli import evaluate, group, methods, run

    run.register(app)
    evaluate.register(app)
    methods.register(app)
    group.register(app)
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        code = app(standalone_mode=False)
    except FedgspError as error:
        typer.echo(f"fedgsp: {error}", err=True)
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
