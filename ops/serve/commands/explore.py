"""`penstock explore`: queries of the newest events, from a server that `penstock serve scuba` started."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Protocol, get_args

import msgspec
import typer

from ....processors import UNKNOWN, counted, human_duration
from ...http import read_secret
from ...shell import (
    OptionGroup,
    WebHdfs,
    expect_no_source,
    format_time,
    note,
    print_json,
    print_table,
    with_option_groups,
)
from ..rows import (
    DEFAULT_SERIES,
    DEFAULT_URL,
    Aggregation,
    DaysRead,
    Exploration,
    ExploreQuery,
    Filter,
    Function,
    Operator,
    SampledEstimate,
    SampleQuery,
    ScubaClient,
    SqlQuery,
    SqlRows,
    TableInfo,
    Tables,
)
from .scuba_options import missing
from .server_options import SCUBA, ScubaToken

_OPERATORS = sorted(get_args(Operator), key=len, reverse=True)
_FILTER = re.compile(
    rf"(?P<column>\S+?)\s*(?P<op>{'|'.join(re.escape(each).replace(chr(92) + ' ', chr(92) + 's+') for each in _OPERATORS)})(?P<value>.*)",
    re.DOTALL,
)
_NO_HURRY = timedelta(hours=1)
"""The time limit of a query that only this terminal waits for."""
_SHARE = re.compile(r"share\((.+)\)", re.DOTALL)
_AGGREGATE = re.compile(r"(\w+)(?:\((.+)\)|:(.+))?")


@dataclass(frozen=True)
class _Server(OptionGroup):
    """The server, and what it requires."""

    url: Annotated[
        str,
        typer.Option("--server", envvar="PENSTOCK_SCUBA", metavar="URL", help="The address of `penstock serve scuba`."),
    ] = DEFAULT_URL
    token_file: ScubaToken = None
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            metavar="LOCATION",
            help="Query all days of this warehouse, a folder or hdfs://host:port/path, in place of a server: archived categories, and other Parquet tables.",
            show_default=False,
        ),
    ] = None
    webhdfs: WebHdfs = None
    ca_file: Annotated[
        Path | None,
        typer.Option("--tls-ca", help="The certificates to trust (PEM), for a server with TLS.", show_default=False),
    ] = None


@dataclass(frozen=True)
class _Question(OptionGroup):
    """A query in options."""

    table: Annotated[
        str | None, typer.Option("--table", "-t", help="The table, which is a category.", show_default=False)
    ] = None
    aggregates: Annotated[
        list[str] | None,
        typer.Option(
            "--aggregate",
            "-a",
            metavar="FUNCTION[(COLUMN)]",
            help='count, or sum, avg, min, max, p50, p95, p99 or distinct of a column, or a share such as "share(status >= 500)". Repeatable; the first one ranks.',
            show_default="count",
        ),
    ] = None
    group_by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="COLUMN", help="Group by this column. Repeatable.", show_default=False),
    ] = None
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help='A condition, such as "ms > 100", "page contains shop" or "page in /a,/b". Repeatable.',
            show_default=False,
        ),
    ] = None
    last: Annotated[
        str | None, typer.Option("--last", metavar="DURATION", help="Only the last 10m or 2h.", show_default=False)
    ] = None
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="The begin of a time range.", show_default=False)
    ] = None
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="The end of a time range.", show_default=False)
    ] = None
    by_arrival: Annotated[
        bool, typer.Option("--by-arrival", help="Times are those of the arrival, not event times.")
    ] = False
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="Print a time series with this interval.", show_default=False),
    ] = None
    limit: Annotated[int, typer.Option("--limit", min=1, help="The largest number of groups.")] = DEFAULT_SERIES
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="DURATION",
            help="Also print the values of the same time range, 1h, 1d or 7d earlier.",
            show_default=False,
        ),
    ] = None
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=1, help="Print this many of the newest rows instead.", show_default=False),
    ] = None


@with_option_groups
def explore(
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="A SELECT in DuckDB's dialect.", show_default=False),
    ] = None,
    *,
    question: _Question,
    server: _Server,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    parquet: Annotated[
        Path | None,
        typer.Option(
            "--parquet",
            metavar="FILE",
            help="Save the answer to this file as Parquet, up to a million rows.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Ask a query of the newest events of a category, of a server that `penstock serve scuba` started. Without a query, list the tables.

    Example: penstock explore --table views --by page --aggregate "p95(ms)" --where "ms > 100" --last 10m

    --warehouse queries all archived days instead. A time range, or a condition on ds, leaves other days unread.

    Example: penstock explore "SELECT page, count(*) FROM views GROUP BY page ORDER BY 2 DESC LIMIT 5"
    """
    if sql is not None and sql.isidentifier():
        raise typer.BadParameter(f"{sql!r} is no SELECT. Did you mean `--table {sql}`?")
    if as_json + as_csv + (parquet is not None) > 1:
        raise typer.BadParameter("--json, --csv and --parquet exclude each other. Leave all but one of them out.")
    printer = _Printer(as_json=as_json, as_csv=as_csv)
    if server.warehouse is not None:
        with _warehouse(server.warehouse, server.webhdfs) as asked:
            _answer(asked, sql, question, parquet, printer)
        return
    client = ScubaClient(server.url, token=read_secret(server.token_file, SCUBA.variable), ca_file=server.ca_file)
    _answer(client, sql, question, parquet, printer)


class _Asked(Protocol):
    """What answers: a server, or the warehouse in this process."""

    def tables(self) -> Tables: ...

    def explore(self, query: ExploreQuery) -> Exploration: ...

    def samples(self, query: SampleQuery) -> SqlRows: ...

    def select(self, sql: str) -> SqlRows: ...

    def exported(self, query: ExploreQuery | SampleQuery | SqlQuery, form: str) -> bytes: ...


def _answer(asked: _Asked, sql: str | None, question: _Question, parquet: Path | None, printer: _Printer) -> None:
    """Ask, and print or save the answer."""
    if parquet is not None:
        expect_no_source(parquet)
        _write(parquet, asked.exported(_query(sql, question), "parquet"))
    elif sql is not None:
        if question != _Question():
            raise typer.BadParameter("A SELECT contains its whole query. Leave the other options out.")
        printer.sql(asked.select(sql))
    elif question.table is None:
        if question != _Question():
            raise typer.BadParameter("Name the table with --table. `penstock explore` lists the tables.")
        printer.tables(asked.tables().tables)
    elif question.rows is not None:
        printer.sql(asked.samples(_sample_query(question, question.table, question.rows)))
    else:
        printer.exploration(asked.explore(_explore_query(question, question.table)))


@contextmanager
def _warehouse(location: str, webhdfs: str | None) -> Iterator[_Asked]:
    """Yield the warehouse, which is queried in this process."""
    try:
        from ..rows import (  # noqa: PLC0415 - DuckDB is an extra
            Explorer,
            QueryLimits,
            WarehouseTables,
        )
    except ModuleNotFoundError as error:
        raise missing(error) from error
    with closing(WarehouseTables(location, webhdfs=webhdfs)) as tables:
        yield Explorer([tables], QueryLimits(_NO_HURRY))


def _query(sql: str | None, question: _Question) -> ExploreQuery | SampleQuery | SqlQuery:
    if sql is not None:
        return SqlQuery(sql)
    if question.table is None:
        raise typer.BadParameter("--parquet saves the answer to a query. Write a SELECT, or name a table with --table.")
    if question.rows is not None:
        return _sample_query(question, question.table, question.rows)
    return _explore_query(question, question.table)


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error}. Nothing was saved. Name another file.") from error
    note(f"Saved {file} ({counted(len(content), 'byte')}).")


def _explore_query(question: _Question, table: str) -> ExploreQuery:
    return ExploreQuery(
        table=table,
        aggregates=[parse_aggregate(text) for text in question.aggregates or ["count"]],
        group_by=list(question.group_by or ()),
        filters=[parse_filter(text) for text in question.filters or ()],
        last=question.last,
        begin=question.begin,
        end=question.end,
        time="_arrived" if question.by_arrival else "_event_time",
        every=question.every,
        series=question.limit,
        compare=question.compare,
    )


def _sample_query(question: _Question, table: str, rows: int) -> SampleQuery:
    return SampleQuery(
        table=table,
        filters=[parse_filter(text) for text in question.filters or ()],
        last=question.last,
        begin=question.begin,
        end=question.end,
        time="_arrived" if question.by_arrival else "_event_time",
        limit=rows,
    )


def parse_filter(text: str) -> Filter:
    """Parse a condition such as `ms > 100`."""
    match = _FILTER.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f'{text!r} is no condition. Write COLUMN OPERATOR VALUE, such as "ms > 100". The operators are: {", ".join(get_args(Operator))}.'
        )
    op: Any = " ".join(match["op"].split())
    value = match["value"].strip()
    if op in {"in", "not in"}:
        return Filter(match["column"], op, [each.strip() for each in value.split(",")])
    return Filter(match["column"], op, None if op in {"is null", "is not null"} else value)


def parse_aggregate(text: str) -> Aggregation:
    """Parse an aggregate such as `p95(ms)` or `share(status >= 500)`."""
    share = _SHARE.fullmatch(text.strip())
    if share is not None:
        condition = parse_filter(share[1])
        return Aggregation("share", condition.column, condition.op, condition.value)
    match = _AGGREGATE.fullmatch(text.strip())
    if match is None or match[1] not in get_args(Function):
        raise typer.BadParameter(
            f"{text!r} is no aggregate. Write count, or one such as p95(ms). The functions are: {', '.join(get_args(Function))}."
        )
    function: Any = match[1]
    return Aggregation(function, match[2] or match[3])


@dataclass(frozen=True)
class _Printer:
    """Prints answers as a table, as JSON lines or as CSV."""

    as_json: bool
    as_csv: bool

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print rows."""
        if self.as_json:
            for row in rows:
                print_json(dict(zip(columns, row, strict=True)))
        elif self.as_csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        else:
            print_table(columns, [["NULL" if cell is None else cell for cell in row] for row in rows])

    def tables(self, tables: Sequence[TableInfo]) -> None:
        """Print the tables."""
        if self.as_json:
            for each in tables:
                print_json(msgspec.to_builtins(each))
            return
        rows = [
            [
                each.table,
                ", ".join(column.name for column in each.columns),
                UNKNOWN if each.rows is None else each.rows,
                "all" if each.sample == 1 else f"{each.sample:.4g}",
                "" if each.first_ms is None else format_time(each.first_ms),
                lag_text(each.lag_events, each.lag_s) if each.days is None else f"{counted(each.days, 'day')}",
                each.rejected,
            ]
            for each in tables
        ]
        self.rows(["table", "columns", "rows", "sample", "since", "lag", "rejected"], rows)
        for each in tables:
            for rejection in each.rejections:
                note(f"{each.table}: rejected: {rejection}")
            if each.problem:
                note(f"{each.table}: {each.problem}")

    def sql(self, found: SqlRows) -> None:
        """Print rows."""
        self.rows(found.columns, found.rows)
        more = f" There are more: only {counted(len(found.rows), 'row')} fit." if found.is_truncated else ""
        note(f"{counted(len(found.rows), 'row')} in {found.elapsed_ms:,.0f} ms{_days_text(found.days)}.{more}")

    def exploration(self, found: Exploration) -> None:
        """Print groups, or their time series."""
        names = found.aggregates
        columns = [*found.group_by, *(part for name in names for part in self._columns(name, found))]
        if found.points:
            rows = [
                [format_time(point.start_ms), *found.rows[point.series].group, *self._cells(point.values, found)]
                for point in found.points
            ]
            self.rows(["time", *columns], rows)
        elif found.compared:
            columns += [f"{part} before" for name in names for part in self._columns(name, found)]
            missing = [SampledEstimate(None, None)] * len(names)
            rows = [
                [*row.group, *self._cells(row.values, found), *self._cells(before or missing, found)]
                for row, before in zip(found.rows, found.compared, strict=True)
            ]
            self.rows(columns, rows)
        else:
            self.rows(columns, [[*row.group, *self._cells(row.values, found)] for row in found.rows])
        least = "at least " if found.is_sampled else ""  # no row of the sample may be in a group
        groups = f" of {least}{counted(found.groups, 'group')}" if least or found.groups > len(found.rows) else ""
        note(
            f"{counted(len(found.rows), 'group')}{groups}, from {counted(found.matched, 'row')}{' of a sample' if found.is_sampled else ''}, in "
            f"{found.elapsed_ms:,.0f} ms{_days_text(found.days) or '; ' + lag_text(found.lag_events, found.lag_s)}."
            + (" There are more points: choose a longer --every." if found.is_truncated else "")
            + (
                " Rows of the earlier time range may be missing: the table begins later."
                if found.is_compared_partly
                else ""
            )
            + (
                f" {counted(found.not_finite, 'value')} that are infinite or no numbers (NaN) are left out."
                if found.not_finite
                else ""
            )
            + (f" {found.problem}" if found.problem else "")
        )

    def _columns(self, name: str, found: Exploration) -> list[str]:
        return [name, f"{name} ±"] if found.is_sampled else [name]

    def _cells(self, values: Sequence[SampledEstimate], found: Exploration) -> list[Any]:
        if not found.is_sampled:
            return [each.value for each in values]
        return [cell for each in values for cell in (_rounded(each.value), _rounded(each.margin))]


def _rounded(value: Any) -> Any:
    """Return an estimate with as many digits as it deserves."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _days_text(days: DaysRead | None) -> str:
    return "" if days is None else f", from {days.read:,} of {counted(days.total, 'day')}"


def lag_text(lag_events: int | None, lag_s: float | None) -> str:
    """Return how far a table is behind."""
    if lag_events is None:
        return f"lag {UNKNOWN}"
    age = "" if not lag_s else f" ({human_duration(lag_s)})"
    return f"{counted(lag_events, 'event')} behind{age}" if lag_events else "no lag"
