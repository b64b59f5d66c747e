"""Kinds of processors that are queries in SQL."""

from __future__ import annotations

from support.kinds import AFTER_MS, BEFORE_MS, BEHIND_MS, Answer, Event, Kind

from penstock.processors.declare import Partial
from penstock.processors.sql import SqlText, compile_app

_QUERIES = f"""
CREATE CATEGORY events (key text NOT NULL, at bigint NOT NULL, number bigint NOT NULL) WITH (key = 'key', time = 'at');
CREATE CATEGORY answers (key text NOT NULL, at bigint NOT NULL, number bigint NOT NULL) WITH (key = 'key', time = 'at');

CREATE TABLE hours WITH (out_of_orderness = '{BEHIND_MS} milliseconds') AS
SELECT
    key,
    window_start AS hour,
    count(*) AS count,
    coalesce(sum(number) FILTER (WHERE number % 3 > 0), 0) AS total,
    min(number) AS smallest,
    max(number) AS largest
FROM events
WHERE number % 7 > 0
GROUP BY key, tumble(at, interval '1 hour')
HAVING count(*) % 3 > 0
EMIT ON WINDOW CLOSE;

CREATE TABLE joined WITH (out_of_orderness = '{BEHIND_MS} milliseconds') AS
SELECT e.key, e.at, e.number, a.number AS answer
FROM events e
LEFT JOIN answers a ON a.key = e.key
    AND a.at BETWEEN e.at - interval '{BEFORE_MS} milliseconds' AND e.at + interval '{AFTER_MS} milliseconds';

CREATE TABLE hours_of_groups WITH (two_phase = true, out_of_orderness = '{BEHIND_MS} milliseconds') AS
SELECT 'r' || (number % 5) AS key, window_start AS hour, count(*) AS count, sum(number) AS total
FROM events
GROUP BY 1, tumble(at, interval '1 hour')
EMIT ON WINDOW CLOSE;
"""
_APP = compile_app(SqlText("simulated.sql", _QUERIES), __name__)
_HOURS, _JOINED, _HOURS_OF_GROUPS = _APP.processors
SQL_KINDS = {
    "sql windows": Kind(_HOURS, _APP.relations["hours"].category.record),
    "sql join": Kind(_JOINED, _APP.relations["joined"].category.record, {"events": Event, "answers": Answer}),
    "sql partials": Kind(_HOURS_OF_GROUPS, Partial),
    "sql combining": Kind(_HOURS_OF_GROUPS, _APP.relations["hours_of_groups"].category.record, {"partials": Partial}),
}
