"""Hints for command lines that cannot be parsed: the usual slips of people who know other tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ....processors import did_you_mean
from ....processors.apps import names_app

_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)|Got unexpected extra argument\(s\) \((.*)\)")
_MISSING = re.compile(r"Missing option '(--[a-z-]+)'")
_UNKNOWN_COMMAND = re.compile(r"No such command '([^']*)'\.")
_UNKNOWN_LETTER = re.compile(r"No such option: (-[a-zA-Z])$")
_CHOICE = re.compile(r".*'([^']*)' is not one of (.*)", re.DOTALL)
_UNKNOWN_OPTION = re.compile(r"No such option: --([a-z-]+)")
_UNITS = ("second", "minute", "hour", "day", "week")
_SYNONYMS = {
    **dict.fromkeys(("create", "make", "save"), ("take", "create", "new")),
    **dict.fromkeys(("new", "add"), ("create", "take")),
    "topics": ("category show",),
    **dict.fromkeys(("rm", "remove", "destroy"), ("delete", "undeploy")),
    **dict.fromkeys(("get", "info", "inspect", "describe", "ls", "list", "export"), ("show", "list")),
    **dict.fromkeys(("consume", "read", "cat", "tail"), ("tail", "category tail")),
    **dict.fromkeys(("produce", "write", "publish", "send"), ("send", "category send")),
    **dict.fromkeys(("start", "exec"), ("run", "up", "deploy")),
    **dict.fromkeys(("stop", "kill"), ("down", "undeploy")),
    "ps": ("deployments",),
    "infer": ("category infer",),
}
"""The names of commands that a word of another tool may mean, in the order of preference."""


def hint_of(message: str, words: Sequence[str], arguments: Collection[str] = ()) -> str:
    """Return a sentence with the command line that was probably intended, to append to a message; empty without one.

    Args:
        message: the error of the parser.
        words: the words of the command line.
        arguments: the names of the command's arguments.
    """
    unknown = _UNKNOWN_OPTION.match(message)
    if unknown and unknown[1] in arguments:
        return f". The {unknown[1]} is an argument: write it without `--{unknown[1]}`."
    letter = _UNKNOWN_LETTER.match(message)
    long = next((word for word in words if letter and word.startswith(letter[1]) and len(word) > len("-x")), None)
    if long:
        return f". Did you mean `-{long}`?"
    choice = _CHOICE.match(message)
    if choice:
        return did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2]))
    missing = _MISSING.match(message)
    if missing and words and words[-1].isdecimal():
        return f" Did you mean `{missing[1]} {words[-1]}`?"
    return _hint_about_words(message, words)


def _hint_about_words(message: str, words: Sequence[str]) -> str:
    """Return the hint about a word that the command does not expect."""
    extra = _EXTRA.match(message)
    first = (extra[1] or extra[2] or "").split(" ")[0] if extra else ""
    if not first or first not in words[1:]:
        return ""
    index = words.index(first, 1)
    before, option = words[index - 1], words[index - 2] if index > 1 else ""
    if names_app(before) and ":" not in before and first.isidentifier():
        return f" Did you mean `{before}:{first}`?"
    if not option.startswith("--"):
        return ""
    unit = first.lower().rstrip("s")
    if before.isdecimal() and unit in _UNITS:
        ago = ' ago"' if words[index + 1 : index + 2] == ["ago"] else ""
        return f" Did you mean `{option} {ago and chr(34)}{before}{unit[0]}{ago}`? A value with a space needs quotes."
    return f' A value with a space needs quotes: `{option} "{before} {first}"`.'


def command_named(message: str, commands: Collection[str]) -> str | None:
    """Return the message about an unknown command with the command that people call so in other tools; None if unknown.

    Args:
        message: the error of the parser.
        commands: the commands of the group, as people write them after its name.
    """
    unknown = _UNKNOWN_COMMAND.match(message)
    intended = next((name for name in _SYNONYMS.get(unknown[1], ()) if name in commands), None) if unknown else None
    return None if unknown is None or intended is None else f"{unknown[0]} Did you mean '{intended}'?"
