"""The embedded handwriting: fixed bytes, FEMNIST's skews, and honest refusals."""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data.glyphs import VERSION, Glyphs, generate, labels
from fedgsp.data.glyphs.outlines import CHARACTERS, alphabet
from fedgsp.data.glyphs.pen import Skeletons, draw

FINGERPRINTS = {
    (3, 7): "e038b4f69204bdff25c03efc652756f5e9ac9186ad0a97d60a45f4f30fe923b9",
    (60, 5): "7fc328f60f4a25424e186fb239b176190363e5b881094fca81f23d2288ffdb5c",  # enough to use nearly every shape
}


@cache
def population(clients: int, seed: int) -> Glyphs:
    return generate(clients, seed)


@cache
def counts_of_a_crowd() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Per writer the count of each class, and whether the writer is of kind A; 1500 writers, nothing drawn."""
    label, offsets, names = labels(1500, 11)
    counts = np.stack([np.bincount(label[a:b], minlength=62) for a, b in pairwise(offsets)])
    return counts, np.array([name.endswith("_a") for name in names])


@pytest.mark.parametrize(("clients", "seed"), FINGERPRINTS)
def test_the_bytes_are_fixed(clients: int, seed: int) -> None:
    """If this fails, pixels or labels changed: raise VERSION and then renew the fingerprints."""
    made = population(clients, seed)
    digest = hashlib.sha256()
    for part in (made.images, made.labels, made.offsets.astype("<i8")):
        digest.update(part.tobytes())
    digest.update("\n".join(made.names).encode())
    assert (VERSION, digest.hexdigest()) == (1, FINGERPRINTS[clients, seed])


def test_shapes_types_and_polarity() -> None:
    made = population(20, 3)
    total = int(made.offsets[-1])
    assert [str(a.dtype) for a in (made.images, made.labels, made.offsets)] == ["uint8", "uint8", "int64"]
    assert made.images.shape == (total, 28, 28)
    assert made.labels.shape == (total,)
    assert made.offsets.shape == (21,)
    assert made.offsets[0] == 0
    assert np.all(np.diff(made.offsets) > 0)
    assert made.labels.max() == 61
    assert np.all(made.images[:, 0] == 255)  # paper is white at the edge
    assert np.all(made.images.min(axis=(1, 2)) < 128)  # and every glyph has left ink
    assert 0.955 < made.images.mean() / 255 < 0.972  # as much ink as FEMNIST has (0.962)


def test_names_sort_as_the_writers_are_numbered() -> None:
    names = labels(1200, 0)[2]
    assert len(set(names)) == 1200
    assert list(names) == sorted(names)
    assert {name[-2:] for name in names} == {"_a", "_b"}


def test_a_small_population_begins_a_larger_one() -> None:
    small, large = population(3, 7), population(20, 7)
    end = int(small.offsets[-1])
    assert np.array_equal(small.images, large.images[:end])
    assert np.array_equal(small.labels, large.labels[:end])
    assert np.array_equal(small.offsets, large.offsets[:4])
    assert small.names == large.names[:3]


def test_labels_alone_are_those_of_the_drawn_population() -> None:
    made = population(20, 3)
    label, offsets, names = labels(20, 3)
    assert np.array_equal(label, made.labels)
    assert np.array_equal(offsets, made.offsets)
    assert names == made.names


def test_another_seed_is_another_population() -> None:
    one, other = population(3, 7), generate(3, 8)
    assert not np.array_equal(one.offsets, other.offsets)
    shared = min(len(one.images), len(other.images))
    same = (one.images[:shared] == other.images[:shared]).all(axis=(1, 2))
    assert same.mean() < 0.01


def test_no_two_samples_are_alike() -> None:
    made = population(20, 3)
    assert len(np.unique(made.images.reshape(len(made.images), -1), axis=0)) == len(made.images)


def test_samples_of_a_writer_are_shuffled() -> None:
    made = population(20, 3)
    own = made.labels[made.offsets[0] : made.offsets[1]].astype(np.int64)
    halves = own[: len(own) // 2], own[len(own) // 2 :]
    assert abs(halves[0].mean() - halves[1].mean()) < 10  # sorted labels would differ by far more


def test_kinds_and_sizes_of_writers() -> None:
    counts, kind_a = counts_of_a_crowd()
    size = counts.sum(axis=1)
    assert abs(kind_a.mean() - 0.42) < 0.04
    assert abs(size[kind_a].mean() - 308) < 12
    assert abs(size[kind_a].std() - 81) < 10
    assert abs(size[~kind_a].mean() - 166) < 2
    assert abs(size[~kind_a].std() - 13) < 1.5


def test_kind_a_writes_the_letters_of_a_text() -> None:
    counts, kind_a = counts_of_a_crowd()
    share = dict(zip(CHARACTERS, counts[kind_a].sum(axis=0) / counts[kind_a].sum() * 1000, strict=True))
    expected = {"0": 35.7, "1": 40.3, "9": 33.6, "A": 13.4, "O": 52.7, "S": 45.8, "Z": 2.3, "a": 23.3, "e": 53.7}
    expected |= {"l": 30.9, "n": 26.9, "o": 1.5, "r": 33.0, "t": 41.8, "z": 1.9}
    assert {c for c, per_mille in expected.items() if abs(share[c] - per_mille) > 0.08 * per_mille + 0.4} == set()


def test_kind_b_writes_digits_and_about_one_of_each_letter() -> None:
    counts, kind_a = counts_of_a_crowd()
    mean, spread = counts[~kind_a].mean(axis=0), counts[~kind_a].std(axis=0)
    digits = [11.6, 13.0, 12.0, 11.9, 11.6, 11.4, 11.9, 12.3, 11.7, 11.7]
    assert np.allclose(mean[:10], digits, atol=0.4)
    assert np.allclose(spread[:10], 3.0, atol=0.3)
    tall_strokes = [CHARACTERS.index("I"), CHARACTERS.index("l")]
    assert np.allclose(mean[tall_strokes], [1.48, 1.44], atol=0.1)
    others = np.setdiff1d(np.arange(10, 62), tall_strokes)
    assert mean[others].min() > 0.5
    assert mean[others].max() < 1.1
    assert 0.35 < spread[10:].mean() < 0.5


def test_both_kinds_of_writer_write_every_class() -> None:
    counts, kind_a = counts_of_a_crowd()
    assert np.all(counts[kind_a].sum(axis=0) > 0)
    assert np.all(counts[~kind_a].sum(axis=0) > 0)


def test_writers_differ_more_than_the_samples_of_one_writer() -> None:
    """Ink of a digit, digit by digit: FEMNIST's ratio of the spreads is 1.6; one common style would give far less."""
    made = population(20, 3)
    writer = np.repeat(np.arange(20), np.diff(made.offsets))
    ink = (255.0 - made.images).sum(axis=(1, 2)) / 255.0
    between, within = [], []
    for digit in range(10):
        own = [ink[(writer == w) & (made.labels == digit)] for w in range(20)]
        own = [samples for samples in own if len(samples) > 1]
        between.append(np.var([samples.mean() for samples in own]))
        within.append(np.mean([samples.var() for samples in own]))
    assert np.sqrt(np.mean(between) / np.mean(within)) > 1.3


def test_a_glyph_looks_like_its_class_and_like_its_writer() -> None:
    """Nearest class mean in pixels, of the writer's own digits: far above chance, and above that of other writers."""
    made = population(20, 3)
    digits = made.labels < 10
    blurred = _blurred(made.images[digits])
    label, writer = made.labels[digits], np.repeat(np.arange(20), np.diff(made.offsets))[digits]
    first_half = np.zeros(len(label), dtype=np.bool_)
    for w in range(20):
        own = np.flatnonzero(writer == w)
        first_half[own[: len(own) // 2]] = True
    means = np.zeros((20, 10, blurred.shape[1]))
    for w in range(20):
        for digit in range(10):
            chosen = first_half & (writer == w) & (label == digit)
            means[w, digit] = blurred[chosen].mean(axis=0) if chosen.any() else 1e3
    tests = np.flatnonzero(~first_half)
    distance = ((blurred[tests, None, None] - means[None]) ** 2).sum(axis=3)
    own_distance = distance[np.arange(len(tests)), writer[tests]]
    other_distance = distance[np.arange(len(tests)), (writer[tests] + 1) % 20]
    own_right = (own_distance.argmin(axis=1) == label[tests]).mean()
    other_right = (other_distance.argmin(axis=1) == label[tests]).mean()
    assert own_right > 0.8
    assert own_right > other_right + 0.15
    assert other_right > 0.25


def _blurred(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """The middle of each image in blocks of 2 x 2 pixels."""
    middle = (255.0 - images[:, 4:24, 4:24]) / 255.0
    blocks: npt.NDArray[np.float64] = middle.reshape(len(images), 10, 2, 10, 2).mean(axis=(2, 4))
    return blocks.reshape(len(images), -1)


def test_the_pen_covers_the_area_it_should() -> None:
    """A straight stroke of length 10 and width 2 inks about 20 pixels and two half discs."""
    points = np.array([0.0, 10.0])
    images = np.zeros((1, 28, 28), dtype=np.uint8)
    straight = Skeletons(
        x=points,
        y=np.zeros(2),
        image=np.zeros(2, dtype=np.int64),
        images=1,
        smooth=np.zeros(2),
        last=np.array([False, True]),
        bow=np.zeros(2),
        curl=np.ones(1),
        radius=np.ones(1),
        shift_x=np.zeros(1),
        shift_y=np.array([0.5]),  # from between two rows of pixels to the middle of one
    )
    draw(straight, images)
    ink = (255.0 - images[0]) / 255.0
    assert abs(ink.sum() - (20 + np.pi)) < 0.5
    assert np.array_equal(images[0, 14, 10:18], np.zeros(8))
    assert np.allclose(ink[13, 10:18], 0.5, atol=0.01)
    assert np.array_equal(images[0], images[0][:, ::-1])


def test_every_class_has_its_allographs() -> None:
    letters = alphabet()
    for index, character in enumerate(CHARACTERS):
        shapes = letters.choices[index, : int(letters.choice_count[index])]
        assert len(set(shapes.tolist())) >= 3, character
    lengths = letters.point_count
    assert lengths.min() >= 2
    assert lengths.sum() == len(letters.x)
    assert np.all(letters.last[letters.first_point + lengths - 1])


@pytest.mark.parametrize("clients", [0, -3])
def test_too_few_clients_are_refused(clients: int) -> None:
    with pytest.raises(InputError, match=f"at least 1 client, not {clients}"):
        generate(clients, 0)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(InputError, match=f"between 0 and 4294967295, not {seed}"):
        labels(1, seed)


def test_the_largest_seed_works() -> None:
    assert len(generate(1, 2**32 - 1).images) > 0
