"""Stated faults are caught by the tests that they name: those of what has changed and a sample, or all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutations.__main__ import LEAST_PATIENCE, ROOT, TIMES_LONGER, patience, sampled
from tests.mutations.faults import FAULTS
from tests.support import tiny

SAMPLE = 20


@pytest.mark.slow
def test_faults_are_caught(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "tests.mutations"]
    if not request.config.option.exhaustive:
        command += ["--sample", str(SAMPLE), "--seed", str(request.config.option.seed)]
    done = subprocess.run(command, cwd=ROOT, env=tiny.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_sample_has_all_faults_of_what_changed_and_so_many_others() -> None:
    file, tests = FAULTS[0], FAULTS[-1]
    drawn = sampled(5, 3, {f"src/fedgsp/{file.file}", f"tests/{tests.tests}"})
    near = [fault for fault in FAULTS if fault.file == file.file or fault.tests == tests.tests]
    assert [fault for fault in drawn if fault in near] == near
    assert len(drawn) == len(set(drawn)) == len(near) + 5
    assert sampled(5, 3, set()) == sampled(5, 3, set()) != sampled(5, 4, set())
    assert set(sampled(10**6, 1, set())) == set(FAULTS)


def test_tests_hang_if_they_take_many_times_as_long_as_usual() -> None:
    known = {
        "tests/run/test_a.py::test_x": (4.0, 30.0),
        "tests/run/test_a.py::test_y": (20.0, 10.0),
        "tests/run/test_ab.py::t": (9.0, 9.0),
    }
    assert patience("run/test_a.py", known) == TIMES_LONGER * 50
    assert patience("run/test_a.py::test_x", known) == TIMES_LONGER * 30
    assert patience("run", known) == TIMES_LONGER * 59
    assert patience("run/test_new.py", known) == LEAST_PATIENCE
