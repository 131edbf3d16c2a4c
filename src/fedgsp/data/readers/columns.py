"""Tables (parquet, data frames, Flower's partitions): which column is what, and columns as arrays."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.imports import need

CLIENT = ("writer_id", "client_id", "client", "user_id", "user", "writer", "partition_id", "site")
LABEL = ("character", "label", "labels", "fine_label", "target", "class", "y")
FEATURES = ("image", "img", "pixels", "pixel_values", "input_ids", "features", "x")
LARGEST_IMAGE = 1 << 24
"""Pixels; larger pictures are refused before they are decoded."""


def find_column(there: Sequence[str], wanted: str | None, usual: Sequence[str], role: str, where: str) -> str | None:
    """The column that plays a role: the one asked for, else the first of the usual names that is there, else None."""
    if wanted:
        if wanted not in there:
            raise InputError(f"{where} has no column '{wanted}' for the {role}: {did_you_mean(wanted, there)}")
        return wanted
    return next((name for name in usual if name in there), None)


def require_column(found: str | None, role: str, option: str, there: Sequence[str], where: str) -> str:
    """A column without which nothing works."""
    if found is None:
        raise InputError(f"{where}: which column is the {role}? Say {option}=NAME; there are: {', '.join(there)}.")
    return found


def picture(value: Any, where: str, *, color: str = "", size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """An encoded or decoded picture as bytes: (H, W) if grey, (3, H, W) if coloured."""
    image = need("PIL.Image", "images", "reading pictures")
    if isinstance(value, dict):
        value = value.get("bytes")
    if value is None:
        raise InputError(f"{where}: the picture is missing.")
    try:
        opened = image.open(io.BytesIO(value)) if isinstance(value, bytes) else value
        if opened.size[0] * opened.size[1] > LARGEST_IMAGE:
            raise InputError(f"{where}: a picture of {opened.size[0]}x{opened.size[1]} pixels is too large.")
        grey = color == "gray" or (not color and opened.mode in ("1", "L", "LA", "I", "I;16", "F"))
        shown = opened.convert("L" if grey else "RGB")
        if size is not None and shown.size != size:
            shown = shown.resize(size, image.Resampling.LANCZOS)
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise almost anything on damaged files
        raise InputError(f"{where}: the picture cannot be read ({type(error).__name__}).") from error
    pixels = np.asarray(shown, dtype=np.uint8)
    return pixels if grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def stacked(values: Sequence[Any], where: str) -> NDArray[Any]:
    """Samples (n, ...) from a column: pictures, lists of numbers, arrays or single numbers."""
    if not values:
        return np.empty((0, 1), dtype=np.float32)
    if any(value is None for value in values):
        raise InputError(f"{where} is empty in row {next(i for i, value in enumerate(values) if value is None)}.")
    first = values[0]
    if isinstance(first, (bytes, dict)) or (hasattr(first, "convert") and hasattr(first, "mode")):
        values = [picture(value, where) for value in values]
    arrays = [_array(value, where) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        odd = next(i for i, array in enumerate(arrays) if array.shape != arrays[0].shape)
        raise InputError(f"{where}: samples of unequal shape: {arrays[odd].shape} in row {odd}, {arrays[0].shape} before.")
    block = np.stack(arrays)
    return block.reshape(-1, 1) if block.ndim == 1 else block


def labels(values: Sequence[Any], where: str) -> NDArray[Any]:
    """A column of labels: whole numbers, real numbers or texts."""
    if any(value is None for value in values):
        raise InputError(f"{where} is empty in row {next(i for i, value in enumerate(values) if value is None)}.")
    if all(isinstance(value, str) for value in values):
        return np.array(values, dtype=np.str_)
    made = _array(list(values), where)
    if made.dtype.kind not in "buif":
        raise InputError(f"{where}: labels are neither numbers nor texts.")
    return made


def _array(value: Any, where: str) -> NDArray[Any]:
    try:
        made = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{where}: numbers of unequal shape.") from None
    if made.dtype.kind not in "buif":
        raise InputError(f"{where} is not made of numbers.")
    return made
