"""The processors of the backfill benchmark without their steps over columns."""

from __future__ import annotations

import flights_app as by_columns

import penstock as ps


class Lates(by_columns.Lates):
    """The same, event by event."""

    process_columns = ps.Stateless.process_columns


class Days(by_columns.Days):
    """The same, event by event."""

    observe_columns = ps.Aggregator.observe_columns


class Gaps(by_columns.Gaps):
    """The same, as it is: it has no other step."""
