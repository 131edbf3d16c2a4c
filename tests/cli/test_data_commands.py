from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedgsp.data import load
from tests.support.data_files import write_csv, write_leaf

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fedgsp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    from fedgsp.cli.main import main

    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedgsp", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return run


def test_inspect_as_json_and_with_a_picture(fedgsp: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, _ = fedgsp("data", "inspect", f"leaf:{write_leaf(tmp_path / 'l')}", "--json", "--plot", str(tmp_path / "p.png"))
    assert code == 0
    found = json.loads(out)
    assert (found["schema"], found["clients"], found["samples"]) == (1, 3, 25)
    assert (tmp_path / "p.png").exists()


def test_inspect_says_what_matters(fedgsp: Run, tmp_path: Path) -> None:
    code, out, _ = fedgsp("data", "inspect", f"leaf:{write_leaf(tmp_path / 'l')}")
    assert code == 0
    for words in ("3 clients, 25 samples (19 train, 6 test) of 8x8 uint8, 62 classes", "fingerprint", "label skew", "FEMNIST",
                  "CPD between two clients", "Nobody has classes"):  # fmt: skip
        assert words in out


def test_the_cache_is_visible_and_cleared(fedgsp: Run, tmp_path: Path) -> None:
    source = f"leaf:{write_leaf(tmp_path / 'l')}"
    code, out, _ = fedgsp("data", "prepare", source)
    assert code == 0
    assert out.startswith("3 clients, 25 samples, fingerprint ")
    table = json.loads(fedgsp("data", "list", "--json")[1])
    assert [entry["kind"] for entry in table["entries"]] == ["leaf"]
    assert table["bytes"] > 1000
    code, out, _ = fedgsp("data", "list")
    assert "1 entries" in out.replace("\n", "")
    assert fedgsp("data", "clear", "nothing")[0] == 2
    assert fedgsp("data", "clear", "--yes")[0] == 0
    assert json.loads(fedgsp("data", "list", "--json")[1])["entries"] == []


def test_export(fedgsp: Run, tmp_path: Path) -> None:
    source = f"csv:{write_csv(tmp_path / 'p.csv')}:label=outcome,client=site"
    assert fedgsp("data", "export", source, "--to", "npz", "--out", str(tmp_path / "o.npz"))[0] == 0
    code, _, err = fedgsp("data", "export", source, "--to", "npz", "--out", str(tmp_path / "o.npz"))
    assert (code, err) == (2, f"fedgsp: {tmp_path / 'o.npz'} exists already; name another place.\n")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("leaf:/nowhere", "fedgsp: there is no LEAF directory /nowhere.\n"),
        ("csv:/nowhere.csv", "fedgsp: there is no CSV file /nowhere.csv.\n"),
        ("leav:x", "fedgsp: unknown data source 'leav:x': did you mean 'leaf'? A path must end in"),
        ("csv:x.csv:colour=red", "fedgsp: the source 'csv' has no option 'colour'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(fedgsp: Run, source: str, told: str) -> None:
    code, out, err = fedgsp("data", "inspect", source)
    assert (code, out) == (2, "")
    assert err.startswith(told)
    assert err.count("\n") == 1


def test_a_directory_without_a_kind_is_asked_about(fedgsp: Run, tmp_path: Path) -> None:
    assert f"Say leaf:{tmp_path}" in fedgsp("data", "inspect", str(tmp_path))[2]


def test_made_data_is_listed_with_its_counts(fedgsp: Run) -> None:
    assert fedgsp("data", "prepare", "glyphs:clients=3,seed=7")[0] == 0
    (line,) = [line for line in fedgsp("data", "list")[1].splitlines() if line.startswith("glyphs-v1-3-7")]
    assert line.split()[1:4] == ["glyphs", "3", f"{load('glyphs:clients=3,seed=7').samples:,}"]
