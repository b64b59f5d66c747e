"""The processors of the backfill benchmark without their steps over columns."""

from __future__ import annotations

import flights_app as by_columns

import penstock as ps


class Lates(by_columns.Lates):
    """The processor without its step over columns."""

    process_columns = ps.Stateless.process_columns  # type: ignore[assignment]  # it may return None


class Days(by_columns.Days):
    """The processor without its step over columns."""

    observe_columns = ps.Aggregator.observe_columns  # type: ignore[assignment]  # as above


class Gaps(by_columns.Gaps):
    """The unchanged processor, which has no step over columns."""
