"""The root command: reads the configuration, and passes it to commands as defaults.

    command line --options of `penstock` first--> configuration file --defaults of every command--> flag, variable or file

A value from the file is parsed like a value from the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from ....processors import PenstockError
from ..config import Commands, ConfigRefused, Configuration, Keys, Option, TomlFile, configuration_of, environment
from .usage_hints import command_named, hint_of

DEFAULT_FILE = Path("penstock.toml")
CONFIG_VARIABLE = "PENSTOCK_CONFIG"
ROOT_OPTIONS = ("--config", "--log-format", "--log-level")
"""Options of `penstock` itself, before or after the command."""
HELP_OPTIONS = frozenset({"-h", "--help", "--version"})
"""Options that need no configuration."""
_WORDS_KEY = "penstock.words"
"""The key in the metadata of a context for the words of the command line."""
_UNSET_KEY = "penstock.unset"
"""The key in the metadata of a context for the reasons why variables of the configuration are not set."""
UsageError: Any = typer.BadParameter.__mro__[1]
"""The errors of the parser; typer exports only some of them."""
EPILOG = f"{', '.join(ROOT_OPTIONS)}: options of all commands, see penstock --help."
"""The last line of the help of each command."""


class Root(TyperGroup):
    """A command that passes a configuration file to its commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the configuration, then the command line."""
        root_options, rest = split_root_options(args)
        if not ctx.resilient_parsing and rest and HELP_OPTIONS.isdisjoint(rest):
            ctx.obj = configuration = self._configuration(_file(root_options), rest)
            ctx.meta[_UNSET_KEY] = environment.set_missing_variables(configuration.file)
            _open_hdfs(configuration)
            ctx.default_map = self._defaults(configuration)
        ctx.meta[_WORDS_KEY] = rest
        with _locating_errors(ctx):
            return super().parse_args(ctx, [*root_options, *rest])

    def _configuration(self, file: TomlFile, arguments: Sequence[str]) -> Configuration:
        """Return the configuration of a file, checked. Only one with settings needs options of commands, and their imports."""
        if not file.values:
            return Configuration(file, {})
        from ..options import NAMED_SECTIONS, SECTIONS  # noqa: PLC0415 - as above

        configuration = Configuration(file, self.named_commands(file, arguments), SECTIONS, NAMED_SECTIONS)
        try:
            configuration.check()
        except ConfigRefused:  # maybe by lack of a command that has the setting
            configuration = replace(configuration, commands=commands_of(self))
            configuration.check()
        return configuration

    def named_commands(self, file: TomlFile, arguments: Sequence[str]) -> Commands:  # noqa: ARG002 - all
        """Return the commands that a command line and a file name, at least; by default, all."""
        return commands_of(self)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _locating_errors(ctx):
            return super().invoke(ctx)

    def _defaults(self, configuration: Configuration) -> dict[str, Any]:
        """Return the defaults of all commands from the file."""
        defaults: dict[str, Any] = {}
        names = {words[0] for words in configuration.commands if words}
        for words, command in _commands(self, names) if configuration.commands else ():
            inner = defaults
            for word in words:
                inner = inner.setdefault(word, {})
            settings = configuration.settings_of(words)
            inner.update(
                {_name(option): settings[name] for option in command.params if (name := _long(option)) in settings}
            )
        return defaults


def _open_hdfs(configuration: Configuration) -> None:
    """Set the variables with which this process and its children open HDFS, if the file has a table for it."""
    if "hdfs" not in configuration.file.values:
        return
    from ..config import set_variables  # noqa: PLC0415 - rarely needed

    set_variables(configuration)


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


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option is on the command line, and not only in the configuration or a variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def given_options(context: typer.Context, *, without: Collection[str] = ()) -> list[str]:
    """Return the options of a command line as words, for another process with the same command.

    It has the configuration by `forwarded_options`, and the variables of this process.

    Args:
        context: the command.
        without: the parameters of options that are left out.
    """
    given = (
        (f"--{_long(option)}", context.params[_name(option)])
        for option in context.command.params
        if option.param_type_name == "option" and _name(option) not in without and is_given(context, _name(option))
    )
    values = ((name, each) for name, value in given for each in (value if isinstance(value, list | tuple) else [value]))
    return [name if value is True else f"{name}={value}" for name, value in values]


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
    """Add the place in the file to an error about a value from it or a variable, and a hint to the parser's other errors."""
    try:
        yield
    except PenstockError as error:
        unset = root.meta.get(_UNSET_KEY, {})
        reasons = [reason for name, reason in unset.items() if re.search(rf"\b{re.escape(name)}\b", str(error))]
        for reason in reasons:
            error.add(reason)
        raise
    except UsageError as error:
        located = _located(error, root.obj) if root.obj and isinstance(error, typer.BadParameter) else None
        if located is not None:
            raise located from error
        group = error.ctx.command if error.ctx is not None else root.command
        _add_hint(error, group, root.meta.get(_WORDS_KEY, ()))
        raise


def _add_hint(error: Any, group: Any, words: list[str]) -> None:
    """Append the command line that was probably intended to the message of a parser's error."""
    text = error.format_message()
    names = {" ".join(words) for words, _ in _commands(group, group.commands)} if hasattr(group, "commands") else ()
    arguments = [param.name for param in group.params if param.param_type_name == "argument"]
    hint = hint_of(text, words, arguments)
    message = (error.message or "").removeprefix("Value error, ")  # a term of the library that parses values
    error.message = command_named(text, names) or (message + hint).strip()


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


def commands_of(root: Any, names: Collection[str] | None = None) -> Commands:
    """Return the root and commands below it, with their options.

    Args:
        root: the command `penstock`.
        names: the names of commands and groups; None for all.
    """
    return {words: options_of(command) for words, command in _commands(root, root.commands if names is None else names)}


def _commands(root: Any, names: Collection[str]) -> Iterator[tuple[Keys, Any]]:
    """Yield the root and the commands of these names, with their words."""
    yield (), root
    for name in root.commands:
        if name in names:
            yield from leaves((name,), root.commands[name])


def leaves(words: Keys, command: Any) -> Iterator[tuple[Keys, Any]]:
    """Yield a command, or all commands of a group, with their words."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from leaves((*words, name), inner)


def options_of(command: Any) -> tuple[Option, ...]:
    """Return the options of a command that a file may set."""
    named = [(_long(param), param) for param in command.params if param.param_type_name == "option"]
    return tuple(
        Option(name, _variable(param), is_flag=param.is_flag, is_list=param.multiple)
        for name, param in named
        if name not in {"help", "config"}
    )


def _long(option: Any) -> str:
    return str(max(option.opts, key=len)).removeprefix("--")


def _name(option: Any) -> str:
    return str(option.name)


def _variable(option: Any) -> str | None:
    variable: str | list[str] | None = option.envvar
    return variable[0] if isinstance(variable, list) else variable
