"""A configuration file and the options of all commands. The whole file is checked before a command starts.

file --checked against--> options of the commands, settings of Kafka, sections
     --by option--------> defaults of options that neither a flag nor a variable sets
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ....processors import did_you_mean
from . import clusters, environment, kafka_table
from .errors import ConfigRefused
from .section import Section
from .toml_file import Keys, TomlFile
from .variables import resolve, variables_in

if TYPE_CHECKING:
    import typer

_UNKNOWN_FIELD = re.compile(r"unknown field `(.+)`$")
S = TypeVar("S", bound=Section)
_TYPE_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True)
class Option:
    """An option of a command that a configuration file may set.

    Args:
        name: its name on the command line, without dashes.
        variable: its environment variable. An option with a variable may be set at the top of the file, for all commands.
        is_flag: whether its value is true or false.
        is_list: whether it is repeatable.
    """

    name: str
    variable: str | None = None
    is_flag: bool = False
    is_list: bool = False

    @property
    def type_name(self) -> str:
        """The type of its value in a file, for messages."""
        return "true or false" if self.is_flag else "a list of strings" if self.is_list else "a string or a number"

    def accepts(self, value: Any) -> bool:
        """Return whether a value has the right type; the command line checks it further."""
        if self.is_flag:
            return isinstance(value, bool)
        if self.is_list:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)


Commands = Mapping[Keys, tuple[Option, ...]]
"""The options of every command, by its words on the command line; empty for `penstock` itself."""


@dataclass(frozen=True)
class Configuration:
    """A configuration file, and the commands that read it.

    Args:
        file: the file.
        commands: the commands and their options.
        sections: the types of the other tables, by name.
        named_sections: the types of the tables in other tables, whose names the user chooses, by the name of the outer table.
    """

    file: TomlFile
    commands: Commands
    sections: Mapping[str, type[Section]] = field(default_factory=dict)
    named_sections: Mapping[str, type[Section]] = field(default_factory=dict)

    def check(self) -> None:
        """Check the whole file.

        Raises:
            ConfigRefused: a key is unknown or a value has the wrong type; with the line and a suggestion.
        """
        shared = {option.name: option for option in self.shared()}
        own = {kafka_table.TABLE, clusters.TABLE, environment.TABLE}
        tables = {*self.sections, *self.named_sections, *own, *(words[0] for words in self._tables())}
        for name, value in self.file.values.items():
            if name in shared:
                self._check_value((name,), shared[name], value)
            elif name not in tables:
                raise self._unknown_name((name,), {*shared, *tables})
            elif not isinstance(value, Mapping):
                raise self._not_a_table((name,))
        for words in self._tables():
            self._check_table(words)
        kafka_table.checked_settings(self.file)
        clusters.checked_clusters(self.file)
        environment.checked_variables(
            self.file, {option.variable: option.name for option in self.shared() if option.variable}
        )
        for kind in self.sections.values():
            self.section(kind, with_variables=False)
        for outer, kind in self.named_sections.items():
            for name in self.file.values.get(outer, {}):
                self.named_section(kind, name, with_variables=False)

    def shared(self) -> list[Option]:
        """Return the options that may be set at the top of the file, each once."""
        by_name = {option.name: option for options in self.commands.values() for option in options if option.variable}
        return list(by_name.values())

    def values_in_file(self, words: Keys) -> Iterator[tuple[Option, Keys, Any]]:
        """Yield the settings of one command: the option, its keys in the file, and the value as written."""
        own = self._table_of(words) if words else {}
        for option in self.commands[words]:
            if option.name in own:
                yield option, (*words, option.name), own[option.name]
            elif option.variable and option.name in self.file.values:
                yield option, (option.name,), self.file.values[option.name]

    def settings_of(self, words: Keys) -> dict[str, Any | Callable[[], Any]]:
        """Return the settings of one command, by option. Values with environment variables are resolved when they are used."""
        return {option.name: self._setting(value, keys) for option, keys, value in self.values_in_file(words)}

    def _setting(self, value: Any, keys: Keys) -> Any | Callable[[], Any]:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)  # as on the command line, which parses text: `dir = 5` is the folder 5
        resolve_value = partial(resolve, value, self.file, keys)
        return resolve_value if variables_in(value) else resolve_value()

    def section(self, kind: type[S], *, with_variables: bool = True) -> S | None:
        """Return a table of the file; None if it is missing.

        Args:
            kind: one of its sections.
            with_variables: whether to replace environment variables.

        Raises:
            ConfigRefused: the table is invalid, or a variable is not set.
        """
        return self._section((_name_of(kind, self.sections),), kind, with_variables=with_variables)

    def named_section(self, kind: type[S], name: str, *, with_variables: bool = True) -> S | None:
        """Return a table with a name that the user chose, as `section` does.

        Args:
            kind: one of the named sections.
            name: the name.
            with_variables: as for `section`.
        """
        return self._section((_name_of(kind, self.named_sections), name), kind, with_variables=with_variables)

    def names(self, kind: type[Section]) -> tuple[str, ...]:
        """Return the names of the tables that `named_section` returns, in the order of the file."""
        return tuple(self.file.values.get(_name_of(kind, self.named_sections), {}))

    def _section(self, keys: Keys, kind: type[S], *, with_variables: bool) -> S | None:
        table: Any = self.file.values
        for key in keys:
            if key not in table:
                return None
            table = table[key]
        place = self.file.place(keys)
        try:
            return msgspec.convert(resolve(table, self.file, keys) if with_variables else table, kind)
        except msgspec.ValidationError as error:
            raise ConfigRefused(
                f"{place}, in [{'.'.join(keys)}]: {error}.{_field_suggestion(error, kind)} Nothing was done. Correct the file."
            ) from error

    def _table_of(self, words: Keys) -> Mapping[str, Any]:
        """Return the table of a command or a command group."""
        inner = self.file.values
        for word in words:
            inner = inner.get(word, {})
            if not isinstance(inner, Mapping):
                return {}
        return inner

    def _tables(self) -> set[Keys]:
        """Return the words of every command and group."""
        return {words[:length] for words in self.commands for length in range(1, len(words) + 1)}

    def _check_table(self, words: Keys) -> None:
        options = {option.name: option for option in self.commands.get(words, ())}
        subtables = {table[-1] for table in self._tables() if table[:-1] == words}
        for name, value in self._table_of(words).items():
            if name in options:
                self._check_value((*words, name), options[name], value)
            elif name not in subtables:
                raise self._unknown_name((*words, name), {*options, *subtables})
            elif not isinstance(value, Mapping):
                raise self._not_a_table((*words, name))

    def _check_value(self, keys: Keys, option: Option, value: Any) -> None:
        if not option.accepts(value):
            raise ConfigRefused(
                f"{self.file.place(keys)}: {keys[-1]} must be {option.type_name}, not {_TYPE_NAMES.get(type(value), 'another type')}. "
                "Nothing was done. Correct the file."
            )

    def _unknown_name(self, keys: Keys, options: Iterable[str]) -> ConfigRefused:
        table = f" in [{'.'.join(keys[:-1])}]" if len(keys) > 1 else ""
        return ConfigRefused(
            f"{self.file.place(keys)}: unknown setting {keys[-1]}{table}.{_suggestion(keys[-1], options)} Nothing was done."
        )

    def _not_a_table(self, keys: Keys) -> ConfigRefused:
        name = ".".join(keys)
        return ConfigRefused(
            f"{self.file.place(keys)}: {name} must be a table, not a value. Nothing was done. Write [{name}] on a line of its own."
        )


def _name_of(kind: type[Section], sections: Mapping[str, type[Section]]) -> str:
    """Return the name of a table by its type; empty for a configuration without sections."""
    return next((name for name, section in sections.items() if section is kind), "")


def _field_suggestion(error: msgspec.ValidationError, kind: type[Section]) -> str:
    unknown = _UNKNOWN_FIELD.search(str(error))
    return _suggestion(unknown[1], kind.__struct_encode_fields__) if unknown else ""


def _suggestion(name: str, options: Iterable[str]) -> str:
    """Return a sentence with the most similar name, or with all names, to append to an error."""
    names = sorted(options)
    all_names = f" Known names: {', '.join(names)}." if names else " No name is allowed here."
    return did_you_mean(name, names) or all_names


def configuration_of(context: typer.Context) -> Configuration:
    """Return the configuration, for a command that reads a table."""
    configuration = context.find_root().obj
    return configuration if isinstance(configuration, Configuration) else Configuration(TomlFile(), {})
