"""LEAF's CelebA: its JSON has the names of pictures, and whether somebody smiles; the pictures lie beside it.

`leaf:DIR:encoder=celeba`. Pictures are looked for where LEAF's scripts want them (`raw/img_align_celeba`), or in `images=`.
They become (3, 84, 84) bytes, LEAF's size, unless `size=` says otherwise.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.imports import need
from fedgsp.data.readers.columns import picture
from fedgsp.data.readers.encoding import parse_shape

CELEBA = "celeba"
FOLDER = "img_align_celeba"
SIZE = (84, 84)
CLASSES = ("not smiling", "smiling")
LABELS = (-1, 0, 1)
"""CelebA's own attributes are -1 and 1, LEAF's labels 0 and 1."""


@dataclass(frozen=True)
class PictureEncoder:
    """From a client's lists of picture names and labels to pixels and classes."""

    folder: Path
    size: tuple[int, int] = SIZE

    def __call__(self, x: list[Any], y: list[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """(pixels (n, 3, height, width), classes (n,))."""
        return np.stack([self._pixels(name) for name in x]), np.array([_label(one) for one in y], dtype=np.int64)

    def version(self) -> str:
        """A text that changes when a picture or the size does: names, sizes and times, since there may be 200,000."""
        whole = hashlib.sha256(f"{CELEBA} {self.size}".encode())
        with os.scandir(self.folder) as files:
            for file in sorted(files, key=lambda file: file.name):
                known = file.stat()
                whole.update(f"{file.name}\0{known.st_size}\0{known.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

    def _pixels(self, name: Any) -> NDArray[np.uint8]:
        if not isinstance(name, str) or Path(name).name != name:
            raise InputError(f"{name!r} is not the name of a picture.")
        file = self.folder / name
        try:
            return picture(file.read_bytes(), str(file), color="rgb", size=self.size)
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}.") from error


def picture_encoder(data: Path, images: str, size: str) -> PictureEncoder:
    """The encoder of a LEAF directory's pictures.

    Args:
        data: The LEAF directory.
        images: Where the pictures are; "": where LEAF's scripts want them.
        size: "WIDTHxHEIGHT"; "": LEAF's.

    Raises:
        InputError: There is no such folder, or no such size.
    """
    need("PIL.Image", "images", "reading pictures")
    wanted = parse_shape(size) or SIZE
    if len(wanted) != 2 or not all(1 <= side <= 4096 for side in wanted):
        raise InputError(f"size must be WIDTHxHEIGHT, e.g. 84x84, not '{size}'.")
    if images and not Path(images).is_dir():
        raise InputError(f"there is no folder of pictures {images}.")
    inner = (Path("raw") / FOLDER, Path(FOLDER), Path("data") / "raw" / FOLDER)
    bases = (data, data.parent, data.parent.parent)
    tried = [Path(images)] if images else [base / place for base in bases for place in inner]
    found = next((folder for folder in tried if folder.is_dir()), None)
    if found is None:
        raise InputError(f"{data} has no raw/{FOLDER} with CelebA's pictures; say where they are: images=FOLDER.")
    return PictureEncoder(found, (wanted[0], wanted[1]))


def _label(value: Any) -> int:
    number = int(value)
    if number not in LABELS:
        raise ValueError(f"smiling is 0 or 1, not {value}")
    return int(number > 0)
