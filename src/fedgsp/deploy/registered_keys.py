"""The nodes' keys that the operator has made known: kept beside the server, so that a SuperLink needs no database.

A SuperLink without one answers twice as quickly, and when it was killed and is back it does not take its old nodes for
connected. What it forgets is given back to it by whoever starts it (`restore`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedgsp.core.errors import InputError, RunFailed
from fedgsp.core.files import write_whole
from fedgsp.deploy.superlink import SuperLink, Unreachable

if TYPE_CHECKING:
    from fedgsp.deploy.layout import Deployment

SCHEMA = 1
POLL_SECONDS = 0.3


def read_keys(place: Deployment) -> dict[str, bytes]:
    """The public keys that are registered, by the sites' names."""
    file = _file(place)
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        if table["schema"] != SCHEMA:
            raise InputError(f"{file} has schema {table['schema']}; this version of fedgsp reads schema {SCHEMA}.")
        return {str(name): str(key).encode() for name, key in table["keys"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"cannot read {file}: {error}; remove it and register the sites again.") from error


def write_keys(place: Deployment, keys: Mapping[str, bytes]) -> None:
    """Keep the keys for the next SuperLink."""
    table = {"schema": SCHEMA, "keys": {name: key.decode() for name, key in sorted(keys.items())}}
    write_whole(_file(place), json.dumps(table, indent=2).encode() + b"\n")


def restore(place: Deployment, link: SuperLink, seconds: float) -> list[str]:
    """Make all kept keys known to a SuperLink that has just been started.

    Args:
        place: The deployment.
        link: Its SuperLink.
        seconds: How long to wait until it answers.

    Returns:
        The names of the sites whose keys it did not have.

    Raises:
        RunFailed: It does not answer in time.
    """
    keys, until = read_keys(place), time.monotonic() + seconds
    while not link.answers():
        if time.monotonic() > until:
            raise RunFailed(f"no SuperLink answered at {link.address} within {seconds:g} seconds.")
        time.sleep(POLL_SECONDS)
    try:
        return [name for name, key in keys.items() if link.register(key, name) is not None]
    except Unreachable as error:
        raise RunFailed(str(error)) from error


def _file(place: Deployment) -> Path:
    return place.server / "registered.json"
