from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.report.tables import read_clients


def csv(folder: Path, text: str) -> str:
    path = folder / "counts.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_plain_table_of_counts(tmp_path: Path) -> None:
    table = read_clients(csv(tmp_path, "1,2,3\n4,5,6\n"))
    assert table.names == ["0", "1"]
    assert table.counts.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert table.counts.dtype == np.int64
    assert table.sites is None
    assert table.seconds is None


def test_columns_with_names(tmp_path: Path) -> None:
    table = read_clients(csv(tmp_path, "\ufeffclient,cat,dog,Site,seconds\nann,1,2,x,0.5\nbob,4,5.5,y,2\n"))
    assert table.names == ["ann", "bob"]
    assert table.counts.tolist() == [[1, 2], [4, 5.5]]
    assert table.sites is not None
    assert table.sites.tolist() == ["x", "y"]
    assert table.seconds is not None
    assert table.seconds.tolist() == [0.5, 2]


def test_arrays_and_data_sources(tmp_path: Path) -> None:
    np.savez(tmp_path / "table.npz", counts=np.arange(6).reshape(3, 2), clients=np.array(["a", "b", "c"]))
    table = read_clients(str(tmp_path / "table.npz"))
    assert table.names == ["a", "b", "c"]
    assert table.counts.tolist() == [[0, 1], [2, 3], [4, 5]]
    np.savez(tmp_path / "data.npz", features=np.zeros((6, 2)), labels=np.arange(6) % 2, client_index=np.arange(6) // 3)
    assert read_clients(str(tmp_path / "data.npz")).counts.sum() > 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no columns of counts"),
        ("client\nann\n", "has no columns of counts"),
        ("a,b\n", "has no clients"),
        ("a,b\n1,x\n", "is not a table of numbers with a row for each client"),
        ("1,2\n3\n", "is not a table of numbers with a row for each client"),
        ("1,2\n3,-4\n", "counts must not be negative, but row 1 has one that is"),
        ("1,2\nnan,4\n", "counts must be finite, but row 1 is not"),
        ("a,seconds\n1,soon\n", "seconds must be numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt. input contained no data")
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_clients(csv(tmp_path, text))


def test_files_that_are_not_there() -> None:
    with pytest.raises(InputError, match=r"^there is no file nowhere\.csv\.$"):
        read_clients("nowhere.csv")
    with pytest.raises(InputError, match=r"there is no data file nowhere\.npz"):
        read_clients("nowhere.npz")
