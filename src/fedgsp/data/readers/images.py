"""Folders of pictures: `images:ROOT` with ROOT/<client>/<class>/*.png, or ROOT/<class>/*.png to be dealt to clients."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.core.imports import need
from fedgsp.data.assemble import ReaderOptions, federate
from fedgsp.data.cache import Progress, get_or_build, silent
from fedgsp.data.readers.columns import picture
from fedgsp.data.readers.encoding import Encoding, parse_shape
from fedgsp.data.readers.entry_writer import UNSPLIT, EntryWriter

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

VERSION = 1
ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
LARGEST_FILE = 1 << 26
BLOCK = 256


def load_images(path: str, *, size: str = "", color: str = "", progress: Progress = silent, **common: Any) -> FederatedData:
    """Read a folder of pictures, all of one size unless `size` ("32x32", width x height) makes them so.

    Grey pictures become (H, W), coloured ones (3, H, W); `color` (gray or rgb) makes them alike. Classes are numbered in the
    sorted order of their folders' names.
    """
    need("PIL.Image", "images", "reading pictures")
    options = ReaderOptions(**common)
    if color not in ("", "gray", "rgb"):
        raise InputError(f"color must be gray or rgb, not '{color}'.")
    wanted = parse_shape(size)
    if wanted is not None and (len(wanted) != 2 or not all(1 <= side <= 4096 for side in wanted)):
        raise InputError(f"size must be WIDTHxHEIGHT, e.g. 32x32, not '{size}'.")
    root, central = Path(path), options.partition is not None
    files = _files(root, central)
    key = hashlib.sha256(f"{_digest(root, files, progress)}|{size}|{color}|{central}".encode()).hexdigest()[:32]

    def build(folder: Path) -> dict[str, Any]:
        writer = EntryWriter(folder, Encoding("as is"))
        pixels = None if wanted is None else (wanted[0], wanted[1])
        for begin in range(0, len(files), BLOCK):
            some = files[begin : begin + BLOCK]
            for name in some:
                where = str(root / name)
                shown = picture(_bytes(root / name), where, color=color, size=pixels)
                writer.add_features(shown[None], where)
            writer.add_labels(np.array([Path(name).parts[-2] for name in some], dtype=np.str_), str(root))
            owners = ["0" if central else Path(name).parts[0] for name in some]
            writer.assign_clients(owners, np.full(len(some), UNSPLIT, dtype=np.uint8), str(root))
            progress("converting", begin + len(some), len(files))
        return {"kind": "images", "origin": root.name, **writer.finish(path)}

    return federate(get_or_build(f"images-v{VERSION}-{key}", build), options, path)


def _files(root: Path, central: bool) -> list[str]:
    """Paths of the pictures below the root, in sorted order; every one must lie as deep as the layout says."""
    if not root.is_dir():
        raise InputError(f"there is no directory {root}.")
    depth, layout = (2, "<class>/<picture>") if central else (3, "<client>/<class>/<picture>")
    found = sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.suffix.lower() in ENDINGS)
    if not found:
        raise InputError(f"{root} has no pictures ({', '.join(sorted(ENDINGS))}).")
    odd = next((name for name in found if len(Path(name).parts) != depth), None)
    if odd is not None:
        hint = "" if central else " To deal ROOT/<class>/<picture> to clients, say partition=dirichlet,clients=10."
        raise InputError(f"{root}: {odd} does not lie at {layout}.{hint}")
    return found


def _digest(root: Path, files: list[str], progress: Progress) -> str:
    """What is in the pictures. Not remembered file by file: a memory of many small files costs more than reading them."""
    whole = hashlib.sha256()
    for done, name in enumerate(files):
        content = hashlib.sha256(_bytes(root / name)).hexdigest()
        whole.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
        if done % BLOCK == 0:
            progress("reading", done, len(files))
    return whole.hexdigest()


def _bytes(file: Path) -> bytes:
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise InputError(f"{file} is too large for a picture.")
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}.") from error
