"""Write a new project."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.files import replace_whole
from fedgsp.core.imports import need
from fedgsp.project.notebook import as_notebook

SITES = 3
Kind = Literal["method", "project", "deployment"]
NOTEBOOK = "afternoon.ipynb"
KINDS: Mapping[str, Sequence[str]] = {
    "method": ("rule.py", "model.py", "test_project.py"),
    "project": ("config.toml", "model.py", "rule.py", "test_project.py", "README.md", NOTEBOOK),
}
"""What each kind has; a deployment is written by `fedgsp deploy`."""


def new(folder: str | Path, kind: Kind = "project") -> Path:
    """Write an editable project into a new folder.

    Args:
        folder: Where to; new, or empty. Its name is the method's.
        kind: "project" (config, model, rule, notebook, test, README), "method" (rule, model and test only), or "deployment" (a
            federation of three sites on this machine; needs the extra `flower`).

    Returns:
        The folder.

    Raises:
        InputError: There is no such kind, or the folder is not empty or cannot be written.
    """
    place = Path(folder)
    if kind == "deployment":
        return _deployment(place)
    if kind not in KINDS:
        raise InputError(f"unknown kind '{kind}': {did_you_mean(kind, [*KINDS, 'deployment'])}")
    name = re.sub(r"[^\w.+-]+", "-", place.resolve().name).strip("-") or "mine"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise InputError(f"{place} is not empty; choose another folder for the project.")
        for file in KINDS[kind]:
            template = files("fedgsp.project") / "template" / file
            text = as_notebook() if file == NOTEBOOK else template.read_text(encoding="utf-8")
            replace_whole(place / file, text.replace("@NAME@", name).encode())
    except OSError as error:
        raise InputError(f"cannot write the project {place}: {error.strerror}.") from error
    return place


def _deployment(place: Path) -> Path:
    """What `fedgsp deploy init DIR --nodes 3` writes."""
    need("flwr", "flower", "a deployment")
    from fedgsp.deploy.layout import Deployment
    from fedgsp.deploy.options import Options, write_from

    where = Deployment(place.resolve(), "localhost:8443", "127.0.0.1:9443", False)
    write_from(Options(SITES, (), None, None, None, None, None, None, None), where)
    return place
