"""The configuration: what it may say, what goes before it, and what is told of mistakes in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from penstock.ops.cli.main import app as whole
from penstock.ops.cli.options import DEFAULT_FOLDER, BackupEvery, Folder, Kafka, Store
from penstock.ops.cli.root import Root, commands_of, configuration_of, handed_on, hoisted
from penstock.ops.cli.sections import SECTIONS
from penstock.ops.config.configuration import Configuration
from penstock.ops.config.errors import ConfigRefused
from penstock.ops.config.kafka_settings import TABLE, kafka_settings
from penstock.ops.config.section import Section
from penstock.ops.config.toml_file import TomlFile
from penstock.ops.logs.setup import LogFormat, LogLevel

SECRET = "hunter2"  # noqa: S105 - of nobody


class Rule(Section, frozen=True):
    """A table of tables."""

    lag_s: float
    webhook: str = ""


class Alerts(Section, frozen=True):
    """A table that some command reads."""

    poll_every_s: float = 10.0
    rules: tuple[Rule, ...] = ()


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is known."""
    monkeypatch.setitem(SECTIONS, "paging", Alerts)


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a working folder of its own, and nothing set in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in ("PENSTOCK_KAFKA", "PENSTOCK_DIR", "PENSTOCK_STORE", "PENSTOCK_CONFIG", "PENSTOCK_LOG_LEVEL"):
        monkeypatch.delenv(variable, raising=False)


small = typer.Typer(cls=Root)
group = typer.Typer()
small.add_typer(group, name="group")


@small.callback()
def begin(config_file: Annotated[Path | None, typer.Option("--config")] = None) -> None:
    """Do nothing: what is tested is what comes before it."""


@small.command()
def tell(
    context: typer.Context,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    store: Store = None,
    backup_every: BackupEvery = 60.0,
    days: Annotated[list[str] | None, typer.Option("--day")] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
) -> None:
    """Print what it is given."""
    given = {
        "dir": str(folder),
        "store": store,
        "backup-every": backup_every,
        "day": days,
        "quick": quick,
        "kafka": kafka.bootstrap if kafka else None,
        "settings": kafka_settings(configuration_of(context).file),
    }
    typer.echo(json.dumps(given))


@group.command()
def inner(folder: Folder = DEFAULT_FOLDER) -> None:
    """Print what it is given."""
    typer.echo(json.dumps(str(folder)))


def told(*arguments: str, by: typer.Typer = small) -> Any:
    """What a command prints."""
    done = CliRunner().invoke(by, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def written(text: str, name: str = "penstock.toml") -> Path:
    """A configuration in the working folder."""
    Path(name).write_text(text)
    return Path(name)


def refusal(text: str, by: typer.Typer = small, *command: str) -> str:
    """What is told of a configuration."""
    written(text)
    with pytest.raises(ConfigRefused) as refused:
        CliRunner().invoke(by, list(command or ("tell",)), catch_exceptions=False)
    return str(refused.value)


def test_a_flag_goes_before_a_variable_and_a_variable_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three wins over those below it, for each option by itself."""
    assert told("tell")["dir"] == ".penstock"

    written('dir = "of the file"\nkafka = "of-the-file:1"\nstore = "redis://of-the-file"\n')
    assert [told("tell")[name] for name in ("dir", "kafka", "store")] == [
        "of the file",
        "of-the-file:1",
        "redis://of-the-file",
    ]

    monkeypatch.setenv("PENSTOCK_DIR", "of the variable")
    monkeypatch.setenv("PENSTOCK_KAFKA", "of-the-variable:1")
    given = told("tell", "--kafka", "of-the-flag:1")
    assert [given[name] for name in ("dir", "kafka", "store")] == [
        "of the variable",
        "of-the-flag:1",
        "redis://of-the-file",
    ]


def test_a_file_is_named_by_a_flag_anywhere_or_by_a_variable_or_lies_in_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that is named is the only one that counts."""
    written('dir = "by default"\nstore = "redis://default"\n')
    written('dir = "by flag"\n', "flag.toml")
    written('dir = "by variable"\n', "variable.toml")
    monkeypatch.setenv("PENSTOCK_CONFIG", "variable.toml")
    assert told("tell")["dir"] == "by variable"

    for arguments in (
        ("--config", "flag.toml", "tell"),
        ("tell", "--config", "flag.toml"),
        ("tell", "--quick", "--config=flag.toml"),
    ):
        assert told(*arguments)["dir"] == "by flag"
        assert told(*arguments)["store"] is None

    monkeypatch.setenv("PENSTOCK_CONFIG", "")
    assert told("tell")["dir"] == "by default"


def test_what_stands_behind_two_dashes_is_nobodys_option() -> None:
    """As everywhere."""
    assert hoisted(["run", "--log-level", "info", "--", "--config", "x"]) == (
        ["--log-level", "info"],
        ["run", "--", "--config", "x"],
    )


def test_a_table_of_a_command_is_for_it_alone_and_goes_before_what_is_for_all() -> None:
    """Also that of a command in a group; lists and truths are taken as well."""
    written('dir = "all"\n[tell]\ndir = "tell"\nquick = true\nday = ["1", "2"]\nbackup-every = 5\n')
    given = told("tell")
    assert (given["dir"], given["quick"], given["day"], given["backup-every"]) == ("tell", True, ["1", "2"], 5.0)
    assert told("group", "inner") == "all"

    written('dir = "all"\n[group.inner]\ndir = "inner"\n')
    assert told("group", "inner") == "inner"
    assert told("tell")["dir"] == "all"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('\nkafak = "x"', 2, ("unknown setting kafak", "Did you mean `kafka`?")),
        ("[tell]\n# so\nquikc = true", 3, ("unknown setting quikc in [tell]", "Did you mean `quick`?")),
        ('dir = "x"\n[tel]\nquick = true', 2, ("unknown setting tel", "Did you mean `tell`?")),
        ('[group.iner]\ndir = "x"', 1, ("unknown setting iner in [group]", "Did you mean `inner`?")),
        ('[group]\ndir = "x"', 2, ("unknown setting dir in [group]", "Known names: inner.")),
        ('quick = "yes"', 1, ("unknown setting quick",)),
        ('[tell]\nquick = "yes"', 2, ("quick must be true or false, not a text",)),
        ('[tell]\nday = "1"', 2, ("day must be a list of texts, not a text",)),
        ("dir = [1]", 1, ("dir must be a text or a number, not a list",)),
        ('backup-every = "soon"', 1, ("backup-every is invalid", "number")),
        ("[tell]\nbackup-every = 0", 2, ("backup-every is invalid", "1")),
        ('[environment]\nPENSTOCK_DIR = "x"', 2, ("Write dir = … at the top",)),
        ("[environment]\nX = 3", 2, ("X must be a string",)),
        ("environment = 3", 1, ("Write [environment] on a line of its own",)),
        ("tell = 3", 1, ("Write [tell] on a line of its own",)),
        ("[group]\ninner = 3", 2, ("Write [group.inner] on a line of its own",)),
        ("kafka-settings = 3", 1, ("Write [kafka-settings] on a line of its own",)),
        ('[kafka-settings]\nx = 1\ngroup.id = "mine"', 3, ("group.id cannot be set", "group has the processor's name")),
        ('[kafka-settings]\n"acks" = 1', 2, ("acks cannot be set",)),
        ('[kafka-settings]\nsasl.password = ["hunter2"]', 2, ("sasl.password must be a string",)),
        ('config = "x"', 1, ("unknown setting config",)),
        ('store = "${NOT_SET}"', 1, ("NOT_SET", "is not set")),
        ('store = "${}"', 1, ("is not a valid variable",)),
        ('dir = "x', 1, ("is not TOML",)),
        ('dir = "x"\ndir = "y"', 2, ("is not TOML",)),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_was_meant(text: str, line: int, says: tuple[str, ...]) -> None:
    """Before anything is done; and never with a secret that stands there."""
    message = refusal(text)
    assert f"line {line}" in message or "is not TOML" in message
    assert "penstock.toml" in message
    assert "Nothing was done" in message
    for part in says:
        assert part in message
    assert SECRET not in message


def test_a_file_that_is_named_and_not_there_is_told() -> None:
    """One that nobody has named need not be there."""
    for arguments in (["tell", "--config", "none.toml"], ["tell", "--config", "."]):
        with pytest.raises(ConfigRefused, match="Cannot read the configuration"):
            CliRunner().invoke(small, arguments, catch_exceptions=False)


def test_help_is_shown_whatever_the_configuration_says() -> None:
    """Who mends it may need it."""
    written("[nonsense")
    assert CliRunner().invoke(small, ["tell", "--help"]).exit_code == 0


def test_variables_are_asked_only_for_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without a store need no password of it; `$${` is no variable."""
    written('dir = "$${HOME}/${WHERE}"\nstore = "redis://:${STORE_PASSWORD}@here"\n')
    monkeypatch.setenv("WHERE", "there")
    assert told("group", "inner") == "${HOME}/there"

    monkeypatch.setenv("STORE_PASSWORD", SECRET)
    assert told("tell")["store"] == f"redis://:{SECRET}@here"


def test_settings_of_kafka_are_passed_on_by_their_names_quoted_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As librdkafka takes them: all in text."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    written(
        '[kafka-settings]\nsasl.password = "${KAFKA_PASSWORD}"\n"ssl.key.location" = "k"\nsession.timeout.ms = 6000\n'
        "enable.ssl.certificate.verification = false\n"
    )

    assert told("tell")["settings"] == {
        "sasl.password": SECRET,
        "ssl.key.location": "k",
        "session.timeout.ms": "6000",
        "enable.ssl.certificate.verification": "false",
    }


def test_a_name_that_librdkafka_does_not_know_is_told_with_what_was_meant() -> None:
    """It alone knows all names, and is asked before any broker."""
    text = f'kafka = "127.0.0.1:1"\n[kafka-settings]\nsecurity.protocol = "SASL_SSL"\nsasl.pasword = "{SECRET}"\n'
    message = refusal(text, whole, "category", "list")
    assert "penstock.toml, line 4" in message
    assert "Did you mean `sasl.password`?" in message
    assert SECRET not in message


def test_the_file_has_variables_for_what_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are set already stay; one that depends on one that is not set is left out."""
    for name in ("MINE", "THEIRS", "NOBODYS"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.delenv("MINE")
    monkeypatch.delenv("NOBODYS")
    written(f'[environment]\nMINE = "redis://:{SECRET}@x"\nTHEIRS = "of the file"\nNOBODYS = "${{NOT_SET}}"\n')
    shown = {one["setting"]: (one["value"], one["source"]) for one in told("config", "show", "--json", by=whole)}

    assert (os.environ["MINE"], os.environ["THEIRS"]) == (f"redis://:{SECRET}@x", "theirs")
    assert "NOBODYS" not in os.environ
    assert shown == {
        "environment: MINE": ("redis://:***@x", "penstock.toml, line 2"),
        "environment: THEIRS": ("theirs", "THEIRS"),
        "environment: NOBODYS": (None, "penstock.toml, line 4: ${NOT_SET}, not set"),
    }


def test_a_section_is_read_as_its_type(paging: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys have dashes; tables in tables are read as well, with their variables."""
    monkeypatch.setenv("HOOK", "https://hook")
    path = written('[paging]\npoll-every-s = 2\n[[paging.rules]]\nlag-s = 3\nwebhook = "${HOOK}"\n')
    configuration = Configuration(TomlFile.read(path), {}, SECTIONS)
    configuration.check()

    assert configuration.section(Alerts) == Alerts(2.0, (Rule(3.0, "https://hook"),))
    assert Configuration(TomlFile(), {}, SECTIONS).section(Alerts) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[paging]\npoll-evry-s = 1", "Did you mean `poll-every-s`?"),
        ('[paging]\npoll-every-s = "x"', "Expected `float`, got `str` - at `$.poll-every-s`"),
        ("[[paging.rules]]\n", "missing required field `lag-s` - at `$.rules[0]`"),
    ],
)
def test_a_section_that_is_not_as_declared_is_told(paging: None, text: str, says: str) -> None:
    """At every command, so that it is not the night's alert that finds it."""
    message = refusal(text)
    assert says in message
    assert "line 1" in message


def test_config_show_tells_what_holds_and_where_it_is_from(paging: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of secrets only that they are set."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    monkeypatch.setenv("PENSTOCK_DIR", "elsewhere")
    monkeypatch.delenv("UNSET", raising=False)
    written(
        f'kafka = "broker:9093"\nstore = "postgresql://me:{SECRET}@db/x"\ndir = "here"\n'
        '[kafka-settings]\nsasl.password = "${KAFKA_PASSWORD}"\nsasl.username = "me"\nssl.key.pem = "${UNSET}"\n'
        f'[run]\nuntil-end = true\n[[paging.rules]]\nlag-s = 1\nwebhook = "https://{SECRET}"\n'
    )
    shown = {one["setting"]: (one["value"], one["source"]) for one in told("config", "show", "--json", by=whole)}
    table = CliRunner().invoke(whole, ["config", "show"]).output

    assert shown == {
        "dir": ("elsewhere", "PENSTOCK_DIR"),
        "kafka": ("broker:9093", "penstock.toml, line 1"),
        "store": ("postgresql://me:***@db/x", "penstock.toml, line 2"),
        "kafka-settings: sasl.password": ("***", "penstock.toml, line 5: ${KAFKA_PASSWORD}"),
        "kafka-settings: sasl.username": ("me", "penstock.toml, line 6"),
        "kafka-settings: ssl.key.pem": (None, "penstock.toml, line 7: ${UNSET}, not set"),
        "run: until-end": (True, "penstock.toml, line 9"),
        "paging: rules": ([{"lag-s": 1, "webhook": "***"}], "penstock.toml, line 10"),
    }
    assert SECRET not in json.dumps(shown) + table
    assert "postgresql://me:***" in table


def test_config_show_says_when_nothing_is_set() -> None:
    """And what would be read."""
    assert "penstock.toml" in CliRunner().invoke(whole, ["config", "show"]).output


def test_what_is_handed_on_leads_another_process_to_the_same(tmp_path: Path) -> None:
    """The file by its whole path, and how lines are written, whoever said so."""
    written("", "some.toml")
    handed: list[str] = []
    again = typer.Typer(cls=Root)

    @again.callback()
    def begin(
        config_file: Annotated[Path | None, typer.Option("--config")] = None,
        log_format: Annotated[LogFormat, typer.Option("--log-format")] = LogFormat.PRETTY,
        log_level: Annotated[LogLevel, typer.Option("--log-level")] = LogLevel.WARNING,
    ) -> None: ...

    @again.command()
    def hand(context: typer.Context) -> None:
        handed.extend(handed_on(context))

    CliRunner().invoke(again, ["hand", "--config", "some.toml", "--log-format", "json"], catch_exceptions=False)
    assert handed == ["--config", str(tmp_path / "some.toml"), "--log-format", "json", "--log-level", "warning"]


def test_no_table_is_called_as_an_option_of_all_commands() -> None:
    """TOML has one value of a name."""
    commands = commands_of(typer.main.get_command(whole))
    tables = {words[0] for words in commands if words} | {*SECTIONS, TABLE}

    assert not tables & {option.name for option in Configuration(TomlFile(), commands).shared()}
