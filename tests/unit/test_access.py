"""Access to servers: with a token from a file or a variable, or from this machine only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.main import get_command

from penstock.ops.http import Access, read_secret
from penstock.ops.http.access import AccessRefused
from penstock.ops.serve.commands.server_options import RESULTS
from penstock.ops.shell.command_line.main import app

TOKEN = "a-token-of-the-tests"  # noqa: S105 - of no server
VARIABLE = RESULTS.variable


@pytest.mark.parametrize("host", ["127.0.0.1:8730", "localhost", "[::1]:8730"])
def test_without_a_token_only_names_of_this_machine_are_accepted(host: str) -> None:
    """Another name may be a DNS rebinding attack."""
    access = Access(RESULTS)

    assert access.visitor(host, "") is not None
    assert access.visitor("example.com", "") is access.visitor("", "") is None
    assert access.visitor("[::1", "") is access.visitor("127.0.0.1:x", "") is None  # such as of a scanner


def test_a_token_opens_a_server_under_any_name() -> None:
    """A page of another site has no token."""
    access = Access(RESULTS, TOKEN)

    assert access.visitor("example.com", f"bearer  {TOKEN}") is not None
    for wrong in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ", "Bearer \xff"):
        assert access.visitor("127.0.0.1", wrong) is None
    assert TOKEN not in repr(access)


def test_the_file_of_a_token_counts_more_than_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options have the same precedence. Space around the token is ignored, and an empty variable counts as unset."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    found = {}
    for value in ("", "token-of-the-variable\n"):
        monkeypatch.setenv(VARIABLE, value)
        found[value] = (read_secret(None, VARIABLE), read_secret(file, VARIABLE))

    assert found == {"": (None, TOKEN), "token-of-the-variable\n": ("token-of-the-variable", TOKEN)}


@pytest.mark.parametrize(
    ("content", "length"),
    [
        ("short", "5 characters"),
        ("x", "1 character,"),
        ("", "0 "),
        ("two words of sufficient length", "30 "),
        ("ümlaut-is-not-ascii", "19 "),
    ],
)
def test_an_unusable_token_is_refused(
    content: str, length: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token must be too long to guess, and must fit into a header. The same holds for a token from a variable."""
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(AccessRefused, match=f"The token in {file} has {length}.*could be guessed.*at least 16"):
        read_secret(file, VARIABLE)
    monkeypatch.setenv(VARIABLE, content or " ")
    with pytest.raises(AccessRefused, match=f"The token in {VARIABLE} has {length}"):
        read_secret(None, VARIABLE)


def test_a_missing_file_of_a_token_is_refused(tmp_path: Path) -> None:
    """The variable does not replace the file. The error contains the command that creates it."""
    with pytest.raises(AccessRefused, match=r"token_urlsafe.* > .*absent"):
        read_secret(tmp_path / "absent", VARIABLE)


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "results"],
        ["query"],
        ["serve", "laser"],
        ["serve", "scuba"],
        ["explore"],
        ["serve", "dashboard"],
    ],
)
def test_servers_and_their_clients_take_the_token_alike(words: Sequence[str]) -> None:
    """Both read it from a file or a variable, because other users could read a secret on a command line."""
    command = get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    options = {name: option for option in command.params for name in option.opts}
    secrets = {name for name in options if "token" in name or "secret" in name}

    assert "--token-file" in secrets
    assert all(name.endswith("-file") for name in secrets)
    assert "PENSTOCK_" in vars(options["--token-file"])["help"]
