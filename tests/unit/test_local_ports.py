"""Ports are remembered, unless someone else took them."""

import socket

from penstock.ops.dev_services.ports import LOOPBACK, choose_ports, is_listening


def test_a_remembered_port_is_kept() -> None:
    """A service comes back where its clients look for it."""
    first = choose_ports(("broker", "controller"), {})

    assert choose_ports(("broker", "controller"), first) == first


def test_a_port_taken_by_someone_else_is_replaced_alone() -> None:
    """Only the port that is taken changes."""
    first = choose_ports(("broker", "controller"), {})
    with socket.create_server((LOOPBACK, first["broker"])):
        second = choose_ports(("broker", "controller"), first)

    assert second["broker"] != first["broker"]
    assert second["controller"] == first["controller"]


def test_ports_chosen_together_are_distinct() -> None:
    """No two names get one port."""
    names = [f"port{number}" for number in range(50)]

    assert len(set(choose_ports(names, {}).values())) == len(names)


def test_listening_is_told_from_free() -> None:
    """A port counts as listening while something accepts connections on it."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
        while_open = is_listening(port)

    assert while_open
    assert not is_listening(port)
