"""Reference pages that follow from the code, so that they cannot fall behind it: names, commands, configuration."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import click
import typer

import fedgsp
from fedgsp.cli.main import build_app
from fedgsp.core.params import FROM_RUN
from fedgsp.methods import METHODS
from fedgsp.parts import PARTS, kinds
from fedgsp.run.config import DataSection, EngineSection, ModelSection, RunSection

ROOMS = {
    "client": "What a client does",
    "server": "What the server does",
    "plan": "Who trains with whom",
    "prepare": "What happens once before round 1",
    "models": "What is trained",
    "evaluate": "How good a model is",
    "engine": "Where chains run",
}


def write(folder: Path) -> None:
    """Write all pages anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "commands.md").write_text(commands())
    (folder / "configuration.md").write_text(configuration())
    (folder / "api.md").write_text(api("fedgsp", "fedgsp: what you call", fedgsp.__all__))
    for room, title in ROOMS.items():
        module = importlib.import_module(f"fedgsp.{room}")
        (folder / f"api-{room}.md").write_text(api(module.__name__, f"fedgsp.{room}: {title.lower()}", module.__all__))


def api(module: str, title: str, names: list[str]) -> str:
    """A page of names, each with its signature and docstring."""
    lines = [f"# {title}", "", inspect.cleandoc(importlib.import_module(module).__doc__ or ""), ""]
    for name in sorted(names, key=str.lower):
        value = getattr(importlib.import_module(module), name)
        if name.startswith("__"):
            continue
        lines += ["```{eval-rst}", *_directive(module, name, value), "```", ""]
    return "\n".join(lines)


def _directive(module: str, name: str, value: Any) -> Iterator[str]:
    again = ["   :no-index:"] if module != "fedgsp" and name in fedgsp.__all__ else []
    if inspect.ismodule(value):  # a room that can be called, by the name of a command
        yield from (
            f".. py:function:: {module}.{name}(...)",
            "",
            f"   The function below, by the name of the room `{name}`.",
            "",
        )
        yield f".. autofunction:: {value.function_at}"
    elif inspect.isclass(value):
        yield from (f".. autoclass:: {module}.{name}", *again, "   :members:")
        if not issubclass(value, Exception):
            yield "   :show-inheritance:"
            yield from _from_bases(value)
    elif callable(value):
        yield from (f".. autofunction:: {module}.{name}", *again)
    else:
        yield from (f".. py:data:: {module}.{name}", *again, f"   :type: {type(value).__name__}")


def _from_bases(cls: type) -> Iterator[str]:
    """Arguments that the docstrings of its bases speak of."""
    told, own = arguments(cls), _said(cls.__doc__)
    inherited = [name for name in _parameters(cls) if name in told and name not in own]
    if inherited:
        yield from ("", "   Arguments that its bases have, too:", "")
        yield from (f"   - ``{name}``: {told[name]}" for name in inherited)


def _parameters(value: Any) -> list[str]:
    """Names of what a class or a function takes."""
    try:
        taken = inspect.signature(value).parameters.values()
    except ValueError:  # written in C
        return []
    return [one.name for one in taken if one.name not in ("args", "kwargs") and not one.name.startswith("_")]


def commands() -> str:
    """The command line: every command with its arguments and options."""
    root = typer.main.get_command(build_app())
    lines = ["# Command line", "", "Every command, option and default, as `--help` shows them.", ""]
    for path, command in _walk(root, "fedgsp"):
        lines += [f"## `{path}`", "", _plain(command.help or ""), ""]
        rows = [_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        if rows:
            lines += ["| argument or option | meaning | default |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}")


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{(parameter.metavar or parameter.name or '').upper()}`"
    else:
        value = "" if isinstance(parameter.type, type(click.BOOL)) else f" {parameter.type.name.upper()}"
        name = ", ".join(f"`{option}{value}`" for option in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    said = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
    return f"| {name} | {_cell(getattr(parameter, 'help', '') or '')} | {said} |"


def configuration() -> str:
    """Every key of a configuration file with its type, default and meaning."""
    lines = [
        "# Configuration",
        "",
        "A run is described by a TOML file. Every key has a default, so a file says only what differs.",
        "`fedgsp run my.toml --set run.rounds=20` changes a key on the command line. A run directory has its whole",
        "configuration in `config.toml`.",
        "",
    ]
    for name, section in {"run": RunSection, "data": DataSection, "model": ModelSection, "engine": EngineSection}.items():
        lines += [f"## `[{name}]`", "", _sentence(section), "", *_fields(section), ""]
    lines += ["## `[method]`", "", "A name, or a table of parts. Names:", ""]
    lines += ["| name | what it is |", "| --- | --- |"]
    lines += [f"| `{name}` | {_cell(_about(entry))} |" for name, entry in METHODS.items()]
    lines += ["", 'A part is a table with its `kind` and its parameters: `local = {kind = "prox", lr = 0.03, mu = 0.1}`.', ""]
    for role in PARTS:
        lines += [f"### `method` parts: {role}", ""]
        for kind, cls in kinds(role).items():
            lines += [f"**`{kind}`** ({cls.__module__}.{cls.__qualname__}). {cls.summary()}", "", *_fields(cls), ""]
    return "\n".join(lines)


def _about(entry: Any) -> str:
    return str(getattr(entry, "summary", "") or getattr(entry, "about", "") or "")


def _fields(cls: type) -> list[str]:
    if not is_dataclass(cls):
        return []
    told = arguments(cls)
    hints = typing.get_type_hints(cls)
    rows = [
        f"| `{field.name}` | {_cell(_type(hints.get(field.name)))} | {_default(field)} | {_cell(told.get(field.name, ''))} |"
        for field in fields(cls)
        if not field.metadata.get(FROM_RUN)
    ]
    return ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows] if rows else []


def arguments(value: Any) -> dict[str, str]:
    """What the docstrings of a function, or of a class and its bases, say of each argument or field."""
    told: dict[str, str] = {}
    for each in reversed(value.__mro__) if inspect.isclass(value) else (value,):
        told |= _said(each.__doc__)
    return told


def _said(docstring: str | None) -> dict[str, str]:
    text = inspect.cleandoc(docstring or "")
    blocks = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, flags=re.MULTILINE)
    found = [re.findall(r"^    \**(\w+): (.*(?:\n        .*)*)", block, flags=re.MULTILINE) for block in blocks]
    return {name: " ".join(meaning.split()) for pairs in found for name, meaning in pairs}


def undocumented() -> dict[str, list[str]]:
    """The arguments of public names that no docstring speaks of."""
    lacking = {}
    for module in ("fedgsp", *(f"fedgsp.{room}" for room in ROOMS)):
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if inspect.ismodule(value):  # a room that can be called
                place, _, called = value.function_at.rpartition(".")
                value = getattr(importlib.import_module(place), called)
            if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
                lacking[f"{module}.{name}"] = [one for one in _parameters(value) if one not in arguments(value)]
    return {name: names for name, names in lacking.items() if names}


def _type(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(f'"{choice}"' for choice in typing.get_args(hint))
    names = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "nothing"}
    parts = typing.get_args(hint) if typing.get_origin(hint) is not tuple else ()
    if parts:
        return " or ".join(_type(part) for part in parts if part is not type(None))
    if typing.get_origin(hint) is tuple:
        return "list"
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return "" if field.default is None else f"`{_cell(_literal(field.default))}`"
    if field.default_factory is not MISSING:
        return f"`{_cell(_literal(field.default_factory()))}`"
    return "(needed)"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    return getattr(type(value), "kind", "") or repr(value)


def _sentence(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]


def _plain(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).replace("\b", "").split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
