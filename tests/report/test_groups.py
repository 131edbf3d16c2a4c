from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.plan import Balanced, group_sums, summarise_pairs
from fedgsp.report.group_picture import draw_groups
from fedgsp.report.groups import GROUPERS, Wish, form_groups, write_assignment
from fedgsp.report.tables import ClientTable

RNG = np.random.default_rng(0)
COUNTS = RNG.multinomial(60, RNG.dirichlet(np.full(5, 0.4), 40)).astype(np.int64)
TABLE = ClientTable([f"c{k}" for k in range(40)], COUNTS)


def test_the_figures_are_those_of_the_groups() -> None:
    found = form_groups(TABLE, Wish(groups=6, seed=3))
    assert np.array_equal(found.labels, Balanced(n_groups=6, random_state=3).fit(COUNTS).labels_)
    expected = summarise_pairs(group_sums(COUNTS, found.labels))
    assert (found.groups.cpd_median, found.groups.cpd_maximum) == (expected.median, expected.maximum)
    assert found.groups.cpd_mean < 0.2 * found.random.cpd_mean < found.clients.cpd_mean
    assert found.left_out == 0
    plain = found.as_dict(TABLE.names)
    assert plain["assignment"]["c7"] == found.labels[7]
    assert plain["after"]["z"] == found.groups.z


@pytest.mark.parametrize("grouper", sorted(GROUPERS))
def test_every_grouper_can_be_named(grouper: str) -> None:
    found = form_groups(TABLE, Wish(grouper, groups=7))
    assert found.labels.max() == 6
    assert (found.left_out > 0) == (grouper == "icg")


def test_noise_costs_quality_and_is_repeatable() -> None:
    clear, noised, again = (form_groups(TABLE, Wish(groups=6, epsilon=e)) for e in (None, 0.1, 0.1))
    assert np.array_equal(noised.labels, again.labels)
    assert noised.groups.cpd_mean > clear.groups.cpd_mean


def test_constraints_and_time() -> None:
    sites, seconds = np.arange(40) // 5, np.ones(40)
    table = ClientTable(TABLE.names, COUNTS, sites, seconds)
    found = form_groups(table, Wish(groups=8, one_per_site=True, longest_chain=5.0))
    assert all(len(set(found.labels[sites == site])) == 5 for site in range(8))
    assert form_groups(table, Wish(groups=8, within=0.05)).left_out == 0


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (Wish("balance", 3), "unknown grouper 'balance': did you mean 'balanced'?"),
        (Wish("icg", 3, within=1.0), "only the grouper 'balanced' keeps constraints and time limits, not 'icg'."),
        (Wish(groups=3, one_per_site=True), "`one_per_site=True` needs to know the clients' sites"),
        (Wish(groups=3, longest_chain=4.0), "`longest_chain=` needs to know how long clients take"),
        (Wish(groups=3, longest_chain=4.0, within=1.0), "`within=` cannot be combined with constraints."),
        (Wish(groups=41), "Balanced: n_groups is 41, but there are only 40 clients to group."),
        (Wish(groups=0), "Balanced: n_groups must be a whole number of at least 1, not 0."),
        (Wish(groups=3, epsilon=0.0), "private counts: epsilon must be between 0.001 and 1000, not 0.0."),
    ],
)
def test_wishes_that_cannot_be_granted(wish: Wish, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        form_groups(TABLE, wish)
    assert str(refused.value).startswith(sentence)


def test_vectors_that_are_no_counts_cannot_be_made_private() -> None:
    with pytest.raises(InputError, match="`epsilon=` needs whole-numbered counts"):
        form_groups(ClientTable(TABLE.names, COUNTS / 7), Wish(groups=3, epsilon=1.0))


def test_the_assignment_and_the_picture_are_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = form_groups(TABLE, Wish(groups=6))
    write_assignment(tmp_path / "groups.csv", ["a,b", *TABLE.names[1:]], found.labels)
    lines = (tmp_path / "groups.csv").read_text().splitlines()
    assert lines[:2] == ["client,group", f'"a,b",{found.labels[0]}']
    assert len(lines) == 41
    draw_groups(tmp_path / "groups.png", COUNTS, found, 0)
    assert (tmp_path / "groups.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="cannot draw"):
        draw_groups(tmp_path / "groups.what", COUNTS, found, 0)
