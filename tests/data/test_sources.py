from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import load
from fedgsp.data.sources import Source, absolute, parse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.npz"
    rng = np.random.default_rng(0)
    np.savez(path, features=rng.normal(size=(60, 3)), labels=np.arange(60) % 3, client_index=np.repeat(np.arange(6), 10))
    return path


@pytest.mark.parametrize(
    ("text", "kind", "path", "options"),
    [
        ("glyphs", "glyphs", None, {}),
        ("glyphs:", "glyphs", None, {}),
        ("glyphs:clients=100,seed=1", "glyphs", None, {"clients": "100", "seed": "1"}),
        ("glyphs: clients = 100 , seed=1", "glyphs", None, {"clients": "100", "seed": "1"}),
        ("npz:a/b.npz", "npz", "a/b.npz", {}),
        ("npz:a/b.npz:federation=femnist-368", "npz", "a/b.npz", {"federation": "femnist-368"}),
        ("npz:no-suffix:test=0.2", "npz", "no-suffix", {"test": "0.2"}),
        ("a/b.npz", "npz", "a/b.npz", {}),
        ("a/B.NPZ", "npz", "a/B.NPZ", {}),
        ("/x/a.npz:test=0.2,seed=3", "npz", "/x/a.npz", {"test": "0.2", "seed": "3"}),
        ("odd:name.npz", "npz", "odd:name.npz", {}),
        ("alpha=2.npz", "npz", "alpha=2.npz", {}),
        ("alpha=2.npz:test=0.5", "npz", "alpha=2.npz", {"test": "0.5"}),
    ],
)
def test_syntax(text: str, kind: str, path: str | None, options: dict[str, str]) -> None:
    found = parse(text)
    assert found == Source(kind, path, options)
    assert parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("glyph", r"unknown data source 'glyph': did you mean 'glyphs'\? A path must end in \.npz, "),
        (
            "femnist.json",
            r"unknown data source 'femnist.json': choose from: csv, glyphs, hdf5, .*npz, parquet\. A path must end in \.npz, ",
        ),
        ("", r"unknown data source ''"),
        ("npz", r"the source 'npz' names no file; write npz:PATH\."),
        ("npz:", r"names no file"),
        ("npz:test=0.5", r"names no file"),
        ("glyphs:100", r"'100' in the source 'glyphs:100' is not key=value\."),
        ("glyphs:clients=5,seed", r"'seed' in the source .* is not key=value\."),
        ("glyphs:=5", r"'=5' in the source .* is not key=value\."),
    ],
)
def test_syntax_errors(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        parse(text)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("tset=0.5", r"the source 'npz' has no option 'tset': did you mean 'test'\?"),
        ("clients=3", r"the option clients needs a partition, e\.g\. partition=dirichlet\."),
        ("test=much", r"the option test of 'npz' must be a number, not 'much'\."),
        ("classes=3.5", r"the option classes of 'npz' must be a number, not '3.5'\."),
        ("seed=-1", r"a seed is a whole number from 0 to 4294967295, not -1\."),
        ("seed=4294967296", r"a seed is a whole number"),
        ("test=1", r"test must be a fraction from 0 up to 1, not 1.0\."),
        ("federation=femnist", r"unknown federation 'femnist'"),
    ],
)
def test_option_errors(file: Path, options: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        load(f"{file}:{options}")


@pytest.mark.parametrize("option", ["writers=5", "federation=all"])
def test_options_of_glyphs(option: str) -> None:
    with pytest.raises(InputError, match=r"the source 'glyphs' has no option"):
        load(f"glyphs:{option}")


def test_glyphs_for_nobody() -> None:
    with pytest.raises(InputError, match=r"glyphs needs at least one client, not 0\."):
        load("glyphs:clients=0")


def test_options_reach_the_reader(file: Path) -> None:
    assert load(f"{file}:classes=7").classes == 7
    assert load(f"npz:{file}:test=0.5").test.sizes.tolist() == [5] * 6


def test_the_data_seed_rules_splits_unless_the_source_has_one(file: Path) -> None:
    plain, three = load(str(file)), load(f"{file}:seed=3")
    assert load(str(file), data_seed=0).fingerprint == plain.fingerprint
    assert load(str(file), data_seed=3).fingerprint == three.fingerprint != plain.fingerprint
    assert load(f"{file}:seed=3", data_seed=9).fingerprint == three.fingerprint


def test_a_subset_of_the_clients(file: Path) -> None:
    three = load(str(file), clients=3, data_seed=1)
    assert len(three) == 3
    assert set(three.clients) < set("012345")
    assert load(str(file), clients=3, data_seed=1).fingerprint == three.fingerprint
    assert load(str(file), clients=6).clients == tuple("012345")


def test_clients_dealt_to_sites(file: Path) -> None:
    sites, plain = load(f"{file}:sites=4"), load(str(file))
    assert sorted(sites.sizes.tolist()) == [10, 10, 20, 20]
    assert sorted(sites.train.rows.tolist()) == sorted(plain.train.rows.tolist()), "nobody's samples are lost or doubled"
    assert sorted(sites.test.rows.tolist()) == sorted(plain.test.rows.tolist())
    again = load(str(sites.source))
    assert (again.source, again.fingerprint) == (f"npz:{file}:sites=4", sites.fingerprint)
    with pytest.raises(InputError, match="sites must be from 1 to the 6 clients there are, not 7"):
        load(f"{file}:sites=7")


@pytest.mark.parametrize(("clients", "told"), [(7, "has 6 clients, not 7"), (0, "clients must be at least 1, not 0")])
def test_too_few_clients(file: Path, clients: int, told: str) -> None:
    with pytest.raises(InputError, match=told):
        load(str(file), clients=clients)


def test_a_data_seed_that_is_none(file: Path) -> None:
    with pytest.raises(InputError, match=r"a seed is a whole number from 0 to 4294967295, not -1\."):
        load(str(file), data_seed=-1)


def test_paths_are_made_absolute(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert absolute("mine.npz:test=0.2") == f"npz:{file}:test=0.2"
    assert absolute("glyphs:clients=3") == "glyphs:clients=3"
    assert load(absolute("mine.npz")).fingerprint == load(str(file)).fingerprint
