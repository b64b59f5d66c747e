"""The configuration: its settings, precedence, and errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import penstock as ps
from penstock.ops.serve.latest.declared_table import DeclaredTable
from penstock.ops.shell import (
    DEFAULT_FOLDER,
    TABLE,
    BackupEvery,
    Folder,
    Kafka,
    Section,
    Store,
    TomlFile,
    configuration_of,
    forwarded_options,
    given_options,
)
from penstock.ops.shell.command_line.main import app as penstock_app
from penstock.ops.shell.command_line.root import Root, commands_of, split_root_options
from penstock.ops.shell.config.configuration import Configuration
from penstock.ops.shell.config.errors import ConfigRefused
from penstock.ops.shell.config.kafka_table import kafka_settings
from penstock.ops.shell.logs.setup import LogFormat, LogLevel
from penstock.ops.shell.options.sections import NAMED_SECTIONS, SECTIONS
from penstock.processors import AppFileError
from penstock.processors.apps import load_app
from penstock.processors.lookups import LookupRefused
from penstock.state import FileStoreRefuses
from penstock.state.files import REFUSAL
from penstock.state.lookup_sources.address import address_named
from penstock.transport import SettingsRefused

SECRET = "hunter2"  # noqa: S105 - not a real password


class Rule(Section, frozen=True):
    """A table of tables."""

    lag_s: float
    webhook: str = ""


class Alerts(Section, frozen=True):
    """A table that a command reads."""

    poll_every_s: float = 10.0
    rules: tuple[Rule, ...] = ()


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the table."""
    monkeypatch.setitem(SECTIONS, "paging", Alerts)


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own working folder, and no Penstock variables."""
    monkeypatch.chdir(tmp_path)
    for variable in ("PENSTOCK_KAFKA", "PENSTOCK_DIR", "PENSTOCK_STORE", "PENSTOCK_CONFIG", "PENSTOCK_LOG_LEVEL"):
        monkeypatch.delenv(variable, raising=False)


small = typer.Typer(cls=Root)
group = typer.Typer()
small.add_typer(group, name="group")


@small.callback()
def begin(config_file: Annotated[Path | None, typer.Option("--config")] = None) -> None:
    """Do nothing."""


@small.command()
def report(
    context: typer.Context,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    store: Store = None,
    backup_every: BackupEvery = 60.0,
    days: Annotated[list[str] | None, typer.Option("--day")] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
) -> None:
    """Print the options."""
    options = {
        "dir": str(folder),
        "store": store,
        "backup-every": backup_every,
        "day": days,
        "quick": quick,
        "kafka": kafka.bootstrap if kafka else None,
        "settings": kafka_settings(configuration_of(context).file),
    }
    typer.echo(json.dumps(options))


@small.command()
def look_up() -> None:
    """Print the address of a lookup store."""
    typer.echo(str(address_named("PENSTOCK_LOOKUPS", ["redis"], "airports")))


@small.command()
def load() -> None:
    """Load an app."""
    load_app("app.py")


@group.command()
def inner(folder: Folder = DEFAULT_FOLDER) -> None:
    """Print the options."""
    typer.echo(json.dumps(str(folder)))


def output_of(*arguments: str, app: typer.Typer = small) -> Any:
    """Run a command, and return its output."""
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def write_config(text: str, name: str = "penstock.toml") -> Path:
    """Write a configuration to the working folder."""
    Path(name).write_text(text)
    return Path(name)


def error_of(text: str, app: typer.Typer = small, *command: str) -> str:
    """Return the error of a configuration."""
    write_config(text)
    with pytest.raises(ConfigRefused) as refused:
        CliRunner().invoke(app, list(command or ("report",)), catch_exceptions=False)
    return str(refused.value)


def test_flags_override_variables_and_variables_override_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option has its own precedence."""
    assert output_of("report")["dir"] == ".penstock"

    write_config('dir = "from the file"\nkafka = "from-the-file:1"\nstore = "redis://from-the-file"\n')
    assert [output_of("report")[name] for name in ("dir", "kafka", "store")] == [
        "from the file",
        "from-the-file:1",
        "redis://from-the-file",
    ]

    monkeypatch.setenv("PENSTOCK_DIR", "from the variable")
    monkeypatch.setenv("PENSTOCK_KAFKA", "from-the-variable:1")
    options = output_of("report", "--kafka", "from-the-flag:1")
    assert [options[name] for name in ("dir", "kafka", "store")] == [
        "from the variable",
        "from-the-flag:1",
        "redis://from-the-file",
    ]


def test_the_file_comes_from_a_flag_a_variable_or_the_working_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A named file is the only one that is read."""
    write_config('dir = "by default"\nstore = "redis://default"\n')
    write_config('dir = "by flag"\n', "flag.toml")
    write_config('dir = "by variable"\n', "variable.toml")
    monkeypatch.setenv("PENSTOCK_CONFIG", "variable.toml")
    assert output_of("report")["dir"] == "by variable"

    for arguments in (
        ("--config", "flag.toml", "report"),
        ("report", "--config", "flag.toml"),
        ("report", "--quick", "--config=flag.toml"),
    ):
        assert output_of(*arguments)["dir"] == "by flag"
        assert output_of(*arguments)["store"] is None

    monkeypatch.setenv("PENSTOCK_CONFIG", "")
    assert output_of("report")["dir"] == "by default"


def test_arguments_after_two_dashes_are_not_options() -> None:
    """Other programs follow the same convention."""
    assert split_root_options(["run", "--log-level", "info", "--", "--config", "x"]) == (
        ["--log-level", "info"],
        ["run", "--", "--config", "x"],
    )


def test_a_table_of_a_command_overrides_settings_of_all_commands() -> None:
    """Commands in groups have tables, too. Lists and booleans are allowed."""
    write_config('dir = "all"\n[report]\ndir = "report"\nquick = true\nday = ["1", "2"]\nbackup-every = 5\n')
    options = output_of("report")
    assert (options["dir"], options["quick"], options["day"], options["backup-every"]) == (
        "report",
        True,
        ["1", "2"],
        5.0,
    )
    assert output_of("group", "inner") == "all"

    write_config('dir = "all"\n[group.inner]\ndir = "inner"\n')
    assert output_of("group", "inner") == "inner"
    assert output_of("report")["dir"] == "all"


def test_a_number_in_the_file_is_parsed_like_the_same_number_on_the_command_line() -> None:
    """The number may be the name of a folder, too."""
    write_config("dir = 5\nbackup-every = 7\n")

    assert [output_of("report")[name] for name in ("dir", "backup-every")] == ["5", 7.0]


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ('\nkafak = "x"', 2, ("unknown setting kafak", "Did you mean `kafka`?")),
        ("[report]\n# so\nquikc = true", 3, ("unknown setting quikc in [report]", "Did you mean `quick`?")),
        ('dir = "x"\n[repor]\nquick = true', 2, ("unknown setting repor", "Did you mean `report`?")),
        ('[group.iner]\ndir = "x"', 1, ("unknown setting iner in [group]", "Did you mean `inner`?")),
        ('[group]\ndir = "x"', 2, ("unknown setting dir in [group]", "Known names: inner.")),
        ('quick = "yes"', 1, ("unknown setting quick",)),
        ('[report]\nquick = "yes"', 2, ("quick must be true or false, not a string",)),
        ('[report]\nday = "1"', 2, ("day must be a list of strings, not a string",)),
        ("dir = [1]", 1, ("dir must be a string or a number, not a list",)),
        ("store = true", 1, ("store must be a string or a number, not true or false",)),
        ('backup-every = "soon"', 1, ("backup-every is invalid", "number")),
        ("[report]\nbackup-every = 0", 2, ("backup-every is invalid", "1")),
        ('[environment]\nPENSTOCK_DIR = "x"', 2, ("Write dir = … at the top",)),
        ("[environment]\nX = 3", 2, ("X must be a string",)),
        ("environment = 3", 1, ("Write [environment] on a line of its own",)),
        ("report = 3", 1, ("Write [report] on a line of its own",)),
        ("[group]\ninner = 3", 2, ("Write [group.inner] on a line of its own",)),
        ("kafka-settings = 3", 1, ("Write [kafka-settings] on a line of its own",)),
        ('[kafka-settings]\nx = 1\ngroup.id = "mine"', 3, ("group.id cannot be set", "group has the processor's name")),
        ('[kafka-settings]\n"acks" = 1', 2, ("acks cannot be set",)),
        ('[kafka-settings]\nsasl.password = ["hunter2"]', 2, ("sasl.password must be a string",)),
        ("clusters = 3", 1, ("Write [clusters] on a line of its own",)),
        ("[clusters]\norders = 3", 2, ("orders in [clusters] must be a table", "Write [clusters.orders]")),
        ("[clusters.orders]", 1, ("[clusters.orders] needs the address of the cluster", 'kafka = "HOST:PORT"')),
        ("[clusters.orders]\nkafka = 3", 1, ("[clusters.orders] needs the address",)),
        ('[clusters."a b"]\nkafka = "x:1"', 1, ("the name of cluster 'a b' is invalid",)),
        (
            '[clusters.orders]\nkafka = "x:1"\nkafka-setings = 1',
            3,
            ("unknown setting kafka-setings in [clusters.orders]", "Did you mean `kafka-settings`?"),
        ),
        (
            '[clusters.orders]\nkafka = "x:1"\nkafka-settings = 1',
            3,
            ("Write [clusters.orders.kafka-settings] on a line of its own",),
        ),
        (
            '[clusters.orders]\nkafka = "x:1"\n[clusters.orders.kafka-settings]\nbootstrap.servers = "y:1"',
            4,
            ("bootstrap.servers cannot be set", "the setting kafka in [clusters.orders] replaces it"),
        ),
        ('config = "x"', 1, ("unknown setting config",)),
        ('store = "${NOT_SET}"', 1, ("store needs the environment variable NOT_SET", "is not set")),
        (
            'store = "a"\n[kafka-settings]\nsasl.password = "${NOT_SET}"',
            3,
            ("sasl.password in [kafka-settings] needs the environment variable NOT_SET",),
        ),
        ('store = "${}"', 1, ("is not a valid variable",)),
        ('dir = "x', 1, ("is not TOML",)),
        ('dir = "x"\ndir = "y"', 2, ("is not TOML",)),
    ],
)
def test_an_error_contains_the_line_and_a_suggestion(text: str, line: int, parts: tuple[str, ...]) -> None:
    """It precedes every action, and contains no secret."""
    message = error_of(text)
    assert f"line {line}" in message or "is not TOML" in message
    assert "penstock.toml" in message
    assert "Nothing was done" in message
    for part in parts:
        assert part in message
    assert SECRET not in message


def test_a_missing_named_file_is_an_error() -> None:
    """Only the default file may be missing."""
    for arguments in (["report", "--config", "none.toml"], ["report", "--config", "."]):
        with pytest.raises(ConfigRefused, match="Cannot read the configuration"):
            CliRunner().invoke(small, arguments, catch_exceptions=False)


def test_help_ignores_an_invalid_configuration() -> None:
    """A user may need it to correct the file."""
    write_config("[nonsense")
    assert CliRunner().invoke(small, ["report", "--help"]).exit_code == 0


def test_only_used_settings_need_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without a store need no password of a store. `$${` is a literal `${`."""
    write_config('dir = "$${HOME}/${WHERE}"\nstore = "redis://:${STORE_PASSWORD}@here"\n')
    monkeypatch.setenv("WHERE", "there")
    assert output_of("group", "inner") == "${HOME}/there"

    monkeypatch.setenv("STORE_PASSWORD", SECRET)
    assert output_of("report")["store"] == f"redis://:{SECRET}@here"


def test_only_commands_with_hdfs_need_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others run. The error names the file, the setting and the variable."""
    for name in ("HDFS_TOKEN", REFUSAL):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    write_config('[hdfs]\nauth = "token"\ntoken = "${HDFS_TOKEN}"\n')
    assert output_of("state", "show", "--json", app=penstock_app) == []

    with pytest.raises(FileStoreRefuses) as refused:
        output_of("state", "show", "--backup", "hdfs://127.0.0.1:1/backups", app=penstock_app)
    assert "penstock.toml, line 3: token in [hdfs] needs the environment variable HDFS_TOKEN" in str(refused.value)


def test_kafka_settings_may_be_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All values are passed to librdkafka as text."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    write_config(
        '[kafka-settings]\nsasl.password = "${KAFKA_PASSWORD}"\n"ssl.key.location" = "k"\nsession.timeout.ms = 6000\n'
        "enable.ssl.certificate.verification = false\n"
    )

    assert output_of("report")["settings"] == {
        "sasl.password": SECRET,
        "ssl.key.location": "k",
        "session.timeout.ms": "6000",
        "enable.ssl.certificate.verification": "false",
    }


def test_an_unknown_kafka_setting_is_an_error_with_a_suggestion() -> None:
    """Librdkafka checks all names before the first connection."""
    text = f'kafka = "127.0.0.1:1"\n[kafka-settings]\nsecurity.protocol = "SASL_SSL"\nsasl.pasword = "{SECRET}"\n'
    message = error_of(text, penstock_app, "category", "show")
    assert "penstock.toml, line 4" in message
    assert "Did you mean `sasl.password`?" in message
    assert SECRET not in message


def test_a_command_connects_to_a_cluster_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong setting is reported with its line in the cluster's own table, and a wrong name with the most similar one."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    text = (
        'kafka = "127.0.0.1:1"\n[clusters.orders]\nkafka = "127.0.0.1:2"\n[clusters.orders.kafka-settings]\n'
        'security.protocol = "SASL_SSL"\nsasl.pasword = "${KAFKA_PASSWORD}"\n'
    )
    message = error_of(text, penstock_app, "category", "show", "--cluster", "orders")
    assert "penstock.toml, line 6" in message
    assert "Did you mean `sasl.password`?" in message
    assert SECRET not in message

    message = error_of(text, penstock_app, "category", "show", "--cluster", "order")
    assert (
        "--cluster names cluster order, and penstock.toml has no table [clusters.order]. Did you mean `orders`?"
        in message
    )


def test_the_file_sets_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing variables are kept. A variable that depends on an unset one is not set."""
    for name in ("NEW", "EXISTING", "DEPENDENT"):
        monkeypatch.setenv(name, "existing")
    monkeypatch.delenv("NEW")
    monkeypatch.delenv("DEPENDENT")
    write_config(
        f'[environment]\nNEW = "redis://:{SECRET}@x"\nEXISTING = "from the file"\nDEPENDENT = "${{NOT_SET}}"\n'
    )
    settings = {
        each["setting"]: (each["value"], each["source"])
        for each in output_of("config", "show", "--json", app=penstock_app)
    }

    assert (os.environ["NEW"], os.environ["EXISTING"]) == (f"redis://:{SECRET}@x", "existing")
    assert "DEPENDENT" not in os.environ
    assert settings == {
        "environment: NEW": ("redis://:***@x", "penstock.toml, line 2"),
        "environment: EXISTING": ("existing", "EXISTING"),
        "environment: DEPENDENT": (None, "penstock.toml, line 4: ${NOT_SET}, not set"),
    }


def test_an_error_about_a_variable_of_the_file_names_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that needs neither of them runs."""
    for name in ("LOOKUPS_PASSWORD", "PENSTOCK_LOOKUPS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    write_config('[environment]\nPENSTOCK_LOOKUPS = "redis://:${LOOKUPS_PASSWORD}@x"\nOTHER = "${NOT_SET}"\n')
    assert output_of("report")["quick"] is False

    with pytest.raises(LookupRefused) as refused:
        CliRunner().invoke(small, ["look-up"], catch_exceptions=False)
    assert str(refused.value).endswith(
        "penstock.toml, line 2: PENSTOCK_LOOKUPS in [environment] needs the environment variable LOOKUPS_PASSWORD, which is not set."
    )


def test_an_error_of_an_app_names_what_its_variable_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app may read the variable itself."""
    for name in ("TABLE_PASSWORD", "NOT_SET"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    write_config('[environment]\nTABLE_PASSWORD = "${NOT_SET}"\n')
    Path("app.py").write_text('import os\n\nPASSWORD = os.environ["TABLE_PASSWORD"]\n')

    with pytest.raises(AppFileError) as refused:
        CliRunner().invoke(small, ["load"], catch_exceptions=False)
    assert str(refused.value).endswith(
        "penstock.toml, line 2: TABLE_PASSWORD in [environment] needs the environment variable NOT_SET, which is not set."
    )


def test_a_section_is_converted_to_its_type(paging: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys contain dashes. Nested tables and variables are allowed."""
    monkeypatch.setenv("HOOK", "https://hook")
    path = write_config('[paging]\npoll-every-s = 2\n[[paging.rules]]\nlag-s = 3\nwebhook = "${HOOK}"\n')
    configuration = Configuration(TomlFile.read(path), {}, SECTIONS)
    configuration.check()

    assert configuration.section(Alerts) == Alerts(2.0, (Rule(3.0, "https://hook"),))
    assert Configuration(TomlFile(), {}, SECTIONS).section(Alerts) is None


def test_a_named_section_is_converted_by_its_name() -> None:
    """Every section is checked, even if the command does not read it."""
    path = write_config('[laser-tables.tops]\nkey = "carrier"\nvalue = ["top", "at"]\nkeep = "7d"\n')
    configuration = Configuration(TomlFile.read(path), {}, SECTIONS, NAMED_SECTIONS)
    configuration.check()

    assert configuration.named_section(DeclaredTable, "tops") == DeclaredTable("carrier", ["top", "at"], "7d")
    assert configuration.named_section(DeclaredTable, "others") is None
    assert Configuration(TomlFile(), {}).named_section(DeclaredTable, "tops") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[laser-tables.tops]\nkey = "a"\n', r"line 1, in \[laser-tables\.tops\]: .*missing required field `value`"),
        (
            '[laser-tables.tops]\nkey = "a"\nvalue = "b"\nkeeep = "1d"\n',
            r"in \[laser-tables\.tops\]: .*Did you mean `keep`",
        ),
        ('[laser-tables.tops]\nkey = "a"\nvalue = "b"\nreplicas = 0\n', r"in \[laser-tables\.tops\]: .*>= 1"),
        ("[laser-tables]\ntops = 1\n", r"line 2, in \[laser-tables\.tops\]: Expected `object`"),
        ("laser-tables = 1\n", r"laser-tables must be a table"),
    ],
)
def test_an_invalid_named_section_is_refused(text: str, message: str) -> None:
    """The error contains its line."""
    configuration = Configuration(TomlFile.read(write_config(text)), {}, SECTIONS, NAMED_SECTIONS)
    with pytest.raises(ConfigRefused, match=message):
        configuration.check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[paging]\npoll-evry-s = 1", "Did you mean `poll-every-s`?"),
        ('[paging]\npoll-every-s = "x"', "Expected `float`, got `str` - at `$.poll-every-s`"),
        ("[[paging.rules]]\n", "missing required field `lag-s` - at `$.rules[0]`"),
    ],
)
def test_an_invalid_section_is_an_error(paging: None, text: str, message: str) -> None:
    """Every command checks all sections."""
    error = error_of(text)
    assert message in error
    assert "line 1" in error


def test_config_show_prints_settings_and_sources(paging: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are hidden."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    monkeypatch.setenv("PENSTOCK_DIR", "elsewhere")
    monkeypatch.delenv("UNSET", raising=False)
    write_config(
        f'kafka = "broker:9093"\nstore = "postgresql://me:{SECRET}@db/x"\ndir = "here"\n'
        '[kafka-settings]\nsasl.password = "${KAFKA_PASSWORD}"\nsasl.username = "me"\nssl.key.pem = "${UNSET}"\n'
        f'[run]\nuntil-end = true\n[[paging.rules]]\nlag-s = 1\nwebhook = "https://{SECRET}"\n'
        '[clusters.orders]\nkafka = "other:9093"\n[clusters.orders.kafka-settings]\nsasl.password = "${KAFKA_PASSWORD}"\n'
    )
    settings = {
        each["setting"]: (each["value"], each["source"])
        for each in output_of("config", "show", "--json", app=penstock_app)
    }
    table = CliRunner().invoke(penstock_app, ["config", "show"]).output

    assert settings == {
        "dir": ("elsewhere", "PENSTOCK_DIR"),
        "kafka": ("broker:9093", "penstock.toml, line 1"),
        "store": ("postgresql://me:***@db/x", "penstock.toml, line 2"),
        "kafka-settings: sasl.password": ("***", "penstock.toml, line 5: ${KAFKA_PASSWORD}"),
        "kafka-settings: sasl.username": ("me", "penstock.toml, line 6"),
        "kafka-settings: ssl.key.pem": (None, "penstock.toml, line 7: ${UNSET}, not set"),
        "clusters.orders: kafka": ("other:9093", "penstock.toml, line 14"),
        "clusters.orders.kafka-settings: sasl.password": ("***", "penstock.toml, line 16: ${KAFKA_PASSWORD}"),
        "run: until-end": (True, "penstock.toml, line 9"),
        "paging: rules": ([{"lag-s": 1, "webhook": "***"}], "penstock.toml, line 10"),
    }
    assert SECRET not in json.dumps(settings) + table
    assert "postgresql://me:***" in table


def test_config_show_without_settings_names_the_file() -> None:
    """The note names the file that would be read."""
    assert "penstock.toml" in CliRunner().invoke(penstock_app, ["config", "show"]).output


def test_forwarded_options_configure_another_process(tmp_path: Path) -> None:
    """They contain the absolute path of the file, and the log format and level."""
    write_config("", "some.toml")
    forwarded: list[str] = []
    app = typer.Typer(cls=Root)

    @app.callback()
    def begin(
        config_file: Annotated[Path | None, typer.Option("--config")] = None,
        log_format: Annotated[LogFormat, typer.Option("--log-format")] = LogFormat.PRETTY,
        log_level: Annotated[LogLevel, typer.Option("--log-level")] = LogLevel.WARNING,
    ) -> None: ...

    @app.command()
    def forward(context: typer.Context) -> None:
        forwarded.extend(forwarded_options(context))

    CliRunner().invoke(app, ["forward", "--config", "some.toml", "--log-format", "json"], catch_exceptions=False)
    assert forwarded == ["--config", str(tmp_path / "some.toml"), "--log-format", "json", "--log-level", "warning"]


def test_given_options_are_words_of_another_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of variables and defaults are left out, because the other process has them, too; a command may leave out more."""
    monkeypatch.setenv("PENSTOCK_TEST_PLACE", "elsewhere")
    given: list[str] = []
    app = typer.Typer()

    @app.callback()
    def begin() -> None: ...

    @app.command()
    def forward(
        context: typer.Context,
        target: str,
        until: Annotated[list[str] | None, typer.Option("--until")] = None,
        keep_place: Annotated[bool, typer.Option("--keep-place")] = False,
        from_earliest: Annotated[bool, typer.Option("--from-earliest")] = False,
        stop_within: Annotated[float, typer.Option("--stop-within")] = 30.0,
        place: Annotated[str, typer.Option("--place", envvar="PENSTOCK_TEST_PLACE")] = "here",
        store: Annotated[str, typer.Option("--store")] = "",
    ) -> None:
        given.extend(given_options(context, without=["store"]))

    words = ["app.py", "--until", "-a b", "--until", "c", "--keep-place", "--stop-within", "2", "--store", "secret"]
    CliRunner().invoke(app, ["forward", *words], catch_exceptions=False)
    assert given == ["--until=-a b", "--until=c", "--keep-place", "--stop-within=2.0"]


def test_no_table_has_the_name_of_a_shared_option() -> None:
    """A name has one value in TOML."""
    commands = commands_of(typer.main.get_command(penstock_app))
    tables = {words[0] for words in commands if words} | {*SECTIONS, *NAMED_SECTIONS, TABLE}

    assert not tables & {option.name for option in Configuration(TomlFile(), commands).shared()}


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["run", "-h"], ["category", "create", "-h"]])
def test_help_and_version_need_no_configuration(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken configuration file does not hide them."""
    (tmp_path / "penstock.toml").write_text("kafka = ")
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(penstock_app, arguments)

    assert shown.exit_code == 0, shown.output
    assert f"penstock {ps.__version__} " in shown.output or "Usage: " in shown.output


@pytest.mark.parametrize("address", ["9092", "'9092'"])
def test_a_number_is_no_address_of_kafka(address: str) -> None:
    """It is refused before the first request, like other addresses without a host."""
    Path("penstock.toml").write_text(f"kafka = {address}\n")
    done = CliRunner().invoke(penstock_app, ["category", "show"])

    assert isinstance(done.exception, SettingsRefused)
    assert "'9092' contains no host" in str(done.exception)
    assert "localhost:9092" in str(done.exception)


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    """Editors on Windows write it."""
    Path("penstock.toml").write_bytes(b'\xef\xbb\xbfdir = "x"\n')

    assert output_of("report")["dir"] == "x"


def test_an_option_of_all_commands_without_its_value_is_named() -> None:
    """It may stand after the command, so its absence must not make the command its value."""
    done = CliRunner().invoke(penstock_app, ["category", "show", "--config"])

    assert done.exit_code == 2
    assert "The option --config needs a value" in done.output
