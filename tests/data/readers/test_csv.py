from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import load
from fedgsp.data.readers.csv import load_csv
from tests.support.data_files import write_csv


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "patients.csv")


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_csv(str(path), **options)
    return str(caught.value)


def test_a_table(file: Path) -> None:
    data = load(f"csv:{file}:label=outcome,client=site")
    assert data.clients == ("site-0", "site-1", "site-2", "site-3")
    assert data.sizes.tolist() == [10, 10, 10, 10]
    assert data.features.dtype == np.float32
    assert data.sample_shape == (3,)
    assert data.classes == 2
    assert load(f"{file}:label=outcome,client=site").fingerprint == data.fingerprint


def test_dealt_and_ignored(file: Path) -> None:
    data = load(f"csv:{file}:label=outcome,ignore=age+site,partition=dirichlet,alpha=0.5,clients=5,min_size=4")
    assert len(data) == 5
    assert data.sizes.min() >= 4
    assert data.sample_shape == (2,)


def test_the_usual_names_need_not_be_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,label,client\n1,0,a\n2,3,b\n")
    data = load_csv(str(tmp_path / "t.csv"))
    assert data.labels.tolist() == [0, 3]
    assert data.classes == 4


def test_real_labels(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,client\n1,0.5,a\n2,3,b\n")
    data = load_csv(str(tmp_path / "t.csv"))
    assert data.classes == 0
    assert data.labels.tolist() == [0.5, 3.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "does not begin with a line of column names"),
        (b"x,y,client\n", "has no samples"),
        (b"x,y,client\n1,2\n", "line 2 has 2 values; the header has 3"),
        (b"x,y,client\n1,0,a\nred,0,a\n", "line 3, column 'x': 'red' is not a number"),
        (b"x,y,client\nnan,0,a\n", "NaN"),
        (b"x,y,client\n1,-2,a\n", "label -2 is negative"),
        (b"x,y,client\n1,0,\n", "line 2 has no client"),
        (b"x,x,client\n1,0,a\n", "two columns are called 'x'"),
        (b"x,y,z\n1,0,a\n", "which column is the client?"),
        (b"x,z,client\n1,0,a\n", "which column is the label?"),
        (b"y,client\n0,a\n", "no columns left for the features"),
        (b"x,y,client\n1,0,\xff\n", "not text in UTF-8"),
        (b'x,y,client\n1,0,"a\n', "not a valid CSV"),
        (b"x,y,client\n1e300,0,a\n", "too large for float32"),
        (b"x,y,client\n1,1" + b"0" * 40 + b",a\n", "too large"),
    ],
)
def test_refused(tmp_path: Path, text: bytes, told: str) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    assert told in refused(tmp_path / "t.csv")


def test_a_file_without_line_breaks_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.data.readers import csv

    monkeypatch.setattr(csv, "LONGEST_LINE", 1000)
    (tmp_path / "t.csv").write_bytes(b"x,y,client\n" + b"1" * 5000)
    assert "a line of more than 1000 characters" in refused(tmp_path / "t.csv")


def test_nothing_there(tmp_path: Path, file: Path) -> None:
    assert "there is no CSV file" in refused(tmp_path / "no.csv")
    assert "is a directory" in refused(tmp_path)
    assert "unknown partition 'dirichlett': did you mean 'dirichlet'?" in refused(file, label="outcome", partition="dirichlett")
    assert "needs clients=" in refused(file, label="outcome", partition="iid")
    assert "has no option 'alpha'" in refused(file, label="outcome", ignore="site", partition="iid", clients=2, alpha=1.0)
    assert "the option clients needs a partition" in refused(file, label="outcome", client="site", clients=2)
