"""`penstock` before any of its commands: which configuration holds, and how it is laid below flags and variables.

    the command line --options of all commands to the front--> the file they name --as defaults of every command--> flag, variable, file

Commands know nothing of it: to them a value of the file is one that was given.
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
"""Options of `penstock` itself, which may stand before a command or behind it."""
_EPILOG = f"{', '.join(EVERYWHERE)}: options of all commands, see penstock --help."


class Root(TyperGroup):
    """The command `penstock`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the configuration that the command line or the environment names, then the command line."""
        first, rest = hoisted(args)
        for _, command in _commands(self):
            command.epilog = command.epilog or _EPILOG
        if not ctx.resilient_parsing and rest and "--help" not in rest:
            ctx.obj = configuration = Configuration(_file(first), commands_of(self), SECTIONS)
            configuration.check()
            environment.fill(configuration.file)
            ctx.default_map = self._defaults(configuration)
        with _telling_of_file(ctx):
            return super().parse_args(ctx, [*first, *rest])

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _telling_of_file(ctx):
            return super().invoke(ctx)

    def _defaults(self, configuration: Configuration) -> dict[str, Any]:
        """Return what every command is given by the file, as the command line wants it."""
        defaults: dict[str, Any] = {}
        for words, command in _commands(self):
            inner = defaults
            for word in words:
                inner = inner.setdefault(word, {})
            given = configuration.given(words)
            inner.update({_name(one): given[name] for one in command.params if (name := _long(one)) in given})
        return defaults


def configuration_of(context: typer.Context) -> Configuration:
    """Return what the configuration says, for a command that reads a table of it."""
    found = context.find_root().obj
    return found if isinstance(found, Configuration) else Configuration(TomlFile(), {})


def handed_on(context: typer.Context) -> list[str]:
    """Return the options by which another process of `penstock` goes by the same configuration, and tells in the same way."""
    file = configuration_of(context).file.path
    given = context.find_root().params
    options = [] if file is None else ["--config", str(file.absolute())]
    for option in ("log_format", "log_level"):
        options += [f"--{option.replace('_', '-')}", given[option].value]
    return options


def hoisted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of all commands, wherever they stand, and the rest of a command line."""
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
    """Return the file that the command line names, or the environment, or that lies in the working folder."""
    given = [option.partition("=")[2] for option in options if option.startswith("--config=")]
    given += [value for option, value in pairwise(options) if option == "--config"]
    named = given[-1] if given else os.environ.get(CONFIG_VARIABLE)
    if named:
        return TomlFile.read(Path(named))
    return TomlFile.read(DEFAULT_FILE) if DEFAULT_FILE.is_file() else TomlFile()


@contextmanager
def _telling_of_file(root: Any) -> Iterator[None]:
    """Where a value of the file is not what an option takes, say where it stands."""
    try:
        yield
    except typer.BadParameter as error:
        told = _told_of_file(error, root.obj) if root.obj else None
        if told is None:
            raise
        raise told from error


def _told_of_file(error: typer.BadParameter, configuration: Configuration) -> ConfigRefused | None:
    """Return what is wrong with the file, if an option's value is from there."""
    context, option = error.ctx, error.param
    if context is None or option is None or option.name is None:
        return None
    source = context.get_parameter_source(option.name)
    if source is None or source.name != "DEFAULT_MAP":
        return None
    places = {known.name: keys for known, keys, _ in configuration.values(_words(context))}
    name = _long(option)
    return ConfigRefused(
        f"{configuration.file.place(places[name])}: {name} cannot be this: {error.message.rstrip('.')}. Nothing was done; mend it there."
    )


def _words(context: Any) -> Keys:
    """Return the words by which the command of a context was called."""
    return () if context.parent is None else (*_words(context.parent), context.info_name)


def commands_of(root: Any) -> Commands:
    """Return what commands there are below one, with their options."""
    return {words: tuple(_options(command)) for words, command in _commands(root)}


def _commands(group: Any, words: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Give a group and all commands below it, with the words that they are called by."""
    if not words:
        yield words, group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


def _options(command: Any) -> Iterator[Option]:
    """Give the options of a command that a file may give."""
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
