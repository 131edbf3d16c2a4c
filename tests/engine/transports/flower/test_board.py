"""What is shown of the group managers of the round under way."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedgsp.core.chain import Chain, Hop, HopReport, Plan
from fedgsp.engine.messages import HopDone, HopSkipped
from fedgsp.engine.transports.flower.board import FILE, FileBoard, read_board


def test_who_has_which_model_and_since_when(tmp_path: Path) -> None:
    times = iter([10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0])
    board = FileBoard(tmp_path, lambda client: f"site {client}", lambda: next(times))
    board.begin(Plan(3, (Chain((4, 5)), Chain((6,))), 2))

    def shown() -> list[tuple[object, ...]]:
        found = read_board(tmp_path)
        assert found is not None
        assert found[0] == 3
        return [(one["state"], one["client"], one["hop"], one["hops"], one["skipped"], one["since"]) for one in found[1]]

    assert shown() == [("waiting", "site 4", 0, 2, 0, 10.0), ("waiting", "site 6", 0, 1, 0, 10.0)]
    board.asked(0, Hop(0, 4, 0))
    assert shown()[0] == ("training", "site 4", 0, 2, 0, 11.0)
    board.note(HopDone(3, 0, HopReport(4, 0, 0, 9, 1, 0, 0, 0.1)))
    assert shown()[0] == ("waiting", "site 4", 1, 2, 0, 12.0)
    board.asked(0, Hop(1, 5, 0))
    board.note(HopSkipped(3, 0, 1, 5, "it left", 0, 0.0))
    board.note(HopDone(3, 1, HopReport(6, 0, 0, 9, 1, 0, 0, 0.1)))
    assert shown() == [("done", "site 5", 2, 2, 1, 14.0), ("done", "site 6", 1, 1, 0, 15.0)]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2, "round": 1, "groups": []}', '{"schema": 1, "round": 1, "groups": [{}]}']
)
def test_what_cannot_be_read_is_not_shown(tmp_path: Path, text: str) -> None:
    assert read_board(tmp_path) is None
    (tmp_path / FILE).write_text(text)
    assert read_board(tmp_path) is None
