"""Laser tables that the configuration declares."""

from __future__ import annotations

import pytest
import typer
from support.laser_site import rankings

from penstock.ops.serve.commands.laser_options import TableOptions
from penstock.ops.serve.commands.laser_tiers import names_to_deploy
from penstock.ops.serve.latest.declared_table import DeclaredTable
from penstock.ops.serve.latest.table import LatestTable
from penstock.processors import DeclarationError

DECLARED = DeclaredTable("carrier", ["top", "flights"], "7d", category="rankings", app="rankings.py")


def test_a_declared_table_needs_no_options() -> None:
    """Lists of columns are read as on the command line."""
    options = TableOptions().or_declared("tops", DECLARED)

    assert options == TableOptions("carrier", "top,flights", "7d", "rankings", "rankings.py", None)
    assert options.columns() == (("carrier",), ("top", "flights"))


def test_an_option_has_precedence_over_the_declaration() -> None:
    """The others remain."""
    options = TableOptions(value="top", keep="1d").or_declared("tops", DECLARED)

    assert options == TableOptions("carrier", "top", "1d", "rankings", "rankings.py", None)


@pytest.mark.parametrize(("options", "missing"), [(TableOptions(), "--key"), (TableOptions("carrier"), "--value")])
def test_columns_that_nobody_names_are_refused(options: TableOptions, missing: str) -> None:
    """The error contains both ways to name them."""
    with pytest.raises(typer.BadParameter, match=rf"{missing} is missing: .*\[laser-tables\.tops\]"):
        options.or_declared("tops", None)


def test_a_name_with_dots_is_quoted() -> None:
    """TOML would read it as nested tables."""
    with pytest.raises(typer.BadParameter, match=r'\[laser-tables\."daily\.tops"\]'):
        TableOptions().or_declared("daily.tops", None)


@pytest.mark.parametrize("name", ["tops of today", "tops/1", ""])
def test_a_name_that_no_topic_may_have_is_refused(name: str) -> None:
    """The name of the table is refused first, since the user does not know the name of its processor."""
    with pytest.raises(typer.BadParameter, match="cannot be the name of a table"):
        TableOptions("carrier", "top").or_declared(name, None)


@pytest.mark.parametrize(("key", "value"), [(("carrier", "carrier"), ("top",)), (("carrier",), ("top", "at", "top"))])
def test_a_column_that_is_named_twice_is_refused(key: tuple[str, ...], value: tuple[str, ...]) -> None:
    """It is a slip, and an object has it once anyway."""
    with pytest.raises(DeclarationError, match=r"column (carrier|top) twice"):
        LatestTable("tops", rankings, key, value)


def test_all_declared_tables_are_deployed_only_if_asked_for() -> None:
    """A forgotten name must not change every table."""
    assert names_to_deploy(None, ["tops", "busy"], all_tables=True) == ["tops", "busy"]
    assert names_to_deploy("other", ["tops"], all_tables=False) == ["other"]
    with pytest.raises(typer.BadParameter, match=r"add --all for all that the configuration declares: tops, busy\."):
        names_to_deploy(None, ["tops", "busy"], all_tables=False)
    with pytest.raises(typer.BadParameter, match="the configuration declares none"):
        names_to_deploy(None, [], all_tables=True)
    with pytest.raises(typer.BadParameter, match="Leave one of the two out"):
        names_to_deploy("tops", ["tops"], all_tables=True)


@pytest.mark.parametrize("options", [TableOptions(key="carrier"), TableOptions(keep="7d")])
def test_options_of_one_table_are_refused_for_all(options: TableOptions) -> None:
    """They would replace what each table declares."""
    with pytest.raises(typer.BadParameter, match="is for one table"):
        options.expect_for_all()
