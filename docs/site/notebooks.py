"""Tutorials: the notebooks of examples/ as pages of the site, with the outputs that are in them.

`python -m docs.site.notebooks [NAME ...]` runs notebooks in a real kernel and writes their outputs into them;
tests/test_tutorials.py runs the cells again and compares. By hand rather than by myst-nb or nbsphinx: these bring a dozen
packages and pandoc, or a database of executions, for what is a page of code here, and the site builds without a kernel.
"""

from __future__ import annotations

import base64
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BOOKS = ("first_steps", "afternoon", "when_to_use", "groups", "transformer_lora")


def write(folder: Path) -> None:
    """Write a page for each notebook anew, pictures beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in BOOKS:
        (folder / f"{name}.md").write_text(page(name, read(name), folder))


def read(name: str) -> Any:
    """A notebook of examples/."""
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]


def page(name: str, book: Any, folder: Path) -> str:
    """A notebook as Markdown."""
    blocks: list[str] = []
    for number, cell in enumerate(book.cells):
        if cell.cell_type == "markdown":
            blocks.append(_links(cell.source))
        else:
            blocks.append(f"```python\n{cell.source}\n```")
            blocks += _outputs(cell.outputs, folder, f"{name}-{number}")
    first, *rest = blocks
    where = f"*This page is the notebook [examples/{name}.ipynb](../../examples/{name}.ipynb) with its outputs.*"
    return "\n\n".join([first, where, *rest]) + "\n"


def _outputs(outputs: list[Any], folder: Path, name: str) -> Iterator[str]:
    for output in outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            yield f"```text\n{output.text.rstrip()}\n```"
        elif "image/png" in data:
            picture = folder / f"{name}.png"
            picture.write_bytes(base64.b64decode(data["image/png"]))
            yield f"![{_first_line(data)}]({picture.name})"
        elif "text/html" in data:
            html = re.sub(r"\n\s*\n", "\n", data["text/html"])  # an empty line would end it
            yield f'```{{raw}} html\n<div class="output">{html}</div>\n```'
        elif "text/plain" in data:
            yield f"```text\n{data['text/plain']}\n```"


def _first_line(data: dict[str, str]) -> str:
    return data.get("text/plain", "a picture").partition("\n")[0].strip("<>").replace("[", "(").replace("]", ")")


def _links(text: str) -> str:
    """Links as they are from docs/tutorials instead of from examples."""
    text = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text)
    return text.replace("](../docs/", "](../").replace("](../results/", "](../../results/")


def execute(name: str) -> None:
    """Run a notebook in a kernel of its own, in an empty folder, and keep its outputs without times."""
    from nbclient import NotebookClient

    book = read(name)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = kept_outputs(cell.outputs)
    book.metadata = {"kernelspec": book.metadata["kernelspec"]}
    nbformat.write(book, EXAMPLES / f"{name}.ipynb")  # type: ignore[no-untyped-call]


def kept_outputs(outputs: list[Any]) -> list[Any]:
    """Without warnings and bars; what was printed bit by bit in one piece."""
    kept: list[Any] = []
    for output in outputs:
        if output.get("name") == "stderr" or _bar(output):
            continue
        if output.output_type == "stream" and kept and kept[-1].output_type == "stream":
            kept[-1].text += output.text
        else:
            kept.append(_plain(output))
    return kept


def _bar(output: Any) -> bool:
    return "<progress" in output.get("data", {}).get("text/html", "")


def _plain(output: Any) -> Any:
    """Without what is a browser's business, and with pictures of few colours, which are a third as large."""
    output.get("metadata", {}).clear()
    if "image/png" in output.get("data", {}):
        small = io.BytesIO()
        with Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))) as picture:
            picture.convert("RGB").quantize(48).save(small, "png", optimize=True)
        output.data["image/png"] = base64.b64encode(small.getvalue()).decode()
    return output


if __name__ == "__main__":
    for one in sys.argv[1:] or BOOKS:
        execute(one)
