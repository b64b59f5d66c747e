"""Messages and counts on a terminal."""

from __future__ import annotations

from penstock.ops.cli.output import printable
from penstock.ops.humanize import counted


def test_control_characters_of_a_message_do_not_reach_the_terminal() -> None:
    """They are shown as escapes; tabs, line ends and other languages remain."""
    assert printable("a\x1b[31mred\x07\r\x9b2J\ttab\nü 日本") == "a\\x1b[31mred\\x07\\x0d\\x9b2J\ttab\nü 日本"


def test_a_count_agrees_with_its_noun() -> None:
    """One record, two records, no records."""
    assert [counted(number, "record") for number in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]
