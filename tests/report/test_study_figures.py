"""Figures of studies: every kind is drawn, into PNG and SVG, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgsp.core.errors import InputError
from fedgsp.report.study_figures import COLOURS, BarChart, BoxPlot, Curve, HeatMap, LinePlot, Picture, draw_picture

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
    assert len(set(COLOURS)) == len(COLOURS)
    assert "#D55E00" in COLOURS
    assert "#009E73" in COLOURS


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot draw"):
        draw_picture(PICTURE, tmp_path / "none")
