from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import load
from fedgsp.data.readers.parquet import load_parquet
from tests.support.data_files import pictures, write_parquet

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_parquet(str(path), **options)
    return str(caught.value)


def test_the_schema_of_flwrlabs_femnist(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet")
    data = load(f"parquet:{tmp_path}:test=0.2")
    assert data.clients == ("f0000_00", "f0001_01", "f0002_02")
    assert data.train.sizes.tolist() == [8, 8, 8]
    assert data.features.dtype == np.uint8
    assert data.classes == 62
    rows = np.sort(np.concatenate([data.train[1], data.test[1]]))
    assert np.array_equal(data.features[rows], pictures(30)[1::3])
    assert data.labels[rows].tolist() == list(range(1, 30, 3))


def test_the_split_of_the_files_is_kept(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-0.parquet", 12)
    write_parquet(tmp_path / "test-0.parquet", 6, seed=1)
    data = load_parquet(str(tmp_path))
    assert data.train.sizes.tolist() == [4, 4, 4]
    assert data.test.sizes.tolist() == [2, 2, 2]
    write_parquet(tmp_path / "more.parquet", 6)
    assert "is more.parquet for training or for testing?" in refused(tmp_path)


def test_any_table_with_a_client_column(tmp_path: Path) -> None:
    table = pa.table(
        {"a": [0.5, 1.5, 2.5, 3.5], "b": [1, 2, 3, 4], "who": ["x", "y", "x", "y"], "what": ["no", "yes", "no", "yes"]}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    data = load_parquet(str(tmp_path / "t.parquet"), client="who", label="what")
    assert data.clients == ("x", "y")
    assert data.features.tolist() == [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0], [3.5, 4.0]]
    assert data.labels.tolist() == [0, 1, 0, 1]
    dealt = load_parquet(str(tmp_path / "t.parquet"), label="what", partition="iid", clients=2)
    assert dealt.sizes.tolist() == [2, 2]


def test_a_column_of_lists(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[0.5, 2.5], [1.5, 3.5]], "y": [0.5, 1.25], "user": [1, 1]}), tmp_path / "t.parquet")
    data = load_parquet(str(tmp_path / "t.parquet"), classes=0)
    assert data.features.dtype == np.float32
    assert data.sample_shape == (2,)
    assert data.classes == 0


class TestRefused:
    def table(self, tmp_path: Path, **columns: Any) -> Path:
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"

    def test_nothing_there(self, tmp_path: Path) -> None:
        assert "there is no parquet file or directory" in refused(tmp_path / "no")
        assert "has no *.parquet files" in refused(tmp_path)

    def test_no_parquet(self, tmp_path: Path) -> None:
        (tmp_path / "t.parquet").write_bytes(b"hello" * 20)
        assert "cannot be read as parquet" in refused(tmp_path / "t.parquet")

    def test_columns(self, tmp_path: Path) -> None:
        file = self.table(tmp_path, x=[[1.0]], y=[1])
        assert "which column is the client? Say client=NAME; there are: x, y." in refused(file)
        assert "has no column 'usr' for the client" in refused(file, client="usr")
        file = self.table(tmp_path, user=["a"], y=[1])
        assert "no column can be the features" in refused(file)

    def test_holes_and_shapes(self, tmp_path: Path) -> None:
        assert "column 'x' is empty in row 1" in refused(self.table(tmp_path, x=[[1.0], None], y=[1, 2], user=["a", "a"]))
        assert "column 'y' is empty in row 0" in refused(self.table(tmp_path, x=[[1.0], [2.0]], y=[None, 2], user=["a", "a"]))
        assert "a row has no client" in refused(self.table(tmp_path, x=[[1.0], [2.0]], y=[1, 2], user=["a", None]))
        assert "unequal shape" in refused(self.table(tmp_path, x=[[1.0], [2.0, 3.0]], y=[1, 2], user=["a", "a"]))
        assert "NaN" in refused(self.table(tmp_path, x=[[1.0], [float("nan")]], y=[1, 2], user=["a", "a"]))
        assert "picture cannot be read" in refused(self.table(tmp_path, image=[b"no png"], y=[1], user=["a"]))

    def test_more_rows_than_bytes(self, tmp_path: Path) -> None:
        """Run-length encoding makes billions of equal rows a few bytes: the cache would not be."""
        zeros = np.zeros(500_000)
        file = self.table(tmp_path, x=zeros, y=zeros.astype(int), user=zeros.astype(int))
        assert "claims 500000 rows in" in refused(file)

    def test_a_label_that_does_not_fit(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "t.parquet")
        assert "out of range for 5 classes" in refused(tmp_path / "t.parquet", classes=5)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert refused(tmp_path).endswith("which is not installed; run: pip install 'fedgsp[parquet]'.")
