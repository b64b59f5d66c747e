"""Phrases that plain sentences have replaced, and the folders that no longer contain them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

REWRITES = {
    r"whoever": "name the process or person: the worker, the owner, the reader",
    r"(?:some|any|no)body": "name the process or person, or use the passive: a user, no worker",
    r"those that|those who": "repeat the noun: events that, workers that",
    r"that of": "repeat the noun: the offset of",
    r"(?:is|are|was|were|be|been) told": "receives, is configured with, is reported",
    r"tells? (?:of|somebody)": "report",
    r"what becomes of": "the action for, the result of",
    r"(?:comes?|came) to (?:lie|an? end|its end|their end|nothing|pass)": "ends, reaches, is",
    r"mends?|mended|mending": "repair, fix",
    r"heirs?": "successor, next owner",
    r"(?:stands?|stood|standing) still": "pauses, hangs, does not advance",
    r"is of (?:use|before)": "is useful; is outdated",
    r"of before": "earlier, outdated, previous",
    r"(?:is|are|be) not to be had": "is unavailable",
    r"to be had": "available",
    r"made anew|makes anew": "recreate, rebuild",
    r"made good": "restored, repaired",
    r"goes by (?:the|what|arrival|promises)": "uses, depends on",
    r"lets? go of": "gives up, releases, is revoked",
    r"(?:is|are) waited for": "waits for",
    r"without a word|in silence": "silently, without an error",
    r"one's own": "your own",
    r"are gone|is gone": "has expired, is missing, was deleted",
    r"with nobody|by nobody": "without an owner",
    r"in bad order|in good order": "cleanly",
}
"""Rewrites by regular expression; each matches whole words, in any case."""

REWRITTEN = (
    "README.md",
    "CHANGELOG.md",
    "docs",
    "examples",
    "penstock",
    "processors",
    "transport",
    "state",
    "backfill",
    "ops",
    "benchmarks",
    "tests/simulation",
)
"""Clean folders and files."""

NOT_SCANNED = ("docs/decisions/",)
"""Decisions are dated records, so they keep their words."""

READ = (".py", ".md", ".js", ".html")
PATTERNS = {re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): rewrite for phrase, rewrite in REWRITES.items()}


def tracked(place: str) -> list[str]:
    """Return the tracked text files of a folder, or the file itself."""
    listed = subprocess.run(["git", "ls-files", "--", place], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if path.endswith(READ) and not path.startswith(NOT_SCANNED)]


def replaced_phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, the phrase and its rewrite for each replaced phrase, also across a line break."""
    for pattern, rewrite in PATTERNS.items():
        for match in re.finditer(pattern.pattern.replace(" ", r"\s+"), text, pattern.flags):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), rewrite


def complaints(path: str) -> list[str]:
    """Return one line per replaced phrase of a tracked file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return [f"{path}:{line}: “{phrase}”: {rewrite}" for line, phrase, rewrite in sorted(replaced_phrases(text))]


@pytest.mark.parametrize("place", REWRITTEN)
def test_rewritten_folders_contain_no_replaced_phrase(place: str) -> None:
    """A clean folder stays clean; the failure lists file, line, phrase and rewrite."""
    files = tracked(place)

    assert files
    assert not [complaint for path in files for complaint in complaints(path)]


def test_a_replaced_phrase_is_reported_with_its_line() -> None:
    """Case and line breaks do not hide a phrase; parts of longer words do not match."""
    text = "The worker recommends theirs.\nNobody reads it; the worker is\ntold."

    assert [(line, phrase) for line, phrase, _ in sorted(replaced_phrases(text))] == [(2, "Nobody"), (2, "is told")]


COUNTABLE = [
    "event",
    "record",
    "letter",
    "bucket",
    "message",
    "worker",
    "shard",
    "row",
    "day",
    "file",
    "key",
    "processor",
    "category",
    "state",
    "second",
    "minute",
    "member",
    "output",
    "value",
    "backup",
    "column",
    "line",
    "window",
    "field",
    "attempt",
    "snapshot",
    "pair",
    "group",
    "server",
    "partition",
    "segment",
    "reader",
    "app",
    "replica",
    "tombstone",
    "exception",
    "request",
    "offset",
    "table",
    "difference",
    "test",
]
ADJECTIVES = "more|new|other|dead|failed|different|unread|input"
LIBRARY = ("processors", "transport", "state", "backfill", "ops")
PLURAL = re.compile(rf" (?:(?:{ADJECTIVES}) )?(?:{'|'.join(COUNTABLE).replace('category', 'categorie')})s\b(?!/)")


def plurals_after_numbers(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each value in an f-string that a plural follows. A constant is not 1, and a name is no number."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in pairwise(node.values):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    words = PLURAL.match(str(text.value))
                    inserted = ast.unparse(value.value)
                    if words and not inserted.isupper() and "name" not in inserted:
                        yield text.lineno, inserted + words[0]


@pytest.mark.parametrize("place", LIBRARY)
def test_a_noun_has_the_number_of_the_number_before_it(place: str) -> None:
    """`counted(number, "event")` returns `1 event` and `2 events`."""
    files = [path for path in tracked(place) if path.endswith(".py")]

    assert files
    assert not [
        f"{path}:{line}: {words}"
        for path in files
        for line, words in plurals_after_numbers((ROOT / path).read_text(encoding="utf-8"))
    ]


def test_a_plural_after_a_number_is_reported() -> None:
    """An adjective may stand between them. Constants and units of a rate are not reported."""
    source = 'f"{n:,} events, {n} dead letters, {MOST} keys, {rate} events/s, {record_name} records"'

    assert [words for _, words in plurals_after_numbers(source)] == ["n events", "n dead letters"]


TAIL = re.compile(
    r"(?:And|Also|As|Although|But|Even|Instead|Likewise|Nor|Not|Or|So|Though|Unless)\b"
    r"|(?:After|At(?! least| most)|Because|Before|By|For|From|If|In|Including|Like|Of|On|Since|Than|To|Under|Until|When|Where|While|With"
    r"|Without)\b[^,]*$"
)
"""The beginning of a sentence that only continues another one: a conjunction, or an introduction that no main clause follows."""


def tails_of_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each docstring of a test that continues the test's name instead of forming a sentence, and its tail."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for sentence in re.split(r"(?<=[.!?])\s+", ast.get_docstring(node) or ""):
                if TAIL.match(sentence):
                    yield node.body[0].lineno, sentence


def test_docstrings_of_tests_are_sentences() -> None:
    """A reader understands each one without the name before it."""
    files = [path for path in tracked("tests") if path.endswith(".py")]

    assert files
    assert not [
        f"{path}:{line}: “{tail}”: write a complete sentence, or remove the docstring"
        for path in files
        for line, tail in tails_of_names((ROOT / path).read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(
    ("docstring", "tails"),
    [
        ("And no error.", ["And no error."]),
        ("It stops. Also after a restart.", ["Also after a restart."]),
        ("By its declaration.", ["By its declaration."]),
        ("By default, it stops. At least one event is read. Notes are kept.", []),
    ],
)
def test_a_docstring_that_continues_the_name_is_reported(docstring: str, tails: list[str]) -> None:
    """An introduction that a comma and a main clause follow begins a sentence."""
    source = f'def test_it() -> None:\n    """{docstring}"""'

    assert [tail for _, tail in tails_of_names(source)] == tails
