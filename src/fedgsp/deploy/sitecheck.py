"""Before a site joins: is its data what the federation expects, are its keys in order, its clock right, the server reachable?

Every check is a fact with a sentence; none of them changes anything, here or at the server.
"""

from __future__ import annotations

import datetime
import os
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from fedgsp.core.errors import FedgspError, InputError
from fedgsp.data import FederatedData, load
from fedgsp.data.cache import open_entry
from fedgsp.deploy.certificates import public_pem, read_certificate, read_node_key, read_node_public
from fedgsp.deploy.layout import checked_address
from fedgsp.deploy.superlink import SuperLink

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.site import Site

Result = TypeVar("Result")

AHEAD_SECONDS, BEHIND_SECONDS = 5.0, 300.0
"""How far a node's clock may be from the SuperLink's: Flower refuses requests that were signed outside of this window."""
SOON_DAYS = 30
LEAST_DISK = 500_000_000
FEW_SAMPLES = 10


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: it is in order, worth a remark, or must be mended before the site joins."""

    name: str
    verdict: Literal["ok", "note", "wrong"]
    text: str


def check_site(folder: Path, superlink: str | None, *, offline: bool = False, insecure: bool = False) -> list[Check]:
    """All checks of a site's folder, in the order in which one would mend things."""
    return list(_checks(folder, superlink, offline, insecure))


def _checks(folder: Path, superlink: str | None, offline: bool, insecure: bool) -> Iterator[Check]:
    from fedgsp.engine.transports.flower.site import read_site

    site, trouble = _tried(lambda: read_site(folder / "site.toml"))
    if site is None:
        yield Check("site.toml", "wrong", trouble)
    else:
        yield Check("site.toml", "ok", f"site '{site.name}', histogram {site.histogram}{_demands(site)}")
        yield from _data(folder, site)
        yield _disk(site.state)
    yield from [Check("keys", "note", "INSECURE, as asked for: no key, no encryption")] if insecure else _keys(folder)
    if not offline:
        yield from _connection(folder, superlink, insecure)


def _data(folder: Path, site: Site) -> Iterator[Check]:
    from fedgsp.engine.transports.flower.shard import client_of

    data, trouble = _tried(lambda: load(site.source, data_seed=site.seed))
    if data is None:
        yield Check("data", "wrong", trouble)
        return
    client, trouble = _tried(lambda: client_of(site, data))
    if client is None:
        yield Check("data", "wrong", trouble)
        return
    yield _sizes(data, client)
    expected, trouble = _tried(lambda: _expected(folder / "federation.toml"))
    if expected is None:
        yield Check("shapes and labels", "wrong", trouble)
    elif not expected:
        yield Check("shapes and labels", "note", "no federation.toml says what is expected; ask the server's operator for it")
    else:
        yield _shapes(data, expected)
        yield _labels(data, client, expected)


def _sizes(data: FederatedData, client: int) -> Check:
    train, test = len(data.train[client]), len(data.test[client])
    text = f"client '{data.clients[client]}': {train} training and {test} test samples"
    if train == 0:
        return Check("sizes", "wrong", f"{text}; without training samples it cannot take part")
    if train < FEW_SAMPLES or test == 0:
        return Check("sizes", "note", f"{text}; {'few to train on' if train < FEW_SAMPLES else 'it cannot evaluate the model'}")
    return Check("sizes", "ok", text)


def _shapes(data: FederatedData, expected: dict[str, Any]) -> Check:
    ours, theirs = list(data.sample_shape), list(expected["shape"])
    if ours != theirs:
        return Check("shapes", "wrong", f"samples have the shape {ours}; the federation's have {theirs}")
    if str(data.features.dtype) != expected["dtype"]:
        return Check("shapes", "wrong", f"samples are {data.features.dtype}; the federation's are {expected['dtype']}")
    return Check("shapes", "ok", f"{data.features.dtype} of shape {ours}")


def _labels(data: FederatedData, client: int, expected: dict[str, Any]) -> Check:
    """Texts become classes in sorted order, so a site that lacks one would number all those behind it differently."""
    if data.classes == 0 or expected["classes"] == 0:
        same = data.classes == expected["classes"]
        return Check("labels", "ok" if same else "wrong", "real numbers" if same else "classes here, real numbers there")
    names = _class_names(data)
    wanted = expected.get("class_names")
    if wanted is not None and names is not None and list(names) != list(wanted):
        odd, missing = sorted(set(names) - set(wanted)), sorted(set(wanted) - set(names))
        what = f"unknown to the federation: {', '.join(odd)}" if odd else f"missing here: {', '.join(missing)}"
        return Check("labels", "wrong", f"the label vocabulary differs ({what}), so classes would be numbered differently")
    if data.classes != expected["classes"]:
        hint = f"say classes={expected['classes']} in the source"
        return Check("labels", "wrong", f"{data.classes} classes here, {expected['classes']} in the federation; {hint}")
    rows = np.concatenate([data.train[client], data.test[client]])
    held = len(np.unique(np.asarray(data.labels[rows])))
    return Check("labels", "ok", f"{data.classes} classes, {held} of them held here")


def _class_names(data: FederatedData) -> list[str] | None:
    entry = open_entry(data.memo) if data.memo is not None else None
    names = entry.meta.get("class_names") if entry is not None else None
    return None if names is None else [str(name) for name in names]


def _expected(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        if table["schema"] == 1 and isinstance(table["shape"], list) and isinstance(table["classes"], int):
            return {"dtype": "uint8", **table}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    raise InputError(f"{path} is not of schema 1, or its entries are not what they should be.")


def _disk(state: Path) -> Check:
    place = next(p for p in (state, *state.parents) if p.exists())
    if not os.access(place, os.W_OK):
        return Check("disk", "wrong", f"{place} may not be written, and clients' states go there")
    free = shutil.disk_usage(place).free
    verdict: Literal["ok", "note"] = "ok" if free >= LEAST_DISK else "note"
    return Check("disk", verdict, f"{free / 1e9:.1f} GB free for clients' states in {state}")


def _keys(folder: Path) -> Iterator[Check]:
    private, public = folder / "node.key", folder / "node.pub"
    key, trouble = _tried(lambda: read_node_key(private))
    if key is None:
        yield Check("keys", "wrong", trouble)
    elif stat.S_IMODE(private.stat().st_mode) & 0o077:
        yield Check("keys", "wrong", f"others on this machine can read {private}; run: chmod 600 {private}")
    elif public.exists() and read_node_public(public) != public_pem(key.public_key()):
        yield Check("keys", "wrong", f"{public} is not the public part of {private}")
    else:
        yield Check("keys", "ok", f"{key.curve.name} key, readable by its owner only")
    certificate, trouble = _tried(lambda: read_certificate(folder / "ca.crt"))
    if certificate is None:
        yield Check("authority", "wrong", trouble)
        return
    now = datetime.datetime.now(datetime.UTC)
    left = (certificate.not_valid_after_utc - now).days
    if certificate.not_valid_before_utc > now:
        yield Check(
            "authority", "wrong", f"its certificate is valid from {certificate.not_valid_before_utc} on; is the clock right?"
        )
    elif left < 0:
        yield Check("authority", "wrong", f"its certificate expired {-left} days ago; ask the server's operator for a new one")
    else:
        yield Check("authority", "ok" if left > SOON_DAYS else "note", f"its certificate is valid for {left} more days")


def _connection(folder: Path, superlink: str | None, insecure: bool) -> Iterator[Check]:
    address, trouble = _tried(lambda: superlink or (folder / "superlink.txt").read_text().strip())
    if address is None:
        yield Check("connection", "wrong", f"say where the SuperLink is with --superlink host:port ({trouble})")
        return
    link = SuperLink(checked_address(address, "the SuperLink's address"), None if insecure else folder / "ca.crt")
    key, trouble = _tried(lambda: read_node_key(folder / "node.key"))
    if key is None and not insecure:
        yield Check("connection", "wrong", "not tried without a key")
        return
    if insecure:
        known, trouble = _tried(link.answers)
        yield Check(
            "connection", "ok" if known else "wrong", f"{address} answers" if known else trouble or f"nobody at {address}"
        )
        return
    assert key is not None
    known, trouble = _tried(lambda: link.knows(key))
    if link.clock_ahead is not None:
        yield _clock(link.clock_ahead)
    if known is None:
        yield Check("connection", "wrong", trouble)
    elif not known:
        yield Check(
            "connection", "wrong", f"{address} does not know this node's key; its operator runs: fedgsp deploy register"
        )
    else:
        yield Check("connection", "ok", f"{address} proved to be ours and knows this node's key")


def _clock(ahead: float) -> Check:
    said = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's" if abs(ahead) >= 1 else "as the server's"
    if not -BEHIND_SECONDS < ahead < AHEAD_SECONDS:
        return Check("clock", "wrong", f"{said}, so the server refuses this node; keep it right (NTP)")
    return Check("clock", "note" if not -BEHIND_SECONDS / 2 < ahead < AHEAD_SECONDS / 2 else "ok", said)


def _tried(what: Callable[[], Result]) -> tuple[Result | None, str]:
    """(what came out, "") or (None, the sentence that says why not)."""
    try:
        return what(), ""
    except FedgspError as error:
        return None, str(error)
    except OSError as error:
        return None, f"{error.filename or error}: {error.strerror}"


def _demands(site: Site) -> str:
    """What the site demands of the noise on its updates, if anything."""
    noise = f", update-noise of at least {site.update_noise:g}" if site.update_noise is not None else ""
    return noise + (f", clip of at most {site.update_clip:g}" if site.update_clip is not None else "")
