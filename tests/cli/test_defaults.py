"""Options have one meaning and one default, in Python, in files and on the command line."""

import inspect
from functools import reduce
from typing import Any

import click
import pytest
import typer

import fedgsp
from fedgsp.cli import run as commands
from fedgsp.cli.main import build_app
from fedgsp.cli.options import OPTIONS, build_config
from fedgsp.run.config import RunConfig

PYTHON = inspect.signature(fedgsp.train).parameters
TYPED = inspect.signature(commands.run).parameters
OF_THE_METHOD = {name for name, path in OPTIONS.items() if path.startswith("method.")}


def default_of(path: str) -> Any:
    return reduce(getattr, path.split("."), RunConfig())


def commands_of(group: click.Command, words: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    if not isinstance(group, click.Group):
        return [(" ".join(words), group)]
    return [found for name, one in group.commands.items() for found in commands_of(one, (*words, name))]


COMMANDS = commands_of(typer.main.get_command(build_app()))


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - OF_THE_METHOD))
def test_an_option_has_the_default_of_the_configuration(name: str) -> None:
    assert TYPED[name].default is None, "not given: the configuration's"
    if name in PYTHON:
        assert PYTHON[name].default == default_of(OPTIONS[name])


@pytest.mark.parametrize("name", sorted(OF_THE_METHOD))
def test_an_option_of_the_method_has_the_default_of_the_method(name: str) -> None:
    assert TYPED[name].default is None
    assert name not in PYTHON or PYTHON[name].default is None


def test_python_and_the_command_line_have_the_same_options() -> None:
    only_python = {"method", "out", "task", "callbacks", "progress"}
    assert PYTHON.keys() - only_python <= OPTIONS.keys() <= TYPED.keys()


def test_nothing_given_is_what_train_does() -> None:
    assert build_config(None, {}) == RunConfig()
    assert RunConfig().method.name == PYTHON["method"].default


def test_an_option_says_the_same_everywhere() -> None:
    """Where a name means one thing, its type is the same too."""
    for name in ("--seeds", "--fleet", "--profile", "--workers", "--rounds", "--json", "--quiet"):
        kinds = {
            (option.type.name, option.multiple, option.is_flag)
            for _, command in COMMANDS
            for option in command.params
            if isinstance(option, click.Option) and name in option.opts
        }
        assert len(kinds) == 1, (name, kinds)


@pytest.mark.parametrize(("command", "options"), [(name, one.params) for name, one in COMMANDS])
def test_help_texts_are_sentences(command: str, options: list[click.Parameter]) -> None:
    for option in options:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help.endswith((".", "...")), (option.name, option.help)
            assert option.help[0].isupper(), (option.name, option.help)
