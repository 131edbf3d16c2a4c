"""An .npz archive as a stranger may hand it to you: no pickles, no zip bombs, nothing believed that can be checked.

NumPy's own loader allocates what a header promises before it reads. Here the header is read alone, held against the size of
the member, and the bytes are copied in blocks.
"""

from __future__ import annotations

import shutil
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedgsp.core.errors import InputError, brief

if TYPE_CHECKING:
    from fedgsp.data.cache import Progress

BLOCK = 1 << 20
SUSPICIOUS_SIZE = 1 << 28
SUSPICIOUS_RATIO = 200
"""Real images and features shrink a few times, seldom tenfold; a bomb of zeros about a thousandfold."""

LARGEST_IN_MEMORY = 1 << 30
DAMAGE = (
    ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, NotImplementedError, RuntimeError, struct.error,
    SyntaxError, MemoryError, OverflowError, TypeError, tokenize.TokenError, IndexError, AttributeError,
)  # fmt: skip


class Archive:
    """The members of an .npz file, by the names of their arrays."""

    def __init__(self, path: Path, file: zipfile.ZipFile) -> None:
        self._path, self._file = path, file
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in file.infolist():
            name = info.filename.removesuffix(".npy")
            if name in self._members:
                raise InputError(f"{path} holds two arrays called '{name}'.")
            self._members[name] = info

    @property
    def names(self) -> list[str]:
        """What arrays there are."""
        return list(self._members)

    def read(self, name: str) -> NDArray[Any]:
        """A small array (labels, client numbers, names), into memory."""
        with self._opened(name) as (member, shape, fortran, dtype):
            size = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if size > LARGEST_IN_MEMORY:
                raise InputError(f"{self._path}: the array '{name}' is too large ({size / 1e9:.1f} GB).")
            flat = np.frombuffer(member.read(size), dtype=dtype)
        array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
        return np.ascontiguousarray(array, dtype=dtype.newbyteorder("=")).reshape(shape)

    def copy(self, name: str, target: Path, progress: Progress) -> None:
        """A large array, to an .npy file that can be memory-mapped."""
        with self._opened(name) as (member, shape, fortran, dtype):
            total = int(np.prod(shape, dtype=object)) * dtype.itemsize
            free = shutil.disk_usage(target.parent).free
            if total > free:
                raise InputError(
                    f"{self._path}: '{name}' needs {total / 1e9:.1f} GB in the cache; {free / 1e9:.1f} GB are free."
                )
            swap = dtype.byteorder not in "=|" and not dtype.isnative
            with target.open("wb") as out:
                header = {"descr": dtype.newbyteorder("=").str, "fortran_order": fortran, "shape": shape}
                npy.write_array_header_1_0(out, header)
                done = 0
                step = max(BLOCK // max(1, dtype.itemsize), 1) * dtype.itemsize
                while done < total:
                    block = member.read(min(step, total - done))
                    if not block:
                        raise EOFError("it ends too early")
                    while len(block) % dtype.itemsize:
                        more = member.read(dtype.itemsize - len(block) % dtype.itemsize)
                        if not more:
                            raise EOFError("it ends too early")
                        block += more
                    out.write(np.frombuffer(block, dtype=dtype).byteswap().tobytes() if swap else block)
                    done += len(block)
                    progress("converting", done, total)

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]]:
        info = self._members[name]
        try:
            self._check_bomb(name, info)
            with self._file.open(info) as member:
                version = npy.read_magic(member)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"array format {version[0]}.{version[1]} is not supported")
                reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, fortran, dtype = reader(member)
                if dtype.hasobject:
                    raise InputError(f"{self._path}: the array '{name}' cannot be read: it holds pickled objects.")
                if dtype.names or dtype.itemsize == 0 or any(side < 0 for side in shape) or len(shape) > 32:
                    raise ValueError("its header makes no sense")
                if info.file_size - member.tell() != int(np.prod(shape, dtype=object)) * dtype.itemsize:
                    raise ValueError("its size is not what its header says")
                yield member, shape, fortran, dtype
                if member.read(1):  # reads to the end, and so checks the checksum
                    raise ValueError("there is more than its header says")
        except InputError:
            raise
        except RecursionError:
            raise InputError(f"{self._path}: the array '{name}' cannot be read: its header is nested too deep.") from None
        except DAMAGE as error:
            raise InputError(f"{self._path}: the array '{name}' cannot be read: {brief(error)}.") from error

    def _check_bomb(self, name: str, info: zipfile.ZipInfo) -> None:
        ratio = info.file_size / max(1, info.compress_size)
        if info.file_size > SUSPICIOUS_SIZE and ratio > SUSPICIOUS_RATIO:
            raise InputError(
                f"{self._path}: the array '{name}' would unpack {ratio:.0f}-fold to {info.file_size / 1e9:.1f} GB, as a zip "
                f"bomb does; if it is real, store it uncompressed (numpy.savez)."
            )


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an .npz file; damage anywhere in it is one sentence."""
    try:
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is not an .npz archive; numpy.savez writes one.")
        file = zipfile.ZipFile(path)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path} cannot be read as .npz: {brief(error)}.") from error
    with file:
        yield Archive(path, file)
