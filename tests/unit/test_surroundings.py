"""Commands in unusual surroundings: users without a name, and locales without the characters of the data."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.processors import user_name
from penstock.transport.codecs import decode_any
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import Schemas


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may have a random user, for which Python raises KeyError."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54_321)

    assert user_name() == "uid 54321"


def test_an_output_without_utf8_escapes_characters() -> None:
    """An error about a file with an umlaut in its name is printed instead of UnicodeEncodeError."""
    code = "import sys; sys.argv = ['penstock', 'run', 'k\\xfcche.py:App']; from penstock.ops.shell.command_line.main import main; main()"
    surroundings = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    ended = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=False)

    assert "Unicode" not in ended.stderr
    assert "k\\xfcche.py" in ended.stderr


@pytest.mark.parametrize("value", [b"\xc1\x01", b"\xc1\x01\xff", b"\xc3\x01" + bytes(20), b"\xc3\x01", b"[" * 9_999])
def test_a_value_that_only_begins_like_a_format_is_shown_as_text(value: bytes) -> None:
    """No value of another program ends `penstock category tail`."""
    assert decode_any(value, Schemas(MemoryBus())) == value.decode(errors="backslashreplace")
