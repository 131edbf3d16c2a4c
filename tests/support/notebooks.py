"""Run a notebook's cells in this process, one after the other: as a kernel would, but in a second less and without one."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from typing import Any


def run_cells(cells: list[Any], name: str) -> list[str]:
    """What each code cell prints, and how the value of its last line shows itself.

    Args:
        cells: Cells of a notebook.
        name: What errors call the notebook.

    Returns:
        A text for each code cell.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    said = []
    for number, cell in enumerate(cell for cell in cells if cell.cell_type == "code"):
        code = ast.parse(cell.source, f"{name}, code cell {number + 1}")
        last = code.body.pop() if code.body and isinstance(code.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, f"{name}, code cell {number + 1}", "exec"), space)
            value = None
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{name}, code cell {number + 1}", "eval"), space)
        said.append(out.getvalue() + ("" if value is None else f"{value!r}"))
    return said


def words(text: str) -> str:
    """Without numbers, which are another machine's, and without what depends on them: spaces, marks, places in memory."""
    return re.sub(r"[^a-z]+", " ", re.sub(r" at 0x\w+", "", text.lower())).strip()


def stored_texts(cells: list[Any]) -> list[str]:
    """The same of the outputs that are stored in a notebook."""
    return ["".join(_text(output) for output in cell.outputs) for cell in cells if cell.cell_type == "code"]


def _text(output: Any) -> str:
    return str(output.text if output.output_type == "stream" else output.data["text/plain"])
