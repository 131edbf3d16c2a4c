from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from fedgsp.core.errors import InputError
from fedgsp.data.readers import npz_archive
from fedgsp.data.readers.npz import load_npz

X, Y, C = np.zeros((4, 2), dtype=np.float32), np.arange(4), np.arange(4) % 2


def member(header: dict[str, Any] | None, body: bytes) -> bytes:
    out = io.BytesIO()
    if header is not None:
        npy.write_array_header_1_0(out, header)
    return out.getvalue() + body


def archive(file: Path, features: bytes, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(file, "w", method) as out:
        out.writestr("features.npy", features)
        for name, array in (("labels", Y), ("client_index", C)):
            buffer = io.BytesIO()
            np.save(buffer, array)
            out.writestr(f"{name}.npy", buffer.getvalue())
    return file


def refused(file: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_npz(str(file))
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Bomb:
    """Would leave a trace if it were ever unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    header = {"descr": "|O", "fortran_order": False, "shape": (4,)}
    archive(tmp_path / "f.npz", member(header, pickle.dumps([Bomb(tmp_path / "trace")] * 4)))
    assert refused(tmp_path / "f.npz").endswith("the array 'features' cannot be read: it holds pickled objects.")
    assert not (tmp_path / "trace").exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz_archive, "SUSPICIOUS_SIZE", 1 << 20)
    header = {"descr": "<f4", "fortran_order": False, "shape": (4, 1 << 20)}
    archive(tmp_path / "f.npz", member(header, bytes(16 << 20)), zipfile.ZIP_DEFLATED)
    assert (tmp_path / "f.npz").stat().st_size < 100_000
    assert "as a zip bomb does" in refused(tmp_path / "f.npz")


@pytest.mark.parametrize(
    ("header", "body", "told"),
    [
        ({"descr": "<f4", "fortran_order": False, "shape": (4, 10**12)}, bytes(32), "its size is not what its header says"),
        ({"descr": "<f4", "fortran_order": False, "shape": (4, 2)}, bytes(31), "its size is not what its header says"),
        ({"descr": "<f4", "fortran_order": False, "shape": (4, 2)}, bytes(33), "its size is not what its header says"),
        ({"descr": [("a", "<f4"), ("b", "<f4")], "fortran_order": False, "shape": (4,)}, bytes(32), "makes no sense"),
        (None, b"hello, world, this is no array", "cannot be read"),
        (None, b"\x93NUMPY\x01\x00\xff\xff{", "cannot be read"),
        (None, b"\x93NUMPY\x09\x00" + bytes(40), "cannot be read"),
        (None, b"\x93NUMPY\x01\x00\x00\x20" + b"(" * 8192, "cannot be read"),
    ],
)
def test_headers_are_not_believed(tmp_path: Path, header: dict[str, Any] | None, body: bytes, told: str) -> None:
    archive(tmp_path / "f.npz", member(header, body))
    assert told in refused(tmp_path / "f.npz")


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    archive(tmp_path / "f.npz", member({"descr": "<f4", "fortran_order": False, "shape": (4, 2)}, bytes(32)))
    with zipfile.ZipFile(tmp_path / "f.npz", "a") as out, pytest.warns(UserWarning, match="Duplicate"):
        out.writestr("labels.npy", b"")
    assert "holds two arrays called 'labels'" in refused(tmp_path / "f.npz")


def test_orders_and_byte_orders_are_read(tmp_path: Path) -> None:
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.savez(tmp_path / "a.npz", features=values, labels=Y, client_index=C)
    np.savez(tmp_path / "b.npz", features=np.asfortranarray(values), labels=Y, client_index=C)
    np.savez(tmp_path / "c.npz", features=values.astype(">f4"), labels=Y, client_index=C)
    assert len({load_npz(str(tmp_path / f"{name}.npz")).fingerprint for name in "abc"}) == 1
