"""`penstock config`: shows the settings and their sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import typer

from ..command_line import complete_configuration
from ..config import (
    Configuration,
    Keys,
    VariableMissing,
    clusters,
    environment,
    kafka_table,
    resolve,
    variables_in,
    without_secrets,
)
from ..options import AsJson
from ..terminal import note, print_json, print_table

app = typer.Typer(help="Show the configuration.", no_args_is_help=True)


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
    configuration = complete_configuration(context)
    settings = [*_shared(configuration), *_of_commands(configuration), *_kafka(configuration)]
    settings += _clusters(configuration)
    settings += [*_environment(configuration), *_sections(configuration)]
    if json:
        print_json([asdict(setting) for setting in settings])
        return
    if settings:
        print_table(("setting", "value", "from"), [(each.setting, _text(each.value), each.source) for each in settings])
    else:
        note("Nothing is set: all options have their defaults. Settings are read from penstock.toml in this folder.")


def _shared(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of all commands."""
    values = configuration.file.values
    for option in sorted(configuration.shared(), key=lambda option: option.name):
        variable = option.variable or ""
        if os.environ.get(variable):
            yield ActiveSetting(option.name, without_secrets(option.name, os.environ[variable]), variable)
        elif option.name in values:
            yield _from_file(configuration, (option.name,), values[option.name])


def _of_commands(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of single commands."""
    for words in configuration.commands:
        for _, keys, value in configuration.values_in_file(words):
            if len(keys) > 1:
                yield _from_file(configuration, keys, value)


def _kafka(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of librdkafka for the main cluster."""
    yield from _of_librdkafka(configuration, kafka_table.MAIN)


def _of_librdkafka(configuration: Configuration, table: Keys) -> Iterator[ActiveSetting]:
    for name, value in kafka_table.checked_settings(configuration.file, table).items():
        yield _from_file(configuration, (*table, name), value)


def _clusters(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of further clusters."""
    for name, address in clusters.checked_clusters(configuration.file).items():
        yield _from_file(configuration, (clusters.TABLE, name, clusters.ADDRESS), address)
        yield from _of_librdkafka(configuration, clusters.settings_keys(name))


def _environment(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the environment variables."""
    for name, value in configuration.file.values.get(environment.TABLE, {}).items():
        in_file = _from_file(configuration, (environment.TABLE, name), value)
        current = without_secrets(name, os.environ.get(name))
        yield in_file if in_file.value == current else ActiveSetting(in_file.setting, current, name)


def _sections(configuration: Configuration) -> Iterator[ActiveSetting]:
    """Yield the settings of other tables."""
    for name in configuration.sections:
        for key, value in configuration.file.values.get(name, {}).items():
            yield _from_file(configuration, (name, key), value)


def _from_file(configuration: Configuration, keys: Keys, value: Any) -> ActiveSetting:
    *tables, name = keys
    setting = f"{'.'.join(tables)}: {name}" if tables else name
    place = configuration.file.place(keys)
    variables = ", ".join(f"${{{name}}}" for name in variables_in(value))
    source = f"{place}: {variables}" if variables else place
    try:
        return ActiveSetting(setting, without_secrets(name, resolve(value, configuration.file, keys)), source)
    except VariableMissing:
        return ActiveSetting(setting, None, f"{source}, not set")


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
