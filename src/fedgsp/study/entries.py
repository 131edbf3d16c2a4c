"""What a person may name where a method is wanted: a name, a `Method`, a config file, `package.module:METHOD`, or a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from fedgsp.core.errors import InputError, where_defined
from fedgsp.core.imports import import_named
from fedgsp.method import Method
from fedgsp.methods import METHODS, named
from fedgsp.run.config import read_config
from fedgsp.run.result import RunResult

Entry: TypeAlias = "str | Path | Method | RunResult"
"""A method to be run, or a finished run: its directory, or what `fedgsp.train` returned."""


@dataclass(frozen=True)
class Entries:
    """What was named, told apart: methods under their labels, and finished runs."""

    methods: list[tuple[str, Method]]
    runs: list[Path | RunResult]


def read_entries(given: Sequence[Entry], *, trust: bool = False) -> Entries:
    """Tell methods from runs, and give each method a label.

    Args:
        given: Names, methods, config files, `package.module:METHOD` texts, run directories or results.
        trust: Whether code that a config file names may run; what is named here itself is the user's own word.

    Raises:
        InputError: There is nothing, or something of it is neither a method nor a run.
    """
    if not given:
        raise InputError("there is nothing to compare: name methods, such as fedavg and fedgsp, or finished runs.")
    found = Entries([], [])
    for one in given:
        if isinstance(one, RunResult):
            found.runs.append(one)
        elif isinstance(one, (str, Path)) and is_run(one):
            found.runs.append(Path(one))
        else:
            found.methods.append(read_method(one, trust=trust))
    return Entries(_told_apart(found.methods), found.runs)


def read_method(given: Entry, *, trust: bool = False) -> tuple[str, Method]:
    """A method, and what to call it.

    Args:
        given: A name, a method, a .toml file with a [method], or `package.module:METHOD`. A run stands for its method.
        trust: Whether code that a config file names may run.

    Raises:
        InputError: It is none of these.
    """
    if isinstance(given, RunResult):
        return given.run.config.method.name, given.run.config.method
    if isinstance(given, Method):
        return given.name, given
    if not isinstance(given, (str, Path)):
        raise InputError(f"a method is a name, a fedgsp.Method, a config file or package.module:METHOD, not {_what(given)}.")
    text = str(given)
    if isinstance(given, Path) or text.endswith(".toml") or (is_run(given) and (Path(text) / "config.toml").is_file()):
        file = Path(text) if text.endswith(".toml") else Path(text) / "config.toml"
        method = read_config(file, trust=trust).method
        own = method.name if method.name not in ("custom", *METHODS) else file.stem
        return (method.name if file.name == "config.toml" else own), method
    if ":" in text:
        return _imported(text)
    return text, named(text)


def _imported(text: str) -> tuple[str, Method]:
    found = import_named(text, "cannot import the method")
    method = found() if callable(found) and not isinstance(found, (Method, type)) else found
    if not isinstance(method, Method):
        raise InputError(f"'{text}' is no fedgsp.Method but {where_defined(found)}; make one: fedgsp.Method(planner, ...).")
    label = text.partition(":")[2].lower()
    return (label if method.name in ("custom", *METHODS) else method.name), method


def _told_apart(methods: Sequence[tuple[str, Method]]) -> list[tuple[str, Method]]:
    """Of two unlike methods with one name the later gets a number; what is the same twice is left for others to refuse."""
    found: list[tuple[str, Method]] = []
    for label, method in methods:
        taken = dict(found)
        again, at = label, 2
        while again in taken and taken[again] != replace(method, name=taken[again].name):
            again, at = f"{label} ({at})", at + 1
        found.append((again, method))
    return found


def is_run(given: str | Path) -> bool:
    """Whether a text can only mean a directory: not a method's name, a config file or an import."""
    text = str(given)
    if text.endswith(".toml") or text.split("+")[0] in METHODS or (":" in text and "/" not in text):
        return False
    return isinstance(given, Path) or "/" in text or Path(text).exists()


def _what(given: object) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
