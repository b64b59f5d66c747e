"""The root command: reads the configuration, and passes it to commands as defaults.

    command line --options of `penstock` first--> configuration file --defaults of every command--> flag, variable or file

A value from the file is parsed like a value from the command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from ..config import environment
from ..config.configuration import Commands, Configuration, Option
from ..config.errors import ConfigRefused
from ..config.toml_file import Keys, TomlFile

DEFAULT_FILE = Path("penstock.toml")
CONFIG_VARIABLE = "PENSTOCK_CONFIG"
ROOT_OPTIONS = ("--config", "--log-format", "--log-level")
"""Options of `penstock` itself, before or after the command."""
HELP_OPTIONS = frozenset({"-h", "--help", "--version"})
"""Options that need no configuration."""
_EPILOG = f"{', '.join(ROOT_OPTIONS)}: options of all commands, see penstock --help."


class Root(TyperGroup):
    """A command that passes a configuration file to its commands."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command or group, whose help mentions the options of all commands."""
        found = super().get_command(ctx, cmd_name)
        for _, command in () if found is None else _leaves((cmd_name,), found):
            command.epilog = command.epilog or _EPILOG
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the configuration, then the command line."""
        root_options, rest = split_root_options(args)
        if not ctx.resilient_parsing and rest and HELP_OPTIONS.isdisjoint(rest):
            file = _file(root_options)
            ctx.obj = configuration = self._configuration(file)
            configuration.check()
            environment.set_missing_variables(configuration.file)
            ctx.default_map = self._defaults(configuration)
        with _locating_errors(ctx):
            return super().parse_args(ctx, [*root_options, *rest])

    def _configuration(self, file: TomlFile) -> Configuration:
        """Return the configuration of a file. Only one with settings needs the options of all commands, and their imports."""
        if not file.values:
            return Configuration(file, {})
        from .sections import NAMED_SECTIONS, SECTIONS  # noqa: PLC0415 - as above

        return Configuration(file, commands_of(self), SECTIONS, NAMED_SECTIONS)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _locating_errors(ctx):
            return super().invoke(ctx)

    def _defaults(self, configuration: Configuration) -> dict[str, Any]:
        """Return the defaults of all commands from the file."""
        defaults: dict[str, Any] = {}
        for words, command in _commands(self) if configuration.commands else ():
            inner = defaults
            for word in words:
                inner = inner.setdefault(word, {})
            settings = configuration.settings_of(words)
            inner.update(
                {_name(option): settings[name] for option in command.params if (name := _long(option)) in settings}
            )
        return defaults


def configuration_of(context: typer.Context) -> Configuration:
    """Return the configuration, for a command that reads a table."""
    configuration = context.find_root().obj
    return configuration if isinstance(configuration, Configuration) else Configuration(TomlFile(), {})


def complete_configuration(context: typer.Context) -> Configuration:
    """Return the configuration with the options of all commands, for a command that shows them."""
    return replace(configuration_of(context), commands=commands_of(context.find_root().command))


def forwarded_options(context: typer.Context) -> list[str]:
    """Return the options with which another process uses the same configuration and log format."""
    file = configuration_of(context).file.path
    params = context.find_root().params
    options = [] if file is None else ["--config", str(file.absolute())]
    for option in ("log_format", "log_level"):
        options += [f"--{option.replace('_', '-')}", params[option].value]
    return options


def split_root_options(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of `penstock` itself, and the rest of a command line."""
    root_options: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            rest += [argument, *remaining]
        elif argument in ROOT_OPTIONS:
            root_options += [argument, _next_value(argument, remaining)]
        else:
            (root_options if argument.startswith(tuple(f"{name}=" for name in ROOT_OPTIONS)) else rest).append(argument)
    return root_options, rest


def _next_value(option: str, arguments: Iterator[str]) -> str:
    value = next(arguments, None)
    if value is None:
        raise typer.BadParameter(f"The option {option} needs a value.")
    return value


def _file(options: list[str]) -> TomlFile:
    """Return the file from the command line, the environment, or the working folder."""
    paths = [option.partition("=")[2] for option in options if option.startswith("--config=")]
    paths += [value for option, value in pairwise(options) if option == "--config"]
    path = paths[-1] if paths else os.environ.get(CONFIG_VARIABLE)
    if path:
        return TomlFile.read(Path(path))
    return TomlFile.read(DEFAULT_FILE) if DEFAULT_FILE.is_file() else TomlFile()


@contextmanager
def _locating_errors(root: Any) -> Iterator[None]:
    """Add the place in the file to an error about a value from it."""
    try:
        yield
    except typer.BadParameter as error:
        located = _located(error, root.obj) if root.obj else None
        if located is None:
            raise
        raise located from error


def _located(error: typer.BadParameter, configuration: Configuration) -> ConfigRefused | None:
    """Return an error about the file, if an option's value comes from it."""
    context, option = error.ctx, error.param
    if context is None or option is None or option.name is None:
        return None
    source = context.get_parameter_source(option.name)
    if source is None or source.name != "DEFAULT_MAP":
        return None
    keys_by_option = {setting.name: keys for setting, keys, _ in configuration.values_in_file(_words(context))}
    name = _long(option)
    return ConfigRefused(
        f"{configuration.file.place(keys_by_option[name])}: {name} is invalid: {error.message.rstrip('.')}. Nothing was done. Correct the file."
    )


def _words(context: Any) -> Keys:
    """Return the words of a context's command."""
    return () if context.parent is None else (*_words(context.parent), context.info_name)


def commands_of(root: Any) -> Commands:
    """Return all commands below a group, with their options."""
    return {words: tuple(_options(command)) for words, command in _commands(root)}


def _commands(root: Any) -> Iterator[tuple[Keys, Any]]:
    """Yield the root and all commands below it, with their words."""
    yield (), root
    for name, command in root.commands.items():
        yield from _leaves((name,), command)


def _leaves(words: Keys, command: Any) -> Iterator[tuple[Keys, Any]]:
    """Yield a command, or all commands of a group, with their words."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from _leaves((*words, name), inner)


def _options(command: Any) -> Iterator[Option]:
    """Yield the options of a command that a file may set."""
    for param in command.params:
        name = _long(param)
        if param.param_type_name == "option" and name not in {"help", "config"}:
            yield Option(name, _variable(param), is_flag=param.is_flag, is_list=param.multiple)


def _long(option: Any) -> str:
    return str(max(option.opts, key=len)).removeprefix("--")


def _name(option: Any) -> str:
    return str(option.name)


def _variable(option: Any) -> str | None:
    variable: str | list[str] | None = option.envvar
    return variable[0] if isinstance(variable, list) else variable
