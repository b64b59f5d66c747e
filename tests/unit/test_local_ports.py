"""Services keep their ports, unless another process uses them."""

import socket

from penstock.ops.shell import LOOPBACK, choose_ports, is_listening


def test_a_previous_port_is_kept() -> None:
    """A restarted service has the same address."""
    first = choose_ports(("broker", "controller"), {})

    assert choose_ports(("broker", "controller"), first) == first


def test_only_a_used_port_is_replaced() -> None:
    """The other port stays."""
    first = choose_ports(("broker", "controller"), {})
    with socket.create_server((LOOPBACK, first["broker"])):
        second = choose_ports(("broker", "controller"), first)

    assert second["broker"] != first["broker"]
    assert second["controller"] == first["controller"]


def test_ports_chosen_together_are_distinct() -> None:
    """No two names get the same port."""
    names = [f"port{number}" for number in range(500)]

    assert len(set(choose_ports(names, {}).values())) == len(names)


def test_a_listening_port_is_detected() -> None:
    """A port is listening while a process accepts connections on it."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
        while_open = is_listening(port)

    assert while_open
    assert not is_listening(port)


def test_a_chosen_port_is_none_of_an_outgoing_connection() -> None:
    """Connections to other services do not take a port between its choice and the start of the service."""
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as connection:
        outgoing: int = connection.getsockname()[1]

    assert max(choose_ports([f"port{number}" for number in range(50)], {}).values()) < outgoing
