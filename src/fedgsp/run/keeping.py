"""Where clients keep their states during a run, how much room they need, and whether it is there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedgsp.client.keep import HEADER_BYTES, ClientStore
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import total_bytes
from fedgsp.run.setup import Setup

FOLDER = "clients"


def state_bytes(setup: Setup) -> int:
    """What one client keeps between its visits; 0 for most rules."""
    return total_bytes(setup.job.beside_model()[0])


def disk_bytes(setup: Setup) -> int:
    """The most that the states of a run can take on disk.

    One version for every client that may have trained, and for those of two rounds another: the one before, which the previous
    checkpoint needs, and the one being written.
    """
    each = state_bytes(setup)
    if not each:
        return 0
    planner, clients = setup.config.method.planner, len(setup.roster)
    trained = [planner.schedule(r, clients).trained for r in range(1, setup.config.run.rounds + 1)]
    return (min(clients, sum(trained)) + 2 * max(trained)) * (each + HEADER_BYTES)


@contextmanager
def client_store(setup: Setup, run: Path | None) -> Iterator[ClientStore | None]:
    """The store of a run: below its directory, or in a temporary folder that is removed; None where nothing is kept."""
    if not state_bytes(setup):
        yield None
    elif run is not None:
        yield ClientStore(run / FOLDER)
    else:
        check_room(setup, Path(tempfile.gettempdir()))
        with tempfile.TemporaryDirectory(prefix="fedgsp-clients-") as folder:
            yield ClientStore(Path(folder), durable=False)


def check_room(setup: Setup, place: Path) -> None:
    """Refuse a run whose clients' states do not fit on the disk of `place` (a run directory that may not exist yet)."""
    wanted = disk_bytes(setup)
    if not wanted:
        return
    folder = place
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free + ClientStore(place / FOLDER).size()
    if wanted > free:
        raise InputError(
            f"what clients keep between visits needs up to {wanted / 1e9:.1f} GB below {place} "
            f"({state_bytes(setup) / 1e6:.1f} MB for each of {len(setup.roster)} clients, and more while it changes), and only "
            f"{free / 1e9:.1f} GB are free there; free some space, or choose another place."
        )


def check_states(store: ClientStore | None, kept: dict[int, str], run: Path) -> None:
    """Refuse to go on where a client's state is not there any more; what is damaged is found when it is read."""
    gone = store.missing(kept) if store is not None else []
    if gone:
        more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
        raise InputError(f"{run} cannot go on: the client state {gone[0]}{more} is missing; restore it from a copy.")
