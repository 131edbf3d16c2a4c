"""The files of a run are what docs/formats.md says they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import fedgsp
from fedgsp.run.config import parse_toml
from tests.support import tiny

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)


def schema(title: str) -> dict[str, Any]:
    found: dict[str, Any] = next(parsed for parsed in map(json.loads, blocks("json")) if parsed["title"] == title)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    source = str(tiny.write_npz(folder / "data.npz", clients=12))
    fedgsp.train(
        "fedgsp", source, tiny.LINEAR, rounds=4, workers=0, out=folder / "run",
        eval_every=2, holdout_clients=2, validation=0.3, target_accuracy=0.3,
    )  # fmt: skip
    fedgsp.resume(folder / "run", rounds=5, workers=0)
    return folder / "run"


@pytest.mark.parametrize(
    ("file", "title"),
    [
        ("journal.jsonl", "journal line"),
        ("plans.jsonl", "plans line"),
        ("events.jsonl", "event"),
        ("scores.jsonl", "scores line"),
    ],
)
def test_every_line_fits_its_schema(run: Path, file: str, title: str) -> None:
    lines = (run / file).read_text().splitlines()
    validator = jsonschema.Draft202012Validator(schema(title))
    assert len(lines) >= (3 if file == "scores.jsonl" else 5)
    for line in lines:
        validator.validate(json.loads(line))


def test_the_schemas_can_refuse() -> None:
    for title in ("journal line", "plans line", "scores line", "event", "result"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"nonsense": "x"}, schema(title))


def test_the_result_fits_its_schema(run: Path) -> None:
    jsonschema.validate(json.loads((run / "result.json").read_text()), schema("result"))


def test_the_documented_configuration_is_one(run: Path) -> None:
    (text,) = blocks("toml")
    config = parse_toml(text, "docs/formats.md")
    assert (config.run.rounds, config.method.local.lr, config.method.local.batch_size) == (20, 0.03, 10)


def test_the_configuration_repeats_the_run(run: Path, tmp_path: Path) -> None:
    done = tiny.cli("run", str(run / "config.toml"), "--out", str(tmp_path / "again"), "--quiet")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert (tmp_path / "again" / "config.toml").read_bytes() == (run / "config.toml").read_bytes()


def test_a_newer_configuration_is_refused() -> None:
    with pytest.raises(fedgsp.InputError, match="schema 2; this version of fedgsp reads schema 1"):
        parse_toml("schema = 2", "config.toml")


def test_the_model_loads_into_plain_pytorch(run: Path) -> None:
    model = nn.Linear(tiny.FEATURES, tiny.CLASSES)
    model.load_state_dict(load_file(run / "model.safetensors"))


def test_checkpoints_are_named_by_their_content_and_some_are_kept(run: Path) -> None:
    files = sorted((run / "checkpoint").iterdir())
    assert [int(file.name.split("-")[1]) for file in files] == [0, 2, 4, 5]
    with safe_open(files[-1], "pt") as opened:
        facts = json.loads(opened.metadata()["fedgsp"])
        assert set(opened.keys()) == {"models|global|weight", "models|global|bias"}
    assert (facts["schema"], facts["round"]) == (1, 5)
    assert facts["numerics"]["kernel"].startswith(("plain", "c-"))
