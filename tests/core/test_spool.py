"""The spool: what was put comes back, by number, and a disk that is too small is a sentence."""

from __future__ import annotations

import pytest
import torch

from fedgsp.core import spool
from fedgsp.core.errors import RunFailed
from fedgsp.core.spool import Spool, row_bytes

LIKE = {"a": torch.zeros(3, 5), "n": torch.tensor(0), "none": torch.zeros(0), "half": torch.zeros(7, dtype=torch.float16)}


def test_results_come_back_by_number() -> None:
    kept = Spool(LIKE, 3)
    made = {
        row: {"a": torch.full((3, 5), row + 0.5), "n": torch.tensor(row), "none": torch.zeros(0), "half": LIKE["half"] + row}
        for row in (2, 0)
    }
    for row, tensors in made.items():
        kept.put(row, tensors)
    assert len(kept) == 2
    assert [row for row, _ in kept] == [0, 2]
    for row, tensors in kept:
        assert tensors.keys() == LIKE.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, made[row][name])
            assert tensor.dtype == LIKE[name].dtype
    with pytest.raises(KeyError):
        kept.get(1)


def test_a_disk_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "room", lambda: ("/somewhere", 10 * row_bytes(LIKE)))
    Spool(LIKE, 10)
    with pytest.raises(RunFailed, match=r"in /somewhere, where .* are free; free some space or set TMPDIR"):
        Spool(LIKE, 11)
