"""Where people are told: a webhook, a command, a category."""

from __future__ import annotations

import logging
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from ...processors.errors import PenstockError
from ...transport.bus import Bus
from ...transport.messages import Outgoing
from .alert_states import ActiveAlert

_LOG = logging.getLogger("penstock.alerts")
ANSWER_LIMIT_S = 10.0
COMMAND_LIMIT_S = 30.0
GIVEN_UP_AFTER_S = 3_600.0
"""How long a notice is tried again that could not be delivered."""


class Notification(msgspec.Struct, frozen=True):
    """What people are told.

    Args:
        status: "firing" or "resolved".
        rule: the rule's name.
        processor: the processor's.
        measure: the figure's.
        limit: its limit in words.
        figure: as it is, or was last.
        since_ms: since when it was beyond the limit (milliseconds since 1970, UTC).
        at_ms: when this was said.
        says: what is wrong, in words.
    """

    status: str
    rule: str
    processor: str
    measure: str
    limit: str
    figure: float
    since_ms: int
    at_ms: int
    says: str

    @staticmethod
    def of(raised: ActiveAlert, status: str, at_ms: int) -> Notification:
        """Return what is told of an alert."""
        return Notification(
            status,
            raised.rule,
            raised.processor,
            raised.measure,
            raised.limit,
            raised.figure,
            raised.since_ms,
            at_ms,
            raised.says,
        )


class NotificationFailed(PenstockError):
    """A notice did not arrive: it is tried again."""


class Recipient(Protocol):
    """Somebody who is told."""

    def tell(self, notice: Notification) -> None:
        """Deliver a notice.

        Raises:
            NotificationFailed: it did not arrive.
        """
        ...


_encode = msgspec.json.Encoder().encode


class Webhook:
    """An address that is sent each notice as JSON by POST.

    Args:
        url: may hold a secret: only its host is shown.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PenstockError(
                "The webhook is no address of the web: give http://… or https://… . Nothing is watched."
            )
        self._url = url
        self._host = parts.hostname

    def tell(self, notice: Notification) -> None:
        """Send a notice; any answer but 2xx is a failure."""
        request = urllib.request.Request(  # noqa: S310 - http and https alone
            self._url, _encode(notice), {"Content-Type": "application/json", "User-Agent": "penstock"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S):  # noqa: S310 - as above
                return
        except urllib.error.HTTPError as error:
            raise NotificationFailed(f"The webhook at {self._host} answered {error.code}.") from error
        except (OSError, ValueError) as error:
            raise NotificationFailed(f"The webhook at {self._host} does not answer: {type(error).__name__}.") from error


class Command:
    """A program that is started for each notice, which it is given as JSON on its standard input.

    Args:
        line: as a shell would split it; no shell is used.
    """

    def __init__(self, line: str) -> None:
        self._arguments = shlex.split(line)

    def tell(self, notice: Notification) -> None:
        """Run the program; it has to end with 0."""
        name = self._arguments[0]
        try:
            done = subprocess.run(
                self._arguments, input=_encode(notice), capture_output=True, timeout=COMMAND_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotificationFailed(f"{name} was not run to its end: {error}.") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-300:]
            raise NotificationFailed(f"{name} ended with {done.returncode}: {said}")


class CategoryOfAlerts:
    """A category that is written each notice, as JSON, by rule and processor.

    Args:
        bus: where it is.
        name: an existing category.
    """

    def __init__(self, bus: Bus, name: str) -> None:
        bus.catalog.describe(name)
        self._name = name
        self._writer = bus.writer()

    def tell(self, notice: Notification) -> None:
        """Write a notice; it is durable on return."""
        try:
            self._writer.send(self._name, [Outgoing(f"{notice.rule}/{notice.processor}".encode(), _encode(notice))])
            self._writer.flush()
        except PenstockError as error:
            raise NotificationFailed(str(error)) from error


class Delivery:
    """Delivers notices; who could not be told is tried again when the notice is given again. One thread.

    Args:
        recipients: who is told.
        now_s: tells how long something is tried.
    """

    def __init__(self, recipients: Sequence[Recipient], now_s: Callable[[], float] = time.monotonic) -> None:
        self._recipients = recipients
        self._now_s = now_s
        self._left: dict[tuple[str, str, str, int], _Left] = {}

    def tell(self, notice: Notification) -> bool:
        """Tell everybody who was not told of this yet; return whether nobody is left, be it that he was given up."""
        key = (notice.status, notice.rule, notice.processor, notice.since_ms)
        left = self._left.setdefault(key, _Left(self._now_s(), list(self._recipients)))
        left.recipients = [one for one in left.recipients if not self._is_told(one, notice, left.since_s)]
        if not left.recipients:
            del self._left[key]
        return not left.recipients

    def _is_told(self, recipient: Recipient, notice: Notification, since_s: float) -> bool:
        try:
            recipient.tell(notice)
        except NotificationFailed as error:
            tried_s = self._now_s() - since_s
            goes_on = tried_s < GIVEN_UP_AFTER_S
            what = f"{notice.rule} of {notice.processor} is {notice.status}"
            _LOG.warning(
                "%s Not told%s: %s.", error, " yet" if goes_on else f" after {tried_s / 60:.0f} min, given up", what
            )
            return not goes_on
        return True


@dataclass
class _Left:
    """Who is still to be told of something, and since when that is tried."""

    since_s: float
    recipients: list[Recipient]
