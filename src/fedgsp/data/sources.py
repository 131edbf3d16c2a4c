"""One syntax for data everywhere: `name[:key=value,...]`, or a path with the same options behind it.

Examples: `glyphs`, `glyphs:clients=100,seed=1`, `npz:femnist.npz:federation=femnist-368`, `data/mine.npz:test=0.2`,
`leaf:femnist/data`, `parquet:DIR`, `hf:flwrlabs/femnist`, `hdf5:fed_emnist_train.h5`, `images:DIR`,
`csv:patients.csv:label=outcome,client=site`, `csv:all.csv:label=y,partition=dirichlet,alpha=0.3,clients=50`. Every source takes
`standardise=true` (or `client`) and `transform=crop2+flip` (or `package.module:callable`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.data.assemble import ReaderOptions, check_seed
from fedgsp.data.cache import Progress, silent
from fedgsp.data.federated import FederatedData
from fedgsp.data.finish import Standardise, Transform, finished, standardise_word
from fedgsp.data.readers.csv import load_csv
from fedgsp.data.readers.glyphs import load_glyphs
from fedgsp.data.readers.hdf5 import load_hdf5
from fedgsp.data.readers.hub import load_hub
from fedgsp.data.readers.images import load_images
from fedgsp.data.readers.leaf import load_leaf
from fedgsp.data.readers.npz import load_npz
from fedgsp.data.readers.parquet import load_parquet


@dataclass(frozen=True)
class SourceKind:
    """A kind of source: its loader, whether it takes a path after the name, and whether that is a place on this machine."""

    load: Callable[..., FederatedData]
    takes_path: bool
    local: bool = True


KINDS: dict[str, SourceKind] = {
    "glyphs": SourceKind(load_glyphs, takes_path=False),
    "npz": SourceKind(load_npz, takes_path=True),
    "leaf": SourceKind(load_leaf, takes_path=True),
    "parquet": SourceKind(load_parquet, takes_path=True),
    "hf": SourceKind(load_hub, takes_path=True, local=False),
    "hdf5": SourceKind(load_hdf5, takes_path=True),
    "csv": SourceKind(load_csv, takes_path=True),
    "images": SourceKind(load_images, takes_path=True),
}
SUFFIXES = {".npz": "npz", ".parquet": "parquet", ".h5": "hdf5", ".hdf5": "hdf5", ".csv": "csv"}
FINISH = ("standardise", "transform")
"""Options of all sources: what is done to the samples once they are read."""
SITES = "sites"
"""An option of every source: its clients are dealt to so many sites (`FederatedData.dealt`)."""
OPTIONS = re.compile(r":(?=[^:/,=]+=)")
"""Where options begin: a colon with key= behind it. The last such place counts, so paths and values may hold colons."""


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
    if kind is None and path and Path(path).is_dir():
        raise InputError(f"what is in the directory {path}? Say leaf:{path}, parquet:{path}, hdf5:{path} or images:{path}.")
    if kind is None:
        raise InputError(f"unknown data source '{text}': {did_you_mean(head, KINDS)} A path must end in {', '.join(SUFFIXES)}.")
    return Source(kind, path, options)


def load(
    source: str,
    *,
    data_seed: int | None = None,
    clients: int | None = None,
    standardise: Standardise | None = None,
    transform: Transform | None = None,
    progress: Progress = silent,
) -> FederatedData:
    """The federation that a source text describes (`docs/data.md` lists them).

    Args:
        source: `name[:key=value,...]` or a path with options, such as "glyphs:clients=100", "leaf:femnist/data" or
            "all.csv:label=y,partition=dirichlet,alpha=0.3,clients=50".
        data_seed: The seed of generated data, of partitions and of splits where the source itself does not give one.
        clients: Ask for that many clients: generated or dealt, or a random subset of those there are.
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own. None: as the source says (`standardise=true`), or not.
        transform: What training sees of a sample, other variants in every epoch: a callable, or a name such as "crop2+flip".
            None: as the source says (`transform=crop2+flip`), or as it is.
        progress: Called as the work goes on.

    Returns:
        The federation.

    Raises:
        InputError: If the source is unknown, or its file cannot be read.

    Example:
        >>> data = load("glyphs:clients=3")
        >>> len(data), data.classes, data.sample_shape
        (3, 62, (28, 28))
    """
    whole = with_finish(parse(source), standardise, transform if isinstance(transform, str) else None)
    parsed = replace(whole, options={key: value for key, value in whole.options.items() if key not in FINISH})
    kind = KINDS[parsed.kind]
    accepted = _accepted(kind.load)
    options = _typed_options(parsed, {**accepted, SITES: "int"})
    sites = options.pop(SITES, None)
    if data_seed is not None:
        check_seed(data_seed)
    if clients is not None and clients < 1:
        raise InputError(f"clients must be at least 1, not {clients}.")
    if data_seed is not None and "seed" in accepted and options.get("federation", "all") == "all":
        options.setdefault("seed", data_seed)
    made = clients is not None and (not kind.takes_path or "partition" in options)
    if made:
        options["clients"] = clients
    data = kind.load(parsed.path, progress=progress, **options) if kind.takes_path else kind.load(**options)
    if sites is not None:
        data = data.dealt(sites, options.get("seed", 0))
        options[SITES] = sites
    drawn = clients is not None and not made
    if clients is not None and drawn:
        if clients > len(data):
            raise InputError(f"{source} has {len(data)} clients, not {clients}.")
        data = data.subset(clients, data_seed or 0)
    wanted = {key: value for key, value in whole.options.items() if key in FINISH}
    data = finished(data, standardise_word(wanted.get("standardise", "false")), wanted.get("transform"))
    if callable(transform):
        return data.with_transform(transform)
    spelled = {**{key: str(value) for key, value in options.items()}, **wanted}
    return replace(data, source=None if drawn else absolute(str(replace(parsed, options=spelled))))


def with_finish(source: Source, standardise: Standardise | None, transform: str | None) -> Source:
    """The source with what was said beside it among its options."""
    said: dict[str, str] = {}
    if standardise is not None:
        said["standardise"] = str(standardise).lower() if isinstance(standardise, bool) else str(standardise)
        standardise_word(said["standardise"])
    if transform is not None:
        said["transform"] = transform
    return replace(source, options={**source.options, **said})


def absolute(source: str) -> str:
    """The same source with its path made absolute, so that a recorded run does not depend on where it was started."""
    parsed = parse(source)
    if not parsed.path or not KINDS[parsed.kind].local:
        return str(parsed)
    return str(replace(parsed, path=str(Path(parsed.path).resolve())))


def with_option(source: str, key: str, value: object) -> str:
    """The same source with one option more.

    Example:
        >>> with_option("glyphs:clients=20", "sites", 5)
        'glyphs:clients=20,sites=5'
    """
    parsed = parse(source)
    return str(replace(parsed, options={**parsed.options, key: str(value)}))


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    places = [found.start() for found in OPTIONS.finditer(text)]
    if places:
        head, tail = text[: places[-1]], text[places[-1] + 1 :]
    elif ":" not in text and "=" in text and Path(text).suffix not in SUFFIXES:
        head, tail = "", text
    else:
        head, tail = text, ""
    options: dict[str, str] = {}
    for item in filter(None, tail.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise InputError(f"'{item}' in the source '{text}' is not key=value.")
        options[key.strip()] = value.strip()
    return head, options


def _accepted(loader: Callable[..., FederatedData]) -> dict[str, str]:
    """The options of a loader and their types: its own keywords, and those that all sources of files share."""
    own = inspect.signature(loader).parameters.values()
    accepted = {p.name: str(p.annotation) for p in own if p.kind is p.KEYWORD_ONLY and p.name != "progress"}
    if any(p.kind is p.VAR_KEYWORD for p in own):
        accepted.update({f.name: str(f.type) for f in fields(ReaderOptions)})
    return accepted


def _typed_options(parsed: Source, accepted: dict[str, str]) -> dict[str, Any]:
    """Option texts as the types that the loader's signature names."""
    typed: dict[str, Any] = {}
    for key, text in parsed.options.items():
        if key not in accepted:
            known = [*accepted, *FINISH]
            raise InputError(f"the source '{parsed.kind}' has no option '{key}': {did_you_mean(key, known)}")
        number = int if accepted[key].startswith("int") else float if accepted[key].startswith("float") else None
        try:
            typed[key] = number(text) if number else text
        except ValueError:
            raise InputError(f"the option {key} of '{parsed.kind}' must be a number, not '{text}'.") from None
    if "seed" in typed:
        check_seed(typed["seed"])
    return typed
