"""A checkpoint is `ServerState` on disk: one safetensors file whose name carries its own checksum.

Written, synced and renamed in one piece after every round; the one before it is kept, and some earlier ones (`keeps`). Its
metadata says which run it belongs to and how long the logs were, so that resuming cuts them back to exactly that moment.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from fedgsp.core.errors import InputError
from fedgsp.core.files import explained, read_regular, sync_folder, write_whole
from fedgsp.core.state import ServerState
from fedgsp.run.record_checks import is_count

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

SCHEMA = 1
KEPT = 2
VERSION = re.compile(r"\d{6,}-[0-9a-f]{32}", re.ASCII)
"""Of a client's state (`fedgsp.client.client_state`), which is part of a file's name."""
PLAIN = re.compile(r"\w[\w.+ -]{0,99}", re.ASCII)
NAME = re.compile(r"round-(\d{6,})-([0-9a-f]{32})\.safetensors")


@dataclass(frozen=True)
class Bookmark:
    """What a checkpoint says beside the tensors: whose it is, and where the logs stood."""

    identity: str
    numerics: dict[str, Any]
    journal_bytes: int
    plans_bytes: int
    scores_bytes: int = 0
    events_bytes: int | None = None


class DamagedCheckpoint(InputError):
    """A checkpoint whose content does not match its checksum."""


def is_plain(name: object) -> bool:
    """Whether a model's name can be part of a file's name without leading elsewhere."""
    return isinstance(name, str) and PLAIN.fullmatch(name) is not None


def keeps(round_: int, newest: int, every: int | None = None) -> bool:
    """Whether the checkpoint of a round is kept when another is the newest; one that is dropped is never wanted again.

    Without `every` there is one in each span of rounds back: 1, 2 to 3, 4 to 7, 8 to 15 and so on, and that of round 0. A run
    of R rounds keeps about log2(R) + 2 of them.

    Args:
        round_: The checkpoint's.
        newest: The round of the newest one.
        every: Keep those of every so many rounds, beside the newest two; 0: only these. None: as above.
    """
    back = newest - round_
    if back < KEPT:
        return True
    if every is not None:
        return every > 0 and round_ % every == 0
    return round_ % (1 << (back.bit_length() - 1)) == 0


def most_kept(rounds: int, every: int | None = None) -> int:
    """How many checkpoints a run of so many rounds keeps at most."""
    return KEPT + (rounds.bit_length() if every is None else rounds // every + 1 if every else 0)


def save(folder: Path, state: ServerState, bookmark: Bookmark, every: int | None = None) -> Path:
    """Write the state atomically, then drop the checkpoints that are not kept (`keeps`)."""
    tensors: Tensors = {}
    for kind, group in (("models", state.models), ("slots", state.slots), ("shared", {"": state.shared})):
        for name, members in group.items():
            tensors.update({f"{kind}|{name}|{key}": value.contiguous() for key, value in members.items()})
    facts = {
        "schema": SCHEMA,
        "round": state.round,
        "models": sorted(state.models),
        "slots": sorted(state.slots),
        "extra": state.extra,
        "kept": {str(client): mark for client, mark in sorted(state.client_versions.items())},
        "identity": bookmark.identity,
        "numerics": bookmark.numerics,
        "journal_bytes": bookmark.journal_bytes,
        "plans_bytes": bookmark.plans_bytes,
        "scores_bytes": bookmark.scores_bytes,
        "events_bytes": bookmark.events_bytes,
    }
    content = save_safetensors(tensors, metadata={"fedgsp": json.dumps(facts)})
    checksum = hashlib.sha256(content).hexdigest()[:32]
    with explained(folder):
        folder.mkdir(exist_ok=True)
    path = folder / f"round-{state.round:06d}-{checksum}.safetensors"
    write_whole(path, content)
    for old in candidates(folder)[KEPT:]:
        if not keeps(round_of(old), state.round, every):
            old.unlink(missing_ok=True)
    return path


def drop_after(folder: Path, round_: int) -> None:
    """Drop the checkpoints of later rounds: a run that goes on from this one cuts its logs back to it, so they are void."""
    later = [path for path in candidates(folder) if round_of(path) > round_]
    for path in later:
        path.unlink(missing_ok=True)
    if later:
        sync_folder(folder)  # before the logs are cut: a checkpoint must never say more than they hold


def candidates(folder: Path) -> list[Path]:
    """Checkpoint files, newest round first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (-round_of(path), path.name))


def load(path: Path) -> tuple[ServerState, Bookmark]:
    """Read a checkpoint; one that is damaged or of a newer format is refused."""
    match = NAME.fullmatch(path.name)
    try:
        content = read_regular(path)
    except OSError as error:
        raise DamagedCheckpoint(f"the checkpoint {path} cannot be read: {error.strerror}.") from error
    if match is None or hashlib.sha256(content).hexdigest()[:32] != match[2]:
        raise DamagedCheckpoint(f"the checkpoint {path} is damaged: its content does not match its checksum.")
    foreign = f"the checkpoint {path} is not one that fedgsp wrote."
    try:
        length = int.from_bytes(content[:8], "little")
        facts = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["fedgsp"])
        tensors, schema = load_safetensors(content), facts["schema"]
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedCheckpoint(foreign) from error
    if schema != SCHEMA:
        raise InputError(f"the checkpoint {path} has schema {schema}; this version of fedgsp reads schema {SCHEMA}.")
    try:
        return _decoded(facts, tensors)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(foreign) from error


def _decoded(facts: dict[str, Any], tensors: Tensors) -> tuple[ServerState, Bookmark]:
    lengths = (facts["journal_bytes"], facts["plans_bytes"], facts.get("scores_bytes", 0))
    events = facts.get("events_bytes")
    if not all(map(is_count, (facts["round"], *lengths, events or 0))) or not isinstance(facts["numerics"], dict):
        raise ValueError
    if not (isinstance(facts["identity"], str) and isinstance(facts["extra"], dict) and all(map(is_plain, facts["models"]))):
        raise ValueError
    groups: dict[str, dict[str, Tensors]] = {
        "models": {name: {} for name in facts["models"]},
        "slots": {name: {} for name in facts["slots"]},
        "shared": {"": {}},
    }
    for key, tensor in tensors.items():
        kind, name, member = key.split("|", 2)
        groups[kind][name][member] = tensor
    kept = {int(client): mark for client, mark in facts.get("kept", {}).items()}
    if not all(client >= 0 and VERSION.fullmatch(mark) for client, mark in kept.items()):
        raise ValueError
    state = ServerState(facts["round"], groups["models"], groups["slots"], groups["shared"][""], facts["extra"], kept)
    return state, Bookmark(facts["identity"], facts["numerics"], *lengths, events)


def round_of(path: Path) -> int:
    """The round in a checkpoint's name."""
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])
