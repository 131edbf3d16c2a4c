"""Code from outside the package runs only where the user says so, or where the run was begun on this machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fedgsp
from fedgsp.cli.options import build_config
from fedgsp.core.errors import InputError
from fedgsp.cost import FLEETS
from fedgsp.report.run_costs import cost_of_run
from fedgsp.run import checkpoint
from fedgsp.run.evaluate_run import evaluate_run
from fedgsp.run.trust import MARK, code_named
from fedgsp.study.finished import read_finished
from tests.support import hostile_runs, tiny

ASK: dict[str, Callable[[Path, bool], object]] = {
    "resume": lambda path, trust: fedgsp.resume(path, rounds=2, workers=0, trust=trust),
    "replay": lambda path, trust: fedgsp.replay(path, workers=0, trust=trust),
    "evaluate": lambda path, trust: evaluate_run(path, None, "test", trust=trust),
    "run --dry-run": lambda path, trust: build_config(path / "config.toml", {}, trust=trust),
}
CODE = """
from pathlib import Path
from dataclasses import dataclass
from torch import nn
from fedgsp.client import SGD
Path(__file__).with_suffix(".ran").touch()

def net(shape, classes):
    return nn.Linear(shape[0], classes)

@dataclass(frozen=True)
class Mine(SGD):
    pass
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working folder; the file that it leaves when it is imported."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "evilmod.py").write_text(CODE)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder / "evilmod.ran"
    sys.modules.pop("evilmod", None)


@pytest.fixture
def begun(code: Path, tmp_path: Path) -> Path:
    """A run that was begun here, with a model and a local rule of the module's."""
    source = str(tiny.write_npz(tmp_path / "data.npz", clients=4))
    out = tmp_path / "runs" / "mine"
    config = build_config(None, {"method": "fedavg", "data": source, "model": "evilmod:net", "rounds": 1, "workers": 0},
                          ['method.local.kind="evilmod:Mine"'])  # fmt: skip
    from fedgsp.run import lifecycle
    from fedgsp.run.build import RunBuilder

    lifecycle.start(RunBuilder().build(config), out)
    _forget(code)
    return out


def _forget(ran: Path) -> None:
    sys.modules.pop("evilmod", None)
    ran.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ASK)
def test_a_run_from_elsewhere_runs_no_code_unless_trusted(begun: Path, code: Path, name: str) -> None:
    foreign = begun.parent / "foreign"
    shutil.copytree(begun, foreign)
    with pytest.raises(InputError, match=r"names code that is not part of fedgsp \(evilmod:Mine and 1 more\).*`trust=True`"):
        ASK[name](foreign, False)
    assert not code.exists()
    ASK[name](foreign, True)
    assert code.exists()


@pytest.mark.parametrize("name", ASK)
def test_a_run_that_was_begun_here_goes_on_as_ever(begun: Path, code: Path, name: str) -> None:
    ASK[name](begun, False)
    assert code.exists()


def test_what_needs_no_code_of_a_run_runs_none(begun: Path, code: Path) -> None:
    foreign = begun.parent / "foreign"
    shutil.copytree(begun, foreign)
    assert cost_of_run(foreign, FLEETS["paper"], None)["rounds"] == 1
    assert len(read_finished([foreign])[0].trace().history) == 1
    assert not code.exists()
    (foreign / "clients.safetensors").unlink()  # as one that was recorded before runs wrote down what a sample costs
    with pytest.raises(InputError, match="names code that is not part of fedgsp"):
        cost_of_run(foreign, FLEETS["paper"], None)
    with pytest.raises(InputError, match="names code that is not part of fedgsp"):
        read_finished([foreign])[0].trace()
    assert not code.exists()


def test_trust_is_remembered_for_the_code_it_was_given_to(begun: Path, code: Path) -> None:
    foreign = begun.parent / "foreign"
    shutil.copytree(begun, foreign)
    fedgsp.resume(foreign, rounds=2, workers=0, trust=True)
    fedgsp.resume(foreign, rounds=3, workers=0)
    text = (foreign / "config.toml").read_text()
    (foreign / "config.toml").write_text(text.replace("evilmod:net", "evilmod:other"))
    with pytest.raises(InputError, match="names code"):
        fedgsp.resume(foreign, rounds=4, workers=0)


def test_a_directory_put_in_the_place_of_one_begun_here_is_not_trusted(begun: Path, code: Path) -> None:
    foreign = begun.parent / "foreign"
    shutil.copytree(begun, foreign)
    (foreign / MARK).write_text("0" * 32)
    shutil.rmtree(begun)
    foreign.rename(begun)
    with pytest.raises(InputError, match="names code"):
        fedgsp.replay(begun, workers=0)
    assert not code.exists()


def test_objects_given_in_python_take_the_place_of_code_that_is_named(tmp_path: Path) -> None:
    out = tmp_path / "run"
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=0, out=out)
    foreign = tmp_path / "foreign"
    shutil.copytree(out, foreign)
    result = fedgsp.resume(foreign, rounds=2, workers=0, data=tiny.federation(), model=tiny.linear)
    assert result.rounds == 2
    with pytest.raises(InputError, match="names code"):
        fedgsp.resume(foreign, rounds=3, workers=0, data=tiny.federation())


def test_the_code_a_configuration_names() -> None:
    table = {
        "model": {"name": "a.b:c"},
        "data": {"source": "leaf:folder:encoder=enc:f,test=0.2"},
        "method": {"name": "x", "local": {"kind": "sgd", "schedule": {"kind": "s:S"}}, "server": {"parts": [{"kind": "l:L"}]}},
    }
    assert code_named(table) == ["a.b:c", "enc:f", "l:L", "s:S"]
    assert code_named({"model": {"name": "small_cnn"}, "data": {"source": "npz:some/file.npz"}}) == []
    assert code_named({"model": {"name": ["a:b"]}, "data": 3, "method": [{"kind": {}}]}) == []


def test_a_model_name_in_a_checkpoint_leads_nowhere(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "run"
    fedgsp.train("fedavg", tiny.federation(), tiny.linear, rounds=1, workers=0, out=out)
    made = hostile_runs.with_model_called(hostile_runs.newest(out), "/../../x")
    with pytest.raises(checkpoint.DamagedCheckpoint, match="not one that fedgsp wrote"):
        checkpoint.load(made)
    with pytest.raises(InputError, match="is whole: resume the run with"):
        fedgsp.resume(out, rounds=2, workers=0, data=tiny.federation(), model=tiny.linear)
    assert {path.name for path in tmp_path.rglob("*x*") if path.name.startswith("x")} == set()


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    out, victim = tmp_path / "run", tmp_path / "victim"
    fedgsp.train("fedavg", tiny.federation(), tiny.linear, rounds=1, workers=0, out=out)
    victim.write_text("mine")
    (out / ".lock").unlink()
    (out / ".lock").symlink_to(victim)
    with pytest.raises(InputError, match=r"\.lock is a link or a folder"):
        fedgsp.resume(out, rounds=2, workers=0, data=tiny.federation(), model=tiny.linear)
    assert victim.read_text() == "mine"
