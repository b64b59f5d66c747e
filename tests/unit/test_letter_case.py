"""Patterns that ignore case letter by letter."""

from __future__ import annotations

import random
import re
import warnings

from penstock.processors.sql.letter_case import ignoring_case

PARTS = ["a", "b", "C", "D", "[", "]", "^", "-", ".", "*", "+", "?", "(", ")", "|", "\\", "w", "d", "1", "{", "}", "$"]
TEXTS = ["aAbBcCdD", "ab", "w-1 D", "[a]^"]


def test_of_ascii_the_pattern_matches_as_pythons() -> None:
    """The pattern may have sets, ranges, escapes, groups and references."""
    dice, compared = random.Random(2), 0
    for _ in range(8_000):
        pattern = "".join(dice.choice(PARTS) for _ in range(dice.randrange(1, 9)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets that a later Python may read otherwise
            try:
                expected = re.compile(pattern, re.IGNORECASE)
            except re.error:
                continue
            found = re.compile(ignoring_case(pattern))
        compared += 1

        assert [[match.span() for match in found.finditer(text)] for text in TEXTS] == [
            [match.span() for match in expected.finditer(text)] for text in TEXTS
        ], pattern
    assert compared > 1_000


def test_a_letter_stands_for_its_own_cases_only() -> None:
    """Python also equates letters that share an upper or lower case with it: the long s, the Kelvin sign, and an i without a dot."""
    pairs = [("s", "\u017f"), ("k", "\u212a"), ("[i-k]", "\u0131"), ("\\u0073", "\u017f")]

    assert [bool(re.search(ignoring_case(pattern), text)) for pattern, text in pairs] == [False] * 4
    assert [bool(re.search(pattern, text, re.IGNORECASE)) for pattern, text in pairs] == [True] * 4
    assert re.search(ignoring_case("[é-ê]ω"), "ÉΩ")
