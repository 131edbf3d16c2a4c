"""The page: HTML, styles, scripts and data in one file that needs no network and lets nothing foreign run.

Data goes into a block that browsers never execute, with every character escaped that could end it; scripts make only text
nodes of it; and the page's own policy allows this one script (by its hash) and no connection (a watched page: to its server).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib import resources
from typing import Any

SCRIPTS = (
    "base", "store", "summary", "curves", "readings", "lanes", "stations", "groups", "costs", "clients", "repeat", "live",
    "main",
)  # fmt: skip
STYLES = ("uplot/uPlot.min.css", "style.css", "parts.css", "places.css")


@cache
def _file(name: str) -> str:
    return (resources.files("fedgsp.report") / "page" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """The charting library and our own scripts, in a scope of their own."""
    own = "\n".join(_file(f"js/{name}.js") for name in SCRIPTS)
    licence = _file("uplot/LICENSE").strip()
    return f'/*! uPlot, {licence}\n*/\n{_file("uplot/uPlot.iife.min.js")}\n(() => {{\n"use strict";\n{own}\n}})();\n'


@cache
def style() -> str:
    """All styles."""
    return "\n".join(_file(name) for name in STYLES)


def policy(live: bool) -> str:
    """What the page may do: run its one script, use its one style sheet; nothing else, and ask its own server if it is live."""
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src '{_hash(script())}'; style-src '{_hash(style())}'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def build(data: dict[str, Any], made: str, *, live: bool = False, every: int = 1000) -> str:
    """The page of some data (see `payload`); `made` says when and by what it was made."""
    words = "".join(
        f'<p class="{"caution" if s["kind"] == "caution" else "words-" + html.escape(s["kind"])}">{html.escape(s["text"])}</p>'
        for s in data["summary"]
    )
    parts = {
        "policy": html.escape(policy(live)),
        "title": html.escape(data["title"]),
        "kind": "live" if live else "report",
        "words": words,
        "made": html.escape(made),
        "style": style(),
        "script": script(),
        "data": embedded({**data, "live": live, "every": every}),
    }
    page = _file("index.html")
    pieces = page.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:]))


def embedded(data: Any) -> str:
    """JSON that can stand in a script element: nothing in it can close the element or open a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
