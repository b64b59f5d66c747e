"""Addresses that only this machine can reach."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether only this machine itself can reach an address or a name."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
