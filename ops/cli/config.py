"""`penstock config`: shows the settings and their sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import typer

from ..config import environment, kafka_settings
from ..config.configuration import Configuration
from ..config.secrets import without_secrets
from ..config.variables import VariableMissing, resolved, variables_in
from .options import AsJson
from .output import as_json, note, table
from .root import configuration_of

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@dataclass(frozen=True)
class ActiveSetting:
    """A setting in effect.

    Args:
        setting: its name, after the name of its table.
        value: its value, without secrets.
        source: the variable, or the place in the file.
    """

    setting: str
    value: Any
    source: str


@app.command()
def show(context: typer.Context, json: AsJson = False) -> None:
    """Show all settings and their sources, without passwords. Other options have their defaults.

    Environment variables take precedence over the file, and flags of a command over both.

    Example: penstock config show --config production.toml
    """
    configuration = configuration_of(context)
    holding = [*_shared(configuration), *_of_commands(configuration), *_kafka(configuration)]
    holding += [*_environment(configuration), *_sections(configuration)]
    if json:
        as_json([asdict(one) for one in holding])
        return
    if holding:
        table(("setting", "value", "from"), [(one.setting, _shown(one.value), one.source) for one in holding])
    else:
        note("Nothing is set: all options have their defaults. Settings are read from penstock.toml in this folder.")


def _shared(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of all commands."""
    values = configuration.file.values
    for option in sorted(configuration.shared(), key=lambda one: one.name):
        variable = option.variable or ""
        if os.environ.get(variable):
            yield ActiveSetting(option.name, without_secrets(option.name, os.environ[variable]), variable)
        elif option.name in values:
            yield _of_file(configuration, (option.name,), values[option.name])


def _of_commands(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of single commands."""
    for words in configuration.commands:
        for _, keys, value in configuration.values(words):
            if len(keys) > 1:
                yield _of_file(configuration, keys, value)


def _kafka(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of librdkafka."""
    file = configuration.file
    for name, value in kafka_settings.checked(file).items():
        yield _holding(f"{kafka_settings.TABLE}: {name}", name, value, kafka_settings.place_of(file, name))


def _environment(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the environment variables."""
    for name, value in configuration.file.values.get(environment.TABLE, {}).items():
        of_file = _of_file(configuration, (environment.TABLE, name), value)
        shown = without_secrets(name, os.environ.get(name))
        yield of_file if of_file.value == shown else ActiveSetting(of_file.setting, shown, name)


def _sections(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of other tables."""
    for name in configuration.sections:
        for key, value in configuration.file.values.get(name, {}).items():
            yield _of_file(configuration, (name, key), value)


def _of_file(configuration: Configuration, keys: tuple[str, ...], value: Any) -> ActiveSetting:
    *tables, name = keys
    setting = f"{'.'.join(tables)}: {name}" if tables else name
    return _holding(setting, name, value, configuration.file.place(keys))


def _holding(setting: str, name: str, value: Any, place: str) -> ActiveSetting:
    variables = ", ".join(f"${{{name}}}" for name in variables_in(value))
    source = f"{place}: {variables}" if variables else place
    try:
        return ActiveSetting(setting, without_secrets(name, resolved(value, place)), source)
    except VariableMissing:
        return ActiveSetting(setting, None, f"{source}, not set")


def _shown(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
