from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.data.in_memory import partition
from fedgsp.data.partitioners import IID, Dirichlet, Shards
from fedgsp.plan.divergence import mean_emd, pairwise_cpd
from fedgsp.report.duplicates import duplicates
from fedgsp.report.femnist import edition
from fedgsp.report.inspect import class_counts, effective, inspect, label_cpd
from fedgsp.report.landmarks import scale
from fedgsp.report.picture import draw, order_by_similarity
from tests.support import tiny
from tests.support.data_files import SHARED, write_leaf

RNG = np.random.default_rng(0)
X: Any = RNG.integers(0, 256, (2000, 8, 8), dtype=np.uint8)
Y: Any = np.arange(2000) % 10


def test_the_scale_orders_what_people_know() -> None:
    places = [
        scale(class_counts(partition((X, Y), how))).place
        for how in (IID(20), Dirichlet(20, 10.0), Dirichlet(20, 1.0), Dirichlet(20, 0.1), Shards(20, 1))
    ]
    assert places == sorted(places)
    assert places[0] < 0.02
    assert places[-1] > 0.98


def test_a_dirichlet_partition_is_recognised() -> None:
    for alpha in (0.1, 0.3, 1.0):
        found = scale(class_counts(partition((X, Y), Dirichlet(40, alpha)))).alpha
        assert found is not None
        assert alpha / 2 < found < alpha * 2


def test_the_numbers() -> None:
    counts = np.array([[10, 0], [0, 30]])
    found = scale(counts)
    assert found.emd == mean_emd(counts) == pytest.approx((10 * 1.5 + 30 * 0.5) / 40)
    assert found.emd_one_class == pytest.approx(2 * (1 - (0.25**2 + 0.75**2)))
    assert effective(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist() == pytest.approx([2.0, 1.0])


def test_clients_that_chance_does_not_explain_are_counted_whatever_the_mean() -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(20))
    by_chance = rng.multinomial(rng.integers(10, 200, 2000), np.broadcast_to(p, (2000, 20)))
    assert scale(by_chance).beyond <= 8  # two are to be expected
    alike = np.tile(np.round(100 * p).astype(np.int64), (80, 1))  # more alike than chance
    one_class = np.zeros((7, 20), dtype=np.int64)
    one_class[:, int(np.argmin(p))] = 30
    found = scale(np.concatenate([alike, one_class]))
    assert (found.place, found.beyond) == (0.0, 7)


def test_an_inspection() -> None:
    data = from_arrays(X[:60], Y[:60] % 3, np.arange(60) % 4, classes=5)
    found = inspect(data)
    assert (found.clients, found.samples, found.classes) == (4, 60, 5)
    assert found.parts == {"train": 52, "validation": 0, "test": 8}
    assert found.class_counts == [24, 18, 18, 0, 0]
    assert found.sizes["0.5"] == 15
    assert found.fingerprint == data.fingerprint
    assert found.suggestions == ("Nobody has classes 3, 4: the model cannot learn it; classes=3 may be meant.",)
    assert found.as_dict()["skew"]["landmarks"]["i.i.d."] == 0.0


def test_regression_counts_in_bins() -> None:
    data = from_arrays(X[:60], RNG.normal(size=60), np.arange(60) % 4)
    found = inspect(data)
    assert found.classes == 0
    assert len(found.class_counts) == 10


def test_it_takes_a_source_or_a_federation_only(tmp_path: Path) -> None:
    assert inspect(f"leaf:{write_leaf(tmp_path)}").clients == 3
    with pytest.raises(InputError, match="not int"):
        inspect(3)  # type: ignore[arg-type]


def test_duplicates() -> None:
    x = np.arange(8, dtype=np.float32).reshape(8, 1)
    x[1] = x[0]  # the same client
    x[5] = x[2]  # another client
    data = from_arrays(x, np.array([0, 0, 0, 1, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1, 1, 1]), test_fraction=0.0)
    found = duplicates(data)
    assert (found.within_clients, found.across_clients, found.test_in_train, found.conflicting) == (1, 1, 0, 1)
    half = from_arrays(np.zeros((4, 1), dtype=np.float32), np.array([0, 1, 0, 1]), np.zeros(4, dtype=int), test_fraction=0.5)
    assert duplicates(half).test_in_own_train == 2


def test_advice() -> None:
    data = from_arrays(X[:13], Y[:13], np.array([0] * 12 + [1]))
    told = " ".join(inspect(data).suggestions)
    assert "1 client has no test sample" in told
    assert "1 client has fewer than 10 samples; min_samples=10" in told


def named(count: int, samples: int) -> FederatedData:
    names = [f"f{k:04d}_{k % 100:02d}" for k in range(count)]
    return from_arrays(np.zeros((samples, 1), dtype=np.uint8), np.zeros(samples, dtype=int), np.arange(samples) % count, names,
                       classes=62)  # fmt: skip


def test_which_femnist_it_is() -> None:
    assert edition(from_arrays(X[:9], Y[:9], np.arange(9))) is None
    assert "3 writers, 9 samples: a part, or an edition of its own" in str(edition(named(3, 9)))
    assert str(edition(named(3550, 805_263))).endswith("the counts of LEAF's site.")


def test_clients_that_are_alike_stand_together() -> None:
    counts = np.array([[9, 0, 0], [0, 9, 0], [8, 1, 0], [0, 8, 1], [0, 0, 9]])
    order = order_by_similarity(counts).tolist()
    assert abs(order.index(0) - order.index(2)) == 1
    assert abs(order.index(1) - order.index(3)) == 1


@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 8), (5,)])
def test_a_picture_is_drawn(shape: tuple[int, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    x = RNG.normal(size=(60, *shape)).astype(np.float32)
    data = from_arrays(x, Y[:60], np.arange(60) % 4, ["a", "b$", "c" * 40, "d"])
    draw(data, inspect(data), tmp_path / "deep" / "p.png")
    assert (tmp_path / "deep" / "p.png").read_bytes()[:4] == b"\x89PNG"
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["p.png"]
    with pytest.raises(InputError, match="cannot draw"):
        draw(data, inspect(data), tmp_path / "p.xyz")


def test_many_clients_are_ordered_in_bounded_memory() -> None:
    counts = RNG.integers(0, 5, (6000, 4))
    assert sorted(order_by_similarity(counts).tolist()) == list(range(6000))


@pytest.mark.skipif(SHARED is None, reason="the real FEMNIST (../shared/femnist/femnist.npz) is not here")
def test_the_real_writers() -> None:
    found = inspect(f"npz:{SHARED}/femnist.npz:federation=femnist-368")
    assert (found.clients, found.samples) == (368, 42_042)
    assert found.fingerprint == "1d82c2ecab26bbfd290003f9e6107ed9a3fc8be1a949ef39adda7dcbb1d13446"
    assert found.duplicates.within_clients == 0
    assert "FEMNIST, 368 writers, 42,042 samples" in str(found.edition)


def test_distances_of_pairs_are_those_of_the_grouping() -> None:
    shares = np.random.default_rng(3).dirichlet(np.ones(7), 12)
    assert label_cpd(shares) == pytest.approx(pairwise_cpd(shares), abs=1e-12)


PROBE = """
import sys
from fedgsp.cli.main import main
sys.argv = ["fedgsp", "data", "inspect", sys.argv[1]]
try:
    main()
except SystemExit as ended:
    assert not ended.code
assert not {"torch", "scipy.optimize", "scipy.spatial", "matplotlib"} & sys.modules.keys()
"""


def test_the_command_imports_neither_torch_nor_the_slow_parts_of_scipy(tmp_path: Path) -> None:
    source = f"npz:{tiny.write_npz(tmp_path / 'data.npz')}"
    done = subprocess.run(
        [sys.executable, "-c", PROBE, source], capture_output=True, text=True, check=False, env=tiny.environment()
    )
    assert done.returncode == 0, done.stderr
