"""Finding modules: a user's own by name, optional packages, and those of the Python processes that we start.

Such processes find modules as this process does, but a user's file never stands in for the standard library, which a
`random.py` or `grp.py` in the working folder would do with `python -c` or a PYTHONPATH.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from fedgsp.core.errors import InputError, refusal

STANDARD = Path(os.__file__).parent
SETTLED = "FEDGSP_SETTLED"
NOT_TO_IMPORT = frozenset({"this", "antigravity"})  # they do something


def import_named(text: str, what: str) -> Any:
    """The object that `package.module:attribute` names; `what` begins the sentence if it cannot be had."""
    module, _, attribute = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:  # the user's module may fail in any way
        raise refusal(InputError, f"{what} '{text}'", error) from error
    return found


def need(module: str, extra: str, purpose: str) -> ModuleType:
    """An optional package's module; `purpose` says what the person wanted when it was found missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{purpose} needs the package '{package}', which is not installed; run: pip install 'fedgsp[{extra}]'."
        ) from error


def standard_first(path: Sequence[str]) -> list[str]:
    """A search path with the standard library's own folders before all others, whose order stays."""
    ours = [folder for folder in path if _is_standard(folder)]
    return [*ours, *(folder for folder in path if not _is_standard(folder))]


def python(module: str, call: str) -> list[str]:
    """The command that calls something of a module of ours, in a Python that finds modules as this one does.

    What we need is imported with the standard library first. From then on the path is this process's own, so that a user's
    modules are found where they were found here. The working folder is looked into last, where it is not in the path anyhow.
    """
    path = search_path()
    function = call.partition("(")[0]
    lines = [
        "import sys",
        f"sys.path[:] = {standard_first(path)!r}",
        f"from {module} import {function}",
        *([f"from fedgsp.core.imports import settle; settle({names!r})"] if (names := shadowed(path)) else []),
        f"sys.path[:] = {path!r}",
        call,
    ]
    return [sys.executable, "-P", "-c", "; ".join(lines)]


def search_path() -> list[str]:
    """Where this process finds modules, and at last the working folder."""
    path = [folder for folder in sys.path if isinstance(folder, str)]
    with suppress(OSError):  # it may have been removed
        here = str(Path.cwd())
        return path if "" in path or here in path else [*path, here]
    return path


def shadowed(path: Sequence[str]) -> list[str]:
    """Modules of the standard library that a file before it would stand in for, but those that this process has from there."""
    found: set[str] = set()
    for folder in path:
        if _is_standard(folder):
            break
        try:
            names = {entry.name.partition(".")[0] for entry in Path(folder or ".").iterdir()}
        except OSError:
            continue
        found |= {name for name in names & sys.stdlib_module_names if not _is_theirs(name)}
    return sorted(found - NOT_TO_IMPORT)


def settle(names: Sequence[str]) -> None:
    """Import modules now, while nothing can stand in for them."""
    for name in names:
        with suppress(Exception):  # one of another system, or one that needs a screen
            __import__(name)


def settle_told() -> None:
    """The same by the environment, in a process that somebody else starts for us."""
    settle([name for name in os.environ.get(SETTLED, "").split(",") if name])


def _is_standard(folder: str) -> bool:
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return folder in (str(STANDARD), str(STANDARD / "lib-dynload")) or Path(folder).name == zipped


def _is_theirs(name: str) -> bool:
    """Whether this process itself has a user's module by the name of one of the standard library."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not Path(file).is_relative_to(STANDARD)
