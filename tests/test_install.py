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


@pytest.fixture(scope="module")
def install() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("fedgsp_install", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
