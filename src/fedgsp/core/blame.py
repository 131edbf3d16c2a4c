"""Errors with their place: whose code an exception came out of, in one line, and its traceback where it can be read.

Rules, models, groupers, tasks and observers may be a user's own. An exception in one of them becomes a sentence that ends with
the innermost frame of *their* code (`rules.py:10, in term`), and the traceback follows as the `__cause__`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fedgsp.core.errors import FedgspError, RunFailed

OURS = Path(__file__).absolute().parents[1]  # not resolved: as code objects have it
STANDARD = Path(os.__file__).absolute().parent
INSTALLED = frozenset({"site-packages", "dist-packages"})
LIBRARIES = frozenset({
    "torch", "numpy", "scipy", "safetensors", "cloudpickle", "tomli_w", "typer", "click", "rich", "pyarrow", "PIL", "h5py",
    "huggingface_hub", "matplotlib", "tensorboard", "mlflow", "sqlalchemy", "numba", "llvmlite", "opendp", "flwr", "ray",
    "prometheus_client", "pandas", "polars",
})  # fmt: skip
"""What fedgsp itself calls: an exception that ends in one of these says nothing about a user's package."""
ORDER = ("theirs", "installed", "ours", "library")
MOST_WORDS = 500
MOST_TRACE = 50_000


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text: the `__cause__` of what is raised here."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        return f'\n"""\n{self.trace.rstrip()}\n"""'


def place_of(error: BaseException, modules: Collection[str] | None = None) -> str | None:
    """The innermost frame of the user's own code: `rules.py:10, in term`; of `modules` only, where they are given.

    Code is the user's own unless it is fedgsp's, the standard library's or an installed package's. Where there is none, a
    package that is installed and that fedgsp does not call itself counts, and then fedgsp's innermost frame.
    """
    found: dict[str, str] = {}
    for frame, line in traceback.walk_tb(error.__traceback__):
        if modules is None or frame.f_globals.get("__name__") in modules:
            code = frame.f_code
            found[_whose(frame)] = f"{Path(code.co_filename).name}:{line}, in {code.co_name}"
    return next((found[whose] for whose in ORDER if whose in found), None)


def is_theirs(error: BaseException) -> bool:
    """Whether an exception came out of, or by way of, code that is not fedgsp's."""
    return any(_whose(frame) in ("theirs", "installed") for frame, _ in traceback.walk_tb(error.__traceback__))


def described(error: BaseException) -> str:
    """An exception in one line, with its place: `ValueError: no such class (rules.py:10, in term)`."""
    words = " ".join(str(error).split()).rstrip(".")
    words = words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}..."
    place = place_of(error)
    return f"{type(error).__name__}{': ' if words else ''}{words}" + (f" ({place})" if place else "")


def refusal(kind: type[FedgspError], said: str, error: Exception) -> FedgspError:
    """A sentence about what a user gave, ended by why, and where if that is in their code; to be raised from `error`."""
    theirs = is_theirs(error)
    why = described(error) if theirs else " ".join(str(error).split()).rstrip(".")
    return kind(f"{said}: {why}.").with_trace(theirs)


def trace_of(error: BaseException) -> str:
    """The traceback as text, what led to it included."""
    text = error.trace if isinstance(error, RemoteTraceback) else "".join(traceback.format_exception(error))
    return text if len(text) <= MOST_TRACE else f"...\n{text[-MOST_TRACE:]}"


def cause_of(error: FedgspError) -> BaseException | None:
    """The exception that a traced sentence is about, through sentences that were made longer on the way."""
    found: BaseException | None = error
    while isinstance(found, FedgspError):
        found = found.__cause__
    return found if error.traced else None


@contextmanager
def blamed(what: str, kind: type[FedgspError] = RunFailed) -> Iterator[None]:
    """Make a sentence of an exception in a user's part that is called here: `WHAT failed: ...`.

    Our own bugs go by as they are.
    """
    try:
        yield
    except FedgspError:
        raise
    except Exception as error:
        if not is_theirs(error):
            raise
        raise kind(f"{what} failed: {described(error)}.").with_trace() from error


def _whose(frame: FrameType) -> str:
    file, module = Path(frame.f_code.co_filename), str(frame.f_globals.get("__name__", ""))
    generated = file.name == "<string>" and module.partition(".")[0] == OURS.name  # by dataclasses, for one of ours
    if file.is_relative_to(OURS) or generated:
        return "ours"
    if module.partition(".")[0] in LIBRARIES or file.name.startswith(("<frozen ", "<__array_function__", "<eval_with_key>")):
        return "library"
    if not INSTALLED.isdisjoint(file.parts):
        return "installed"
    return "library" if file.is_relative_to(STANDARD) else "theirs"
