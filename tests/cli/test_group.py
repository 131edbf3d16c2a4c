from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fedgsp.cli import group
from fedgsp.core.errors import InputError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    group.register(app)
    return app


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "counts.csv", rng.integers(0, 30, (24, 4)), fmt="%d", delimiter=",")
    return tmp_path / "counts.csv"


def test_groups_are_written_and_judged(app: typer.Typer, table: Path) -> None:
    out = table.parent / "groups.csv"
    done = CliRunner().invoke(app, [str(table), "--groups", "5", "--out", str(out)])
    assert done.exit_code == 0
    assert "24 clients in 5 groups by balanced, 0 left out" in done.output
    assert "these groups" in done.output
    assert len(out.read_text().splitlines()) == 25


def test_json_is_all_that_is_printed(app: typer.Typer, table: Path) -> None:
    out = table.parent / "groups.csv"
    done = CliRunner().invoke(app, [str(table), "--groups", "5", "--out", str(out), "--epsilon", "1", "--json"])
    found = json.loads(done.output)
    assert found["groups"] == 5
    assert len(found["assignment"]) == 24


@pytest.mark.parametrize(("text", "seconds"), [("200ms", 0.2), ("5s", 5), ("1.5", 1.5), ("2 min", 120), (None, None)])
def test_times_as_people_write_them(text: str | None, seconds: float | None) -> None:
    assert group.duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"^--within wants a time such as 200ms or 5s, not 'soon'\.$"):
        group.duration("soon")
