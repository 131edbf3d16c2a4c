"""Finds the text of a fault in the source as it is now: as it stands, or under other names, or in another file."""

from __future__ import annotations

import builtins
import io
import keyword
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tests.mutations.faults import Fault

SKIPPED = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}
FIXED = {*keyword.kwlist, *dir(builtins), "self", "np", "torch", "math", "pass"}
KEPT = 0.5
"""The share of a fault's names that must still be called the same."""


class NotFound(Exception):
    """The code that a fault was stated for is gone, or is there several times."""


Token = tuple[int, str, tuple[int, int], tuple[int, int]]


def applied(fault: Fault, source: Path) -> tuple[Path, str]:
    """The file that has the fault's text now, and its whole text with the fault in it.

    Raises:
        NotFound: If no place, or more than one, is as much like the fault's as the best.
    """
    stated = source / fault.file
    if stated.exists() and fault.old in (text := stated.read_text()):
        return stated, text.replace(fault.old, fault.new, 1)
    wanted = _tokens(fault.old)
    best: list[tuple[tuple[bool, bool, int], Path, int, dict[str, str]]] = []
    for path in sorted(source.rglob("*.py")):
        found = _tokens(path.read_text())
        first = wanted[0][1]
        for at in range(len(found) - len(wanted) + 1):
            if first in FIXED and found[at][1] != first:
                continue
            names = _renamed(wanted, found[at : at + len(wanted)])
            if names is None:
                continue
            same = sum(old == new for old, new in names.items())
            if same >= KEPT * len(names):
                near = path == stated, path.parent == stated.parent, same
                best.append((near, path, at, names))
    best.sort(key=lambda item: item[0], reverse=True)
    if not best:
        raise NotFound(f"{fault}: no such code any more")
    if len(best) > 1 and best[0][0] == best[1][0]:
        raise NotFound(f"{fault}: several places are like it, in {best[0][1].name} and {best[1][1].name}")
    _, path, at, names = best[0]
    text = path.read_text()
    here = _tokens(text)[at : at + len(wanted)]
    begin, end = _offset(text, here[0][2]), _offset(text, here[-1][3])
    return path, text[:begin] + _with_names(fault.new, names) + text[end:]


def which_tests(fault: Fault, file: Path, source: Path, tests: Path) -> str:
    """The tests that must notice: those stated, or of that name elsewhere, or those of the file that has the code now.

    Raises:
        NotFound: If there are none of these.
    """
    stated, _, one = fault.tests.partition("::")
    name = file.relative_to(source)
    alike = sorted(tests.rglob(Path(stated).name)) if stated.endswith(".py") else []
    for path in (tests / stated, *alike[: len(alike) == 1], tests / name.parent / f"test_{name.stem}.py"):
        if path.exists():
            return str(path.relative_to(tests)) + (f"::{one}" if one and path.name == Path(stated).name else "")
    raise NotFound(f"{fault}: there is no tests/{stated}")


@lru_cache(maxsize=1000)
def _tokens(text: str) -> list[Token]:
    """Its tokens without layout; a fragment may end anywhere."""
    return [(kind, word, begin, end) for kind, word, begin, end in _scan(text) if kind not in SKIPPED]


def _scan(text: str) -> Iterator[Token]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            yield token.type, token.string, token.start, token.end
    except (tokenize.TokenError, IndentationError):
        return


def _renamed(wanted: list[Token], found: list[Token]) -> dict[str, str] | None:
    """Which name became which, if that is all that differs."""
    names: dict[str, str] = {}
    for (kind, old, *_), (other, new, *_) in zip(wanted, found, strict=True):
        if kind != other or (kind != tokenize.NAME and old != new) or (old in FIXED and old != new):
            return None
        if kind == tokenize.NAME and old not in FIXED and names.setdefault(old, new) != new:
            return None
    return names


def _with_names(text: str, names: dict[str, str]) -> str:
    """A text with its names changed."""
    tokens = [token for token in _scan(text) if token[0] == tokenize.NAME]
    for _, word, begin, end in reversed(tokens):
        at, stop = _offset(text, begin), _offset(text, end)
        text = text[:at] + names.get(word, word) + text[stop:]
    return text


def _offset(text: str, place: tuple[int, int]) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: place[0] - 1])) + place[1]
