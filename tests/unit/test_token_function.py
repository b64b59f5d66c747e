"""Tokens from a function of the user's."""

from __future__ import annotations

import base64
import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.transport import SettingsRefused
from penstock.transport.kafka import KafkaSettings

SECRET = "eyJ-of-the-tests"  # noqa: S105 - of no service
LATER_S = time.time() + 3600
MODULE = """
TOKENS = {}

def token(config):
    result = TOKENS[config]
    if isinstance(result, Exception):
        raise result
    return result

number = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a module of tokens."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_tokens.py").write_text(MODULE)
    return tmp_path


def of(place: str) -> Any:
    """Return the function that a client gets."""
    mechanism = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    return KafkaSettings("127.0.0.1:1", {**mechanism, "oauth_cb": place}).for_admin()["oauth_cb"]


def returning(result: object) -> Any:
    """Return the function that a client gets, if the user's returns or raises `result`."""
    function = of("own_tokens:token")
    function._function.__globals__["TOKENS"][""] = result
    return function


@pytest.mark.parametrize(
    "result", [(SECRET, LATER_S), (SECRET, int(LATER_S), "ann"), (SECRET, LATER_S, "ann", {"cluster": "one"})]
)
def test_a_client_gets_what_the_function_returns(folder: Path, result: tuple[Any, ...]) -> None:
    """The token and its end, perhaps with a principal and extensions, as the client takes them."""
    assert tuple(returning(result)(""))[: len(result)] == result


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (SECRET, "tuple of the token and when it expires"),
        ((SECRET,), "tuple of the token and when it expires"),
        ((SECRET, "tomorrow"), "its end as a number"),
        ((SECRET.encode(), LATER_S), "the token as a str"),
        ((SECRET, LATER_S * 1000), "in milliseconds.*`expires_ms / 1000`"),
        ((SECRET, time.time() - 1), "has expired; compare this machine's clock"),
        (("", LATER_S), "is empty"),
        (RuntimeError("the service is closed"), r"the service is closed \(token \(own_tokens\.py, line 7\)"),
    ],
)
def test_what_is_no_token_is_logged_with_the_reason_and_without_the_token(
    folder: Path, caplog: pytest.LogCaptureFixture, result: object, says: str
) -> None:
    """The client would ask again without a word, and each request would seem unanswered."""
    caplog.set_level(logging.WARNING, "penstock.kafka")
    function = returning(result)
    for _ in range(3):
        with pytest.raises(Exception, match=says.split(r" \(", maxsplit=1)[0].split(".*", maxsplit=1)[0]):
            function("")
    [line] = caplog.messages

    assert line.startswith("The token function own_tokens:token failed: ")
    assert SECRET not in line


def test_a_failure_is_reported_once_for_all_clients_of_a_process(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker has many clients, and each asks for tokens of its own."""
    caplog.set_level(logging.WARNING, "penstock.kafka")
    returning(RuntimeError("the service is closed"))
    for _ in range(3):
        with pytest.raises(RuntimeError):
            of("own_tokens:token")("")

    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("own_tokens", r"names no function\. No request was sent.*oauth_cb = .module:function"),
        ("own_tokens:", "names no function"),
        ("own_tokens:other", "own_tokens has no function 'other'.*`def other"),
        ("own_tokens:number", "own_tokens has no function 'number'"),
        ("missing:token", "There is no module missing"),
    ],
)
def test_a_place_without_a_function_is_refused(folder: Path, place: str, says: str) -> None:
    """The error says which function is missing."""
    with pytest.raises(SettingsRefused, match=says):
        of(place)


def test_aws_msk_gets_a_signed_request_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the region, is signed with this machine's credentials, and ends within 15 minutes. No service is asked."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    text, expires_s, *_ = of("aws_msk_iam")("eu-west-1")
    signed = base64.urlsafe_b64decode(text + "==").decode()

    assert signed.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
    assert "AKIAEXAMPLE" in signed
    assert SECRET not in signed
    assert 0 < expires_s - time.time() <= 15 * 60


def test_aws_msk_without_a_region_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The region of the environment counts, too."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)  # in one folder, clients share a function, which reports a failure once
    function = of("aws_msk_iam")
    with pytest.raises(ValueError, match="no region"):
        function("")

    assert 'sasl.oauthbearer.config = "eu-west-1"' in caplog.text


def test_aws_msk_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the extra."""
    monkeypatch.chdir(tmp_path)  # another folder: the function of the first one is kept
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(SettingsRefused, match=r"No request was sent.*penstock-core\[msk\]"):
        of("aws_msk_iam")
