from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import load
from fedgsp.data.readers.hdf5 import load_hdf5
from tests.support.data_files import pictures, write_hdf5

h5py = pytest.importorskip("h5py")


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_hdf5(str(path), **options)
    return str(caught.value)


def test_one_file_is_split(tmp_path: Path) -> None:
    data = load(f"hdf5:{write_hdf5(tmp_path / 'fed_emnist.h5')}:test=0.4")
    assert data.clients == ("f0000_00", "f0001_01")
    assert data.train.sizes.tolist() == [3, 4]
    assert data.features.dtype == np.uint8
    assert np.array_equal(data.features[:5], pictures(5, 0))
    assert data.classes == 62


def test_a_pair_of_files_keeps_its_split(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "fed_emnist_train.h5")
    write_hdf5(tmp_path / "fed_emnist_test.h5", (2, 3), seed=9)
    data = load_hdf5(str(tmp_path))
    assert data.train.sizes.tolist() == [5, 7]
    assert data.test.sizes.tolist() == [2, 3]
    (tmp_path / "fed_emnist_test.h5").unlink()
    assert "no pair of files" in refused(tmp_path)


class TestRefused:
    def file(self, tmp_path: Path, **members: Any) -> Path:
        with h5py.File(tmp_path / "t.h5", "w") as out:
            for name, data in members.items():
                out[f"examples/ann/{name}"] = data
        return tmp_path / "t.h5"

    def test_other_files(self, tmp_path: Path) -> None:
        assert "there is no HDF5 file" in refused(tmp_path / "no")
        (tmp_path / "t.h5").write_bytes(b"hello" * 20)
        assert "cannot be read as HDF5" in refused(tmp_path / "t.h5")
        with h5py.File(tmp_path / "u.h5", "w") as out:
            out["something"] = 1
        assert "it is not a TFF file" in refused(tmp_path / "u.h5")

    def test_members(self, tmp_path: Path) -> None:
        assert "client 'ann' has no 'label'; it has: pixels." in refused(self.file(tmp_path, pixels=np.zeros((2, 3))))
        assert "not one for each sample" in refused(self.file(tmp_path, pixels=np.zeros((2, 3)), label=[1]))
        assert "client 'ann', features are object, not numbers" in refused(self.file(tmp_path, pixels=[b"ab"], label=[1]))
        assert "label -1 is negative" in refused(self.file(tmp_path, pixels=np.zeros((1, 3)), label=[-1]))
        assert "NaN" in refused(self.file(tmp_path, pixels=np.full((1, 3), np.nan), label=[1]))

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        write_hdf5(tmp_path / "other.h5")
        with h5py.File(tmp_path / "t.h5", "w") as out:
            out["examples"] = h5py.ExternalLink("other.h5", "/examples")
        assert "'examples' is a link, which is not followed" in refused(tmp_path / "t.h5")

    def test_a_huge_claim(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "t.h5", "w") as out:
            out.create_dataset("examples/ann/pixels", shape=(10**9, 28, 28), dtype="f4", chunks=(100, 28, 28))
            out.create_dataset("examples/ann/label", shape=(10**9,), dtype="i4", chunks=(1000,))
        assert "damaged or hostile" in refused(tmp_path / "t.h5")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert refused(tmp_path).endswith("pip install 'fedgsp[hdf5]'.")
