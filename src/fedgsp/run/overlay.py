"""PATH=VALUE texts put in place in a configuration: what `--set` says, and what studies write down of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.run.config import RunConfig, from_dict


def changed(config: RunConfig, sets: Sequence[str] | Mapping[str, Any]) -> RunConfig:
    """The configuration with PATH=VALUE texts, or values by their paths, put in place.

    Raises:
        InputError: A text is not of that form, or there is no such entry.
    """
    if not sets:
        return config
    table = config.as_dict()
    if isinstance(sets, Mapping):
        for path, value in sets.items():
            put(table, path, value)
    else:
        put_all(table, sets)
    return from_dict(table, "the options")


def put_all(table: dict[str, Any], sets: Sequence[str]) -> None:
    """Put PATH=VALUE texts into a configuration's tables."""
    for text in sets:
        path, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"`sets=` wants PATH=VALUE, not '{text}'.")
        put(table, path.strip(), literal(value.strip()))


def put(table: dict[str, Any], path: str, value: Any) -> None:
    """Put one value into a configuration's tables; `path` is such as `method.local.lr`."""
    *folders, name = path.split(".")
    at: Any = table
    for folder in folders:
        at = at.get(folder) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise InputError(f"there is nothing called '{path}' in this configuration.")
    at[name] = value


def literal(text: str) -> Any:
    """A value as TOML has it; what is none is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
