"""The root command: reads the configuration, and passes it to commands as defaults.

    command line --options of all commands to the front--> configuration file --as defaults of every command--> flag, variable, file

Commands read a value of the file like one from the command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from ..config import environment
from ..config.configuration import Commands, Configuration, Option
from ..config.errors import ConfigRefused
from ..config.toml_file import Keys, TomlFile
from .sections import SECTIONS

DEFAULT_FILE = Path("penstock.toml")
CONFIG_VARIABLE = "PENSTOCK_CONFIG"
EVERYWHERE = ("--config", "--log-format", "--log-level")
"""Options of `penstock` itself, which may be given before or after a command."""
_EPILOG = f"{', '.join(EVERYWHERE)}: options of all commands, see penstock --help."


class Root(TyperGroup):
    """The command `penstock`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the configuration, then the command line."""
        first, rest = hoisted(args)
        for _, command in _commands(self):
            command.epilog = command.epilog or _EPILOG
        if not ctx.resilient_parsing and rest and "--help" not in rest:
            ctx.obj = configuration = Configuration(_file(first), commands_of(self), SECTIONS)
            configuration.check()
            environment.fill(configuration.file)
            ctx.default_map = self._defaults(configuration)
        with _locating_errors(ctx):
            return super().parse_args(ctx, [*first, *rest])

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _locating_errors(ctx):
            return super().invoke(ctx)

    def _defaults(self, configuration: Configuration) -> dict[str, Any]:
        """Return the defaults of all commands from the file."""
        defaults: dict[str, Any] = {}
        for words, command in _commands(self):
            inner = defaults
            for word in words:
                inner = inner.setdefault(word, {})
            given = configuration.given(words)
            inner.update({_name(one): given[name] for one in command.params if (name := _long(one)) in given})
        return defaults


def configuration_of(context: typer.Context) -> Configuration:
    """Return the configuration, for a command that reads a table."""
    found = context.find_root().obj
    return found if isinstance(found, Configuration) else Configuration(TomlFile(), {})


def handed_on(context: typer.Context) -> list[str]:
    """Return the options with which another process uses the same configuration and log format."""
    file = configuration_of(context).file.path
    given = context.find_root().params
    options = [] if file is None else ["--config", str(file.absolute())]
    for option in ("log_format", "log_level"):
        options += [f"--{option.replace('_', '-')}", given[option].value]
    return options


def hoisted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of `penstock` itself, and the rest of a command line."""
    first: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            rest += [argument, *left]
        elif argument in EVERYWHERE:
            first += [argument, *_one(left)]
        else:
            (first if argument.startswith(tuple(f"{name}=" for name in EVERYWHERE)) else rest).append(argument)
    return first, rest


def _one(left: Iterator[str]) -> list[str]:
    return [value for value in (next(left, None),) if value is not None]


def _file(options: list[str]) -> TomlFile:
    """Return the file from the command line, the environment, or the working folder."""
    given = [option.partition("=")[2] for option in options if option.startswith("--config=")]
    given += [value for option, value in pairwise(options) if option == "--config"]
    named = given[-1] if given else os.environ.get(CONFIG_VARIABLE)
    if named:
        return TomlFile.read(Path(named))
    return TomlFile.read(DEFAULT_FILE) if DEFAULT_FILE.is_file() else TomlFile()


@contextmanager
def _locating_errors(root: Any) -> Iterator[None]:
    """Add the place in the file to an error about a value from it."""
    try:
        yield
    except typer.BadParameter as error:
        told = _located(error, root.obj) if root.obj else None
        if told is None:
            raise
        raise told from error


def _located(error: typer.BadParameter, configuration: Configuration) -> ConfigRefused | None:
    """Return an error about the file, if an option's value comes from it."""
    context, option = error.ctx, error.param
    if context is None or option is None or option.name is None:
        return None
    source = context.get_parameter_source(option.name)
    if source is None or source.name != "DEFAULT_MAP":
        return None
    places = {known.name: keys for known, keys, _ in configuration.values(_words(context))}
    name = _long(option)
    return ConfigRefused(
        f"{configuration.file.place(places[name])}: {name} is invalid: {error.message.rstrip('.')}. Nothing was done. Correct the file."
    )


def _words(context: Any) -> Keys:
    """Return the words of a context's command."""
    return () if context.parent is None else (*_words(context.parent), context.info_name)


def commands_of(root: Any) -> Commands:
    """Return all commands below a group, with their options."""
    return {words: tuple(_options(command)) for words, command in _commands(root)}


def _commands(group: Any, words: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield a group and all commands below it, with their words."""
    if not words:
        yield words, group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


def _options(command: Any) -> Iterator[Option]:
    """Yield the options of a command that a file may set."""
    for one in command.params:
        name = _long(one)
        if one.param_type_name == "option" and name not in {"help", "config"}:
            yield Option(name, _variable(one), is_flag=one.is_flag, is_list=one.multiple)


def _long(option: Any) -> str:
    return str(max(option.opts, key=len)).removeprefix("--")


def _name(option: Any) -> str:
    return str(option.name)


def _variable(option: Any) -> str | None:
    found: str | list[str] | None = option.envvar
    return found[0] if isinstance(found, list) else found
