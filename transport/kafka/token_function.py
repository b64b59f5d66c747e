"""Tokens for OAUTHBEARER from a function of the user's, such as one that asks AWS or Azure.

oauth_cb = "module:function" --imported--> TokenFunction --sasl.oauthbearer.config--> token and its end --> the client, in a thread of its own

The client asks for the next token when 80 % of a token's time have passed, and authenticates again without a new connection if the broker wants it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...processors import PenstockError, error_in_words, raising_line
from ..errors import SettingsRefused
from . import msk_tokens

SETTING = "oauth_cb"
_LOG = logging.getLogger("penstock.kafka")
REPEAT_S = 30.0
"""The least time between two reports of a function that fails."""
_MILLISECONDS = 100_000_000_000
"""No time in seconds is so late before the year 5138."""


class BearerToken(NamedTuple):
    """What a client takes from a token function.

    Args:
        text: the token.
        expires_s: when it expires (seconds since 1970, UTC).
        principal: the name that the client logs.
        extensions: SASL extensions (KIP-342).
    """

    text: str
    expires_s: float
    principal: str = ""
    extensions: Mapping[str, str] = {}


class TokenFunction:
    """A function that returns tokens, as clients call it: its errors are logged, without the token.

    Args:
        place: the setting, as `module:function`.
        function: takes the setting `sasl.oauthbearer.config`, or an empty text. Returns the token and when it expires, in seconds since 1970;
            perhaps also a principal and SASL extensions.
    """

    def __init__(self, place: str, function: Callable[[str], object]) -> None:
        self._place = place
        self._function = function
        self._reported_s = -REPEAT_S

    def __call__(self, configuration: str) -> BearerToken:
        """Return the next token.

        Raises:
            Exception: what the function raises, or a reason why its result is no token. The client asks again after 10 s.
        """
        try:
            return _token_in(self._function(configuration))
        except Exception as error:
            self._report(error)
            raise

    def _report(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= REPEAT_S:
            self._reported_s = now_s
            _LOG.warning(
                "The token function %s failed: %s%s. Kafka does not accept this client without a token; no data is lost, and it is asked again.",
                self._place,
                error_in_words(error),
                f" ({place})" if (place := raising_line(error)) else "",
            )


def token_function(place: str) -> TokenFunction:
    """Return the function that a setting names: `aws_msk_iam`, or a module of the working folder or an installed one, and a function in it.

    All clients of a process share it, so that a failure is reported once, not for each of them.

    Raises:
        SettingsRefused: there is no such function, or a package that it needs is not installed.
    """
    return _imported(place, Path.cwd())


@cache
def _imported(place: str, folder: Path) -> TokenFunction:  # noqa: ARG001 - relative names depend on it
    from ...processors.apps import file_of, imported  # noqa: PLC0415 - most clients need no tokens

    if place == msk_tokens.NAME:
        msk_tokens.expect_signer()
        return TokenFunction(place, msk_tokens.msk_token)
    module, _, name = place.partition(":")
    if not (module and name):
        raise SettingsRefused(
            f'{SETTING} is {place!r}, which names no function. No request was sent. Write {SETTING} = "module:function", such as "tokens:aws", or '
            f'"{msk_tokens.NAME}".'
        )
    try:
        function = getattr(imported(file_of(module), "module of tokens", "tokens.py"), name, None)
    except PenstockError as error:
        raise SettingsRefused(f"{SETTING} is {place!r}: {error} No request was sent.") from error
    if not callable(function):
        raise SettingsRefused(
            f"{SETTING} is {place!r}, but {module} has no function {name!r}. No request was sent. Define `def {name}(config):`, which returns a token and "
            "when it expires, in seconds since 1970."
        )
    return TokenFunction(place, function)


def _token_in(result: object) -> BearerToken:
    """Return the token in a function's result.

    Raises:
        TypeError: it is no token.
        ValueError: the token is empty or expired, or its end is in milliseconds.
    """
    if not isinstance(result, tuple) or not 2 <= len(result) <= len(BearerToken._fields):
        raise TypeError(
            f"it returned a {type(result).__name__}; it must return a tuple of the token and when it expires"
        )
    text, expires_s = result[:2]
    if not isinstance(text, str) or not isinstance(expires_s, (int, float)):
        raise TypeError("it must return the token as a str and its end as a number")
    token = BearerToken(text, expires_s, *result[2:])
    if token.expires_s > _MILLISECONDS:
        raise ValueError("the end of its token is in milliseconds; it must be in seconds, such as `expires_ms / 1000`")
    if not token.text or token.expires_s <= time.time():
        raise ValueError(
            "its token is empty or has expired; compare this machine's clock with the clock of the service"
        )
    return token
