from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from fedgsp.core.errors import InputError
from fedgsp.plan import ICG, NOBODY, Balanced, Fixed, GreedyKL, Grouper, Random, Stratified

EVERY_GROUPER: list[Grouper] = [
    Random(), ICG(), ICG(distance="euclid"), Fixed(Random()), Fixed(ICG(tau=3)), Balanced(), GreedyKL(),
    GreedyKL(target="uniform"), Stratified(),
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 40), st.integers(1, 5), st.sampled_from(EVERY_GROUPER))
def test_labels_keep_what_the_shape_promises(data: st.DataObject, clients: int, classes: int, grouper: Grouper) -> None:
    n_groups = data.draw(st.integers(1, clients))
    top = data.draw(st.sampled_from([0, 1, 50]))  # all rows zero; many twins; hardly any
    counts = np.random.default_rng(data.draw(st.integers(0, 10**6))).integers(0, top + 1, (clients, classes))
    labels = grouper.assign(counts, n_groups, np.random.default_rng(0))
    assert labels.shape == (clients,)
    assert labels.dtype == np.int64
    assert labels.min() >= NOBODY
    assert labels.max() == n_groups - 1
    sizes = np.bincount(labels[labels != NOBODY], minlength=n_groups)
    shape = grouper.shape(clients, n_groups)
    assert (sizes.min(), sizes.max(), sizes.sum()) == (shape.shortest, shape.longest, shape.grouped)


@pytest.mark.parametrize("grouper", EVERY_GROUPER)
def test_the_same_generator_gives_the_same_groups_and_another_others(grouper: Grouper) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (30, 4))
    first, again, other = (grouper.assign(counts, 5, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    if not isinstance(grouper, GreedyKL):  # greedy: chance only decides between clients that are equally good
        assert not np.array_equal(first, other)


@pytest.mark.parametrize("grouper", EVERY_GROUPER)
@pytest.mark.parametrize("n_groups", [0, 4, -1])
def test_groups_that_cannot_be_are_refused(grouper: Grouper, n_groups: int) -> None:
    with pytest.raises(ValueError, match=f"3 clients cannot form {n_groups} groups"):
        grouper.assign(np.ones((3, 2), dtype=np.int64), n_groups, np.random.default_rng(0))
    with pytest.raises(ValueError, match=f"3 clients cannot form {n_groups} groups"):
        grouper.shape(3, n_groups)


def test_random_groups_hold_everybody_and_sizes_differ_by_one() -> None:
    labels = Random().assign(np.zeros((11, 1), dtype=np.int64), 4, np.random.default_rng(0))
    assert sorted(np.bincount(labels).tolist()) == [2, 3, 3, 3]


def test_random_is_a_true_shuffle() -> None:
    """Each client is in each group equally often, and two clients meet as often as chance says."""
    draws, rng, counts = 4000, np.random.default_rng(0), np.zeros((6, 1), dtype=np.int64)
    labels = np.stack([Random().assign(counts, 3, rng) for _ in range(draws)])
    for group in range(3):
        assert np.abs((labels == group).mean(axis=0) - 1 / 3).max() < 5 * np.sqrt(2 / 9 / draws)
    for other in range(1, 6):
        assert abs((labels[:, 0] == labels[:, other]).mean() - 1 / 5) < 5 * np.sqrt(4 / 25 / draws)


def test_groups_are_formed_anew_each_round_or_once() -> None:
    assert [Random().drawn_in(r) for r in (1, 2, 77)] == [1, 2, 77]
    assert [ICG().drawn_in(r) for r in (1, 2, 77)] == [1, 2, 77]
    assert [Fixed(ICG()).drawn_in(r) for r in (1, 2, 77)] == [1, 1, 1]


def test_fixed_only_fixes() -> None:
    counts = np.random.default_rng(0).integers(0, 9, (30, 4))
    expected = ICG().assign(counts, 4, np.random.default_rng(3))
    assert np.array_equal(Fixed(ICG()).assign(counts, 4, np.random.default_rng(3)), expected)
    assert Fixed(ICG()).shape(30, 4) == ICG().shape(30, 4)


@pytest.mark.parametrize("kind", [Random, ICG, Balanced, GreedyKL, Stratified])
def test_fit_is_assign_with_a_seed(kind: type[Grouper]) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (30, 4))
    fitted = kind(n_groups=7, random_state=3).fit(counts)
    assert np.array_equal(fitted.labels_, kind().assign(counts, 7, np.random.default_rng(3)))
    assert fitted.n_groups == 7
    assert np.array_equal(kind(n_groups=7, random_state=3).fit(counts.tolist()).labels_, fitted.labels_)
    assert np.array_equal(kind(n_groups=7, random_state=3).fit(counts.astype(np.float32)).labels_, fitted.labels_)
    assert kind(n_groups=30).fit(counts).labels_.max() == 29
    assert kind(n_groups=1).fit(counts).labels_.max() == 0


@pytest.mark.parametrize(
    ("grouper", "counts", "sentence"),
    [
        (ICG(n_groups=2), [1, 2, 3], r"ICG: counts must have two dimensions \(clients, classes\), not 1\."),
        (ICG(n_groups=2), np.zeros((2, 2, 2)), r"ICG: counts must have two dimensions \(clients, classes\), not 3\."),
        (ICG(n_groups=2), [[1, 2], [3]], r"ICG: counts must be a table whose rows all have the same length\."),
        (ICG(n_groups=2), [["a"], ["b"]], r"ICG: counts must be numbers, not <U1\."),
        (ICG(n_groups=2), [[1, 2], [np.nan, 1]], r"ICG: counts must be finite, but row 1 is not\."),
        (ICG(n_groups=2), [[np.inf, 2], [0, 1]], r"ICG: counts must be finite, but row 0 is not\."),
        (Balanced(n_groups=2), [[1, 2], [3, 1e16]], r"Balanced: counts must be at most 2\^53, but row 1 has a larger one\."),
        (Balanced(n_groups=1), np.zeros((2, 0)), r"Balanced: counts must have at least one column\."),
        (Balanced(n_groups=1), np.zeros((0, 2)), r"Balanced: there are no clients to group"),
        (Random(n_groups=2), [[1, 2], [2, 1], [0, -1]], r"Random: counts must not be negative, but row 2 has one that is\."),
        (Random(), [[1, 2], [2, 1]], r"Random: say how many groups to form, as in Random\(n_groups=10\)\."),
        (Random(n_groups=3), [[1], [2]], r"Random: n_groups is 3, but there are only 2 clients to group\."),
    ],
)
def test_fit_says_in_one_sentence_what_is_wrong(grouper: Grouper, counts: ArrayLike, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):  # some go on in the words that scikit-learn's checks look for
        grouper.fit(counts)


@pytest.mark.parametrize("n_groups", [0, -3, 2.0, "4", True])
def test_a_bad_number_of_groups_is_refused_at_once(n_groups: int) -> None:
    with pytest.raises(InputError, match=r"^Random: n_groups must be a whole number of at least 1"):
        Random(n_groups=n_groups)


def test_bad_settings_are_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"^ICG: random_state must be a whole number of at least 0, not -1"):
        ICG(random_state=-1)
    with pytest.raises(InputError, match=r"^ICG: tau must be a whole number of at least 1, not 0"):
        ICG(tau=0)
    with pytest.raises(InputError, match=r"^ICG: distance cannot be 'square'; did you mean 'squared'\?$"):
        ICG(distance="square")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Random, ICG, Balanced, GreedyKL, Stratified])
def test_data_frames_go_in_as_they_are(kind: type[Grouper]) -> None:
    pandas = pytest.importorskip("pandas")
    counts = np.random.default_rng(0).integers(0, 9, (20, 3))
    frame = pandas.DataFrame(counts, columns=["cat", "dog", "emu"])
    assert np.array_equal(
        kind(n_groups=4, random_state=0).fit(frame).labels_, kind(n_groups=4, random_state=0).fit(counts).labels_
    )


@pytest.mark.parametrize("kind", [Random, ICG, Balanced, GreedyKL, Stratified])
def test_one_client_is_a_group(kind: type[Grouper]) -> None:
    assert kind(n_groups=1).fit([[0, 0]]).labels_.tolist() == [0]
