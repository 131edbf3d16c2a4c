"""docs/data.md, run as written: every `fedgsp` line and every block of Python, in a folder with the files they name."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.data_files import shard, write_csv, write_hdf5, write_images, write_leaf, write_parquet

PAGE = Path(__file__).parents[1] / "docs" / "data.md"
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small files of the names that the page uses."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    write_leaf(tmp_path / "femnist", sizes=(12, 9, 14))
    (tmp_path / "shakespeare").mkdir()
    lines = ["to be.", "or not", "to be?"]
    (tmp_path / "shakespeare" / "all_data.json").write_text(json.dumps(shard({"hamlet": (lines, ["a", "b", "c"])})))
    write_parquet(tmp_path / "hub" / "femnist" / "data" / "train-00000-of-00001.parquet")
    pq.write_table(
        pa.table({"a": [0.5, 1.5] * 4, "who": ["x", "y"] * 4, "what": ["no", "yes"] * 4}), tmp_path / "table.parquet"
    )
    (tmp_path / "fed_emnist").mkdir()
    write_hdf5(tmp_path / "fed_emnist" / "fed_emnist_train.h5")
    write_hdf5(tmp_path / "fed_emnist" / "fed_emnist_test.h5", (2, 2), seed=5)
    write_csv(tmp_path / "patients.csv")
    write_images(tmp_path / "photos")
    (tmp_path / "photos" / "client0").rename(tmp_path / "photos" / "ann")
    return tmp_path


def test_the_page_as_written(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from fedgsp.cli.main import main

    namespace: dict[str, Any] = {"__name__": "__main__"}
    lines = 0
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), namespace)
            continue
        for line in block.splitlines():
            monkeypatch.setattr(sys, "argv", shlex.split(line))
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 0, (line, capsys.readouterr().err)
            lines += 1
    assert lines >= 15
    assert (here / "femnist.png").stat().st_size > 10_000
    told = capsys.readouterr().out
    fingerprints = re.findall(r"femnist(?:-again|\.npz)?: 3 clients, 41 samples, fingerprint ([0-9a-f]{16})", told)
    assert len(set(fingerprints)) == 1
