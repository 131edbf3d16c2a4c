"""The loop stays on one screen."""

import ast
import subprocess
import sys
from pathlib import Path

from fedgsp.run import loop

FILE = Path(loop.__file__)
MOST_LINES, MOST_COMPLEX = 50, 10


def test_the_loop_has_at_most_fifty_lines() -> None:
    (function,) = (node for node in ast.parse(FILE.read_text()).body if isinstance(node, ast.FunctionDef))
    assert function.end_lineno is not None
    assert function.end_lineno - function.lineno + 1 <= MOST_LINES


def test_the_loop_is_simple() -> None:
    limit = f"lint.mccabe.max-complexity={MOST_COMPLEX}"
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "C901", "--config", limit, str(FILE)],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout
