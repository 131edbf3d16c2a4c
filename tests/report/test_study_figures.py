"""Figures of studies: every kind is drawn, into PNG and SVG, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgsp.core.errors import InputError
from fedgsp.report.colours import TONES, looks
from fedgsp.report.study_figures import NO_METHOD, BarChart, BoxPlot, Curve, HeatMap, LinePlot, Picture, draw_picture

PICTURE = Picture(
    "all", "Every kind.",
    [
        [LinePlot("l", "x", "y", [Curve("a", [1, 2], [3, 4], [2, 3], [4, 5]), Curve("b", [1, 2], [1, 1])], log_x=True),
         BoxPlot("b", "", "y", [("one", [0.0, 1.0, 2.0]), ("two", [1.0, 5.0])])],
        [HeatMap("h", "x", "y", ["1", "2"], ["3"], [[0.5, None]], 0.0, 1.0),
         BarChart("s", "", "y", ["first", "second"], [("below", [1, 2]), ("above", [1, 1])], [0.1, 0.2]),
         BarChart("t", "", "y", ["a"], [("", [1])])],
    ],
)  # fmt: skip


def test_png_and_svg_are_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = (draw_picture(PICTURE, folder) for folder in (tmp_path, tmp_path / "again"))
    assert [path.name for path in first] == ["all.png", "all.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    text = first[1].read_text()
    for words in ("above", "first", "one"):  # texts stay texts
        assert words in text


def test_what_bars_say_on_top_is_a_plain_number(tmp_path: Path) -> None:
    bars = BarChart("t", "", "y", ["a", "b"], [("", [3784.2, 0.12345])])
    _, vector = draw_picture(Picture("bars", "BarChart.", [[bars]]), tmp_path)
    text = vector.read_text()
    assert ">3,784<" in text
    assert ">0.123<" in text


def test_colours_can_be_told_apart() -> None:
    """Okabe and Ito's, each once: no red beside green of the same lightness."""
    colours = list(TONES.values())
    assert len(set(colours)) == len(colours)
    assert {"#D55E00", "#009E73"} < set(colours)


def test_bars_have_their_methods_colour_and_the_papers_figure_beside_them(tmp_path: Path) -> None:
    named = BarChart("m", "", "y", ["fedavg", "fedgsp", "mine"], [("", [1, 2, 3])], paper=[1.5, None, None])
    of_one = BarChart("k", "kappa", "y", ["0.1", "0.2"], [("", [1, 2])], method="fedyogi")
    _, vector = draw_picture(Picture("bars", "Bars.", [[named, of_one]]), tmp_path)
    text = vector.read_text().lower()
    for name in ("fedavg", "fedgsp", "fedyogi"):
        assert looks([name])[0].colour.lower() in text
    assert NO_METHOD.lower() in text
    assert text.count("the paper") == 1


def test_points_of_the_papers_are_on_the_curve_they_are_of(tmp_path: Path) -> None:
    lines = [Curve("fedavg", [1, 9], [0, 1]), Curve("fedgsp", [1, 9], [1, 1])]
    plots = [LinePlot("l", "x", "y", lines, paper=paper) for paper in ([], [("fedgsp", 3, 0.5)])]
    without, with_one = (draw_picture(Picture(f"p{at}", "", [[plot]]), tmp_path)[1] for at, plot in enumerate(plots))
    colour = looks(["fedgsp"])[0].colour.lower()
    assert "the paper" in with_one.read_text()
    assert "the paper" not in without.read_text()
    assert with_one.read_text().count(colour) > without.read_text().count(colour)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot draw"):
        draw_picture(PICTURE, tmp_path / "none")
