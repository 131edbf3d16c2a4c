"""One syntax for data everywhere: `name[:key=value,...]`, or a path with the same options behind it.

Examples: `glyphs`, `glyphs:clients=100,seed=1`, `npz:femnist.npz:federation=femnist-368`, `data/mine.npz:test=0.2`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.seeds import LARGEST_SEED
from fedgsp.data.embedded import load_glyphs
from fedgsp.data.federated import FederatedData
from fedgsp.data.npz import load_npz


@dataclass(frozen=True)
class Kind:
    """A kind of source: its loader, and whether the text after the name is a path."""

    load: Callable[..., FederatedData]
    takes_path: bool


KINDS: dict[str, Kind] = {
    "glyphs": Kind(load_glyphs, takes_path=False),
    "npz": Kind(load_npz, takes_path=True),
}
SUFFIXES = {".npz": "npz"}


@dataclass(frozen=True)
class Source:
    """A parsed source: what kind, which path, which options."""

    kind: str
    path: str | None
    options: dict[str, str]

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return ":".join(part for part in (self.kind, self.path, options) if part)


def parse(text: str) -> Source:
    """Read the source syntax, refusing what it cannot mean with a sentence."""
    head, _, rest = text.partition(":")
    if head in KINDS and KINDS[head].takes_path:
        path, options = _split_options(rest)
        if not path:
            raise InputError(f"the source '{text}' names no file; write {head}:PATH.")
        return Source(head, path, options)
    if head in KINDS:
        path, options = _split_options(rest)
        if path:
            raise InputError(f"'{path}' in the source '{text}' is not key=value.")
        return Source(head, None, options)
    path, options = _split_options(text)
    kind = SUFFIXES.get(Path(path).suffix.lower())
    if kind is None:
        raise InputError(f"unknown data source '{text}': {did_you_mean(head, KINDS)} A path must end in {', '.join(SUFFIXES)}.")
    return Source(kind, path, options)


def load(source: str, *, data_seed: int | None = None, clients: int | None = None) -> FederatedData:
    """The federation that a source text describes.

    `data_seed` is the seed of generated data and of splits where the source itself does not give one; `clients` asks for
    that many clients (generated, or a random subset of those there are).
    """
    parsed = parse(source)
    kind = KINDS[parsed.kind]
    options = _typed_options(parsed, kind.load)
    accepted = inspect.signature(kind.load).parameters
    if data_seed is not None:
        _check_seed(data_seed)
    if clients is not None and clients < 1:
        raise InputError(f"clients must be at least 1, not {clients}.")
    if data_seed is not None and "seed" in accepted and options.get("federation", "all") == "all":
        options.setdefault("seed", data_seed)
    if clients is not None and "clients" in accepted:
        options["clients"] = clients
    data = kind.load(parsed.path, **options) if kind.takes_path else kind.load(**options)
    if clients is None or "clients" in accepted:
        spelled = {key: str(value) for key, value in options.items()}
        return replace(data, source=absolute(str(replace(parsed, options=spelled))))
    if clients > len(data):
        raise InputError(f"{source} has {len(data)} clients, not {clients}.")
    return data.subset(clients, data_seed or 0)


def absolute(source: str) -> str:
    """The same source with its path made absolute, so that a recorded run does not depend on where it was started."""
    parsed = parse(source)
    return str(replace(parsed, path=str(Path(parsed.path).resolve()))) if parsed.path else str(parsed)


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    head, colon, tail = text.rpartition(":")
    if not colon:
        head, tail = ("", text) if "=" in text and Path(text).suffix not in SUFFIXES else (text, "")
    elif "=" not in tail:
        head, tail = text, ""
    options: dict[str, str] = {}
    for item in filter(None, tail.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise InputError(f"'{item}' in the source '{text}' is not key=value.")
        options[key.strip()] = value.strip()
    return head, options


def _typed_options(parsed: Source, loader: Callable[..., FederatedData]) -> dict[str, Any]:
    """Option texts as the types that the loader's signature names."""
    accepted = {n: p for n, p in inspect.signature(loader).parameters.items() if p.kind is p.KEYWORD_ONLY}
    typed: dict[str, Any] = {}
    for key, text in parsed.options.items():
        if key not in accepted:
            raise InputError(f"the source '{parsed.kind}' has no option '{key}': {did_you_mean(key, accepted)}")
        annotation = str(accepted[key].annotation)
        try:
            typed[key] = int(text) if annotation.startswith("int") else float(text) if annotation == "float" else text
        except ValueError:
            raise InputError(f"the option {key} of '{parsed.kind}' must be a number, not '{text}'.") from None
    if "seed" in typed:
        _check_seed(typed["seed"])
    return typed


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"a seed is a whole number from 0 to {LARGEST_SEED}, not {seed}.")
