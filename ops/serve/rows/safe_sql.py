"""SELECTs of clients, restricted to the tables and to functions without effects.

text --sqlglot--> one query --names and functions checked--> SQL of the checked query

DuckDB itself reads no other file either: external access is off, and its configuration is locked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ....processors import did_you_mean
from ..results import BadQuery

MAX_TEXT = 20_000
"""The longest statement, in characters."""
_OTHER_NODES = (
    exp.Command,
    exp.Into,
    exp.Lock,
    exp.Placeholder,
    exp.Parameter,
    exp.SessionParameter,
    exp.Lambda,
    exp.Columns,
    exp.TableSample,  # of the stored rows, which are often a sample already
)
_SYSTEM = ("pg_", "duckdb_", "sqlite_", "pragma_")
"""How the names of DuckDB's own tables begin."""
_NAMES = (
    "abs and any_value approx_count_distinct approx_distinct approx_quantile arg_max arg_min array_agg avg bool_and bool_or case cast "
    "ceil ceiling coalesce concat concat_ws contains corr count count_if countif covar_pop covar_samp cume_dist current_date "
    "current_timestamp date_add date_bin date_diff date_part date_sub date_trunc datediff day dayofweek dayofyear dense_rank ends_with "
    "epoch epoch_ms exists exp extract first first_value floor greatest group_concat hash histogram hour if ifnull initcap isfinite "
    "isinf isnan json_extract json_extract_scalar json_extract_string kurtosis lag last last_value lcase lead least left length "
    "levenshtein ln log log10 log2 logical_and logical_or lower ltrim mad make_timestamp max max_by md5 median min min_by minute mod "
    "mode month now nth_value ntile nullif or percent_rank percentile_cont percentile_disc position pow power quantile quantile_cont "
    "quantile_disc quarter rank regexp_extract regexp_full_match regexp_like regexp_matches regexp_replace replace reverse right round "
    "row_number rtrim second sign skewness split_part sqrt starts_with stddev stddev_pop stddev_samp str_position str_to_time strftime "
    "string_agg strip strpos strptime substr substring sum time_bucket time_to_str timestamp_trunc to_days to_hours to_minutes "
    "to_seconds to_timestamp trim try_cast ts_or_ds_to_date ucase unix_millis unix_to_time upper var_pop var_samp variance variance_pop "
    "week weekday weekofyear xor year "
)
ALLOWED_FUNCTIONS = frozenset(_NAMES.split())
"""The functions of a SELECT, by the names of DuckDB or of the parser."""
_CALL = re.compile(r"(\w+)\(")


_DAY = "ds"


@dataclass(frozen=True)
class CheckedSelect:
    """A SELECT that was understood and checked.

    Args:
        sql: its SQL.
        tables: the tables that it reads, as they are declared.
        days: for tables that it reads at one place, with a condition on the column ds there, this condition.
    """

    sql: str
    tables: Sequence[str]
    days: dict[str, str]


def checked_select(text: str, tables: Collection[str]) -> CheckedSelect:
    """Return one SELECT over tables.

    Args:
        text: the statement, in DuckDB's dialect.
        tables: the tables that it may read.

    Raises:
        BadQuery: it is something else.
    """
    if len(text) > MAX_TEXT:
        raise BadQuery(f"The statement has {len(text):,} characters. Pass at most {MAX_TEXT:,}.")
    try:
        statements = sqlglot.parse(text, read="duckdb")
    except (SqlglotError, RecursionError) as error:
        reason = str(error) or "It is nested too deeply"
        raise BadQuery(f"The statement is no SQL that Scuba understands: {reason}.") from error
    [query, *others] = statements or [None]
    if others or not isinstance(query, exp.Query) or isinstance(query, (exp.Subquery, exp.Table)):
        raise BadQuery("Scuba runs one SELECT at a time, and changes nothing. Write SELECT … FROM ….")
    known = {name.lower() for name in tables}
    defined = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    for node in query.walk():
        if isinstance(node, exp.Table):
            _expect_table(node, known | defined, sorted(tables))
        elif isinstance(node, exp.Func):
            _expect_function(node)
        elif isinstance(node, _OTHER_NODES):
            raise BadQuery(
                f"Scuba does not run {node.sql('duckdb')[:80]!r}. Write a SELECT of columns and functions of them."
            )
    found: dict[str, list[exp.Table]] = {}
    for table in query.find_all(exp.Table):
        found.setdefault(table.name.lower(), []).append(table)
    places = {name: found[name.lower()] for name in tables if name.lower() in found}
    days = {name: condition for name, [place, *more] in places.items() if not more and (condition := _days(place))}
    return CheckedSelect(query.sql("duckdb"), list(places), days)


def _days(table: exp.Table) -> str:
    """Return the conditions of a SELECT from this table alone that only its days decide; empty without any."""
    select = table.parent_select
    where = select and select.args.get("where")
    if not select or not where or not _is_only_relation(table, select):
        return ""
    conditions = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    return " AND ".join(f"({_unqualified(each)})" for each in conditions if _is_of_day(each, table))


def _is_only_relation(table: exp.Table, select: exp.Select) -> bool:
    """Return whether a SELECT has no other relation, such as VALUES, whose columns a condition could be of."""
    if len(list(select.find_all(exp.Table))) > 1 or any(select.args.get(name) for name in ("joins", "laterals")):
        return False
    return isinstance(table.parent, exp.From) and not (table.args.get("joins") or table.args.get("pivots"))


def _is_of_day(condition: exp.Expr, table: exp.Table) -> bool:
    columns = list(condition.find_all(exp.Column))
    names = {"", table.alias_or_name.lower()}
    is_of_table = all(column.name.lower() == _DAY and column.table.lower() in names for column in columns)
    return bool(columns) and is_of_table and not condition.find(exp.Query)


def _unqualified(condition: exp.Expr) -> str:
    found = condition.copy()
    for column in list(found.find_all(exp.Column)):
        column.set("table", None)
    return found.sql("duckdb")


def _expect_table(node: exp.Table, names: Collection[str], tables: Collection[str]) -> None:
    is_plain = isinstance(node.this, exp.Identifier) and not node.args.get("db") and not node.args.get("catalog")
    is_system = node.name.lower().startswith(_SYSTEM)  # even if a WITH elsewhere defines the name
    if not is_plain or is_system or node.name.lower() not in names:
        quoted = ", ".join(f'"{name}"' for name in tables)
        raise BadQuery(
            f"There is no table {node.sql('duckdb')[:80]!r}. The tables are: {quoted}.{did_you_mean(node.name, list(tables))}"
        )


def _expect_function(node: exp.Func) -> None:
    name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
    # Both the parser and DuckDB have names for a function, and a user writes the one of DuckDB.
    called = _CALL.match(node.sql("duckdb"))
    if name not in ALLOWED_FUNCTIONS and (called is None or called[1].lower() not in ALLOWED_FUNCTIONS):
        name = name if called is None else called[1].lower()
        raise BadQuery(
            f"Scuba does not run the function {name}. Use an aggregate, or a function of texts, numbers or times."
        )
