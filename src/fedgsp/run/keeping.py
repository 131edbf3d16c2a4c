"""Where clients keep their states during a run, how much room they need, and whether it is there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedgsp.client.client_state import HEADER_BYTES, ClientStore
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import total_bytes
from fedgsp.run.checkpoint import KEPT, most_kept

if TYPE_CHECKING:
    from fedgsp.run.run import Run

FOLDER = "clients"


def state_bytes(run: Run) -> int:
    """What one client keeps between its visits; 0 for most rules."""
    return total_bytes(run.worker_setup.beside_model()[0])


def disk_bytes(run: Run) -> int:
    """The most that the states of a run can take on disk.

    One version for every client that may have trained, and for those of a round another, which is being written; and what
    the checkpoints before the newest name beside: versions of clients that trained since, but never more than all of them.
    """
    each = state_bytes(run)
    if not each:
        return 0
    planner, clients = run.config.method.planner, len(run.participants)
    trained = [planner.schedule(r, clients).trained for r in range(1, run.config.run.rounds + 1)]
    everybody, every = min(clients, sum(trained)), run.config.run.checkpoint_every
    earlier = most_kept(run.config.run.rounds, every) - KEPT
    since = [min(everybody, (every or 2 << back) * max(trained)) for back in range(earlier)]
    return (everybody + sum(since) + 2 * max(trained)) * (each + HEADER_BYTES)


@contextmanager
def client_store(run: Run, path: Path | None) -> Iterator[ClientStore | None]:
    """The store of a run: below its directory, or in a temporary folder that is removed; None where nothing is kept."""
    if not state_bytes(run):
        yield None
    elif path is not None:
        yield ClientStore(path.absolute() / FOLDER)  # workers must find it too
    else:
        check_room(run, Path(tempfile.gettempdir()))
        with tempfile.TemporaryDirectory(prefix="fedgsp-clients-") as folder:
            yield ClientStore(Path(folder), durable=False)


def check_room(run: Run, place: Path) -> None:
    """Refuse a run whose clients' states do not fit on the disk of `place` (a run directory that may not exist yet)."""
    wanted = disk_bytes(run)
    if not wanted:
        return
    folder = place
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free + ClientStore(place / FOLDER).size()
    if wanted > free:
        raise InputError(
            f"what clients keep between visits needs up to {wanted / 1e9:.1f} GB below {place} "
            f"({state_bytes(run) / 1e6:.1f} MB for each of {len(run.participants)} clients, and more while it changes), and "
            f"only {free / 1e9:.1f} GB are free there; free some space, or choose another place."
        )


def check_states(store: ClientStore | None, kept: dict[int, str], path: Path) -> None:
    """Refuse to go on where a client's state is not there any more; what is damaged is found when it is read."""
    gone = store.missing(kept) if store is not None else []
    if gone:
        more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
        raise InputError(f"{path} cannot go on: the client state {gone[0]}{more} is missing; restore it from a copy.")
