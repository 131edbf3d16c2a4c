"""Test with other versions than constraints.txt has: `python .ci/versions.py lowest|newest [pytest's arguments]`.

`lowest` installs exactly the lower bounds that pyproject.toml states for the package and its extras, `newest` whatever is
newest within them, each in an environment of its own (.venv-lowest, .venv-newest), which is kept. What those need in turn is
the newest that they accept; the tools that run the tests are those of constraints.txt.

KEEP names packages that stay at the version of constraints.txt, torch if it is not set: one version of torch comes as a CPU
build from a given index, others may bring gigabytes of CUDA, or are not there. KEEP= tries the bound of torch too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("parquet", "hub", "hdf5", "plot", "frames", "tensorboard", "wandb", "optuna", "privacy", "metrics")
"""Those with libraries that tests of the package call directly; Flower and Ray are one version each already."""
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "coverage", "jsonschema", "cffi", "hatchling", "editables", "ruff")
FOLDERS = ("core", "data", "plan", "models", "client", "server", "prepare", "evaluate", "fast", "golden", "run", "report")
IGNORED = (
    "golden/test_engines.py",
    "run/test_blame.py",
    "run/test_damaged_runs.py",
    "models/test_transformers.py",
    "report/loggers",
    "data/test_huggingface.py",
)
"""Tests of what is not installed: Flower, Ray, transformers, MLflow and the like."""


def name_of(requirement: str) -> str:
    """`numpy` of `numpy>=1.26`."""
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower().replace("_", "-")


def lowest(requirement: str) -> str:
    """`numpy==1.26` of `numpy>=1.26`."""
    found = re.search(r">=\s*([0-9][^,\s]*)", requirement)
    if found is None:
        raise SystemExit(f"pyproject.toml states no lower bound: {requirement}")
    return f"{name_of(requirement)}=={found[1]}"


def requirements(which: str, project: dict[str, list[str] | dict[str, list[str]]], pinned: dict[str, str]) -> list[str]:
    """What is installed beside the package itself: direct requirements as asked, tools as pinned."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    direct = {name_of(line): line for line in [*project["dependencies"], *(line for name in EXTRAS for line in extras[name])]}
    kept = os.environ.get("KEEP", "torch").split()
    chosen = {name: lowest(line) if which == "lowest" else line for name, line in direct.items()}
    chosen |= {name: f"{name}=={pinned[name]}" for name in kept}
    chosen |= {name: f"{name}=={pinned[name]}" for name in TOOLS if name not in chosen and name in pinned}
    return sorted([*chosen.values(), "scikit-learn"])  # whichever bears the others


def main(which: str, arguments: list[str]) -> int:
    """Install and test; the exit code is pytest's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line]
    wanted = requirements(which, project, {name.lower().replace("_", "-"): version for name, version in pairs})
    folder = ROOT / f".venv-{which}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    index = ["--extra-index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *index]
    print(f"{which}: {', '.join(wanted)}", flush=True)
    subprocess.run([*install, *(["--upgrade"] if which == "newest" else []), *wanted], check=True, cwd=ROOT)
    subprocess.run([*install, "--no-build-isolation", "--no-deps", "-e", "."], check=True, cwd=ROOT)
    tests = arguments or [f"tests/{name}" for name in FOLDERS]
    ignored = [f"--ignore=tests/{name}" for name in IGNORED]
    command = [python, "-m", "pytest", "-m", "not slow", "-n", os.environ.get("LANES", "2"), *ignored]
    return subprocess.run([*command, *tests], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("lowest", "newest"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
