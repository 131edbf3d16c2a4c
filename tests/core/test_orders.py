"""The order of a client's samples by machine code is NumPy's, to the last place."""

from __future__ import annotations

import numpy as np
import pytest

from fedgsp.core import orders
from fedgsp.core.seeds import LARGEST_SEED, Purpose, Seeds, generator


@pytest.mark.parametrize("samples", [0, 1, 2, 3, 5, 20, 64, 65, 257, 4000])
def test_rows_are_ordered_as_the_generator_of_the_key_permutes_them(samples: int) -> None:
    rows = np.arange(samples, dtype=np.int64) * 3 + 7
    for number in range(20):
        key = (LARGEST_SEED - number, Purpose.BATCHES, number, number**5, 1, 2)
        expected = rows[generator(*key).permutation(samples)]
        assert orders.ordered(tuple(int(word) for word in key), rows).tolist() == expected.tolist()


def test_they_are_so_without_a_compiler_and_with_seeds_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(11, dtype=np.int64)
    found = [orders.ordered(Seeds(seed).batches_key(3, 14, 1, 2), rows).tolist() for seed in (7, 2**40)]
    monkeypatch.setattr(orders, "_code", lambda: None)
    assert found == [orders.ordered(Seeds(seed).batches_key(3, 14, 1, 2), rows).tolist() for seed in (7, 2**40)]
    assert found == [Seeds(seed).batches(3, 14, 1, 2).permutation(11).tolist() for seed in (7, 2**40)]


def test_rows_that_do_not_lie_together_are_ordered_too() -> None:
    rows = np.arange(30, dtype=np.int64)[::3]
    assert orders.ordered((1, 3), rows).tolist() == orders.ordered((1, 3), rows.copy()).tolist()


def test_code_that_gives_other_orders_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another NumPy may shuffle another way: then it is asked itself."""
    by_code = orders._by_code
    monkeypatch.setattr(orders, "_by_code", lambda code, key, rows: by_code(code, key, rows)[::-1])
    assert orders._code.__wrapped__() is None
