"""The scripts of examples/ run as they are, and say what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "quickstart": "mean of the last rounds",
    "your_csv": "fedgsp-balanced: accuracy",
    "your_model": "after two rounds of fedavg",
    "your_method": "fedgsp, clipped",
    "when_fedgsp": "skewed  fedgsp",
    "groups_only": "Balanced  10 to 10 clients a group",
    "transformer_lora": "numbers were sent",
    "hospitals_over_flower": "the run over Flower is finished",
    "on_a_cluster": "same bits: True",
    "dishonest_clients": "geometric-median: ",
    "resume_and_replay": "same bits as a run that never stopped: True\ncomputed again and compared: True",
}


def test_every_script_is_tried_and_listed() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == set(SAYS)
    page = (EXAMPLES / "README.md").read_text()
    assert [name for name in scripts if f"({name}.py)" not in page] == []


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", SAYS)
def test_a_script_runs(name: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert SAYS[name] in ended.stdout
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 60
