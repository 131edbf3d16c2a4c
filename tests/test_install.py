"""How `make` sets up its environment: one process at a time, and what was interrupted is mended rather than thrown away."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[1] / ".ci" / "install.py"


def script(file: Path) -> ModuleType:
    """It as a module."""
    spec = importlib.util.spec_from_file_location(f"fedgsp_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def install() -> ModuleType:
    """The script that sets up environments."""
    return script(FILE)


HOLDS = """
import importlib.util, sys, pathlib
spec = importlib.util.spec_from_file_location("held", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with module.alone(pathlib.Path(sys.argv[2])):
    print("in", flush=True)
    sys.stdin.readline()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDS, str(FILE), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("killed", [False, True])
def test_the_second_waits_until_the_first_has_ended_in_whatever_way(tmp_path: Path, killed: bool) -> None:
    first = holder(tmp_path / "env")
    assert said(first) == "in"
    second = holder(tmp_path / "env")
    assert said(second).startswith("another process is installing into")
    if killed:
        first.kill()
    first.communicate("\n")
    assert said(second) == "in"
    second.communicate("\n")
    assert second.returncode == 0


def package(folder: Path, name: str, size: int, there: bool = True) -> None:
    """An installed package of one module whose record says how large it is."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"{name}.py,,{size}\n{name}-1.0.dist-info/RECORD,,\n")
    if there:
        (folder / f"{name}.py").write_text("x = 1\n")


def test_packages_without_all_of_their_files_are_found_and_no_others(install: ModuleType, tmp_path: Path) -> None:
    package(tmp_path, "whole", 6)
    package(tmp_path, "cut", 600)
    package(tmp_path, "gone", 6, there=False)
    (tmp_path / "unrecorded-1.0.dist-info").mkdir()
    (tmp_path / "unrecorded-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: unrecorded\nVersion: 1.0\n")
    command = [sys.executable, "-S", "-c", install.BROKEN]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert sorted(found.stdout.split()) == ["cut", "gone", "unrecorded"]


def test_what_is_there_already_is_left_alone(install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was run")

    monkeypatch.setattr(install.subprocess, "run", never)
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / ".dev").write_text(install.wanted())
    install.main("dev", tmp_path / "env")
    install.main("core", tmp_path / "env")  # who has all has the core
    (tmp_path / "env" / ".dev").write_text("other versions")
    with pytest.raises(AssertionError, match="something was run"):
        install.main("dev", tmp_path / "env")
    assert (tmp_path / "env" / ".dev").exists()


def test_the_wheel_has_every_file_of_the_package_and_the_source_no_results(tmp_path: Path) -> None:
    root = FILE.parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, capture_output=True, check=True)
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    package = [path for path in (root / "src" / "fedgsp").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    with zipfile.ZipFile(wheel) as packed:
        assert {str(path.relative_to(root / "src")) for path in package} <= set(packed.namelist())
    with tarfile.open(source) as packed_source:
        tops = {name.split("/")[1] for name in packed_source.getnames()}
    assert {"src", "tests", "docs", "pyproject.toml", "LICENSE"} <= tops
    assert not {"results", ".github", ".venv"} & tops


WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Absent())
import fedgsp

for name in fedgsp.__all__:
    getattr(fedgsp, name)
data = fedgsp.from_arrays([[0.0], [1.0]] * 20, [0, 1] * 20, [0] * 20 + [1] * 20)
print(fedgsp.train("fedavg", data, "linear", rounds=1, workers=0).status)
"""


def test_what_make_demo_installs_is_enough_to_train() -> None:
    extras = {"flwr", "ray", "matplotlib", "pandas", "polars", "pyarrow", "h5py", "PIL", "optuna", "opendp", "dp_accounting",
              "transformers", "peft", "sklearn", "wandb", "mlflow", "tensorboard", "IPython"}  # fmt: skip
    code = WITHOUT_EXTRAS.replace("EXTRAS", repr(extras))
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout == "finished\n", ended.stderr


def test_the_lowest_versions_are_the_bounds_that_are_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = script(FILE.with_name("versions.py"))
    extras = {**{name: list[str]() for name in versions.EXTRAS}, "plot": ["matplotlib>=3.8"]}
    project = {"dependencies": ["torch>=2.4", "numpy>=1.26,<3"], "optional-dependencies": extras}
    pinned = {"torch": "2.13.0", "numpy": "2.4.6", "pytest": "9.2.0"}
    monkeypatch.delenv("KEEP", raising=False)
    kept = versions.requirements("lowest", project, pinned)
    assert {"torch==2.13.0", "numpy==1.26", "matplotlib==3.8", "pytest==9.2.0"} <= set(kept)
    assert {"torch==2.13.0", "numpy>=1.26,<3"} <= set(versions.requirements("newest", project, pinned))
    monkeypatch.setenv("KEEP", "")
    assert "torch==2.4" in versions.requirements("lowest", project, pinned)
    with pytest.raises(SystemExit, match="no lower bound: rich"):
        versions.lowest("rich")
