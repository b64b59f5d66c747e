"""Regular expressions that ignore case as PostgreSQL does.

Each letter of the pattern stands for itself and its lower and upper case, one character each. Python's IGNORECASE also equates letters
that have a lower or upper case in common, such as `k` and the Kelvin sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_TOKEN = re.compile(
    r"""
    (?P<code>\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})
    |(?P<reference>\\[1-9][0-9]?|\(\?P=\w+\))
    |(?P<other>\\.|\(\?(?:P<\w+>|\#[^)]*\)|[aiLmsux-]+[:)]|<[=!]|\(\w+\)))
    |(?P<letter>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|.", re.DOTALL)
_ESCAPES = {"\\" + name: value for name, value in zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)}


def ignoring_case(pattern: str) -> str:
    """Return a valid pattern that matches texts in any case."""
    parts, at = [], 0
    while at < len(pattern):
        if pattern[at] == "[":
            end = _end_of_set(pattern, at)
            parts.append(_set_in_cases(pattern[at:end]))
            at = end
            continue
        token = _TOKEN.match(pattern, at)
        if token is None:  # the pattern ends with a backslash
            return pattern
        parts.append(_in_cases(token))
        at = token.end()
    return "".join(parts)


def _in_cases(token: re.Match[str]) -> str:
    text = token.group()
    if token.lastgroup == "reference":
        return f"(?i:{text})"
    if token.lastgroup == "other":
        return text
    letter = _character(text)
    further = "".join(map(_escaped, _cases_of(letter)))
    return f"[{_escaped(letter)}{further}]" if further else text


def _end_of_set(pattern: str, begin: int) -> int:
    """Return the index behind a set of characters. A bracket at its beginning is one of them."""
    at = begin + 1 + (pattern[begin + 1 : begin + 2] == "^")
    at += pattern[at : at + 1] == "]"
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _set_in_cases(text: str) -> str:
    """Return a set of characters with the other cases of each."""
    begin = 2 if text.startswith("[^") else 1
    further = {case for letter in _members(text[begin:-1]) for case in _cases_of(letter)}
    if not further:
        return text
    inner = text[:-1]
    if _MEMBER.findall(inner)[-1] == "-":  # at the end of a set, it is no range
        inner = f"{inner[:-1]}\\-"
    return f"{inner}{''.join(map(_escaped, sorted(further)))}]"


def _members(text: str) -> Iterator[str]:
    """Yield the characters of a set, without classes, such as digits: they contain both cases."""
    members = _MEMBER.findall(text)
    at = 0
    while at < len(members):
        first = _character(members[at])
        last = _character(members[at + 2]) if members[at + 1 : at + 2] == ["-"] and at + 2 < len(members) else first
        at += 1 if last is first else 3
        if len(first) == len(last) == 1:
            yield from map(chr, range(ord(first), ord(last) + 1))


def _character(text: str) -> str:
    """Return the character that a part of a pattern denotes; of a class, the part."""
    if text[:2] in {"\\x", "\\u", "\\U"} and len(text) > len("\\x"):
        return chr(int.from_bytes(bytes.fromhex(text[2:].zfill(8)), "big"))
    if len(text) == len("\\w") and text[0] == "\\" and not text[1].isalnum():
        return text[1]
    return _ESCAPES.get(text, text)


def _cases_of(letter: str) -> Iterable[str]:
    """Return the lower and upper case of a letter that are other characters; none for a letter without one of a single character."""
    return sorted({case for case in (letter.lower(), letter.upper()) if len(case) == 1 and len(letter) == 1} - {letter})


def _escaped(letter: str) -> str:
    return "\\" + letter if letter in "\\[]^-&~|" else letter
