"""A site's samples, memory-mapped: every message to a client starts a new process, which must not read a data set again.

The first process loads the site's source, picks its client and writes the samples to `shard-DIGEST` in the site's state
folder; later ones map that, as long as the source's files look the same (names, sizes, times). `version` names the content: it
changes exactly when the samples do. It is keyed with a secret of the site's, since a bare digest of a few small samples could
be guessed, and with it what a site keeps to itself.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData, load
from fedgsp.data.federated import SPLITS, Split
from fedgsp.data.finish import EACH_CLIENT
from fedgsp.data.sources import parse

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.site import Site

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Shard:
    """A site's samples as a federation of one client, and the version of its content."""

    data: FederatedData
    version: str

    def placed(self, number: int, classes: int | None = None) -> FederatedData:
        """The same as client `number` of a federation in which all others are empty, so that seeds and rows are its own."""
        parts: dict[str, Any] = {name: _placed(getattr(self.data, name), number) for name in SPLITS}
        names = ("",) * number + self.data.clients
        return replace(self.data, clients=names, classes=self.data.classes if classes is None else classes, **parts)


def open_shard(site: Site) -> Shard:
    """The site's samples; converted first if the source was never read, or looks different."""
    site.state.mkdir(parents=True, exist_ok=True)
    stamp = _stamp(site)
    folder = site.state / f"shard-{hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:24]}"
    if not (folder / "meta.json").is_file():
        _build(site, folder)
    meta = json.loads((folder / "meta.json").read_text())
    if meta["schema"] != SCHEMA:
        raise InputError(f"{folder} is of another version of fedgsp; remove it.")
    features, labels = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("features", "labels"))
    bounds = np.cumsum([0, *(meta[part] for part in SPLITS)])
    parts: dict[str, Any] = {part: Split.of([np.arange(bounds[i], bounds[i + 1])]) for i, part in enumerate(SPLITS)}
    data = FederatedData(features, labels, (site.name,), classes=meta["classes"], divisor=meta["divisor"], **parts)
    return Shard(data, hmac.new(_secret(site), meta["fingerprint"].encode(), "sha256").hexdigest()[:32])


def _stamp(site: Site) -> list[Any]:
    """What tells one state of the source from another without reading it."""
    stamp: list[Any] = [SCHEMA, site.source, site.client, site.seed]
    path = parse(site.source).path
    if path and (place := Path(path)).exists():
        files = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
        stamp += [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    return stamp


def _build(site: Site, folder: Path) -> None:
    """Write the shard beside its place and rename it; of two processes that do so at once the first counts."""
    data = load(site.source, data_seed=site.seed)
    shard = data.select([client_of(site, data)])
    rows = np.concatenate([getattr(shard, part).rows for part in SPLITS])
    if len(rows) == 0:
        raise InputError(f"the site '{site.name}' has no samples in {site.source}.")
    scratch = site.state / f".{folder.name}.{os.getpid()}.tmp"
    scratch.mkdir(exist_ok=True)
    np.save(scratch / "features.npy", np.asarray(data.features[rows]))
    np.save(scratch / "labels.npy", np.asarray(data.labels[rows]))
    meta = {
        "schema": SCHEMA, "classes": data.classes, "divisor": data.divisor,
        "fingerprint": replace(shard, clients=(site.name,), memo=None).fingerprint,
        **{part: len(getattr(shard, part).rows) for part in SPLITS},
    }  # fmt: skip
    (scratch / "meta.json").write_text(json.dumps(meta))
    try:
        scratch.rename(folder)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
    for stale in site.state.glob("shard-*"):
        if stale != folder:
            shutil.rmtree(stale, ignore_errors=True)


def client_of(site: Site, data: FederatedData) -> int:
    """The number of the site's client in its source."""
    if parse(site.source).options.get("standardise", EACH_CLIENT) not in (EACH_CLIENT, "false"):
        raise InputError(f"the site '{site.name}' does not know the population's means; say standardise={EACH_CLIENT}.")
    if data.augmentation is not None:
        raise InputError(f"the site '{site.name}' trains on its samples as they are; leave transform= out of its source.")
    if site.client is None:
        if len(data) != 1:
            raise InputError(
                f"the site '{site.name}': {site.source} has {len(data)} clients; say which one is this site's by [data] client."
            )
        return 0
    if site.client in data.clients:
        return data.clients.index(site.client)
    if site.client.isdecimal() and int(site.client) < len(data):
        return int(site.client)
    raise InputError(f"the site '{site.name}': {site.source} has no client '{site.client}' among its {len(data)}.")


def _secret(site: Site) -> bytes:
    path = site.state / "secret"
    if not path.exists():
        scratch = site.state / f".secret.{os.getpid()}.tmp"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
        try:
            os.link(scratch, path)  # never replaces: the first of two processes counts
        except FileExistsError:
            pass
        finally:
            scratch.unlink()
    return path.read_bytes()


def _placed(part: Split, number: int) -> Split:
    offsets = np.zeros(number + 2, dtype=np.int64)
    offsets[-1] = len(part.rows)
    return Split(part.rows, offsets)
