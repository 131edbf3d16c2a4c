"""Lines of pages that are read in an editor, too: none of prose is longer than an editor is wide, and long lists are lists."""

from __future__ import annotations

import re
import textwrap

WIDTH = 118
ITEMS = 4
"""From so many things on, a list within a sentence becomes a list of lines."""


def folded(page: str) -> str:
    """A Markdown page with its prose in short lines; tables, headings and pictures stay as they are.

    Args:
        page: A page whose paragraphs are one line each.

    Returns:
        The page as it is to be written.

    Example:
        >>> print(folded("Above the noise: a by 1; b by 2; c by 3; d by 4. The others are not."))
        Above the noise:
        <BLANKLINE>
        - a by 1
        - b by 2
        - c by 3
        - d by 4
        <BLANKLINE>
        The others are not.
    """
    return "\n".join(_folded(line) for line in page.split("\n"))


def _folded(line: str) -> str:
    if line.startswith(("|", "#", "!")):
        return line
    start, colon, rest = line.rpartition(": ")
    things, stop, end = rest.partition(". ")
    items = things.rstrip(".").split("; ")
    if colon and not line.startswith("- ") and len(items) >= ITEMS:
        blocks = [_wrapped(f"{start}:"), "\n".join(_wrapped(f"- {item}") for item in items), *([_wrapped(end)] if stop else [])]
        return "\n\n".join(blocks)
    return _wrapped(line)


def _wrapped(line: str) -> str:
    """No line may begin with what Markdown takes for a list, a heading or a quotation."""
    held = re.sub(r"(?<=\S) (?=(?:[-+*#>]|\d+[.)]) )", "\0", line)
    indent = "  " if line.startswith("- ") else ""
    lines = textwrap.wrap(held, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")
