"""Counters of a batch run with repeated tasks."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from penstock.backfill.spark.counts import HIGHEST, Totals

reports = st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 100)), max_size=6)


def merged(reports: list[Totals]) -> Totals:
    """Return what a driver has of reports that came in this order."""
    found: Totals = {}
    for report in deepcopy(reports):
        found = HIGHEST.addInPlace(found, report)
    return found


@given(reports, st.data())
def test_reports_may_come_in_any_order_and_more_than_once(reports: list[Totals], data: st.DataObject) -> None:
    """The highest total of a repeated task counts."""
    again = [*reports, *data.draw(st.lists(st.sampled_from(reports), max_size=3) if reports else st.just([]))]

    assert merged(data.draw(st.permutations(again))) == merged(reports)
    assert merged([*reports, {5: 101}])[5] == 101
