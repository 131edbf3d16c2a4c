"""Errors: sentences, whose code an exception came out of, and where a part is written."""

from __future__ import annotations

import importlib
import json
import pickle
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.core import __version__
from fedgsp.core.errors import (
    MOST_TRACE,
    Diverged,
    FedgspError,
    InputError,
    RemoteTraceback,
    RunFailed,
    blamed,
    cause_of,
    described,
    did_you_mean,
    is_theirs,
    ours,
    place_of,
    refusal,
    trace_of,
    where_defined,
)
from fedgsp.core.profiles import Profiles
from fedgsp.data.sources import parse
from fedgsp.server import Mean


def test_the_nearest_name_is_suggested() -> None:
    assert did_you_mean("fedavgg", ["fedgsp", "fedavg", "naive-gsp"]) == "did you mean 'fedavg'?"


def test_all_names_are_listed_where_none_is_near() -> None:
    assert did_you_mean("zzz", ["beta", "alpha"]) == "choose from: alpha, beta."


def test_nothing_to_choose_from_is_said() -> None:
    assert did_you_mean("beta", []) == "there is none to choose from."


def test_bad_input_and_failed_runs_have_exit_codes_of_their_own() -> None:
    assert InputError.exit_code == 2
    assert RunFailed.exit_code == Diverged.exit_code == 1
    assert issubclass(Diverged, RunFailed)
    assert issubclass(InputError, FedgspError)


def test_the_version_is_one_and_well_formed() -> None:
    assert fedgsp.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_everything_promised_at_the_front_can_be_had() -> None:
    for name in fedgsp.__all__:
        assert getattr(fedgsp, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fedgsp.nonsense  # noqa: B018


def test_profiles_have_a_row_and_a_size_for_every_client() -> None:
    two, three = np.arange(2), np.arange(3)
    assert len(Profiles(two, np.ones((2, 4), dtype=np.int64), two)) == 2
    with pytest.raises(ValueError, match="one row of counts and one size"):
        Profiles(two, np.ones((3, 4), dtype=np.int64), two)
    with pytest.raises(ValueError, match="one row of counts and one size"):
        Profiles(two, np.ones((2, 4), dtype=np.int64), three)


def caught(work: Any, *arguments: Any) -> Exception:
    try:
        work(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def mine(code: str) -> Exception:
    """An exception out of a file `rules.py` of the user's."""
    space: dict[str, Any] = {"__name__": "rules", "np": np, "torch": torch, "json": json, "parse": parse}
    exec(compile(code, "/home/somebody/work/rules.py", "exec"), space)
    return caught(space["term"])


@pytest.mark.parametrize(
    "body",
    [
        "1 / 0",
        "np.zeros(3).reshape(2, 2)",
        "np.linalg.inv(np.zeros((2, 2)))",
        "torch.nn.Linear(3, 2)(torch.zeros(1, 4))",
        "json.loads('{')",
        "parse('nonsense:')",
    ],
)
def test_the_innermost_frame_of_the_users_own_code(body: str) -> None:
    """Whatever library, or fedgsp itself, raised in the end."""
    error = mine(f"def inner():\n    {body}\n\ndef term():\n    inner()\n")
    assert place_of(error) == "rules.py:2, in inner"
    assert is_theirs(error)
    assert described(error).endswith(" (rules.py:2, in inner)")


def test_without_code_of_theirs_it_is_our_innermost_frame() -> None:
    error = caught(parse, "nonsense:")
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None  # what stands in this file is the user's
    place = place_of(error)
    assert place is not None
    assert place.startswith("sources.py:")
    assert not is_theirs(error)


def test_a_package_that_was_installed_counts_unless_fedgsp_uses_it_itself() -> None:
    def at(file: str, module: str) -> str | None:
        space: dict[str, Any] = {"__name__": module}
        exec(compile("def work():\n    1 / 0\n", file, "exec"), space)
        error = caught(space["work"])
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        return place_of(error) if is_theirs(error) else None

    assert at("/opt/venv/lib/python3.11/site-packages/ourlab/rules.py", "ourlab.rules") == "rules.py:2, in work"
    assert at("/opt/venv/lib/python3.11/site-packages/pandas/frame.py", "pandas.frame") is None
    assert at("/home/dev/pytorch/torch/nn/linear.py", "torch.nn.linear") is None


def test_only_frames_of_some_modules() -> None:
    error = mine("def term():\n    1 / 0\n")
    assert place_of(error, ["rules"]) == "rules.py:2, in term"
    assert place_of(error, ["others"]) is None


def test_a_long_message_of_many_lines_becomes_one_short_line() -> None:
    error = mine("def term():\n    raise ValueError('first\\n   second\\n' + 'x' * 10000)\n")
    told = described(error)
    assert told.startswith("ValueError: first second x")
    assert "\n" not in told
    assert len(told) < 600
    assert described(mine("def term():\n    raise ValueError\n")) == "ValueError (rules.py:2, in term)"


def test_a_part_that_fails_is_named_and_the_exception_kept() -> None:
    told = r"^the planner failed: ZeroDivisionError: .*\(test_errors\.py:\d+, in .*\)\.$"
    with pytest.raises(RunFailed, match=told) as failed, blamed("the planner"):
        _ = 1 / 0
    assert failed.value.traced
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert cause_of(failed.value) is failed.value.__cause__


def test_sentences_and_our_own_bugs_go_by_as_they_are() -> None:
    with pytest.raises(Diverged, match=r"^too far$"), blamed("the planner"):
        raise Diverged("too far")

    with pytest.raises(InputError, match="unknown data source"):
        blamed("the run")(parse)("nowhere:x")
    with pytest.raises(TypeError):
        blamed("the run")(did_you_mean)(None, [1, "x"])  # type: ignore


def test_what_a_user_gave_is_refused_with_its_place_only_if_it_is_in_their_code() -> None:
    theirs = refusal(InputError, "no model", mine("def term():\n    raise ValueError('no such class.')\n"))
    assert str(theirs) == "no model: ValueError: no such class (rules.py:2, in term)."
    assert theirs.traced
    plain = refusal(InputError, "no model", ValueError("no such class."))
    assert str(plain) == "no model: no such class."
    assert not plain.traced


def test_a_remote_traceback_shows_its_text_and_is_bounded() -> None:
    remote = RemoteTraceback("Traceback\n  File 'rules.py'\nValueError: x\n")
    assert str(remote) == '\n"""\nTraceback\n  File \'rules.py\'\nValueError: x\n"""'
    assert trace_of(remote) == remote.trace
    assert len(trace_of(RemoteTraceback("x" * 10 * MOST_TRACE))) < MOST_TRACE + 10
    assert "ValueError: y" in trace_of(caught(lambda: (_ for _ in ()).throw(ValueError("y"))))


def test_that_there_is_a_traceback_survives_a_pipe() -> None:
    assert pickle.loads(pickle.dumps(RunFailed("a").with_trace())).traced
    assert not pickle.loads(pickle.dumps(RunFailed("a"))).traced


def test_files_are_compared_as_paths_not_as_texts() -> None:
    import fedgsp

    beside = Path(fedgsp.__file__).parent.with_name("fedgsp_extras") / "rules.py"
    space: dict[str, Any] = {"__name__": "fedgsp_extras.rules"}
    exec(compile("def work():\n    1 / 0\n", str(beside), "exec"), space)
    assert place_of(caught(space["work"])) == "rules.py:2, in work"


def test_what_dataclasses_generate_for_one_of_ours_is_ours() -> None:
    from fedgsp.core.chain import Chain

    space: dict[str, Any] = {"__name__": "rules", "Chain": Chain}
    exec(compile("def plan():\n    return Chain(())\n", "rules.py", "exec"), space)
    error = caught(space["plan"])
    assert place_of(error) == "rules.py:2, in plan"


SOURCE = """
class Mine:
    def add(self):
        return {}["gone"]

def helper():
    return Mine().add()
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's, in the folder that they work in."""
    (tmp_path / "rules_of_mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rules_of_mine", raising=False)
    return importlib.import_module("rules_of_mine")


def test_classes_instances_and_functions(rules: Any) -> None:
    assert where_defined(rules.Mine()) == where_defined(rules.Mine) == "Mine (rules_of_mine.py:2)"
    assert where_defined(rules.helper) == "helper (rules_of_mine.py:6)"


def test_what_is_ours_or_a_librarys_needs_no_place() -> None:
    assert ours(Mean())
    assert ours(Mean)
    assert where_defined(Mean()) == "Mean"
    assert not ours(nn.Linear(1, 1))
    assert where_defined(nn.Linear(1, 1)) == "Linear"
    assert where_defined(3) == "int"
    assert where_defined(len) == "len"


def test_a_class_without_source_has_the_line_of_its_first_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # a notebook's, which has no file
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, "cell 3", "exec"), space)
    assert where_defined(space["Mine"]()) == "Mine (cell 3:3)"
    exec("class Empty: ...", space)
    assert where_defined(space["Empty"]) == "Empty"


def test_a_package_beside_ours_is_not_ours() -> None:
    space: dict[str, Any] = {"__name__": "fedgsp_rules"}
    exec(SOURCE, space)
    assert not ours(space["Mine"]())
