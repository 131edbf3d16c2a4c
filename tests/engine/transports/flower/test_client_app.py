"""A site checks what it is sent, and answers with sentences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedgsp.engine.transports.flower.client_app import app
from fedgsp.engine.transports.flower.records import heard, pack, say
from fedgsp.engine.transports.flower.run_spec import RunSpec
from tests.support import flower_grid, tiny
from tests.support.user_rules import rule_text

RULE = {"kind": "sgd", "lr": 0.05, "batch_size": 3}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    source = tiny.write_npz(tmp_path / "data.npz")
    return flower_grid.write_sites(tmp_path, f"npz:{source}", [f"site-{k:02d}" for k in range(4)])[3]


def run_spec(**changes: Any) -> RunSpec:
    return replace(RunSpec("0" * 16, 0, dict(RULE), "tests.support.tiny:linear", 3, (4,)), **changes)


def ask(site: Path, kind: str, content: RecordDict, config: dict[str, Any] | None = None) -> dict[str, Any]:
    message = Message(content, 1, kind, ttl=9.0)
    node: Any = {"site": str(site)} if config is None else config
    return heard(app(message, Context(1, 1, node, RecordDict(), {})).content)


def hello(site: Path, **changes: Any) -> dict[str, Any]:
    return ask(site, "query.hello", say({"run": run_spec(**changes).encode(), "number": None}))


def training(site: Path, model: dict[str, torch.Tensor] | None = None, **facts: Any) -> dict[str, Any]:
    made = {
        "run": run_spec().encode(), "round": 1, "client": 3, "version": hello(site)["version"], "state": None, "hop": 0,
        "repeat": 0, "first": True,
    }  # fmt: skip
    sent = model or {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}
    return ask(site, "train", say({**made, **facts}, model=pack(sent)))


def test_a_site_introduces_itself(site: Path) -> None:
    told = hello(site)
    assert (told["name"], told["number"], told["classes"], told["shape"]) == ("site-03", 3, 3, [4])
    assert (told["train"], told["test"]) == (6, 1)  # of seven samples, a tenth (rounded) to test
    assert sum(told["counts"]) == 6


def test_an_honest_message_is_answered_with_a_model(site: Path) -> None:
    told = training(site)
    assert (told["samples"], told["steps"]) == (6, 2)


def test_a_method_or_a_model_that_is_not_allowed_is_refused_before_anything_is_imported(site: Path) -> None:
    site.write_text(site.read_text() + 'methods = ["sgd"]\n')
    assert "does not allow the local rule 'prox'" in hello(site, rule={"kind": "prox"})["refused"]
    assert "does not allow the model 'os:system'" in hello(site, model="os:system")["refused"]
    inner = {**RULE, "schedule": {"kind": "evil.module:Schedule"}}
    assert "does not allow the part 'evil.module:Schedule'" in hello(site, rule=inner)["refused"]
    for facts in (hello(site, rule={"kind": "prox"}), hello(site, model="os:system")):
        assert facts["for_good"] is True


def test_wrong_shapes_types_and_numbers_are_refused(site: Path) -> None:
    bias = torch.zeros(3)
    assert "has the shape (4, 3)" in training(site, {"weight": torch.zeros(4, 3), "bias": bias})["refused"]
    assert "of the type float64" in training(site, {"weight": torch.zeros(3, 4).double(), "bias": bias})["refused"]
    assert "other tensors" in training(site, {"weights": torch.zeros(3, 4), "bias": bias})["refused"]
    assert "not finite" in training(site, {"weight": torch.full((3, 4), torch.nan), "bias": bias})["refused"]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"client": 2}, "is client 3 and not 2"),
        ({"client": -1}, "which client of which round"),
        ({"round": True}, "which client of which round"),
        ({"state": "../../etc/passwd"}, "names a state that cannot be"),
        ({"hop": "first"}, "which hop of its chain"),
        ({"version": "old"}, "its data has changed"),
        ({"run": {"run": "x"}}, "does not describe its run"),
        ({"state": "000001-" + "0" * 32}, "cannot keep|is missing|other tensors"),
    ],
)
def test_messages_that_make_no_sense_are_refused_with_a_sentence(site: Path, facts: dict[str, Any], sentence: str) -> None:
    import re

    told = training(site, **facts)
    if "state" in facts and facts["state"].startswith("0"):
        assert "refused" not in told  # a rule without states does not look for one
    else:
        assert re.search(sentence, told["refused"])
        assert told["changed"] is ("version" in facts)


def test_a_state_that_is_not_there_is_refused(site: Path) -> None:
    rule = {"kind": "scaffold", "lr": 0.05, "batch_size": 3}
    shared = {f"control.{name}": tensor for name, tensor in {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}.items()}
    facts = {
        "run": run_spec(rule=rule).encode(), "round": 2, "client": 3, "version": hello(site)["version"],
        "state": "000001-" + "0" * 32, "hop": 0, "repeat": 0, "first": True,
    }  # fmt: skip
    content = say(facts, model=pack({"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}), shared=pack(shared))
    assert "is missing" in ask(site, "train", content)["refused"]


@pytest.mark.parametrize("run", ["../escape", "0" * 15, "0" * 17, "G" * 16])
def test_a_run_cannot_choose_where_a_site_writes(site: Path, run: str) -> None:
    assert "no proper name" in training(site, run=run_spec(run=run).encode())["refused"]


def test_samples_of_another_shape_or_more_classes_are_refused(site: Path) -> None:
    assert "samples of shape (4,), the run wants (5,)" in hello(site, shape=(5,))["refused"]
    assert "has 3 classes, the run 2" in hello(site, classes=2)["refused"]
    assert "do not agree" in hello(site, classes=0)["refused"]


def test_a_kernel_of_another_machine_is_refused(site: Path) -> None:
    told = hello(site, kernel="c-000000000000")
    assert "the run's kernel" in told["refused"]
    assert told["for_good"] is True


def test_a_node_that_was_not_told_its_settings_says_so(site: Path) -> None:
    told = ask(site, "query.hello", say({"run": run_spec().encode(), "number": None}), {})
    assert "was not told where site.toml is" in told["refused"]
    gone = ask(site, "query.hello", say({"run": run_spec().encode(), "number": None}), {"site": "/nowhere/site.toml"})
    assert "cannot read the site's settings" in gone["refused"]


def test_a_bug_of_ours_tells_the_server_no_more_than_its_kind(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise ValueError("patient 4711 has an odd value")

    monkeypatch.setattr("fedgsp.engine.transports.flower.registration.introduce", broken)
    told = hello(site)
    assert told["refused"] == "it failed: ValueError"
    assert "4711" not in json.dumps(told)


RULES = rule_text("return private_loader.penalty(seen)", "import private_loader")
PRIVATE = """def penalty(seen):
    raise KeyError("patient 4711")
"""


def test_an_exception_in_a_rule_tells_the_line_in_code_that_the_server_named_and_no_more(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The message may quote data, other modules are the site's own business; the site's log has all of it."""
    (tmp_path / "ward_rules.py").write_text(RULES)
    (tmp_path / "private_loader.py").write_text(PRIVATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    site.write_text(site.read_text() + 'methods = ["sgd", "ward_rules:Mine"]\n')
    told = training(site, run=run_spec(rule={**RULE, "kind": "ward_rules:Mine"}).encode())
    assert told["refused"] == "it failed: KeyError (ward_rules.py:14, in loss_term)"
    assert "4711" not in json.dumps(told)
    assert "private_loader" not in json.dumps(told)
    log = capfd.readouterr().err
    assert "private_loader.py" in log
    assert "patient 4711" in log


def test_a_rule_that_cannot_be_imported_tells_no_more_either(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torn.py").write_text("import torn_private\n")
    (tmp_path / "torn_private.py").write_text("open('/data/ward-7/patients.csv')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    site.write_text(site.read_text() + 'methods = ["sgd", "torn:Mine"]\n')
    told = training(site, run=run_spec(rule={**RULE, "kind": "torn:Mine"}).encode())
    assert told["refused"] == "it failed: FileNotFoundError (torn.py:1, in <module>)"
    assert told["for_good"] is True
    assert "ward-7" not in json.dumps(told)
