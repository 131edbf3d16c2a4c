"""What a notebook shows: representations by themselves, and the whole afternoon in a real Jupyter kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from docs.site.notebooks import kept_outputs
from fedgsp.client import SGD, LocalContext
from fedgsp.core.chain import Chain, ChainResult
from fedgsp.progress import ProgressBar, in_notebook
from tests.support import tiny
from tests.support.notebooks import stored_texts, words

DATA = tiny.federation()
AFTERNOON = Path(__file__).parents[1] / "examples" / "afternoon.ipynb"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> fedgsp.RunResult:
    place = tmp_path_factory.mktemp("run") / "run"
    return fedgsp.train(tiny.chains(), DATA, tiny.linear, rounds=3, workers=0, out=place)


def test_every_public_object_is_told_in_at_most_ten_lines(result: fedgsp.RunResult) -> None:
    many = fedgsp.from_arrays(np.zeros((5000, 9), np.float32), np.arange(5000) % 7, np.arange(5000) // 5)
    compared = fedgsp.compare(result)
    tuned = fedgsp.tune(result, {"lr": [0.01, 0.02, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5]}, rounds=1, validation=0.3, workers=0)
    things: list[Any] = [
        result, result.state, result.run, result.figures, DATA, many, many.train, result.run.config.method, result.run.config,
        compared, tuned, fedgsp.inspect(many), fedgsp.group(DATA, 2), fedgsp.evaluate(result), fedgsp.cost(result),
        many.profiles(), compared.entrants[0], fedgsp.METHODS, fedgsp.models(many), fedgsp.advise(many, model="linear"),
        fedgsp.Optuna(),
        fedgsp.RunReader(str(result.directory)), fedgsp.named("astraea"), fedgsp.classification(), compared.findings,
    ]  # fmt: skip
    for thing in things:
        text = repr(thing)
        assert len(text.splitlines()) <= 10, type(thing).__name__
        assert len(text) < 3000, type(thing).__name__
    for thing in (result, DATA, many, result.run.config.method, compared, tuned, fedgsp.inspect(many), fedgsp.group(DATA, 2)):
        html = thing._repr_html_()
        assert html.count("<table") == html.count("</table>") > 0
        assert html.count("<svg") == html.count("</svg>")
        assert len(html) < 60_000
    assert "<polyline" in result._repr_html_()
    assert "3 rounds" in repr(result)


def test_texts_of_others_are_escaped_in_html() -> None:
    data = fedgsp.from_arrays(np.zeros((8, 2), np.float32), np.arange(8) % 2, np.arange(8) // 4)
    method = replace(fedgsp.named("fedavg"), name="<b>x</b>")
    assert "<b>x</b>" not in method._repr_html_()
    assert "&lt;b&gt;x" in fedgsp.train(method, data, tiny.linear, rounds=1, workers=0)._repr_html_()


def test_the_history_as_frames(result: fedgsp.RunResult) -> None:
    for table in (result.to_pandas(), result.to_polars()):
        assert table["accuracy"].to_list() == [entry["accuracy"] for entry in result.history]
        assert {"round", "timings.train", "quantiles.accuracy.0.1"} <= set(table.columns)


def test_the_score_of_any_task() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    numbers = fedgsp.from_arrays(x, x.sum(axis=1), np.repeat(np.arange(6), 10))
    result = fedgsp.train("fedavg", numbers, lambda: tiny.linear((4,), 1), rounds=2, workers=0)
    assert (result.score_name, result.score) == ("loss", result.figures.final["loss"])
    assert repr(result).count("loss") == 1


def test_pictures_are_png_and_can_be_saved(result: fedgsp.RunResult, tmp_path: Path) -> None:
    for plot in (result.plot(), DATA.plot(), fedgsp.compare(result).plot(), fedgsp.group(DATA, 2).plot()):
        assert plot._repr_png_().startswith(b"\x89PNG")
    assert result.plot().save(tmp_path / "run.svg").read_text().startswith("<?xml")


def test_a_bar_tells_rounds_score_and_how_it_ended() -> None:
    class Told:
        def __init__(self) -> None:
            self.shares: list[float] = []
            self.words: list[str] = []

        def show(self, share: float, text: str) -> None:
            self.shares.append(share)
            self.words.append(text)

        def close(self) -> None:
            self.words.append("closed")

    told = Told()
    bar = ProgressBar(surface=told)
    result = fedgsp.train(tiny.chains(), DATA, tiny.linear, rounds=3, workers=0, callbacks=[bar], progress=False)
    assert told.shares == sorted(told.shares)
    assert told.shares[0] == 0
    assert told.shares[-1] == 1
    assert any("round 2 of 3, accuracy 0." in words and "left" in words for words in told.words)
    assert told.words[-2:] == [
        f"{result.run.config.method.name}: finished after 3 rounds, accuracy {result.score:.4f}",
        "closed",
    ]
    assert not in_notebook()


@pytest.mark.slow
def test_the_whole_afternoon_in_a_real_kernel(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(AFTERNOON, as_version=4)  # type: ignore[no-untyped-call]
    stored = [words(said) for said in stored_texts(book.cells)]
    NotebookClient(book, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    again = [{**cell, "outputs": kept_outputs(cell.outputs)} for cell in cells]
    books = [nbformat.from_dict(cell) for cell in again]  # type: ignore[no-untyped-call]
    assert [words(said) for said in stored_texts(books)] == stored

    def shown(start: str) -> dict[str, Any]:
        outputs = next(cell.outputs for cell in cells if start in cell.source)
        return {kind: data for output in outputs for kind, data in output.get("data", {}).items()}

    assert "<svg" in shown("data = fedgsp.from_arrays")["text/html"]
    assert "image/png" in shown("data.plot()")
    outputs = next(cell.outputs for cell in cells if "result = fedgsp.train" in cell.source)
    (bar,) = [text for one in outputs if "<progress" in (text := one.get("data", {}).get("text/html", ""))]
    assert "finished after 8 rounds" in bar, "the bar was updated in place to its end"
    assert "<polyline" in shown("result = fedgsp.train")["text/html"]
    assert "clipped" in shown("found = fedgsp.compare")["text/html"]
    assert "best" in shown("tuned = fedgsp.tune")["text/html"]
    said = cells[-1].outputs[0]["text"]
    assert said.startswith("accuracy 0.")
    assert float(said.split()[1].rstrip(",")) > 0.5


def test_names_of_classes_are_in_every_picture() -> None:
    labels = np.array(["cat", "dog", "<b>"])[np.arange(60) % 3]
    data = fedgsp.from_arrays(np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32), labels, np.arange(60) // 10)
    drawn = {
        "data": data.plot().figure.axes[0].get_yticklabels(),
        "groups": fedgsp.group(data, 2).plot().figure.axes[0].get_xticklabels(),
    }
    for name, ticks in drawn.items():
        assert [tick.get_text() for tick in ticks] == ["<b>", "cat", "dog"], name
    html = data._repr_html_()
    assert "cat" in html
    assert "<b>, " not in html
    quarters = fedgsp.from_arrays(data.features, data.features.sum(axis=1), np.arange(60) // 10).with_target_bins(4)
    assert "4 equal parts" in repr(quarters)
    assert quarters.plot().figure.axes[0].get_ylabel() == "part of the targets, of 4"


def test_what_parts_are_given_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Talks(SGD):
        def begin(self, ctx: LocalContext) -> None:
            print(ctx)

    fedgsp.train(replace(tiny.chains(), local=Talks(lr=0.1)), DATA, tiny.linear, rounds=1, workers=0)
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines
    assert all(line.startswith("LocalContext(round 1, client ") for line in lines)
    weights = {"w": torch.zeros(500, 20)}
    assert len(repr(ChainResult(0, Chain((1, 2)), weights, (), weights))) < 200
