"""How the documentation site is built: `make docs`. The source folder is the repository, so that pages can link to results."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from docs.site import notebooks, reference  # noqa: E402
from fedgsp import __version__  # noqa: E402

project = "fedgsp"
author = "the fedgsp maintainers"
copyright = "2026, the fedgsp maintainers"  # noqa: A001 - Sphinx's own name
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "results/*.md",
    "results/**/*.md",
    "examples/*.md",
    "examples/**/*.md",
    "[!R]*.md",  # all but the README, which is the front door of the repository as docs/index.md is of the site
]
exclude_patterns = ["docs/site/**", "build/**", ".*"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
toc_object_entries = False
suppress_warnings = ["ref.python"]  # a name that two rooms export has two targets, either of which will do

html_theme = "furo"
html_title = f"fedgsp {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["front"]  # index.html, which leads to docs/index.html
html_copy_source = False
html_show_sphinx = False


def setup(app: object) -> None:
    """Write the pages that follow from the code and from the notebooks before Sphinx looks for pages."""
    reference.write(ROOT / "docs" / "reference")
    notebooks.write(ROOT / "docs" / "tutorials")
