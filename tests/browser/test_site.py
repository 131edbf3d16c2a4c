"""The documentation site: built without a warning, every public name in it, no broken link, and looked at in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import fedgsp
from tests.browser.conftest import OpenTab

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The site, as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", "docs/site", ".", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    yield out
    shutil.rmtree(out)


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what leads somewhere and what can be led to."""
        given = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := given.get(name))]
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}


def test_no_link_is_broken(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            lost = parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            if lost or not target.exists():
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 30
    assert broken == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]+)"', path.read_text())
        assert fetched == [], path


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = Page(site / "docs" / "reference" / "api.html")
    names = [name for name in fedgsp.__all__ if not name.startswith("__")]
    assert [name for name in names if f"fedgsp.{name}" not in page.anchors] == []
    assert "rounds" in (site / "docs" / "reference" / "api.html").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", ["docs/index", "docs/tutorials/first_steps", "docs/reference/configuration", "results/README"])
def test_pages_fit_the_window_and_say_nothing_on_the_console(
    site: Path, open_tab: OpenTab, scheme: str, width: int, name: str
) -> None:
    tab = open_tab((site / f"{name}.html").as_uri(), width=width, scheme=scheme, wait=False)
    tab.page.wait_for_selector("h1")
    assert tab.trouble.messages == []
    assert all(request.startswith("file:") for request in tab.trouble.requests)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_search_works_without_a_network(site: Path, open_tab: OpenTab) -> None:
    tab = open_tab((site / "search.html").as_uri() + "?q=replay", wait=False)
    tab.page.wait_for_selector("ul.search li a", timeout=300_000)
    assert tab.page.locator("ul.search li").count() > 2
