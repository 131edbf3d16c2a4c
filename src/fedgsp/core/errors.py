"""Errors are for the person who can act on them: one sentence that says what is wrong, where, and what to do.

Rules, models, groupers, tasks and callbacks may be a user's own. An exception in one of them becomes a sentence that ends with
the innermost frame of *their* code (`rules.py:10, in term`), and the traceback follows as the `__cause__`.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Self

OURS = Path(__file__).absolute().parents[1]  # not resolved: as code objects have it
STANDARD = Path(os.__file__).absolute().parent
INSTALLED = frozenset({"site-packages", "dist-packages"})
LIBRARIES = frozenset({
    "torch", "numpy", "scipy", "safetensors", "cloudpickle", "tomli_w", "typer", "click", "rich", "pyarrow", "PIL", "h5py",
    "huggingface_hub", "matplotlib", "tensorboard", "mlflow", "sqlalchemy", "opendp", "flwr", "ray",
    "prometheus_client", "pandas", "polars", "wandb", "filelock", "platformdirs", "psutil", "orjson",
})  # fmt: skip
"""What fedgsp itself calls: an exception that ends in one of these says nothing about a user's package."""
ORDER = ("theirs", "installed", "ours", "library")
MOST_WORDS = 500
MOST_TRACE = 50_000


class FedgspError(Exception):
    """An expected failure; its text is a whole sentence for a person, shown without a traceback.

    `traced` ones came out of somebody's code: the `__cause__` has its traceback.
    """

    exit_code = 1
    traced = False

    def with_trace(self, traced: bool = True) -> Self:
        """The same, with a traceback that is worth reading."""
        self.traced = traced
        return self

    def __str__(self) -> str:
        """One line, whatever names from files it quotes: no line breaks, no terminal control sequences."""
        text = super().__str__()
        return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


class InputError(FedgspError):
    """Something the user gave (an option, a file, a run directory) cannot be used; nothing has been started."""

    exit_code = 2


class RunFailed(FedgspError):
    """A run that had started cannot go on; its last checkpoint is whole."""


class RunWarning(UserWarning):
    """What a person should know of a run that goes on all the same: a capped schedule, a client that was skipped."""


class Paused(RunFailed):
    """A run waits for its clients longer than it was told to; nothing is lost, and it can go on when they are back."""


class Diverged(RunFailed):
    """Training produced values that are not finite, or far too large to be averaged."""


class Terminated(BaseException):
    """The process was told to stop (SIGTERM): a run ends as after Ctrl-C, which command-line frameworks treat their own way."""


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text: the `__cause__` of what is raised here."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        return f'\n"""\n{self.trace.rstrip()}\n"""'


ON_COMMAND_LINE = {"sets": "set", "target": "target-accuracy"}
_OPTION = re.compile(r"`(\w+)=([^`]*)`")


def in_options(text: str) -> str:
    """A sentence for whoever typed a command: where it says `out=...` as one would in Python, --out.

    Example:
        >>> in_options("choose another place with `out=`, or `fast='off'` and `previous=True`.")
        'choose another place with --out, or --fast off and --previous.'
    """

    def spelled(found: re.Match[str]) -> str:
        name, value = found[1], found[2].strip("'\"")
        option = f"--{ON_COMMAND_LINE.get(name, name).replace('_', '-')}"
        return option if value in ("", "...", "True") else f"{option} {value}"

    return text.typed if isinstance(text, Said) else _OPTION.sub(spelled, text)


class Said(str):
    """A sentence in Python's words, with another for whoever typed a command."""

    typed: str

    def __new__(cls, text: str, typed: str = "") -> Self:
        """The sentence, and how it goes on the command line."""
        made = super().__new__(cls, text)
        made.typed = typed
        return made


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that helps a person who mistyped a name: the nearest known one, else all of them."""
    names = sorted(known)
    if not names:
        return "there is none to choose from."
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"choose from: {', '.join(names)}."


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


def brief(error: BaseException) -> str:
    """What a library complained of, in part of a line, to stand before a full stop."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


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
    if _is_installed(file):
        return "installed"
    return "library" if file.is_relative_to(STANDARD) else "theirs"


def _is_installed(file: Path) -> bool:
    return not INSTALLED.isdisjoint(file.parts)


def ours(part: Any) -> bool:
    """Whether fedgsp itself defines the class of `part` (or `part`, where it is a class or a function)."""
    return str(getattr(_defined(part), "__module__", "")).partition(".")[0] == "fedgsp"


def where_defined(part: Any) -> str:
    """The name of a part's class (or of a class or function) and, unless it is ours, its place: `Mine (rules.py:12)`."""
    thing = _defined(part)
    name = getattr(thing, "__qualname__", type(thing).__name__).rpartition("<locals>.")[2]
    place = None if ours(part) else _place(thing)
    return f"{name} ({place})" if place else name


def _defined(part: Any) -> Any:
    return part if isinstance(part, type) or inspect.isroutine(part) else type(part)


@lru_cache(maxsize=64)
def _place(thing: Any) -> str | None:
    try:
        file, line = inspect.getsourcefile(thing) or inspect.getfile(thing), inspect.getsourcelines(thing)[1]
        return None if _is_installed(Path(file)) or Path(file).is_relative_to(STANDARD) else f"{_short(file)}:{line}"
    except (OSError, TypeError):  # no source, as in a notebook's cell or a text that was executed: the first function's line
        found = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
        codes = [function.__code__ for function in found if isinstance(function, FunctionType)]
        return f"{_short(codes[0].co_filename)}:{codes[0].co_firstlineno}" if codes else None


def _short(file: str) -> str:
    """Below the working folder, the path from there."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
