"""Bad input: one sentence on stderr, exit code 2, no traceback, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

X: NDArray[Any] = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
Y: NDArray[Any] = np.arange(40) % 4
C: NDArray[Any] = np.repeat(np.arange(4), 10)
NAMES: NDArray[Any] = np.array(["ann", "bob", "cy", "dee"])
GOOD: dict[str, NDArray[Any]] = {"features": X, "labels": Y, "client_index": C, "clients": NAMES}


def with_nan() -> NDArray[Any]:
    features = X.astype(np.float32)
    features[25, 3, 3] = np.nan
    return features


def without(key: str) -> dict[str, NDArray[Any]]:
    return {name: array for name, array in GOOD.items() if name != key}


BAD_DATA: dict[str, tuple[dict[str, NDArray[Any]], str]] = {
    "missing key": (without("labels"), "has no array 'labels'; it has: features, client_index, clients."),
    "unequal lengths": ({**GOOD, "labels": Y[:39]}, "unequal lengths: 40 features, 39 labels, 40 client numbers"),
    "negative labels": ({**GOOD, "labels": Y - 1}, "label -1 is negative; classes are numbered from 0."),
    "labels that are no integers": ({**GOOD, "labels": Y.astype(float)}, "labels are whole numbers stored as float64"),
    "labels that are words": ({**GOOD, "labels": NAMES[Y]}, "labels must be integers (classes) or real numbers"),
    "NaN features": ({**GOOD, "features": with_nan()}, "features of sample 25 (client 'cy') contain NaN or infinity."),
    "an empty client": ({**GOOD, "clients": np.array([*NAMES, "eve"])}, "client 'eve' is empty; remove it or give it samples."),
    "duplicate names": ({**GOOD, "clients": NAMES[[0, 1, 1, 3]]}, "the client name 'bob' stands for more than one client"),
    "no samples": ({n: a[:0] for n, a in GOOD.items()}, "has no samples."),
    "too few names": ({**GOOD, "clients": NAMES[:3]}, "client number 3 has no name: there are 3 client names."),
    "features of no image": ({**GOOD, "features": X.reshape(40, 64)}, "the model 'small_cnn' cannot be built for this data"),
}


def told(cli: Callable[..., Any], here: Path, *arguments: object) -> str:
    """The sentence a bad command line gets, after checking how it is told and that nothing was left behind."""
    before = sorted(path.name for path in here.iterdir())
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert sorted(path.name for path in here.iterdir()) == before
    return str(outcome.err)


def sentence(text: str) -> str:
    """Check that a complaint is one sentence of ours, and take it out of its frame."""
    assert text.startswith("fedgsp: ")
    assert text.endswith((".\n", "?\n"))
    assert text.count("\n") == 1
    return text.removeprefix("fedgsp: ").strip()


@pytest.mark.parametrize("case", BAD_DATA)
def test_data(cli: Any, here: Path, case: str) -> None:
    arrays, expected = BAD_DATA[case]
    np.savez(here / "bad.npz", **arrays)  # type: ignore[arg-type]
    said = sentence(told(cli, here, "run", "--data", "bad.npz", "--out", "new"))
    assert expected in said
    assert "bad.npz" in said or case == "features of no image"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("none.npz", "there is no data file"),
        ("npz:none", "there is no data file"),
        ("tiny.npz:classes=2", "label 2 is out of range for 2 classes (0 to 1)."),
        ("tiny.npz:clases=2", "the source 'npz' has no option 'clases': did you mean 'classes'?"),
        ("tiny.npz:federation=femnist-368", "526 named writers"),
        ("glypsh", "unknown data source 'glypsh': did you mean 'glyphs'?"),
        ("glyphs:clients=0", "glyphs needs at least one client, not 0."),
        ("text.npz", "is not an .npz archive"),
    ],
)
def test_sources(cli: Any, here: Path, tiny: str, source: str, expected: str) -> None:
    (here / "text.npz").write_text("hello")
    assert expected in sentence(told(cli, here, "run", "--data", source))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--method", "fedavgg"], "unknown method 'fedavgg': did you mean 'fedavg'?"),
        (["--model", "smal_cnn"], "unknown model 'smal_cnn': did you mean 'small_cnn'?"),
        (["--model", "nowhere:net"], "cannot import the model 'nowhere:net': No module named 'nowhere'."),
        (["--kappa", "0"], "kappa must be above 0 and at most 1"),
        (["--kappa", "-0.3"], "kappa must be above 0 and at most 1"),
        (["--kappa", "1.5"], "kappa must be above 0 and at most 1"),
        (["--kappa", "nan"], "kappa must be a finite number, not nan."),
        (["--rounds", "0"], "rounds must be at least 1, not 0."),
        (["--rounds", "-3"], "rounds must be at least 1, not -3."),
        (["--lr", "nan"], "the learning rate must be a positive number, not nan."),
        (["--lr", "inf"], "the learning rate must be a positive number, not inf."),
        (["--lr", "-0.1"], "the learning rate must be a positive number, not -0.1."),
        (["--batch-size", "0"], "the batch size must be at least 1, not 0."),
        (["--epochs", "0"], "local epochs must be at least 1, not 0."),
        (["--momentum", "1"], "momentum must be from 0 up to 1, not 1.0."),
        (["--weight-decay", "-1"], "weight decay must not be negative, not -1.0."),
        (["--seed", "-1"], "the seed must be a whole number from 0 to 4294967295, not -1."),
        (["--data-seed", "-1"], "the data seed must be a whole number from 0 to 4294967295, not -1."),
        (["--workers", "many"], "workers must be a number or 'auto', not 'many'."),
        (["--workers", "-1"], "workers must be at least 0, not -1."),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--eval-every", "0"], "eval_every must be at least 1, not 0."),
        (["--target-accuracy", "85"], "the target accuracy must be above 0 and at most 1, not 85.0."),
        (["--stop-at-target"], "stop_at_target needs a target_accuracy."),
        (["--validation", "1"], "validation must be a fraction from 0 up to 1, not 1.0."),
        (["--clients", "13"], "tiny.npz has 12 clients, not 13."),
        (["--clients", "0"], "clients must be at least 1, not 0."),
        (["--holdout-clients", "12"], "too few clients: 12 in the data, 12 to be held out"),
        (["--order", "sorted"], "order must be one of 'shuffled', 'fixed', not 'sorted'."),
        (
            ["--growth", "cubic", "--alpha", "1"],
            "unknown kind 'cubic': choose from: constant, exp, length, linear, log, proportional, singletons.",
        ),
        (["--growth", "linear"], "--growth linear needs --alpha, its rate of growth."),
        (["--growth", "constant", "--alpha", "2"], "--growth constant has no --alpha."),
        (["--growth", "log", "--alpha", "-2"], "alpha must not be negative"),
        (["--growth", "log", "--beta", "0"], "beta must be a whole number of at least 1, not 0."),
        (["--method", "fedavg", "--beta", "3"], "(kind 'singletons') has no parameter 'beta': there is none to choose from."),
        (["--init", "none.safetensors"], "there is no weights file"),
        (["--init", "tiny.npz"], "cannot be read as safetensors"),
        (["--set", "method.local.lr"], "--set wants PATH=VALUE, not 'method.local.lr'."),
        (["--set", "local.lr=1"], "there is nothing called 'local.lr' in this configuration."),
        (["--set", "method.local.lr=fast"], "method.local.lr must be a number, not 'fast'."),
        (["--set", "run.round=3"], "[run] has no entry 'round': did you mean 'rounds'?"),
        (["--set", "runs=3"], "has no section 'runs': did you mean 'run'?"),
        (["none.toml"], "cannot read the configuration none.toml: No such file or directory."),
        (["tiny.npz"], "tiny.npz is not a text file in UTF-8."),
    ],
)
def test_options(cli: Any, here: Path, tiny: str, options: list[str], expected: str) -> None:
    assert expected in sentence(told(cli, here, "run", "--data", tiny, "--out", "new", *options))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--bogus"], "No such option"),
        (["run", "--rounds", "many"], "'many' is not a valid integer."),
        (["run", "--kappa", "half"], "'half' is not a valid float."),
        (["trian"], "No such command 'trian'."),
        (["resume"], "Missing argument"),
    ],
)
def test_what_cannot_be_read_at_all(cli: Any, here: Path, arguments: list[str], expected: str) -> None:
    assert expected in told(cli, here, *arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["resume", "nowhere"], "there is no run directory nowhere."),
        (["replay", "nowhere"], "nowhere"),
        (["evaluate", "nowhere"], "there is no run directory nowhere."),
        (["evaluate", "nowhere", "--part", "tset"], "unknown part 'tset': did you mean 'test'?"),
    ],
)
def test_runs_that_are_not_there(cli: Any, here: Path, arguments: list[str], expected: str) -> None:
    assert expected in sentence(told(cli, here, *arguments))


def test_a_place_that_is_taken(cli: Any, here: Path, tiny: str) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "letter.txt").write_text("dear diary")
    said = sentence(told(cli, here, "run", "--data", tiny, "--out", "mine"))
    assert said == "mine is not empty; choose another place with --out."
    assert [path.name for path in (here / "mine").iterdir()] == ["letter.txt"]


def test_a_place_that_cannot_be(cli: Any, here: Path, tiny: str) -> None:
    said = sentence(told(cli, here, "run", "--data", tiny, "--out", "tiny.npz/run"))
    assert said.startswith("cannot create the run directory tiny.npz/run")


def test_a_cache_that_cannot_be_written(cli: Any, here: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGSP_CACHE", str(here / "tiny.npz" / "cache"))
    said = sentence(told(cli, here, "run", "--data", tiny))
    assert said.startswith("cannot write the data cache")
    assert said.endswith("set FEDGSP_CACHE to a folder you may write.")


REAL = "from fedgsp.cli.main import main; main()"


def real(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real thing, in a process of its own."""
    command = [sys.executable, "-c", REAL, *arguments]
    return subprocess.run(command, cwd=here, env=dict(os.environ), capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--data", "none.npz"], "fedgsp: there is no data file"),
        (["--data", "tiny.npz", "--kappa", "2"], "fedgsp: Grouped: kappa must be above 0 and at most 1"),
    ],
)
def test_in_a_process_of_its_own(here: Path, tiny: str, options: list[str], expected: str) -> None:
    done = real(here, "run", *options, "--out", "new")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(expected)
    assert done.stderr.count("\n") == 1
    assert not (here / "new").exists()
    assert not (here / "runs").exists()


def test_a_run_that_diverges_is_one_sentence_and_keeps_its_last_good_model(cli: Any, here: Path, tiny: str) -> None:
    outcome = cli(
        "run", "--data", tiny, "--method", "fedavg", "--lr", "1e30", "--rounds", "3", "--workers", "0", "--out", "new", "-q"
    )
    assert outcome.code == 1
    assert "Traceback" not in outcome.err
    assert sentence(outcome.err)
    assert (here / "new" / "model.safetensors").exists()
