"""Messages and counts on a terminal."""

from __future__ import annotations

import pytest

from penstock.ops.shell import print_table
from penstock.processors import counted, printable


def test_control_characters_of_a_message_do_not_reach_the_terminal() -> None:
    """They are shown as escapes; tabs, line ends and other languages remain."""
    assert printable("a\x1b[31mred\x07\r\x9b2J\ttab\nü 日本") == "a\\x1b[31mred\\x07\\x0d\\x9b2J\ttab\nü 日本"


def test_a_count_agrees_with_its_noun() -> None:
    """The phrases are one record, two records, and no records."""
    assert [counted(number, "record") for number in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]


def test_a_row_of_a_table_for_a_program_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """At 80 columns, the name of a processor would be broken in two, and grep would not find it."""
    names = ["a-processor-with-a-long-name" * 3, "another-name" * 9]
    print_table(("processor", "reason"), [names])

    title, row = capsys.readouterr().out.splitlines()
    assert title.split() == ["processor", "reason"]
    assert row.split() == names
