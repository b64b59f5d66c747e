"""Addresses that users, configurations and clients name. The standard parser raises errors for some of them."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import SplitResult, urlsplit


def split_address(text: str) -> SplitResult | None:
    """Return the parts of an address; None if it has an open bracket, as of an IPv6 address, or a port that is no number up to 65535."""
    with suppress(ValueError):
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises an error if it is no port
        return parts
    return None


def http_host(url: str) -> str | None:
    """Return the host of an address for HTTP; None if a text is no such address with a host, and a port if it names one."""
    parts = split_address(url)
    if parts is None or parts.scheme not in {"http", "https"} or parts.port == 0:
        return None
    return parts.hostname or None


def is_http_address(url: str) -> bool:
    """Return whether a text is an address for HTTP with a host, and a port if it names one."""
    return http_host(url) is not None


def host_of(url: str) -> str:
    """Return the scheme and the host of a URL, without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
