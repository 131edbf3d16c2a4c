"""A real browser (the system's chromium), driven by playwright, in which every console error and every request is a failure."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedgsp.report.build import read_runs, write_report

NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Trouble:
    """What a page should not do."""

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@dataclass
class Tab:
    """An open page and what it did."""

    page: Any
    trouble: Trouble


OpenTab = Callable[..., Tab]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; `make test-all` installs it."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_tab(browser: Any) -> Iterator[OpenTab]:
    """Open an address; pages from disk have no network at all."""
    contexts = []

    def open_(address: str, *, width: int = 1200, height: int = 900, scheme: str = "light", wait: bool = True) -> Tab:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            offline=address.startswith("file:"),
            bypass_csp=False,
        )
        contexts.append(context)
        page, trouble = context.new_page(), Trouble()
        page.on("console", lambda message: trouble.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: trouble.messages.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: trouble.requests.append(request.url))
        page.goto(address)
        if wait:
            page.wait_for_selector("html[data-ready=yes]", timeout=300_000)
        return Tab(page, trouble)

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., str]:
    """Write the report of some runs; gives its address."""

    def write(*runs: Path) -> str:
        return write_report(read_runs(list(runs)), tmp_path / "report.html").as_uri()

    return write
