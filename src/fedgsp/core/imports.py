"""Things of the user's own, named `package.module:attribute`."""

from __future__ import annotations

import importlib
from typing import Any

from fedgsp.core.blame import refusal
from fedgsp.core.errors import InputError


def import_named(text: str, what: str) -> Any:
    """The object that `package.module:attribute` names; `what` begins the sentence if it cannot be had."""
    module, _, attribute = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:  # the user's module may fail in any way
        raise refusal(InputError, f"{what} '{text}'", error) from error
    return found
