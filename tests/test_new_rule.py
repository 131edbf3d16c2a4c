"""A new local rule is one file and one line, and one row of the methods if it has a name: this adds one and runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import fedgsp
from fedgsp.engine.transports.flower.run_spec import built_in_rules
from fedgsp.methods import METHODS, Row, decode_method, fedavg_with, named, words
from fedgsp.parts import PARTS
from fedgsp.study.grids import grid_of
from tests.support import tiny

FILE = '''
"""Damped SGD: w <- w - lr damping grad. To tune: damping over 0.1, 0.5."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedgsp.client import SGD, LocalContext
from fedgsp.core.part import Values


@dataclass(frozen=True, kw_only=True)
class Damped(SGD):
    """SGD whose gradients are multiplied by `damping`."""

    kind: ClassVar[str] = "damped"
    tuned_over: ClassVar[Mapping[str, Values]] = {**SGD.tuned_over, "damping": (0.1, 0.5)}

    damping: float = 0.5

    def adjust(self, ctx: LocalContext) -> None:
        for parameter in ctx.model.parameters():
            parameter.grad.mul_(self.damping)
'''
LINE = "damped_rule:Damped"
ROW = Row("fedavg with half the gradient", fedavg_with("damped"))


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "damped_rule.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PARTS, "local", (*PARTS["local"], LINE))
    monkeypatch.setitem(cast(dict[str, Row], METHODS), "feddamped", ROW)


@pytest.mark.usefixtures("added")
def test_a_rule_that_was_added_is_known_everywhere(tmp_path: Path) -> None:
    method = named("feddamped")
    table = method.encode()
    assert (table["local"]["kind"], table["local"]["damping"]) == ("damped", 0.5)
    assert decode_method(table) == method
    assert decode_method({"name": "feddamped", "local": {"kind": "damped", "damping": 0.25}}).local == cast(
        Any, type(method.local)
    )(damping=0.25)
    assert type(method.local).summary() == "SGD whose gradients are multiplied by `damping`."
    assert "damped" in words()
    assert named("fedgsp+damped+yogi").local == method.local
    assert grid_of(method) == ("lr=0.003,0.01,0.03,0.1", "damping=0.1,0.5")
    assert "damped" in built_in_rules()


@pytest.mark.usefixtures("added")
def test_it_runs_by_its_name_and_goes_on_from_the_text_of_the_run(tmp_path: Path) -> None:
    out, data = tmp_path / "run", tiny.federation(6)
    fedgsp.train("feddamped", data, tiny.linear, rounds=1, workers=0, out=out)
    assert 'kind = "damped"' in (out / "config.toml").read_text()
    ended = fedgsp.resume(out, data=data, model=tiny.linear, rounds=2)
    whole = fedgsp.train("feddamped", data, tiny.linear, rounds=2, workers=0)
    assert ended.state.digest() == whole.state.digest()
    assert whole.state.digest() != fedgsp.train("fedavg", data, tiny.linear, rounds=2, workers=0).state.digest()
