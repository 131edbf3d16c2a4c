from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import load
from tests.support.data_files import write_parquet


def test_by_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "data" / "train-0.parquet")
    asked: list[dict[str, Any]] = []

    def fetch(**call: Any) -> str:
        asked.append(call)
        if call["repo_id"] != "flwrlabs/femnist":
            raise OSError("no such\ndata set")
        return str(tmp_path)

    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = fetch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    data = load("hf:flwrlabs/femnist:test=0.2")
    assert data.samples == 30
    assert data.source == "hf:flwrlabs/femnist:test=0.2"
    assert asked[0]["repo_type"] == "dataset"
    with pytest.raises(InputError, match=r"cannot fetch 'a/b' from the hub: no such data set\."):
        load("hf:a/b")
