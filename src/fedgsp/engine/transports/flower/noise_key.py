"""A site's own key, which the noise on its updates follows from: it never leaves the site."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedgsp.core.errors import InputError

FILE = "noise.key"
NUMBERS = 8


def noise_key(folder: Path) -> tuple[int, ...]:
    """The key of a site, 256 bits in a file that only its owner can read; made when it is asked for first.

    Args:
        folder: Where the site keeps its states.

    Raises:
        InputError: The file is there and is no such key.
    """
    file = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{FILE}.{secrets.token_hex(8)}.tmp"
    if not file.exists():
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, secrets.token_hex(4 * NUMBERS).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(scratch, file)  # whoever is first has made the key, and all others take that
        except FileExistsError:
            pass
        finally:
            scratch.unlink(missing_ok=True)
    try:
        text = file.read_text()
        if len(text) != 8 * NUMBERS:
            raise ValueError
        return tuple(int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is not a key; remove it, and a new one is made.") from error
