"""The names of classes along an axis, wherever classes are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_NAMES = 40
LONGEST = 18


def name_classes(axes: Any, along: str, names: Sequence[str], count: int) -> None:
    """Put the names of `count` classes along the axis "x" or "y", if they have some and there is room."""
    if len(names) != count or not 0 < count <= MOST_NAMES:
        return
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
    if along == "x":
        slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if count > 4 else {}
        axes.set_xticks(range(count), short, fontsize="small", **slanted)
    else:
        axes.set_yticks(range(count), short, fontsize="small")


def axis_word(classes: int, bins: int) -> str:
    """What stands beside the axis: classes, or the parts that targets of a regression are put into."""
    return "class" if classes else "tenth of the targets" if bins == 10 else f"part of the targets, of {bins}"
