from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan import Constant, Grouped, Grouper, GroupShape


@dataclass(frozen=True, eq=False)
class Says(Grouper):
    """A grouper that gives what it was told to."""

    labels: Any = ()

    def assign(self, counts: Any, n_groups: int, rng: np.random.Generator) -> Any:
        return self.labels

    def shape(self, clients: int, n_groups: int) -> GroupShape:
        return GroupShape(1, clients, clients)


COUNTS = np.ones((4, 2), dtype=np.int64)
FOUR = Profiles(np.arange(4), COUNTS, np.ones(4, dtype=np.int64))


@pytest.mark.parametrize("labels", [[0, 1, 1, -1], (0, 1, 0, 1), np.array([1, 0, 0, 0], np.uint8)])
def test_lists_and_whole_numbers_of_any_width_will_do(labels: Any) -> None:
    found = Says(labels=labels, n_groups=2).fit(COUNTS).labels_
    assert found.dtype == np.int64
    assert found.tolist() == list(labels)
    plan = Grouped(Constant(2), Says(labels=labels), kappa=1.0).plan(1, FOUR, Seeds(0))
    assert sorted(plan.clients) == [k for k, label in enumerate(labels) if label >= 0]


@pytest.mark.parametrize(
    "labels", [[0, 1, 1], [0.0, 1.0, 1.0, 0.0], [0, 1, 2, 0], [0, 1, -2, 0], [-1] * 4, None, [True] * 4, [[0], [0, 1]]]
)
def test_anything_else_is_refused_by_name_and_file_in_a_run_and_alone(labels: Any) -> None:
    with pytest.raises(InputError, match=r"^the grouper Says \(.*test_checks\.py:\d+\).*\.$"):
        Says(labels=labels, n_groups=2).fit(COUNTS)
    with pytest.raises(InputError, match=r"^the grouper Says \(.*test_checks\.py:\d+\).*\.$"):
        Grouped(Constant(2), Says(labels=labels)).plan(1, FOUR, Seeds(0))
    some = Profiles(np.arange(5), np.ones((5, 2)), np.ones(5, dtype=np.int64), np.array([True] * 4 + [False]))
    with pytest.raises(InputError, match="the grouper Says"):
        Grouped(Constant(2), Says(labels=labels)).plan(1, some, Seeds(0))
