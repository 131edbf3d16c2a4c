"""A site: its settings, its samples, and what it tells of them."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.engine.transports.flower.histogram import LEDGER, draw, margin, shared_out, told_counts
from fedgsp.engine.transports.flower.run_spec import built_in_rules
from fedgsp.engine.transports.flower.shard import open_shard
from fedgsp.engine.transports.flower.site import MODELS, Site, read_site
from fedgsp.models.catalog import BUILT_IN
from fedgsp.parts import kinds
from tests.support import flower_grid, tiny


@pytest.fixture
def site(tmp_path: Path) -> Site:
    source = tiny.write_npz(tmp_path / "data.npz")
    return read_site(flower_grid.write_sites(tmp_path, f"npz:{source}", [f"site-{k:02d}" for k in range(8)])[3])


class TestSettings:
    def test_what_is_allowed_by_default_is_what_is_built_in(self) -> None:
        attacks = {kind for kind in kinds("local") if kind.startswith("attack-")}
        assert set(built_in_rules()) == set(kinds("local")) - attacks, "no site runs an attack of its own accord"
        assert set(MODELS) == set(BUILT_IN)

    def test_the_defaults_reveal_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "site.toml").write_text('[site]\nname = "a"\n[data]\nsource = "data.npz"\n')
        found = read_site(tmp_path / "site.toml")
        assert found == Site("a", f"npz:{tmp_path.resolve()}/data.npz", tmp_path.resolve() / "state")
        assert found.histogram == "off"

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("", "name must be a text"),
            ('[site]\nname = "a"', "source must say where"),
            ('[site]\nname = "a"\nnumbre = 1', "did you mean 'number'"),
            ('[sight]\nname = "a"', "did you mean 'site'"),
            ('[site]\nname = "a"\nnumber = -1\n[data]\nsource = "x.npz"', "number must be a whole number"),
            (
                '[site]\nname = "a"\n[data]\nsource = "x.npz"\n[privacy]\nhistogram = "some"',
                'must be "exact", "noised" or "off"',
            ),
            ('[site]\nname = "a"\n[data]\nsource = "x.npz"\n[privacy]\nepsilon = 0', "epsilon must be between"),
            ('[site]\nname = "a"\n[data]\nsource = "x.npz"\n[privacy]\ndelta = 2.0', "delta must be 0, or"),
            ('[site]\nname = "a"\n[data]\nsource = "x.npz"\n[allow]\nmethods = "sgd"', "must be a list of texts"),
            ('[site]\nname = "a"\n[data]\nsource = "x.npz"\n[allow]\nvalidation = 1.5', "must be a share"),
            ('[site]\nname = "a"\n[data]\nsource = "x.npz"\n[allow]\nevaluations = -1', "must be a whole number"),
            ('[site]\nname = "a"\n[data]\nsource = "x.npz"\n[privacy]\nepsilon_limit = 0', "epsilon_limit must be above 0"),
            ("[site", "not valid TOML"),
        ],
    )
    def test_what_makes_no_sense_is_refused_with_a_sentence(self, text: str, sentence: str, tmp_path: Path) -> None:
        (tmp_path / "site.toml").write_text(text)
        with pytest.raises(InputError, match=sentence):
            read_site(tmp_path / "site.toml")

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot read"):
            read_site(tmp_path / "site.toml")


class TestShard:
    def test_has_the_clients_samples_mapped_from_the_disk(self, site: Site) -> None:
        whole, shard = fedgsp.load(site.source), open_shard(site)
        assert isinstance(shard.data.features, np.memmap)
        placed = shard.placed(3)
        assert len(placed) == 4
        for part in ("train", "test"):
            theirs, ours = getattr(whole, part)[3], getattr(placed, part)[3]
            assert np.array_equal(whole.features[theirs], placed.features[ours])
            assert np.array_equal(whole.labels[theirs], placed.labels[ours])
        assert placed.train.sizes.tolist()[:3] == [0, 0, 0]

    def test_is_read_from_the_source_once(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        first = open_shard(site)
        monkeypatch.setattr(
            "fedgsp.engine.transports.flower.shard.load", lambda *a, **o: pytest.fail("the source was read again")
        )
        assert open_shard(site).version == first.version

    def test_a_version_changes_exactly_with_the_samples(self, site: Site) -> None:
        first = open_shard(site).version
        path = Path(site.source.removeprefix("npz:"))
        content = path.read_bytes()
        path.write_bytes(content)  # the same again
        assert open_shard(site).version == first
        tiny.write_npz(path, seed=5)
        assert open_shard(site).version != first
        assert len(list(site.state.glob("shard-*"))) == 1

    def test_a_version_says_nothing_to_who_lacks_the_sites_secret(self, site: Site, tmp_path: Path) -> None:
        other = replace(site, state=tmp_path / "elsewhere")
        assert open_shard(site).version != open_shard(other).version
        assert stat.S_IMODE((site.state / "secret").stat().st_mode) == 0o600

    def test_a_client_is_found_by_name_or_number_or_refused(self, site: Site) -> None:
        named = open_shard(site).data.train.sizes
        assert open_shard(replace(site, client="3", state=site.state / "b")).data.train.sizes == named
        with pytest.raises(InputError, match="has no client 'nobody' among its 8"):
            open_shard(replace(site, client="nobody"))
        with pytest.raises(InputError, match="say which one is this site's"):
            open_shard(replace(site, client=None))


class TestHistogram:
    def test_exact_noised_or_nothing(self, site: Site) -> None:
        pytest.importorskip("opendp")
        shard = open_shard(site)
        counts = shard.data.profiles().counts[0]
        assert told_counts(replace(site, histogram="exact"), shard, counts) == counts.tolist()
        assert told_counts(replace(site, histogram="off"), shard, counts) is None
        noised = told_counts(replace(site, histogram="noised", epsilon=0.01), shard, counts * 1000)
        assert noised != (counts * 1000).tolist()
        assert sum(noised or ()) == 1000 * counts.sum()

    def test_noise_is_drawn_once_for_a_set_of_samples_whatever_its_version(self, site: Site) -> None:
        pytest.importorskip("opendp")
        shard, noisy = open_shard(site), replace(site, histogram="noised", epsilon=0.01)
        first = draw(noisy, shard)
        assert all(draw(noisy, shard) == first for _ in range(3))
        assert draw(noisy, replace(shard, version="f" * 32)) == first
        kept = json.loads((site.state / LEDGER).read_text())
        assert [(one["epsilon"], one["delta"], len(one["counts"])) for one in kept["draws"]] == [(0.01, 1e-05, 3)]

    def test_the_noise_and_the_margin_are_those_of_the_stated_sensitivity(self) -> None:
        # By hand: rho = (sqrt(ln 2e5 + 1) - sqrt(ln 2e5))^2 = 0.01965 for (1, 5e-6), variance 1/(2 rho) = 25.44, times 2 for
        # the squared L2 sensitivity; margin = 7.133 * sqrt(2 ln 6e5) = 36.8.
        assert margin(1.0, 1e-5) == 37
        assert margin(1.0, 0.0) == 44  # 2 ln(3e9) = 43.6

    def test_counts_are_shared_out_to_add_up(self) -> None:
        assert shared_out(np.array([3, 1, 0]), 8) == [6, 2, 0]
        assert shared_out(np.array([1, 1, 1]), 2) == [1, 1, 0]


def test_a_site_is_standardised_by_itself_and_trains_on_its_samples_as_they_are(site: Site) -> None:
    own = open_shard(replace(site, source=f"{site.source}:standardise=client")).data
    np.testing.assert_allclose(own.features[own.train.rows].mean(axis=0), 0, atol=1e-5)
    with pytest.raises(InputError, match="does not know the population's means; say standardise=client"):
        open_shard(replace(site, source=f"{site.source}:standardise=true"))
    with pytest.raises(InputError, match="trains on its samples as they are; leave transform= out"):
        open_shard(replace(site, source=f"{site.source}:transform=torch:neg"))
